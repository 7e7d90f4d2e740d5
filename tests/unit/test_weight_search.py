"""The search for a weight, on models whose violation is a formula of their weight."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.divergences import STANDARD, get
from fferm.errors import InfeasibleWarning
from fferm.estimators import weight_search
from fferm.estimators.weight_search import (
    Expected,
    HeldOut,
    Judged,
    bounded_score,
    by_chance_words,
    choose_weight,
)
from fferm.fairness_grid import default_weights
from fferm.solvers import LANES_FROM

GRID = default_weights(get("kl"), 14).tolist()
STEP = GRID[-1] / GRID[-2]


@dataclass
class Model:
    """Trains at once, and remembers the model that it began at."""

    fairness_weight: float = 1.0
    start: object = None
    search_halvings: int = 4
    verbose: int = 0
    is_joint: bool = False
    reaches_far: bool = True

    def _objective(self):
        return SimpleNamespace(divergence=get("kl"))

    def fit_path(self, passed, weights, start=None):
        for weight in weights:
            passed.append(weight)
            start = Model(weight, start)
            yield start

    def fits_path_jointly(self, passed):
        return self.is_joint

    def supports_large_weights(self):
        return self.reaches_far


@dataclass
class ByFormula(HeldOut):
    """Judges by a formula of the weight; what is trained on is a list of weights."""

    formula: object = None
    is_usable: object = None
    is_chance: bool = False
    judged: list = field(default_factory=list)
    chance: float = 0.0

    def judge(self, model):
        self.judged.append(model.fairness_weight)
        value = self.formula(model.fairness_weight)
        is_usable = self.is_usable is None or self.is_usable(model.fairness_weight)
        return Judged(model, value, is_usable, value <= self.bound)

    def expected(self, model):
        value = self.formula(model.fairness_weight)
        return Expected(model, value, value, 0.01)

    def floor(self):
        return self.chance

    def is_noise_limited(self, judged):
        return self.is_chance

    def infeasible(self, closest, highest):
        return f"closest {closest.fairness_weight:g}, highest {highest:g}"


def falling(weight):
    return 1 / (1 + weight)


def search(model, bound, formula=falling, confidence=None, **options):
    held_out = ByFormula([], bound, confidence, formula, **options)
    choice, fitted = choose_weight(model, held_out)
    return choice, fitted, held_out.passed


@pytest.mark.parametrize("halvings", [1, 2, 6])
@pytest.mark.parametrize("bound", [0.9, 0.5, 0.02])
def test_the_smallest_weight_of_a_finely_divided_step_is_found(bound, halvings):
    choice, fitted, _ = search(Model(search_halvings=halvings), bound)
    high = next(n for n, weight in enumerate(GRID) if falling(weight) <= bound)
    fine = np.geomspace(GRID[high - 1], GRID[high], 2**halvings + 1)
    expected = min(weight for weight in fine if falling(weight) <= bound)
    assert choice.fairness_weight == fitted.fairness_weight
    assert choice.fairness_weight == pytest.approx(expected, rel=1e-9)
    assert choice.violation == falling(choice.fairness_weight)
    assert choice.is_feasible is True


def test_models_that_train_jointly_divide_the_step_once():
    choice, _, tried = search(Model(is_joint=True), falling(0.7))
    high = next(n for n, weight in enumerate(GRID) if weight >= 0.7)
    fine = np.geomspace(GRID[high - 1], GRID[high], 16 + 1)
    # From above the known end of the step up to the first that keeps the bound.
    expected = fine[1:][fine[:-1] < 0.7]
    np.testing.assert_allclose(tried[high + 1 :], expected, rtol=1e-9)
    assert choice.fairness_weight == tried[-1]


def test_a_step_from_no_penalty_on_is_halved_evenly():
    weight = GRID[1] * 0.3
    choice, _, tried = search(Model(search_halvings=3), falling(weight))
    halves = GRID[1] * np.array([0.5, 0.25, np.sqrt(0.5 * 0.25)])
    np.testing.assert_allclose(tried[2:], halves)
    assert choice.fairness_weight == tried[-1]


def test_a_model_that_keeps_the_bound_without_a_penalty_is_taken_as_it_is():
    choice, fitted, tried = search(Model(), 1.0)
    assert (choice.fairness_weight, choice.is_feasible) == (0.0, True)
    assert tried == [0.0]
    assert fitted.start is None


def test_each_model_begins_at_the_last_one():
    _, fitted, tried = search(Model(search_halvings=1), falling(GRID[4]))
    assert tried[:5] == GRID[:5]
    assert fitted.fairness_weight == GRID[4]
    assert fitted.start.fairness_weight == GRID[3]
    _, fitted, tried = search(Model(search_halvings=1), falling(GRID[3] * 1.01))
    # The half of the step began at the model below the bound.
    assert fitted.fairness_weight == tried[-1] < GRID[4]
    assert fitted.start.fairness_weight == GRID[3]


def test_weights_beyond_the_range_are_tried_where_they_may_help():
    weight = GRID[-1] * STEP**2.5
    choice, _, tried = search(Model(search_halvings=1), falling(weight))
    assert choice.fairness_weight == pytest.approx(weight)
    expected = [*GRID, *(GRID[-1] * STEP**n for n in (1, 2, 3, 2.5))]
    np.testing.assert_allclose(tried, expected)


def test_a_bound_that_no_weight_keeps_gives_the_closest_with_a_warning():
    def lowest_at_five(weight):
        return 0.5 + (weight - 5) ** 2

    highest = GRID[-1] * STEP**8
    closest = min(GRID, key=lowest_at_five)
    with pytest.warns(
        InfeasibleWarning, match=f"closest {closest:g}, highest {highest:g}"
    ):
        choice, fitted, tried = search(Model(), 0.1, lowest_at_five)
    assert choice.fairness_weight == fitted.fairness_weight == closest
    assert (choice.violation, choice.is_feasible) == (
        lowest_at_five(closest),
        False,
    )
    assert len(tried) == len(GRID) + 8


@pytest.mark.parametrize(
    ("model", "is_chance"), [(Model(reaches_far=False), False), (Model(), True)]
)
def test_no_more_weight_is_tried_where_it_cannot_help(model, is_chance):
    with pytest.warns(InfeasibleWarning, match=f"highest {GRID[-1]:g}"):
        _, _, tried = search(model, 1e-9, is_chance=is_chance)
    assert tried == GRID


def test_the_closest_is_chosen_among_models_that_can_be_used():
    with pytest.warns(InfeasibleWarning, match=f"closest {GRID[3]:g}"):
        search(Model(), 1e-9, is_usable=lambda weight: weight <= GRID[3])


def test_where_no_model_can_be_used_the_one_without_a_penalty_is_taken():
    with pytest.warns(InfeasibleWarning, match="closest 0, highest"):
        choice, _, _ = search(Model(), 1.0, is_usable=lambda weight: False)
    assert choice.fairness_weight == 0


def test_a_set_of_rows_knows_no_chance_by_default():
    assert not HeldOut.is_noise_limited(ByFormula([], 0.1, None), None)


def test_scores_under_a_bound_rank_what_keeps_it_above_what_breaks_it():
    ranked = [
        bounded_score(gain=0.9, excess=-1.0, is_usable=False),
        bounded_score(gain=0.9, excess=1.0, is_usable=True),
        bounded_score(gain=0.9, excess=0.4, is_usable=True),
        bounded_score(gain=0.1, excess=0.3, is_usable=True),
        bounded_score(gain=-0.9, excess=0.0, is_usable=True),
        bounded_score(gain=0.2, excess=-0.5, is_usable=True),
    ]
    assert ranked == [weight_search.USELESS, -1, -0.4, -0.3, pytest.approx(0.1), 1.2]
    assert ranked == sorted(set(ranked))


def certify(formula, bound=0.1, model=None, **options):
    held_out = ByFormula([], bound, 0.95, formula, **options)
    choice, fitted = choose_weight(model or Model(), held_out)
    return choice, fitted, held_out


def judged_by(table, bound=0.1, **options):
    """Return a search whose held-out values are given by weight, else by a formula."""

    class ByTable(ByFormula):
        def judge(self, model):
            weight = model.fairness_weight
            self.judged.append(weight)
            value = table(weight)
            is_usable = self.is_usable is None or self.is_usable(weight)
            return Judged(model, value, is_usable, value <= self.bound)

    held_out = ByTable([], bound, 0.95, falling, **options)
    choice, _ = choose_weight(Model(), held_out)
    return choice, held_out


def test_models_are_tested_from_the_fairest_on_until_one_fails():
    choice, _, held_out = certify(falling, bound=falling(7.0))
    assert held_out.judged == sorted(held_out.judged, reverse=True)
    assert held_out.judged[0] == max(held_out.passed)
    assert choice.fairness_weight == held_out.judged[-2]
    assert held_out.judged[-1] < 7.0 <= choice.fairness_weight


def test_a_model_behind_one_that_fails_is_not_looked_at():
    # All but one would pass.
    choice, held_out = judged_by(lambda weight: 0.5 if 5 < weight < 50 else 0.0)
    assert held_out.judged[-1] < 50 < choice.fairness_weight
    assert held_out.judged[:-1] == [w for w in held_out.judged if w > 50]
    assert choice.is_feasible


def test_all_models_are_trained_before_the_first_is_tested():
    order = []

    class Noted(ByFormula):
        def judge(self, model):
            order.append("test")
            return super().judge(model)

        def expected(self, model):
            order.append("train")
            return super().expected(model)

    choose_weight(Model(), Noted([], 0.1, 0.95, falling))
    assert order == sorted(order, reverse=True)


def test_which_models_are_trained_does_not_depend_on_the_tests():
    _, one = judged_by(lambda weight: 0.0)
    with pytest.warns(InfeasibleWarning, match="closest"):
        _, other = judged_by(lambda weight: 1.0)
    assert one.passed == other.passed
    assert len(other.judged) == 1


def test_weights_are_denser_where_the_bound_is_expected():
    _, _, held_out = certify(falling, bound=falling(7.0))
    near = [weight for weight in held_out.passed if 4 < weight < 12]
    assert len(near) >= 3
    most = 1 + 7 + 2 + Model.search_halvings
    assert len(held_out.passed) <= most


def test_weights_below_the_first_of_the_grid_are_tried_for_a_loose_bound():
    coarse = default_weights(get("kl"), 7 + 1).tolist()
    choice, _, held_out = certify(falling, bound=falling(coarse[1] / 2))
    assert any(0 < weight < coarse[1] for weight in held_out.passed)
    assert 0 < choice.fairness_weight < coarse[1]


def test_weights_about_the_bound_are_as_far_apart_as_the_noise_of_the_nearest():
    # Limits fall by 0.1 per factor of 10, and the nearest to the bound is at weight 10.
    limits = {0.0: 0.9, 1.0: 0.5, 10.0: 0.4, 100.0: 0.3, 1000.0: 0.2}
    noise = dict.fromkeys(limits, 0.5) | {10.0: 0.02}
    expected = {w: Expected(None, 0.0, limits[w], noise[w]) for w in limits}
    found = weight_search._fine_weights(expected, 0.38, 10.0, 4)
    reach = 2 * 0.02
    goals = np.linspace(0.38 + reach, 0.38 - reach, 4)
    np.testing.assert_allclose(found, 10 ** (10 * (0.5 - goals)))


def test_the_fairest_by_the_training_rows_comes_first():
    def lowest_at_ten(weight):
        return 0.05 + abs(np.log10(max(weight, 1e-3)) - 1)

    choice, _, held_out = certify(lowest_at_ten, bound=0.2)
    assert held_out.judged[0] == min(held_out.passed, key=lowest_at_ten)
    assert max(held_out.judged) == held_out.judged[0]
    assert choice.is_feasible


def test_a_model_of_one_class_may_pass_and_is_not_returned():
    # From weight 50 on, the held-out rows get one class.
    choice, held_out = judged_by(falling, is_usable=lambda weight: weight < 50)
    assert held_out.judged[0] > 50 > choice.fairness_weight
    assert choice.is_feasible


def test_where_the_first_fails_it_is_returned_as_not_feasible():
    near = Model(reaches_far=False)
    with pytest.warns(InfeasibleWarning, match="closest 100, highest 100"):
        choice, fitted, _ = certify(lambda w: 2 - w / 1000, model=near)
    assert (choice.fairness_weight, choice.is_feasible) == (100, False)
    assert fitted.fairness_weight == 100


def test_a_bound_below_the_chance_of_a_fair_model_is_warned_of():
    with pytest.warns(
        InfeasibleWarning, match=r"a perfectly fair model measures .*0\.2"
    ):
        certify(falling, bound=0.1, chance=0.2)


# What a bar of progress is told


@pytest.mark.parametrize(
    ("confidence", "most"),
    [
        (None, 1 + 13 + 8 + 4),
        (0.95, 1 + 7 + 3 + 2 + 4),
    ],
)
def test_a_bar_is_told_of_each_model_and_how_many_there_may_be(
    monkeypatch, confidence, most
):
    told, shown = [], []

    @contextmanager
    def progress(*arguments):
        told.append(arguments)
        yield (shown.append,)

    monkeypatch.setattr(weight_search, "progress", progress)
    far = GRID[-1] * STEP**1.5
    _, _, tried = search(Model(verbose=3), falling(far), confidence=confidence)
    assert told == [(3, most, f"max_violation={falling(far):g}")]
    assert [(one["weight"], one["violation"]) for one in shown] == [
        (weight, falling(weight)) for weight in tried
    ]
    assert len(GRID) - 6 < len(tried) <= most


# Which weights are worth a try


@pytest.mark.parametrize(
    ("violation", "limit", "noise", "can_help"),
    [
        (0.45, 0.5, 0.01, True),  # a gap is left, and the margin fits under the bound
        (0.125, 0.375, 0.01, True),
        (0.1, 0.375, 0.01, False),  # without any gap the bound would be out of reach
        (0.1, 0.125, 0.0625, False),  # the bound is in reach
        (0.1, 0.125, 0.07, True),
        (0.125, 0.2, 0.25, False),  # what is left is noise
        (0.126, 0.2, 0.25, True),
    ],
)
def test_more_weight_helps_where_a_gap_and_not_noise_keeps_from_the_bound(
    violation, limit, noise, can_help
):
    last = Expected(None, violation, limit, noise)
    assert weight_search._can_help(last, 0.25) == can_help


def test_a_certified_search_goes_three_steps_on_and_no_farther():
    coarse = default_weights(get("kl"), 7 + 1).tolist()
    step = coarse[-1] / coarse[-2]
    with pytest.warns(InfeasibleWarning, match="closest"):
        _, _, far = certify(lambda weight: 3 - weight / 10**7, bound=2.0)
    expected = [coarse[-1] * step**n for n in range(4)]
    np.testing.assert_allclose(far.passed[len(coarse) - 1 :], expected)
    for model in (Model(reaches_far=False), Model(is_joint=True)):
        with pytest.warns(InfeasibleWarning, match="closest 100, highest 100"):
            _, _, near = certify(lambda weight: 3 - weight / 1000, 2.0, model)
        assert near.passed == coarse


@pytest.mark.parametrize("is_joint", [False, True])
def test_a_model_between_two_weights_begins_at_the_one_below(is_joint):
    model = Model(is_joint=is_joint)
    choice, fitted, held_out = certify(falling, falling(7.0), model)
    begun = [fitted]
    while begun[-1].start is not None:
        begun.append(begun[-1].start)
    path = [each.fairness_weight for each in begun]
    assert path[0] == choice.fairness_weight
    assert path == sorted(path, reverse=True)
    assert path[-1] == 0
    below = [weight for weight in held_out.passed if weight < choice.fairness_weight]
    if not is_joint:
        assert path[1] == max(below)
    else:  # one path of its own, from the model without a penalty on
        coarse = held_out.passed[: 7 + 1]
        assert not set(path[1:-1]) & set(coarse)


def test_models_that_cannot_be_used_are_neither_tested_nor_returned():
    class Partly(ByFormula):
        def expected(self, model):
            value = super().expected(model)
            is_usable = self.is_usable(model.fairness_weight)
            return value if is_usable else value._replace(limit=np.inf)

    def search(is_usable):
        held_out = Partly([], 0.3, 0.95, falling, is_usable)
        return choose_weight(Model(), held_out)[0], held_out

    choice, held_out = search(lambda weight: weight < 20)
    assert choice.is_feasible
    assert max(held_out.judged) < 20 < max(held_out.passed)
    with pytest.warns(InfeasibleWarning, match="closest 0, highest"):
        choice, held_out = search(lambda weight: False)
    assert held_out.judged == [0.0]


def test_a_weight_is_that_of_kl_at_the_same_place_of_each_range(monkeypatch):
    tried = {}

    def noted(candidate, passed):
        tried[candidate.divergence] = candidate.fairness_weight
        return float(candidate.divergence == "chi2")

    monkeypatch.setattr(weight_search, "_held_out_score", noted)
    model = FairLogisticRegression(divergence="auto", fairness_weight=3.0)
    best = weight_search.choose_divergence(model, FitInput(None, None))
    largest = {name: default_weights(get(name), 2)[-1] for name in STANDARD}
    expected = {name: 3.0 * most / largest["kl"] for name, most in largest.items()}
    assert tried == pytest.approx(expected)
    assert len(set(tried.values())) > 2
    assert (best.divergence, best.fairness_weight) == ("chi2", tried["chi2"])
    assert model.fairness_weight == 3.0


def test_joint_models_about_the_bound_reach_from_one_end_to_the_other():
    def paths(is_joint):
        model = Model(is_joint=is_joint, reaches_far=False, search_halvings=1)
        held_out = ByFormula([], 0.2, 0.9, falling)
        choose_weight(model, held_out)
        return held_out.passed[weight_search.N_COARSE + 1 :]

    few, many = np.sort(paths(False)), np.sort(paths(True))
    assert 1 < few.size < LANES_FROM == many.size
    np.testing.assert_allclose(many, np.geomspace(few[0], few[-1], LANES_FROM))


def test_weights_that_are_nearly_alike_are_trained_once():
    limits = {0.0: 0.9, 1.0: 0.5, 10.0: 0.4, 100.0: 0.3}

    def fine(noise, bound=0.4):
        expected = {w: Expected(None, 0.0, limits[w], noise) for w in limits}
        return weight_search._fine_weights(expected, bound, 10.0, 2)

    # Two standard errors of the limit are two percent of the weight, then ten.
    assert fine(0.0005) == []
    assert len(fine(0.002)) == 2
    # Nothing is between where no penalty is needed.
    assert fine(0.002, bound=0.95) == fine(0.002, bound=0.9) == []


def test_a_bound_at_the_chance_of_a_fair_model_is_not_warned_of():
    certify(falling, bound=0.2, chance=0.2)


def test_words_about_chance_say_whether_rows_could_show_the_bound():
    assert "cannot show a violation of 0.05" in by_chance_words(0.05, 0.05)
    assert "cannot show" not in by_chance_words(0.0499, 0.05)
    assert "a fair model measures 0.0499" in by_chance_words(0.0499, 0.05)
