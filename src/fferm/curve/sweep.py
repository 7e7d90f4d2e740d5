"""The sweep: one model per curve, fairness weight and seed."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import fferm
from fferm._typing import Table
from fferm.auditing import Audit
from fferm.curve.curve import TEST_SHARE, TradeoffCurve, usable_points
from fferm.curve.measures import audit_rows, make_measures, measure_models
from fferm.curve.records import Recorded, assemble, claim_folder, open_records
from fferm.data.rows import FitInput
from fferm.data.split import read_rows, split_by_label
from fferm.data.validate import Number, check_params
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidParameterError
from fferm.estimators.base import FairEstimator, fit_steps, progress, replace_last
from fferm.fairness_grid import weight_grid
from fferm.registry import code_of, kind_of, last_step
from fferm.solvers.base import Callback

logger = logging.getLogger(__name__)

# A sweep sets these itself.
SWEPT = ("fairness_weight", "random_state")
# What says which violation a model is measured by; regressors alone have a metric.
MEASURED_BY = ("violation_metric", "notion", "groups")
Header = dict[str, Any]
Opened = AbstractContextManager[tuple[Recorded, Any]]


@dataclass
class SweepRows:
    """All rows of a sweep; without ``test`` a quarter is held out for each seed."""

    whole: FitInput
    test: FitInput | None
    _last: tuple[int, dict[str, FitInput]] | None = None

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
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    test: tuple[Table, ...] | Mapping[str, Table] | None = None,
    fairness_weights: int | Sequence[float] = 20,
    seeds: int | Sequence[int] = 1,
    divergences: Sequence[str | Divergence] | None = None,
    max_violation: float | None = None,
    min_group_size: int | None = None,
    n_jobs: int | None = None,
    records: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> TradeoffCurve:
    """Train a model per fairness weight and measure what each costs.

    Parameters
    ----------
    estimator
        An unfitted fair classifier or regressor, whose own ``fairness_weight`` is not
        used, a pipeline that ends in one (its other steps are fitted on the training
        rows of each seed), or several by the names of their curves, all measured by
        the same notion. For a regressor
        ``accuracy`` is the share of variance explained, and ``violation`` is its
        ``violation_metric``.
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
    max_violation
        More weights are tried where the violation on test rows, its mean over seeds,
        crosses this bound: they halve the step again and again. It is compared by the
        estimator's ``measure``, as in `TradeoffCurve.select`. Tests on these rows, as
        of ``select(confidence=)``, leave the added weights out.
    min_group_size
        In place of the estimator's own: groups with fewer rows are not compared.
    n_jobs
        Parallel processes over curves and seeds, through joblib's current backend:
        inside ``joblib.parallel_config(backend="dask")`` they are a cluster's.
    records
        A folder for records and models, written as they are made. Repeat the same
        call to resume after an interruption; at most the fits in flight are lost.
    verbose
        1 shows progress: the last weight, its violation, and how many models are left.

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
    bound = {"max_violation": max_violation}
    check_params(bound, {"max_violation": Number(is_optional=True)})
    models = _named_estimators(estimator, divergences)
    if min_group_size is not None:
        models = {
            name: replace_last(
                model,
                clone(last_step(model)).set_params(min_group_size=min_group_size),
            )
            for name, model in models.items()
        }
    whole = read_rows(X, y, sensitive_features, sample_weight)
    rows = SweepRows(whole, None if test is None else _read_test(test))
    # Rows may be large, and are the same for all.
    digest = "" if records is None else str(joblib.hash([whole, rows.test]))
    paths = []
    for number, (name, model) in enumerate(models.items()):
        header = _header(name, model, rows, digest, fairness_weights)
        header["number"] = number
        for seed in _seeds(seeds):
            paths.append((model, {**header, "seed": seed}))
    folder = None if records is None else Path(records)
    if folder is not None:
        claim_folder(folder, [header for _, header in paths])
    swept = []
    n_models = sum(len(header["weights"]) for _, header in paths)
    # Other processes cannot draw a bar; theirs are counted when a path has ended.
    is_alone = joblib.effective_n_jobs(n_jobs) == 1
    how = "generator" if verbose and not is_alone else "list"
    with progress(verbose, n_models, "models") as show:
        for path in Parallel(n_jobs=n_jobs, return_as=how)(
            delayed(_run_path)(model, header, rows, folder, show if is_alone else ())
            for model, header in paths
        ):
            swept.append(path)
            for fit in () if is_alone else path.fits.values():
                _show(fit, show)
    if max_violation is not None:
        _refine(paths, swept, rows, folder, n_jobs, max_violation)
    return assemble(swept, rows.audit)


