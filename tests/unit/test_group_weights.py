"""Equal weights of groups in the penalty: one table for all ways of training."""

import numpy as np
import pytest
import torch
from torch import nn

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    tradeoff_curve,
)
from fferm.boosting.objective import ScoreObjective
from fferm.data.rows import FitInput
from fferm.errors import InvalidParameterError
from fferm.metrics import group_table
from fferm.solvers.linear import linear_logits
from fferm.tables import joint, penalty
from fferm.torch import FairnessLoss, SemiStochasticFairnessLoss

RNG = np.random.default_rng(0)
N = 1200
GROUP = RNG.choice(3, N, p=[0.75, 0.2, 0.05])
X = RNG.normal(size=(N, 3)) + 0.8 * GROUP[:, None] * [1.0, 0.5, 0.0]
Y = (X.sum(axis=1) + RNG.normal(size=N) > 1).astype(int)
WEIGHT = RNG.uniform(0.5, 2.0, N)
NOTIONS = ["demographic_parity", "equal_opportunity", "equalized_odds", "sufficiency"]


def encoded(model, **options):
    return model._encode(FitInput(X, Y, GROUP, **options))


def make(**options):
    options = {"fairness_weight": 5.0, "group_weights": "equal", **options}
    return FairLogisticRegression(**options)


def test_the_penalty_is_that_of_the_table_with_equal_columns():
    prob = RNG.dirichlet([1, 1], N)
    problem = encoded(make(divergence="chi2"), sample_weight=WEIGHT).problem
    table = joint(prob, GROUP, 3, sample_weight=WEIGHT)
    even = table / table.sum(axis=0) / 3

    found, _ = problem.penalty.on_tables(problem.penalty.tables(prob))

    assert found == pytest.approx(penalty(even, "chi2")[0], rel=1e-12)


def test_within_labels_groups_count_alike_and_labels_as_before():
    rows = encoded(make(notion="equalized_odds"), sample_weight=WEIGHT).rows
    mass = rows.cell_sums[0].weight[1:, 1:]
    before = np.bincount(Y, WEIGHT) / WEIGHT.sum()

    np.testing.assert_allclose(mass / mass.sum(), np.tile(before[:, None] / 3, 3))


def test_under_sufficiency_groups_count_alike_over_all_labels():
    rows = encoded(make(notion="sufficiency")).rows
    mass = rows.cell_sums[0].weight[1:, 1:]

    np.testing.assert_allclose(mass.sum(axis=0), mass.sum() / 3)
    plain = joint(np.eye(2)[Y], GROUP, 3)
    np.testing.assert_allclose(mass / mass.sum(axis=0), plain / plain.sum(axis=0))


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_full_batch_ends_where_the_oracle_has_no_slope(notion):
    model = make(notion=notion, l2=1e-3, tol=1e-8).fit(X, Y, sensitive_features=GROUP)
    problem = encoded(model).problem
    theta = np.column_stack([model.coef_, model.intercept_])

    _, by_logits = problem.value_and_gradient(linear_logits(problem.X, theta))

    slope = by_logits[:, 1] @ problem.X + 1e-3 * model.coef_[0]
    np.testing.assert_allclose(slope, 0, atol=1e-5)
    assert abs(by_logits[:, 1].sum()) < 1e-5


@pytest.mark.parametrize("notion", NOTIONS[:3])
def test_minibatches_and_networks_reach_the_objective_of_the_full_batch(notion):
    exact = make(notion=notion).fit(X, Y, sensitive_features=GROUP)
    batches = make(notion=notion, solver="sgda", max_epochs=60, random_state=0)
    net = FairNetClassifier(
        module=lambda n_features, n_classes: nn.Linear(n_features, n_classes),
        notion=notion,
        **{"fairness_weight": 5.0, "group_weights": "equal", "sharpness": 1.0},
        **{"weight_decay": 0.0, "learning_rate": 0.02, "max_epochs": 60},
        **{"batch_size": 100, "random_state": 0},
    )
    problem = encoded(exact).problem
    values = []
    for model in (exact, batches, net):
        model.fit(X, Y, sensitive_features=GROUP)
        scores = model.decision_function(X)
        logits = np.column_stack([np.zeros(N), scores])
        values.append(problem.value_and_gradient(logits)[0])
    assert values[0] - 1e-6 <= min(values[1:])
    assert max(values[1:]) <= values[0] * 1.02
    # The objective with groups by their shares is another one.
    other = encoded(make(notion=notion, group_weights="share")).problem
    assert other.value_and_gradient(logits)[0] != pytest.approx(values[2], rel=1e-3)


