"""Fair regression with soft bins: formulas, contract, and known optima."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import check_grad
from scipy.special import softmax
from sklearn.base import clone

import fferm
from fferm import (
    FairLogisticRegression,
    FairRegressor,
    LargeShift,
    tables,
    tradeoff_curve,
)
from fferm.data.groups import quantile_bands, quantile_edges
from fferm.data.rows import FitInput
from fferm.errors import (
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
    UnknownNameError,
)
from fferm.estimators.regression import Fitted
from fferm.metrics import dependence
from fferm.notions import ConditionalParity
from fferm.penalty import losses
from fferm.penalty.losses import Absolute, Huber, Quantile, Squared
from fferm.penalty.soft_bins import make_bins
from fferm.solvers.linear import linear_logits, value_and_gradient


def placed(model, passed):
    """Return the plain model, and the penalised problem with bins around it."""
    encoded = model._prepare(passed)
    problem = encoded.problem
    plain = Fitted.linear(problem, model._train_plain(problem, None))
    return replace(plain, problem=model._place_bins(encoded, plain))


LOSSES = [Squared(), Absolute(), Huber(0.7), Quantile(0.2)]


def shifted_groups(n=2000, seed=0):
    """Two groups, Gaussian features of which two depend on the group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4))
    X[:, :2] += group[:, None] * [1.0, 0.5]
    return X, X @ [1.0, 1.0, 1.0, 0.5] + rng.normal(size=n), group


def mean_gap(prediction, group):
    return abs(prediction[group == 1].mean() - prediction[group == 0].mean())


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_slope_of_a_loss_is_its_derivative(loss):
    residual = np.linspace(-2, 2, 401) + 1e-3
    h = 1e-7
    rise = loss.value(residual + h, np) - loss.value(residual - h, np)
    np.testing.assert_allclose(loss.slope(residual, np), rise / (2 * h), atol=1e-5)


def test_a_loss_is_known_by_its_name():
    assert losses.get("squared_error") == Squared()
    assert losses.get("pinball") == Quantile(0.5)
    with pytest.raises(UnknownNameError, match="Unknown loss 'hubr'"):
        losses.get("hubr")


@pytest.mark.parametrize("make", [lambda: Huber(0), lambda: Quantile(1.0)])
def test_a_loss_refuses_a_parameter_that_means_nothing(make):
    with pytest.raises(InvalidParameterError, match=r"must be .*; got"):
        make()


def test_neighbouring_bins_share_a_prediction_alike_at_their_edge():
    bins = make_bins(np.array([-1.0, 0.0, 3.0]))
    share = softmax(bins.logits(bins.edges), axis=1)
    np.testing.assert_allclose(share.sum(axis=1), 1)
    for b, row in enumerate(share):
        assert row[b] == pytest.approx(row[b + 1])
        assert row.argmax() in (b, b + 1)


def test_steep_bins_are_hard():
    u = np.array([-2.0, -0.6, 0.4, 2.0, 9.0])
    bins = make_bins(np.array([-1.0, 0.0, 3.0]), steepness=1000.0)
    share = softmax(bins.logits(u), axis=1)
    np.testing.assert_allclose(share, np.eye(4)[np.digitize(u, bins.edges)], atol=1e-12)


def test_edges_hold_like_shares_and_cut_no_value_in_two():
    values = np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(quantile_edges(values, 2, np.ones(6)), [0.5])
    np.testing.assert_allclose(quantile_edges(values, 9, np.ones(6)), [0.5, 1.5, 2.5])
    assert quantile_edges(np.ones(5), 4, np.ones(5)).size == 0


@pytest.mark.parametrize("edges", [[], [1.0, 1.0], [2.0, 1.0], [np.nan]])
def test_edges_that_do_not_grow_are_refused(edges):
    with pytest.raises(InvalidInputError, match="edges must be finite numbers"):
        make_bins(np.array(edges))


def test_a_steepness_that_is_not_positive_is_refused():
    with pytest.raises(
        InvalidParameterError, match="must be a finite number above 0; got 0"
    ):
        make_bins(np.zeros(1), steepness=0)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("divergence", ["kl", "chi2", "jensen_shannon"])
def test_the_gradient_of_the_objective_is_exact(loss, divergence):
    X, y, group = shifted_groups(200)
    model = FairRegressor(
        loss=loss, divergence=divergence, fairness_weight=2.0, l2=0.1, n_bins=5
    )
    problem = placed(model, FitInput(X, y, group)).problem
    theta = np.array([0.3, -0.2, 0.5, 0.1, 0.2])

    def value(flat):
        return value_and_gradient(problem, flat[None])[0]

    def gradient(flat):
        return value_and_gradient(problem, flat[None])[1][0]

    assert check_grad(value, gradient, theta) < 1e-6


