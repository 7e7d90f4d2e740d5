"""Divergences, payoffs and notions on tables against values of 50 digits."""

import numpy as np
import pytest
from instances import REFERENCE as DIVERGENCES
from instances import TABLES

from fferm import tables
from fferm.data.groups import Attribute
from fferm.data.rows import Rows
from fferm.notions import EqualizedOdds, Labels
from fferm.notions import get as get_notion
from fferm.penalty.objective import Penalty, make_objective

EPS = np.finfo(np.float64).eps
RTOL = 1e-12
# Entries of decimal tables are rounded, and a ratio of 1 with them: this much of a
# slope that should vanish remains. Dyadic tables are exact and get no allowance.
DECIMAL = 16 * EPS

NOTIONS = {
    "demographic_parity": get_notion("demographic_parity"),
    "equal_opportunity_y1": get_notion("equal_opportunity"),
    "equalized_odds_w1": EqualizedOdds(weights="unit"),
    "equalized_odds_wrho": EqualizedOdds(weights="frequency"),
    "sufficiency": get_notion("sufficiency"),
}
every_table = pytest.mark.parametrize("table", TABLES)
every_divergence = pytest.mark.parametrize("name", DIVERGENCES)
every_notion = pytest.mark.parametrize("notion", NOTIONS)


@pytest.fixture
def expected(reference, table, name):
    return reference["results"][table][name]


@pytest.fixture
def joint(reference, table):
    return np.array(reference["tables"][table]["P"])


@pytest.fixture
def product(joint):
    return joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)


def assert_table_close(came, expected, table, cancelled=0.0):
    atol = cancelled if table.endswith("dyadic") else DECIMAL
    expected = np.array(expected, dtype=object).astype(float)
    np.testing.assert_allclose(came, expected, rtol=RTOL, atol=atol)


def skip_the_kink(name, table):
    if name == "tv" and table == "t22_independent":
        pytest.skip("at its kink the slope of total variation is a convention")


def test_every_table_divergence_and_notion_of_the_reference_is_compared(reference):
    assert set(reference["results"]) == set(TABLES)
    assert all(set(of) == set(DIVERGENCES) for of in reference["results"].values())
    assert set(reference["samples"]["results"]) == set(DIVERGENCES)
    assert all(
        set(of) == set(NOTIONS) for of in reference["samples"]["results"].values()
    )


@every_table
@every_divergence
def test_value(expected, joint, table, name):
    value = DIVERGENCES[name].between(joint)
    if table == "t22_independent":
        assert abs(value) < 1e-16
    else:
        assert value == pytest.approx(float(expected["D"]), rel=RTOL, abs=0.0)
    penalty = tables.penalty(joint, DIVERGENCES[name])[0]
    assert penalty == pytest.approx(value, rel=RTOL, abs=1e-16)


@every_table
@every_divergence
def test_largest_value(reference, expected, table, name):
    prior = np.array(reference["tables"][table]["pi"])
    largest = DIVERGENCES[name].largest(prior)
    assert largest == pytest.approx(float(expected["D_max_given_pi"]), rel=RTOL)


@every_table
@every_divergence
def test_optimal_dual_and_slopes(expected, joint, product, table, name):
    skip_the_kink(name, table)
    by_p, by_q = DIVERGENCES[name].slopes(joint, product)
    assert_table_close(by_p, expected["A"], table)
    assert_table_close(by_p, expected["grad_P"], table)
    assert_table_close(by_q, expected["grad_Q"], table)


@every_table
@every_divergence
def test_payoff_at_fixed_group_weights(expected, joint, table, name):
    skip_the_kink(name, table)
    _, payoff = tables.penalty(joint, DIVERGENCES[name])
    if expected["grad_fixed_pi"] is None:
        # An empty cell pulls without bound, and no NaN comes of it.
        assert np.all(payoff[joint == 0] == -np.inf)
        assert not np.isnan(payoff).any()
    else:
        # A tilt of 1 enters A and C alike and cancels, but for its roundings.
        cancelled = 4 * EPS if name.endswith("_paper") else 0.0
        assert_table_close(payoff, expected["grad_fixed_pi"], table, cancelled)


@every_table
@every_divergence
def test_slope_with_both_marginals_moving(expected, joint, product, table, name):
    skip_the_kink(name, table)
    by_p, by_q = DIVERGENCES[name].slopes(joint, product)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        came = by_p + (by_q @ joint.sum(axis=0))[:, None] + joint.sum(axis=1) @ by_q
    if expected["grad_coupled"] is None:
        assert not np.isfinite(came[joint == 0]).any()
    else:
        assert_table_close(came, expected["grad_coupled"], table)


@pytest.fixture
def samples(reference):
    samples = reference["samples"]
    prob, group, y = (np.array(samples[key]) for key in ("F", "s", "y"))
    labels = Labels(n_samples=len(y), y=y, classes=(0, 1))
    return prob, group, labels, samples


@every_notion
@every_divergence
def test_penalty_and_its_gradient_by_the_probabilities(samples, notion, name):
    prob, group, labels, reference = samples
    kind, expected = NOTIONS[notion], reference["results"][name][notion]
    strata = kind.strata(labels)
    table = tables.joint(
        prob,
        group,
        reference["n_groups"],
        stratum=strata.code,
        n_strata=len(strata.names),
    )
    if not kind.compares_predictions:
        value, payoff = tables.sufficiency(table, DIVERGENCES[name])
    else:
        value, payoff = tables.penalty(
            table, DIVERGENCES[name], weighting=kind.weighting
        )
    gradient = payoff[strata.code, :, group] / len(prob)
    gradient[strata.code < 0] = 0.0
    assert value == pytest.approx(expected["R"], rel=RTOL)
    np.testing.assert_allclose(gradient, expected["grad"], rtol=RTOL, atol=DECIMAL)


@every_notion
@pytest.mark.parametrize("name", [name for name in DIVERGENCES if name != "tv"])
def test_the_penalty_for_training_is_the_same_above_its_ratio_floor(
    samples, notion, name
):
    prob, group, labels, reference = samples
    kind, expected = NOTIONS[notion], reference["results"][name][notion]
    attribute = Attribute("group", ("a", "b", "c"), group)
    rows = Rows((attribute,), kind.strata(labels), np.ones(len(prob)))
    objective = make_objective(DIVERGENCES[name], kind)
    penalty = Penalty(objective, rows, tuple(range(prob.shape[1])))
    value, payoffs = penalty.on_tables(penalty.tables(prob))
    gradient = penalty.by_prob(prob, payoffs)
    assert value == pytest.approx(expected["R"], rel=RTOL)
    np.testing.assert_allclose(gradient, expected["grad"], rtol=RTOL, atol=DECIMAL)
