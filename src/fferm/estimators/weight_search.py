"""The search for a fairness weight: the smallest that keeps a bound on held-out rows.

The bound is on decisions and the penalty on probabilities, so the weight cannot be
computed; it is searched for. Some rows are held out and models of several weights are
trained on the rest.

With a ``confidence``, all weights are chosen by the training rows alone, and then the
models are tested on the held-out rows, from the fairest on, each at level
``1 - confidence``, until one fails. The order was fixed before, so the first model that
is not fair is wrongly passed with that probability at most, and with it any of those
before: every model that passed is fair with the confidence asked for. The one with the
smallest weight is chosen, and it is the judged model itself.

Without one, models of growing weights are trained until the value on the held-out rows
keeps the bound, and bisection narrows down the last step. That promises nothing.
Weights beyond the default range are tried only if they can help: not if the training
rows keep the bound and the held-out rows break it by more than the gap that is left on
them, because that difference is noise.

No row is removed from the tables that a user passed. Held-out rows get weight 0 (or are
masked, if the penalty has rows of its own), so that tables of every kind, and control
features with one value per row, work as they do without a bound.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from fferm._typing import IntArray, Table, is_sparse
from fferm.data.rows import FitInput
from fferm.data.split import (
    hold_out,
    hold_out_evenly,
    keep_penalty_rows,
    keep_rows,
    kinds,
)
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
from fferm.metrics.intervals import (
    certify_tables,
    compared_of,
    expected_limit,
    floor_of_tables,
)
from fferm.metrics.tabulator import RateTable, Tabulator, worst_violation
from fferm.notions import Labels
from fferm.penalty.objective import compared_penalty
from fferm.solvers import LANES_FROM
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
# Weights above 0 that a search with a confidence begins with, how many of the same step
# it tries above them, how many about the bound beside the halvings of a model, and
# within how many standard errors.
N_COARSE, N_COARSE_BEYOND, N_FINE, N_ERRORS = 7, 3, 2, 2.0
# Weights whose logarithms are closer than this are one.
SAME_WEIGHT, TINY = 0.05, 1e-300
# A gap on the training rows below this share of the held-out rows' noise is none.
SMALL_GAP = 0.5
# Below every score of a model that can be used.
USELESS = -2.0


@dataclass(frozen=True)
class Judged(Generic[E]):
    """A model and how it does on the held-out rows."""

    model: E
    violation: float
    is_usable: bool  # more than one class is predicted, and every part can be judged
    passes: bool  # whether the bound is kept, by its value or by a test

    @property
    def is_within(self) -> bool:
        """Whether it can be used and keeps the bound."""
        return self.is_usable and self.passes

    @property
    def fairness_weight(self) -> float:
        """The weight that it was trained with."""
        weight = self.model.fairness_weight
        assert weight is not None  # each model of a path has one
        return weight


class Expected(NamedTuple, Generic[E]):
    """What the training rows say of a model.

    Attributes
    ----------
    model
        The model.
    violation
        Its violation there.
    limit
        The bound that the held-out rows will show it to keep; infinity if the model
        cannot be used.
    noise
        The standard error of that limit.
    """

    model: E
    violation: float
    limit: float
    noise: float


@dataclass
class HeldOut(ABC, Generic[E]):
    """Rows that judge the models of a search.

    Attributes
    ----------
    passed
        The arguments of `fit` without the held-out rows.
    bound
        The largest violation allowed.
    confidence
        The level of a test of the bound; None if its value has to keep it.
    """

    passed: FitInput
    bound: float
    confidence: float | None
    name: ClassVar[str] = "max_violation"  # of the bound
    callbacks: tuple[Callback, ...] = field(default=(), init=False)  # of a bar

    @abstractmethod
    def judge(self, model: E) -> Judged[E]:
        """Return a model with its violation on the held-out rows."""

    @abstractmethod
    def infeasible(self, closest: Judged[E], highest: float) -> str:
        """Return the warning for a bound that no weight up to ``highest`` keeps."""

    @abstractmethod
    def expected(self, model: E) -> "Expected[E]":
        """Return the bound that a model will be shown to keep, by the training rows."""

    def floor(self) -> float:
        """Return what a perfectly fair model measures on the held-out rows; or 0."""
        return 0.0

    def is_noise_limited(self, judged: Judged[E]) -> bool:
        """Return whether noise, not the weight, keeps a model from the bound."""
        return False


def choose_weight(model: E, held_out: HeldOut[E]) -> tuple[Choice, E]:
    """Return the smallest weight tried that keeps the bound, and the model judged.

    If none keeps it, return the fairest, with a warning. The model stays as it is.
    """
    is_certified = held_out.confidence is not None
    floor = held_out.floor() if is_certified else 0.0
    if floor > held_out.bound:
        warn_user(
            f"max_violation={held_out.bound:g} is below what a perfectly fair model "
            f"measures on the held-out rows by chance, {floor:.4f}, so they can hardly "
            "show that it is kept. Hold out more rows with validation_fraction, merge "
            "small groups, or raise max_violation.",
            InfeasibleWarning,
        )
    n_weights = 1 + N_WEIGHTS + N_BEYOND + model.search_halvings
    if is_certified:
        n_weights += N_COARSE + N_COARSE_BEYOND + N_FINE - N_WEIGHTS - N_BEYOND
    label = f"{held_out.name}={held_out.bound:g}"
    # Training on all rows warns about them, and has checked the features.
    with (
        muted(FfermWarning),
        config_context(assume_finite=True),
        progress(model.verbose, n_weights, label) as held_out.callbacks,
    ):
        search = _certify if is_certified else _search
        best, highest = search(model, held_out)
    if not best.is_within:
        warn_user(held_out.infeasible(best, highest), InfeasibleWarning)
    return Choice(best.fairness_weight, best.violation, best.is_within), best.model


def _search(model: E, held_out: HeldOut[E]) -> tuple[Judged[E], float]:
    # The smallest weight whose value keeps the bound, else the closest, and the largest
    # weight tried.
    weights = default_weights(model._objective().divergence, N_WEIGHTS + 1)
    tried = _advance(model, held_out, weights.tolist(), None)
    last = tried[-1]
    can_help = model.supports_large_weights() and not last.is_within
    if can_help and not held_out.is_noise_limited(last):
        step = weights[-1] / weights[-2]
        beyond = weights[-1] * step ** np.arange(1, N_BEYOND + 1)
        tried += _advance(model, held_out, beyond.tolist(), last.model)
    last = tried[-1]
    if last.is_within:
        if len(tried) > 1:
            last = _bisect(model, held_out, tried[-2], last)
        return last, last.fairness_weight
    usable = [judged for judged in tried if judged.is_usable]
    closest = min(usable or tried[:1], key=lambda judged: judged.violation)
    return closest, last.fairness_weight


def _certify(model: E, held_out: HeldOut[E]) -> tuple[Judged[E], float]:
    # The last model that passes the test, else the fairest, and the largest weight.
    expected = _train_candidates(model, held_out)
    usable = [weight for weight in sorted(expected) if expected[weight].limit < np.inf]
    if not usable:
        return held_out.judge(expected[0.0].model), max(expected)
    # The order of the tests: from the fairest model to the most accurate one.
    fairest = min(usable, key=lambda weight: expected[weight].limit)
    order = [weight for weight in reversed(usable) if weight <= fairest]
    tried: list[Judged[E]] = []
    for weight in order:
        tried.append(held_out.judge(expected[weight].model))
        if not tried[-1].passes:
            break
    best = [judged for judged in tried if judged.is_within] or [tried[0]]
    return best[-1], max(expected)


def _train_candidates(model: E, held_out: HeldOut[E]) -> dict[float, Expected[E]]:
    # Models by weight, which the held-out rows have no part in.
    weights = default_weights(model._objective().divergence, N_COARSE + 1).tolist()
    expected = _train(model, held_out, weights, None)
    step, is_joint = weights[-1] / weights[-2], model.fits_path_jointly(held_out.passed)
    # A path that trains jointly would go on with a solver that takes far longer.
    can_go_on = model.supports_large_weights() and not is_joint
    for _ in range(N_COARSE_BEYOND if can_go_on else 0):
        last = expected[weights[-1]]
        if not _can_help(last, held_out.bound):
            break
        weights.append(weights[-1] * step)
        expected |= _train(model, held_out, weights[-1:], last.model)
    n_fine = N_FINE + model.search_halvings
    fine = _fine_weights(expected, held_out.bound, step, n_fine)
    if is_joint and 0 < len(fine) < LANES_FROM:
        # A solver that takes longer would train so few.
        fine = np.geomspace(fine[0], fine[-1], LANES_FROM).tolist()
    ends = [0.0, np.inf] if is_joint else [0.0, *sorted(expected)[1:], np.inf]
    for low, high in itertools.pairwise(ends):
        if part := [weight for weight in fine if low < weight < high]:
            expected |= _train(model, held_out, part, expected[low].model)
    return expected


def _train(
    model: E, held_out: HeldOut[E], weights: list[float], start: E | None
) -> dict[float, Expected[E]]:
    expected = {}
    path = model.fit_path(held_out.passed, weights, start)
    for weight, fitted in zip(weights, path, strict=True):
        expected[weight] = held_out.expected(fitted)
        for show in held_out.callbacks:
            show({"weight": weight, "violation": expected[weight].violation})
    return expected


def _can_help(last: Expected[E], bound: float) -> bool:
    # More weight helps if the bound is not in reach, but would be without a gap, and if
    # the gap that is left is more than noise.
    margin, least = last.limit - last.violation, SMALL_GAP * last.noise
    is_in_reach = last.limit + N_ERRORS * last.noise <= bound
    return margin <= bound and not is_in_reach and last.violation > least


def _fine_weights(
    expected: Mapping[float, Expected[E]], bound: float, step: float, count: int
) -> list[float]:
    # More weights where the expected limit is near the bound, in steps of equal limits.
    usable = [weight for weight in sorted(expected) if expected[weight].limit < np.inf]
    weights = np.array(usable)
    limits = np.minimum.accumulate([expected[weight].limit for weight in usable])
    if weights.size < 2 or limits[0] <= bound:
        return []
    nearest = usable[int(np.argmin(np.abs(limits - bound)))]
    reach = N_ERRORS * expected[nearest].noise
    goals = np.linspace(bound + reach, bound - reach, count)
    place = np.log(np.maximum(weights, weights[1] / step))
    chosen = np.unique(np.exp(np.interp(goals, limits[::-1], place[::-1])))
    apart = np.abs(np.log(chosen[:, None] / np.maximum(weights, TINY)))
    return [float(weight) for weight in chosen[apart.min(axis=1) > SAME_WEIGHT]]


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

    ``position`` are theirs among all rows passed. Bands of numbers are those of the
    training rows. ``bound`` stands in place of the model's ``max_violation``, without a
    test.
    """

    def __init__(
        self, model: M, passed: FitInput, encoded: Encoded, bound: float | None = None
    ) -> None:
        data, rows = encoded.data, encoded.rows
        assert rows is not None
        other, row = passed.penalty_data, np.flatnonzero(encoded.kept)
        X, label = (passed.X, data.y) if other is None else (other[0], rows.strata.code)
        confidence = model.confidence if bound is None else None
        part = model.validation_fraction, model.random_state
        if confidence is None:
            held = hold_out(kinds(rows, label), *part)
        else:
            held = hold_out_evenly(rows, label, *part)
        if other is None:
            is_trained = np.bincount(label[~held], minlength=data.classes.size) > 0
            held &= is_trained[label]  # every class has rows to train on
            shown = keep_rows(passed, data, ~held)
        else:
            shown = keep_penalty_rows(passed, encoded.kept, ~held)
        if rows.band_edges and not passed.edges:
            with muted(FfermWarning):
                trained = clone(model)._encode(shown).rows
                edges = {} if trained is None else trained.band_edges
                shown = replace(shown, edges=edges)
                again = clone(model)._encode(replace(passed, edges=edges)).rows
            rows = rows if again is None else again
        limit = model.max_violation or 0.0
        super().__init__(shown, float(limit if bound is None else bound), confidence)
        classes = tuple(data.classes.tolist())
        notion = encoded.problem.objective.notion
        whole, self.setting, self.trained_setting = (
            Tabulator(chosen, notion, Labels(chosen.weight.size, None, classes))
            for chosen in (rows, rows.take(held), rows.take(~held))
        )
        self.all_X = X.tocsr() if is_sparse(X) else X
        self.position, self.trained_position = row[held], row[~held]
        self.X = _safe_indexing(self.all_X, self.position)
        self.measure = model.measure
        self.class_share = np.bincount(data.y, data.weight) / data.weight.sum()
        # Of a model that can be judged everywhere.
        self.n_gaps = _check_comparable(whole, self.setting)

    def judge(self, model: M) -> Judged[M]:
        """Return a model with the violation of its decisions on the held-out rows."""
        code = _decide(model, self.X)
        violations = self.setting.violations(code)
        is_complete = len(violations.gaps) == self.n_gaps
        tables = self.setting.tables(code)
        violation = worst_violation((table.mass for table in tables), self.measure)
        passes = is_complete and violation <= self.bound
        if passes and self.confidence is not None:
            p = certify_tables(tables, self.bound, self.measure)
            passes = p <= 1 - self.confidence
        is_usable = is_complete and np.unique(code).size > 1
        return Judged(model, violation, is_usable, passes)

    def expected(self, model: M) -> Expected[M]:
        """Return the bound that a model will be shown to keep, by the training rows."""
        code = _decide(model, self.all_X)[self.trained_position]
        share = self.position.size / self.trained_position.size
        tables, level = self.trained_setting.tables(code), self.confidence or 0.5
        compared = compared_of(tables)
        limit, noise = expected_limit(*compared, share, level, self.measure)
        if np.unique(code).size == 1 or np.isnan(limit):
            limit = np.inf
        return Expected(
            model,
            worst_violation((table.mass for table in tables), self.measure),
            limit,
            noise,
        )

    def floor(self) -> float:
        """Return what a fair model measures that has each class as often as y."""
        n_rows, rng = self.position.size, np.random.default_rng(0)
        code = rng.choice(self.class_share.size, n_rows, p=self.class_share)
        return self._by_chance(self.setting.tables(code))

    def _by_chance(self, tables: Sequence[RateTable]) -> float:
        return floor_of_tables(tables, measure=self.measure).mean

    def is_noise_limited(self, judged: Judged[M]) -> bool:
        """Return whether noise, not the weight, keeps a model from the bound.

        It keeps the bound on the training rows, and breaks it on the held-out rows by
        more than the gap that is left to close.
        """
        code = _decide(judged.model, self.all_X)[self.trained_position]
        tables = self.trained_setting.tables(code)
        left = worst_violation((table.mass for table in tables), self.measure)
        return judged.is_usable and left <= self.bound < judged.violation - left

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
        measured = f"fairness_weight={closest.fairness_weight:.4g}, measures "
        measured += f"{closest.violation:.4f}{self._worst_pair(closest.model)}"
        if self.confidence is not None:
            return (
                f"No model up to fairness_weight={highest:g} passes the test of "
                f"max_violation={self.bound:g} at confidence={self.confidence:g} on "
                f"{n_rows} held-out rows, so feasible_ is False. The fairest is kept "
                f"and not shown to be fair enough: {measured}"
            )
        return (
            f"No fairness_weight up to {highest:g} brings the violation on "
            f"{n_rows} held-out rows to max_violation={self.bound:g}. The closest, "
            f"{measured}"
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
        how = "" if self.measure == "difference" else f" by {self.measure}"
        words = by_chance_words(self._by_chance(tables), self.bound)
        return f"{how}, between {pair}. {words}"


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


class TrainingRows(HeldOut[E]):
    """The training rows, which hold the divergence of their own table to a bound.

    That of the worst table, if there is an uncertainty set.
    """

    name: ClassVar[str] = "max_divergence"

    def __init__(self, encoded: Encoded, model: E) -> None:
        super().__init__(encoded.passed, float(model.max_divergence or 0.0), None)
        self.encoded = encoded

    def judge(self, model: E) -> Judged[E]:
        """Return a model with the divergence of its table."""
        prob, penalty = model._measured_prob(self.encoded), self.encoded.problem.penalty
        objective, value = penalty.objective, 0.0
        for table in penalty.tables(prob):
            value += compared_penalty(
                table,
                penalty.comparison,
                objective.divergence,
                objective.uncertainty,
                objective.notion.weighting,
            )[0]
        is_usable = np.unique(model.predict(self.passed.X)).size > 1
        return Judged(model, value, is_usable, value <= self.bound)

    def expected(self, model: E) -> Expected[E]:
        """Return nothing: there are no other rows to expect anything of."""
        raise NotImplementedError

    def infeasible(self, closest: Judged[E], highest: float) -> str:
        """Return the warning for a bound that no weight up to ``highest`` keeps."""
        return (
            f"No fairness_weight up to {highest:g} brings the divergence to "
            f"max_divergence={self.bound:g} with more than one prediction. The closest "
            f"is fairness_weight={closest.fairness_weight:.4g} with "
            f"{closest.violation:.4g}. Raise max_divergence, or shrink the radius."
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
    Under a bound, each finds its own smallest weight by the value on these, and the
    most accurate one that keeps the bound wins; rows that will test the bound have no
    part in it. Otherwise ``fairness_weight`` is read as a weight of ``kl``,
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
    if model.max_violation is not None and model.confidence is not None:
        # The rows that will test the bound, whatever the divergence.
        tested = clone(plain).set_params(divergence="kl")
        with muted(FfermWarning):
            passed = HeldOutDecisions(tested, passed, tested._encode(passed)).passed
    plain.set_params(confidence=None)
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
    best = candidates[int(np.argmax(scores))]
    best.confidence = model.confidence
    return best


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
    excess = judged.violation - held_out.bound
    return bounded_score(accuracy, excess, judged.is_usable)


def bounded_score(gain: float, excess: float, is_usable: bool) -> float:
    """Return a number that is larger the better a model is.

    It is above 0 if the bound is kept, and then grows with what is gained; else it is
    minus the excess over the bound.
    """
    if not is_usable:
        return USELESS
    return float(1 + gain if excess <= 0 else -excess)
