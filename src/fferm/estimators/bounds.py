"""The smallest fairness weight that keeps a bound on the violation.

The bound is on decisions, the penalty on probabilities, and one says little of the
other in numbers. So the weight is searched for: some rows are held out, models are
trained on the rest with growing weights until one keeps the bound on the held-out rows,
and bisection narrows down where that began. Weights beyond the default range are tried
only where they could help: not where the rows trained on keep the bound, and the
held-out rows would break it without the gap that is left on those. That is chance.

No row is taken out of the tables that came. Held-out rows get weight 0 (where the
penalty has rows of its own: no group), so that every kind of table, and control
features with one value per row, work as they do without a bound.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.utils import _safe_indexing

from fferm._types import IntArray, Table, is_sparse
from fferm.data import FairRows
from fferm.divergences import Divergence
from fferm.errors import (
    EmptyStratumWarning,
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
)
from fferm.estimators.base import Choice, FairClassifier, FairEstimator, FitInput
from fferm.estimators.holdout import hold_out, kinds, weigh
from fferm.estimators.validation import TrainingData, check_number
from fferm.intervals import interval_of_tables
from fferm.metrics import measure
from fferm.notions import Labels
from fferm.rates import worst_gap
from fferm.setting import Setting
from fferm.weights import default_weights

M = TypeVar("M", bound=FairClassifier)
E = TypeVar("E", bound=FairEstimator)

# Weights above 0 in the default range of a divergence, and how many more of the same
# step above it: 13 over three decades, 8 over another two.
N_WEIGHTS = 13
N_BEYOND = 8
# Minibatches tell no two models apart whose weights are nearer than some percent, so
# lanes divide the last step once.
N_PARTS = 16


@dataclass(frozen=True)
class Bound:
    """What a user asks of the violation on held-out rows."""

    max_violation: float
    validation_fraction: float
    is_confident: bool


def read_fraction(model: FairEstimator) -> float:
    """Return the share of rows that a model holds out."""
    fraction = check_number(
        "validation_fraction", model.validation_fraction, above=True
    )
    if fraction >= 1:
        raise InvalidParameterError(
            f"validation_fraction={fraction:g} came. Expected a share of the rows, "
            "above 0 and below 1."
        )
    return fraction


def read_bound(model: FairClassifier) -> Bound | None:
    """Return the bound that a model was given, None where it was given none."""
    fraction = read_fraction(model)
    if not isinstance(model.confident, bool | np.bool_):
        raise InvalidParameterError(
            f"confident={model.confident!r} came. Expected True or False."
        )
    if model.max_violation is None:
        return None
    asked = check_number("max_violation", model.max_violation)
    if asked > 1:
        raise InvalidParameterError(
            f"max_violation={asked:g} came. Expected a difference of rates, between 0 "
            "and 1, or None for no bound."
        )
    return Bound(asked, fraction, bool(model.confident))


def choose_weight(
    model: M, bound: Bound, given: FitInput, data: TrainingData, rows: FairRows
) -> tuple[Choice, M]:
    """Return the smallest weight tried that keeps a bound, and the model judged.

    Where none keeps it, return the closest.

    Parameters
    ----------
    model
        What to train; it stays as it is.
    bound
        What to keep.
    given, data, rows
        All rows: as they came, validated, and those of the penalty encoded.
    """
    trial = make_trial(model, bound, given, data, rows)
    # Training on all rows says what there is to say, and has looked at the features.
    with warnings.catch_warnings(), config_context(assume_finite=True):
        warnings.simplefilter("ignore", FfermWarning)
        search = Search(model, trial.given, trial.judge, trial.is_spent)
        tried = list(search.climb(model._objective().divergence))
        if tried[-1].is_within:
            best = search.narrow(*tried[-2:]) if len(tried) > 1 else tried[0]
            return Choice(best.fairness_weight, best.violation, True), best.model
    usable = [judged for judged in tried if judged.is_usable]
    closest = min(usable or tried[:1], key=lambda judged: judged.value)
    warnings.warn(
        _nothing_within(bound, trial, closest, tried[-1].fairness_weight),
        InfeasibleWarning,
        stacklevel=3,
    )
    return Choice(closest.fairness_weight, closest.violation, False), closest.model


@dataclass(frozen=True)
class Judged(Generic[E]):
    """A model and how it fares on the held-out rows."""

    model: E
    violation: float
    value: float  # what has to keep the bound: the violation, or its upper end
    is_usable: bool  # more than one class is predicted, and all parts can be judged
    is_within: bool

    @property
    def fairness_weight(self) -> float:
        """The weight that it was trained with."""
        return self.model.fairness_weight


@dataclass(frozen=True)
class Search(Generic[E]):
    """Models of growing weight, until one keeps a bound; then those in between."""

    model: E
    given: FitInput
    judge: Callable[[E], Judged[E]]
    # Whether more weight than that of a model would not help.
    is_spent: Callable[[Judged[E]], bool] = lambda _: False

    def climb(self, divergence: Divergence) -> Iterator[Judged[E]]:
        """Yield judged models of growing weight, the first within the bound last."""
        last: Judged[E] | None = None
        for weights in _weights(divergence):
            # Weights beyond the default range come after all others, and rarely.
            if last and (not self.model.reaches_beyond() or self.is_spent(last)):
                return
            start = last.model if last else None
            for model in self.model.fit_path(self.given, weights, start):
                last = self.judge(model)
                yield last
                if last.is_within:
                    return

    def narrow(self, below: Judged[E], within: Judged[E]) -> Judged[E]:
        """Return the smallest weight within the bound that the search comes by."""
        n_parts, n_rounds = 2, self.model.search_halvings
        if self.model.trains_together(self.given):
            n_parts, n_rounds = N_PARTS, 1
        for _ in range(n_rounds):
            weights = _between(below.fairness_weight, within.fairness_weight, n_parts)
            for model in self.model.fit_path(self.given, weights, below.model):
                judged = self.judge(model)
                if judged.is_within:
                    within = judged
                    break
                below = judged
        return within


@dataclass(frozen=True)
class _Trial(Generic[M]):
    # What the search trains on and judges by.
    model: M
    bound: Bound
    given: FitInput
    held_out: IntArray  # positions of the rows that it judges by
    X: Table  # these rows
    setting: Setting
    rest: "_Rest"
    n_gaps: int  # of a model that can be judged wherever the rows allow it

    def judge(self, model: M) -> Judged[M]:
        """Return a model with the violation of its decisions on the held-out rows."""
        code = _decide(model, self.X)
        found = measure(self.setting, code)
        is_usable = np.unique(code).size > 1 and len(found.gaps) == self.n_gaps
        value = found.worst
        if self.bound.is_confident:
            value = interval_of_tables(self.setting.tables(code))[1]
        is_within = is_usable and value <= self.bound.max_violation
        return Judged(model, found.worst, value, is_usable, is_within)

    def is_spent(self, judged: Judged[M]) -> bool:
        """Return whether what keeps a model from the bound is chance.

        It keeps the bound on the rows trained on, and breaks it on the others by more
        than the gap that is left to close.
        """
        code = _decide(judged.model, self.rest.X)[self.rest.position]
        left = worst_gap([table.rate for table in self.rest.setting.tables(code)])
        asked = self.bound.max_violation
        return judged.is_usable and left <= asked < judged.value - left


@dataclass(frozen=True)
class _Rest:
    # The rows that a search trains on: where they stand among all, and their groups.
    X: Table  # all rows
    position: IntArray
    setting: Setting


def _decide(model: FairClassifier, X: Table) -> IntArray:
    # Every class has rows to train on, so the classes are those of all rows.
    return np.searchsorted(model.classes_, model.predict(X))


def make_trial(
    model: M, bound: Bound, given: FitInput, data: TrainingData, rows: FairRows
) -> _Trial[M]:
    """Return the rows that a search trains on and those that it judges by."""
    label = data.y if given.penalty_data is None else rows.strata.code
    held = hold_out(kinds(rows, label), bound.validation_fraction, model.random_state)
    if given.penalty_data is None:
        shown, X = weigh(given, data, ~held), given.X
        row = np.flatnonzero(data.kept)
    else:
        X, _, *labels = given.penalty_data
        shifted = (X, _groups_without(rows, held), *labels)
        shown, row = replace(given, penalty_data=shifted), np.arange(held.size)
    classes = tuple(data.classes.tolist())
    notion = model._objective().notion
    whole = Setting(rows, notion, Labels(held.size, None, classes))
    part, others = (
        Setting(rows.take(which), notion, Labels(int(which.sum()), None, classes))
        for which in (held, ~held)
    )
    n_gaps = _check_comparable(whole, part)
    X = X.tocsr() if is_sparse(X) else X
    judged = _safe_indexing(X, row[held])
    rest = _Rest(X, row[~held], others)
    return _Trial(model, bound, shown, row[held], judged, part, rest, n_gaps)


def _between(low: float, high: float, n_parts: int) -> list[float]:
    # The weights that divide a step in equal parts of its logarithm.
    if low == 0:
        return [float(high * n / n_parts) for n in range(1, n_parts)]
    return [float(w) for w in np.geomspace(low, high, n_parts + 1)[1:-1]]


def _weights(divergence: Divergence) -> tuple[list[float], list[float]]:
    # Those of the default range, and those beyond it.
    weights = default_weights(divergence, N_WEIGHTS + 1)
    step = weights[-1] / weights[-2]
    beyond = weights[-1] * step ** np.arange(1, N_BEYOND + 1)
    return weights.tolist(), beyond.tolist()


def _groups_without(rows: FairRows, held: NDArray[np.bool_]) -> dict[str, Table]:
    # Groups as a user would give them, missing where rows are held out.
    return {
        attribute.name: np.array([*attribute.groups, None], dtype=object)[
            np.where(held, -1, attribute.code)
        ]
        for attribute in rows.attributes
    }


def _check_comparable(whole: Setting, part: Setting) -> int:
    # Of predictions that are anything for anyone, all is judged that can be.
    n_classes = len(whole.labels.classes)
    anything = [np.full((s.labels.n_samples, n_classes), 1.0) for s in (whole, part)]
    for table in part.tables(anything[1]):
        if not table.is_judged.any():
            raise InvalidInputError(
                f"The {part.labels.n_samples} held-out rows hold fewer than two groups "
                f"of {table.attribute} wherever {part.notion.name} compares them, so "
                "max_violation cannot be judged. Give more rows of each group, merge "
                "groups, or change validation_fraction."
            )
    found, known = measure(part, anything[1]), measure(whole, anything[0])
    if found.absent and found.absent != known.absent:
        warnings.warn(
            f"max_violation does not see {'; '.join(map(str, found.absent))}, for the "
            "held-out rows have too few of them. Merge groups or gather more rows.",
            EmptyStratumWarning,
            stacklevel=5,
        )
    return len(found.gaps)


def _nothing_within(
    bound: Bound, trial: _Trial[M], closest: Judged[M], highest: float
) -> str:
    n_rows = trial.held_out.size
    if not closest.is_usable:
        return (
            f"Every model up to fairness_weight={highest:g} predicts one class for all "
            f"{n_rows} held-out rows, or too few groups to compare, so none counts for "
            f"max_violation={bound.max_violation:g}. The model is trained without a "
            "penalty; give rare classes more sample_weight, or better features."
        )
    what = "the upper end of the violation" if bound.is_confident else "the violation"
    return (
        f"No fairness_weight up to {highest:g} brings {what} on {n_rows} held-out rows "
        f"to max_violation={bound.max_violation:g}. The closest is fairness_weight="
        f"{closest.fairness_weight:.4g} with {closest.value:.4f}. Raise max_violation, "
        "hold out more rows, or raise sharpness."
    )