@pytest.mark.parametrize("notion", NOTIONS)
def test_trees_see_the_objective_of_the_oracle(notion):
    problem = encoded(make(notion=notion), sample_weight=WEIGHT).problem
    scores = RNG.normal(size=N)
    objective = ScoreObjective(problem.objective, Y, WEIGHT, 2, problem.penalty)

    found = objective.value(scores[None])

    logits = np.column_stack([np.zeros(N), scores])
    assert found == pytest.approx(problem.value_and_gradient(logits)[0], rel=1e-9)


def test_a_small_group_is_brought_closer_to_the_others():
    models = {
        name: make(group_weights=name, fairness_weight=3.0).fit(
            X, Y, sensitive_features=GROUP
        )
        for name in ("share", "equal")
    }
    rates = {
        name: group_table(Y, model.predict(X), sensitive_features=GROUP)
        for name, model in models.items()
    }
    gaps = {
        name: np.ptp(table["selection_rate_1"].to_numpy())
        for name, table in rates.items()
    }
    assert gaps["equal"] < gaps["share"]


def test_every_estimator_takes_equal_weights():
    y = X.sum(axis=1)
    options = {"fairness_weight": 5.0, "random_state": 0}
    for model, target in (
        (FairBoostingClassifier(n_estimators=20, n_jobs=1, **options), Y),
        (FairNetClassifier(hidden=(4,), batch_size=50, **options), Y),
        (FairRegressor(**options), y),
    ):
        share = model.fit(X, target, sensitive_features=GROUP).predict(X)
        model.set_params(group_weights="equal").fit(X, target, sensitive_features=GROUP)
        assert np.any(model.predict(X) != share)


def test_a_curve_records_the_divergence_as_trained():
    curve = tradeoff_curve(
        make(),
        X,
        Y,
        sensitive_features=GROUP,
        test=(X, Y, GROUP),
        fairness_weights=[0, 5],
    )
    model = curve.models[5.0, 0]
    even = joint(model.predict_proba(X), GROUP, 3)
    even = even / even.sum(axis=0) / 3
    record = curve.records.query("fairness_weight == 5 and split == 'train'")
    expected = penalty(even, "kl")[0]
    assert record["divergence"].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_refreshed_loss_is_the_penalty_of_the_oracle(notion, is_weighted):
    weight = WEIGHT if is_weighted else None
    problem = encoded(make(notion=notion), sample_weight=weight).problem
    logits = np.column_stack([np.zeros(N), RNG.normal(size=N)])
    expected, by_logits = problem.fairness(logits)
    fair = SemiStochasticFairnessLoss.from_labels(
        Y, GROUP, notion=notion, sample_weight=weight, group_weights="equal"
    )
    rows = torch.tensor(GROUP), torch.tensor(Y)
    weights = torch.tensor(WEIGHT) if is_weighted else None
    output = torch.tensor(logits, requires_grad=True)

    found = fair.refresh_from([(output, *rows, None, weights)])
    value = fair(output, *rows, sample_weight=weights)
    (gradient,) = torch.autograd.grad(value, output)

    assert found.divergence == pytest.approx(expected / 5, rel=1e-9)
    assert value.item() == pytest.approx(expected / 5, rel=1e-9)
    np.testing.assert_allclose(gradient, by_logits / 5, rtol=1e-8, atol=1e-12)


def test_a_loss_of_several_columns_one_by_one_is_refused():
    with pytest.raises(InvalidParameterError, match="needs one set of groups"):
        FairnessLoss.from_labels(
            Y,
            {"a": GROUP, "b": GROUP % 2},
            groups="marginal",
            group_weights="equal",
        )


def test_what_cannot_be_balanced_is_refused():
    columns = {"a": GROUP, "b": GROUP % 2}
    with pytest.raises(InvalidParameterError, match="needs one set of groups"):
        make(groups="marginal").fit(X, Y, sensitive_features=columns)
    with pytest.raises(InvalidParameterError, match="group_weights='share'"):
        make().partial_fit(X, Y, classes=[0, 1], sensitive_features=GROUP)
    with pytest.raises(InvalidParameterError, match="group_weights must be"):
        make(group_weights="even").fit(X, Y, sensitive_features=GROUP)
