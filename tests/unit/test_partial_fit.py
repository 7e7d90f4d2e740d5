"""Training on data in pieces ends where training on the whole does."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

import fferm
from fferm import FairLogisticRegression, GroupCounts, LargeShift
from fferm.data.rows import FitInput
from fferm.datasets import load_adult, make_biased
from fferm.errors import (
    ConvergenceWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
    NonFiniteError,
)
from fferm.notions import ConditionalParity, EqualOpportunity
from fferm.solvers import LBFGS
from fferm.solvers.linear import value_and_gradient

# Adult has groups of a few rows.
pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


SORTED = pytest.mark.filterwarnings("ignore:.*Sorted by group")


@pytest.fixture(scope="module")
def data():
    return make_biased(2000, n_groups=3, random_state=0)


@pytest.fixture(scope="module")
def adult():
    return load_adult(sensitive=("sex", "race"))


def in_random_order(data):
    order = np.random.default_rng(0).permutation(len(data.y))
    return np.array_split(order, 10)


def sorted_by_group(data):
    columns = [data.sensitive_features[name] for name in data.sensitive_features]
    order = np.lexsort([pd.factorize(column, sort=True)[0] for column in columns[::-1]])
    return np.array_split(order, 10)


def count(data, pieces):
    counts = GroupCounts()
    for rows in pieces:
        counts.update(
            sensitive_features=data.sensitive_features.iloc[rows], y=data.y[rows]
        )
    return counts


def train(data, pieces, n_passes=1, *, groups=None, model=None, **options):
    if model is None:
        options = {"fairness_weight": 3.0, "random_state": 0} | options
        model = FairLogisticRegression(**options)
    for _ in range(n_passes):
        for rows in pieces:
            model.partial_fit(
                data.X[rows],
                data.y[rows],
                classes=np.unique(data.y),
                groups=groups,
                sensitive_features=data.sensitive_features.iloc[rows],
            )
    return model


def excess(model, data, **given):
    """Return by which share the objective of a model exceeds the best there is."""
    given = {"sensitive_features": data.sensitive_features} | given
    given = FitInput(data.X, data.y, **given)
    problem = clone(model)._encode(given).problem
    theta = np.column_stack([model.coef_, model.intercept_])
    best = LBFGS().solve(problem).stats["objective"]
    return value_and_gradient(problem, theta)[0] / best - 1


# Where it ends.


@pytest.mark.parametrize("weight", [1.0, 10.0])
@pytest.mark.parametrize("is_given", [True, False], ids=["counted", "running"])
def test_ten_pieces_and_a_few_passes_reach_the_optimum(weight, is_given, data):
    pieces = in_random_order(data)
    groups = count(data, pieces) if is_given else None
    model = train(data, pieces, 5, groups=groups, fairness_weight=weight)
    assert -1e-9 < excess(model, data) < 0.01


@pytest.mark.parametrize("weight", [1.0, 10.0])
def test_ten_pieces_of_adult_reach_the_optimum_in_one_pass(weight, adult):
    model = train(adult, in_random_order(adult), fairness_weight=weight)
    assert excess(model, adult) < 0.01


@SORTED
@pytest.mark.parametrize(("weight", "n_passes"), [(1.0, 5), (10.0, 10)])
def test_pieces_sorted_by_group_need_more_passes(weight, n_passes, adult):
    pieces = sorted_by_group(adult)
    groups = count(adult, pieces)
    model = train(adult, pieces, n_passes, groups=groups, fairness_weight=weight)
    assert excess(model, adult) < 0.01


@SORTED
def test_pieces_sorted_by_group_need_to_know_the_groups(data):
    pieces = sorted_by_group(data)
    with pytest.raises(InvalidInputError, match="first batch has only one group"):
        train(data, pieces)
    model = train(data, pieces, 10, groups=count(data, pieces))
    assert excess(model, data) < 0.01


def test_a_piece_without_a_group_that_it_should_hold_is_warned_of_once(data):
    pieces = sorted_by_group(data)
    groups = count(data, pieces)
    with pytest.warns(ConvergenceWarning, match="140 rows has none of") as caught:
        model = train(data, pieces, groups=groups)
    assert len(caught) == 1
    assert excess(model, data) > 0.05
    # Also through pickle; a clone is another model.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(data, pieces, groups=groups, model=pickle.loads(pickle.dumps(model)))
    with pytest.warns(ConvergenceWarning, match="has none of the group 2, where about"):
        train(data, pieces[:1], groups=groups, model=clone(model))


@pytest.mark.parametrize("how", ["intersection", "marginal"])
def test_pieces_that_lack_a_group_by_chance_are_not_warned_of(how, adult):
    pieces = np.array_split(in_random_order(adult)[0], 30)
    shares = count(adult, in_random_order(adult))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        train(adult, pieces, groups=shares, model=FairLogisticRegression(groups=how))


def test_one_piece_again_and_again_is_as_good_as_minibatches(data):
    model = train(data, [np.arange(len(data.y))], 20)
    assert excess(model, data) < 0.001


@pytest.mark.parametrize(
    "notion", [EqualOpportunity(positive=1), "equalized_odds"], ids=str
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_notions_that_condition_on_the_label_are_trained(notion, n_classes):
    data = make_biased(1500, n_classes=n_classes, random_state=1)
    pieces = in_random_order(data)
    for groups in (count(data, pieces), None):
        model = train(data, pieces, 10, groups=groups, notion=notion)
        assert excess(model, data) < 0.01
        assert model.dual_.shape[1:] == (n_classes, 2)


@pytest.mark.parametrize(
    ("divergence", "weight"),
    [("chi2", 3.0), ("reverse_kl", 3.0), ("js", 10.0), ("tv", 3.0)],
)
def test_other_divergences_are_trained(divergence, weight, data):
    options = {"divergence": divergence, "fairness_weight": weight}
    model = train(data, in_random_order(data), 10, **options)
    plain = FairLogisticRegression(**options).set_params(fairness_weight=0)
    plain.fit(data.X, data.y).set_params(**options)
    assert excess(model, data) < 0.02 < excess(plain, data) / 3


def test_the_dual_comes_near_that_of_the_full_batch(data):
    model = train(data, in_random_order(data), 20)
    full = FairLogisticRegression(fairness_weight=3.0)
    full.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    np.testing.assert_allclose(model.dual_, full.dual_, atol=0.02)
    assert model.fairness_weight_ == full.fairness_weight_ == 3.0


# What it is given.


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_shares_that_are_given_and_counted_make_the_same_model(notion, adult):
    pieces = in_random_order(adult)[:3]
    everyone = adult.sensitive_features.iloc[np.concatenate(pieces)]
    y = adult.y[np.concatenate(pieces)]
    columns = [*(everyone[name] for name in everyone)]
    if notion == "equalized_odds":
        columns.insert(0, pd.Series(y, index=everyone.index))
    shares = everyone.groupby([c.to_numpy() for c in columns], observed=True).size()
    counts = count(adult, pieces)
    models = [
        train(adult, pieces, groups=groups, notion=notion)
        for groups in (counts, shares, shares.to_dict(), (shares / 7).to_dict())
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=0, atol=1e-12)
    if notion == "equalized_odds":
        assert counts.shares() == pytest.approx((shares / len(y)).to_dict())


@SORTED
@pytest.mark.parametrize("how", ["intersection", "marginal"])
def test_groups_are_called_as_in_fit(how, adult):
    s = adult.sensitive_features
    model = FairLogisticRegression(groups=how, random_state=0)
    counts = count(adult, sorted_by_group(adult))
    rows = sorted_by_group(adult)[0]
    model.partial_fit(
        adult.X[rows], adult.y[rows], groups=counts, sensitive_features=s.iloc[rows]
    )
    full = FairLogisticRegression(groups=how, solver="sgda", max_epochs=1)
    full.fit(adult.X, adult.y, sensitive_features=s)
    assert model.groups_.tolist() == full.groups_.tolist()
    assert model.classes_.tolist() == full.classes_.tolist()
    assert model.dual_.shape == full.dual_.shape


def test_labels_frames_and_sparse_rows_come_as_in_fit(data):
    y = np.array(["no", "yes"])[data.y]
    names = [f"x{j}" for j in range(data.X.shape[1])]
    forms = (
        lambda X: X,
        lambda X: pd.DataFrame(X, columns=names),
        scipy.sparse.csr_array,
    )
    models = []
    for form in forms:
        model = FairLogisticRegression(random_state=0)
        for rows in in_random_order(data):
            model.partial_fit(
                form(data.X[rows]),
                y[rows].tolist(),
                classes=["yes", "no"],
                sensitive_features=data.sensitive_features.iloc[rows],
            )
        assert model.classes_.tolist() == ["no", "yes"]
        assert set(model.predict(form(data.X_test))) == {"no", "yes"}
        models.append(model)
    assert models[1].feature_names_in_.tolist() == names
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-8)


def test_rows_without_a_group_train_the_loss_and_are_counted_aloud(data):
    s = data.sensitive_features["group"].astype(object).to_numpy(copy=True)
    s[::5] = None
    weight = np.random.default_rng(0).uniform(0.5, 2, len(s))
    counts = GroupCounts()
    counts.update(sensitive_features=s, sample_weight=weight)
    assert set(counts.shares()) == {"0", "1", "2", None}
    model = FairLogisticRegression(fairness_weight=3.0, random_state=0)
    for _ in range(10):
        for rows in in_random_order(data):
            words = f"{sum(v is None for v in s[rows])} of 140 rows have no value"
            with pytest.warns(MissingGroupWarning, match=words):
                model.partial_fit(
                    data.X[rows],
                    data.y[rows],
                    classes=[0, 1],
                    groups=counts,
                    sensitive_features=s[rows],
                    sample_weight=weight[rows],
                )
    assert excess(model, data, sensitive_features=s, sample_weight=weight) < 0.01


def test_rows_of_weight_zero_and_the_unit_of_weights_do_not_matter(data):
    pieces = in_random_order(data)
    plain = train(data, pieces)
    model = FairLogisticRegression(fairness_weight=3.0, random_state=0)
    for rows in pieces:
        s = data.sensitive_features["group"].to_numpy()[rows]
        model.partial_fit(
            np.vstack([data.X[rows], 100 + data.X[:5]]),
            np.append(data.y[rows], [0] * 5),
            classes=[0, 1],
            sensitive_features=np.append(s, s[:5]),
            sample_weight=np.append(np.full(len(rows), 8.0), np.zeros(5)),
        )
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-12)


def test_without_a_penalty_no_groups_are_needed(data):
    model = FairLogisticRegression(fairness_weight=0, random_state=0)
    for rows in in_random_order(data) * 10:
        model.partial_fit(data.X[rows], data.y[rows], classes=[0, 1])
    full = FairLogisticRegression(fairness_weight=0).fit(data.X, data.y)
    np.testing.assert_allclose(
        model.predict_proba(data.X), full.predict_proba(data.X), atol=0.05
    )
    assert model.groups_.size == 0


# What goes on, and what begins anew.


def test_a_seed_gives_the_same_model_also_through_pickle(data):
    pieces = in_random_order(data)
    whole = train(data, pieces)
    first = train(data, pieces[:4])
    after = train(data, pieces[4:], model=pickle.loads(pickle.dumps(first)))
    np.testing.assert_array_equal(after.coef_, whole.coef_)
    assert after.n_iter_ == 10
    assert not np.array_equal(train(data, pieces, random_state=1).coef_, whole.coef_)


def test_fit_and_clone_forget_the_pieces(data):
    pieces = in_random_order(data)
    model = train(data, pieces)
    fresh = train(data, pieces[:1], model=clone(model))
    np.testing.assert_array_equal(fresh.coef_, train(data, pieces[:1]).coef_)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    full = FairLogisticRegression(fairness_weight=3.0)
    full.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    np.testing.assert_array_equal(model.coef_, full.coef_)
    assert train(data, pieces[:1], model=model).n_iter_ == 1


@pytest.mark.parametrize("divergence", ["kl", "total_variation"])
def test_after_fit_and_load_training_goes_on_from_the_model(divergence, data, tmp_path):
    model = FairLogisticRegression(
        divergence=divergence, fairness_weight=3.0, random_state=0
    )
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    before = excess(model, data)
    fferm.save(model, tmp_path / "model")
    for going_on in (fferm.load(tmp_path / "model"), model):
        for rows in in_random_order(data)[:3]:
            train(data, [rows], model=going_on)
            assert excess(going_on, data) < before + 0.005


def test_a_model_of_pieces_is_saved_and_loaded(data, tmp_path):
    model = train(data, in_random_order(data))
    fferm.save(model, tmp_path / "model")
    back = fferm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict(data.X), model.predict(data.X))
    train(data, in_random_order(data), model=back)
    assert excess(back, data) < 0.01


def test_a_refused_piece_leaves_everything_as_it_was(data):
    pieces = in_random_order(data)
    model, rows = train(data, pieces[:2]), pieces[2]
    before = model.coef_
    s = data.sensitive_features["group"].to_numpy()[rows].astype(object)
    known = s.copy()
    s[0] = "newcomer"
    with pytest.raises(InvalidInputError, match=r"Unknown groups: newcomer\..*groups="):
        model.partial_fit(data.X[rows], data.y[rows], sensitive_features=s)
    model.set_params(learning_rate=1e308)
    with pytest.raises(NonFiniteError, match="not a finite number"):
        model.partial_fit(data.X[rows], data.y[rows], sensitive_features=known)
    model.set_params(learning_rate=0.4)
    np.testing.assert_array_equal(model.coef_, before)
    train(data, pieces[2:], model=model)
    np.testing.assert_array_equal(model.coef_, train(data, pieces).coef_)


# What is refused.


@pytest.mark.parametrize("solver", ["lbfgs", "semi_stochastic", "sreda", "newton"])
def test_solvers_that_need_all_rows_are_refused(solver, data):
    with pytest.raises(InvalidParameterError, match=f"needs solver='sgda'.*'{solver}'"):
        train(data, in_random_order(data), solver=solver)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_violation": 0.1}, "holds out no rows.*max_violation=None"),
        ({"notion": "sufficiency"}, "that of Sufficiency"),
        ({"divergence": "js", "uncertainty": LargeShift(0.01)}, "that of LargeShift"),
        ({"notion": ConditionalParity(0)}, "ConditionalParity.*control feature"),
        (
            {"batch_size": 0},
            "batch_size must be an integer of at least 1, or None; got 0",
        ),
    ],
)
def test_what_pieces_cannot_train_is_refused_by_name(options, words, data):
    with pytest.raises(InvalidParameterError, match=words):
        train(data, in_random_order(data), **options)


def test_the_penalty_may_not_change_under_way(data):
    pieces = in_random_order(data)
    for change in ({"divergence": "chi2"}, {"notion": "equalized_odds"}):
        model = train(data, pieces[:1]).set_params(**change)
        with pytest.raises(InvalidParameterError, match="Fit a clone"):
            train(data, pieces[1:], model=model)
    model = train(data, pieces[:1]).set_params(fairness_weight=0)
    with pytest.raises(
        InvalidParameterError, match="fairness_weight > 0 must stay True"
    ):
        train(data, pieces[1:], model=model)


X4, Y4, S4 = np.eye(4), [0, 1, 0, 1], ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"classes": None}, "classes must be passed on the first call"),
        ({"classes": [1]}, "at least two"),
        ({"classes": [0, 2]}, r"label 1, which is not among the classes 0, 2\. Name"),
        (
            {"sensitive_features": None},
            r"needs sensitive_features\. Pass partial_fit",
        ),
        ({"sensitive_features": ["a"] * 4}, "first batch has only one group"),
        (
            {"groups": {"a": 1}, "sensitive_features": ["a"] * 4},
            "groups has only one group",
        ),
        ({"groups": {"a": 0.3, "c": 0.7}}, r"Unknown groups: b\."),
        ({"groups": {"a": 1, "b": 0}}, "no share of the group b "),
        ({"groups": {"a": 0, "b": 0}}, "sum to 0"),
        ({"groups": {"a": -1, "b": 2}}, "share of 'a' must be .*; got -1"),
        (
            {"groups": {"a": "x", "b": 2}},
            "share of 'a' must be .*; got 'x'",
        ),
        (
            {"groups": {("a", "b"): 1}},
            r"key of groups must be one value.*got \('a', 'b'\)",
        ),
        ({"groups": GroupCounts()}, "has counted nothing"),
        ({"sample_weight": [0] * 4}, "not only zeros"),
        ({"sample_weight": [-1] * 4}, "negative"),
    ],
)
def test_bad_input_is_refused_with_advice(given, words):
    given = {"classes": [0, 1], "sensitive_features": S4} | given
    with pytest.raises((InvalidInputError, MissingSensitiveError), match=words):
        FairLogisticRegression().partial_fit(X4, Y4, **given)


def test_groups_that_are_no_shares_are_refused():
    with pytest.raises(TypeError, match=r"groups must be shares.*got list"):
        FairLogisticRegression().partial_fit(
            X4, Y4, classes=[0, 1], groups=["a", "b"], sensitive_features=S4
        )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": 1, "b": 1}, r"key of groups must be the label, on which.*got 'a'"),
        ({(1, "a"): 1, (1, "b"): 1}, "no share of the label 0"),
        ({(0, "a"): 1, (1, "a"): 1, (1, "b"): 1}, r"no share of the group b \(y=0\)"),
        ({(0, "a"): 1, (1, "a"): 1, (2, "b"): 1}, "groups contains the label 2"),
    ],
)
def test_shares_have_to_fit_a_notion_that_conditions_on_the_label(groups, words):
    model = FairLogisticRegression(notion="equalized_odds")
    with pytest.raises(InvalidInputError, match=words):
        model.partial_fit(X4, Y4, classes=[0, 1], groups=groups, sensitive_features=S4)


def test_later_pieces_have_to_agree_with_the_first():
    def again(X=X4, y=Y4, s=S4, **given):
        model = FairLogisticRegression(random_state=0)
        model.partial_fit(X4, Y4, classes=[0, 1], sensitive_features=S4)
        model.partial_fit(X, y, sensitive_features=s, **given)

    again()
    with pytest.raises(InvalidInputError, match=r"3 features, but .* 4 features"):
        again(X4[:, :3])
    with pytest.raises(InvalidInputError, match="label 7, which is not among"):
        again(y=[0, 1, 0, 7])
    with pytest.raises(InvalidInputError, match=r"classes must stay .*got \[0, 2\]"):
        again(classes=[0, 2])
    with pytest.raises(InvalidInputError, match="groups lacks b"):
        again(s=["a"] * 4, groups={"a": 1})
    with pytest.raises(InvalidInputError, match=r"columns must be .*got u, v"):
        again(s={"u": S4, "v": S4})


# Counting.


def test_counts_do_not_depend_on_the_pieces(adult):
    whole, parts = (
        count(adult, [np.arange(len(adult.y))]),
        count(adult, sorted_by_group(adult)),
    )
    assert whole.shares() == pytest.approx(parts.shares())
    assert whole.n_rows == parts.n_rows == len(adult.y)
    assert whole.labels == [0, 1]
    assert sum(whole.shares().values()) == pytest.approx(1)


def test_counts_read_values_as_fit_does():
    counts = GroupCounts()
    counts.update(sensitive_features={"u": [1, 2], "v": ["x", None]})
    counts.update(sensitive_features={"u": ["1", 1.0], "v": ["x", "y"]})
    assert counts.shares() == {
        ("1", "x"): 0.5,
        ("1", "y"): 0.25,
        ("2", None): 0.25,
    }


@pytest.mark.parametrize("has_labels", [False, True])
def test_a_row_of_weight_3_counts_as_three_rows(has_labels):
    rng = np.random.default_rng(0)
    s, y = rng.choice(["a", "b", "c"], 60), rng.integers(0, 2, 60)
    weight = np.where(s == "a", 3, rng.integers(0, 3, 60))
    weighted, repeated = GroupCounts(), GroupCounts()
    for rows in np.array_split(np.arange(60), 4):
        labels = {"y": y[rows]} if has_labels else {}
        weighted.update(
            sensitive_features=s[rows], sample_weight=weight[rows], **labels
        )
        again = np.repeat(rows, weight[rows])
        labels = {"y": y[again]} if has_labels else {}
        repeated.update(sensitive_features=s[again], **labels)
    assert weighted.total == repeated.total == weight.sum()
    assert weighted.n_rows == np.sum(weight > 0)
    assert weighted.shares() == pytest.approx(repeated.shares(), rel=1e-12)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("is_counted", [False, True])
def test_a_first_batch_counts_its_groups_with_their_weights(notion, is_counted, data):
    s = data.sensitive_features["group"].to_numpy()
    # As if the groups, and their labels, were of quite other sizes.
    weight = np.where(s == s[0], 9.0, 1.0) * np.where(data.y == 1, 4.0, 1.0)
    cells = pd.Series(weight).groupby([data.y, s]).sum()
    if notion == "demographic_parity":
        cells = cells.groupby(level=1).sum()
    counts = GroupCounts()
    counts.update(sensitive_features=s, y=data.y, sample_weight=weight)
    first, second = (
        FairLogisticRegression(
            fairness_weight=3.0, notion=notion, random_state=0
        ).partial_fit(
            data.X,
            data.y,
            classes=[0, 1],
            groups=groups,
            sensitive_features=s,
            sample_weight=weight,
        )
        for groups in (counts if is_counted else None, cells)
    )
    np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-10)


def test_counts_refuse_what_does_not_add_up():
    counts = GroupCounts()
    counts.update(sensitive_features=S4, y=Y4)
    with pytest.raises(InvalidInputError, match="Some batches have labels"):
        counts.update(sensitive_features=S4)
    with pytest.raises(InvalidInputError, match="has 4 values for 3 rows"):
        counts.update(sensitive_features=S4, y=Y4[:3])
    with pytest.raises(InvalidInputError, match=r"columns must be .*got u, v"):
        counts.update(sensitive_features={"u": S4, "v": S4}, y=Y4)
    without = GroupCounts()
    without.update(sensitive_features=S4)
    with pytest.raises(InvalidInputError, match="GroupCounts has none"):
        FairLogisticRegression(notion="equalized_odds").partial_fit(
            X4, Y4, classes=[0, 1], groups=without, sensitive_features=S4
        )