def test_without_a_weight_it_is_ordinary_least_squares():
    X, y, _ = shifted_groups()
    model = FairRegressor(fairness_weight=0).fit(X, y)
    design = np.column_stack([X, np.ones(len(X))])
    exact = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef_, model.intercept_], exact, atol=1e-8)
    assert model.groups_.size == 0


@pytest.mark.parametrize("divergence", ["kl", "chi2", "total_variation"])
def test_the_gap_falls_as_the_weight_grows(divergence):
    X, y, group = shifted_groups()
    weights = [0, 1, 5] if divergence == "total_variation" else [0, 1, 30]
    gaps = [
        mean_gap(
            FairRegressor(divergence=divergence, fairness_weight=weight)
            .fit(X, y, sensitive_features=group)
            .predict(X),
            group,
        )
        for weight in weights
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.2 * gaps[0]


def test_the_unit_of_y_changes_nothing():
    X, y, group = shifted_groups()
    small = FairRegressor().fit(X, y, sensitive_features=group)
    large = FairRegressor().fit(X, 1e4 * y + 5e5, sensitive_features=group)
    np.testing.assert_allclose(
        large.predict(X), 1e4 * small.predict(X) + 5e5, rtol=1e-7
    )
    np.testing.assert_allclose(large.bin_edges_, 1e4 * small.bin_edges_ + 5e5)


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_the_quantile_loss_predicts_the_quantile(level):
    X, y, _ = shifted_groups()
    model = FairRegressor(fairness_weight=0, loss=Quantile(level)).fit(X, y)
    assert np.mean(y <= model.predict(X)) == pytest.approx(level, abs=0.01)


@pytest.mark.parametrize("loss", ["absolute", Huber(0.01)], ids=repr)
def test_absolute_and_huber_losses_bear_outliers(loss):
    X, y, _ = shifted_groups()
    spoiled = np.where(np.arange(y.size) % 50 == 0, y + 1000, y)
    truth = X @ [1.0, 1.0, 1.0, 0.5]
    for kind, bears in (("squared", False), (loss, True)):
        model = FairRegressor(fairness_weight=0, loss=kind).fit(X, spoiled)
        assert (np.abs(model.predict(X) - truth).mean() < 1) == bears


def test_weights_count_as_repeated_rows():
    X, y, group = shifted_groups(300)
    weight = np.random.default_rng(1).integers(1, 4, size=300)
    weighted = FairRegressor().fit(X, y, sensitive_features=group, sample_weight=weight)
    rows = np.repeat(np.arange(300), weight)
    repeated = FairRegressor().fit(X[rows], y[rows], sensitive_features=group[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)


def test_sparse_features_train_as_dense_ones():
    X, y, group = shifted_groups(500)
    X[np.abs(X) < 0.5] = 0
    dense = FairRegressor().fit(X, y, sensitive_features=group)
    sparse = FairRegressor().fit(scipy.sparse.csr_array(X), y, sensitive_features=group)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6)


def test_given_the_control_feature_predictions_are_fair_within_it():
    rng = np.random.default_rng(0)
    control = rng.integers(2, size=4000)
    group = (rng.random(4000) < np.where(control, 0.7, 0.3)).astype(int)
    X = np.column_stack([2.0 * control, rng.normal(size=4000) + group])
    y = X.sum(axis=1) + rng.normal(size=4000)
    notion = ConditionalParity(control)
    model = FairRegressor(notion=notion, fairness_weight=30)
    fair = model.fit(X, y, sensitive_features=group).predict(X)
    for value in (0, 1):
        inside = control == value
        assert mean_gap(fair[inside], group[inside]) < 0.1
    # What the control feature explains may stay.
    assert mean_gap(fair, group) > 0.5


def test_the_penalty_may_be_taken_on_other_rows():
    X, y, _ = shifted_groups()
    other, _, other_group = shifted_groups(seed=1)
    model = FairRegressor(fairness_weight=30)
    model.fit(X, y, penalty_data=(other, other_group))
    plain = FairRegressor(fairness_weight=0).fit(X, y)
    gaps = [mean_gap(m.predict(other), other_group) for m in (plain, model)]
    assert gaps[1] < 0.2 * gaps[0]


def test_a_worst_case_over_shifts_can_be_penalised():
    X, y, group = shifted_groups(500)
    robust = FairRegressor(uncertainty=LargeShift(0.005), n_bins=4, fairness_weight=3)
    robust.fit(X, y, sensitive_features=group)
    plain = FairRegressor(fairness_weight=0).fit(X, y)
    assert mean_gap(robust.predict(X), group) < mean_gap(plain.predict(X), group)


def test_a_path_gives_the_models_of_single_fits():
    X, y, group = shifted_groups()
    path = FairRegressor().fit_path(FitInput(X, y, group), [0.0, 1.0, 5.0])
    for model, weight in zip(path, [0.0, 1.0, 5.0], strict=True):
        assert model.fairness_weight_ == weight
        alone = FairRegressor(fairness_weight=weight)
        alone.fit(X, y, sensitive_features=group)
        np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-4)


