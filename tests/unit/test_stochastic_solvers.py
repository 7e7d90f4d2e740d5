"""Fair logistic regression by semi-stochastic descent and by SREDA."""

import numpy as np
import pytest
import scipy.sparse

import fferm
from fferm import FairLogisticRegression, LargeShift, SmallShift, tradeoff_curve
from fferm.data.rows import FitInput
from fferm.datasets import load_adult, make_biased
from fferm.errors import InvalidParameterError, NonFiniteError
from fferm.metrics import soft_violation
from fferm.solvers import LBFGS
from fferm.solvers.linear import value_and_gradient

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")

BOTH = ("semi_stochastic", "sreda")
both = pytest.mark.parametrize("solver", BOTH)


@pytest.fixture(scope="module")
def data():
    return make_biased(1000, n_groups=3, random_state=0)


def fit(data, solver, **options):
    options = {"fairness_weight": 3.0, "random_state": 0} | options
    model = FairLogisticRegression(solver=solver, **options)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def objectives(model, data, *others):
    """Return the objective of a model, of others under it, and the best there is."""
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = model._encode(given)[1]
    best = LBFGS(fit_intercept=model.fit_intercept).solve(problem).stats["objective"]
    found = (
        value_and_gradient(problem, np.column_stack([m.coef_, m.intercept_]))[0]
        for m in (model, *others)
    )
    return *found, best


def excess(model, data):
    """Return how far a model is above the optimum, as a share of it."""
    found, best = objectives(model, data)
    return found / best - 1


def way_left(model, data, other):
    """Return how far a model is above the optimum, as a share of another's way."""
    found, begin, best = objectives(model, data, other)
    return (found - best) / (begin - best)


@both
@pytest.mark.parametrize("divergence", ["chi2", "reverse_kl", "total_variation"])
def test_every_divergence_is_trained(divergence, solver, data):
    assert -1e-9 < excess(fit(data, solver, divergence=divergence), data) < 0.01


@both
@pytest.mark.parametrize("n_classes", [2, 3])
def test_odds_and_classes_are_trained(n_classes, solver):
    data = make_biased(1500, n_classes=n_classes, random_state=1)
    model = fit(data, solver, notion="equalized_odds", sharpness=2.0)
    assert excess(model, data) < 0.01


@pytest.mark.parametrize(
    "options",
    [
        {"uncertainty": SmallShift(0.1)},
        {"uncertainty": LargeShift(0.05), "divergence": "js"},
        {"uncertainty": LargeShift(0.05, mode="simplex"), "divergence": "js"},
        {"uncertainty": LargeShift(0.05, mode="coupled"), "divergence": "js"},
        {"notion": "sufficiency"},
        {"notion": "predictive_parity"},
    ],
    ids=str,
)
def test_exact_tables_train_what_has_no_linear_dual(options, data):
    weight = 20.0 if "notion" in options else 5.0
    model = fit(data, "semi_stochastic", fairness_weight=weight, **options)
    # Where one ends that sees no shift, or parity in place of the notion.
    parity = {k: v for k, v in options.items() if k == "divergence"}
    other = fit(data, "lbfgs", fairness_weight=weight, **parity)
    assert -0.01 < way_left(model, data, other) < 0.02


@pytest.mark.parametrize("solver", ["sgda", "sreda"])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"uncertainty": SmallShift(0.01)}, "SmallShift"),
        ({"uncertainty": LargeShift(0.005)}, "LargeShift"),
        ({"notion": "sufficiency"}, "Sufficiency"),
        ({"notion": "predictive_parity"}, "PredictiveParity"),
    ],
)
def test_a_penalty_without_a_linear_dual_is_refused_by_name(
    options, name, solver, data
):
    words = rf"solver='{solver}' needs.*of {name}\(.*'semi_stochastic' or 'lbfgs'"
    with pytest.raises(InvalidParameterError, match=words):
        fit(data, solver, **options)


@pytest.mark.parametrize("batch_size", [1, 8, 10_000])
def test_exact_tables_serve_every_batch_size(batch_size, data):
    model = fit(data, "semi_stochastic", batch_size=batch_size)
    assert excess(model, data) < 0.01


@pytest.mark.parametrize("refresh_every", [1, 7, 1000])
def test_passes_may_be_set(refresh_every, data):
    model = fit(data, "semi_stochastic", refresh_every=refresh_every, max_epochs=100)
    # One pass in a thousand steps leaves the first payoff, that of a model of 0.
    assert (excess(model, data) < 0.01) == (refresh_every < 1000)


