"""Each baseline reproduces a number that another library, or a definition, gives.

Data are Adult and German as they ship. docs/paper/baselines.md lists the numbers.
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize, minimize_scalar
from scipy.spatial.distance import cdist, jensenshannon, pdist
from scipy.special import expit
from scipy.stats import gaussian_kde, norm, wasserstein_distance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.svm import LinearSVC

from fferm import FairLogisticRegression
from fferm.datasets import load_german
from fferm.lab.baselines import (
    CovarianceConstraint,
    CurvatureMatching,
    EnergyDistance,
    ExponentiatedGradient,
    FairretNorm,
    Fermi,
    IndependenceCriterion,
    KernelChiSquare,
    KernelDensityClassifier,
    KernelMatching,
    LearnedFairRepresentations,
    LinearFERM,
    MinMaxDivergence,
    NoisyGroupsRobust,
    ReductionsGrid,
    RelaxedThresholds,
    RenyiFairInference,
    RobustCovariateShift,
    ThresholdPostprocessing,
    TrainingRows,
    WassersteinClassifier,
    WassersteinRobust,
)
from fferm.lab.baselines.robust import play, play_on_labels

L2 = 1e-4


@pytest.fixture(scope="module")
def data():
    return load_german("age_over_25")


@pytest.fixture(scope="module")
def group(data):
    return (data.sensitive_features.to_numpy().ravel() == ">25").astype(np.int64)


@pytest.fixture(scope="module")
def prob(data):
    """What a plain model says of each applicant."""
    model = LogisticRegression(max_iter=1000).fit(data.X, data.y)
    return model.predict_proba(data.X)[:, 1]


def fitted(model, data):
    return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def value_and_slope(baseline, prob, group):
    slope = np.zeros(prob.size)
    value = baseline.penalty(prob, group, 2, np.array(baseline()._settings()), slope)
    return value, slope


def test_wasserstein_distances_are_those_of_scipy(prob, group):
    expected = sum(
        np.mean(group == k) * wasserstein_distance(prob[group == k], prob)
        for k in (0, 1)
    )
    value, _ = value_and_slope(WassersteinClassifier, prob, group)
    assert value == pytest.approx(expected, rel=1e-9)


def test_discrepancies_are_those_of_the_kernel_of_scikit_learn(prob, group):
    kernel = laplacian_kernel(prob[:, None], gamma=10)
    weight = np.where(group == 1, 1 / np.sum(group == 1), -1 / np.sum(group == 0))
    value, _ = value_and_slope(KernelMatching, prob, group)
    assert value == pytest.approx(weight @ kernel @ weight / 4, rel=1e-9)


def test_the_independence_criterion_is_the_trace_of_centred_kernels(prob, group):
    kernel, same = laplacian_kernel(prob[:, None], gamma=10), group[:, None] == group
    centre = np.eye(prob.size) - 1 / prob.size
    expected = np.trace(kernel @ centre @ same @ centre) / prob.size**2
    value, _ = value_and_slope(IndependenceCriterion, prob, group)
    assert value == pytest.approx(expected, rel=1e-9)


def test_energy_distances_are_those_of_the_distances_of_scipy(prob, group):
    first, second = (prob[group == k, None] for k in (0, 1))
    expected = 2 * cdist(first, second).mean() - pdist(first).mean()
    value, _ = value_and_slope(EnergyDistance, prob, group)
    assert value == pytest.approx(expected - pdist(second).mean(), rel=1e-9)


def test_the_mean_energy_distance_of_batches_is_that_of_all_rows(prob):
    rows, group = prob[:7], np.array([0, 0, 0, 0, 1, 1, 1])
    batches = [
        [*first, *second]
        for first in itertools.combinations(range(4), 2)
        for second in itertools.combinations(range(4, 7), 2)
    ]
    parts = [value_and_slope(EnergyDistance, rows[b], group[b])[0] for b in batches]
    whole, _ = value_and_slope(EnergyDistance, rows, group)
    assert np.mean(parts) == pytest.approx(whole, rel=1e-9)


def test_the_divergence_of_binned_scores_is_that_of_scipy(prob, group):
    knots = np.linspace(0, 1, 11)
    belongs = np.maximum(1 - 10 * np.abs(prob[:, None] - knots), 0)
    expected = sum(
        np.mean(group == k)
        * 2  # as fferm's Jensen-Shannon is
        * jensenshannon(belongs[group == k].mean(axis=0), belongs.mean(axis=0)) ** 2
        for k in (0, 1)
    )
    value, _ = value_and_slope(MinMaxDivergence, prob, group)
    assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("notion", RelaxedThresholds.notions)
def test_relaxed_thresholds_have_the_rates_that_error_parity_plans(data, group, notion):
    pytest.importorskip("error_parity")
    model = fitted(RelaxedThresholds(notion=notion, tolerance=0.02), data)
    chance = model.predict_proba(data.X, sensitive_features=data.sensitive_features)
    for k, planned in enumerate(model.model_.groupwise_roc_points):
        by_label = [chance[(group == k) & (data.y == y), 1].mean() for y in (0, 1)]
        assert_allclose(by_label, planned, atol=1e-9)


def test_curvatures_are_those_of_second_derivatives_by_the_features(data, group):
    """The penalty matches what scikit-learn's kernel makes of them."""
    torch = pytest.importorskip("torch")
    model = fitted(CurvatureMatching(fairness_weight=0), data)
    theta, y = torch.tensor(model.coef_[0]), torch.tensor(data.y[:20]).double()

    def loss(x, label):
        logit = x @ theta + model.intercept_[0]
        return torch.nn.functional.binary_cross_entropy_with_logits(logit, label)

    second = [
        torch.autograd.functional.hessian(lambda x, i=i: loss(x, y[i]), row)
        for i, row in enumerate(torch.tensor(data.X[:20]))
    ]
    largest = [torch.linalg.matrix_norm(matrix, 2).item() for matrix in second]
    prob = model.predict_proba(data.X)[:, 1]
    curvature = prob * (1 - prob)
    assert_allclose(largest, curvature[:20] * np.sum(model.coef_**2), rtol=1e-9)

    weight = np.where(group == 1, 1 / np.sum(group == 1), -1 / np.sum(group == 0))
    expected = sum(
        weight @ laplacian_kernel(number[:, None], gamma=1 / h) @ weight / 4
        for number, h in ((prob, 0.1), (curvature, 0.025))
    )
    value, _ = value_and_slope(CurvatureMatching, prob, group)
    assert value == pytest.approx(expected, rel=1e-9)


