"""The objective against finite differences, loops and its own symmetries."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from fferm import LargeShift, SmallShift
from fferm.data.groups import Attribute
from fferm.data.rows import Rows
from fferm.divergences import (
    KL,
    Affine,
    Alpha,
    JensenShannon,
    ReverseKL,
    SquaredHellinger,
    TotalVariation,
    get,
    trainable,
)
from fferm.errors import InvalidInputError, InvalidParameterError, NonFiniteError
from fferm.notions import (
    ConditionalParity,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FalsePositiveRateParity,
    Labels,
    PredictiveParity,
    Strata,
    Sufficiency,
)
from fferm.penalty.objective import (
    Objective,
    Penalty,
    Problem,
    make_objective,
    moving_penalty,
    smallest_cell,
    stratum_weights,
)

# Central differences of a smooth function at this step are right to about 1e-9.
STEP = 1e-5
GRADIENT_RTOL = 1e-6
# An error in any entry shows along a random direction; a few rule out bad luck.
N_DIRECTIONS = 6

DIVERGENCES = {
    name: get(name)
    for name in (
        "chi2",
        "kl",
        "reverse_kl",
        "total_variation",
        "jensen_shannon",
        "squared_hellinger",
        "alpha",
    )
} | {f"alpha {power}": Alpha(power) for power in (-1.0, 0.0, 1.0, 1.5, 3.0)}
NOTIONS = {
    "demographic parity": DemographicParity(),
    "equal opportunity": EqualOpportunity(positive=1),
    "equalized odds": EqualizedOdds(),
    "equalized odds by frequency": EqualizedOdds("frequency"),
    "conditional parity": ConditionalParity("control"),
    "conditional parity by unit": ConditionalParity("control", weights="unit"),
    "sufficiency": Sufficiency(),
    "predictive parity": PredictiveParity(positive=1),
    "false positive rate parity": FalsePositiveRateParity(negative=0),
}
SHIFTS = {
    "small": SmallShift(0.02),
    "small, p=1": SmallShift(0.02, p=1),
    "small, p=inf": SmallShift(0.02, p="inf"),
    "small, dual norm": SmallShift(0.02, norm="dual"),
    "small, squared": SmallShift(0.02, power=2),
    "small, coupled": SmallShift(0.02, coupled=True),
    "large": LargeShift(0.01),
    "large, simplex": LargeShift(0.01, mode="simplex"),
    "large, coupled": LargeShift(0.01, mode="coupled"),
    "large, paper": LargeShift(0.01, mode="paper"),
}

each_divergence = pytest.mark.parametrize("divergence", DIVERGENCES)
each_notion = pytest.mark.parametrize("notion", NOTIONS)
each_class_count = pytest.mark.parametrize("n_classes", [2, 3])


def make_labels(y, control, n_classes):
    return Labels(len(y), y, tuple(range(n_classes)), control, ("u", "v"))


def make_problem(
    divergence="kl",
    notion="demographic parity",
    uncertainty=None,
    *,
    n_classes=2,
    seed=0,
    n_groups=2,
    is_weighted=False,
    share_without_group=0.0,
    is_marginal=False,
    **factors,
):
    """Return a problem and logits; every cell of labels, groups, control has rows."""
    rng = np.random.default_rng(seed)
    shape = n_classes, n_groups, 2
    cells = [axis.ravel() for axis in np.indices(shape)]
    y, group, control = (np.tile(axis, 2) for axis in cells)
    order = rng.permutation(len(y))
    y, group, control = y[order], group[order], control[order]
    other = (group + rng.integers(0, 2, len(y))) % n_groups
    group = np.where(rng.random(len(y)) < share_without_group, -1, group)
    names = tuple("abcdef"[:n_groups])
    attributes = [Attribute("s", names, group)]
    if is_marginal:
        attributes.append(Attribute("t", names, other))
    weight = rng.uniform(0.5, 2.0, len(y)) if is_weighted else np.ones(len(y))
    notion = NOTIONS.get(notion, notion)
    objective = make_objective(
        DIVERGENCES.get(divergence, divergence), notion, uncertainty, **factors
    )
    labels = make_labels(y, control, n_classes)
    rows = Rows(tuple(attributes), notion.strata(labels), weight)
    penalty = Penalty(objective, rows, labels.classes)
    X = rng.normal(size=(len(y), 3))
    # Groups differ in their logits, so that no table is near independence.
    push = np.outer(group, np.linspace(-0.5, 0.5, n_classes))
    logits = rng.normal(size=(len(y), n_classes)) + push
    problem = Problem(objective, X, y, weight / weight.sum(), n_classes, penalty)
    return problem, logits, rows


def check_gradient(function, logits):
    """Compare a gradient with central differences along random directions."""
    directions = np.random.default_rng(5).normal(size=(N_DIRECTIONS, *logits.shape))
    gradient = function(logits)[1]
    found = np.array([np.sum(gradient * step) for step in directions])
    expected = np.array(
        [
            function(logits + STEP * step)[0] - function(logits - STEP * step)[0]
            for step in directions
        ]
    ) / (2 * STEP)
    size = np.abs(expected).max()
    assert size > 1e-4  # a gradient of 0 would prove nothing
    np.testing.assert_allclose(found, expected, rtol=0, atol=GRADIENT_RTOL * size)


@each_divergence
@each_notion
def test_the_value_alone_is_that_beside_the_payoff(divergence, notion):
    problem, logits, _ = make_problem(
        divergence, notion, n_classes=3, n_groups=3, is_weighted=True, is_marginal=True
    )
    tables = problem.penalty.tables(problem.penalized_prob(logits))
    expected = problem.penalty.on_tables(tables)[0]
    assert expected > 1e-4
    assert problem.penalty.value(tables) == pytest.approx(expected, rel=1e-12)


@each_divergence
@each_notion
@each_class_count
def test_the_gradient_is_that_of_finite_differences(divergence, notion, n_classes):
    problem, logits, _ = make_problem(divergence, notion, n_classes=n_classes)

    check_gradient(problem.fairness, logits)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("divergence", ["kl", "jensen_shannon", "alpha 1.5"])
@pytest.mark.parametrize(
    "notion", ["demographic parity", "equalized odds", "sufficiency"]
)
@each_class_count
def test_the_gradient_of_a_robust_penalty_is_that_of_finite_differences(
    shift, divergence, notion, n_classes
):
    uncertainty = SHIFTS[shift]
    problem, logits, _ = make_problem(
        divergence, notion, uncertainty, n_classes=n_classes, n_groups=3, seed=1
    )
    if uncertainty.is_coupled and notion == "sufficiency":
        with pytest.raises(InvalidParameterError, match="not coupled"):
            problem.fairness(logits)
        return

    check_gradient(problem.fairness, logits)


CIRCUMSTANCES = {
    "weights": {"is_weighted": True},
    "rows without a group": {"share_without_group": 0.3},
    "marginal groups": {"is_marginal": True},
    "sharpness": {"sharpness": 2.5},
    "a blunt penalty": {"sharpness": 0.3},
    "three groups": {"n_groups": 3},
    "a fairness weight": {"fairness_weight": 7.0},
    "all of these": {
        "is_weighted": True,
        "share_without_group": 0.2,
        "is_marginal": True,
        "sharpness": 1.7,
        "n_groups": 3,
        "fairness_weight": 0.2,
    },
}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@each_notion
def test_the_gradient_holds_in_all_circumstances(circumstance, divergence, notion):
    options = CIRCUMSTANCES[circumstance]
    problem, logits, _ = make_problem(divergence, notion, n_classes=3, **options)

    check_gradient(problem.fairness, logits)


@each_class_count
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_gradient_of_the_loss_is_that_of_finite_differences(n_classes, is_weighted):
    problem, logits, _ = make_problem(n_classes=n_classes, is_weighted=is_weighted)

    check_gradient(problem.loss, logits)


def test_loss_and_penalty_add_up():
    problem, logits, _ = make_problem(fairness_weight=3.0)

    value, gradient = problem.value_and_gradient(logits)

    parts = [problem.loss(logits), problem.fairness(logits)]
    assert value == pytest.approx(sum(part[0] for part in parts), rel=1e-15)
    np.testing.assert_array_equal(gradient, parts[0][1] + parts[1][1])


def test_the_loss_is_the_weighted_mean_of_minus_log_probability():
    problem, logits, rows = make_problem(n_classes=3, is_weighted=True)

    prob = softmax(logits, axis=1)
    by_row = [-math.log(prob[i, label]) for i, label in enumerate(problem.y)]

    expected = np.average(by_row, weights=rows.weight)
    assert problem.loss(logits)[0] == pytest.approx(expected, rel=1e-14)


def mass(weight, chosen):
    return float(np.sum(weight * chosen))


def dependence(f, weight, first, second):
    """Return D_f between the joint of two soft partitions and their product."""
    weight = weight / weight.sum()
    value = 0.0
    for a in first.T:
        for b in second.T:
            p, q = mass(weight, a * b), mass(weight, a) * mass(weight, b)
            value += q * float(f(np.float64(p / q), np)) if q > 0 else 0.0
    return value


def obvious_penalty(problem, rows, prob):
    """Return the penalty by loops over strata and cells, as the notions read."""
    notion, divergence = (
        problem.objective.notion,
        trainable(problem.objective.divergence),
    )
    total = 0.0
    for attribute in rows.attributes:
        known = attribute.code >= 0
        weight = rows.weight * known
        group = np.eye(len(attribute.groups))[attribute.code]
        strata = rows.strata.code
        if isinstance(notion, Sufficiency | PredictiveParity):
            label = np.eye(problem.n_classes)[problem.y]
            kept = problem.penalty.comparison.kept
            for j in range(problem.n_classes) if kept is None else [kept]:
                share = mass(weight, prob[:, j]) / weight.sum()
                inside = weight * prob[:, j]
                total += share * dependence(divergence.f, inside, label, group)
            continue
        for r in range(len(rows.strata.names)):
            inside = weight * (strata == r)
            share = inside.sum() / weight.sum()
            part = dependence(divergence.f, inside, prob, group)
            total += part if notion.weighting == "unit" else share * part
    return total


@each_divergence
@each_notion
def test_the_value_is_that_of_the_definition(divergence, notion):
    problem, logits, rows = make_problem(
        divergence,
        notion,
        n_classes=3,
        n_groups=3,
        is_weighted=True,
        share_without_group=0.2,
        is_marginal=True,
    )

    expected = obvious_penalty(problem, rows, softmax(logits, axis=1))

    assert expected > 1e-3
    assert problem.fairness(logits)[0] == pytest.approx(expected, rel=1e-11)


def reorder(problem, rows, places):
    """Return the problem on rows at the places, which may repeat."""
    attributes = tuple(replace(a, code=a.code[places]) for a in rows.attributes)
    strata = replace(rows.strata, code=rows.strata.code[places])
    weight = rows.weight[places]
    moved = Rows(attributes, strata, weight)
    return rebuild(
        replace(
            problem,
            X=problem.X[places],
            y=problem.y[places],
            share=weight / weight.sum(),
        ),
        moved,
    )


def rebuild(problem, rows):
    penalty = Penalty(problem.objective, rows, problem.penalty.classes)
    return replace(problem, penalty=penalty)


@each_notion
def test_the_order_of_rows_does_not_matter(notion):
    problem, logits, rows = make_problem(
        "kl", notion, n_classes=3, is_weighted=True, share_without_group=0.2
    )
    order = np.random.default_rng(3).permutation(len(logits))

    value, gradient = problem.value_and_gradient(logits)
    moved, moved_gradient = reorder(problem, rows, order).value_and_gradient(
        logits[order]
    )

    assert moved == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(moved_gradient, gradient[order], rtol=0, atol=1e-15)


@each_notion
def test_a_weight_of_two_is_a_row_given_twice(notion):
    problem, logits, rows = make_problem("chi2", notion, n_classes=3)
    doubled = np.arange(0, len(logits), 3)
    places = np.sort(np.concatenate([np.arange(len(logits)), doubled]))
    weight = np.ones(len(logits))
    weight[doubled] = 2.0
    heavy = rebuild(
        replace(problem, share=weight / weight.sum()), replace(rows, weight=weight)
    )

    value, gradient = heavy.value_and_gradient(logits)
    twice, by_place = reorder(problem, rows, places).value_and_gradient(logits[places])

    assert twice == pytest.approx(value, rel=1e-13)
    summed = np.zeros_like(gradient)
    np.add.at(summed, places, by_place)
    np.testing.assert_allclose(summed, gradient, rtol=0, atol=1e-15)


def test_only_ratios_of_weights_matter():
    problem, logits, rows = make_problem(is_weighted=True)

    scaled = rebuild(problem, replace(rows, weight=1e3 * rows.weight))

    assert scaled.fairness(logits)[0] == pytest.approx(
        problem.fairness(logits)[0], rel=1e-13
    )


@each_notion
@pytest.mark.parametrize("shift", [None, "small", "large, simplex"])
def test_the_names_of_groups_do_not_matter(notion, shift):
    problem, logits, rows = make_problem(
        "jensen_shannon",
        notion,
        SHIFTS.get(shift),
        n_classes=2,
        n_groups=3,
        is_weighted=True,
        share_without_group=0.2,
    )
    (attribute,) = rows.attributes
    renamed = replace(attribute, code=np.array([2, 0, 1, -1])[attribute.code])

    value, gradient = problem.fairness(logits)
    other, other_gradient = rebuild(
        problem, replace(rows, attributes=(renamed,))
    ).fairness(logits)

    assert other == pytest.approx(value, rel=1e-9)
    # The linear program of the simplex stops within 1e-9 of its optimum.
    np.testing.assert_allclose(other_gradient, gradient, rtol=0, atol=1e-9)


def test_a_group_without_rows_does_not_matter():
    problem, logits, rows = make_problem("kl", "equalized odds")
    (attribute,) = rows.attributes
    wider = replace(attribute, groups=("a", "b", "nobody"))

    value, gradient = rebuild(problem, replace(rows, attributes=(wider,))).fairness(
        logits
    )

    assert value == pytest.approx(problem.fairness(logits)[0], rel=1e-14)
    np.testing.assert_allclose(
        gradient, problem.fairness(logits)[1], rtol=0, atol=1e-16
    )


@pytest.mark.parametrize(
    ("base", "slope"),
    [
        (KL(), 1.0),
        (ReverseKL(), -1.0),
        (SquaredHellinger(), 5.0),
        (JensenShannon(), 0.7),
    ],
)
@each_notion
def test_a_tilt_of_the_divergence_changes_nothing(base, slope, notion):
    plain, logits, _ = make_problem(base, notion, n_classes=3)
    tilted, _, _ = make_problem(Affine(base, slope=slope), notion, n_classes=3)

    value, gradient = plain.fairness(logits)

    assert tilted.fairness(logits)[0] == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(tilted.fairness(logits)[1], gradient, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "shift", ["small", "small, p=1", "small, p=inf", "small, coupled"]
)
def test_a_tilt_changes_no_shift_that_keeps_the_total(shift):
    plain, logits, _ = make_problem(KL(), uncertainty=SHIFTS[shift])
    tilted, _, _ = make_problem(Affine(KL(), slope=1.0), uncertainty=SHIFTS[shift])

    value, gradient = plain.fairness(logits)

    assert tilted.fairness(logits)[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(tilted.fairness(logits)[1], gradient, rtol=0, atol=1e-14)


def test_a_tilt_changes_the_paper_s_own_norm():
    shift = SHIFTS["small, dual norm"]
    plain, logits, _ = make_problem(KL(), uncertainty=shift)
    tilted, _, _ = make_problem(Affine(KL(), slope=1.0), uncertainty=shift)

    assert tilted.fairness(logits)[0] > plain.fairness(logits)[0] + 0.01


@each_divergence
@each_notion
def test_equal_predictions_for_everyone_cost_nothing(divergence, notion):
    problem, logits, _ = make_problem(divergence, notion, n_classes=3)
    # Under sufficiency labels must not depend on the group either: they do not here.
    same = np.tile([0.3, -0.4, 1.0], (len(logits), 1))

    value, gradient = problem.fairness(same)

    assert value == pytest.approx(0.0, abs=1e-15)
    np.testing.assert_allclose(gradient, 0, atol=1e-15)


def test_sharpness_sees_sharper_logits():
    blunt, logits, _ = make_problem("kl", n_classes=3)
    sharp, _, _ = make_problem("kl", n_classes=3, sharpness=4.0)

    value, gradient = sharp.fairness(logits)
    expected, by_sharp = blunt.fairness(4 * logits)

    assert value == pytest.approx(expected, rel=1e-14)
    np.testing.assert_allclose(gradient, 4 * by_sharp, rtol=0, atol=1e-16)
    np.testing.assert_array_equal(sharp.loss(logits)[1], blunt.loss(logits)[1])


def test_rows_without_a_group_or_stratum_feel_no_penalty():
    problem, logits, rows = make_problem(
        "kl", "equal opportunity", share_without_group=0.3
    )

    gradient = problem.fairness(logits)[1]

    is_out = (rows.attributes[0].code < 0) | (rows.strata.code < 0)
    assert np.all(gradient[is_out] == 0)
    assert np.all(gradient[~is_out] != 0)


def test_rows_of_weight_zero_feel_no_penalty():
    problem, logits, rows = make_problem("kl")
    weight = rows.weight.copy()
    weight[:4] = 0.0

    gradient = rebuild(problem, replace(rows, weight=weight)).fairness(logits)[1]

    assert np.all(gradient[:4] == 0)
    assert np.all(gradient[4:] != 0)


def test_marginal_penalties_add_up():
    both, logits, rows = make_problem("kl", is_marginal=True)
    singles = [
        rebuild(both, replace(rows, attributes=(attribute,)))
        for attribute in rows.attributes
    ]

    expected = sum(single.fairness(logits)[0] for single in singles)

    assert both.fairness(logits)[0] == pytest.approx(expected, rel=1e-14)


def test_no_penalty_is_a_penalty_of_zero():
    problem, logits, _ = make_problem("kl")

    value, gradient = replace(problem, penalty=None).fairness(logits)

    assert value == 0.0
    assert np.all(gradient == 0)


@each_notion
def test_the_dual_is_the_slope_at_the_ratio(notion):
    problem, logits, _ = make_problem("kl", notion, n_classes=3, is_weighted=True)
    prob = softmax(logits, axis=1)
    is_sufficiency = not problem.objective.notion.compares_predictions

    (dual,) = problem.penalty.duals(problem.penalty.tables(prob))

    (table,) = problem.penalty.tables(prob)
    assert dual.shape == table.shape
    for r, j, k in np.ndindex(table.shape):
        # Given the stratum, or given the prediction: what the ratio compares.
        given = table[:, j] if is_sufficiency else table[r]
        row = given[r if is_sufficiency else j]
        ratio = table[r, j, k] * given.sum() / row.sum() / given[:, k].sum()
        assert dual[r, j, k] == pytest.approx(math.log(ratio), rel=1e-12, abs=1e-13)


def test_the_penalty_on_a_table_agrees_with_the_penalty_on_rows():
    problem, logits, _ = make_problem("chi2", "equalized odds")
    prob = softmax(logits, axis=1)

    (table,) = problem.penalty.tables(prob)

    value = problem.fairness(logits)[0] / problem.objective.fairness_weight
    assert problem.penalty.on_tables([table])[0] == pytest.approx(value, rel=1e-15)
    assert table.sum() == pytest.approx(1.0, rel=1e-15)


def test_a_table_with_an_empty_cell_still_has_a_finite_gradient():
    problem, logits, rows = make_problem(ReverseKL())
    # Group b never gets class 1: reverse KL is infinite there but for its linear tail.
    hard = np.zeros_like(logits)
    hard[rows.attributes[0].code == 1, 0] = 2000.0

    value, gradient = problem.fairness(hard)

    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def test_data_without_two_groups_have_nothing_to_be_fair_between():
    problem, _, rows = make_problem("kl")
    alone = replace(rows.attributes[0], code=np.zeros(len(rows.weight), dtype=np.int64))

    with pytest.raises(InvalidInputError, match=r"holds two groups.*fairness_weight=0"):
        rebuild(problem, replace(rows, attributes=(alone,))).penalty.check_comparable()


def test_two_groups_in_one_stratum_are_enough_to_compare():
    problem, _, rows = make_problem("kl", "equalized odds")
    code = np.where(rows.strata.code == 0, 0, rows.attributes[0].code)
    half = replace(rows, attributes=(replace(rows.attributes[0], code=code),))

    rebuild(problem, half).penalty.check_comparable()


def test_small_shifts_refuse_a_divergence_with_a_kink():
    with pytest.raises(InvalidParameterError, match=r"SmallShift.*total_variation"):
        make_objective("total_variation", uncertainty=SmallShift(0.1))


def test_small_shifts_accept_a_rounded_kink():
    objective = make_objective(TotalVariation(0.5), uncertainty=SmallShift(0.1))

    assert isinstance(objective, Objective)


@pytest.mark.parametrize("uncertainty", ["large", 0.1, LargeShift])
def test_an_uncertainty_set_must_be_an_instance(uncertainty):
    with pytest.raises(InvalidParameterError, match="None or a set such as LargeShift"):
        make_objective(uncertainty=uncertainty)


def test_an_infinite_penalty_is_named():
    problem, logits, _ = make_problem("kl", uncertainty=LargeShift(0.9, floor=0.0))

    with pytest.raises(NonFiniteError, match=r"penalty is infinite.*floor"):
        problem.fairness(logits)


def test_an_infinite_penalty_of_weight_zero_is_not_asked_for():
    problem, logits, _ = make_problem(
        "kl", uncertainty=LargeShift(0.9, floor=0.0), fairness_weight=0.0
    )

    value, gradient = problem.fairness(logits)

    assert value == 0.0
    assert np.all(gradient == 0)


@pytest.mark.parametrize(
    ("divergence", "uncertainty", "is_smooth"),
    [
        ("kl", None, True),
        ("total_variation", None, False),
        ("kl", LargeShift(0.01), False),
        ("kl", SmallShift(0.01), False),
    ],
)
def test_kinks_come_from_total_variation_and_uncertainty(
    divergence, uncertainty, is_smooth
):
    problem, _, _ = make_problem(divergence, uncertainty=uncertainty)

    assert problem.is_smooth is is_smooth
    assert replace(problem, penalty=None).is_smooth


def test_an_objective_is_by_default_one_part_penalty_without_a_pull_to_zero():
    objective = make_objective()
    assert (objective.divergence, objective.notion) == (KL(), DemographicParity())
    assert objective.uncertainty is None
    assert (objective.fairness_weight, objective.sharpness, objective.l2) == (1, 1, 0)


@pytest.mark.parametrize(
    ("divergence", "weight"),
    [("kl", 10.0), ("chi2", 5.0), ("jensen_shannon", 20.0), ("total_variation", 0.5)],
)
def test_without_a_weight_all_divergences_pull_as_hard_as_ten_times_kl(
    divergence, weight
):
    objective = make_objective(divergence, fairness_weight=None)
    assert objective.fairness_weight == pytest.approx(weight)


def test_strata_count_one_their_share_or_their_probability():
    # Masses of 0.1, 0 and 0.3: six tenths of the rows are in no stratum.
    strata = np.array([0.025, 0.0, 0.075])[:, None, None] * np.ones((3, 2, 2))
    assert stratum_weights(strata, "unit") == [1, 0, 1]
    assert stratum_weights(strata, "frequency") == pytest.approx([0.25, 0, 0.75])
    assert stratum_weights(strata, "probability") == pytest.approx([0.1, 0, 0.3])
    for weighting in ("unit", "frequency", "probability"):
        assert stratum_weights(0 * strata, weighting) == [0, 0, 0]


def test_the_smallest_cell_is_that_of_independence_within_a_stratum():
    # Nobody is in stratum w or group c.
    group = Attribute("s", ("a", "b", "c"), np.array([0, 0, 1, 1]))
    strata = Strata(np.array([0, 0, 0, 1]), ("u", "v", "w"))
    penalty = Penalty(make_objective(), Rows((group,), strata, np.ones(4)), (0, 1))
    prob = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.4, 0.6]])
    # Class 1 of group b in stratum u, of which it is a third.
    expected = (0.1 + 0.5 + 0.8) / 3 / 3
    assert smallest_cell(penalty.tables(prob)) == pytest.approx(expected)


@pytest.mark.parametrize("weighting", ["unit", "frequency", "probability"])
def test_slopes_of_conditions_that_move_equal_differences(weighting):
    # Concentrated, so that a step is small beside every cell.
    table = 3 * np.random.default_rng(0).dirichlet(np.full(12, 8.0)).reshape(2, 3, 2)
    _, slopes = moving_penalty(table, get("js"), None, weighting)
    for cell in np.ndindex(table.shape):
        values = []
        for step in (1e-6, -1e-6):
            moved = table.copy()
            moved[cell] += step
            values.append(moving_penalty(moved, get("js"), None, weighting)[0])
        assert slopes[cell] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)
