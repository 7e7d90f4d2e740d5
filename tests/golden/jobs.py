"""Small jobs of users, one per way through the library, by public names alone.

A job returns plain values: numbers, strings, lists, dicts. `golden.json` holds what
they returned when it was written; `compare.py` tells how far two results are apart.
"""

import contextlib
import io
import json
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression, LogisticRegression

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    GroupCounts,
    LargeShift,
    SmallShift,
    divergences,
    metrics,
    tables,
)
from fferm.cli import main
from fferm.datasets import biased_rates, load_adult, load_german, make_biased
from fferm.divergences import Alpha
from fferm.errors import FfermWarning
from fferm.metrics import certificates, dependence, intervals
from fferm.notions import ConditionalParity
from fferm.torch import (
    CriticFairnessLoss,
    DualSteps,
    FairnessLoss,
    SemiStochasticFairnessLoss,
)
from fferm.tuning import CrossValidation, EvenHoldout, TargetSample, tune

# A parameter whose name is about to change: the columns not to predict from.


# Tolerances, relative to the largest number of a list, and what NumPy, Numba, OpenBLAS
# and PyTorch without AVX differ by from the same with AVX512. float64: at most 2e-11,
# because training carries the last bits of a step into the next one. Networks train in
# float32, which has seven digits to begin with: at most 6e-6.
DOUBLE = 1e-9
SINGLE = 1e-4
# LightGBM keeps gradients in float32 (eps 1.2e-7). A last bit of float64 that differs
# may round one the other way: in a hundred rounds that moved a divergence by 3.6e-9.
FLOAT_GRADIENTS = 1e-7
# A robust penalty ends where no step descends any more. The objective is then right to
# its last bit, and the parameters to the root of that, 1.5e-8: 1.3e-9 was seen.
END_OF_DESCENT = 1e-7
# sreda on total variation steps across a kink: which side a step ends on is a matter of
# its last bit. Objectives then agree to 2e-7, the dual to 1e-2 only.
KINKED = 5e-2

JOBS = {}
TOLERANCE = {}


def job(name, rtol=DOUBLE):
    """Register a function that returns what a user would see."""

    def register(function):
        assert name not in JOBS, name
        JOBS[name], TOLERANCE[name] = function, rtol
        return function

    return register


def run(name):
    """Return what a job gives, as JSON would hold it, and our warnings' categories."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = plain(JOBS[name]())
    torch.set_num_threads(n_threads)
    ours = {w.category.__name__ for w in caught if issubclass(w.category, FfermWarning)}
    return {"result": result, "warnings": sorted(ours)}


def plain(value):
    """Return a value as JSON holds it."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if isinstance(value, pd.DataFrame | pd.Series | pl.Series):
        value = value.to_numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | None) else str(value)


# Data.

DATA = make_biased(400, random_state=0)
X, Y, S = DATA.X, np.asarray(DATA.y), DATA.sensitive_features
X_TEST, Y_TEST, S_TEST = (
    DATA.X_test,
    np.asarray(DATA.y_test),
    DATA.sensitive_features_test,
)
THREE = make_biased(500, n_classes=3, n_groups=3, random_state=1)
WEIGHT = np.linspace(0.5, 2.0, len(Y))
AGE = np.random.default_rng(2).normal(40, 12, len(Y)) + 6 * Y
CONTROL = np.where(X[:, 1] > 0, "high", "low")
TARGET = X[:, 0] + 0.5 * X[:, 2] + Y + np.random.default_rng(3).normal(0, 0.5, len(Y))
TWO_COLUMNS = pd.DataFrame(
    {"group": S["group"].to_numpy(), "sex": np.where(np.arange(len(Y)) % 3, "f", "m")}
)
GAPS = pd.DataFrame({"group": S["group"].where(np.arange(len(Y)) % 7 > 0, None)})


def adult_rows(n=400):
    """Return raw rows of Adult, with label and sensitive columns."""
    data = load_adult(sensitive=("sex", "race"))
    frame = data.frame.head(n).reset_index(drop=True)
    frame["income"] = np.where(np.asarray(data.y)[:n] == 1, "rich", "poor")
    for name in ("sex", "race"):
        frame[name] = data.sensitive_features[name].head(n).to_numpy().astype(str)
    return frame


# What is kept of a result.

ATTRIBUTES = (
    *("classes_", "groups_", "coef_", "intercept_", "dual_", "n_iter_", "violation_"),
    *("fairness_weight_", "feasible_", "band_edges_", "bin_edges_"),
)


def facts(model, X=X, n=8):
    """Return what a fitted model says of itself and of some rows."""
    out = {
        name.strip("_"): getattr(model, name)
        for name in ATTRIBUTES
        if getattr(model, name, None) is not None
    }
    out["result"] = model.result_.name
    ends = [*model.history_[:1], *model.history_[-1:]]
    out["objective"] = [row["objective"] for row in ends]
    prediction = model.predict(X)
    if hasattr(model, "predict_proba"):
        out["decisions"] = Counter(np.asarray(prediction).astype(str).tolist())
        out["first"] = prediction[:20]
        out["prob"] = model.predict_proba(X)[:n]
    else:
        out["numbers"] = prediction[:n]
        out["mean"] = float(np.mean(prediction))
    if hasattr(model, "booster_"):
        out["trees"] = forest(model.booster_)
    return out


def forest(booster):
    """Return the numbers of a booster: how many trees and leaves, sums of values."""
    rows = booster.trees_to_dataframe()
    leaves = rows[rows["split_feature"].isna()]
    splits = rows[rows["split_feature"].notna()]
    return {
        "n_trees": booster.num_trees(),
        "n_leaves": len(leaves),
        "leaf_sum": leaves["value"].sum(),
        "leaf_size": leaves["value"].abs().sum(),
        "features": Counter(splits["split_feature"]),
        "thresholds": splits["threshold"].astype(str).tolist()[:5],
    }


