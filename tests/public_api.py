"""Describe the public names, their parameters and defaults, and the command lines.

`python tests/public_api.py` writes the description to public_api.json.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import re
import sys
from pathlib import Path

from sklearn.linear_model import LinearRegression, LogisticRegression

import fferm
from fferm.datasets import make_biased

FILE = Path(__file__).with_name("public_api.json")
# Modules whose `__all__` is public.
WHOLE = (
    *("fferm", "fferm.divergences", "fferm.uncertainty", "fferm.torch"),
    *("fferm.datasets", "fferm.deploy", "fferm.tuning", "fferm.testing"),
)
# The public names of modules that hold others too.
NAMED = {
    "fferm.metrics": (
        *("Absence", "Floor", "Gap", "GroupMetrics", "Violations", "by_group"),
        *("group_table", "rows_needed"),
        *("soft_violation", "violation", "violation_floor", "violations"),
    ),
    "fferm.notions": (
        *("ConditionalParity", "DemographicParity", "EqualOpportunity"),
        *("EqualizedOdds", "FalsePositiveRateParity", "Labels", "Notion"),
        *("PredictiveParity", "Strata", "Sufficiency", "get"),
    ),
    "fferm.export": ("lightgbm", "model_card", "onnx", "onnx_inputs", "treelite"),
    "fferm.integrations.dask": ("train_xgboost",),
    "fferm.integrations.huggingface": ("FairTrainer",),
    "fferm.integrations.opacus": ("PrivateFairnessLoss",),
    "fferm.integrations.mlflow": ("load_model", "log_audit", "log_model", "save_model"),
    "fferm.tables": ("joint", "penalty"),
    "fferm.cli": ("main",),
}
# The public members of classes; of any other class, how it is made.
_CLASSIFIER = (
    *("__init__", "fit", "predict", "predict_proba", "predict_log_proba"),
    *("decision_function", "score", "get_params", "set_params", "set_fit_request"),
)
_LOSS = ("from_labels", "forward", "encode")
MEMBERS = {
    "FairLogisticRegression": (*_CLASSIFIER, "partial_fit", "to_sklearn"),
    "FairNetClassifier": _CLASSIFIER,
    "FairBoostingClassifier": _CLASSIFIER,
    "FairRegressor": (
        *("__init__", "fit", "predict", "score", "get_params", "set_params"),
        *("set_fit_request", "to_sklearn"),
    ),
    "GroupCounts": ("__init__", "update", "shares", "copy", "total", "labels"),
    "TradeoffCurve": (
        *("bands", "choose", "curves", "hypervolume", "load", "pareto", "plot"),
        *("select", "to_html", "records", "models", "alternatives"),
    ),
    "Divergence": (
        *("f", "f_prime", "f_second", "conjugate", "conjugate_prime", "between"),
        *("largest", "dual_box", "dual_domain", "is_smooth", "name", "aliases"),
        *("slope_at_infinity", "slope_at_zero", "value_at_zero", "known", "resolve"),
        "parameters",
    ),
    "Notion": ("strata", "needs_labels", "weighting", "name", "aliases", "known"),
    "Violations": ("by_stratum", "mean", "worst"),
    "FairnessLoss": (*_LOSS, "diagnostics"),
    "PrivateFairnessLoss": ("from_noisy_counts", "make_private", "forward"),
    "CriticFairnessLoss": _LOSS,
    "SemiStochasticFairnessLoss": (*_LOSS, "groups", "refresh", "refresh_from"),
    "Diagnostics": ("gap",),
    "Audit": (
        *("frame", "passes", "to_dict", "from_dict", "to_html", "left_out", "n_rows"),
        *("accuracy", "classes", "notion", "divergence", "confidence", "violation"),
        *("interval", "bootstrap_interval", "soft_violation", "soft_interval"),
        *("gaps", "groups", "absent", "unjudged", "divergences", "certificates"),
        *("soft_certificates", "bands", "verdict", "rows_to_decide", "corrected"),
        *("floor", "rates", "dossier"),
    ),
    "RegressionAudit": (
        *("frame", "passes", "to_dict", "from_dict", "to_html", "left_out", "n_rows"),
        *("group_frame", "stratum_frame", "interval", "violation", "worst", "value"),
        *("plot", "mse", "explained", "metric", "confidence", "columns", "notion"),
        *("verdict", "rows_to_decide", "dossier"),
    ),
}
# Results, which only functions of ours make: their fields are public.
RESULTS = ("FairDataset", "Tuning", "Gap", "Absence", "Violations", "Diagnostics")
COMMANDS = (
    *("plan", "fit", "repair", "audit", "curve", "alternatives", "report"),
    "reproduce",
    "datasets",
)


def describe():
    """Return everything public, as JSON would hold it."""
    return {
        "modules": {name: _module(name) for name in (*WHOLE, *NAMED)},
        "returned": _returned(),
        "errors": _errors(),
        "commands": {name: _command(name) for name in COMMANDS},
    }


def _module(name):
    module = importlib.import_module(name)
    public = NAMED.get(name) or module.__all__
    return {each: _object(each, getattr(module, each)) for each in sorted(public)}


def _object(name, value):
    if inspect.isclass(value):
        return _class(name, value)
    return _parameters(value) if callable(value) else repr(value)


def _class(name, cls):
    members = {each: _member(cls, each) for each in MEMBERS.get(name, ())}
    if name in RESULTS:
        return {"fields": _fields(cls), **members}
    if name not in MEMBERS:
        members["__init__"] = _parameters(cls)
    return members


def _member(cls, name):
    if name == "__init__":
        return _parameters(cls)
    value = getattr(cls, name, None)
    return _parameters(value) if inspect.isroutine(value) else _attribute(cls, name)


def _attribute(cls, name):
    """Return that a class has an attribute, whether a field, property or constant."""
    is_there = hasattr(cls, name) or name in _fields(cls)
    return "attribute" if is_there else "missing"


def _fields(cls):
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(getattr(cls, "_fields", ()))


def _parameters(function):
    """Return each parameter as its name, kind and default say it."""
    marks = {
        inspect.Parameter.KEYWORD_ONLY: "keyword ",
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    return [
        marks.get(parameter.kind, "")
        + parameter.name
        + ("" if parameter.default is parameter.empty else f"={parameter.default!r}")
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]


def _returned():
    """Return the classes without a public name, by what our functions return."""
    data = make_biased(60)
    rows = (data.X, data.y)
    groups = {"sensitive_features": data.sensitive_features, "n_bootstrap": 0}
    audits = {
        "Audit": fferm.audit(LogisticRegression().fit(*rows), *rows, **groups),
        "RegressionAudit": fferm.audit_regression(
            LinearRegression().fit(*rows), *rows, **groups, n_permutations=0
        ),
    }
    return {name: _class(name, type(audit)) for name, audit in audits.items()}


def _errors():
    """Return the names of errors and warnings, each with those that it is too."""
    errors = importlib.import_module("fferm.errors")
    return {
        name: [base.__name__ for base in value.__mro__[1:-1]]
        for name, value in sorted(vars(errors).items())
        if inspect.isclass(value) and issubclass(value, Exception) and name[0] != "_"
    }


def _command(name):
    """Return arguments and options of a command as its help lists them."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert importlib.import_module("fferm.cli").main([name, "--help"]) == 0
    entries = re.split(r"\n  (?=[-A-Z])", out.getvalue().replace("\n   ", " "))[1:]
    return sorted(_option(entry) for entry in entries if _is_option(entry))


def _is_option(entry):
    return entry.startswith("-") or re.match(r"[A-Z]+ <", entry) is not None


def _option(entry):
    """Return names, type and default of an entry of a help page, without its text."""
    head = re.match(r"((?:-[\w-]+(?:, )?)+|[A-Z]+)(?: <[^>]*>)?", entry)[0]
    default = re.search(r"\[(?:.*; )?(default:\s[^\];]*|required)", entry)
    note = re.sub(r"\s+", " ", default[1]) if default else ""
    return f"{head} [{note}]" if note else head


if __name__ == "__main__":
    FILE.write_text(json.dumps(describe(), indent=1, ensure_ascii=False) + "\n")
    sys.exit(0)
