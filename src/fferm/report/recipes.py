"""Recipes: the lines of Python that repeat a result."""

import textwrap

from sklearn.base import clone

from fferm.auditing import Audit
from fferm.tradeoff import TradeoffCurve

WIDTH = 76


def curve_recipe(curve: TradeoffCurve) -> str:
    """Return the call that repeats a curve, given its rows."""
    weights = sorted(curve.records["fairness_weight"].unique().tolist())
    seeds = sorted(curve.records["seed"].unique().tolist())
    lines = [
        f"from fferm import {curve.description['estimator']}, tradeoff_curve",
        "",
        "curve = tradeoff_curve(",
        f"    {_estimator(curve)},",
        "    X, y, sensitive_features=sensitive_features, test=test,",
        _listed("fairness_weights", weights),
        _listed("seeds", seeds),
        ")",
        'curve.to_html("report.html")',
    ]
    return "\n".join(lines)


def audit_recipe(audit: Audit) -> str:
    """Return the call that repeats an audit, given its model and rows."""
    return "\n".join(
        [
            "from fferm import audit",
            "",
            "found = audit(",
            "    model, X, y, sensitive_features=sensitive_features,",
            f"    notion={audit.notion!r}, divergence={audit.divergence!r},",
            f"    confidence={audit.confidence:g},",
            ")",
            'found.to_html("audit.html")',
        ]
    )


def _estimator(curve: TradeoffCurve) -> str:
    if not curve.models:
        return f"{curve.description['estimator']}(...)"
    model = next(iter(curve.models.values()))
    # A sweep sets these two itself.
    usual = type(model)().get_params()
    swept = {name: usual[name] for name in ("fairness_weight", "random_state")}
    return repr(clone(model).set_params(**swept)).replace("\n", "\n    ")


def _listed(name: str, values: list[float]) -> str:
    text = f"{name}=[{', '.join(map(repr, values))}],"
    return textwrap.fill(text, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