def records(frame, without=("seconds",)):
    """Return a frame's columns as lists, without what differs between two runs."""
    return {
        name: frame[name].to_numpy() for name in frame.columns if name not in without
    }


AUDITED = (
    *("n_rows", "accuracy", "classes", "notion", "divergence", "confidence"),
    *("violation", "interval", "bootstrap_interval", "soft_violation"),
    *("soft_interval", "groups", "unjudged", "divergences", "certificates"),
    *("soft_certificates", "bands"),
)
AUDITED_NUMBERS = (
    *("n_rows", "mse", "explained", "metric", "confidence", "violation", "interval"),
)


def audit_facts(audit):
    """Return what an audit of classes says."""
    out = {name: getattr(audit, name) for name in AUDITED}
    out["gaps"] = [tuple(gap) for gap in map(vars_of, audit.gaps)]
    out["absent"] = len(audit.absent)
    out["frame"] = list(audit.frame.columns)
    out["passes"] = [audit.passes(0.1), audit.passes(0.9, confidence=0.95)]
    out["is_kept"] = type(audit).from_dict(json_of(audit)).to_dict() == json_of(audit)
    return out


def number_facts(audit):
    """Return what an audit of numbers says."""
    out = {name: getattr(audit, name) for name in AUDITED_NUMBERS}
    out["frame"] = audit.frame.reset_index().to_numpy()
    out["groups"] = audit.group_frame.reset_index().to_numpy()
    out["passes"] = [audit.passes(0.1), audit.passes(5.0)]
    out["is_kept"] = type(audit).from_dict(json_of(audit)).to_dict() == json_of(audit)
    return out


def json_of(audit):
    return json.loads(json.dumps(audit.to_dict()))


def vars_of(gap):
    return (
        gap.attribute,
        gap.stratum,
        gap.outcome,
        gap.gap,
        gap.lowest_group,
        gap.highest_group,
    )


# Linear models.


def weight_of(params):
    """Return the weight that jobs share, or none where a bound finds one."""
    return {"fairness_weight": None if "max_violation" in params else 3.0}


def linear(X=X, y=Y, s=S, fit=None, **params):
    model = FairLogisticRegression(**{**weight_of(params), **params})
    model.fit(X, y, sensitive_features=s, **(fit or {}))
    return facts(model, X)


# The bound is kept by its value, and the model is trained on all rows.
BY_VALUE = {"confidence": None, "refit": True, "random_state": 0}
LINEAR = {
    "kl": {},
    "chi2": {"divergence": "chi2"},
    "reverse_kl": {"divergence": "reverse_kl"},
    "total_variation": {"divergence": "total_variation"},
    "jensen_shannon": {"divergence": "jensen_shannon"},
    "squared_hellinger": {"divergence": "squared_hellinger"},
    "alpha": {"divergence": "alpha"},
    "alpha of 1.5": {"divergence": Alpha(power=1.5)},
    "alpha of -1": {"divergence": Alpha(power=-1.0)},
    "equal opportunity": {"notion": "equal_opportunity"},
    "equalized odds": {"notion": "equalized_odds"},
    "false positive rates": {"notion": "false_positive_rate_parity"},
    "predictive parity": {"notion": "predictive_parity"},
    "sufficiency": {"notion": "sufficiency", "divergence": "chi2"},
    "conditional parity": {"notion": ConditionalParity(tuple(CONTROL))},
    "a small shift": {"uncertainty": SmallShift(0.02)},
    "a small shift in l1": {"uncertainty": SmallShift(0.02, p=1, power=2)},
    "a small shift in linf": {"uncertainty": SmallShift(0.02, p="inf", norm="dual")},
    "a coupled small shift": {"uncertainty": SmallShift(0.02, coupled=True)},
    "a large shift": {"uncertainty": LargeShift(0.01)},
    "the paper's large shift": {"uncertainty": LargeShift(0.01, mode="paper")},
    "a large shift of the simplex": {"uncertainty": LargeShift(0.01, mode="simplex")},
    "a coupled large shift": {"uncertainty": LargeShift(0.01, mode="coupled")},
    "a sharp penalty without intercept": {"sharpness": 2.0, "fit_intercept": False},
    "no penalty": {"fairness_weight": 0.0},
    "a bound": {"max_violation": 0.1, **BY_VALUE},
    "a tested bound": {"max_violation": 0.3, "random_state": 0},
    "a bound and a chosen divergence": {
        "max_violation": 0.1,
        "divergence": "auto",
        **BY_VALUE,
    },
    "marginal groups": {"groups": "marginal", "s": TWO_COLUMNS},
    "groups of two columns": {"s": TWO_COLUMNS},
    "missing groups": {"s": GAPS},
    "bands of a number": {"s": {"age": AGE}},
    "weights": {"fit": {"sample_weight": WEIGHT}},
    "other rows for the penalty": {"fit": {"penalty_data": (X_TEST, S_TEST)}},
    "labelled rows for the penalty": {
        "notion": "equalized_odds",
        "fit": {"penalty_data": (X_TEST, S_TEST, Y_TEST)},
    },
    "three classes and groups": {
        "X": THREE.X,
        "y": THREE.y,
        "s": THREE.sensitive_features,
    },
    "three classes under equalized odds": {
        "X": THREE.X,
        "y": THREE.y,
        "s": THREE.sensitive_features,
        "notion": "equalized_odds",
    },
    "string labels": {"y": np.where(Y == 1, "yes", "no")},
    "a sparse matrix": {"X": csr_array(np.where(np.abs(X) > 0.5, X, 0.0))},
    "a pandas frame and a named control": {
        "X": pd.DataFrame(X, columns=list("abcde")).assign(b=(X[:, 1] > 0) * 1.0),
        "notion": ConditionalParity("b"),
    },
    "a polars frame": {
        "X": pl.DataFrame({name: X[:, j] for j, name in enumerate("abcde")}),
        "y": pl.Series(Y),
        "s": pl.DataFrame({"group": S["group"].to_list()}),
    },
}
for _name, _params in LINEAR.items():
    job(f"linear fit, {_name}")(lambda params=_params: linear(**params))