def test_a_saved_regressor_predicts_as_before(tmp_path):
    X, y, group = shifted_groups(200)
    model = FairRegressor(loss=Huber(0.5)).fit(X, y, sensitive_features=group)
    fferm.save(model, tmp_path / "model.fferm")
    loaded = fferm.load(tmp_path / "model.fferm")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.loss == Huber(0.5)


def test_a_warm_start_goes_on_from_the_last_fit():
    X, y, group = shifted_groups()
    model = FairRegressor(warm_start=True).fit(X, y, sensitive_features=group)
    first = model.n_iter_
    model.fit(X, y, sensitive_features=group)
    assert model.n_iter_ < first


def test_without_groups_it_refuses_to_train_unfairly():
    X, y, _ = shifted_groups(50)
    with pytest.raises(MissingSensitiveError, match="needs sensitive_features"):
        FairRegressor().fit(X, y)


@pytest.mark.parametrize("notion", ["equalized_odds", "sufficiency"])
def test_notions_that_need_a_label_are_refused_with_advice(notion):
    X, y, group = shifted_groups(50)
    with pytest.raises(InvalidParameterError, match="ConditionalParity"):
        FairRegressor(notion=notion).fit(X, y, sensitive_features=group)


def test_labels_of_penalty_rows_are_refused():
    X, y, group = shifted_groups(50)
    with pytest.raises(InvalidInputError, match="three parts"):
        FairRegressor().fit(X, y, penalty_data=(X, group, y))


def test_where_predictions_take_few_values_the_bins_are_the_classes():
    # A one-hot feature: the model predicts one number for each of three kinds, so a
    # table of kinds and groups is all there is to know.
    rng = np.random.default_rng(0)
    kind, group = rng.integers(3, size=900), rng.integers(2, size=900)
    X = np.eye(3)[kind]
    y = np.array([0.0, 1.0, 3.0])[kind] + 0.3 * rng.normal(size=900)
    model = FairRegressor(fairness_weight=0.5, steepness=60.0)
    plain = placed(model, FitInput(X, y, group))
    assert plain.problem.bins.n_bins == 3
    binned = plain.problem.fairness(linear_logits(X, plain.theta[None]))[0]
    table = tables.joint(np.eye(3)[kind], group, 2)
    discrete = 0.5 * tables.penalty(table, "kl")[0]
    assert binned == pytest.approx(discrete, rel=0.02)


def front(c, across, along, cost):
    """Return the least excess error of a linear model whose groups lie ``c`` apart.

    Two groups of unit Gaussian features, ``delta`` apart, and ``y = beta' x + noise``.
    With ``w = a beta_across + (g / |delta|^2) delta`` the groups lie ``g`` apart in
    units of ``sqrt(a^2 |beta_across|^2 + g^2 / |delta|^2)``, which is c if ``g = k a``;
    what is left is a parabola in ``a``.
    """
    beta_across, gap, length = across, along, cost
    k = c * np.sqrt(beta_across / (1 - c**2 / length))
    stiff = 1 / length + 0.25
    a = (beta_across + k * gap * stiff) / (beta_across + k**2 * stiff)
    return (1 - a) ** 2 * beta_across + (gap - k * a) ** 2 * stiff


def excess_and_distance(coef):
    """Return the excess error and the distance of the groups of `shifted_groups`."""
    beta, delta = np.array([1.0, 1.0, 1.0, 0.5]), np.array([1.0, 0.5, 0, 0])
    off = beta - coef
    excess = off @ off + 0.25 * (off @ delta) ** 2
    return excess, abs(coef @ delta) / np.linalg.norm(coef)


def closed_form(c):
    beta, delta = np.array([1.0, 1.0, 1.0, 0.5]), np.array([1.0, 0.5, 0, 0])
    length = delta @ delta
    gap = beta @ delta
    return front(c, beta @ beta - gap**2 / length, gap, length)


