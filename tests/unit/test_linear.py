"""Fair logistic regression: against scikit-learn, and as its users meet it."""

import sys
import warnings

import numba
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from fferm import (
    FairLogisticRegression,
    LargeShift,
    SmallShift,
    _jit,
    tradeoff_curve,
)
from fferm.data.rows import FitInput
from fferm.datasets import make_biased
from fferm.divergences import Alpha
from fferm.errors import (
    CollapseWarning,
    ConvergenceWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
    UnknownNameError,
)
from fferm.metrics import soft_violation, violation
from fferm.notions import (
    ConditionalParity,
    EqualizedOdds,
    EqualOpportunity,
    FalsePositiveRateParity,
    PredictiveParity,
)
from fferm.solvers import Result
from fferm.solvers.linear import value_and_gradient
from fferm.tables import joint
from fferm.tuning import tune

L2 = 1e-3


class Rows:
    """Synthetic rows as plain arrays."""

    def __init__(self, n_samples=800, seed=0, **options):
        data = make_biased(n_samples, random_state=seed, **options)
        self.X = np.asarray(data.X)
        self.y = np.asarray(data.y)
        self.s = data.sensitive_features["group"].to_numpy()
        self.X_test = np.asarray(data.X_test)
        self.y_test = np.asarray(data.y_test)
        self.s_test = data.sensitive_features_test["group"].to_numpy()

    def fit(self, model, **options):
        return model.fit(self.X, self.y, sensitive_features=self.s, **options)

    def soft_violation(self, model, notion="demographic_parity"):
        return soft_violation(
            self.y,
            model.predict_proba(self.X),
            classes=model.classes_.tolist(),
            sensitive_features=self.s,
            notion=notion,
        )


@pytest.fixture(scope="module")
def binary():
    return Rows()


@pytest.fixture(scope="module")
def three():
    """Three classes and three groups."""
    return Rows(1200, n_classes=3, n_groups=3)


def same_model(first, second, rtol=1e-4):
    size = np.abs(first.coef_).max()
    np.testing.assert_allclose(second.coef_, first.coef_, rtol=0, atol=rtol * size)
    np.testing.assert_allclose(
        second.intercept_, first.intercept_, rtol=0, atol=rtol * size
    )


def ridge_objective(model, X, y, weight):
    loss = log_loss(y, model.predict_proba(X), sample_weight=weight)
    return loss + L2 / 2 * np.sum(model.coef_**2)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weight_zero_is_the_optimum_of_scikit_learn(
    n_classes, form, is_weighted, fit_intercept
):
    data = Rows(600, n_classes=n_classes, seed=4)
    X = data.X + 0.8  # off centre, so that intercepts matter
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.2, 3.0, len(X)) if is_weighted else np.ones(len(X))
    ours = FairLogisticRegression(
        fairness_weight=0, l2=L2, fit_intercept=fit_intercept, tol=1e-8
    ).fit(form(X), data.y, sample_weight=weight)
    theirs = LogisticRegression(
        C=1 / (weight.sum() * L2), fit_intercept=fit_intercept, tol=1e-10, max_iter=5000
    ).fit(X, data.y, sample_weight=weight)

    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.intercept_.shape == (1 if n_classes == 2 else 3,)
    same_model(theirs, ours)
    costs = [ridge_objective(m, X, data.y, weight) for m in (ours, theirs)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-8)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_sparse_features_may_have_long_indices(binary):
    X = scipy.sparse.csr_array(binary.X)
    plain = FairLogisticRegression(fairness_weight=0).fit(X, binary.y)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)

    model = FairLogisticRegression(fairness_weight=0).fit(X, binary.y)

    same_model(plain, model, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


def test_weight_zero_needs_no_groups_and_has_none(binary):
    model = FairLogisticRegression(fairness_weight=0).fit(binary.X, binary.y)

    assert model.groups_.size == 0
    assert model.dual_.size == 0


@pytest.mark.parametrize("fairness_weight", [1.0, 1e-6, np.float64(2)])
def test_fairness_without_groups_is_refused(binary, fairness_weight):
    model = FairLogisticRegression(fairness_weight=fairness_weight)

    with pytest.raises(
        MissingSensitiveError,
        match=r"needs sensitive_features.*fairness_weight=0",
    ):
        model.fit(binary.X, binary.y)


def test_features_of_any_scale_give_the_same_fair_model(binary):
    scales = np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])
    plain = binary.fit(FairLogisticRegression(fairness_weight=3, l2=0))

    model = FairLogisticRegression(fairness_weight=3, l2=0)
    model.fit(binary.X * scales, binary.y, sensitive_features=binary.s)

    assert model.result_ is Result.converged
    np.testing.assert_allclose(
        model.predict_proba(binary.X * scales), plain.predict_proba(binary.X), atol=1e-5
    )