STOCHASTIC = {
    "sgda": {"solver": "sgda"},
    "sgda under equalized odds": {"solver": "sgda", "notion": "equalized_odds"},
    "sgda with three classes": {
        "solver": "sgda",
        "X": THREE.X,
        "y": THREE.y,
        "s": THREE.sensitive_features,
    },
    "sgda on sparse rows, weighted": {
        "solver": "sgda",
        "X": csr_array(np.where(np.abs(X) > 0.5, X, 0.0)),
        "fit": {"sample_weight": WEIGHT},
    },
    "sgda that stops early": {
        "solver": "sgda",
        "early_stopping": "validation",
        "max_epochs": 20,
    },
    "semi_stochastic": {"solver": "semi_stochastic"},
    "semi_stochastic, sufficiency": {
        "solver": "semi_stochastic",
        "notion": "sufficiency",
    },
    "semi_stochastic, a large shift": {
        "solver": "semi_stochastic",
        "uncertainty": LargeShift(0.01),
    },
    "sreda": {"solver": "sreda"},
    "sreda, chi2 under equalized odds": {
        "solver": "sreda",
        "divergence": "chi2",
        "notion": "equalized_odds",
    },
    "sreda, total variation": {"solver": "sreda", "divergence": "total_variation"},
}
for _name, _params in STOCHASTIC.items():
    _rtol = KINKED if _name == "sreda, total variation" else DOUBLE
    job(f"linear fit, {_name}", _rtol)(
        lambda params=_params: linear(
            **{"max_epochs": 5, "batch_size": 16, "random_state": 0, **params}
        )
    )


@job("linear fit that starts where the last one ended")
def _():
    model = FairLogisticRegression(fairness_weight=1.0, warm_start=True)
    first = facts(model.fit(X, Y, sensitive_features=S))
    model.set_params(fairness_weight=4.0)
    return {"first": first, "second": facts(model.fit(X, Y, sensitive_features=S))}


def pieces(n=4):
    """Return the rows in pieces."""
    return [
        (X[rows], Y[rows], S.iloc[rows])
        for rows in np.array_split(np.arange(len(Y)), n)
    ]


def learn_in_pieces(groups, **params):
    model = FairLogisticRegression(fairness_weight=3.0, random_state=0, **params)
    for x, y, s in pieces():
        model.partial_fit(x, y, classes=[0, 1], groups=groups, sensitive_features=s)
    return facts(model)


@job("partial_fit with counted groups")
def _():
    counts = GroupCounts()
    for _, y, s in pieces():
        counts.update(sensitive_features=s, y=y)
    return learn_in_pieces(counts)


@job("partial_fit with groups as they come")
def _():
    return learn_in_pieces(None, divergence="chi2")


@job("partial_fit under equalized odds with known shares")
def _():
    counts = GroupCounts()
    counts.update(sensitive_features=S, y=Y)
    return learn_in_pieces(counts.shares(), notion="equalized_odds")


@job("counts of groups")
def _():
    counts = GroupCounts()
    for _, y, s in pieces():
        counts.update(sensitive_features=s, y=y, sample_weight=np.arange(1, len(y) + 1))
    plain_counts = GroupCounts()
    plain_counts.update(sensitive_features=TWO_COLUMNS)
    return {
        "total": counts.total,
        "labels": counts.labels,
        "shares": counts.shares(),
        "of two columns": plain_counts.shares(),
        "has_labels": [counts.has_labels, plain_counts.copy().has_labels],
    }


# Trees.


def trees(X=X, y=Y, s=S, fit=None, **params):
    defaults = {"n_estimators": 12, "random_state": 0, "n_jobs": 1}
    model = FairBoostingClassifier(**{**defaults, **weight_of(params), **params})
    model.fit(X, y, sensitive_features=s, **(fit or {}))
    return facts(model, X)


TREES = {
    "kl": {},
    "chi2, uncalibrated": {"divergence": "chi2", "calibrated": False},
    "total variation": {"divergence": "total_variation"},
    "equalized odds": {"notion": "equalized_odds"},
    "sufficiency": {"notion": "sufficiency"},
    "a small shift": {"uncertainty": SmallShift(0.02)},
    "a large shift": {"uncertainty": LargeShift(0.01)},
    "three classes": {"X": THREE.X, "y": THREE.y, "s": THREE.sensitive_features},
    "marginal groups": {"groups": "marginal", "s": TWO_COLUMNS},
    "missing groups and weights": {"s": GAPS, "fit": {"sample_weight": WEIGHT}},
    "other rows for the penalty": {"fit": {"penalty_data": (X_TEST, S_TEST)}},
    "a bound": {"max_violation": 0.2, "confidence": None, "refit": True},
    "early stopping by loss": {
        "early_stopping": "loss",
        "patience": 2,
        "n_estimators": 30,
        "learning_rate": 0.3,
    },
    "early stopping by objective": {
        "early_stopping": "validation",
        "patience": 2,
        "n_estimators": 30,
        "learning_rate": 0.3,
    },
    "a sparse matrix": {"X": csr_array(np.where(np.abs(X) > 0.5, X, 0.0))},
    "subsamples": {"subsample": 0.7, "colsample_bytree": 0.6, "max_depth": 3},
}
for _name, _params in TREES.items():
    job(f"boosting fit, {_name}")(lambda params=_params: trees(**params))


@job("boosting fit, a frame with categories")
def _():
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["kind"] = pd.Categorical(np.where(X[:, 0] > 0.3, "x", CONTROL))
    return trees(X=frame, y=np.where(Y == 1, "yes", "no"))


