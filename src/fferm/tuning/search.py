"""The search over divergences, radii and weights: a grid, or optuna's proposals."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone

from fferm._typing import IntArray, Table
from fferm.curve.curve import GOALS, goals_asked, lowest_of
from fferm.data.groups import Binning, encode_sensitive
from fferm.data.rows import FitInput, check_aligned
from fferm.data.split import read_rows
from fferm.data.validate import COUNT, Number, check_number, check_params, encode_labels
from fferm.divergences import STANDARD, Divergence
from fferm.errors import (
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    import_extra,
    muted,
    warn_user,
)
from fferm.estimators.base import FairClassifier, fit_steps, progress, replace_last
from fferm.estimators.weight_search import USELESS, bounded_score
from fferm.fairness_grid import weight_grid
from fferm.metrics.intervals import CONFIDENCE, certify_tables
from fferm.metrics.tabulator import Tabulator, make_tabulator, worst_violation
from fferm.registry import kind_of, last_step
from fferm.solvers.base import Callback
from fferm.tuning.validation import CrossValidation, EvenHoldout, Validation
from fferm.uncertainty import Uncertainty

# The level of optuna's log is that of the whole process, so searches take turns.
LOG_LEVEL = threading.RLock()
SHOWN = ("divergence", "radius", "fairness_weight", "accuracy", "violation")


@dataclass(frozen=True)
class Tuning:
    """The result of a search.

    Attributes
    ----------
    estimator
        Trained on all source rows with the best candidate; with a confidence, the
        model that was tested.
    best
        ``divergence``, ``radius``, ``fairness_weight``, and the ``accuracy`` and
        ``violation`` that it was chosen by, which are therefore optimistic.
    feasible
        Whether ``best`` keeps the bound on the rows that judge.
    records
        One row per candidate and weight.
    """

    estimator: Any
    best: dict[str, Any]
    feasible: bool
    records: pd.DataFrame

    def __repr__(self) -> str:
        """Return one line: the best candidate and its measures."""
        return (
            f"Tuning({self.best['divergence']}, radius {self.best['radius']:g}, "
            f"fairness_weight {self.best['fairness_weight']:.4g}: accuracy "
            f"{self.best['accuracy']:.4f} at violation {self.best['violation']:.4f})"
        )


def tune(
    estimator: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    validation: Validation | None = None,
    max_violation: float | None = None,
    min_accuracy: float | None = None,
    min_rate: float | None = None,
    min_group_accuracy: float | None = None,
    confidence: float | None = None,
    divergences: Sequence[str | Divergence] | None = None,
    radii: Sequence[float] | None = None,
    fairness_weights: int | Sequence[float] = 12,
    n_trials: int | None = None,
    sampler: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Tuning:
    """Return the divergence, radius and weight that do best on rows that judge.

    Parameters
    ----------
    estimator
        An unfitted fair classifier, or a pipeline that ends in one and whose other
        steps are fitted inside each fold; the parameters searched for replace its own.
    X, y, sensitive_features, sample_weight
        The source: the rows to train on, as in `fit`.
    validation
        Which rows judge: `CrossValidation` (default, five folds), `TargetSample` or
        `EvenHoldout`.
    max_violation, min_accuracy, min_rate, min_group_accuracy
        One of them: the bound to keep on those rows. Among the candidates that keep it
        the most accurate (of a violation or a rate), or the fairest, is chosen; if none
        does, the closest, with an `InfeasibleWarning`. ``min_rate`` bounds the lowest
        selection rate of a group, in the larger of two classes, and
        ``min_group_accuracy`` the accuracy of every group.
    confidence
        With ``max_violation``: the rows that judge have to show that it is kept. The
        weights of each divergence and radius are tested from the fairest on, as it is
        on the training rows, until one fails, all of them share the risk, and the model
        that was tested is returned, not trained again. It needs `TargetSample` or
        `EvenHoldout`, because no model of `CrossValidation` is judged by all rows, and
        the whole grid.
    divergences
        Names or instances to choose from; by default the six standard ones.
    radii
        Radii of the estimator's uncertainty set to choose from, 0 for none; by default
        the estimator's own.
    fairness_weights
        The weights, or how many of the default range of each divergence.
    n_trials
        None for the whole grid. Otherwise optuna (extra ``tune``) tries this many
        points: weights anywhere in their range, the listed divergences and radii.
    sampler
        A sampler of optuna instead of its seeded default.
    n_jobs
        Parallel processes over divergences and radii, through joblib; not with optuna.
    verbose
        1 shows progress: the last weight tried, its violation and how many are left.

    Returns
    -------
    Tuning

    Examples
    --------
    >>> from fferm import FairLogisticRegression
    >>> from fferm.datasets import make_biased
    >>> from fferm.tuning import CrossValidation, tune
    >>> data = make_biased(random_state=0)
    >>> tuned = tune(
    ...     FairLogisticRegression(), data.X, data.y,
    ...     sensitive_features=data.sensitive_features, max_violation=0.1,
    ...     validation=CrossValidation(3), divergences=["kl"], fairness_weights=4,
    ... )
    >>> tuned.best["divergence"]
    'kl'
    """
    if not isinstance(last_step(estimator), FairClassifier):
        raise InvalidParameterError(
            "tune needs a fair classifier such as FairLogisticRegression(), or a "
            f"pipeline that ends in one; got {kind_of(last_step(estimator))}."
        )
    bounds = max_violation, min_accuracy, min_rate, min_group_accuracy
    goal, bound = _one_goal(bounds)
    passed = read_rows(X, y, sensitive_features, sample_weight)
    candidates = _candidates(last_step(estimator), divergences, radii)
    judge = _Judge(estimator, validation, passed, goal)
    if confidence is not None:
        check_params({"confidence": confidence}, {"confidence": CONFIDENCE})
        judge.test(max_violation if n_trials is None else None)
    grids = [
        weight_grid(fairness_weights, m._objective().divergence) for _, m in candidates
    ]

    def score(record: Mapping[str, Any]) -> float:
        return goal_score(record, goal, bound)

    total = sum(map(len, grids)) if n_trials is None else n_trials
    with progress(verbose, total, "tuning") as callbacks:
        if n_trials is None:
            how = "generator" if verbose else "list"
            paths = Parallel(n_jobs=n_jobs, return_as=how)(
                delayed(judge.path)(*candidate, grid)
                for candidate, grid in zip(candidates, grids, strict=True)
            )
        else:
            tried = partial(_path_at, judge, candidates, grids)
            size = len(candidates), n_trials
            paths = _search_with_optuna(tried, score, *size, sampler)
        records = list(_shown(paths, callbacks))
    models = [record.pop("model") for record in records]
    chosen = list(range(len(records)))
    if confidence is not None:
        chosen = _certified(records, (1 - confidence) / len(candidates)) or chosen
    number = max(chosen, key=lambda i: score(records[i]))
    best = records[number]
    is_feasible = score(best) > 0 and best.get("passes", True)
    _check_best(score(best), is_feasible, best)
    whole, model = judge.pipeline, models[number]
    if confidence is None:
        model = next(model for key, model in candidates if key.items() <= best.items())
        whole, (seen,) = fit_steps(estimator, passed)
        model.set_params(fairness_weight=best["fairness_weight"]).fit(**seen.tables)
    shown = {name: best[name] for name in SHOWN}
    return Tuning(replace_last(whole, model), shown, is_feasible, pd.DataFrame(records))


def _one_goal(bounds: tuple[float | None, ...]) -> tuple[str, float]:
    asked = goals_asked(bounds)
    check_params(asked, dict.fromkeys(asked, Number(0, 1, is_optional=True)))
    if len(asked) != 1:
        raise InvalidParameterError(
            f"tune needs exactly one of {', '.join(GOALS)}; got "
            f"{', '.join(map(repr, bounds))}."
        )
    return next(iter(asked.items()))


def _check_best(score: float, is_feasible: bool, best: Mapping[str, Any]) -> None:
    if score == USELESS:
        raise InvalidInputError(
            "Every candidate predicts one class for everyone, or cannot be judged. "
            "Lower the fairness weights, or check the groups."
        )
    if not is_feasible:
        how = "is shown to keep" if "passes" in best else "keeps"
        warn_user(
            f"No candidate {how} the bound. Loosen it, or add weights. The closest has "
            f"accuracy {best['accuracy']:.4f} at violation {best['violation']:.4f}.",
            InfeasibleWarning,
        )


def _certified(records: list[dict[str, Any]], level: float) -> list[int]:
    # Mark the candidates that pass, from the fairest one of each path on, as it is on
    # the training rows.
    frame, passed = pd.DataFrame(records), list[int]()
    for _, path in frame.groupby(["divergence", "radius"]):
        order = path.sort_values("fairness_weight", ascending=False, kind="stable")
        order = order.iloc[int(order["train_violation"].argmin()) :]
        is_below = (order["p_value"] <= level).cummin()
        passed += [int(i) for i in order.index[is_below]]
    for i, record in enumerate(records):
        record["passes"] = i in passed
    return [i for i in passed if not records[i]["collapsed"]]


def _shown(
    paths: Iterable[list[dict[str, Any]]], callbacks: tuple[Callback, ...]
) -> Iterator[dict[str, Any]]:
    for record in itertools.chain.from_iterable(paths):
        for callback in callbacks:
            callback({**record, "weight": record["fairness_weight"]})
        yield record


def goal_score(record: Mapping[str, Any], goal: str, bound: float) -> float:
    """Return the score of a candidate for a bound."""
    # One class for everyone is fair and useless.
    is_usable = not (record["collapsed"] or np.isnan(record["violation"]))
    measure, sign, other = GOALS[goal]
    gain = record["accuracy"] if other == "accuracy" else 1 - record["violation"]
    return bounded_score(gain, sign * (record[measure] - bound), is_usable)


def _candidates(
    estimator: FairClassifier,
    divergences: Sequence[str | Divergence] | None,
    radii: Sequence[float] | None,
) -> list[tuple[dict[str, Any], FairClassifier]]:
    # What records are found by, and the unfitted model; radius 0: no uncertainty set.
    shift: Any = estimator.uncertainty
    if isinstance(divergences, str):
        raise InvalidParameterError(
            f"divergences must be a list; got {divergences!r}. Pass [{divergences!r}]."
        )
    candidates = []
    for name in STANDARD if divergences is None else divergences:
        for radius in _radii(shift, radii):
            model = clone(estimator).set_params(
                divergence=name,
                max_violation=None,
                max_divergence=None,
                uncertainty=replace(shift, radius=radius) if radius else None,
            )
            try:
                model._objective()
            except InvalidParameterError:
                # Total variation has no small shift; raise only if it was named.
                if divergences is not None:
                    raise
            else:
                candidates.append(({"divergence": str(name), "radius": radius}, model))
    if not candidates:
        raise InvalidParameterError("divergences is empty. Name at least one.")
    return candidates


def _radii(shift: Uncertainty | None, radii: Sequence[float] | None) -> list[float]:
    if radii is None:
        return [0.0 if shift is None else float(shift.parameters()["radius"])]
    numbers = sorted({check_number("radii", radius) for radius in radii})
    if not numbers or (shift is None and numbers[-1] > 0):
        raise InvalidParameterError(
            "radii must hold at least one number; one above 0 needs an estimator with "
            f"an uncertainty set such as SmallShift(radius=0.01); got {numbers}."
        )
    return numbers


class _Judge:
    """Measures decisions about the rows that judge, which are encoded once."""

    def __init__(
        self,
        estimator: Any,
        validation: Validation | None,
        passed: FitInput,
        goal: str,
    ) -> None:
        self.goal, model = goal, last_step(estimator)
        validation = CrossValidation() if validation is None else validation
        if not isinstance(validation, Validation):
            raise InvalidParameterError(
                "validation must be None, CrossValidation(), TargetSample(...) or "
                f"EvenHoldout(...); got {validation!r}."
            )
        self.validation = validation
        folds, self.judges = validation.folds(passed)
        fitted = [fit_steps(estimator, *fold) for fold in folds]
        self.folds, self.pipeline = [rows for _, rows in fitted], fitted[0][0]
        self.bound: float | None = None  # to test the violation of each candidate
        self.classes = np.unique(np.asarray(passed.y))
        check_aligned(**self.judges.tables)
        self.model = model
        # Each fold cuts bands of its own, so that none trains on rows that judge it.
        # All are judged in the bands of the whole source, which are the winner's.
        self._group_by(passed)

    def _group_by(self, source: FitInput) -> None:
        # Judge in the bands of these rows, and without their small groups.
        model, sensitive = self.model, source.sensitive_features
        binning = Binning(model.continuous, min_group_size=int(model.min_group_size))
        columns = encode_sensitive(sensitive, len(source.y), "marginal", binning)
        edges = {name: e for column in columns for name, e in column.edges.items()}
        whole = encode_sensitive(sensitive, len(source.y), model.groups, binning)
        small = {attribute.name: attribute.small for attribute in whole}
        self.binning = Binning(model.continuous, edges, small=small)
        self.tabulator = self._tabulate(self.judges)

    def _tabulate(self, rows: FitInput) -> Tabulator:
        return make_tabulator(
            encode_labels(rows.y, len(rows.y), self.classes.tolist(), "y"),
            self.model._objective().notion,
            rows.sensitive_features,
            self.model.groups,
            rows.sample_weight,
            rows.X,
            self.binning,
        )

    def _tested(self, model: FairClassifier, code: IntArray) -> dict[str, float]:
        ((train, _),) = self.folds
        with muted(FfermWarning):
            shown = np.searchsorted(self.classes, model.predict(train.X))
            tables = self._tabulate(train).tables(shown)
        value = worst_violation((table.mass for table in tables), self.model.measure)
        judged = self.tabulator.tables(code)
        p = certify_tables(judged, self.bound or 0.0, self.model.measure)
        # One class for everyone is not where the tests begin.
        is_useless = np.isnan(value) or np.unique(shown).size == 1
        return {"train_violation": np.inf if is_useless else value, "p_value": p}

    def test(self, bound: float | None) -> None:
        """Test the violation of each candidate, whose model is kept."""
        if bound is None or len(self.folds) > 1:
            raise InvalidParameterError(
                "confidence needs max_violation, validation=EvenHoldout() or a "
                "TargetSample, and n_trials=None, so that the model that is tested is "
                "returned and the order of the tests is fixed."
            )
        n_columns = len(self.tabulator.rows.attributes)
        if n_columns > 1 and isinstance(self.validation, EvenHoldout):
            raise InvalidParameterError(
                f"confidence cannot test {n_columns} columns one by one on the rows of "
                "an EvenHoldout, which have other shares of each combination than the "
                "data. Use groups='intersection', or pass rows as a TargetSample."
            )
        self.bound = bound
        ((train, _),) = self.folds
        self._group_by(train)  # which groups are compared is not theirs to say

    def path(
        self, key: dict[str, Any], model: FairClassifier, weights: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Return one record per weight."""
        # Folds are smaller than the data; the last fit warns about all rows.
        decisions, models = [], list[FairClassifier | None]([None] * len(weights))
        with muted(FfermWarning):
            for train, judges in self.folds:
                fitted = list(model.fit_path(train, weights))
                decided = [each.predict(judges.X) for each in fitted]
                decisions.append([np.searchsorted(self.classes, d) for d in decided])
                models = models if self.bound is None else [*fitted]
        records = []
        by_weight = zip(weights, models, zip(*decisions, strict=True), strict=True)
        for weight, fitted_model, parts in by_weight:
            code = np.concatenate(parts)
            is_right = code == self.tabulator.labels.y
            accuracy = np.average(is_right, weights=self.tabulator.rows.weight)
            records.append(
                {
                    **key,
                    "fairness_weight": weight,
                    "accuracy": float(accuracy),
                    "violation": worst_violation(
                        (table.mass for table in self.tabulator.tables(code)),
                        self.model.measure,
                    ),
                    "collapsed": bool(np.unique(code).size == 1),
                    "model": fitted_model,
                }
            )
            measure = GOALS[self.goal][0]
            if measure not in records[-1]:
                groups = self.tabulator.group_table(code)
                classes = self.tabulator.labels.classes
                records[-1][measure] = lowest_of(self.goal, groups, classes)
            if fitted_model is not None:
                records[-1] |= self._tested(fitted_model, code)
        return records


