r"""Docstrings as Markdown: what a browser without scripts can show.

The docstrings of fferm are numpydoc, so their formulas are LaTeX after ``.. math::``.
A site that loads nothing from outside has no typesetter for LaTeX; this griffe
extension writes the formulas in plain letters instead, as blocks of code.
"""

import re
from typing import Any

import griffe

# In this order: longer names first where one begins another.
MACROS = {
    r"\varepsilon": "ε",
    r"\propto": "∝",
    r"\lambda": "λ",
    r"\kappa": "κ",
    r"\theta": "θ",
    r"\delta": "δ",
    r"\qquad": "   ",
    r"\dots": "…",
    r"\cdot": "·",
    r"\infty": "∞",
    r"\phi": "φ",
    r"\sqrt": "√",
    r"\max": "max",
    r"\min": "min",
    r"\exp": "exp",
    r"\sum": "Σ",
    r"\sim": "~",
    r"\mid": "|",
    r"\ell": "ℓ",
    r"\hat y": "ŷ",
    r"\pi": "π",
    r"\mu": "μ",
    r"\nu": "ν",
    r"\in": "∈",
    r"\le": "≤",
    r"\ge": "≥",
    r"\|": "‖",
    r"\,": " ",
    r"\;": " ",
    "\\ ": " ",
}

DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. math::(?P<first>[^\n]*)\n"
    r"(?P<rest>(?:(?P=indent) +[^\n]*\n?|\s*\n(?=(?P=indent) +\S))*)",
    re.MULTILINE,
)
SIMPLE_TABLE = re.compile(r"^=+ +=+\n(?:.*\n)+?=+ +=+$", re.MULTILINE)
ROLE = re.compile(r":(?:func|class|meth|mod):`([^`]+)`")
INLINE_MATH = re.compile(r":math:`([^`]+)`")


def plain(formula: str) -> str:
    r"""Return a formula of LaTeX in plain letters.

    Examples
    --------
    >>> plain(r"\frac1n \sum_{jk} \pi_k")
    '1/n Σ_jk π_k'
    """
    text = re.sub(r"\\text\{([^}]*)\}", lambda m: m[1].replace(r"\_", "_"), formula)
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", text)
    text = re.sub(r"\\frac\{([^{}]*)\}(\w)", r"\1/\2", text)
    text = re.sub(r"\\frac(\w)(\w)", r"\1/\2", text)
    text = re.sub(r"\\[bB]ig+[lr]?", "", text)
    text = text.replace("\\\\", "\n").replace("&", "")
    for macro, letters in MACROS.items():
        text = text.replace(macro, letters)
    text = re.sub(r"_\{(\w+)\}", r"_\1", text)
    text = text.replace("{", "(").replace("}", ")")
    lines = (re.sub(r"(?<=\S) +", " ", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def to_markdown(docstring: str) -> str:
    """Return a docstring with its reStructuredText turned into Markdown."""
    text = DIRECTIVE.sub(_block, docstring)
    text = SIMPLE_TABLE.sub(lambda m: f"```text\n{_without_rules(m[0])}\n```", text)
    text = INLINE_MATH.sub(lambda m: plain(m[1]), ROLE.sub(r"`\1`", text))
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def _block(found: re.Match[str]) -> str:
    indent = found["indent"]
    formula = plain(f"{found['first']}\n{found['rest']}")
    lines = ["```text", *formula.splitlines(), "```", ""]
    return "".join(f"{indent}{line}\n" if line else "\n" for line in lines)


def _without_rules(table: str) -> str:
    body = "\n".join(table.splitlines()[1:-1])
    return body.replace("``", "")


class PlainMath(griffe.Extension):
    """Rewrites every docstring before it is parsed into sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