def test_features_of_any_scale_converge_under_a_ridge(three):
    scales = np.array([1e-6, 1e-3, 1.0, 1e3, 1e6])

    model = FairLogisticRegression(fairness_weight=10).fit(
        three.X * scales, three.y, sensitive_features=three.s
    )

    assert model.result_ is Result.converged


@pytest.mark.parametrize("l2", [0.0, 1e-4])
def test_collinear_features_converge(three, l2):
    sums = three.X @ np.array([[1.0], [2.0], [0.0], [-1.0], [0.5]])
    X = np.hstack([three.X, three.X, 1e4 * sums, np.ones((len(three.X), 1))])
    plain = three.fit(FairLogisticRegression(fairness_weight=3, l2=0))

    model = FairLogisticRegression(fairness_weight=3, l2=l2)
    model.fit(X, three.y, sensitive_features=three.s)

    assert model.result_ is Result.converged
    # A ridge of 1e-4 moves probabilities by less than a thousandth.
    atol = 1e-3 if l2 else 1e-5
    np.testing.assert_allclose(
        model.predict_proba(X), plain.predict_proba(three.X), rtol=0, atol=atol
    )


@pytest.mark.parametrize("divergence", ["kl", "chi2", "total_variation"])
def test_a_warm_path_reaches_the_objective_of_cold_starts(three, divergence):
    weights = [0.0, 0.5, 3.0, 20.0]
    given = FitInput(three.X, three.y, three.s)

    path = list(FairLogisticRegression(divergence=divergence).fit_path(given, weights))

    for weight, warm in zip(weights, path, strict=True):
        cold = three.fit(
            FairLogisticRegression(divergence=divergence, fairness_weight=weight)
        )
        assert warm.fairness_weight == weight
        reached = [objective_at(three, model) for model in (warm, cold)]
        assert reached[0] == pytest.approx(reached[1], rel=1e-6)


def objective_at(data, model):
    """Return the objective at a fitted model."""
    problem = model._encode(FitInput(data.X, data.y, data.s)).problem
    theta = np.column_stack([model.coef_, model.intercept_])
    return value_and_gradient(problem, theta)[0]


def test_a_path_remembers_names_and_parameters(binary):
    X = pd.DataFrame(binary.X, columns=list("abcde"))
    parent = FairLogisticRegression(divergence="chi2", l2=0.01, random_state=7)

    first, second = parent.fit_path(FitInput(X, binary.y, binary.s), [0.0, 1.0])

    assert first.feature_names_in_.tolist() == list("abcde")
    assert second.n_features_in_ == 5
    assert (second.divergence, second.l2, second.random_state) == ("chi2", 0.01, 7)
    assert parent.fairness_weight is None
    assert not hasattr(parent, "coef_")


def test_a_path_of_zeros_needs_no_groups(binary):
    (model,) = FairLogisticRegression().fit_path(FitInput(binary.X, binary.y), [0.0])

    same_model(FairLogisticRegression(fairness_weight=0).fit(binary.X, binary.y), model)


def test_a_warm_start_begins_at_the_last_solution(binary):
    model = binary.fit(FairLogisticRegression(fairness_weight=5, warm_start=True))
    cold_iterations, cold = model.n_iter_, model.coef_.copy()

    binary.fit(model)

    assert model.n_iter_ < cold_iterations
    np.testing.assert_allclose(model.coef_, cold, rtol=1e-3)


def test_a_cold_start_forgets_the_last_solution(binary):
    model = binary.fit(FairLogisticRegression(fairness_weight=5))
    iterations = model.n_iter_

    assert binary.fit(model).n_iter_ == iterations


