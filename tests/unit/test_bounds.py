"""Bounds on the violation: kept on held-out rows by the smallest weight, or said.

First the rule without a promise, then the one that tests the bound.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import fferm
from fferm import FairLogisticRegression, LargeShift, SmallShift, audit
from fferm.data.rows import FitInput
from fferm.data.split import hold_out
from fferm.datasets import load_adult, load_german, make_biased
from fferm.errors import (
    CollapseWarning,
    EmptyStratumWarning,
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
)
from fferm.estimators import weight_search as bounds
from fferm.metrics import intervals, violation
from fferm.notions import ConditionalParity, EqualOpportunity

NOTIONS = ["demographic_parity", "equal_opportunity", "equalized_odds"]


def arrays(data):
    """Return features, labels and groups as plain arrays."""
    sensitive = data.sensitive_features.iloc[:, 0].astype(str).to_numpy(dtype=object)
    return np.asarray(data.X), np.asarray(data.y), sensitive


@pytest.fixture(scope="module")
def biased():
    return arrays(make_biased(5000, random_state=0))


@pytest.fixture(scope="module")
def german():
    return arrays(load_german("age_over_25"))


def bounded(max_violation=0.05, **options):
    """Return a model whose held-out value keeps a bound, trained on all rows."""
    options = {"random_state": 0, "confidence": None, "refit": True, **options}
    return FairLogisticRegression(max_violation=max_violation, **options)


def certified(max_violation=0.1, **options):
    """Return a model that is tested on held-out rows, and stays as it is."""
    return bounded(max_violation, **{"confidence": 0.95, "refit": False, **options})


def fit(model, rows, **options):
    X, y, s = rows
    return model.fit(X, y, sensitive_features=s, **options)


def search_of(model, rows, **options):
    """Return what the search of a model trains on and judges by."""
    X, y, s = rows
    given = FitInput(X, y, s, **options)
    return bounds.HeldOutDecisions(model, given, clone(model)._encode(given))


def trained_on_the_rest(model, rows, fairness_weight):
    """Return a cold fit without the held-out rows, and these rows."""
    trial = search_of(model, rows)
    plain = clone(model).set_params(fairness_weight=fairness_weight, max_violation=None)
    fit(plain, rows, sample_weight=trial.passed.sample_weight)
    return plain, tuple(values[trial.position] for values in rows)


def violation_on_held_out(model, rows, fairness_weight):
    plain, (X, y, s) = trained_on_the_rest(model, rows, fairness_weight)
    return violation(y, plain.predict(X), sensitive_features=s, notion=model.notion)


@pytest.mark.parametrize(
    ("notion", "max_violation"),
    [
        ("demographic_parity", 0.03),
        ("demographic_parity", 0.1),
        ("equal_opportunity", 0.15),
        ("equalized_odds", 0.05),
        ("equalized_odds", 0.1),
    ],
)
def test_the_bound_is_kept_on_held_out_rows(biased, notion, max_violation):
    model = fit(bounded(max_violation, notion=notion), biased)

    assert model.feasible_ is True
    assert 0 < model.violation_ <= max_violation
    found = violation_on_held_out(model, biased, model.fairness_weight_)
    assert found == pytest.approx(model.violation_, abs=1e-12)


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.filterwarnings("ignore::fferm.errors.SmallGroupWarning")
def test_the_bound_is_kept_on_german(german, notion):
    # About 27 of the held-out rows are of the young, so no bound can be tight.
    model = fit(bounded(0.1, notion=notion, random_state=2), german)

    assert model.feasible_
    found = violation_on_held_out(model, german, model.fairness_weight_)
    assert found == pytest.approx(model.violation_, abs=1e-12)
    assert found <= 0.1


@pytest.fixture(scope="module")
def adult():
    return load_adult("sex")


@pytest.mark.parametrize(("max_violation", "least_accuracy"), [(0.02, 0.83), (0.1, 0)])
def test_the_bound_is_kept_on_adult(adult, max_violation, least_accuracy):
    model = bounded(max_violation, notion="demographic_parity")
    model.fit(adult.X, adult.y, sensitive_features=adult.sensitive_features)

    assert model.feasible_
    assert max_violation / 2 < model.violation_ <= max_violation
    found = audit(
        model,
        adult.X_test,
        adult.y_test,
        sensitive_features=adult.sensitive_features_test,
        n_bootstrap=0,
    )
    assert found.interval[0] <= max_violation
    assert found.accuracy > least_accuracy


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_clearly_smaller_weight_breaks_the_bound(biased, notion):
    model = fit(bounded(0.15, notion=notion), biased)

    for share in (0.9, 0.5, 0.1, 0):
        weight = share * model.fairness_weight_
        assert violation_on_held_out(model, biased, weight) > 0.15


def test_every_smaller_weight_that_was_tried_breaks_the_bound(biased, monkeypatch):
    tried, judge = [], bounds.HeldOutDecisions.judge

    def note(self, model):
        tried.append(judge(self, model))
        return tried[-1]

    monkeypatch.setattr(bounds.HeldOutDecisions, "judge", note)
    model = fit(bounded(0.05), biased)

    within = [one.fairness_weight for one in tried if one.violation <= 0.05]
    assert min(within) == model.fairness_weight_
    below = [w.fairness_weight for w in tried if w.fairness_weight < min(within)]
    assert len(below) > 3
    # Six halvings of a step of 10^(1/4) end within one percent.
    assert max(below) > 0.99 * min(within)


def test_a_model_that_is_fair_already_gets_no_penalty(biased):
    model = fit(bounded(0.9), biased)

    assert model.fairness_weight_ == 0
    assert model.feasible_
    plain = FairLogisticRegression(fairness_weight=0).fit(*biased[:2])
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)


def test_a_weight_below_the_first_of_the_grid_is_found(biased, monkeypatch):
    grid = np.array([0.0, 50.0])
    monkeypatch.setattr(bounds, "default_weights", lambda divergence, count: grid)

    model = fit(bounded(0.45), biased)

    assert 0 < model.fairness_weight_ < 25
    assert violation_on_held_out(model, biased, model.fairness_weight_) <= 0.45
    assert violation_on_held_out(model, biased, model.fairness_weight_ / 2) > 0.45


@pytest.mark.parametrize("max_violation", [0.05, 0.9])
def test_the_model_is_a_plain_fit_on_all_rows_with_the_weight(biased, max_violation):
    model = fit(bounded(max_violation, notion="equalized_odds"), biased)

    plain = clone(model).set_params(
        max_violation=None, fairness_weight=model.fairness_weight_
    )
    fit(plain, biased)

    # They begin at different models and end at the same.
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=1e-6)


def test_of_several_optima_the_one_that_was_judged_is_trained(biased):
    # A sharp penalty has more than one; a cold start ends at one that is less fair.
    X, y, s = biased
    options = {"notion": "equal_opportunity", "sharpness": 3.0}
    model = fit(bounded(0.05, **options), biased)
    weight = model.fairness_weight_

    cold = fit(FairLogisticRegression(fairness_weight=weight, **options), biased)

    gaps = [
        violation(y, m.predict(X), sensitive_features=s, notion=model.notion)
        for m in (model, cold)
    ]
    assert gaps[0] < 0.05 < gaps[1]


def test_a_fairness_weight_beside_a_bound_is_not_used_and_warned_of(biased):
    words = r"fairness_weight=77\.0 is not used, because max_violation=0\.05 finds its"
    with pytest.warns(FfermWarning, match=words):
        first = fit(bounded(fairness_weight=77.0), biased)

    assert first.fairness_weight_ == fit(bounded(), biased).fairness_weight_ != 77


def test_an_impossible_bound_warns_and_gives_the_closest(biased):
    model = bounded(0.0)
    with pytest.warns(
        InfeasibleWarning,
        match=r"up to 10000 .* 700 held-out rows to max_violation=0\.",
    ) as caught:
        fit(model, biased)

    assert caught[0].filename == __file__
    assert model.feasible_ is False
    trial = search_of(model, biased)
    divergence, count = model._objective().divergence, bounds.N_WEIGHTS + 1
    weights = bounds.default_weights(divergence, count)
    beyond = weights[-1] * (weights[-1] / weights[-2]) ** np.arange(
        1, bounds.N_BEYOND + 1
    )
    grid = np.concatenate([weights, beyond]).tolist()
    path = [trial.judge(m) for m in model.fit_path(trial.passed, grid)]
    closest = min(path, key=lambda judged: judged.violation)
    assert model.violation_ == closest.violation > 0
    assert model.fairness_weight_ == closest.fairness_weight


def test_no_more_weight_is_tried_where_what_is_left_is_chance():
    data = load_adult(("sex", "race"), races=("Black", "White"))
    model = bounded(0.02)
    with pytest.warns(InfeasibleWarning, match="No fairness_weight up to 100 brings"):
        fit(model, (data.X, data.y, data.sensitive_features))

    trial = search_of(model, (data.X, data.y, data.sensitive_features))
    *_, highest = model.fit_path(trial.passed, [0.0, 31.6, 100.0])
    judged = trial.judge(highest)
    shown = np.delete(np.arange(data.y.size), trial.position)
    left = violation(
        data.y[shown],
        highest.predict(data.X[shown]),
        sensitive_features=data.sensitive_features.iloc[shown],
    )
    assert left < 0.02 < judged.violation - left
    assert trial.is_noise_limited(judged)


@pytest.fixture(scope="module")
def only_the_group():
    """Features that tell nothing but the group: a model is unfair or a constant."""
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 600)
    y = (rng.random(600) < np.where(s, 0.8, 0.1)).astype(int)
    return s[:, None].astype(float), y, s


def test_one_class_for_everyone_never_keeps_a_bound(only_the_group):
    model = bounded(0.1)
    with pytest.warns(InfeasibleWarning, match=r"The closest, .* measures 1\.0000"):
        fit(model, only_the_group)

    assert (model.feasible_, model.violation_) == (False, 1.0)
    trial = search_of(model, only_the_group)
    (constant,) = model.fit_path(trial.passed, [300.0])
    judged = trial.judge(constant)
    assert judged.violation == 0
    assert not judged.is_usable
    assert not judged.is_within


def test_where_every_model_is_a_constant_it_says_so():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 2)), (rng.random(800) < 0.05), rng.integers(0, 2, 800)
    model = bounded(0.1)
    with (
        pytest.warns(InfeasibleWarning, match=r"predicts one class for all 16\d"),
        pytest.warns(CollapseWarning, match="rare classes"),
    ):
        fit(model, rows)

    assert (model.fairness_weight_, model.feasible_) == (0, False)


def test_predictions_that_leave_no_two_groups_to_compare_do_not_count(only_the_group):
    # Predicted 1 means group 1, predicted 0 means group 0: no gap is defined.
    with pytest.warns(InfeasibleWarning, match="or leaves too few groups to compare"):
        model = fit(bounded(1.0, notion="sufficiency"), only_the_group)

    assert not model.feasible_
    assert np.isnan(model.violation_)


def test_what_init_stored_stays(biased):
    model = bounded(0.05, validation_fraction=0.3)
    before = model.get_params()

    fit(model, biased)

    assert model.get_params() == before
    copy = clone(model)
    assert copy.max_violation == 0.05
    assert not hasattr(copy, "fairness_weight_")


def test_without_a_bound_only_the_weight_is_learned(biased):
    model = fit(bounded(0.05), biased)

    fit(model.set_params(max_violation=None, fairness_weight=2.0), biased)

    assert model.fairness_weight_ == 2.0
    assert not hasattr(model, "violation_")
    assert not hasattr(model, "feasible_")


def test_a_path_takes_its_weights_and_no_bound(biased):
    given = FitInput(*biased)

    models = list(bounded(0.05).fit_path(given, [0.0, 2.0]))

    assert [model.fairness_weight_ for model in models] == [0.0, 2.0]
    assert models[1].max_violation is None
    assert not hasattr(models[1], "feasible_")


def test_a_path_may_begin_at_a_model(biased):
    given = FitInput(*biased)
    (cold,) = bounded().fit_path(given, [5.0])

    (warm,) = bounded().fit_path(given, [5.0], cold)

    assert warm.n_iter_ < cold.n_iter_
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-5)


def test_the_same_seed_holds_out_the_same_rows(biased):
    first, again, other = (
        fit(bounded(0.05, random_state=seed), biased) for seed in (3, 3, 4)
    )

    assert first.violation_ == again.violation_ != other.violation_


def test_rows_are_held_out_alike_from_every_label_and_group(biased):
    _, y, s = biased
    held = np.zeros(y.size, dtype=bool)
    held[search_of(bounded(validation_fraction=0.3), biased).position] = True

    for label in (0, 1):
        for group in np.unique(s):
            kind = (y == label) & (s == group)
            assert abs(held[kind].sum() - 0.3 * kind.sum()) <= 0.5


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999])
def test_two_rows_of_a_kind_are_parted_and_one_is_trained_on(fraction):
    kind = np.array([0, 1, 1, 2, 2, 2, 3] * 2)[:-1]  # kind 3 has one row

    held = hold_out(kind, fraction, 0)

    counts = np.bincount(kind[held], minlength=4)
    sizes = np.bincount(kind)
    assert counts[3] == 0
    assert np.all((counts[:3] >= 1) & (counts[:3] < sizes[:3]))


def frame_of(rows):
    X, y, s = rows
    shift = (X[:, 0] > 0).astype(float)
    return pd.DataFrame(X, columns=list("abcde")).assign(shift=shift), y, s


FORMS = {
    "sparse": lambda X, y, s: (scipy.sparse.csr_array(X), y, s),
    "sparse by columns": lambda X, y, s: (scipy.sparse.csc_array(X), y, s),
    "lists": lambda X, y, s: (X.tolist(), y.tolist(), s.tolist()),
    "dictionary": lambda X, y, s: (X, y, {"group": s}),
    "pandas": lambda X, y, s: (pd.DataFrame(X).add_prefix("x"), pd.Series(y), s),
    "polars": lambda X, y, s: (pl.DataFrame(X), pl.Series(y), pl.Series(s.tolist())),
}


@pytest.mark.parametrize("form", FORMS)
def test_data_may_come_in_any_form(biased, form):
    plain = fit(bounded(0.05), biased)

    model = fit(bounded(0.05), FORMS[form](*biased))

    assert model.fairness_weight_ == pytest.approx(plain.fairness_weight_, rel=1e-6)
    assert model.violation_ == pytest.approx(plain.violation_, abs=1e-12)


def test_labels_may_be_words(biased):
    X, y, s = biased

    model = fit(bounded(0.05), (X, np.where(y == 1, "yes", "no"), s))

    plain = fit(bounded(0.05), biased)
    assert model.fairness_weight_ == plain.fairness_weight_
    assert set(model.predict(X)) == {"yes", "no"}


@pytest.mark.parametrize("is_named", [True, False])
def test_a_control_feature_is_found_again(biased, is_named):
    X, y, s = frame_of(biased)
    notion = ConditionalParity("shift" if is_named else tuple(X["shift"]))

    model = fit(bounded(0.1, notion=notion), (X, y, s))

    assert model.feasible_
    trial = search_of(model, (X, y, s))
    assert (
        trial.setting.rows.strata.names
        == trial.setting.tables(np.ones((trial.position.size, 2)))[0].strata
    )
    assert len(trial.setting.rows.strata.names) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"divergence": "total_variation"},
        {"divergence": "chi2", "uncertainty": SmallShift(0.01)},
        {"divergence": "jensen_shannon", "uncertainty": LargeShift(0.01)},
        {"notion": "sufficiency"},
        {"notion": "predictive_parity"},
        {"sharpness": 3.0},
    ],
    ids=str,
)
def test_every_penalty_takes_a_bound(biased, options):
    model = fit(bounded(0.15, **options), biased)

    assert model.feasible_
    assert model.violation_ <= 0.15


def test_three_classes_and_groups_take_a_bound():
    rows = arrays(make_biased(2000, n_classes=3, n_groups=3, random_state=0))

    model = fit(bounded(0.12), rows)
    narrow = fit(bounded(0.2, notion=EqualOpportunity(positive=2)), rows)

    assert model.feasible_
    assert narrow.feasible_
    found = violation_on_held_out(model, rows, model.fairness_weight_)
    assert found == pytest.approx(model.violation_, abs=1e-12)


def test_marginal_groups_take_a_bound(biased):
    X, y, s = biased
    other = np.random.default_rng(1).choice(["x", "y"], y.size)
    sensitive = pd.DataFrame({"first": s, "second": other})

    model = fit(bounded(0.1, groups="marginal"), (X, y, sensitive))

    assert model.feasible_


def test_rows_of_weight_zero_are_no_rows(biased):
    X, y, s = biased
    weight = np.random.default_rng(0).integers(0, 4, y.size)

    model = fit(bounded(0.1), biased, sample_weight=weight)

    kept = weight > 0
    rest = fit(bounded(0.1), (X[kept], y[kept], s[kept]), sample_weight=weight[kept])
    assert model.fairness_weight_ == pytest.approx(rest.fairness_weight_, rel=1e-9)
    assert model.violation_ == pytest.approx(rest.violation_, abs=1e-12)
    unweighted = fit(bounded(0.1), (X[kept], y[kept], s[kept]))
    assert model.violation_ != unweighted.violation_


def test_rows_without_a_group_are_warned_of_where_no_penalty_is_needed(biased):
    X, y, s = biased
    s = np.where(np.arange(y.size) % 50 == 0, None, s)

    with pytest.warns(MissingGroupWarning, match="70 of 3500 rows"):
        model = fit(bounded(0.9), (X, y, s))

    assert model.fairness_weight_ == 0


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
def test_the_bound_is_judged_on_rows_of_the_penalty(biased, notion):
    X, y, _ = biased
    target = arrays(make_biased(5000, bias=1.5, random_state=5))
    penalty = (target[0], target[2], target[1])
    if notion == "demographic_parity":
        penalty = penalty[:2]
    model = bounded(0.05, notion=notion)

    model.fit(X, y, penalty_data=penalty)

    assert model.feasible_
    trial = search_of(model, (X, y, None), penalty_data=penalty)
    np.testing.assert_array_equal(trial.X, target[0][trial.position])
    assert trial.position.size == pytest.approx(0.2 * len(target[1]), abs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingGroupWarning)
        (again,) = model.fit_path(trial.passed, [model.fairness_weight_])
    Xt, yt, st = (values[trial.position] for values in target)
    found = violation(yt, again.predict(Xt), sensitive_features=st, notion=notion)
    assert found == pytest.approx(model.violation_, abs=1e-12)


def test_a_group_of_one_row_cannot_be_judged(biased):
    X, y, _ = biased
    s = np.where(np.arange(y.size) == 7, "b", "a")

    with (
        pytest.warns(UserWarning, match=r"fewer than 10 rows: b \(1 rows"),
        pytest.raises(
            InvalidInputError,
            match="fewer than two groups of group wherever demographic_parity compares",
        ),
    ):
        fit(bounded(0.1), (X, y, s))


@pytest.mark.filterwarnings("ignore::fferm.errors.SmallGroupWarning")
def test_groups_that_the_held_out_rows_lack_are_named(biased):
    X, y, s = biased
    s = np.where(np.arange(y.size) == 7, "lone", s)

    with pytest.warns(EmptyStratumWarning, match=r"does not see group.*lone") as caught:
        fit(bounded(0.1), (X, y, s))

    assert caught[0].filename == fit.__code__.co_filename


BAD_PARAMETERS = [
    (
        {"max_violation": -0.1},
        "max_violation must be between 0 and 1, or None; got -0.1",
    ),
    ({"max_violation": 1.5}, "max_violation must be between 0 and 1, or None; got 1.5"),
    ({"max_violation": np.nan}, "or None; got nan"),
    ({"max_violation": "low"}, "or None; got 'low'"),
    ({"max_violation": True}, "or None; got True"),
    (
        {"validation_fraction": 0},
        "validation_fraction must be above 0 and below 1; got 0",
    ),
    (
        {"validation_fraction": 1.0},
        "validation_fraction must be above 0 and below 1; got 1.0",
    ),
    ({"validation_fraction": None}, "below 1; got None"),
    ({"confidence": 0.3}, "confidence must be at least 0.5 and below 1, or None; got"),
    ({"confidence": 1}, "and below 1, or None; got 1"),
    ({"confidence": True, "max_violation": None}, "below 1, or None; got True"),
    ({"refit": 1}, "refit must be True or False; got 1"),
]


@pytest.mark.parametrize(("parameters", "words"), BAD_PARAMETERS)
def test_a_parameter_out_of_its_range_is_refused(biased, parameters, words):
    with pytest.raises(InvalidParameterError) as refusal:
        fit(bounded().set_params(**parameters), biased)
    assert words in str(refusal.value)


def test_a_bound_without_groups_is_refused(biased):
    with pytest.raises(
        MissingSensitiveError, match=r"max_violation=0\.05 needs sensitive_features"
    ):
        bounded().fit(*biased[:2])


def test_a_bound_is_saved_and_loaded(biased, tmp_path):
    model = fit(bounded(0.05), biased)

    fferm.save(model, tmp_path / "model.fferm")
    again = fferm.load(tmp_path / "model.fferm")

    assert again.get_params() == model.get_params()
    for name in ("fairness_weight_", "violation_", "feasible_"):
        assert getattr(again, name) == getattr(model, name)
        assert type(getattr(again, name)) is type(getattr(model, name))


def test_a_grid_search_runs_over_bounds(biased):
    X, y, s = biased
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            bounded().set_fit_request(sensitive_features=True),
            {"max_violation": [None, 0.1]},
            cv=2,
        ).fit(X, y, sensitive_features=s)

    free, bound = search.cv_results_["mean_test_score"]
    assert free > bound + 0.01
    assert search.best_params_ == {"max_violation": None}


@pytest.mark.parametrize(
    ("options", "highest"),
    [({"solver": "lbfgs"}, "10000"), ({"solver": "sgda", "max_epochs": 1}, "100")],
)
def test_a_search_ends_where_the_solver_no_longer_trains_well(biased, options, highest):
    words = f"No fairness_weight up to {highest} brings .* to max_violation=0\\. The"
    with pytest.warns(InfeasibleWarning, match=words):
        fit(bounded(0.0, **options), biased)


def p_value(model, rows, bound):
    """Return the p-value of a bound for a fitted model on the rows it held out."""
    trial = search_of(model, rows)
    code = np.searchsorted(model.classes_, model.predict(rows[0][trial.position]))
    return intervals.certify(*intervals.compared_of(trial.setting.tables(code)), bound)


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_model_that_passed_the_test_is_the_one_returned(notion):
    rows, bound = arrays(make_biased(20_000, random_state=0)), 0.25
    model = fit(certified(bound, notion=notion), rows)

    assert model.feasible_ is True
    assert p_value(model, rows, bound) <= 0.05
    trial = search_of(model, rows)
    X, y, s = (values[trial.position] for values in rows)
    found = violation(y, model.predict(X), sensitive_features=s, notion=notion)
    assert found == pytest.approx(model.violation_, abs=1e-12)
    assert found < bound


def test_a_test_asks_for_more_weight_than_the_value(biased):
    by_value, tested = (fit(certified(0.12, confidence=c), biased) for c in (None, 0.9))

    assert tested.feasible_
    assert tested.fairness_weight_ > by_value.fairness_weight_
    surer = fit(certified(0.12, confidence=0.99), biased)
    assert surer.fairness_weight_ >= tested.fairness_weight_


def test_held_out_rows_have_no_part_in_the_model(biased):
    # Other features, labels and groups of the same kinds are held out in their place.
    X, y, s = biased
    model = fit(certified(0.15), biased)
    trial = search_of(model, biased)
    other = X.copy()
    other[trial.position] = -3 * X[trial.position][::-1]

    moved = certified(0.15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)
        fit(moved, (other, y, s))

    weights = [0.0, 1.0, model.fairness_weight_]
    paths = [
        list(model.fit_path(search_of(model, (part, y, s)).passed, weights))
        for part in (X, other)
    ]
    for one, another in zip(*paths, strict=True):
        np.testing.assert_array_equal(one.coef_, another.coef_)
    assert moved.violation_ != model.violation_


def test_where_no_model_passes_the_fairest_is_returned_and_said_not_to_be_fair(biased):
    model = certified(0.04)
    with pytest.warns(
        InfeasibleWarning,
        match=r"No model .* passes the test of max_violation=0\.04 at confidence=0\.95 "
        "on 700 held-out rows, so feasible_ is False. The fairest is kept",
    ):
        fit(model, biased)

    assert model.feasible_ is False
    assert p_value(model, biased, 0.04) > 0.05


def test_a_bound_below_the_noise_of_a_fair_model_is_said_before_the_search(biased):
    with (
        pytest.warns(InfeasibleWarning, match=r"below what a perfectly fair model"),
        pytest.warns(InfeasibleWarning, match="feasible_ is False"),
    ):
        fit(certified(0.01), biased)


def test_a_class_of_one_row_is_trained_on_and_does_not_test(biased):
    X, y, s = biased
    y = y.copy()
    y[7] = 2
    for seed in range(6):
        trial = search_of(certified(0.5, random_state=seed), (X, y, s))
        assert 7 not in trial.position


def test_training_again_is_said_to_lose_the_promise(biased):
    with pytest.warns(FfermWarning, match="not the model that was tested"):
        again = fit(certified(0.15, refit=True), biased)

    judged = fit(certified(0.15), biased)
    assert again.feasible_
    assert again.fairness_weight_ == judged.fairness_weight_
    assert again.violation_ == judged.violation_
    assert not np.allclose(again.coef_, judged.coef_, rtol=1e-6)


def test_without_a_confidence_the_judged_model_may_be_kept_too(biased):
    model = fit(bounded(0.05, refit=False), biased)

    plain, _ = trained_on_the_rest(model, biased, model.fairness_weight_)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-5)


def test_a_second_fit_keeps_nothing_of_the_first(biased):
    X, y, s = biased
    model = fit(certified(0.15), (pd.DataFrame(X).add_prefix("x"), y, s))
    assert hasattr(model, "encoder_")

    fit(model, biased)

    assert not hasattr(model, "encoder_")
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.coef_, fit(certified(0.15), biased).coef_)


def test_numbers_are_compared_in_bands_of_the_training_rows(biased):
    X, y, _ = biased
    age = np.random.default_rng(0).normal(40, 10, y.size)
    model = fit(certified(0.4), (X, y, {"age": age}))

    trial = search_of(model, (X, y, {"age": age}))
    shown = np.delete(np.arange(y.size), trial.position)
    alone = FairLogisticRegression().fit(
        X[shown], y[shown], sensitive_features={"age": age[shown]}
    )
    assert model.band_edges_ == alone.band_edges_
    assert trial.setting.rows.band_edges == model.band_edges_


def test_the_divergence_is_not_chosen_by_the_rows_that_test_the_bound(biased):
    X, y, s = biased
    model = fit(certified(0.2, divergence="auto"), biased)
    trial = search_of(model.set_params(divergence="kl"), biased)
    weight = np.ones(y.size)
    weight[trial.position] = 0

    cheap = bounded(0.2, divergence="auto")
    rest = bounds.choose_divergence(cheap, FitInput(X, y, s, weight))

    assert model.feasible_
    assert type(model.divergence_) is type(rest._objective().divergence)


def test_a_tested_model_is_saved_and_loaded(biased, tmp_path):
    model = fit(certified(0.15), biased)

    fferm.save(model, tmp_path / "model.fferm")
    again = fferm.load(tmp_path / "model.fferm")

    assert again.get_params() == model.get_params()
    assert again.feasible_ is True
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_weights_of_rows_count_by_what_they_are_worth(biased):
    weight = np.random.default_rng(0).exponential(size=biased[1].size)

    heavy = fit(certified(0.2), biased, sample_weight=weight)
    plain = fit(certified(0.2), biased)

    assert heavy.feasible_
    assert heavy.fairness_weight_ > plain.fairness_weight_


def test_at_even_odds_a_model_passes_whose_p_value_is_below_one_half(biased):
    model = fit(certified(0.12, confidence=0.5), biased)

    assert model.feasible_
    assert 0.05 < p_value(model, biased, 0.12) <= 0.5


@dataclass
class Decides:
    """Predicts by a rule on the rows, or one class for everyone."""

    rule: object
    classes_ = np.array([0, 1])
    fairness_weight = 1.0

    def predict(self, X):
        return np.broadcast_to(self.rule(X), len(X)).astype(int)


def rates_of(decision, s):
    """Return the rates of decisions in each group, and the sizes."""
    parts = [decision[s == group] for group in np.unique(s)]
    return np.array([[part.mean() for part in parts]]), np.array(
        [list(map(len, parts))]
    )


def test_what_the_training_rows_expect_is_the_limit_of_their_own_table(biased):
    X, _, s = biased
    trial = search_of(certified(0.15, confidence=0.9), biased)
    rest, held = trial.trained_position, trial.position
    model = Decides(lambda X: X[:, 0] > 0.3)
    rates, sizes = rates_of(model.predict(X[rest]), s[rest])
    share = held.size / rest.size
    limit, noise = intervals.expected_limit([rates], [sizes], share, 0.9)

    expected = trial.expected(model)

    assert (expected.limit, expected.noise) == pytest.approx((limit, noise))
    assert expected.violation == pytest.approx(np.ptp(rates))
    assert trial.expected(Decides(lambda X: 1)).limit == np.inf


def test_the_floor_of_a_bound_is_that_of_models_as_frequent_as_the_labels(biased):
    _, y, s = biased
    trial = search_of(certified(0.15), biased)
    held = s[trial.position]
    sizes = np.array([np.sum(held == group) for group in np.unique(held)])
    error = np.sqrt(y.mean() * (1 - y.mean()) * np.sum(1 / sizes))

    assert trial.floor() == pytest.approx(np.sqrt(2 / np.pi) * error, rel=0.07)
    assert trial.floor() == trial.floor()


def test_a_model_is_judged_by_all_gaps_and_usable_if_it_decides_both_ways(biased):
    X, _, s = biased
    trial = search_of(bounded(0.5), biased)
    held = trial.position
    model = Decides(lambda X: X[:, 0] > 0.3)
    gap = np.ptp(rates_of(model.predict(X[held]), s[held])[0])

    trial.bound = trial.judge(model).violation
    assert trial.bound == pytest.approx(gap)
    assert trial.judge(model).is_within
    trial.bound = 0.99 * gap
    assert not trial.judge(model).passes
    constant = trial.judge(Decides(lambda X: 0))
    assert constant.passes
    assert not constant.is_usable


def apart(measure, decision, s):
    """Return how far rates of decisions are apart by a measure, and what is tested."""
    (rates,), sizes = rates_of(decision, s)
    lowest, highest, whole = rates.min(), rates.max(), decision.mean()
    if measure == "ratio":
        value, tested = 1 - lowest / highest, lambda bound: bound
    else:
        value = max(highest - whole, whole - lowest) / whole
        tested = lambda bound: bound / (1 + bound)  # noqa: E731
    return value, lambda bound: intervals.certify_ratio(
        [rates[None]], [sizes], tested(bound)
    )


@pytest.mark.parametrize("measure", ["ratio", "deviation"])
def test_by_another_measure_all_that_is_judged_and_told_is_by_it(measure, biased):
    X, _, s = biased
    options = {"measure": measure, "confidence": 0.9}
    trial = search_of(certified(0.2, **options), biased)
    held, rest = trial.position, trial.trained_position
    model = Decides(lambda X: X[:, 0] > -0.5)
    value, test = apart(measure, model.predict(X[held]), s[held])
    left, _ = apart(measure, model.predict(X[rest]), s[rest])
    rates, sizes = rates_of(model.predict(X[rest]), s[rest])
    share = held.size / rest.size
    limit = intervals.expected_limit([rates], [sizes], share, 0.9, measure)

    expected = trial.expected(model)
    assert expected.violation == pytest.approx(left)
    assert (expected.limit, expected.noise) == pytest.approx(limit)
    chance = intervals.floor_of_tables(
        trial.setting.tables(model.predict(X[held])), measure=measure
    )
    kept = set()
    for bound in np.linspace(0.5 * value, 0.95, 12):
        trial.bound = float(bound)
        judged = trial.judge(model)
        assert judged.violation == pytest.approx(value)
        assert judged.passes == (value <= bound and test(bound) <= 0.1)
        kept.add(judged.passes)
        noisy = bounds.Judged(model, 9.0, True, passes=False)
        assert trial.is_noise_limited(noisy) == (left <= bound)
    assert kept == {True, False}
    words = trial.infeasible(judged, 100.0)
    assert f"measures {value:.4f} by {measure}, between " in words
    assert f"{chance.mean:.4f}" in words


def test_noise_keeps_a_model_from_the_bound_if_its_training_rows_keep_it(biased):
    X, _, s = biased
    trial = search_of(bounded(0.1), biased)
    rest = trial.trained_position
    model = Decides(lambda X: X[:, 0] > 0.3)
    left = np.ptp(rates_of(model.predict(X[rest]), s[rest])[0])

    def is_noise(bound, violation, is_usable=True):
        trial.bound = bound
        judged = bounds.Judged(model, violation, is_usable, passes=False)
        return trial.is_noise_limited(judged)

    assert is_noise(1.01 * left, 3 * left)
    assert not is_noise(0.99 * left, 3 * left)
    assert not is_noise(1.01 * left, 2 * left)
    assert not is_noise(1.01 * left, 3 * left, is_usable=False)


def test_a_bound_that_fails_names_the_pair_its_rows_and_what_chance_makes(biased):
    X, _, s = biased
    trial = search_of(bounded(0.1), biased)
    held = trial.position
    model = Decides(lambda X: X[:, 0] > 0.3)
    rates, sizes = rates_of(model.predict(X[held]), s[held])

    words = trial.infeasible(trial.judge(model), 100.0)

    assert f"measures {np.ptp(rates):.4f}, between " in words
    for name, size in zip(np.unique(s), sizes[0], strict=True):
        assert f"{name} ({size} held-out rows)" in words
    tables = trial.setting.tables(model.predict(X[held]))
    floor = intervals.floor_of_tables(tables).mean
    assert f"a fair model measures {floor:.4f} on these rows" in words
