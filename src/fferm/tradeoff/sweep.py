"""The sweep itself: one model per fairness weight and seed, measured on two splits."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing

from fferm._types import IntArray, Table, is_sparse
from fferm.data import check_aligned
from fferm.divergences import Divergence
from fferm.errors import (
    CollapseWarning,
    DataFairnessWarning,
    InvalidParameterError,
    MissingSensitiveError,
)
from fferm.estimators.base import FairClassifier, FairEstimator, FitInput
from fferm.estimators.validation import check_number
from fferm.labels import encode_labels, one_hot
from fferm.metrics import measure
from fferm.objective import Penalty
from fferm.setting import make_setting
from fferm.tradeoff.curve import TradeoffCurve
from fferm.tradeoff.regression import RegressionMeasure
from fferm.weights import default_weights

HELD_OUT_SHARE = 0.25
# A certain mistake costs the logarithm of this, not infinity.
SMALLEST_CHANCE = 1e-300


@dataclass(frozen=True)
class Split:
    """Rows to train or to measure on."""

    X: Table
    y: Table
    sensitive_features: Table
    sample_weight: Table = None


def tradeoff_curve(
    estimator: FairEstimator,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    test: tuple[Table, ...] | Mapping[str, Table] | None = None,
    fairness_weights: int | Sequence[float] = 20,
    seeds: int | Sequence[int] = 1,
    n_jobs: int | None = None,
) -> TradeoffCurve:
    """Train a model per fairness weight and measure what each costs.

    Parameters
    ----------
    estimator
        An unfitted fair classifier or regressor; its own ``fairness_weight`` is not
        used. Of a regressor, ``accuracy`` is the share of variance that is explained,
        and ``violation`` is its ``violation_metric``.
    X, y, sensitive_features, sample_weight
        Training data, as in `fit`.
    test
        Rows to measure on: a dict with keys ``X``, ``y``, ``sensitive_features`` and
        perhaps ``sample_weight``, or a tuple of them in this order. By default a
        quarter of the training data, drawn anew for each seed, is held out.
    fairness_weights
        The weights, or how many: 0 and the rest spread evenly in logarithm over the
        range in which this divergence acts.
    seeds
        The seeds, or how many. A seed sets ``random_state`` and the held-out part.
    n_jobs
        Parallel processes over seeds, through joblib.

    Returns
    -------
    TradeoffCurve

    Examples
    --------
    >>> from fferm import FairLogisticRegression, tradeoff_curve
    >>> from fferm.datasets import make_biased
    >>> data = make_biased(random_state=0)
    >>> curve = tradeoff_curve(
    ...     FairLogisticRegression(), data.X, data.y,
    ...     sensitive_features=data.sensitive_features, fairness_weights=[0, 1, 10],
    ... )
    >>> sorted(curve.records["split"].unique())
    ['test', 'train']
    """
    if not isinstance(estimator, FairEstimator):
        raise InvalidParameterError(
            f"A {type(estimator).__name__} came. Expected a fair classifier such as "
            "FairLogisticRegression(), or a FairRegressor(). Transform the features "
            "before the curve; a pipeline cannot be trained along a path."
        )
    _check_sensitive(sensitive_features)
    held_out = _test_split(test)
    objective = estimator._objective()
    weights = _weights(fairness_weights, objective.divergence)
    numbers = _seeds(seeds)
    whole = Split(X, y, sensitive_features, sample_weight)
    sweeps = Parallel(n_jobs=n_jobs)(
        delayed(_sweep)(estimator, whole, held_out, weights, seed) for seed in numbers
    )
    return TradeoffCurve(
        pd.DataFrame([row for rows, _ in sweeps for row in rows]),
        {key: model for _, models in sweeps for key, model in models.items()},
        {
            "estimator": type(estimator).__name__,
            "divergence": repr(objective.divergence),
            "notion": repr(objective.notion),
            "uncertainty": repr(objective.uncertainty),
            "groups": str(estimator.groups),
            "test": "held out" if test is None else "given",
            "sample_weight": "none" if sample_weight is None else "given",
        },
    )


def _weights(given: int | Sequence[float], divergence: Divergence) -> list[float]:
    if isinstance(given, int | np.integer):
        if given < 2:
            raise InvalidParameterError(
                f"fairness_weights={given} came. Expected at least 2 points, or the "
                "weights themselves."
            )
        return [float(weight) for weight in default_weights(divergence, int(given))]
    if np.ndim(given) != 1 or len(given) == 0:
        raise InvalidParameterError(
            f"fairness_weights={given!r} came. Expected a list of numbers, or how many."
        )
    return sorted({check_number("fairness_weights", w) for w in given})


def _seeds(given: int | Sequence[int]) -> list[int]:
    numbers = list(range(given)) if isinstance(given, int | np.integer) else given
    if np.ndim(numbers) != 1 or len(numbers) == 0:
        raise InvalidParameterError(
            f"seeds={given!r} came. Expected a list of whole numbers, or how many: at "
            "least one."
        )
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in numbers):
        raise InvalidParameterError(
            f"seeds={given!r} came. Expected whole numbers of at least 0."
        )
    return [int(seed) for seed in dict.fromkeys(numbers)]


def _check_sensitive(sensitive_features: Table) -> None:
    if sensitive_features is None:
        raise MissingSensitiveError(
            "A curve measures fairness and no sensitive_features came. Pass "
            "tradeoff_curve(estimator, X, y, sensitive_features=...)."
        )


def _test_split(test: tuple[Table, ...] | Mapping[str, Table] | None) -> Split | None:
    if test is None:
        return None
    names = ("X", "y", "sensitive_features", "sample_weight")
    if isinstance(test, Mapping):
        if set(names[:3]) <= set(test) <= set(names):
            return Split(**test)
        came = f"keys {', '.join(map(str, test))}"
    else:
        if isinstance(test, tuple | list) and len(test) in (3, 4):
            return Split(*test)
        came = f"{len(test)} parts" if isinstance(test, Sized) else "no parts"
    raise InvalidParameterError(
        f"test is a {type(test).__name__} with {came}. Expected a dict with keys X, y, "
        "sensitive_features and perhaps sample_weight, a tuple of them in this order, "
        "or None to hold out a quarter of the rows."
    )


def _sweep(
    estimator: FairEstimator,
    whole: Split,
    test: Split | None,
    weights: list[float],
    seed: int,
) -> tuple[list[dict[str, Any]], dict[tuple[float, int], FairEstimator]]:
    if test is None:
        train, held_out = _hold_out(whole, seed)
    else:
        train, held_out = whole, test
    model = clone(estimator).set_params(random_state=seed)
    splits = {"train": train, "test": held_out}
    measures: dict[str, Callable[[Any], dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    models: dict[tuple[float, int], FairEstimator] = {}
    given = FitInput(train.X, train.y, train.sensitive_features, train.sample_weight)
    began = time.perf_counter()
    with warnings.catch_warnings():
        # A collapsed point is in the records; one warning a point would drown them.
        warnings.simplefilter("ignore", CollapseWarning)
        for fitted in model.fit_path(given, weights):
            seconds = time.perf_counter() - began
            measures = measures or {
                name: _measure(fitted, split) for name, split in splits.items()
            }
            key = {"fairness_weight": fitted.fairness_weight, "seed": seed}
            # The rows are the same for every model: look at them once.
            with config_context(assume_finite=bool(models)):
                for name, found in measures.items():
                    measured = found(fitted)
                    rows.append({**key, "split": name, **measured, "seconds": seconds})
            models[fitted.fairness_weight, seed] = fitted
            began = time.perf_counter()
    return rows, models


def _measure(model: FairEstimator, split: Split) -> Callable[[Any], dict[str, Any]]:
    check_aligned(**vars(split))
    if isinstance(model, FairClassifier):
        return _Measure(model, split)
    return RegressionMeasure(model, **vars(split))


class _Measure:
    """Measures models on one split, whose labels and groups are encoded once."""

    def __init__(self, model: FairClassifier, split: Split) -> None:
        objective = replace(model._objective(), uncertainty=None)
        classes = model.classes_.tolist()
        labels = encode_labels(split.y, len(split.y), classes, "y")
        self.X = split.X
        with warnings.catch_warnings():
            # Training has warned of the same groups already.
            warnings.simplefilter("ignore", DataFairnessWarning)
            self.setting = make_setting(
                labels,
                objective.notion,
                split.sensitive_features,
                model.groups,
                split.sample_weight,
                split.X,
            )
        self.weight = self.setting.rows.weight
        kept_class = objective.notion.kept_class(labels.classes)
        self.penalty = Penalty(objective, self.setting.rows, kept_class)

    def __call__(self, model: FairClassifier) -> dict[str, Any]:
        """Return the measures of one model."""
        prob = model.predict_proba(self.X)
        codes, y = prob.argmax(axis=1), self.setting.labels.y
        chance = prob[np.arange(len(prob)), y]  # of the true label
        surprise = -np.log(np.maximum(chance, SMALLEST_CHANCE))
        hard = measure(self.setting, one_hot(codes, prob.shape[1])).worst
        # Where nobody can be compared there is no table either.
        is_judged = not np.isnan(hard)
        distance = np.nan
        if is_judged:
            distance = self.penalty.on_tables(self.penalty.tables(prob))[0]
        return {
            "accuracy": float(np.average(codes == y, weights=self.weight)),
            "violation": hard,
            "soft_violation": measure(self.setting, prob).worst,
            "loss": float(np.average(surprise, weights=self.weight)),
            "divergence": distance,
            "collapsed": bool(np.all(codes == codes[0])),
            "result": model.result_.name,
        }


def _hold_out(whole: Split, seed: int) -> tuple[Split, Split]:
    y = np.asarray(whole.y)
    counts = np.unique(y, return_counts=True)[1]
    train, test = train_test_split(
        np.arange(len(y)),
        test_size=HELD_OUT_SHARE,
        random_state=seed,
        stratify=y if counts.min() > 1 else None,
    )
    return _take(whole, train), _take(whole, test)


def _take(whole: Split, rows: IntArray) -> Split:
    sensitive = whole.sensitive_features
    if isinstance(sensitive, Mapping):
        taken: Table = {k: _safe_indexing(v, rows) for k, v in sensitive.items()}
    else:
        taken = _safe_indexing(sensitive, rows)
    X = whole.X.tocsr() if is_sparse(whole.X) else whole.X
    weight = whole.sample_weight
    return Split(
        _safe_indexing(X, rows),
        _safe_indexing(whole.y, rows),
        taken,
        None if weight is None else _safe_indexing(weight, rows),
    )