@job("boosting fit that starts where the last one ended")
def _():
    model = FairBoostingClassifier(
        n_estimators=6, fairness_weight=1, warm_start=True, random_state=0, n_jobs=1
    )
    first = facts(model.fit(X, Y, sensitive_features=S))
    model.set_params(n_estimators=10)
    return {"first": first, "second": facts(model.fit(X, Y, sensitive_features=S))}


@job("boosting_objective in a training call of one's own")
def _():
    group = S["group"].to_numpy()
    out = {}
    for params in ({}, {"notion": "equalized_odds", "divergence": "chi2"}):
        objective = fferm.boosting_objective(Y, group, fairness_weight=5.0, **params)
        booster = lightgbm.train(
            {"objective": objective, "num_threads": 1, "verbose": -1, "seed": 0},
            lightgbm.Dataset(X, Y),
            num_boost_round=8,
        )
        scores = booster.predict(X)
        out[params.get("notion", "demographic_parity")] = {
            "scores": scores[:8],
            "trees": forest(booster),
            "value": objective.value(scores, lightgbm.Dataset(X, Y).construct()),
        }
    return out


# Networks.


def net(X=X, y=Y, s=S, fit=None, **params):
    defaults = {"hidden": (8,), "max_epochs": 3, "batch_size": 64, "random_state": 0}
    model = FairNetClassifier(
        **{**defaults, **weight_of(params), "device": "cpu", **params}
    )
    model.fit(X, y, sensitive_features=s, **(fit or {}))
    return facts(model, X)


NETS = {
    "sgda": {"solver": "sgda"},
    "semi_stochastic": {"solver": "semi_stochastic"},
    "semi_stochastic, sufficiency": {
        "solver": "semi_stochastic",
        "notion": "sufficiency",
    },
    "a small shift": {"uncertainty": SmallShift(0.02)},
    "equalized odds, sgd": {
        "notion": "equalized_odds",
        "optimizer": "sgd",
        "schedule": "constant",
    },
    "a critic of a number": {"method": "critic", "s": {"age": AGE}},
    "bands of a number": {"s": {"age": AGE}},
    "three classes": {"X": THREE.X, "y": THREE.y, "s": THREE.sensitive_features},
    "a module of one's own, class weights": {
        "module": torch.nn.Linear,
        "class_weight": "balanced",
    },
    "early stopping": {
        "early_stopping": "training",
        "patience": 1,
        "max_epochs": 6,
        "learning_rate": 0.05,
    },
    "a bound": {"max_violation": 0.2, "confidence": None, "refit": True},
    "missing groups and weights": {"s": GAPS, "fit": {"sample_weight": WEIGHT}},
}
for _name, _params in NETS.items():
    job(f"net fit, {_name}", SINGLE)(lambda params=_params: net(**params))


# Regression.


def regress(X=X, y=TARGET, s=S, fit=None, **params):
    model = FairRegressor(**{**weight_of(params), "random_state": 0, **params})
    model.fit(X, y, sensitive_features=s, **(fit or {}))
    return facts(model, X)


REGRESSION = {
    "bins": {},
    "bins, chi2 and Huber's loss": {"divergence": "chi2", "loss": "huber"},
    "bins, a control": {"notion": ConditionalParity(tuple(CONTROL))},
    "bins, a number in bands": {"s": {"age": AGE}},
    "bins, marginal groups": {"groups": "marginal", "s": TWO_COLUMNS},
    "bins, weights and missing groups": {"s": GAPS, "fit": {"sample_weight": WEIGHT}},
    "bins, a bound": {"max_violation": 0.4, "confidence": None, "refit": True},
    "bins, a bound on the mean gap": {
        **{"max_violation": 0.5, "confidence": None, "refit": True},
        "violation_metric": "mean_gap",
    },
    "bins, other rows for the penalty": {"fit": {"penalty_data": (X_TEST, S_TEST)}},
}
for _name, _params in REGRESSION.items():
    job(f"regression fit, {_name}")(lambda params=_params: regress(**params))


@job("regression fit, bins, a small shift", END_OF_DESCENT)
def _():
    return regress(uncertainty=SmallShift(0.02))


REGRESSION_BATCHES = {
    "bins in batches": {"solver": "sgda"},
    "bins, a network": {"hidden": (8,)},
    "a critic": {"method": "critic"},
    "a critic of a number": {"method": "critic", "s": {"age": AGE}},
}
for _name, _params in REGRESSION_BATCHES.items():
    job(f"regression fit, {_name}", SINGLE)(
        lambda params=_params: regress(**{"max_epochs": 3, **params})
    )


# Audits.


def plain_model():
    return LogisticRegression().fit(X, Y)


@job("audit of another library's model")
def _():
    return audit_facts(
        fferm.audit(plain_model(), X_TEST, Y_TEST, sensitive_features=S_TEST)
    )


@job("audit of equalized odds with weights and missing groups")
def _():
    return audit_facts(
        fferm.audit(
            plain_model(),
            X,
            Y,
            sensitive_features=GAPS,
            notion="equalized_odds",
            sample_weight=WEIGHT,
            confidence=0.9,
            n_bootstrap=50,
        )
    )


@job("audit of sufficiency")
def _():
    return audit_facts(
        fferm.audit(
            plain_model(),
            X,
            Y,
            sensitive_features=S,
            notion="sufficiency",
            n_bootstrap=50,
        )
    )


@job("audit of predictive parity under chi2")
def _():
    return audit_facts(
        fferm.audit(
            plain_model(),
            X,
            Y,
            sensitive_features=S,
            notion="predictive_parity",
            divergence="chi2",
            n_bootstrap=0,
        )
    )


@job("audit with a control and marginal groups")
def _():
    return audit_facts(
        fferm.audit(
            plain_model(),
            X,
            Y,
            sensitive_features=TWO_COLUMNS,
            notion=ConditionalParity(tuple(CONTROL)),
            groups="marginal",
            n_bootstrap=50,
        )
    )


