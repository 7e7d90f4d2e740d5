"""The search for a fairness weight: the smallest that keeps a bound on held-out rows.

The bound is on decisions and the penalty on probabilities, so the weight cannot be
computed; it is searched for. Some rows are held out, models are trained on the rest
with growing weights until one keeps the bound on the held-out rows, and bisection
narrows down the last step. Weights beyond the default range are tried only if they can
help: not if the training rows keep the bound and the held-out rows break it by more
than the gap that is left on them, because that difference is noise.

No row is removed from the tables that a user passed. Held-out rows get weight 0 (or are
masked, if the penalty has rows of its own), so that tables of every kind, and control
features with one value per row, work as they do without a bound.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from fferm._typing import IntArray, Table, is_sparse
from fferm.data.rows import FitInput
from fferm.data.split import hold_out, keep_penalty_rows, keep_rows, kinds
from fferm.divergences import STANDARD
from fferm.divergences import get as get_divergence
from fferm.errors import (
    EmptyStratumWarning,
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    muted,
    warn_user,
)
from fferm.estimators.base import (
    Choice,
    Encoded,
    FairClassifier,
    FairEstimator,
    progress,
)
from fferm.fairness_grid import default_weights
from fferm.metrics.intervals import floor_of_tables, interval_of_tables
from fferm.metrics.tabulator import Tabulator, worst_gap
from fferm.notions import Labels
from fferm.solvers.base import Callback

M = TypeVar("M", bound=FairClassifier)
E = TypeVar("E", bound=FairEstimator)

# Weights above 0 in the default range of a divergence, and how many more of the same
# step above it: 13 over three decades, 8 over another two.
N_WEIGHTS = 13
N_BEYOND = 8
# Minibatches cannot tell apart weights that differ by a few percent, so models that
# train jointly divide the last step only once.
N_PARTS = 16
# Below every score of a model that can be used.
USELESS = -2.0


@dataclass(frozen=True)
class Judged(Generic[E]):
    """A model and how it does on the held-out rows."""

    model: E
    violation: float
    value: float  # what has to keep the bound: the violation, or its upper limit
    is_usable: bool  # more than one class is predicted, and every part can be judged
    is_within: bool

    @property
    def fairness_weight(self) -> float:
        """The weight that it was trained with."""
        weight = self.model.fairness_weight
        assert weight is not None  # each model of a path has one
        return weight


@dataclass
class HeldOut(ABC, Generic[E]):
    """Rows that judge the models of a search.

    Attributes
    ----------
    passed
        The arguments of `fit` without the held-out rows.
    bound
        The largest violation allowed.
    """

    passed: FitInput
    bound: float
    callbacks: tuple[Callback, ...] = field(default=(), init=False)  # of a bar

    @abstractmethod
    def judge(self, model: E) -> Judged[E]:
        """Return a model with its violation on the held-out rows."""

    @abstractmethod
    def infeasible(self, closest: Judged[E], highest: float) -> str:
        """Return the warning for a bound that no weight up to ``highest`` keeps."""

    def is_noise_limited(self, judged: Judged[E]) -> bool:
        """Return whether noise, not the weight, keeps a model from the bound."""
        return False


def choose_weight(model: E, held_out: HeldOut[E]) -> tuple[Choice, E]:
    """Return the smallest weight tried that keeps the bound, and the model judged.

    If none keeps it, return the closest, with a warning. The model stays as it is.
    """
    n_weights = 1 + N_WEIGHTS + N_BEYOND + model.search_halvings
    label = f"max_violation={held_out.bound:g}"
    # Training on all rows warns about them, and has checked the features.
    with (
        muted(FfermWarning),
        config_context(assume_finite=True),
        progress(model.verbose, n_weights, label) as held_out.callbacks,
    ):
        weights = default_weights(model._objective().divergence, N_WEIGHTS + 1)
        tried = _advance(model, held_out, weights.tolist(), None)
        last = tried[-1]
        can_help = model.supports_large_weights() and not last.is_within
        if can_help and not held_out.is_noise_limited(last):
            step = weights[-1] / weights[-2]
            beyond = weights[-1] * step ** np.arange(1, N_BEYOND + 1)
            tried += _advance(model, held_out, beyond.tolist(), last.model)
        if tried[-1].is_within:
            best = tried[0]
            if len(tried) > 1:
                best = _bisect(model, held_out, tried[-2], tried[-1])
            return Choice(best.fairness_weight, best.violation, True), best.model
    usable = [judged for judged in tried if judged.is_usable]
    closest = min(usable or tried[:1], key=lambda judged: judged.value)
    highest = tried[-1].fairness_weight
    warn_user(held_out.infeasible(closest, highest), InfeasibleWarning)
    return Choice(closest.fairness_weight, closest.violation, False), closest.model


def _advance(
    model: E, held_out: HeldOut[E], weights: list[float], start: E | None
) -> list[Judged[E]]:
    # Judged models of growing weight, up to the first within the bound.
    tried: list[Judged[E]] = []
    for fitted in model.fit_path(held_out.passed, weights, start):
        judged = held_out.judge(fitted)
        tried.append(judged)
        for show in held_out.callbacks:
            show({"weight": judged.fairness_weight, "violation": judged.violation})
        if tried[-1].is_within:
            break
    return tried


def _bisect(
    model: E, held_out: HeldOut[E], below: Judged[E], within: Judged[E]
) -> Judged[E]:
    # The smallest weight within the bound that the search finds.
    n_parts, n_rounds = 2, model.search_halvings
    if model.fits_path_jointly(held_out.passed):
        n_parts, n_rounds = N_PARTS, 1
    for _ in range(n_rounds):
        # They divide the step into equal parts of its logarithm.
        low, high = below.fairness_weight, within.fairness_weight
        spread = np.geomspace if low > 0 else np.linspace
        weights = spread(low, high, n_parts + 1)[1:-1].tolist()
        for judged in _advance(model, held_out, weights, below.model):
            if judged.is_within:
                within = judged
            else:
                below = judged
    return within


class HeldOutDecisions(HeldOut[M]):
    """Held-out rows that judge the decisions of classifiers.

    ``position`` are theirs among all rows passed. ``bound`` stands in place of the
    model's ``max_violation``, for violations without their upper limit.
    """

    def __init__(
        self, model: M, passed: FitInput, encoded: Encoded, bound: float | None = None
    ) -> None:
        data, rows = encoded.data, encoded.rows
        assert rows is not None
        other, row = passed.penalty_data, np.flatnonzero(encoded.kept)
        X, label = (passed.X, data.y) if other is None else (other[0], rows.strata.code)
        kind = kinds(rows, label)
        held = hold_out(kind, model.validation_fraction, model.random_state)
        if other is None:
            passed = keep_rows(passed, data, ~held)
        else:
            passed = keep_penalty_rows(passed, encoded.kept, ~held)
        limit = model.max_violation or 0.0
        super().__init__(passed, float(limit if bound is None else bound))
        self.is_confident = bool(model.confident) and bound is None
        classes = tuple(data.classes.tolist())
        notion = encoded.problem.objective.notion
        whole, self.setting, self.trained_setting = (
            Tabulator(chosen, notion, Labels(chosen.weight.size, None, classes))
            for chosen in (rows, rows.take(held), rows.take(~held))
        )
        self.all_X = X.tocsr() if is_sparse(X) else X
        self.position, self.trained_position = row[held], row[~held]
        self.X = _safe_indexing(self.all_X, self.position)
        # Of a model that can be judged everywhere.
        self.n_gaps = _check_comparable(whole, self.setting)

    def judge(self, model: M) -> Judged[M]:
        """Return a model with the violation of its decisions on the held-out rows."""
        code = _decide(model, self.X)
        violations = self.setting.violations(code)
        is_usable = np.unique(code).size > 1 and len(violations.gaps) == self.n_gaps
        worst = value = violations.worst
        if self.is_confident:
            value = interval_of_tables(self.setting.tables(code))[1]
        is_within = is_usable and value <= self.bound
        return Judged(model, worst, value, is_usable, is_within)

    def is_noise_limited(self, judged: Judged[M]) -> bool:
        """Return whether noise, not the weight, keeps a model from the bound.

        It keeps the bound on the training rows, and breaks it on the held-out rows by
        more than the gap that is left to close.
        """
        code = _decide(judged.model, self.all_X)[self.trained_position]
        left = worst_gap([table.rate for table in self.trained_setting.tables(code)])
        return judged.is_usable and left <= self.bound < judged.value - left

    def infeasible(self, closest: Judged[M], highest: float) -> str:
        """Return the warning for a bound that no weight up to ``highest`` keeps."""
        n_rows = self.position.size
        if not closest.is_usable:
            return (
                f"Every model up to fairness_weight={highest:g} predicts one class for "
                f"all {n_rows} held-out rows, or leaves too few groups to compare, so "
                f"none satisfies max_violation={self.bound:g}. The model is trained "
                "without a penalty; give rare classes more sample_weight, or use "
                "better features."
            )
        limit = "upper limit of the " if self.is_confident else ""
        return (
            f"No fairness_weight up to {highest:g} brings the {limit}violation on "
            f"{n_rows} held-out rows to max_violation={self.bound:g}. The closest is "
            f"fairness_weight={closest.fairness_weight:.4g} with {closest.value:.4f}"
            f"{self._worst_pair(closest.model)}"
        )

    def _worst_pair(self, model: M) -> str:
        # Between whom the bound is broken, and whether these rows could show that not.
        code = _decide(model, self.X)
        worst = max(self.setting.violations(code).gaps, key=lambda gap: gap.gap)
        tables = self.setting.tables(code)
        table = next(t for t in tables if t.attribute == worst.attribute)
        sizes = dict(
            zip(
                table.groups, table.size[table.strata.index(worst.stratum)], strict=True
            )
        )
        pair = " and ".join(
            f"{group} ({sizes[group]:.0f} held-out rows)"
            for group in (worst.lowest_group, worst.highest_group)
        )
        floor, _ = floor_of_tables(tables)
        return f", between {pair}. {by_chance_words(floor, self.bound)}"


def by_chance_words(floor: float, bound: float) -> str:
    """Return what a fair model would measure, and what to do about a bound."""
    words = f"By chance alone a fair model measures {floor:.4f} on these rows"
    if floor >= bound:
        return (
            f"{words}, so they cannot show a violation of {bound:g}. Collect more "
            "rows, merge groups or leave small ones out with min_group_size, or raise "
            "max_violation."
        )
    return (
        f"{words}. Raise max_violation, leave small groups out with min_group_size, "
        "hold out more rows, or raise sharpness."
    )


def _decide(model: FairClassifier, X: Table) -> IntArray:
    # Every class has training rows, so the classes are those of all rows.
    return np.searchsorted(model.classes_, model.predict(X))


def _check_comparable(whole: Tabulator, part: Tabulator) -> int:
    # Predictions that give every class to everyone are judged wherever rows allow it.
    n_classes = len(whole.labels.classes)
    anything = [np.ones((s.labels.n_samples, n_classes)) for s in (whole, part)]
    for table in part.tables(anything[1]):
        if not table.is_judged.any():
            raise InvalidInputError(
                f"The {part.labels.n_samples} held-out rows hold fewer than two groups "
                f"of {table.attribute} wherever {part.notion.name} compares them. Use "
                "more rows, merge groups, or change validation_fraction."
            )
    judged, known = part.violations(anything[1]), whole.violations(anything[0])
    if judged.absent and judged.absent != known.absent:
        warn_user(
            f"max_violation does not see {'; '.join(map(str, judged.absent))}, because "
            "too few rows of them are held out. Merge groups or collect more rows.",
            EmptyStratumWarning,
        )
    return len(judged.gaps)


def choose_divergence(model: M, passed: FitInput) -> M:
    """Return the model with the divergence, and its weight, that do best; unfitted.

    Each candidate is trained on the same rows and judged on the same held-out rows.
    Under a bound, each finds its own smallest weight, and the most accurate one that
    keeps the bound wins. Otherwise ``fairness_weight`` is read as a weight of ``kl``,
    each candidate gets the weight at the same place of its default range, and the
    largest accuracy minus violation wins.
    """
    if passed.penalty_data is not None:
        raise InvalidParameterError(
            "divergence='auto' cannot judge by the rows of penalty_data. Name a "
            "divergence, or choose with fferm.tuning.tune and a TargetSample."
        )
    seed = model.random_state
    if not isinstance(seed, int | np.integer):  # one draw for all candidates
        seed = int(check_random_state(seed).randint(2**31 - 1))
    plain = clone(model).set_params(random_state=seed)
    with muted(FfermWarning):  # the last fit, on all rows, warns about them
        largest = {n: default_weights(get_divergence(n), 3)[-1] for n in STANDARD}
        candidates: list[M] = [
            clone(plain).set_params(divergence=name) for name in largest
        ]
        if model.fairness_weight is not None and model.max_violation is None:
            for candidate, most in zip(candidates, largest.values(), strict=True):
                share = float(most / largest["kl"])
                candidate.fairness_weight = model.fairness_weight * share
        scores = [_held_out_score(candidate, passed) for candidate in candidates]
    return candidates[int(np.argmax(scores))]


def _held_out_score(model: M, passed: FitInput) -> float:
    encoded = model._encode(passed)
    if encoded.rows is None:  # without a penalty all divergences are the same
        return 0.0
    is_bound = model.max_violation is not None
    held_out = HeldOutDecisions(model, passed, encoded, None if is_bound else 1.0)
    if is_bound:
        fitted = choose_weight(model, held_out)[1]
    else:
        weight = encoded.problem.objective.fairness_weight
        fitted = next(model.fit_path(held_out.passed, [weight]))
    judged, data = held_out.judge(fitted), encoded.data
    row = np.cumsum(data.kept)[held_out.position] - 1  # among rows of positive weight
    is_right = fitted.predict(held_out.X) == data.classes[data.y[row]]
    accuracy = float(np.average(is_right, weights=data.weight[row]))
    if not is_bound:
        return accuracy - judged.violation if judged.is_usable else USELESS
    return bounded_score(accuracy, judged.value - held_out.bound, judged.is_usable)


def bounded_score(gain: float, excess: float, is_usable: bool) -> float:
    """Return a number that is larger the better a model is.

    It is above 0 if the bound is kept, and then grows with what is gained; else it is
    minus the excess over the bound.
    """
    if not is_usable:
        return USELESS
    return float(1 + gain if excess <= 0 else -excess)
