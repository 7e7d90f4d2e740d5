"""The search: every point of a grid, or what optuna finds worth trying."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from fferm._typing import Table
from fferm.data.groups import collected
from fferm.data.rows import FitInput, check_lengths
from fferm.data.validate import check_number, check_whole, one_column
from fferm.divergences import STANDARD, Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import (
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingDependencyError,
    MissingSensitiveError,
)
from fferm.estimators.base import FairClassifier
from fferm.fairness_grid import default_weights
from fferm.tuning.goals import Goal
from fferm.tuning.result import Tuning
from fferm.tuning.trials import Candidate, Judge, check_radii, own_radius
from fferm.tuning.validation import CrossValidation, Validation

# Below every score of a candidate that can be used.
USELESS = -2.0
KEY = ["divergence", "radius", "fairness_weight"]


def tune(
    estimator: FairClassifier,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    sample_weight: Table = None,
    validation: Validation | None = None,
    max_violation: float | None = None,
    min_accuracy: float | None = None,
    divergences: Sequence[str | Divergence] | None = None,
    radii: Sequence[float] | None = None,
    fairness_weights: int | Sequence[float] = 12,
    n_trials: int | None = None,
    sampler: Any = None,
    n_jobs: int | None = None,
) -> Tuning:
    """Return the divergence, radius and weight that do best on rows that judge.

    Parameters
    ----------
    estimator
        An unfitted fair classifier; what is searched for here replaces its own.
    X, y, sensitive_features, sample_weight
        The source: the rows to train on, as in `fit`.
    validation
        Which rows judge: `CrossValidation` (default, five folds), `TargetSample` or
        `EvenHoldout`.
    max_violation, min_accuracy
        One of them: the bound to keep on those rows. Of the candidates that keep it,
        the most accurate, or the fairest, is chosen; of none, the closest, with an
        `InfeasibleWarning`.
    divergences
        Names or instances to choose from; by default the six plain ones.
    radii
        Radii of the estimator's uncertainty set to choose from, 0 for none; by default
        the estimator's own.
    fairness_weights
        The weights, or how many of the default range of each divergence.
    n_trials
        None for the whole grid. Otherwise optuna (extra ``tune``) tries this many
        points: weights anywhere in their range, the given divergences and radii.
    sampler
        A sampler of optuna instead of its seeded default.
    n_jobs
        Parallel processes over divergences and radii, through joblib; not with optuna.

    Returns
    -------
    Tuning

    Examples
    --------
    >>> from fferm import FairLogisticRegression
    >>> from fferm.datasets import make_biased
    >>> from fferm.tuning import CrossValidation, tune
    >>> data = make_biased(random_state=0)
    >>> found = tune(
    ...     FairLogisticRegression(), data.X, data.y,
    ...     sensitive_features=data.sensitive_features, max_violation=0.1,
    ...     validation=CrossValidation(3), divergences=["kl"], fairness_weights=4,
    ... )
    >>> found.best["divergence"]
    'kl'
    """
    _check(estimator, sensitive_features)
    goal = Goal(max_violation, min_accuracy)
    given = FitInput(X, one_column(y), collected(sensitive_features), sample_weight)
    check_lengths(
        X=given.X,
        y=given.y,
        sensitive_features=given.sensitive_features,
        sample_weight=sample_weight,
    )
    found = _candidates(estimator, divergences, radii)
    judge = Judge(estimator, validation or CrossValidation(), given)
    if n_trials is None:
        paths = Parallel(n_jobs=n_jobs)(
            delayed(judge.path)(estimator, each, _weights(each, fairness_weights))
            for each in found
        )
        records = pd.DataFrame([row for path in paths for row in path])
    else:
        search = _OptunaSearch(estimator, found, judge, goal, fairness_weights)
        records = search.run(check_whole("n_trials", n_trials), sampler)
    return _concluded(estimator, given, found, records, goal)


def _check(estimator: FairClassifier, sensitive_features: Table) -> None:
    if not isinstance(estimator, FairClassifier):
        raise InvalidParameterError(
            f"A {type(estimator).__name__} came. Expected a fair classifier such as "
            "FairLogisticRegression(). Transform the features before the search."
        )
    if sensitive_features is None:
        raise MissingSensitiveError(
            "A search measures fairness and no sensitive_features came. Pass "
            "tune(estimator, X, y, sensitive_features=...)."
        )


def _candidates(
    estimator: FairClassifier,
    divergences: Sequence[str | Divergence] | None,
    radii: Sequence[float] | None,
) -> list[Candidate]:
    if isinstance(divergences, str):
        raise InvalidParameterError(
            f"divergences={divergences!r} came. Expected a list: [{divergences!r}]."
        )
    names = STANDARD if divergences is None else tuple(divergences)
    sizes = [own_radius(estimator)]
    if radii is not None:
        sizes = check_radii(estimator, radii)
    found = []
    for candidate in (Candidate(name, size) for name in names for size in sizes):
        try:
            candidate.of(estimator)._objective()
        except InvalidParameterError:
            # Total variation has no small shift; who named it is told so.
            if divergences is not None:
                raise
        else:
            found.append(candidate)
    if not found:
        raise InvalidParameterError("divergences is empty. Name at least one.")
    return found


def _weights(candidate: Candidate, given: int | Sequence[float]) -> list[float]:
    if isinstance(given, int | np.integer):
        divergence = get_divergence(candidate.divergence)
        count = check_whole("fairness_weights", given) + 1
        return [float(weight) for weight in default_weights(divergence, count)[1:]]
    if np.ndim(given) != 1 or len(given) == 0:
        raise InvalidParameterError(
            f"fairness_weights={given!r} came. Expected a list of numbers, or how many."
        )
    return sorted({check_number("fairness_weights", weight) for weight in given})


class _OptunaSearch:
    # Asks optuna which point to try next and tells it how that did.

    def __init__(
        self,
        estimator: FairClassifier,
        candidates: Sequence[Candidate],
        judge: Judge,
        goal: Goal,
        fairness_weights: int | Sequence[float],
    ) -> None:
        self.estimator, self.judge, self.goal = estimator, judge, goal
        self.candidates = list(candidates)
        self.weights = fairness_weights
        self.records: list[dict[str, Any]] = []

    def run(self, n_trials: int, sampler: Any) -> pd.DataFrame:
        """Return the records of all trials."""
        optuna = _optuna()
        chosen = optuna.samplers.TPESampler(seed=0) if sampler is None else sampler
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            study = optuna.create_study(direction="maximize", sampler=chosen)
            study.optimize(self._score, n_trials=n_trials)
        finally:
            optuna.logging.set_verbosity(level)
        return pd.DataFrame(self.records)

    def _score(self, trial: Any) -> float:
        numbers = list(range(len(self.candidates)))
        candidate = self.candidates[trial.suggest_categorical("candidate", numbers)]
        weights = [w for w in _weights(candidate, self.weights) if w > 0]
        # A share of the range in logarithm, for ranges differ between divergences.
        share = trial.suggest_float("strength", 0.0, 1.0)
        weight = float(weights[0] * (weights[-1] / weights[0]) ** share)
        (record,) = self.judge.path(self.estimator, candidate, [weight])
        self.records.append(record)
        return _score(record, self.goal)


def _optuna() -> Any:
    if importlib.util.find_spec("optuna") is None:
        raise MissingDependencyError(
            "n_trials needs the package optuna, which is not installed. Run: "
            'pip install "fferm[tune]"'
        )
    return importlib.import_module("optuna")


def _score(record: Mapping[Any, Any], goal: Goal) -> float:
    # One class for everyone is fair and useless, and no violation is no judgement.
    if record["collapsed"] or np.isnan(record["violation"]):
        return USELESS
    return goal.score(record["accuracy"], record["violation"])


def _concluded(
    estimator: FairClassifier,
    given: FitInput,
    candidates: Iterable[Candidate],
    records: pd.DataFrame,
    goal: Goal,
) -> Tuning:
    best = max(records.to_dict("records"), key=lambda row: _score(row, goal))
    if _score(best, goal) == USELESS:
        raise InvalidInputError(
            "Every candidate predicts one class for everyone, or cannot be judged. "
            "Lower the fairness weights, or check the groups."
        )
    is_kept = goal.is_kept(best["accuracy"], best["violation"])
    if not is_kept:
        warnings.warn(
            f"No candidate keeps the bound on the rows that judge. The closest has "
            f"accuracy {best['accuracy']:.4f} at violation {best['violation']:.4f}. "
            "Loosen the bound, or add weights.",
            InfeasibleWarning,
            stacklevel=3,
        )
    winner = next(
        each
        for each in candidates
        if (str(each.divergence), each.radius) == (best["divergence"], best["radius"])
    )
    chosen = winner.of(estimator).set_params(fairness_weight=best["fairness_weight"])
    chosen.fit(
        given.X,
        given.y,
        sensitive_features=given.sensitive_features,
        sample_weight=given.sample_weight,
    )
    shown = {name: best[name] for name in (*KEY, "accuracy", "violation")}
    return Tuning(chosen, shown, is_kept, records)