def test_the_closed_form_front_begins_at_the_plain_model_and_ends_at_independence():
    beta, delta = np.array([1.0, 1.0, 1.0, 0.5]), np.array([1.0, 0.5, 0, 0])
    assert closed_form(beta @ delta / np.linalg.norm(beta)) == pytest.approx(0)
    fair = beta - (beta @ delta) / (delta @ delta) * delta
    assert closed_form(0.0) == pytest.approx(excess_and_distance(fair)[0])


def test_the_full_batch_front_is_that_of_gaussian_data():
    X, y, group = shifted_groups(20000)
    weights = [0.3, 1.0, 3.0, 10.0, 50.0]
    distances = []
    for model in FairRegressor().fit_path(FitInput(X, y, group), weights):
        excess, distance = excess_and_distance(model.coef_)
        assert 1 + excess == pytest.approx(1 + closed_form(distance), rel=0.03)
        distances.append(distance)
    assert distances[0] > 0.75
    assert distances[-1] < 0.05


@pytest.mark.parametrize(
    ("metric", "bound"), [("kolmogorov_smirnov", 0.15), ("mean_gap", 0.4)]
)
def test_the_smallest_weight_that_keeps_a_named_bound_is_found(metric, bound):
    X, y, group = shifted_groups(3000)
    options = {"violation_metric": metric, "confidence": None, "refit": True}
    model = FairRegressor(max_violation=bound, random_state=0, **options)
    model.fit(X, y, sensitive_features=group)
    assert model.feasible_
    assert 0.6 * bound < model.violation_ <= bound
    measure = dependence.get_measure(metric)
    assert measure(model.predict(X), group) < 1.3 * bound


def test_a_bound_on_numbers_is_kept_with_a_control_feature():
    rng = np.random.default_rng(0)
    age, control = rng.normal(size=2000), rng.integers(2, size=2000)
    X = np.column_stack([age + rng.normal(size=2000), rng.normal(size=2000)])
    y = X.sum(axis=1) + rng.normal(size=2000)
    model = FairRegressor(
        max_violation=0.2,
        violation_metric="distance_correlation",
        notion=ConditionalParity(control),
        confidence=None,
        random_state=0,
    )
    model.fit(X, y, sensitive_features={"age": age})
    assert model.feasible_
    assert model.violation_ <= 0.2


def test_a_bound_that_nothing_keeps_is_warned_of():
    X, y, group = shifted_groups(300)
    model = FairRegressor(max_violation=0.0, confidence=None, random_state=0)
    with pytest.warns(InfeasibleWarning, match="kolmogorov_smirnov on 60 held-out"):
        model.fit(X, y, sensitive_features=group)
    assert not model.feasible_
    with pytest.warns(InfeasibleWarning) as warned:
        model.set_params(confidence=0.95).fit(X, y, sensitive_features=group)
    before, after = (str(each.message) for each in warned)
    assert "=0 is below what a perfectly fair model measures on the held-out" in before
    assert "for kolmogorov_smirnov at confidence=" in after
    assert not model.feasible_


@pytest.mark.parametrize(
    ("metric", "bound"),
    [("kolmogorov_smirnov", 0.15), ("mean_gap", 0.9), ("wasserstein", 0.9)],
)
def test_a_distance_that_passes_its_test_is_that_of_the_returned_model(metric, bound):
    X, y, group = shifted_groups(4000)
    options = {"violation_metric": metric, "max_violation": bound, "random_state": 0}
    model = FairRegressor(**options).fit(X, y, sensitive_features=group)
    assert model.feasible_
    held_out = model._hold_out(clone(model)._encode(FitInput(X, y, group)))
    judged = held_out.judge(model)
    assert judged.passes
    assert judged.violation == pytest.approx(model.violation_, abs=1e-12)
    assert judged.violation < bound
    by_value = FairRegressor(**options, confidence=None)
    by_value.fit(X, y, sensitive_features=group)
    assert model.fairness_weight_ > by_value.fairness_weight_


def test_a_measure_of_numbers_has_no_confidence():
    X, y, group = shifted_groups(100)
    model = FairRegressor(max_violation=0.1, violation_metric="correlation")
    words = "confidence must be None with 'correlation'"
    with pytest.raises(InvalidParameterError, match=words):
        model.fit(X, y, sensitive_features=group + 0.5)