def _path_at(
    judge: _Judge, candidates: Any, grids: list[list[float]], number: int, share: float
) -> list[dict[str, Any]]:
    # The record of a candidate at a share of its range of weights.
    weights = [weight for weight in grids[number] if weight > 0]
    weight = float(weights[0] * (weights[-1] / weights[0]) ** share)
    key, model = candidates[number]
    return judge.path(key, model, [weight])


def _search_with_optuna(
    tried: Callable[[int, float], list[dict[str, Any]]],
    score: Callable[[Mapping[str, Any]], float],
    n_candidates: int,
    n_trials: int,
    sampler: Any,
) -> Iterator[list[dict[str, Any]]]:
    # A weight is a share of its range in logarithm, because these differ by divergence.
    check_params({"n_trials": n_trials}, {"n_trials": COUNT})
    optuna = import_extra("optuna", "tune")
    with LOG_LEVEL:
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            sampler = optuna.samplers.TPESampler(seed=0) if sampler is None else sampler
            study = optuna.create_study(direction="maximize", sampler=sampler)
            for _ in range(n_trials):
                trial = study.ask()
                number = trial.suggest_categorical("candidate", range(n_candidates))
                path = tried(number, trial.suggest_float("strength", 0.0, 1.0))
                study.tell(trial, score(path[-1]))
                yield path
        finally:
            optuna.logging.set_verbosity(level)