def _refine(
    paths: list[tuple[Any, Header]],
    swept: list[Recorded],
    rows: SweepRows,
    folder: Path | None,
    n_jobs: int | None,
    bound: float,
) -> None:
    """Add fits where the violation crosses a bound, halving the step."""
    # Other weights in the folder have no say in which are tried.
    tried = {header["curve"]: [*header["weights"]] for _, header in paths}
    models = {header["curve"]: last_step(model) for model, header in paths}
    for _ in range(max(model.search_halvings for model in models.values())):
        curves = assemble(swept, rows.audit).curves
        middle = {
            name: _middle(curves[name], model, bound, tried[name])
            for name, model in models.items()
        }
        where = [n for n, (_, header) in enumerate(paths) if middle[header["curve"]]]
        more = Parallel(n_jobs=n_jobs)(
            delayed(_run_path)(
                *paths[n], rows, folder, (), middle[paths[n][1]["curve"]]
            )
            for n in where
        )
        for n, path in zip(where, more, strict=True):
            swept[n].fits.update(path.fits)
            swept[n].models.update(path.models)
        for name, weights in middle.items():
            tried[name] += weights


def _middle(
    curve: TradeoffCurve, model: FairEstimator, bound: float, tried: list[float]
) -> list[float]:
    # The middle of the first step of weights over which the violation crosses a bound.
    points = usable_points(curve.records, "test").sort_values("fairness_weight")
    points = points[points["fairness_weight"].isin(tried)]
    points = curve._measured(points, "max_violation", "test", model.measure)
    weights = points["fairness_weight"].to_numpy()
    is_within = points["violation"].to_numpy() <= bound
    crossed = np.flatnonzero(is_within[1:] & ~is_within[:-1])
    if not crossed.size:
        return []
    low, high = weights[crossed[0] : crossed[0] + 2].tolist()
    return [float(np.sqrt(low * high)) if low > 0 else high / 2]


def _show(fit: dict[str, Any], callbacks: tuple[Callback, ...]) -> None:
    # Shows the measures of a model on the test rows.
    measures = {**fit["measures"][-1], "weight": fit["fairness_weight"]}
    for callback in callbacks:
        callback(measures)


def _named_estimators(
    estimator: Any, divergences: Sequence[str | Divergence] | None
) -> dict[str, Any]:
    several = estimator if isinstance(estimator, Mapping) else {"": estimator}
    for model in several.values() or [several]:
        last = last_step(model)
        if not isinstance(last, FairEstimator):
            raise InvalidParameterError(
                "tradeoff_curve needs a fair estimator such as FairRegressor(), a "
                "pipeline that ends in one, or several by name; got "
                f"{model if model == {} else kind_of(last)}."
            )
    if len(several) > 1:
        _check_alike({name: last_step(model) for name, model in several.items()})
    if divergences is None:
        return {
            name or type(last_step(model)).__name__: model
            for name, model in several.items()
        }
    if isinstance(divergences, str) or not len(divergences):
        raise InvalidParameterError(
            f"divergences must be a list of at least one; got {divergences!r}."
        )
    chosen = [get_divergence(divergence) for divergence in divergences]
    models = {}
    for name, model in several.items():
        for divergence in chosen:
            is_ours = type(divergence).__module__.startswith("fferm.")
            is_usual = is_ours and divergence == get_divergence(divergence.name)
            short = divergence.name if is_usual else repr(divergence)
            curve = f"{name}, {short}" if name else short
            last = clone(last_step(model)).set_params(divergence=divergence)
            models[curve] = replace_last(model, last)
    return models


def _check_alike(models: Mapping[str, FairEstimator]) -> None:
    # Violations of different kinds do not belong on one axis.
    first, *others = models.items()
    for name, model in others:
        for what in MEASURED_BY:
            values = [getattr(each, what, None) for each in (first[1], model)]
            if repr(values[0]) != repr(values[1]):
                raise InvalidParameterError(
                    f"All models of a sweep are measured alike; {what} is "
                    f"{values[0]!r} in {first[0]!r} and {values[1]!r} in {name!r}. "
                    "Sweep them one by one."
                )


def _read_test(test: tuple[Table, ...] | Mapping[str, Table]) -> FitInput:
    names = ("X", "y", "sensitive_features", "sample_weight")
    tables: Mapping[str, Table] = {}
    if isinstance(test, Mapping):
        tables = test
    elif isinstance(test, tuple | list) and len(test) <= len(names):
        tables = dict(zip(names, test, strict=False))
    if set(names[:3]) <= set(tables) <= set(names):
        return read_rows(**tables)
    parts = ", ".join(map(str, tables)) or "none of these"
    raise InvalidParameterError(
        "test must be None, or X, y, sensitive_features and perhaps sample_weight as "
        f"a tuple or by name in a dict; got a {type(test).__name__} with {parts}."
    )