def test_a_warm_start_refuses_other_features_or_classes(binary, three):
    model = binary.fit(FairLogisticRegression(warm_start=True))

    with pytest.raises(
        InvalidInputError, match=r"5 and .*got 3 and .*warm_start=False"
    ):
        model.fit(binary.X[:, :3], binary.y, sensitive_features=binary.s)
    model = binary.fit(FairLogisticRegression(warm_start=True))
    with pytest.raises(InvalidInputError, match=r"and \[0, 1\]; got .*\[0, 1, 2\]"):
        three.fit(model)
    model = binary.fit(FairLogisticRegression(warm_start=True))
    y = np.where(binary.y > 0, "yes", "no")
    with pytest.raises(InvalidInputError, match=r"and \[0, 1\]; got .*'no'"):
        model.fit(binary.X, y, sensitive_features=binary.s)


def test_history_never_rises(three):
    model = three.fit(FairLogisticRegression(divergence="chi2", fairness_weight=30))

    objective = [record["objective"] for record in model.history_]
    assert len(objective) == model.n_iter_ > 2
    assert np.all(np.diff(objective) <= 0)


NOTIONS = {
    "demographic parity": ("demographic_parity", "demographic_parity"),
    "equal opportunity": ("equal_opportunity", EqualOpportunity(positive=2)),
    "equalized odds": ("equalized_odds", "equalized_odds"),
    "equalized odds by frequency": (EqualizedOdds("frequency"),) * 2,
    "sufficiency": ("sufficiency", "sufficiency"),
    "predictive parity": ("predictive_parity", PredictiveParity(positive=2)),
    "false positive rate parity": (
        "false_positive_rate_parity",
        FalsePositiveRateParity(negative=0),
    ),
}


def violations_along(data, weights, notion="demographic_parity", **options):
    model = FairLogisticRegression(notion=notion, **options)
    given = FitInput(data.X, data.y, data.s)
    return [data.soft_violation(m, notion) for m in model.fit_path(given, weights)]