@job("audit of three classes")
def _():
    model = FairLogisticRegression(notion="equalized_odds", fairness_weight=1)
    model.fit(THREE.X, THREE.y, sensitive_features=THREE.sensitive_features)
    return audit_facts(
        fferm.audit(
            model,
            THREE.X_test,
            THREE.y_test,
            sensitive_features=THREE.sensitive_features_test,
            n_bootstrap=50,
        )
    )


@job("audit in the bands that a model was trained with")
def _():
    model = FairLogisticRegression(fairness_weight=1)
    model.fit(X, Y, sensitive_features={"age": AGE})
    return audit_facts(
        fferm.audit(model, X, Y, sensitive_features={"age": AGE}, n_bootstrap=50)
    )


REGRESSION_AUDITS = {
    "groups": {"sensitive_features": S},
    "a number and groups": {
        "sensitive_features": {"age": AGE, "group": S["group"].to_numpy()}
    },
    "the mean gap with weights": {
        "sensitive_features": S,
        "metric": "mean_gap",
        "sample_weight": WEIGHT,
    },
    "a control": {
        "sensitive_features": S,
        "notion": ConditionalParity(tuple(CONTROL)),
        "metric": "wasserstein",
    },
    "distance correlation": {
        "sensitive_features": {"age": AGE},
        "metric": "distance_correlation",
        "continuous": ["age"],
    },
}
for _name, _params in REGRESSION_AUDITS.items():
    job(f"audit of a regression, {_name}")(
        lambda params=_params: number_facts(
            fferm.audit_regression(
                LinearRegression().fit(X, TARGET),
                X,
                TARGET,
                n_permutations=19,
                n_bootstrap=20,
                **params,
            )
        )
    )


# Curves and tuning.


def curve_facts(curve):
    out = {"records": records(curve.records), "bands": records(curve.bands())}
    out["pareto"] = records(curve.pareto())
    out["hypervolume"] = curve.hypervolume()
    out["knee"] = curve.choose("knee").fairness_weight
    chosen = curve.select(max_violation=float(curve.records["violation"].max()))
    out["selected"] = chosen.fairness_weight
    return out


def curve(estimator, y=Y, s=S, **params):
    return curve_facts(
        fferm.tradeoff_curve(estimator, X, y, sensitive_features=s, **params)
    )


@job("curve of a linear model on test rows")
def _():
    return curve(
        FairLogisticRegression(), test=(X_TEST, Y_TEST, S_TEST), fairness_weights=5
    )


@job("curve of two divergences and two seeds")
def _():
    return curve(
        FairLogisticRegression(),
        fairness_weights=[0.0, 1.0, 10.0],
        divergences=["kl", "chi2"],
        seeds=2,
    )


@job("curve of sgda, all weights together")
def _():
    return curve(
        FairLogisticRegression(solver="sgda", max_epochs=4, batch_size=32),
        fairness_weights=[0.0, 1.0, 10.0],
        sample_weight=WEIGHT,
    )


@job("curve of trees")
def _():
    return curve(
        FairBoostingClassifier(n_estimators=8, n_jobs=1), fairness_weights=[0.0, 3.0]
    )


@job("curve of networks", SINGLE)
def _():
    model = FairNetClassifier(hidden=(8,), max_epochs=2, device="cpu")
    return curve(model, fairness_weights=[0.0, 3.0])


@job("curve of a regression")
def _():
    return records(
        fferm.tradeoff_curve(
            FairRegressor(),
            X,
            TARGET,
            sensitive_features=S,
            fairness_weights=[0.0, 1.0, 10.0],
        ).records
    )


@job("curve that resumes from its records")
def _():
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"fairness_weights": [0.0, 2.0], "records": Path(folder) / "c"}
        first = curve(FairLogisticRegression(), **arguments)
        again = curve(FairLogisticRegression(), **arguments)
    return {"first": first, "same": plain(first) == plain(again)}


def tuning_facts(result):
    return {
        "best": {key: value for key, value in result.best.items() if key != "seconds"},
        "feasible": result.feasible,
        "records": records(result.records),
        "model": facts(result.estimator),
    }


@job("tuning by an even hold-out under a bound")
def _():
    return tuning_facts(
        tune(
            FairLogisticRegression(),
            X,
            Y,
            sensitive_features=S,
            validation=EvenHoldout(fraction=0.3),
            divergences=["kl", "chi2"],
            fairness_weights=4,
            max_violation=0.2,
        )
    )


@job("tuning by cross-validation over radii")
def _():
    return tuning_facts(
        tune(
            FairLogisticRegression(uncertainty=SmallShift(0.01)),
            X,
            Y,
            sensitive_features=S,
            validation=CrossValidation(3),
            radii=[0.0, 0.02],
            fairness_weights=[0.5, 5.0],
            min_accuracy=0.6,
        )
    )


@job("tuning on a sample of the target domain")
def _():
    return tuning_facts(
        tune(
            FairLogisticRegression(),
            X,
            Y,
            sensitive_features=S,
            validation=TargetSample(X_TEST, Y_TEST, S_TEST),
            fairness_weights=[0.5, 5.0],
            max_violation=0.3,
        )
    )


# Saved models and whole frames.


def saved(model, X=X):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fferm"
        fferm.save(model, path)
        loaded = fferm.load(path)
    same = np.array_equal(model.predict(X), loaded.predict(X))
    return {"type": type(loaded).__name__, "same": same, **facts(loaded, X)}


@job("saved linear model")
def _():
    return saved(
        FairLogisticRegression(
            divergence=Alpha(power=1.5),
            uncertainty=SmallShift(0.01, coupled=False),
            fairness_weight=1.0,
        ).fit(X, np.where(Y == 1, "yes", "no"), sensitive_features=TWO_COLUMNS)
    )


@job("saved trees")
def _():
    model = FairBoostingClassifier(
        n_estimators=5, fairness_weight=1.0, random_state=0, n_jobs=1
    )
    return saved(model.fit(X, Y, sensitive_features=S))