def test_a_metric_that_is_not_known_or_has_no_numbers_is_refused():
    X, y, group = shifted_groups(100)
    names = np.where(group, "a", "b")
    with pytest.raises(UnknownNameError, match="Unknown measure 'ks'"):
        FairRegressor(max_violation=0.1, violation_metric="ks").fit(
            X, y, sensitive_features=names
        )
    with pytest.raises(InvalidInputError, match="needs a numeric sensitive column"):
        FairRegressor(
            max_violation=0.1, violation_metric="correlation", confidence=None
        ).fit(X, y, sensitive_features=names)


def test_a_curve_takes_a_regressor():
    X, y, group = shifted_groups(1000)
    curve = tradeoff_curve(
        FairRegressor(), X, y, sensitive_features=group, fairness_weights=[0, 1, 20]
    )
    test = curve.records[curve.records["split"] == "test"]
    assert test["violation"].iloc[-1] < 0.5 * test["violation"].iloc[0]
    assert test["accuracy"].iloc[0] > test["accuracy"].iloc[-1]
    assert test["mean_gap"].is_monotonic_decreasing
    assert isinstance(curve.select(max_violation=0.2), FairRegressor)
    assert curve.pareto().shape[0] >= 2


def test_continuous_attributes_are_cut_into_bands_for_classifiers_too():
    rng = np.random.default_rng(0)
    age = rng.normal(size=2000)
    X = np.column_stack([age + rng.normal(size=2000), rng.normal(size=2000)])
    y = (X.sum(axis=1) + rng.normal(size=2000) > 0).astype(int)
    sensitive = {"age": age, "sex": rng.integers(2, size=2000)}
    found = []
    for weight in (0.0, 30.0):
        model = FairLogisticRegression(fairness_weight=weight, groups="marginal")
        prob = model.fit(X, y, sensitive_features=sensitive).predict_proba(X)[:, 1]
        found.append(dependence.distance_correlation(prob, age))
    assert len(model.groups_) == 8 + 2
    assert found[1] < 0.3 * found[0]


def test_bands_are_named_by_their_edges_and_keep_gaps():
    ages = [17, 18, None, 30, 41, 52, 60]
    assert quantile_bands(ages, 3).tolist() == [
        "below 24", "below 24", None, "24 to 46.5", "24 to 46.5", "46.5 and above",
        "46.5 and above",
    ]  # fmt: skip
    with pytest.raises(
        InvalidParameterError, match="n_bands must be an integer of at least 2; got 1"
    ):
        quantile_bands(ages, 1)
    with pytest.raises(InvalidInputError, match="non-numeric values"):
        quantile_bands(["a", "b"])
    with pytest.raises(InvalidInputError, match="All numbers are missing"):
        quantile_bands([np.nan, np.nan])


def test_a_curve_of_regressors_is_kept_on_disk_and_drawn(tmp_path):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 400)
    X = np.column_stack([group + rng.normal(size=400), rng.normal(size=400)])
    y = X.sum(axis=1) + rng.normal(size=400)
    options = {"sensitive_features": group, "fairness_weights": [0, 20]}
    kept = tradeoff_curve(FairRegressor(), X, y, **options, records=tmp_path / "kept")
    again = tradeoff_curve(FairRegressor(), X, y, **options, records=tmp_path / "kept")
    assert kept.records.equals(again.records)
    kept.to_html(tmp_path / "curve.html")
    assert "FairRegressor" in (tmp_path / "curve.html").read_text(encoding="utf-8")


# Sharpness


@pytest.mark.parametrize("solver", ["lbfgs", "sgda"])
def test_sharper_bins_are_steeper_ones(solver):
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=400)
    X = np.column_stack([rng.normal(size=400) + group, rng.normal(size=400)])
    y = X @ [1.0, 2.0] + rng.normal(size=400)
    options = {"fairness_weight": 5.0, "solver": solver, "random_state": 0}
    options |= {"max_epochs": 10}
    found = [
        FairRegressor(**options, **bins).fit(X, y, sensitive_features=group).coef_
        for bins in ({"sharpness": 3.0}, {"steepness": 12.0}, {})
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert not np.allclose(found[0], found[2], rtol=1e-3)


def test_a_critic_has_no_bins_to_sharpen():
    X = np.arange(40.0)[:, None]
    model = FairRegressor(method="critic", sharpness=2.0)
    with pytest.raises(
        InvalidParameterError,
        match=r"sharpness must be 1 with method='critic'.*got 2\.0",
    ):
        model.fit(X, X[:, 0], sensitive_features=np.arange(40) % 2)
    with pytest.raises(
        InvalidParameterError, match="sharpness must be a finite number above 0; got 0"
    ):
        FairRegressor(sharpness=0).fit(X, X[:, 0], sensitive_features=np.arange(40) % 2)