def test_smoothed_decisions_are_those_of_the_normal_distribution(prob, group):
    rate = norm.cdf((prob - 0.5) / 0.1)
    gaps = [rate[group == k].mean() - rate.mean() for k in (0, 1)]
    value, _ = value_and_slope(KernelDensityClassifier, prob, group)
    assert value == pytest.approx(np.sum(np.square(gaps)) / 2, rel=1e-9)


def test_the_kernel_chi_square_is_that_of_densities_of_scipy(prob, group):
    score = (prob - prob.mean()) / prob.std(ddof=1)
    width = (0.75 * prob.size) ** -0.2
    grid = np.linspace(-2.5, 2.5, int(min(50, 5 / width)))
    columns = []
    for k in (0, 1):
        part = score[group == k]
        density = gaussian_kde(part, bw_method=width / part.std(ddof=1))
        columns.append(part.size * density(grid))
    joint = np.array(columns) / np.sum(columns)
    product = joint.sum(axis=0) * joint.sum(axis=1, keepdims=True)
    value, _ = value_and_slope(KernelChiSquare, prob, group)
    assert value == pytest.approx(np.sum(joint**2 / product) - 1, rel=1e-9)


def test_relative_gaps_and_their_gradient_are_those_of_fairret(prob, group):
    torch = pytest.importorskip("torch")
    loss = pytest.importorskip("fairret.loss")
    statistic = pytest.importorskip("fairret.statistic")
    pred = torch.tensor(prob[:, None], requires_grad=True)
    norm_loss = loss.NormLoss(statistic.PositiveRate())
    found = norm_loss(pred, torch.eye(2).double()[group], pred_as_logit=False)
    found.backward()
    value, slope = value_and_slope(FairretNorm, prob, group)
    assert value == pytest.approx(found.item(), rel=1e-9)
    assert_allclose(slope, pred.grad[:, 0].numpy(), rtol=1e-9, atol=1e-12)


