"""The sweep itself: one model per curve, fairness weight and seed."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from fferm._typing import Table
from fferm.auditing.spelling import spell, spell_model
from fferm.data.validate import check_number
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidParameterError, MissingSensitiveError
from fferm.estimators.base import FairEstimator
from fferm.tradeoff.assembly import assemble, in_memory, on_disk
from fferm.tradeoff.curve import TradeoffCurve
from fferm.tradeoff.journal import check_folder
from fferm.tradeoff.paths import Task, record_path, train_path
from fferm.tradeoff.splits import Rows, Split, check_part, read_test
from fferm.weights import default_weights

# A sweep sets these itself.
SWEPT = ("fairness_weight", "random_state")


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
        used, or several by the names of their curves. Of a regressor, ``accuracy`` is
        the share of variance that is explained, and ``violation`` is its
        ``violation_metric``.
    X, y, sensitive_features, sample_weight
        Training data, as in `fit`.
    test
        Rows to measure on: a dict with keys ``X``, ``y``, ``sensitive_features`` and
        perhaps ``sample_weight``, or a tuple of them in this order. By default a
        quarter of the training data, drawn anew for each seed, is held out.
    fairness_weights
        The weights, or how many, spread evenly in logarithm over the range in which a
        divergence acts. The plain model, weight 0, is always among them.
    seeds
        The seeds, or how many. A seed sets ``random_state`` and the held-out part.
    divergences
        A curve for each of these, in place of the estimator's own.
    n_jobs
        Parallel processes over curves and seeds, through joblib's current backend:
        inside of ``joblib.parallel_config(backend="dask")`` they are a cluster's.
    records
        A folder for records and models, written as they are made. The same call goes
        on where a killed one was, and loses no more than the fits in flight.

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
    swept = _named_estimators(estimator, divergences)
    if sensitive_features is None:
        raise MissingSensitiveError(
            "A curve measures fairness and no sensitive_features came. Pass "
            "tradeoff_curve(estimator, X, y, sensitive_features=...)."
        )
    rows = Rows(Split(X, y, sensitive_features, sample_weight), read_test(test))
    for part in filter(None, (rows.whole, rows.test)):
        check_part(part)
    tasks = [
        Task(name, model, weights, seed, _described(model, rows), number)
        for number, (name, model) in enumerate(swept.items())
        for weights in [_weights(fairness_weights, model._objective().divergence)]
        for seed in _seeds(seeds)
    ]
    parallel = Parallel(n_jobs=n_jobs)
    if records is None:
        outcomes = parallel(delayed(train_path)(task, rows) for task in tasks)
        return assemble(in_memory(outcome, rows) for outcome in outcomes)
    folder = Path(records)
    headers = _headers(tasks, rows)
    check_folder(folder, headers)
    outcomes = parallel(
        delayed(record_path)(task, rows, folder, header)
        for task, header in zip(tasks, headers, strict=True)
    )
    return assemble(on_disk(outcome.recorded, folder) for outcome in outcomes)


def _named_estimators(
    given: FairEstimator | Mapping[str, FairEstimator],
    divergences: Sequence[str | Divergence] | None,
) -> dict[str, FairEstimator]:
    several = given if isinstance(given, Mapping) else {"": given}
    if not several:
        raise InvalidParameterError(
            "No estimator came. Expected a fair classifier, or several by name."
        )
    for model in several.values():
        _check_estimator(model)
    if divergences is None:
        return {name or type(model).__name__: model for name, model in several.items()}
    if isinstance(divergences, str) or not len(divergences):
        raise InvalidParameterError(
            f"divergences={divergences!r} came. Expected a list of them, at least one."
        )
    chosen = [get_divergence(divergence) for divergence in divergences]
    return {
        ", ".join(filter(None, [name, _shortest(divergence)])): _with(model, divergence)
        for name, model in several.items()
        for divergence in chosen
    }


def _check_estimator(estimator: object) -> None:
    if not isinstance(estimator, FairEstimator):
        raise InvalidParameterError(
            f"A {type(estimator).__name__} came. Expected a fair classifier such as "
            "FairLogisticRegression(), or a FairRegressor(). Transform the features "
            "before the curve; a pipeline cannot be trained along a path."
        )


def _with(model: FairEstimator, divergence: Divergence) -> FairEstimator:
    changed: FairEstimator = clone(model).set_params(divergence=divergence)
    return changed


def _shortest(divergence: Divergence) -> str:
    # Its name, if that says all of it.
    spelled = spell(divergence, "divergence").code
    return divergence.name if spelled == repr(divergence.name) else repr(divergence)


def _described(model: FairEstimator, rows: Rows) -> dict[str, str]:
    objective, spelled = model._objective(), spell_model(model, SWEPT)
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
        "code": spelled.code,
        "imports": "\n".join(spelled.imports),
        "notes": "\n".join(spelled.notes),
    }


def _headers(tasks: list[Task], rows: Rows) -> list[dict[str, Any]]:
    # Rows may be large, and are the same for all.
    data = joblib.hash(rows)
    return [task.header(data, _digest(task.estimator)) for task in tasks]


def _digest(model: FairEstimator) -> str:
    # Of what the description spells by name only, such as a control feature's values.
    objective = model._objective()
    parts = (objective.divergence, objective.notion, objective.uncertainty)
    inside = [None if part is None else part.parameters() for part in parts]
    return str(joblib.hash(inside))


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
    # Every figure is read beside the plain model's, so that is always there.
    return sorted({0.0, *(check_number("fairness_weights", w) for w in given)})


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
