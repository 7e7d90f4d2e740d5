"""Fair regression on minibatches: bins and critics, linear models and networks."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from test_regression import closed_form, excess_and_distance, mean_gap, shifted_groups

import fferm
from fferm import FairRegressor, LargeShift, tables
from fferm.data.rows import FitInput
from fferm.errors import (
    ConvergenceWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    PersistenceError,
    UnknownNameError,
)
from fferm.metrics import dependence
from fferm.notions import ConditionalParity
from fferm.penalty.losses import Huber, Quantile

torch = pytest.importorskip("torch")

from fferm.torch import CriticFairnessLoss, FairnessLoss  # noqa: E402 - after torch


@pytest.mark.parametrize("method", ["bins", "critic"])
@pytest.mark.parametrize(("batch_size", "max_epochs"), [(32, 4), (3000, 100)])
def test_the_minibatch_front_is_that_of_gaussian_data(method, batch_size, max_epochs):
    X, y, group = shifted_groups(3000)
    model = FairRegressor(
        method=method,
        solver="sgda",
        batch_size=batch_size,
        max_epochs=max_epochs,
        random_state=0,
    )
    distances = []
    for fitted in model.fit_path(FitInput(X, y, group), [1.0, 10.0]):
        excess, distance = excess_and_distance(fitted.coef_)
        assert 1 + excess == pytest.approx(1 + closed_form(distance), rel=0.03)
        distances.append(distance)
    assert 0.5 < distances[0] < 0.75
    # A critic that lags behind asks for less, at the same cost for what it asks.
    assert distances[1] < 0.4


def discrete_pair(n=3000):
    """Three kinds of predictions and two groups that depend on each other."""
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=n)
    kind = np.where(rng.random(n) < 0.4, 2 * group, rng.integers(3, size=n))
    return np.array([-1.0, 0.5, 2.0])[kind], kind, group


@pytest.mark.parametrize("divergence", ["kl", "chi2"])
@pytest.mark.parametrize("sides", ["numbers by groups", "classes by numbers", "both"])
def test_on_discrete_variables_the_critic_finds_the_discrete_divergence(
    divergence, sides
):
    u, kind, group = discrete_pair(150)
    exact = tables.penalty(tables.joint(np.eye(3)[kind], group, 2), divergence)[0]
    is_number = sides != "classes by numbers"
    fair = CriticFairnessLoss.from_labels(
        u if is_number else kind,
        {"s": group},
        divergence=divergence,
        outputs="numbers" if is_number else "probabilities",
        continuous=[] if sides == "numbers by groups" else ["s"],
    )
    output = torch.tensor(u if is_number else np.eye(3)[kind])
    s = fair.encode({"s": group})
    for _ in range(200):
        fair(output.requires_grad_(), s)
    found = fair.eval()(output, s).item()
    assert found == pytest.approx(exact, rel=0.02)


def test_on_discrete_variables_the_bins_find_the_discrete_divergence():
    u, kind, group = discrete_pair()
    exact = tables.penalty(tables.joint(np.eye(3)[kind], group, 2), "kl")[0]
    bins = fferm.penalty.soft_bins.make_bins(np.array([-0.25, 1.25]), steepness=40.0)
    share = softmax(bins.logits(u), axis=1)
    assert tables.penalty(tables.joint(share, group, 2), "kl")[0] == pytest.approx(
        exact, rel=0.02
    )
    fair = FairnessLoss.from_labels(u, group, outputs="numbers", bins=bins)
    output, s = torch.tensor(u, requires_grad=True), torch.tensor(group)
    for _ in range(100):
        fair(output, s)
    assert fair.eval()(output, s).item() == pytest.approx(exact, rel=0.02)


def symmetric(n=1500, seed=0):
    """A number that grows with the size of the attribute, whatever its sign.

    Every row comes with both signs, so that no feature has any linear correlation with
    the attribute: the gradient of a linear penalty is 0 at every linear model.
    """
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    X = np.column_stack([np.abs(s) + 0.3 * rng.normal(size=n), rng.normal(size=n)])
    y = X.sum(axis=1) + 0.3 * rng.normal(size=n)
    return np.tile(X, (2, 1)), np.tile(y, 2), np.append(s, -s)


def test_the_audit_sees_what_a_linear_penalty_cannot():
    X, y, s = symmetric()
    plain = FairRegressor(fairness_weight=0).fit(X, y).predict(X)
    np.testing.assert_allclose(s @ X / len(s), 0, atol=1e-12)
    assert dependence.correlation(plain, s) < 1e-12
    found = dependence.independence_test(
        "distance_correlation", plain[::5], s[::5], n_permutations=19
    )
    assert found.value > 0.2
    assert found.p_value == 0.05


@pytest.mark.parametrize("method", ["bins", "critic"])
def test_training_removes_what_linear_correlation_cannot_see(method):
    X, y, s = symmetric()
    plain = FairRegressor(fairness_weight=0).fit(X, y).predict(X)
    model = FairRegressor(
        fairness_weight=30.0, method=method, max_epochs=8, random_state=0
    )
    fair = model.fit(X, y, sensitive_features=s).predict(X)
    before, after = (dependence.distance_correlation(u, s) for u in (plain, fair))
    assert before > 0.2
    assert after < 0.4 * before


def test_a_network_fits_what_a_line_cannot_and_is_made_fair():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=1500)
    X = rng.normal(size=(1500, 2)) + group[:, None] * [1.0, 0.0]
    y = X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.normal(size=1500)
    options = {"hidden": (16,), "max_epochs": 25, "learning_rate": 0.01}
    plain, fair = FairRegressor(**options, random_state=0).fit_path(
        FitInput(X, y, group), [0.0, 10.0]
    )
    line = FairRegressor(fairness_weight=0).fit(X, y)
    errors = [np.mean((y - m.predict(X)) ** 2) for m in (line, plain)]
    assert errors[1] < 0.3 * errors[0]
    gaps = [mean_gap(m.predict(X), group) for m in (plain, fair)]
    assert gaps[1] < 0.4 * gaps[0]


def test_minibatches_respect_a_control_feature_and_weights():
    rng = np.random.default_rng(0)
    control = rng.integers(2, size=2000)
    group = (rng.random(2000) < np.where(control, 0.7, 0.3)).astype(int)
    X = rng.normal(size=(2000, 3))
    X[:, 0] = 2.0 * control
    X[:, 1] += group
    y = X.sum(axis=1) + rng.normal(size=2000)
    for method in ("bins", "critic"):
        model = FairRegressor(
            notion=ConditionalParity(control),
            method=method,
            solver="sgda",
            fairness_weight=30,
            max_epochs=6,
            random_state=0,
        )
        model.fit(X, y, sensitive_features=group, sample_weight=np.full(2000, 2.0))
        fair = model.predict(X)
        for value in (0, 1):
            inside = control == value
            assert mean_gap(fair[inside], group[inside]) < 0.3
        assert mean_gap(fair, group) > 0.5


def test_a_saved_network_predicts_as_before(tmp_path):
    X, y, group = shifted_groups(100)
    model = FairRegressor(hidden=(4,), max_epochs=1, random_state=0)
    model.fit(X, y, sensitive_features=group)
    fferm.save(model, tmp_path / "model.fferm")
    loaded = fferm.load(tmp_path / "model.fferm")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_features_in_": 10**9}, "do not fit RegressionNet"),
        ({"unit_": np.array([0.0, np.nan])}, "unit_ must hold finite numbers"),
        ({"unit_": np.zeros(3)}, "cannot be loaded"),
    ],
    ids=["features", "unit", "units"],
)
def test_a_saved_network_that_cannot_predict_is_refused(change, words, tmp_path):
    X, y, group = shifted_groups(100)
    model = FairRegressor(hidden=(4,), max_epochs=1, random_state=0)
    vars(model.fit(X, y, sensitive_features=group)).update(change)
    fferm.save(model, tmp_path / "model.fferm")
    with pytest.raises(PersistenceError, match=words):
        fferm.load(tmp_path / "model.fferm")


def test_a_model_may_change_from_network_to_line_and_back():
    X, y, _ = shifted_groups(100)
    model = FairRegressor(hidden=(4,), fairness_weight=0, max_epochs=1, random_state=0)
    model.fit(X, y)
    model.set_params(hidden=None).fit(X, y)
    line = FairRegressor(fairness_weight=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), line.predict(X))
    assert not hasattr(model, "module_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "table"}, "method must be 'bins' or 'critic'"),
        ({"solver": "adam"}, "solver must be 'auto', 'lbfgs' or 'sgda'"),
        ({"solver": "lbfgs", "hidden": (4,)}, "Use solver='sgda'"),
        ({"solver": "sgda", "uncertainty": LargeShift(0.01)}, "needs the exact tables"),
        ({"hidden": (4,), "uncertainty": LargeShift(0.01)}, "needs the exact tables"),
        ({"hidden": (4,), "fit_intercept": False}, "needs a linear model"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(options, message):
    X, y, group = shifted_groups(60)
    with pytest.raises(InvalidParameterError, match=message):
        FairRegressor(**options).fit(X, y, sensitive_features=group)


@pytest.mark.parametrize("method", ["bins", "critic"])
def test_minibatches_take_every_loss(method):
    X, y, group = shifted_groups(1500)
    outlying = np.where(np.arange(1500) < 45, y + 20, y)
    options = {"method": method, "solver": "sgda", "fairness_weight": 0.1}
    options |= {"max_epochs": 10, "random_state": 0}
    high = FairRegressor(loss=Quantile(0.9), **options)
    high.fit(X, y, sensitive_features=group)
    assert np.mean(y <= high.predict(X)) == pytest.approx(0.9, abs=0.03)
    bias = {}
    for loss in ("squared", "absolute", Huber(0.05)):
        model = FairRegressor(loss=loss, **options)
        model.fit(X, outlying, sensitive_features=group)
        bias[str(loss)] = np.mean(model.predict(X) - y)
    squared, *robust = bias.values()
    assert squared > 0.4
    assert max(map(abs, robust)) < 0.25
    with pytest.raises(UnknownNameError, match="Unknown"):
        FairRegressor(loss="cubic", **options).fit(X, y, sensitive_features=group)


def gap_of(model, X, group):
    return abs(np.subtract(*(model.predict(X[group == k]).mean() for k in (0, 1))))


@pytest.mark.parametrize("method", ["bins", "critic"])
def test_minibatches_take_the_penalty_on_other_rows(method):
    # Where training rows come from nothing depends on the group, there all does.
    X, y, group = shifted_groups(1500)
    rng = np.random.default_rng(1)
    own, target = rng.normal(size=X.shape), rng.normal(size=len(y))
    target += own.sum(axis=1)
    n_epochs = 20 if method == "bins" else 8
    options = {"method": method, "max_epochs": n_epochs, "random_state": 0}
    gaps = []
    for weight in (0.0, 20.0):
        model = FairRegressor(fairness_weight=weight, solver="sgda", **options)
        model.fit(own, target, penalty_data=(X, {"sex": group}))
        gaps.append(gap_of(model, X, group))
    assert gaps[1] < 0.4 * gaps[0]
    if method == "bins":
        full = FairRegressor(fairness_weight=20.0)
        full.fit(own, target, penalty_data=(X, {"sex": group}))
        assert gaps[1] == pytest.approx(gap_of(full, X, group), abs=0.1)


@pytest.mark.parametrize("method", ["bins", "critic"])
def test_minibatches_without_an_intercept_pass_through_the_origin(method):
    X, y, group = shifted_groups(1500)
    options = {"fit_intercept": False, "fairness_weight": 5.0}
    n_epochs = 40 if method == "bins" else 3
    model = FairRegressor(
        solver="sgda", method=method, max_epochs=n_epochs, random_state=0, **options
    ).fit(X, y, sensitive_features=group)
    assert model.intercept_ == 0
    assert model.predict(np.zeros((1, X.shape[1])))[0] == 0
    if method == "bins":
        full = FairRegressor(**options).fit(X, y, sensitive_features=group)
        np.testing.assert_allclose(model.coef_, full.coef_, atol=0.1)


def test_a_critic_trains_where_some_have_no_group():
    X, y, group = shifted_groups(1500)
    sex = np.where(group, "f", "m").astype(object)
    sex[:150] = None
    gaps = []
    for weight in (0.0, 20.0):
        model = FairRegressor(
            method="critic", fairness_weight=weight, max_epochs=8, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingGroupWarning)
            model.fit(X, y, sensitive_features={"sex": sex})
        gaps.append(gap_of(model, X, group))
    assert gaps[1] < 0.4 * gaps[0]


def test_bounds_and_critics_take_frames_of_sensitive_columns():
    X, y, group = shifted_groups(600)
    frame = pd.DataFrame({"sex": group, "age": np.linspace(0, 1, 600)})
    options = {"max_epochs": 2, "random_state": 0}
    critic = FairRegressor(method="critic", **options)
    assert critic.fit(X, y, sensitive_features=frame).result_.is_success
    bound = FairRegressor(max_violation=0.9, groups="marginal")
    assert bound.fit(X, y, sensitive_features=frame).feasible_


def test_a_critic_refuses_what_it_cannot_compare():
    fair = CriticFairnessLoss.from_labels(
        np.linspace(0, 1, 50), {"age": np.linspace(0, 1, 50), "sex": ["f", "m"] * 25}
    )
    one = torch.zeros(1, requires_grad=True)
    with pytest.raises(InvalidInputError, match="batches of at least 2"):
        fair(one, {"age": [0.5], "sex": ["f"]})
    with pytest.raises(InvalidInputError, match="sex contains 'x'"):
        fair.encode({"age": [0.5, 0.1], "sex": ["f", "x"]})
    gapped = fair.encode({"age": [0.5, np.nan, 0.1], "sex": ["f", "m", None]})
    assert fair.reader(torch.zeros(3), gapped)[-1].tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(InvalidInputError, match="age contains non-numeric values"):
        fair.encode({"age": ["old", "young"], "sex": ["f", "m"]})
    nobody = {"age": [0.5, np.nan] * 9, "sex": [None, "m"] * 9}
    with pytest.raises(InvalidInputError, match="No row has a value in each"):
        CriticFairnessLoss.from_labels(np.arange(18), nobody, continuous=["age"])
    with pytest.raises(InvalidParameterError, match=r"continuous must be.*'race'"):
        CriticFairnessLoss.from_labels([0, 1], {"sex": [0, 1]}, continuous=["race"])
    with pytest.raises(InvalidParameterError, match="sampling must be 'epochs'"):
        CriticFairnessLoss.from_labels([0, 1], {"sex": [0, 1]}, sampling="cycles")


def test_the_loss_tells_numbers_from_classes_by_their_values():
    numbers = FairnessLoss.from_labels(np.linspace(0, 1, 80), [0, 1] * 40, bins=4)
    assert len(numbers.classes) == 4
    labels = FairnessLoss.from_labels([0.0, 1.0] * 40, [0, 0, 1, 1] * 20)
    assert labels.classes == (0.0, 1.0)
    forced = FairnessLoss.from_labels(
        [0.0, 1.0, 2.0, 5.0] * 20, [0, 0, 1, 1] * 20, outputs="numbers", bins=2
    )
    assert len(forced.classes) == 2
    with pytest.raises(InvalidParameterError, match="bins must be"):
        FairnessLoss.from_labels(np.linspace(0, 1, 80), [0, 1] * 40, bins=1)
    with pytest.raises(InvalidInputError, match="one number a row"):
        numbers(torch.zeros(3, 4), torch.tensor([0, 1, 0]))


def test_a_continuous_column_is_read_in_the_bands_of_training():
    rng = np.random.default_rng(0)
    age, sex = rng.normal(size=400), rng.integers(2, size=400)
    y = rng.integers(2, size=400)
    fair = FairnessLoss.from_labels(y, {"age": age, "sex": sex}, groups="marginal")
    assert len(fair.groups) == 8 + 2
    logits = torch.zeros(4, 2)
    raw = torch.tensor(np.column_stack([age[:4], sex[:4]]))
    codes = fair.encode({"age": age[:4], "sex": sex[:4]})
    cells = [fair.reader(logits, s).cell.tolist() for s in (raw, codes)]
    assert cells[0] == cells[1]
    missing = fair.reader(logits[:1], torch.tensor([[np.nan, 1.0]])).cell
    assert missing[0, 0] == 10  # no cell of the table


def collinear(n_rows=2000):
    """Return 100 columns that are mixtures of 12, a target and a number behind both."""
    rng = np.random.default_rng(0)
    s = rng.normal(size=n_rows)
    factors = rng.normal(size=(n_rows, 12))
    factors[:, :4] += s[:, None]
    X = factors @ rng.normal(size=(12, 100)) + 0.02 * rng.normal(size=(n_rows, 100))
    y = factors @ np.abs(rng.normal(size=12))
    return X, y + 0.5 * y.std() * rng.normal(size=n_rows), s


def test_a_critic_trains_on_few_rows_of_many_collinear_features():
    X, y, s = collinear()
    seen, unseen = slice(0, 1400), slice(1400, None)
    fair, plain = (
        FairRegressor(method="critic", fairness_weight=weight, random_state=0).fit(
            X[seen], y[seen], sensitive_features=s[seen]
        )
        for weight in (None, 0)
    )
    assert plain.score(X[unseen], y[unseen]) > 0.7
    assert fair.score(X[unseen], y[unseen]) > 0.2
    correlations = [
        abs(np.corrcoef(model.predict(X[unseen]), s[unseen])[0, 1])
        for model in (plain, fair)
    ]
    assert correlations[0] > 0.6
    assert correlations[1] < 0.3


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({"fairness_weight": 30, "learning_rate": 1.0}, "worse_than_constant"),
        ({"fairness_weight": 10, "learning_rate": 1e-7}, "dependence_kept"),
    ],
)
def test_a_critic_that_fails_says_so(options, result):
    X, y, s = collinear(600)
    model = FairRegressor(method="critic", max_epochs=2, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match="FairRegressor: .* use method='bins'"):
        model.fit(X, y, sensitive_features=s)
    assert model.result_.name == result
