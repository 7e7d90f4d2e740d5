"""The sweep: one model per curve, fairness weight and seed."""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone

from fferm._typing import Table
from fferm.auditing import Audit
from fferm.curve.curve import TradeoffCurve
from fferm.curve.measures import audit_rows, make_measures
from fferm.curve.records import (
    FORMAT,
    FORMAT_VERSION,
    Recorded,
    RecordFile,
    assemble,
    check_folder,
)
from fferm.data.groups import collected
from fferm.data.rows import FitInput, check_aligned, check_lengths
from fferm.data.split import split_by_label
from fferm.data.validate import check_number, one_column
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import (
    CollapseWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
)
from fferm.estimators.base import FairClassifier, FairEstimator
from fferm.fairness_grid import default_weights
from fferm.persistence import load, save
from fferm.registry import code_of

logger = logging.getLogger(__name__)

# A sweep sets these itself.
SWEPT = ("fairness_weight", "random_state")
# The share of rows that is held out if no test rows are passed.
TEST_SHARE = 0.25


class SweepRows:
    """All rows of a sweep; without ``test`` a quarter is held out for each seed."""

    def __init__(self, whole: FitInput, test: FitInput | None) -> None:
        self.whole, self.test = whole, test
        self._last: tuple[int, dict[str, FitInput]] | None = None

    def split(self, seed: int) -> dict[str, FitInput]:
        """Return the rows to train and to measure on, ``"train"`` and ``"test"``."""
        if self.test is not None:
            return {"train": self.whole, "test": self.test}
        if self._last is None or self._last[0] != seed:
            parts = split_by_label(self.whole, TEST_SHARE, seed)
            self._last = seed, dict(zip(("train", "test"), parts, strict=True))
        return self._last[1]

    def audit(self, model: FairEstimator, seed: int) -> Audit | None:
        """Return the audit of a model on the test rows."""
        return audit_rows(model, self.split(seed)["test"])