def _header(
    name: str,
    whole: Any,
    rows: SweepRows,
    digest: str,
    fairness_weights: int | Sequence[float],
) -> Header:
    # What is swept; it becomes the first line of a file.
    model = last_step(whole)
    objective = model._objective()
    parts = (objective.divergence, objective.notion, objective.uncertainty)
    # The description has only the name of what is large, such as a control feature.
    inside: list[Any] = [None if p is None else p.parameters() for p in parts]
    n_rows, n_features = np.shape(rows.whole.X)
    metric = getattr(model, "violation_metric", None)
    # The call that makes the model; defaults and what the sweep sets are left out.
    usual, values = type(model)().get_params(deep=False), model.get_params(deep=False)
    changed = [
        f"{key}={code_of(value, key)}"
        for key, value in values.items()
        if key not in SWEPT and code_of(value, key) != code_of(usual[key], key)
    ]
    code = f"{type(model).__name__}({', '.join(changed)})"
    if model is not whole:
        steps = [step for _, step in whole.steps[:-1]]
        inside += [repr(step) for step in steps]
        shown = [" ".join(repr(step).split()) for step in steps]
        code = f"make_pipeline({', '.join([*shown, code])})"
    description = {
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
        "code": code,
        "fferm": fferm.__version__,
    }
    return {
        "curve": name,
        "description": description,
        "data": digest,
        "settings": str(joblib.hash(inside)) if digest else "",
        "weights": weight_grid(fairness_weights, objective.divergence, has_zero=True),
    }


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    numbers = list(range(seeds)) if isinstance(seeds, int | np.integer) else seeds
    is_list = np.ndim(numbers) == 1 and len(numbers) > 0
    if not is_list or not all(map(Number(is_whole=True).accepts, numbers)):
        raise InvalidParameterError(
            "seeds must be a list of integers of at least 0, or how many, at least "
            f"one; got {seeds!r}."
        )
    return [int(seed) for seed in dict.fromkeys(numbers)]


def _run_path(
    estimator: Any,
    header: Header,
    rows: SweepRows,
    folder: Path | None,
    callbacks: tuple[Callback, ...] = (),
    weights: Sequence[float] = (),
) -> Recorded:
    """Return the fits of one curve and seed, in order of their weights.

    With a folder, each fit is on disk with its model once it is made. ``weights`` are
    those of the header, if none are passed.
    """
    weights = list(weights or header["weights"])
    splits = rows.split(header["seed"])
    if isinstance(estimator, Pipeline):
        estimator, parts = fit_steps(estimator, *splits.values())
        splits = dict(zip(splits, parts, strict=True))
    opened: Opened = nullcontext((Recorded(header, {}, {}), None))
    if folder is not None:
        opened = open_records(folder, header, weights)
    measures: dict[str, Any] = {}
    with opened as (recorded, append):
        files = recorded.models
        done = {w: files[w] for w in recorded.fits if files[w].exists()}
        last, train = last_step(estimator), splits["train"]
        path = _train_path(last, weights, header["seed"], train, done)
        for trained, seconds in path:
            measures = measures or make_measures(trained[0], splits)
            models = [m for m in trained if m.fairness_weight_ not in done]
            for fit, model in measure_models(measures, models, seconds):
                weight, whole = model.fairness_weight_, model
                if isinstance(estimator, Pipeline):
                    whole = replace_last(estimator, model)
                logger.info("%s: weight %g, %.3g s", header["curve"], weight, seconds)
                if append is None:
                    recorded.models[weight] = whole
                else:
                    from fferm.persistence import save

                    save(whole, recorded.models[weight])
                    audited = audit_rows(model, splits["test"])
                    fit["audit"] = None if audited is None else audited.to_dict()
                    append(fit)
                recorded.fits[weight] = fit
                if callbacks:
                    _show(fit, callbacks)
    return recorded


def _train_path(
    estimator: FairEstimator,
    weights: list[float],
    seed: int,
    train: FitInput,
    done: dict[float, Path],
) -> Iterator[tuple[list[FairEstimator], float]]:
    # Yields the models that were trained together, and the seconds that one took.
    left = [weight for weight in weights if weight not in done]
    if not left:
        return
    model: FairEstimator = clone(estimator).set_params(random_state=seed)
    is_warm = model.warm_starts_path(train, weights)
    start, n_before = None, weights.index(left[0])
    if n_before and is_warm:
        # The models before the first weight that is left were trained by this very
        # path, so it resumes after the last of them.
        from fferm.persistence import load

        last = done[weights[n_before - 1]]
        start = last_step(load(last, module=getattr(estimator, "module", None)))
        weights = weights[n_before:]
    began = time.perf_counter()
    path = model.fit_path(train, weights, start)
    if model.fits_path_jointly(train) and not is_warm:
        models = list(path)
        yield models, (time.perf_counter() - began) / len(models)
        return
    for fitted in path:
        yield [fitted], time.perf_counter() - began
        began = time.perf_counter()
