"""The lines of Python that repeat a result."""

import re
from collections.abc import Mapping

from fferm import divergences, notions, uncertainty
from fferm.auditing import Audit, RegressionAudit
from fferm.curve import TradeoffCurve

# Where the classes that occur in code are imported from.
HOMES = {
    "fferm.divergences": divergences,
    "fferm.notions": notions,
    "fferm.uncertainty": uncertainty,
}


def curve_snippet(curve: TradeoffCurve, page: Mapping[str, object]) -> str:
    """Return the lines that repeat a curve and its page, given the rows.

    ``page`` holds the options of the page, None for defaults.
    """
    models = {
        name: about.get("code", "estimator")
        for name, about in curve.descriptions.items()
    }
    is_single = len(models) == 1 and curve.description.get("estimator") in models
    pairs = [f"    {name!r}: {code}," for name, code in models.items()]
    estimator = "\n    ".join(["{", *pairs, "}"])
    arguments = [
        next(iter(models.values())) if is_single else estimator,
        "X",
        "y",
        "sensitive_features=sensitive_features",
        f"fairness_weights={sorted(curve.records['fairness_weight'].unique().tolist())}",
        f"seeds={sorted(curve.records['seed'].unique().tolist())}",
    ]
    passed = [
        f"{name}={name}"
        for name in ("sample_weight", "test")
        if curve.description.get(name) == "given"
    ]
    call = _call("curve = tradeoff_curve", [*arguments, *passed])
    lines = _imports("from fferm import tradeoff_curve", *models.values())
    return "\n".join([*lines, call, _page("curve", "report.html", page)])


def audit_snippet(audit: Audit, page: Mapping[str, object]) -> str:
    """Return the lines that repeat an audit and its page, given model and rows.

    ``page`` holds the options of the page, None for defaults.
    """
    spec, name, first = audit.spec, "audit", []
    settings = {
        "notion": spec.notion,
        "groups": repr(spec.groups),
        "confidence": repr(audit.confidence),
        "n_bootstrap": repr(spec.n_bootstrap),
        "random_state": repr(spec.random_state),
    }
    if isinstance(audit, RegressionAudit):
        name, first = "audit_regression", ["# model: None if X holds the predictions."]
        settings["metric"] = repr(audit.metric)
        settings["n_permutations"] = repr(spec.n_permutations)
        settings["continuous"] = repr(spec.continuous)
    else:
        settings["divergence"] = str(spec.divergence)
    if spec.is_behind_pipeline:
        del settings["notion"]
        first += [f"# The notion is the model's own, {spec.notion},"]
        first += ["# a column of X after the pipeline's transformers."]
    if spec.random_state is None:
        settings["random_state"] = "random_state"
    if spec.is_weighted:
        settings["sample_weight"] = "sample_weight"
    arguments = ["model", "X", "y", "sensitive_features=sensitive_features"]
    arguments += [f"{key}={code}" for key, code in settings.items()]
    lines = _imports(f"from fferm import {name}", *settings.values())
    call = _call(f"result = {name}", arguments)
    return "\n".join([*lines, *first, call, _page("result", "audit.html", page)])


def _imports(first: str, *codes: str) -> list[str]:
    # Import lines, and comments on what only the reader can fill in.
    code = " ".join(codes)
    lines, notes = [first], []
    for name in dict.fromkeys(re.findall(r"\b([A-Z]\w*)\(", code)):
        homes = [home for home, module in HOMES.items() if hasattr(module, name)]
        if homes:
            lines.append(f"from {homes[0]} import {name}")
        elif name.startswith("Fair"):
            lines.append(f"from fferm import {name}")
        else:
            notes.append(f"# {name}: your own class.")
    for name in dict.fromkeys(re.findall(r"\b(\w+)=\1\b", code)):
        notes.append(f"# {name}: as passed before.")
    return [*lines, "", *notes]


def _call(start: str, arguments: list[str]) -> str:
    return "\n".join([f"{start}(", *(f"    {line}," for line in arguments), ")"])


def _page(result: str, path: str, page: Mapping[str, object]) -> str:
    options = "".join(
        f", {name}={name if name == 'before' else repr(value)}"
        for name, value in page.items()
        if value is not None
    )
    return f'{result}.to_html("{path}"{options})'