@both
def test_sparse_rows_weights_marginal_groups_and_gaps_are_trained(solver, data):
    place = np.arange(len(data.y))
    s = {
        "a": np.where(place % 7 == 0, None, place % 2),
        "b": data.sensitive_features["group"].to_numpy(),
    }
    rows = {
        "sensitive_features": s,
        "sample_weight": np.random.default_rng(0).uniform(0.5, 2, len(data.y)),
    }
    options = {"groups": "marginal", "fairness_weight": 3.0}
    full = FairLogisticRegression(**options).fit(data.X, data.y, **rows)
    dense, sparse = (
        FairLogisticRegression(solver=solver, random_state=0, **options).fit(
            X, data.y, **rows
        )
        for X in (data.X, scipy.sparse.csr_array(data.X))
    )
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(
        dense.predict_proba(data.X), full.predict_proba(data.X), atol=0.03
    )


@both
def test_the_penalty_may_be_taken_on_other_rows(solver, data):
    def soft_gap(model):
        return soft_violation(
            data.y_test,
            model.predict_proba(data.X_test),
            classes=[0, 1],
            sensitive_features=data.sensitive_features_test,
        )

    other = {"penalty_data": (data.X_test, data.sensitive_features_test)}
    full, model = (
        FairLogisticRegression(solver=name, fairness_weight=20.0, random_state=0).fit(
            data.X, data.y, **other
        )
        for name in ("lbfgs", solver)
    )
    plain = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    assert soft_gap(model) < soft_gap(plain) / 3
    np.testing.assert_allclose(
        model.predict_proba(data.X), full.predict_proba(data.X), atol=0.05
    )


@both
def test_a_seed_gives_the_same_model_and_another_seed_a_near_one(solver, data):
    first, again, other = (fit(data, solver, random_state=i) for i in (0, 0, 1))
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert not np.array_equal(first.coef_, other.coef_)
    np.testing.assert_allclose(
        first.predict_proba(data.X), other.predict_proba(data.X), atol=0.05
    )


@both
def test_a_warm_start_without_intercepts_keeps_them_zero(solver, data):
    model = fit(data, solver, warm_start=True)
    first = model.coef_.copy()
    model.set_params(fit_intercept=False)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert model.intercept_ == 0
    assert excess(model, data) < 0.01
    assert not np.array_equal(first, model.coef_)


@both
def test_a_plain_model_needs_no_groups(solver, data):
    model = FairLogisticRegression(solver=solver, fairness_weight=0, random_state=0)
    model.fit(data.X, data.y)
    full = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    np.testing.assert_allclose(
        model.predict_proba(data.X), full.predict_proba(data.X), atol=0.03
    )


@both
def test_a_curve_trains_its_weights_as_lanes(solver, data):
    model = FairLogisticRegression(solver=solver, random_state=0)
    curve = tradeoff_curve(
        model,
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 1, 10],
    )
    train = curve.records.query("split == 'train'")
    assert train["soft_violation"].is_monotonic_decreasing
    assert set(train["result"]) == {"schedule_completed"}


@both
def test_a_model_is_saved_and_loaded(solver, data, tmp_path):
    model = fit(data, solver)
    fferm.save(model, tmp_path / "model")
    back = fferm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.coef_, model.coef_)


@both
def test_steps_that_leave_the_numbers_raise(solver, data):
    with pytest.raises(NonFiniteError, match="not a finite number"):
        fit(data, solver, learning_rate=1e306)


def test_a_penalty_that_is_infinite_is_named(data):
    with pytest.raises(NonFiniteError, match="penalty is infinite"):
        fit(data, "semi_stochastic", uncertainty=LargeShift(0.4, mode="paper"))


@both
@pytest.mark.parametrize("refresh_every", [0, 2.5])
def test_passes_out_of_range_are_refused(refresh_every, solver, data):
    with pytest.raises(InvalidParameterError, match=f"got {refresh_every}"):
        fit(data, solver, refresh_every=refresh_every)


@both
@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_adult_by_sex_and_race_is_right(weight, solver):
    data = load_adult(sensitive=("sex", "race"))
    assert excess(fit(data, solver, fairness_weight=weight), data) < 0.005