@job("saved network", SINGLE)
def _():
    model = FairNetClassifier(
        hidden=(8,),
        max_epochs=1,
        fairness_weight=1.0,
        random_state=0,
        device="cpu",
        notion="equalized_odds",
    )
    return saved(model.fit(X, Y, sensitive_features=S))


@job("saved regression")
def _():
    model = FairRegressor(fairness_weight=1.0)
    return saved(model.fit(X, TARGET, sensitive_features=S))


@job("classifier of whole frames")
def _():
    frame = adult_rows()
    table = frame.drop(columns=["income", "race"])
    model = FairLogisticRegression(fairness_weight=3.0, categorical=[])
    model.fit(table, frame["income"], sensitive_features=frame[["sex"]])
    return {
        "prob": model.predict_proba(table)[:8],
        "first": model.predict(table)[:20],
        "coef": model.coef_,
        "groups": model.groups_,
    }


@job("classifier of polars frames in bands of age")
def _():
    frame = adult_rows(300).drop(columns=["race"])
    table = frame.drop(columns=["income"])
    model = FairLogisticRegression(
        fairness_weight=3.0, continuous=["age"], categorical=[]
    )
    model.fit(pl.from_pandas(table), frame["income"], sensitive_features=frame[["age"]])
    return {
        "prob": model.predict_proba(table)[:8],
        "edges": model.band_edges_,
        "groups": model.groups_,
    }


@job("regressor of whole frames")
def _():
    frame = adult_rows(300).drop(columns=["race"])
    name = next(name for name in frame.columns if "hour" in name)
    table = frame.drop(columns=[name])
    model = FairRegressor(fairness_weight=3.0, l2=0.01, categorical=[])
    model.fit(table, frame[name], sensitive_features=frame[["sex"]])
    return {"numbers": model.predict(table)[:8], "coef": model.coef_}


@job("shipped data")
def _():
    adult = load_adult(sensitive=("sex", "race"), drop_sensitive=True)
    german = load_german(sensitive=("sex",), random_state=3)
    out = {}
    for data in (adult, german, THREE):
        out[data.name] = {
            "shapes": [data.X.shape, data.X_test.shape, data.frame.shape],
            "names": list(data.feature_names)[:6],
            "columns": list(data.frame.columns),
            "sum": [np.abs(data.X[:200]).sum(), np.abs(data.X_test[:200]).sum()],
            "y": [int(np.sum(data.y)), int(np.sum(data.y_test))],
            "groups": data.sensitive_features.value_counts().tolist(),
        }
    return {**out, "rates": biased_rates(n_groups=3, bias=0.5)}


# Losses for torch.

LABELS = torch.tensor(Y)
GROUP = torch.tensor((S["group"] == S["group"].iloc[0]).to_numpy().astype(int))


def linear_module(n_outputs):
    """Return a module in float64 whose weights are not drawn in float32."""
    module = torch.nn.Linear(X.shape[1], n_outputs).double()
    weight = np.random.default_rng(0).normal(0, 0.3, (n_outputs, X.shape[1]))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weight))
        module.bias.zero_()
    return module


def torch_steps(fair, n=6, size=40, output=2, target=LABELS, sensitive=GROUP):
    """Return losses and weights of a few steps of a linear module in float64."""
    model = linear_module(output)
    optimizer = torch.optim.SGD([*model.parameters(), *fair.parameters()], lr=0.1)
    features, values = torch.tensor(X), []
    for step in range(n):
        rows = slice(step * size, (step + 1) * size)
        optimizer.zero_grad()
        made = model(features[rows])
        penalty = fair(made.squeeze(-1), sensitive[rows], target[rows])
        if output == 1:
            fit = torch.nn.functional.mse_loss(made.squeeze(-1), target[rows])
        else:
            fit = torch.nn.functional.cross_entropy(made, target[rows])
        (fit + 3.0 * penalty).backward()
        values.append([fit.item(), penalty.item(), model.weight.grad.norm().item()])
        optimizer.step()
    return {"values": values, "weight": model.weight, "bias": model.bias}


LOSSES = {
    "kl": {},
    "chi2, equalized odds": {"divergence": "chi2", "notion": "equalized_odds"},
    "js, sharp": {"divergence": "jensen_shannon", "sharpness": 2.0},
    "dual steps": {"dual_steps": DualSteps(lr=2.0, window=10.0)},
    "weights": {"sample_weight": WEIGHT},
}
for _name, _params in LOSSES.items():

    @job(f"FairnessLoss, {_name}")
    def _(params=_params):
        fair = FairnessLoss.from_labels(LABELS, GROUP, **params).double()
        out = torch_steps(fair)
        told = fair.diagnostics()
        out["diagnostics"] = [told.dual_value, told.divergence, told.violation]
        return out


@job("FairnessLoss of numbers")
def _():
    target = torch.tensor(TARGET)
    fair = FairnessLoss.from_labels(target, GROUP, outputs="numbers", bins=5).double()
    return torch_steps(fair, output=1, target=target)


@job("SemiStochasticFairnessLoss")
def _():
    out = {}
    for notion, shift in (("sufficiency", None), ("equalized_odds", SmallShift(0.02))):
        fair = SemiStochasticFairnessLoss.from_labels(
            LABELS, GROUP, notion=notion, uncertainty=shift
        ).double()
        model = linear_module(2)
        batches = [
            (torch.tensor(x), GROUP[rows], LABELS[rows])
            for x, rows in zip(
                np.array_split(X, 4),
                torch.arange(len(Y)).tensor_split(4),
                strict=True,
            )
        ]
        told = fair.refresh(model, batches)
        out[notion] = torch_steps(fair)
        out[notion]["refreshed"] = [told.divergence, told.violation]
    return out