@pytest.mark.parametrize("name", NOTIONS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_violation_falls_as_the_weight_grows(binary, three, name, n_classes):
    data = binary if n_classes == 2 else three

    found = violations_along(data, [0, 1, 5, 25, 100], NOTIONS[name][n_classes - 2])

    assert np.all(np.diff(found) < 0)
    # The violation is a maximum over classes; the penalty of sufficiency is an average
    # and moves it less.
    assert found[-1] < (0.9 if "sufficiency" in name else 0.5) * found[0]


@pytest.mark.parametrize(
    "divergence",
    [
        "kl",
        "chi2",
        "reverse_kl",
        "total_variation",
        "jensen_shannon",
        "squared_hellinger",
        "alpha",
        Alpha(-1.0),
        Alpha(3.0),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_divergence_brings_the_violation_down(
    binary, three, divergence, n_classes
):
    data = binary if n_classes == 2 else three

    found = violations_along(data, [0, 1, 5, 25, 100], divergence=divergence)

    assert np.all(np.diff(found) < 0)
    assert found[-1] < 0.15 * found[0]


def test_a_sharper_penalty_brings_decisions_closer(three):
    decided = [
        violation(
            three.y,
            three.fit(
                FairLogisticRegression(fairness_weight=5, sharpness=sharpness)
            ).predict(three.X),
            sensitive_features=three.s,
        )
        for sharpness in (1.0, 2.0, 5.0)
    ]

    assert decided[0] > decided[1] > decided[2]


def crossed():
    """Return data in which each column is fair and their intersection is not."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 2, (2, 1200))
    y = (rng.random(1200) < np.where(a == b, 0.8, 0.2)).astype(int)
    X = np.column_stack([a == b, y + rng.normal(size=1200)])
    return X, y, pd.DataFrame({"sex": a, "race": b})


def test_marginal_groups_do_not_see_what_intersections_do():
    X, y, s = crossed()
    found = {}
    for groups in ("marginal", "intersection"):
        model = FairLogisticRegression(fairness_weight=50, groups=groups)
        model.fit(X, y, sensitive_features=s)
        found[groups] = soft_violation(
            y, model.predict_proba(X), classes=[0, 1], sensitive_features=s
        )

    assert found["marginal"] > 0.4
    assert found["intersection"] < 0.05


def test_names_of_groups_follow_the_last_axis_of_the_dual():
    X, y, s = crossed()

    joint_model = FairLogisticRegression().fit(X, y, sensitive_features=s)
    model = FairLogisticRegression(groups="marginal").fit(X, y, sensitive_features=s)

    assert joint_model.groups_.tolist() == ["0 × 0", "0 × 1", "1 × 0", "1 × 1"]
    assert joint_model.dual_.shape == (1, 2, 4)
    assert model.groups_.tolist() == ["sex=0", "sex=1", "race=0", "race=1"]
    assert model.dual_.shape == (1, 2, 4)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_the_dual_is_the_log_ratio_of_the_final_table(three, notion):
    model = three.fit(FairLogisticRegression(notion=notion, fairness_weight=2))
    stratum = three.y if notion == "equalized_odds" else np.zeros_like(three.y)

    table = joint(model.predict_proba(three.X), three.s.astype(int), 3, stratum=stratum)

    given = table / table.sum(axis=(1, 2), keepdims=True)
    product = given.sum(axis=2, keepdims=True) * given.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.dual_, np.log(given / product), atol=1e-10)


SHIFTS = [
    ("kl", SmallShift(0.02)),
    ("kl", SmallShift(0.02, p=1)),
    ("kl", SmallShift(0.02, p="inf")),
    ("kl", SmallShift(0.02, norm="dual")),
    ("kl", SmallShift(0.02, coupled=True)),
    ("kl", SmallShift(0.02, power=2)),
    ("jensen_shannon", LargeShift(0.02)),
    ("jensen_shannon", LargeShift(0.02, mode="simplex")),
    ("jensen_shannon", LargeShift(0.02, mode="coupled")),
    ("total_variation", LargeShift(0.02)),
]


@pytest.mark.parametrize(("divergence", "uncertainty"), SHIFTS)
def test_a_robust_model_is_finite_and_fairer_than_the_plain_one(
    binary, divergence, uncertainty
):
    plain = binary.fit(FairLogisticRegression(divergence=divergence, fairness_weight=2))

    robust = binary.fit(
        FairLogisticRegression(
            divergence=divergence, fairness_weight=2, uncertainty=uncertainty
        )
    )

    assert robust.result_.is_success
    assert np.all(np.isfinite(robust.coef_))
    assert binary.soft_violation(robust) < binary.soft_violation(plain)


@pytest.mark.parametrize(
    "uncertainty", [SmallShift(0.02, p="inf"), LargeShift(0.02, mode="coupled")]
)
@pytest.mark.parametrize("notion", ["equalized_odds", "sufficiency"])
def test_robust_penalties_train_with_other_notions(three, uncertainty, notion):
    model = FairLogisticRegression(
        divergence="jensen_shannon",
        notion=notion,
        uncertainty=uncertainty,
        fairness_weight=1,
    )
    if notion == "sufficiency" and uncertainty.is_coupled:
        with pytest.raises(InvalidParameterError, match="set that is not coupled"):
            three.fit(model)
        return

    assert np.all(np.isfinite(three.fit(model).coef_))


def test_a_robust_path_does_not_stick_at_a_kink(three):
    uncertainty = SmallShift(0.02, p="inf")
    weights = [0.5, 5.0, 50.0]
    given = FitInput(three.X, three.y, three.s)
    prior = np.bincount(three.y) / len(three.y)
    entropy = -np.sum(prior * np.log(prior))

    for model in FairLogisticRegression(uncertainty=uncertainty).fit_path(
        given, weights
    ):
        # The same distribution for everyone is within reach, and fair.
        assert model.history_[-1]["objective"] <= entropy * (1 + 1e-5)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_penalty_rows_equal_to_the_training_rows_change_nothing(three, notion):
    model = FairLogisticRegression(notion=notion, fairness_weight=5, tol=1e-8)
    plain = three.fit(model)
    coef, intercept = plain.coef_.copy(), plain.intercept_.copy()

    other = model.fit(three.X, three.y, penalty_data=(three.X, three.s, three.y))

    np.testing.assert_allclose(other.coef_, coef, rtol=0, atol=1e-6)
    np.testing.assert_allclose(other.intercept_, intercept, rtol=0, atol=1e-6)


def test_penalty_rows_may_be_sparse_and_named(binary):
    other = Rows(400, seed=9, bias=3.0)
    dense = FairLogisticRegression(fairness_weight=5).fit(
        binary.X, binary.y, penalty_data=(other.X, other.s)
    )

    sparse = FairLogisticRegression(fairness_weight=5).fit(
        scipy.sparse.csr_array(binary.X),
        binary.y,
        penalty_data=(scipy.sparse.csr_array(other.X), {"sex": other.s}),
    )

    same_model(dense, sparse, rtol=1e-8)
    assert sparse.groups_.tolist() == ["0", "1"]


def test_a_penalty_on_other_rows_is_felt_there(binary):
    target = Rows(1500, seed=9, bias=3.0)
    own = binary.fit(FairLogisticRegression(fairness_weight=20))

    there = FairLogisticRegression(fairness_weight=20).fit(
        binary.X, binary.y, penalty_data=(target.X, target.s)
    )

    assert target.soft_violation(there) < 0.7 * target.soft_violation(own)


def test_penalty_rows_without_labels_cannot_serve_equalized_odds(binary):
    model = FairLogisticRegression(notion="equalized_odds")

    with pytest.raises(
        InvalidInputError, match=r"conditions on the label.*\(X, s, y\)"
    ):
        model.fit(binary.X, binary.y, penalty_data=(binary.X, binary.s))


@pytest.mark.parametrize("penalty_data", [np.zeros((3, 2)), (1,), (1, 2, 3, 4), "rows"])
def test_penalty_data_of_another_make_are_refused(binary, penalty_data):
    with pytest.raises(InvalidParameterError, match=r"penalty_data must be \(X, sens"):
        FairLogisticRegression().fit(binary.X, binary.y, penalty_data=penalty_data)


def test_penalty_data_must_fit_the_training_data(binary):
    model = FairLogisticRegression(notion="equalized_odds")
    X, y, s = binary.X, binary.y, binary.s

    with pytest.raises(InvalidInputError, match="X has 3 features"):
        model.fit(X, y, penalty_data=(X[:, :3], s, y))
    with pytest.raises(InvalidInputError, match=r"group has 10 values for 560 rows"):
        model.fit(X, y, penalty_data=(X, s[:10], y))
    with pytest.raises(InvalidInputError, match=r"has 10 labels for 560 rows"):
        model.fit(X, y, penalty_data=(X, s, y[:10]))
    with pytest.raises(InvalidInputError, match="contains the label 7"):
        model.fit(X, y, penalty_data=(X, s, np.full(len(y), 7)))


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_rows_without_a_group_train_the_loss_only(binary, notion):
    known = np.random.default_rng(1).random(len(binary.y)) < 0.7
    s = np.where(known, binary.s, None)
    model = FairLogisticRegression(notion=notion, fairness_weight=5, tol=1e-8)
    kept = binary.X[known], binary.s[known], binary.y[known]
    expected = model.fit(binary.X, binary.y, penalty_data=kept)
    coef = expected.coef_.copy()

    with pytest.warns(MissingGroupWarning, match=f"{np.sum(~known)} of 560 rows"):
        model.fit(binary.X, binary.y, sensitive_features=s)

    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-6)


def test_a_weight_of_two_is_a_row_given_twice(three):
    weight = np.where(np.arange(len(three.y)) % 3 == 0, 2.0, 1.0)
    places = np.repeat(np.arange(len(three.y)), weight.astype(int))
    model = FairLogisticRegression(fairness_weight=5, tol=1e-8)
    heavy = three.fit(model, sample_weight=weight)
    coef = heavy.coef_.copy()

    model.fit(three.X[places], three.y[places], sensitive_features=three.s[places])

    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-6)


def test_a_weight_of_zero_is_a_row_left_out(three):
    kept = np.arange(len(three.y)) % 4 != 0
    model = FairLogisticRegression(notion="equalized_odds", fairness_weight=5, tol=1e-8)
    coef = three.fit(model, sample_weight=kept.astype(float)).coef_.copy()

    model.fit(three.X[kept], three.y[kept], sensitive_features=three.s[kept])

    np.testing.assert_allclose(model.coef_, coef, rtol=0, atol=1e-6)


def test_conditional_parity_is_fair_within_the_control_feature(binary):
    department = np.where(binary.X[:, 0] > 0, "east", "west")
    frame = pd.DataFrame(binary.X, columns=list("abcde"))
    frame["code"] = (department == "east").astype(float)
    by_name = FairLogisticRegression(
        notion=ConditionalParity("code"), fairness_weight=50
    ).fit(frame, binary.y, sensitive_features=binary.s)

    by_values = FairLogisticRegression(
        notion=ConditionalParity(department), fairness_weight=50
    ).fit(frame, binary.y, sensitive_features=binary.s)

    same_model(by_name, by_values, rtol=1e-8)
    for place in ("east", "west"):
        here = department == place
        gap = soft_violation(
            None,
            by_name.predict_proba(frame)[here],
            classes=[0, 1],
            sensitive_features=binary.s[here],
        )
        assert gap < 0.06


def test_iterations_that_run_out_are_warned_of(binary):
    with pytest.warns(
        ConvergenceWarning,
        match=r"FairLogisticRegression: The iterations ran out.*Raise max_iter",
    ):
        model = binary.fit(FairLogisticRegression(max_iter=1))

    assert model.result_ is Result.max_epochs_reached
    assert model.n_iter_ == 1


def test_one_class_for_everyone_is_warned_of():
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(300, 3)), np.tile(["a", "b"], 150)
    y = np.where(np.arange(300) % 10 == 0, "yes", "no")

    words = r"predicts 'no' for every training row, .* So does a model without a pen"
    with pytest.warns(CollapseWarning, match=words):
        FairLogisticRegression().fit(X, y, sensitive_features=s)


def test_a_penalty_that_leaves_one_class_is_warned_of_as_the_cause():
    s = np.tile(["a", "b"], 150)
    X = (s == "a")[:, None] + np.linspace(-0.1, 0.1, 300)[:, None]
    y = np.where(s == "a", "yes", "no")
    y[:30] = "no"
    model = FairLogisticRegression(fairness_weight=100)
    with pytest.warns(CollapseWarning, match=r"fair and useless\. Lower fairness_weig"):
        model.fit(X, y, sensitive_features=s)


def test_warnings_of_the_outcome_point_to_the_line_that_called_fit(binary):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FairLogisticRegression(fairness_weight=0, max_iter=1).fit(binary.X, binary.y)

    assert [warning.filename for warning in caught] == [__file__]


def test_one_group_is_nothing_to_be_fair_between(binary):
    with pytest.raises(InvalidInputError, match=r"two groups.*set fairness_weight=0"):
        FairLogisticRegression().fit(
            binary.X, binary.y, sensitive_features=["a"] * len(binary.y)
        )


BAD_PARAMETERS = [
    (
        {"fairness_weight": -1},
        "fairness_weight must be a finite number of at least 0, or None; got -1",
    ),
    (
        {"fairness_weight": np.nan},
        "fairness_weight must be a finite number of at least 0, or None; got nan",
    ),
    ({"fairness_weight": np.inf}, "at least 0, or None; got inf"),
    ({"fairness_weight": "high"}, "at least 0, or None; got 'high'"),
    ({"fairness_weight": True}, "at least 0, or None; got True"),
    ({"sharpness": 0}, "sharpness must be a finite number above 0; got 0"),
    ({"sharpness": -2.0}, "above 0; got -2.0"),
    ({"l2": -1e-9}, "l2 must be a finite number of at least 0; got -1e-09"),
    ({"tol": 0}, "tol must be a finite number above 0; got 0"),
    ({"max_iter": 0}, "max_iter must be an integer of at least 1; got 0"),
    ({"max_iter": 2.5}, "at least 1; got 2.5"),
    ({"groups": "both"}, "groups must be 'intersection' or 'marginal'; got 'both'"),
    (
        {"uncertainty": 0.1},
        "None or a set such as LargeShift(radius) of fferm.uncertainty; got 0.1",
    ),
    ({"divergence": 3}, "divergence must be a name or an instance; got 3"),
    ({"notion": None}, "notion must be a name or an instance; got None"),
    (
        {"divergence": "tv", "uncertainty": SmallShift(0.1)},
        "SmallShift differentiates the dual, and total_variation",
    ),
    ({"notion": "conditional_parity"}, "'conditional_parity' needs parameters"),
    ({"notion": EqualOpportunity(positive="yes")}, "names the class 'yes'"),
    ({"notion": ConditionalParity("age")}, "named 'age' but X has no column names"),
]


@pytest.mark.parametrize(("parameters", "words"), BAD_PARAMETERS)
def test_a_parameter_out_of_its_range_is_refused(binary, parameters, words):
    with pytest.raises(InvalidParameterError) as refusal:
        binary.fit(FairLogisticRegression(**parameters))
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"divergence": "klx"}, r"Unknown divergence 'klx'.*Did you mean 'kl'"),
        ({"notion": "parity"}, r"Unknown notion 'parity'\. .*Known: .*equalized_odds"),
        ({"solver": "newton"}, r"Unknown solver 'newton'\. Known: auto, .*lbfgs"),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_are_known(
    binary, parameters, words
):
    with pytest.raises(UnknownNameError, match=words):
        binary.fit(FairLogisticRegression(**parameters))


def test_a_positive_class_must_be_named_among_three(three):
    with pytest.raises(InvalidParameterError, match=r"3 classes.*positive=2\)"):
        three.fit(FairLogisticRegression(notion="equal_opportunity"))


def test_labels_of_one_class_are_refused(binary):
    with pytest.raises(InvalidInputError, match="only one class, 'yes'"):
        FairLogisticRegression().fit(
            binary.X, ["yes"] * len(binary.y), sensitive_features=binary.s
        )


def test_features_that_overflow_are_refused(binary):
    with pytest.raises(InvalidInputError, match=r"above 1e\+100.*StandardScaler"):
        FairLogisticRegression(fairness_weight=0).fit(binary.X * 1e200, binary.y)


def test_words_in_an_array_are_refused_with_a_hint(binary):
    X = np.array([["Rome"]] * len(binary.y), dtype=object)
    with pytest.raises(InvalidInputError, match=r"Rome.*pass a data frame"):
        FairLogisticRegression(fairness_weight=0).fit(X, binary.y)


def test_predictions_agree_with_each_other(three):
    model = three.fit(FairLogisticRegression())
    prob = model.predict_proba(three.X_test)

    np.testing.assert_allclose(prob.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_array_equal(
        model.predict(three.X_test), model.classes_[prob.argmax(axis=1)]
    )
    np.testing.assert_allclose(
        model.predict_log_proba(three.X_test), np.log(prob), rtol=1e-12
    )
    np.testing.assert_allclose(
        softmax(model.decision_function(three.X_test), axis=1), prob, rtol=1e-12
    )


def test_progress_is_shown_by_tqdm_where_it_is_installed(binary, capsys):
    binary.fit(FairLogisticRegression(verbose=1))

    assert "objective 0." in capsys.readouterr().err


def test_progress_is_a_line_where_tqdm_is_missing(binary, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)

    model = binary.fit(FairLogisticRegression(verbose=1))

    line = capsys.readouterr().err
    assert line.count("\r") == model.n_iter_
    assert line.endswith("\n")
    assert "training: 1 of 1000, objective 0." in line


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_search_a_sweep_and_tuning_show_weight_and_violation(
    binary, has_tqdm, monkeypatch, capsys
):
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    rows = {"sensitive_features": binary.s}
    model = FairLogisticRegression(
        max_violation=0.3, confidence=None, random_state=0, verbose=1
    )
    model.fit(binary.X, binary.y, **rows)
    assert model.verbose == 1
    search = capsys.readouterr().err
    assert "max_violation=0.3:" in search
    assert f"weight {model.fairness_weight_:.4g}, violation 0." in search
    given = FairLogisticRegression(), binary.X, binary.y
    for n_jobs in (1, 2):
        curve = tradeoff_curve(
            *given, **rows, fairness_weights=[0, 3], n_jobs=n_jobs, seeds=2, verbose=1
        )
        assert "models: " in (shown := capsys.readouterr().err)
        assert "weight 3, violation " in shown
    assert len(curve.models) == 4
    tune(*given, **rows, max_violation=0.9, divergences=["kl"], verbose=1)
    assert "tuning: " in (shown := capsys.readouterr().err)
    assert "weight 100, violation " in shown


def test_compilation_is_told_of_once(capsys, monkeypatch):
    monkeypatch.setattr(_jit, "TOLD", [])

    def grow(x):
        return x + 1

    grow.__module__ = "fferm.somewhere"
    for name in ("first", "second"):
        grow.__qualname__ = name
        with _jit.telling_of_compilation():
            numba.njit(grow)(1.0)
    assert capsys.readouterr().err.count("fferm compiles its kernels for this") == 1


def test_no_progress_is_shown_unless_asked_for(binary, capsys):
    binary.fit(FairLogisticRegression())

    assert capsys.readouterr().err == ""