def tradeoff_curve(
    estimator: FairEstimator | Mapping[str, FairEstimator],
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    test: tuple[Table, ...] | Mapping[str, Table] | None = None,
    fairness_weights: int | Sequence[float] = 20,
    seeds: int | Sequence[int] = 1,
    divergences: Sequence[str | Divergence] | None = None,
    n_jobs: int | None = None,
    records: str | os.PathLike[str] | None = None,
) -> TradeoffCurve:
    """Train a model per fairness weight and measure what each costs.

    Parameters
    ----------
    estimator
        An unfitted fair classifier or regressor, whose own ``fairness_weight`` is not
        used, or several by the names of their curves. For a regressor ``accuracy`` is
        the share of variance explained, and ``violation`` is its ``violation_metric``.
    X, y, sensitive_features, sample_weight
        Training data, as in `fit`.
    test
        Rows to measure on: a dict with keys ``X``, ``y``, ``sensitive_features`` and
        perhaps ``sample_weight``, or a tuple of them in this order. By default a
        random quarter of the training data is held out for each seed.
    fairness_weights
        The weights, or how many, evenly spaced in logarithm over the range in which a
        divergence acts. Weight 0, the model without a penalty, is always included.
    seeds
        The seeds, or how many. A seed sets ``random_state`` and the held-out part.
    divergences
        One curve for each of these, instead of the estimator's own divergence.
    n_jobs
        Parallel processes over curves and seeds, through joblib's current backend:
        inside ``joblib.parallel_config(backend="dask")`` they are a cluster's.
    records
        A folder for records and models, written as they are made. Repeat the same
        call to resume after an interruption; at most the fits in flight are lost.

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
    models = _named_estimators(estimator, divergences)
    if sensitive_features is None:
        raise MissingSensitiveError(
            "tradeoff_curve needs sensitive_features, because it measures fairness. "
            "Pass tradeoff_curve(estimator, X, y, sensitive_features=...)."
        )
    whole = _read_rows(X, y, sensitive_features, sample_weight)
    rows = SweepRows(whole, _read_test(test))
    # Rows may be large, and are the same for all.
    digest = "" if records is None else str(joblib.hash([whole, rows.test]))
    paths = [
        (model, _header(name, number, model, weights, seed, rows, digest))
        for number, (name, model) in enumerate(models.items())
        for weights in [_weights(fairness_weights, model._objective().divergence)]
        for seed in _seeds(seeds)
    ]
    folder = None if records is None else Path(records)
    if folder is not None:
        check_folder(folder, [header for _, header in paths])
    swept = Parallel(n_jobs=n_jobs)(
        delayed(_run_path)(model, header, rows, folder) for model, header in paths
    )
    return assemble(swept, rows.audit)


def _named_estimators(
    estimator: FairEstimator | Mapping[str, FairEstimator],
    divergences: Sequence[str | Divergence] | None,
) -> dict[str, FairEstimator]:
    several = estimator if isinstance(estimator, Mapping) else {"": estimator}
    if not several:
        raise InvalidParameterError(
            "estimator is an empty dict. Pass a fair estimator, or several by name."
        )
    for model in several.values():
        _check_estimator(model)
    if divergences is None:
        return {name or type(model).__name__: model for name, model in several.items()}
    if isinstance(divergences, str) or not len(divergences):
        raise InvalidParameterError(
            f"divergences must be a list of at least one; got {divergences!r}."
        )
    chosen = [get_divergence(divergence) for divergence in divergences]
    return {
        ", ".join(filter(None, [name, _shortest(divergence)])): clone(model).set_params(
            divergence=divergence
        )
        for name, model in several.items()
        for divergence in chosen
    }


def _check_estimator(estimator: object) -> None:
    if not isinstance(estimator, FairEstimator):
        raise InvalidParameterError(
            "tradeoff_curve needs a fair classifier such as FairLogisticRegression(), "
            f"or a FairRegressor(); got {type(estimator).__name__}. Transform the "
            "features before the curve: a pipeline cannot be trained along a path."
        )


def _shortest(divergence: Divergence) -> str:
    # Its name, if that says all of it.
    is_ours = type(divergence).__module__.startswith("fferm.")
    is_usual = is_ours and divergence == get_divergence(divergence.name)
    return divergence.name if is_usual else repr(divergence)


def _read_rows(
    X: Table, y: Table, sensitive_features: Table, sample_weight: Table = None
) -> FitInput:
    # Labels of one column, and groups of a lazy frame, as `fit` takes them.
    if y is None:
        raise InvalidInputError(
            "y is None. A curve measures accuracy, so every row needs a label or a "
            "number."
        )
    rows = FitInput(X, one_column(y), collected(sensitive_features), sample_weight)
    check_lengths(**rows.tables)
    check_aligned(**rows.tables)
    return rows


def _read_test(
    test: tuple[Table, ...] | Mapping[str, Table] | None,
) -> FitInput | None:
    if test is None:
        return None
    names = ("X", "y", "sensitive_features", "sample_weight")
    if isinstance(test, Mapping):
        if set(names[:3]) <= set(test) <= set(names):
            return _read_rows(**test)
        parts = f"keys {', '.join(map(str, test))}"
    else:
        if isinstance(test, tuple | list) and len(test) in (3, 4):
            return _read_rows(*test)
        parts = f"{len(test)} parts" if isinstance(test, Sized) else "no parts"
    raise InvalidParameterError(
        "test must be a dict with keys X, y, sensitive_features and perhaps "
        "sample_weight, a tuple of them in this order, or None to hold out a quarter "
        f"of the rows; got a {type(test).__name__} with {parts}."
    )


def _header(
    name: str,
    number: int,
    model: FairEstimator,
    weights: list[float],
    seed: int,
    rows: SweepRows,
    digest: str,
) -> dict[str, Any]:
    # What a path trains, and the first line of its file.
    objective = model._objective()
    parts = (objective.divergence, objective.notion, objective.uncertainty)
    # The description has only the name of what is large, such as a control feature.
    inside = [None if part is None else part.parameters() for part in parts]
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "curve": name,
        "number": number,
        "seed": seed,
        "weights": weights,
        "description": _description(model, rows),
        "data": digest,
        "settings": str(joblib.hash(inside)) if digest else "",
    }


def _description(model: FairEstimator, rows: SweepRows) -> dict[str, str]:
    objective = model._objective()
    n_rows, n_features = np.shape(rows.whole.X)
    metric = getattr(model, "violation_metric", None)
    return {
        "estimator": type(model).__name__,
        "divergence": repr(objective.divergence),
        "notion": repr(objective.notion),
        "uncertainty": repr(objective.uncertainty),
        "groups": str(model.groups),
        **({} if metric is None else {"metric": str(metric)}),
        "test": "held out" if rows.test is None else "given",
        "sample_weight": "none" if rows.whole.sample_weight is None else "given",
        "rows": str(n_rows),
        "features": str(n_features),
        "code": _code(model),
    }


def _code(model: FairEstimator) -> str:
    # The call that makes a model; defaults and what the sweep sets are left out.
    usual, values = type(model)().get_params(deep=False), model.get_params(deep=False)
    code = {name: code_of(value, name) for name, value in values.items()}
    changed = [
        f"{name}={code[name]}"
        for name in code
        if name not in SWEPT and code[name] != code_of(usual[name], name)
    ]
    return f"{type(model).__name__}({', '.join(changed)})"


def _weights(
    fairness_weights: int | Sequence[float], divergence: Divergence
) -> list[float]:
    if isinstance(fairness_weights, int | np.integer):
        if fairness_weights < 2:
            raise InvalidParameterError(
                "fairness_weights must be at least 2, or a list of weights; got "
                f"{fairness_weights}."
            )
        grid: list[float] = default_weights(divergence, int(fairness_weights)).tolist()
        return grid
    if np.ndim(fairness_weights) != 1 or len(fairness_weights) == 0:
        raise InvalidParameterError(
            "fairness_weights must be a list of numbers, or how many; got "
            f"{fairness_weights!r}."
        )
    # Every figure is compared with that of the model without a penalty.
    numbers = (check_number("fairness_weights", w) for w in fairness_weights)
    return sorted({0.0, *numbers})


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int | np.integer) else seeds
    is_list = np.ndim(numbers) == 1 and len(numbers) > 0
    if not is_list or not all(
        isinstance(n, int | np.integer) and n >= 0 for n in numbers
    ):
        raise InvalidParameterError(
            "seeds must be a list of integers of at least 0, or how many, at least "
            f"one; got {seeds!r}."
        )
    return [int(seed) for seed in dict.fromkeys(numbers)]


def _run_path(
    estimator: FairEstimator,
    header: dict[str, Any],
    rows: SweepRows,
    folder: Path | None,
) -> Recorded:
    """Return the fits of one curve and seed, in order of their weights.

    With a folder, each fit is on disk with its model once it is made.
    """
    splits = rows.split(header["seed"])
    with warnings.catch_warnings():
        # A collapsed point is in the records; one warning a point would drown them.
        warnings.simplefilter("ignore", CollapseWarning)
        if folder is None:
            recorded = Recorded(header, {}, {})
            for fit, model in _fits(estimator, header, splits, {}):
                recorded.fits[model.fairness_weight] = fit
                recorded.models[model.fairness_weight] = model
            return recorded
        file = RecordFile(folder, header["curve"], header["seed"])
        with file.opened(header) as recorded:
            paths = recorded.models
            done = {w: paths[w] for w in recorded.fits if paths[w].exists()}
            for fit, model in _fits(estimator, header, splits, done):
                save(model, paths[model.fairness_weight])
                if (audited := audit_rows(model, splits["test"])) is not None:
                    fit["audit"] = audited.to_dict()
                file.append(fit)
                recorded.fits[model.fairness_weight] = fit
            return recorded


def _fits(
    estimator: FairEstimator,
    header: dict[str, Any],
    splits: dict[str, FitInput],
    done: dict[float, Path],
) -> Iterator[tuple[dict[str, Any], FairEstimator]]:
    # Yields the fits that are not done, with their models.
    measures: dict[str, Any] = {}
    began = time.perf_counter()
    for trained in _train_path(estimator, header, splits["train"], done):
        seconds = (time.perf_counter() - began) / len(trained)
        if not measures:
            measures = make_measures(trained[0], splits)
            # Training has checked its rows. The test rows are the same for every
            # model, so they are checked once.
            trained[0]._check_fitted_features(splits["test"].X)
        models = [model for model in trained if model.fairness_weight not in done]
        with config_context(assume_finite=True):
            outputs = [m.outputs(models) for m in measures.values() if models]
            for model, *by_split in zip(models, *outputs, strict=True):
                output = dict(zip(measures, by_split, strict=True))
                yield _measure(model, measures, output, seconds), model
                logger.info(
                    "%s, seed %d: fairness weight %g took %.3g s",
                    header["curve"],
                    header["seed"],
                    model.fairness_weight,
                    seconds,
                )
        began = time.perf_counter()


def _train_path(
    estimator: FairEstimator,
    header: dict[str, Any],
    train: FitInput,
    done: dict[float, Path],
) -> Iterator[list[FairEstimator]]:
    # Yields the models that were trained together, or one after the other.
    weights = header["weights"]
    left = [weight for weight in weights if weight not in done]
    if not left:
        return
    model: FairEstimator = clone(estimator).set_params(random_state=header["seed"])
    is_warm = model.warm_starts_path(train, weights)
    start, n_before = None, weights.index(left[0])
    if n_before and is_warm:
        # The models before the first weight that is left were trained by this very
        # path, so it resumes after the last of them.
        last = done[weights[n_before - 1]]
        start = load(last, module=getattr(estimator, "module", None))
        weights = weights[n_before:]
    path = model.fit_path(train, weights, start)
    if model.fits_path_jointly(train) and not is_warm:
        yield list(path)
    else:
        yield from ([fitted] for fitted in path)


def _measure(
    model: FairEstimator,
    measures: dict[str, Any],
    outputs: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    # One line of the records: the measures on each split.
    fit: dict[str, Any] = {
        "fairness_weight": model.fairness_weight,
        "measures": [
            {"split": name, **measure(model, outputs[name]), "seconds": seconds}
            for name, measure in measures.items()
        ],
    }
    # A regressor has no decisions that could be replaced.
    if model.fairness_weight == 0 and isinstance(model, FairClassifier):
        towards = measures["train"].commonest_class
        fit["thinned"] = [
            {"split": name, **row}
            for name, measure in measures.items()
            for row in measure.random_baseline(outputs[name], towards)
        ]
    return fit