def worst_rate(prob, members, noise, way):
    """Return the largest (or least) mean within total variation of some rows."""
    n, recorded = prob.size, members / members.sum()
    # Weights q and deviations d with |q - recorded| <= d, sum q = 1, sum d <= 2 noise.
    eye = np.eye(n)
    found = linprog(
        np.concatenate([-way * prob, np.zeros(n)]),
        A_ub=np.vstack(
            [
                np.hstack([eye, -eye]),
                np.hstack([-eye, -eye]),
                np.concatenate([np.zeros(n), np.ones(n)]),
            ]
        ),
        b_ub=np.concatenate([recorded, -recorded, [2 * noise]]),
        A_eq=np.concatenate([np.ones(n), np.zeros(n)])[None],
        b_eq=[1.0],
    )
    return -way * found.fun


def test_worst_gaps_of_noisy_groups_are_those_of_linear_programming(prob, group):
    prob, group = prob[:60], group[:60]
    expected = 0.0
    for k in (0, 1):
        for way in (1, -1):
            worst = worst_rate(prob, group == k, 0.05, way)
            expected += max(0.0, way * (worst - prob.mean())) ** 2 / 2
    value, _ = value_and_slope(NoisyGroupsRobust, prob, group)
    assert value == pytest.approx(expected, rel=1e-9)


def test_learned_representations_descend_along_their_derivative(data, group):
    rows = TrainingRows(data.X, data.y.astype(float), group, 0 * group, 2, 1)
    model = LearnedFairRepresentations(fairness_weight=0.7)
    rng, step, count = np.random.default_rng(0), 1e-5, 3
    n_features = data.X.shape[1]
    theta = 0.3 * rng.normal(size=count * n_features + n_features + count)
    _, gradient = model._objective(theta, rows, count)
    for _ in range(5):
        move = rng.normal(size=theta.size)
        up, down = (
            model._objective(theta + sign * step * move, rows, count)[0]
            for sign in (1, -1)
        )
        assert (up - down) / (2 * step) == pytest.approx(gradient @ move, rel=1e-6)


def test_a_ball_of_no_radius_is_scikit_learn(data):
    plain = LogisticRegression(C=np.inf, max_iter=10_000, tol=1e-8)
    expected = plain.fit(data.X, data.y).predict_proba(data.X_test)
    model = fitted(WassersteinRobust(unfairness_share=0, radius=0), data)
    assert_allclose(model.predict_proba(data.X_test), expected, atol=0.01)


@pytest.mark.parametrize(("strategy", "of_labels"), [(play, 0), (play_on_labels, 1)])
def test_what_an_adversary_of_labels_plays_is_found_by_searching(strategy, of_labels):
    """The value of the game is that of SciPy's search for q over that for p."""
    rng, inside = np.random.default_rng(0), (1e-9, 1 - 1e-9)
    scores, pulls = rng.normal(0, 2, 30), rng.uniform(-5, 5, 30)

    def search(function):
        options = {"xatol": 1e-10}
        return minimize_scalar(
            function, bounds=inside, method="bounded", options=options
        ).fun

    for score, pull, found in zip(
        scores, pulls, strategy(scores, pulls).value, strict=True
    ):

        def best_answer(q, score=score, pull=pull):
            return score * q + search(
                lambda p: (
                    -q * np.log(p)
                    - (1 - q) * np.log(1 - p)
                    + pull * p * (q if of_labels else 1)
                )
            )

        assert found == pytest.approx(-search(lambda q: -best_answer(q)), abs=1e-7)


def test_no_violation_against_an_adversary_is_a_constraint(data, group):
    """Without a shift, SLSQP finds the same under a bound on mean probabilities."""
    model = RobustCovariateShift(notion="demographic_parity", share=0.5, l2=0.01)
    fitted(model, data)
    assert np.all(np.abs(model.pull_) < 1)  # the adversary is nowhere certain

    X = np.column_stack([data.X, np.ones(len(data.X))])
    size, d = len(X), data.X.shape[1]
    lean = np.where(group == 1, 1 / np.sum(group == 1), -1 / np.sum(group == 0))
    # The first of the groups in fferm's order has the negative sign.
    lean *= 1 if model.groups_[1] == ">25" else -1

    def loss(theta):
        score, ridge = X @ theta, np.append(0.01 * theta[:d], 0)
        value = np.mean(np.logaddexp(0, score) - data.y * score) + ridge @ theta / 2
        return value, (expit(score) - data.y) @ X / size + ridge

    def left(theta):
        return bound - lean @ expit(X @ theta)

    def left_slope(theta):
        prob = expit(X @ theta)
        return -(lean * prob * (1 - prob)) @ X

    plain = minimize(loss, np.zeros(d + 1), jac=True, method="BFGS").x
    bound = 0.5 * lean @ expit(X @ plain)
    limit = {"type": "eq", "fun": left, "jac": left_slope}
    found = minimize(
        loss,
        plain,
        jac=True,
        method="SLSQP",
        constraints=limit,
        options={"maxiter": 500, "ftol": 1e-12},
    )
    chance = model.predict_proba(data.X, sensitive_features=data.sensitive_features)
    assert_allclose(chance[:, 1], expit(X @ found.x), atol=0.01)


