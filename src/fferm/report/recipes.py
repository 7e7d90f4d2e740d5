"""Recipes: the lines of Python that repeat a result."""

import textwrap

from fferm.auditing import Audit, RegressionAudit
from fferm.auditing.spelling import Spelling, spell, unique
from fferm.curve import TradeoffCurve

WIDTH = 76
UNKNOWN = "# estimator: what was given before."


def curve_recipe(curve: TradeoffCurve, **page: object) -> str:
    """Return the lines that repeat a curve and its page, given the rows.

    ``page`` holds what `write_curve` was told of the page, None where nothing.
    """
    weights = sorted(curve.records["fairness_weight"].unique().tolist())
    seeds = sorted(curve.records["seed"].unique().tolist())
    estimator = _estimator(curve)
    rows = ["X", "y", "sensitive_features=sensitive_features"]
    if curve.description.get("sample_weight", "none") == "given":
        rows.append("sample_weight=sample_weight")
    if curve.description.get("test", "held out") == "given":
        rows.append("test=test")
    arguments = [
        estimator.code,
        ", ".join(rows),
        _listed("fairness_weights", weights),
        _listed("seeds", seeds),
    ]
    write_import, write = _written("curve", "report.html", page)
    return _joined(
        ["from fferm import tradeoff_curve", *estimator.imports, *write_import],
        estimator.notes,
        [_call("curve = tradeoff_curve", arguments), write],
    )


def audit_recipe(audit: Audit, **page: object) -> str:
    """Return the lines that repeat an audit and its page, given model and rows.

    ``page`` holds what `write_audit` was told of the page, None where nothing.
    """
    asked, notes = audit.asked, list(audit.asked.notes)
    settings = {
        "notion": asked.notion,
        "divergence": asked.divergence,
        "groups": repr(asked.groups),
        "confidence": repr(audit.confidence),
        "n_bootstrap": repr(asked.n_bootstrap),
        "random_state": repr(asked.random_state),
    }
    imports = asked.imports
    if asked.is_behind_pipeline:
        notes += _behind_pipeline(asked.notion)
        del settings["notion"]
        imports = tuple(line for line in imports if "fferm.notions" not in line)
    if asked.random_state is None:
        notes.append("# random_state: the generator in the state that it was in.")
        settings["random_state"] = "random_state"
    if page.get("before") is not None:
        notes.append("# before: the audit of the model before, on the same rows.")
    if asked.is_weighted:
        settings["sample_weight"] = "sample_weight"
    arguments = [
        "model, X, y, sensitive_features=sensitive_features",
        *(f"{name}={code}" for name, code in settings.items()),
    ]
    write_import, write = _written("audit", "audit.html", page)
    return _joined(
        ["from fferm import audit", *imports, *write_import],
        notes,
        [_call("found = audit", arguments), write],
    )


def regression_recipe(audit: RegressionAudit, **page: object) -> str:
    """Return the lines that repeat a regressor's audit and its page.

    ``page`` holds what `write_regression_audit` was told of the page.
    """
    asked, notes = audit.asked, list(audit.asked.notes)
    names = ("groups", "n_permutations", "n_bootstrap", "random_state", "continuous")
    told = {"metric": audit.metric, "confidence": audit.confidence}
    told |= {name: getattr(asked, name) for name in names}
    if not isinstance(asked.continuous, str):
        told["continuous"] = list(asked.continuous)
    arguments = [
        "model, X, y, sensitive_features=sensitive_features",
        *(f"{name}={value!r}" for name, value in told.items()),
    ]
    imports = asked.imports
    if asked.is_behind_pipeline:
        notes += _behind_pipeline(asked.notion)
        imports = ()
    elif audit.notion != "demographic_parity":
        arguments.append(f"notion={asked.notion}")
    if asked.is_weighted:
        arguments.append("sample_weight=sample_weight")
    options = {name: value for name, value in page.items() if value is not None}
    shown = "".join(f", {name}={value!r}" for name, value in options.items())
    return _joined(
        ["from fferm.auditing import audit_regression", *imports],
        ["# model: None where X holds the predictions themselves.", *notes],
        [
            _call("found = audit_regression", arguments),
            f'found.to_html("audit.html"{shown})',
        ],
    )


def _behind_pipeline(notion: str) -> list[str]:
    return [
        f"# The notion is the model's own, {notion},",
        "# a column of X after the pipeline's transformers.",
    ]


def _estimator(curve: TradeoffCurve) -> Spelling:
    spelled = {
        name: Spelling(
            about.get("code", "estimator"),
            tuple(about.get("imports", "").splitlines()),
            tuple(about.get("notes", UNKNOWN).splitlines()),
        )
        for name, about in curve.descriptions.items()
    }
    imports = [line for part in spelled.values() for line in part.imports]
    notes = [line for part in spelled.values() for line in part.notes]
    if len(spelled) == 1 and curve.description.get("estimator") in spelled:
        return next(iter(spelled.values()))
    pairs = [f"{name!r}: {part.code}" for name, part in spelled.items()]
    code = "{\n" + textwrap.indent(",\n".join([*pairs, "}"]), " " * 4)
    return Spelling(code.removesuffix("    }") + "}", unique(imports), unique(notes))


def _written(
    kind: str, path: str, page: dict[str, object]
) -> tuple[tuple[str, ...], str]:
    # What to import, and the line that writes the page as it was asked for.
    result = "found" if kind == "audit" else "curve"
    told = {name: value for name, value in page.items() if value is not None}
    if not told:
        return (), f'{result}.to_html("{path}")'
    options = ", ".join(
        f"{name}={spell(value, name).code}" for name, value in told.items()
    )
    return (
        (f"from fferm.report import write_{kind}",),
        f'write_{kind}({result}, "{path}", {options})',
    )


def _call(start: str, arguments: list[str]) -> str:
    lines = [textwrap.indent(f"{argument},", " " * 4) for argument in arguments]
    return "\n".join([f"{start}(", *lines, ")"])


def _joined(
    imports: list[str], notes: list[str] | tuple[str, ...], lines: list[str]
) -> str:
    return "\n".join([*unique(imports), "", *unique(notes), *lines])


def _listed(name: str, values: list[float]) -> str:
    text = f"{name}=[{', '.join(map(repr, values))}]"
    return textwrap.fill(text, WIDTH, subsequent_indent=" " * 4)