@job("CriticFairnessLoss", SINGLE)  # its critic begins in float32
def _():
    target = torch.tensor(TARGET)
    fair = CriticFairnessLoss.from_labels(TARGET, {"age": AGE}, continuous=["age"])
    encoded = fair.encode({"age": AGE})
    return torch_steps(
        fair.double(), output=1, target=target, sensitive=encoded.double()
    )


# Formulas.

JOINT = np.array([[0.30, 0.15, 0.05], [0.10, 0.25, 0.15]])
DIVERGENCES = (
    *("kl", "reverse_kl", "chi2", "total_variation", "jensen_shannon"),
    *("squared_hellinger", "alpha", Alpha(power=3.0), Alpha(power=-1.0)),
)
SHIFTS = {
    "none": None,
    "small": SmallShift(0.02),
    "small l1 dual": SmallShift(0.02, p=1, norm="dual"),
    "small linf squared": SmallShift(0.02, p="inf", power=2),
    "small coupled": SmallShift(0.02, coupled=True),
    "large": LargeShift(0.02),
    "large paper": LargeShift(0.02, mode="paper"),
    "large simplex": LargeShift(0.02, mode="simplex"),
    "large coupled": LargeShift(0.02, mode="coupled"),
}


@job("divergences")
def _():
    t, a = np.array([0.2, 0.9, 1.0, 1.7, 4.0]), np.array([-0.4, -0.1, 0.0, 0.1, 0.3])
    out = {}
    for spec in DIVERGENCES:
        one = divergences.get(spec)
        out[repr(one)] = {
            "f": one.f(t, np),
            "f_prime": one.f_prime(t, np),
            "conjugate": one.conjugate(a, np),
            "conjugate_prime": one.conjugate_prime(a, np),
            "between": one.between(JOINT),
            "largest": one.largest(JOINT.sum(axis=0)),
            "paper": divergences.get(spec, normalisation="paper").between(JOINT),
            "scaled": divergences.get(
                spec, scale="curvature" if one.is_smooth else "none"
            ).between(JOINT),
        }
    return out


@job("penalties of tables")
def _():
    out = {}
    for spec in DIVERGENCES:
        for name, shift in SHIFTS.items():
            value, payoff = tables.penalty(JOINT, divergences.get(spec), shift)
            out[f"{spec!r}, {name}"] = [value, *payoff.ravel()]
    prob = np.array([[0.2, 0.8], [0.7, 0.3], [0.5, 0.5]])
    out["joint"] = tables.joint(prob, np.array([0, 1, 1]), 2)
    strata = np.stack([JOINT, JOINT[:, ::-1]]) / 2
    value, payoff = tables.penalty(strata, divergences.get("kl"))
    out["strata"] = [value, *payoff.ravel()]
    value, payoff = tables.sufficiency(strata, divergences.get("kl"))
    out["sufficiency"] = [value, *payoff.ravel()]
    return out


@job("metrics")
def _():
    model = plain_model()
    decision, prob = model.predict(X), model.predict_proba(X)
    out = {}
    for notion in (
        "demographic_parity",
        "equal_opportunity",
        "equalized_odds",
        "false_positive_rate_parity",
        "predictive_parity",
        "sufficiency",
        ConditionalParity(tuple(CONTROL)),
    ):
        compared = {"sensitive_features": TWO_COLUMNS, "notion": notion}
        all_gaps = metrics.violations(Y, decision, **compared)
        out[getattr(notion, "name", notion)] = {
            "violation": metrics.violation(Y, decision, **compared),
            "marginal": metrics.violation(Y, decision, groups="marginal", **compared),
            "weighted": metrics.violation(
                Y, decision, sample_weight=WEIGHT, **compared
            ),
            "soft": metrics.soft_violation(Y, prob, classes=[0, 1], **compared),
            "mean": all_gaps.mean,
            "worst": all_gaps.worst,
            "by_stratum": all_gaps.by_stratum,
        }
    table = metrics.group_table(Y, decision, sensitive_features=GAPS)
    return {**out, "table": table.to_numpy(), "columns": list(table.columns)}


@job("dependence")
def _():
    groups = (S["group"] == "0").to_numpy().astype(int)
    out = {}
    for name in ("kolmogorov_smirnov", "wasserstein", "mean_gap"):
        measure = getattr(dependence, name)
        out[name] = [measure(TARGET, groups), measure(TARGET, groups, weight=WEIGHT)]
    for name in (
        *("correlation", "distance_correlation", "f_information"),
        *("maximal_correlation", "information_bias"),
    ):
        measure = getattr(dependence, name)
        out[name] = [measure(TARGET, AGE), measure(TARGET, AGE, weight=WEIGHT)]
    tested = dependence.independence_test("correlation", TARGET, AGE, n_permutations=29)
    return {**out, "test": [tested.value, tested.chance, tested.p_value]}


@job("certificates and intervals")
def _():
    prior = np.array([0.6, 0.4])
    out = {}
    for spec in DIVERGENCES:
        one = divergences.get(spec)
        out[repr(one)] = [
            certificates.violation_bound(0.02, prior, one),
            certificates.violation_bound(0.02, prior, one, 0.3),
            certificates.divergence_for(0.1, prior, one),
        ]
    rates, sizes = np.array([[0.2, 0.35]]), np.array([[120.0, 80.0]])
    out["violation"] = intervals.violation_interval([rates], [sizes])
    out["wilson"] = intervals.wilson_interval(0.2, 50.0, 0.9)
    return out


# Command lines.