@pytest.mark.parametrize("baseline", [RenyiFairInference, Fermi])
def test_the_full_batch_finds_the_chi_square_optimum(baseline, data):
    ours = FairLogisticRegression(
        divergence="chi2", fairness_weight=5, solver="lbfgs", l2=L2
    )
    expected = fitted(ours, data).predict_proba(data.X_test)
    found = fitted(baseline(fairness_weight=5, l2=L2), data).predict_proba(data.X_test)
    # Both stop where the gradient is small, not where it is 0.
    assert_allclose(found, expected, atol=0.01)


def without_differences(data, group):
    """Return features moved so that both groups have the same mean."""
    difference = data.X[group == 1].mean(axis=0) - data.X[group == 0].mean(axis=0)
    unit = difference / np.linalg.norm(difference)
    return tuple(X - np.outer(X @ unit, unit) for X in (data.X, data.X_test))


def test_no_covariance_is_scikit_learn_on_moved_features(data, group):
    X, X_test = without_differences(data, group)
    plain = LogisticRegression(C=1 / (len(X) * L2), max_iter=10_000, tol=1e-8)
    expected = plain.fit(X, data.y).predict_proba(X_test)
    model = fitted(CovarianceConstraint(share=0, l2=L2), data)
    assert_allclose(model.predict_proba(data.X_test), expected, atol=0.01)


def test_linear_ferm_is_scikit_learn_on_moved_features(data, group):
    X, X_test = without_differences(data, group)
    # An intercept of large scale is hardly penalised.
    machine = LinearSVC(
        C=1 / (len(X) * L2), max_iter=200_000, intercept_scaling=100, dual=False
    )
    expected = machine.fit(X, data.y).predict(X_test)
    found = fitted(LinearFERM(share=0, l2=L2), data).predict(data.X_test)
    assert np.mean(found == expected) >= 0.99


def test_reductions_are_fairlearn_s(data):
    reductions = pytest.importorskip("fairlearn.reductions")
    plain = LogisticRegression(max_iter=1000)
    groups = data.sensitive_features.to_numpy().ravel()
    parity = reductions.DemographicParity(difference_bound=0.02)
    theirs = reductions.ExponentiatedGradient(plain, parity)
    theirs.fit(data.X, data.y, sensitive_features=groups)
    ours = fitted(ExponentiatedGradient(difference_bound=0.02), data)
    expected = theirs._pmf_predict(data.X_test)
    assert_allclose(ours.predict_proba(data.X_test), expected, atol=1e-9)

    grid = reductions.GridSearch(
        plain, reductions.DemographicParity(), grid_size=20, constraint_weight=0.5
    )
    grid.fit(data.X, data.y, sensitive_features=groups)
    expected = grid.predict(data.X_test)
    assert np.array_equal(fitted(ReductionsGrid(), data).predict(data.X_test), expected)


def test_thresholds_are_fairlearn_s(data):
    postprocessing = pytest.importorskip("fairlearn.postprocessing")
    groups, test_groups = (
        table.to_numpy().ravel()
        for table in (data.sensitive_features, data.sensitive_features_test)
    )
    theirs = postprocessing.ThresholdOptimizer(
        estimator=LogisticRegression(max_iter=1000),
        constraints="true_positive_rate_parity",
        predict_method="predict_proba",
    )
    theirs.fit(data.X, data.y, sensitive_features=groups)
    expected = theirs._pmf_predict(data.X_test, sensitive_features=test_groups)
    ours = fitted(ThresholdPostprocessing(notion="equal_opportunity"), data)
    found = ours.predict_proba(
        data.X_test, sensitive_features=data.sensitive_features_test
    )
    assert_allclose(found, expected, atol=1e-9)
