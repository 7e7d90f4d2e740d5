"""Rates compared by ratio or by deviation: penalty, bound, tests and choices."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    tradeoff_curve,
)
from fferm.data.rows import FitInput
from fferm.datasets import make_biased
from fferm.divergences import get
from fferm.errors import InfeasibleWarning, InvalidParameterError
from fferm.metrics.intervals import certify_ratio, certify_tables, floor_of_tables
from fferm.metrics.tabulator import make_tabulator, worst_violation
from fferm.notions import Labels
from fferm.notions import get as get_notion
from fferm.penalty.objective import RateRatios
from fferm.tables import joint
from fferm.tuning import EvenHoldout, tune

MEASURES = ["ratio", "deviation"]


@pytest.fixture(scope="module")
def data():
    made = make_biased(4000, random_state=0)
    return {"X": made.X, "y": made.y, "sensitive_features": made.sensitive_features}


def tables_of(decided, groups, weight=None, classes=(0, 1)):
    labels = Labels(len(decided), None, classes)
    notion = get_notion("demographic_parity")
    return make_tabulator(labels, notion, groups, "marginal", weight).tables(decided)


def violation_of(tables, measure="difference"):
    return worst_violation([table.mass for table in tables], measure)


@pytest.mark.parametrize("bound", [-0.1, 1.1])
def test_a_bound_of_a_ratio_that_is_no_share_is_refused(bound):
    rates, sizes = [np.array([[0.31, 0.28]])], [np.array([[3000, 2000]])]
    with pytest.raises(InvalidParameterError, match="bound must be"):
        certify_ratio(rates, sizes, bound)


@pytest.mark.parametrize("is_even", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", ["kl", "chi2", "squared_hellinger"])
def test_the_payoff_of_rate_ratios_is_their_slope(name, n_classes, is_even):
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(n_classes * 4)).reshape(n_classes, 4)
    prior = table.sum(axis=0)
    ratios, divergence = RateRatios(is_even=is_even), get(name)
    _, payoff = ratios.coupled_penalty(table, prior, divergence)
    for cell in itertools.product(range(n_classes), range(4)):
        move, step = np.zeros_like(table), 1e-5 * table[cell]
        move[cell] = step
        up, down = (
            ratios.coupled_penalty(table + sign * move, prior, divergence)[0]
            for sign in (1, -1)
        )
        assert (up - down) / (2 * step) == pytest.approx(payoff[cell], rel=1e-5)


def test_the_penalty_does_not_fall_where_a_class_becomes_rare():
    rate, prior = np.array([0.2, 0.4]), np.array([0.5, 0.5])
    values = []
    for scale in (1.0, 0.1):
        table = np.array([1 - scale * rate, scale * rate]) * prior
        values.append(RateRatios().coupled_penalty(table, prior, get("chi2"))[0])
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_a_class_that_nobody_gets_has_no_penalty():
    table = np.array([[0.5, 0.5], [0.0, 0.0]])
    value, payoff = RateRatios().coupled_penalty(table, table.sum(axis=0), get("kl"))
    assert value == 0
    assert np.all(np.isfinite(payoff))


def test_a_group_that_is_absent_has_no_part():
    table = np.array([[0.4, 0.3, 0.0], [0.2, 0.1, 0.0]])
    ratios, chi2 = RateRatios(is_even=True), get("chi2")
    value, payoff = ratios.coupled_penalty(table, table.sum(axis=0), chi2)
    alone, shorter = ratios.coupled_penalty(
        table[:, :2], table[:, :2].sum(axis=0), chi2
    )
    assert value == pytest.approx(alone, rel=1e-12)
    np.testing.assert_allclose(payoff[:, :2], shorter, rtol=1e-12)
    assert np.all(payoff[:, 2] == 0)


def test_violations_are_those_computed_by_hand():
    decided = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    groups = np.repeat(["a", "b"], 4)  # rates 1/4 and 3/4, overall 1/2
    tables = tables_of(decided, groups)
    assert violation_of(tables) == pytest.approx(1 / 2)
    assert violation_of(tables, "ratio") == pytest.approx(2 / 3)
    assert violation_of(tables, "deviation") == pytest.approx(1 / 2)


def test_weights_count_in_the_overall_rate():
    decided, groups = np.array([1, 0, 1, 1]), np.array(["a", "a", "b", "b"])
    tables = tables_of(decided, groups, weight=np.array([1.0, 1.0, 3.0, 3.0]))
    # Rates 1/2 and 1, overall 7/8.
    assert violation_of(tables, "deviation") == pytest.approx(3 / 7)


def test_the_worst_of_several_columns_and_classes_counts():
    rng = np.random.default_rng(0)
    decided = rng.integers(0, 3, 600)
    columns = np.column_stack([rng.integers(0, 2, 600), rng.integers(0, 3, 600)])
    tables = tables_of(decided, columns.astype(str), classes=(0, 1, 2))
    ratios = []
    for column in columns.T:
        rates = joint(np.eye(3)[decided], column, column.max() + 1)
        rates = rates / rates.sum(axis=0)
        ratios += list(1 - rates.min(axis=1) / rates.max(axis=1))
    assert violation_of(tables, "ratio") == pytest.approx(max(ratios), rel=1e-12)


def test_nobody_selected_is_equal_and_one_group_is_not_judged():
    groups = np.repeat(["a", "b"], 3)
    for measure in MEASURES:
        assert violation_of(tables_of(np.zeros(6, int), groups), measure) == 0
        lone = tables_of(np.array([0, 1, 0]), np.repeat(["a"], 3))
        assert np.isnan(violation_of(lone, measure))
        nobody = [replace(table, mass=0 * table.mass) for table in lone]
        assert np.isnan(violation_of(nobody, measure))


@pytest.mark.parametrize(
    ("n", "rate", "bound"), [((20, 25), 0.6, 0.3), ((60, 40), 0.8, 0.2)]
)
def test_the_test_of_a_ratio_keeps_its_level_exactly(n, rate, bound):
    # All outcomes of two groups at the bound, with their chances.
    x, y = (np.arange(size + 1) for size in n)
    chance = np.outer(binom.pmf(x, n[0], rate), binom.pmf(y, n[1], rate * (1 - bound)))
    sizes, wrong = [np.array([[float(n[0]), float(n[1])]])], 0.0
    for i, j in np.argwhere(chance > 1e-7):
        if certify_ratio([np.array([[i / n[0], j / n[1]]])], sizes, bound) <= 0.05:
            wrong += chance[i, j]
    assert wrong <= 0.05


def test_many_rows_at_a_ratio_that_is_kept_certify_it():
    rates, sizes = [np.array([[0.30, 0.27]])], [np.array([[2e4, 1e4]])]
    assert certify_ratio(rates, sizes, 0.2) < 0.05
    assert certify_ratio(rates, sizes, 0.1) > 0.3
    assert certify_ratio([np.array([[0.3, np.nan]])], sizes, 0.2) == 1


def test_a_deviation_is_certified_by_the_ratio_that_implies_it():
    rng = np.random.default_rng(0)
    decided, groups = rng.random(6000) < 0.4, np.repeat(["a", "b"], 3000)
    tables = tables_of(decided.astype(int), groups)
    by_ratio = certify_tables(tables, 0.2 / 1.2, "ratio")
    assert certify_tables(tables, 0.2, "deviation") == pytest.approx(by_ratio)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("make", [FairLogisticRegression, FairBoostingClassifier])
def test_a_bound_by_measure_is_kept_where_it_is_judged(data, make, measure):
    model = make(max_violation=0.5, measure=measure, confidence=None, random_state=0)
    model.fit(**data)
    assert model.feasible_
    assert model.violation_ <= 0.5
    decided = model.predict(data["X"])
    tables = tables_of(decided, data["sensitive_features"])
    assert violation_of(tables, measure) <= 0.55
    assert decided.mean() > 0.4


@pytest.mark.parametrize("measure", MEASURES)
def test_the_floor_of_a_measure_is_what_fair_decisions_measure(measure):
    rng, sizes = np.random.default_rng(0), np.array([400, 150, 90])
    decided, groups = rng.random(640) < 0.3, np.repeat(["a", "b", "c"], sizes)
    common = decided.mean()
    rates = rng.binomial(sizes, common, (20_000, 3)) / sizes
    lowest, highest = rates.min(axis=1), rates.max(axis=1)
    overall = rates @ sizes / 640
    found = {
        "difference": highest - lowest,
        "ratio": 1 - lowest / highest,
        "deviation": np.abs(rates - overall[:, None]).max(axis=1) / overall,
    }[measure]

    tables = tables_of(decided.astype(int), groups)
    floor = floor_of_tables(tables, measure=measure)

    assert floor.mean == pytest.approx(found.mean(), rel=0.02)
    assert floor.high == pytest.approx(np.quantile(found, 0.95), rel=0.03)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_bound_below_the_floor_is_said_so_before_the_search(data, measure):
    model = FairLogisticRegression(max_violation=0.001, measure=measure)
    with pytest.warns(InfeasibleWarning) as warned:
        model.fit(**data)
    before = str(warned[0].message)
    assert "max_violation=0.001 is below what a perfectly fair model" in before


def test_a_bound_by_ratio_is_tested(data):
    options = {"measure": "ratio", "random_state": 0}
    model = FairLogisticRegression(max_violation=0.5, **options).fit(**data)
    assert model.feasible_
    assert model.violation_ < 0.5
    with pytest.warns(InfeasibleWarning) as warned:
        FairLogisticRegression(max_violation=0.01, **options).fit(**data)
    assert re.match("No model .* measures .* by ratio", str(warned[-1].message))


def test_networks_train_by_ratio(data):
    fits = [
        FairNetClassifier(
            hidden=(8,),
            fairness_weight=w,
            measure="ratio",
            max_epochs=5,
            random_state=0,
        ).fit(**data)
        for w in (0.0, 100.0)
    ]
    sensitive = data["sensitive_features"]
    plain, fair = (
        violation_of(tables_of(model.predict(data["X"]), sensitive), "ratio")
        for model in fits
    )
    assert fair < plain / 2


def test_columns_one_by_one_take_equal_weights_by_ratio(data):
    rng = np.random.default_rng(0)
    group = np.asarray(data["sensitive_features"]).ravel()
    both = np.column_stack([group, np.where(rng.random(len(group)) < 0.05, "x", "y")])
    options = {"groups": "marginal", "group_weights": "equal"}
    model = FairLogisticRegression(fairness_weight=3.0, measure="ratio", **options)
    model.fit(data["X"], data["y"], sensitive_features=both)
    assert model.result_.is_success
    problem = model._encode(FitInput(data["X"], data["y"], both)).problem
    assert problem.objective.uncertainty == RateRatios(is_even=True)
    with pytest.raises(InvalidParameterError, match="needs one set of groups"):
        FairLogisticRegression(**options).fit(
            data["X"], data["y"], sensitive_features=both
        )


@pytest.mark.parametrize("notion", ["sufficiency", "predictive_parity"])
def test_what_has_no_rates_of_predictions_is_refused(data, notion):
    model = FairLogisticRegression(notion=notion, measure="ratio")
    with pytest.raises(InvalidParameterError, match="measure='ratio' compares rates"):
        model.fit(**data)


def test_an_unknown_measure_is_refused(data):
    with pytest.raises(InvalidParameterError, match="measure must be 'difference'"):
        FairLogisticRegression(measure="ratios").fit(**data)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_choice_by_measure_takes_the_most_accurate_within_it(data, is_weighted):
    test = make_biased(1500, random_state=1)
    columns = [test.X, test.y, test.sensitive_features]
    weight = None
    if is_weighted:
        rng = np.random.default_rng(0)
        weight = rng.uniform(0.5, 2, len(test.y))
        data = {**data, "sample_weight": rng.uniform(0.5, 2, len(data["y"]))}
        columns.append(weight)
    curve = tradeoff_curve(
        FairLogisticRegression(),
        **data,
        test=tuple(columns),
        fairness_weights=[0, 1, 3, 10, 100],
    )
    rows = curve.records[curve.records["split"] == "test"].set_index("fairness_weight")
    for measure in MEASURES:
        values = {}
        for key, model in ((key, curve.models[key]) for key in curve.models):
            decided = model.predict(test.X)
            tables = tables_of(decided, test.sensitive_features, weight)
            values[key.fairness_weight] = violation_of(tables, measure)
        bound = sorted(values.values())[2]
        within = [weight for weight, value in values.items() if value <= bound]
        best = max(within, key=lambda each: rows["accuracy"][each])
        chosen = curve.select(max_violation=bound + 1e-9, measure=measure)
        assert chosen.fairness_weight == best
    with pytest.raises(InvalidParameterError, match="needs confidence=None in select"):
        curve.select(max_violation=0.3, measure="ratio", confidence=0.95)
    with pytest.raises(InvalidParameterError, match="measure must be 'difference'"):
        curve.select(max_violation=0.3, measure="odds")


def test_a_curve_of_regressors_has_no_rates_to_choose_by(data):
    curve = tradeoff_curve(FairRegressor(), **data, fairness_weights=[0, 1])
    with pytest.raises(InvalidParameterError, match="needs a curve of classifiers"):
        curve.select(max_violation=0.3, measure="deviation")


@pytest.mark.parametrize("measure", MEASURES)
def test_tuning_bounds_the_measure_of_its_estimator(data, measure):
    found = tune(
        FairBoostingClassifier(measure=measure, n_estimators=30),
        **data,
        max_violation=0.45,
        divergences=["kl"],
        validation=EvenHoldout(random_state=0),
    )
    best = found.estimator
    tables = tables_of(best.predict(data["X"]), data["sensitive_features"])
    assert violation_of(tables, measure) < 0.5
    assert best.measure == measure
