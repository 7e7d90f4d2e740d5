"""The lines of Python that repeat a result."""

import re
from collections.abc import Mapping

import fferm
from fferm import divergences, notions, uncertainty
from fferm.auditing import Audit, RegressionAudit
from fferm.curve import TradeoffCurve

# Where the classes that occur in code are imported from.
HOMES = {
    "fferm.divergences": divergences,
    "fferm.notions": notions,
    "fferm.uncertainty": uncertainty,
    "fferm": fferm,
}
# Options of a page that the reader passes again.
PASSED = ("before", "provenance")


def curve_snippet(curve: TradeoffCurve, **page: object) -> str:
    """Return the lines that repeat a curve and its page, given the rows.

    ``page`` holds the options of the page, None for defaults.
    """
    about = curve.description
    models = {
        name: of.get("code", "estimator") for name, of in curve.descriptions.items()
    }
    estimator = next(iter(models.values()))
    if len(models) > 1 or about.get("estimator") not in models:
        pairs = [f"    {name!r}: {code}," for name, code in models.items()]
        estimator = "\n    ".join(["{", *pairs, "}"])
    passed = [n for n in ("sample_weight", "test") if about.get(n) == "given"]
    lists = {
        name: repr(sorted(curve.records[column].unique().tolist()))
        for name, column in (("fairness_weights", "fairness_weight"), ("seeds", "seed"))
    }
    arguments = lists | {name: name for name in passed}
    lines = _imports("from fferm import tradeoff_curve", *models.values())
    lines += _call("curve = tradeoff_curve", [estimator, "X", "y"], arguments)
    return "\n".join([*lines, _page("curve", "report.html", page)])


def audit_snippet(audit: Audit, **page: object) -> str:
    """Return the lines that repeat an audit and its page, given model and rows.

    ``page`` holds the options of the page, None for defaults.
    """
    spec, name, notes = audit.spec, "audit", []
    settings = {"notion": spec.notion, "confidence": repr(audit.confidence)}
    repeated = ["groups", "n_bootstrap", "random_state"]
    if isinstance(audit, RegressionAudit):
        name, notes = "audit_regression", ["# model: None if X holds the predictions."]
        settings["metric"] = repr(audit.metric)
        repeated += ["n_permutations", "continuous"]
    else:
        settings["divergence"] = str(spec.divergence)
    settings |= {setting: repr(getattr(spec, setting)) for setting in repeated}
    if spec.is_behind_pipeline:
        del settings["notion"]
        notes += [f"# The notion is the model's own, {spec.notion},"]
        notes += ["# a column of X after the pipeline's transformers."]
    if spec.random_state is None:
        settings["random_state"] = "random_state"
    if spec.is_weighted:
        settings["sample_weight"] = "sample_weight"
    lines = _imports(f"from fferm import {name}", *settings.values()) + notes
    lines += _call(f"result = {name}", ["model", "X", "y"], settings)
    return "\n".join([*lines, _page("result", "audit.html", page)])


def _imports(first: str, *codes: str) -> list[str]:
    # Import lines, and comments on what only the reader can fill in.
    code = " ".join(codes)
    lines, notes = [first], []
    for name in dict.fromkeys(re.findall(r"\b([A-Z]\w*)\(", code)):
        homes = [home for home, module in HOMES.items() if name in dir(module)]
        if homes:
            lines.append(f"from {homes[0]} import {name}")
        else:
            notes.append(f"# {name}: your own class.")
    for name in dict.fromkeys(re.findall(r"\b(\w+)=\1\b", code)):
        notes.append(f"# {name}: as passed before.")
    return [*lines, "", *notes]


def _call(start: str, first: list[str], settings: Mapping[str, str]) -> list[str]:
    named = {"sensitive_features": "sensitive_features", **settings}
    arguments = [*first, *(f"{name}={code}" for name, code in named.items())]
    return [f"{start}(", *(f"    {line}," for line in arguments), ")"]


def _page(result: str, path: str, page: Mapping[str, object]) -> str:
    options = "".join(
        f", {name}={name if name in PASSED else repr(value)}"
        for name, value in page.items()
        if value is not None
    )
    return f'{result}.to_html("{path}"{options})'