def call(*arguments):
    """Return the exit code and the standard output of a command line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue()


def call_json(*arguments):
    code, out = call(*arguments, "--json")
    return {"code": code, **without_paths(json.loads(out))} if out else {"code": code}


def without_paths(told):
    """Return JSON without paths, times, and how a result is repeated."""
    dropped = ("spec", "seconds", "out", "path", "model", "records", "html", "page")
    if isinstance(told, dict):
        return {k: without_paths(v) for k, v in told.items() if k not in dropped}
    return [without_paths(v) for v in told] if isinstance(told, list) else told


@contextlib.contextmanager
def table_file():
    with tempfile.TemporaryDirectory() as folder:
        frame = pd.DataFrame(X, columns=list("abcde"))
        frame["group"], frame["label"] = S["group"].to_numpy(), np.where(Y, "yes", "no")
        frame["age"], frame["pay"] = AGE.round(), TARGET
        frame["told"] = np.where(X[:, 0] > 0, "yes", "no")
        frame.to_csv(Path(folder) / "data.csv", index=False)
        frame.to_parquet(Path(folder) / "data.parquet")
        yield Path(folder)


COLUMNS = ("--target", "label", "--sensitive", "group", "--drop", "pay", "--quiet")


@job("command lines fit and audit a classifier")
def _():
    with table_file() as folder:
        data, model = folder / "data.csv", folder / "m.fferm"
        fitted = call_json("fit", data, *COLUMNS, "--out", model)
        audited = call_json("audit", model, folder / "data.parquet", "--quiet")
        bounds = [
            call("audit", model, data, "--max-violation", bound, "--quiet")[0]
            for bound in (0.001, 0.99)
        ]
    return {"fit": fitted, "audit": audited, "codes": bounds}


OF_LABEL = ("--target", "label", "--drop", "pay", "-q")


@job("command lines fit a bound in bands")
def _():
    with table_file() as folder:
        line = ("fit", folder / "data.csv", *OF_LABEL)
        banded = (*line, "--sensitive", "age", "--bands", "age")
        bound = call_json(
            *banded,
            "--max-violation",
            "0.3",
            "--confidence",
            "0",
            "--refit",
            "--out",
            folder / "a",
        )
        missed = call_json(
            *(*line, "--sensitive", "group", "--max-violation", "1e-6"),
            *("--confidence", "0", "--refit"),
            *("--out", folder / "c"),
        )
    return {"bound": bound, "missed": missed}


@job("command line fits trees", FLOAT_GRADIENTS)
def _():
    with table_file() as folder:
        return call_json(
            *("fit", folder / "data.csv", *OF_LABEL, "--model", "boosting"),
            *("--sensitive", "group", "--notion", "equalized_odds"),
            *("--out", folder / "b"),
        )


@job("command lines fit and audit a regression")
def _():
    with table_file() as folder:
        line = ("fit", folder / "data.csv", "--target", "pay", "--sensitive", "group")
        model = folder / "m.fferm"
        fitted = call_json(*line, "--drop", "label", "--out", model, "--quiet")
        audited = call_json("audit", model, folder / "data.csv", "--quiet")
    for told in (fitted, audited):
        for column in told.get("audit", {}).get("columns", {}).values():
            column.pop("densities", None)
    return {"fit": fitted, "audit": audited}


@job("command line audits a column of predictions")
def _():
    with table_file() as folder:
        line = ("audit", folder / "data.csv", "--prediction", "told")
        return call_json(*line, "--target", "label", "--sensitive", "group", "--quiet")


@job("command lines draw a curve and its page")
def _():
    with table_file() as folder:
        line = ("curve", folder / "data.csv", *COLUMNS, "--weights", "4")
        told = call_json(*line, "--out", folder / "curve")
        page = call("report", folder / "curve", "--out", folder / "p.html", "--quiet")
        return {
            "curve": told,
            "page": [page[0], (folder / "p.html").stat().st_size > 10_000],
        }


@job("command lines list data sets and refuse bad input")
def _():
    with table_file() as folder:
        data, out = folder / "data.csv", ("--out", folder / "m")
        bad = {
            "no file": ("fit", folder / "none.csv", *COLUMNS, *out),
            "no column": ("fit", data, "--target", "x", "--sensitive", "group", *out),
            "no target": ("fit", data, "--sensitive", "group", *out),
            "no option": ("fit", data, *COLUMNS, *out, "--nothing"),
            "no divergence": ("fit", data, *COLUMNS, *out, "--divergence", "klx"),
            "no bound": ("fit", data, *COLUMNS, *out, "--max-violation", "3"),
            "no model": ("audit", data, data),
            "no command": ("train",),
            "no figure": ("reproduce", "fig9"),
        }
        codes = {name: call(*line)[0] for name, line in bad.items()}
    listed = json.loads(call("datasets", "--json")[1])["datasets"]
    return {
        "codes": {**codes, "version": call("--version")[0], "help": call("--help")[0]},
        "datasets": sorted(row["name"] for row in listed),
    }


@job("errors by their types")
def _():
    def raised(function):
        try:
            function()
        except Exception as error:
            return [cls.__name__ for cls in type(error).__mro__[:-3]]
        return None

    fit = FairLogisticRegression().fit
    return {
        "no groups": raised(lambda: fit(X, Y)),
        "unknown divergence": raised(lambda: linear(divergence="klx")),
        "unknown notion": raised(lambda: linear(notion="parity")),
        "unknown solver": raised(lambda: linear(solver="adam")),
        "bad bound": raised(lambda: linear(max_violation=3)),
        "bad weight": raised(lambda: linear(fairness_weight=-1)),
        "bad shift": raised(lambda: SmallShift(-1.0)),
        "short groups": raised(lambda: linear(s=S.head(3))),
        "one group": raised(lambda: linear(s=["a"] * len(Y))),
        "not finite": raised(lambda: linear(X=np.where(X > 2, np.nan, X))),
        "words as target": raised(lambda: regress(y=CONTROL)),
        "bad trees": raised(lambda: trees(n_estimators=0)),
        "bad net": raised(lambda: net(optimizer="newton")),
        "not ours": raised(
            lambda: fferm.tradeoff_curve(
                LogisticRegression(), X, Y, sensitive_features=S
            )
        ),
        "not saved": raised(lambda: fferm.load(__file__)),
        "not fitted": raised(lambda: FairLogisticRegression().predict(X)),
    }
