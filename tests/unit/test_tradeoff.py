"""Trade-off curves: the sweep, its records and what is chosen from them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import fferm
from fferm import (
    FairLogisticRegression,
    FairRegressor,
    SmallShift,
    TradeoffCurve,
    tradeoff_curve,
)
from fferm.curve import Key
from fferm.curve.curve import usable_points
from fferm.data.rows import FitInput
from fferm.data.split import split_by_label
from fferm.datasets import make_biased
from fferm.divergences import KL, Affine, Alpha, get
from fferm.errors import (
    ConvergenceWarning,
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
    SmallGroupWarning,
)
from fferm.fairness_grid import default_weights
from fferm.metrics import soft_violation, violation
from fferm.notions import ConditionalParity
from fferm.tables import joint, penalty

COLUMNS = [
    "curve",
    "fairness_weight",
    "seed",
    "split",
    "accuracy",
    "violation",
    "soft_violation",
    "loss",
    "divergence",
    "collapsed",
    "result",
    "seconds",
    "accuracy_low",
    "accuracy_high",
    "violation_low",
    "violation_high",
    "floor",
    "corrected_violation",
    "ratio",
    "deviation",
]


@pytest.fixture(scope="module")
def data():
    return make_biased(900, random_state=0)


@pytest.fixture(scope="module")
def curve(data):
    return tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=(data.X_test, data.y_test, data.sensitive_features_test),
        fairness_weights=[10, 0, 1, 1],
    )


def sweep(data, model=None, **options):
    options = {"fairness_weights": [0, 3]} | options
    return tradeoff_curve(
        model or FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        **options,
    )


def without_time(curve):
    return curve.records.drop(columns="seconds")


def make_curve(points, is_collapsed=None, split="test"):
    """Return a curve of (accuracy, violation) points whose models are their names."""
    records = pd.DataFrame(
        {
            "curve": "made",
            "fairness_weight": np.arange(float(len(points))),
            "seed": 0,
            "split": split,
            "accuracy": [float(accuracy) for accuracy, _ in points],
            "violation": [float(gap) for _, gap in points],
            "collapsed": is_collapsed or [False] * len(points),
        }
    )
    models = {Key("made", float(k), 0): f"model {k}" for k in range(len(points))}
    return TradeoffCurve(records, models, {"made": {}})


def test_there_is_one_record_per_weight_and_split(curve):
    records = curve.records

    assert records.columns.tolist() == COLUMNS
    assert records["split"].tolist() == ["train", "test"] * 3
    # Sorted and without repeats, whatever order they came in.
    assert records["fairness_weight"].tolist() == [0.0, 0.0, 1.0, 1.0, 10.0, 10.0]
    assert set(records["seed"]) == {0}
    assert set(records["result"]) == {"converged"}
    assert not records["collapsed"].any()
    assert (records["seconds"] > 0).all()
    name = "FairLogisticRegression"
    assert set(curve.models) == {(name, 0.0, 0), (name, 1.0, 0), (name, 10.0, 0)}


COLUMNS_OF_LABELS = [
    pd.DataFrame,
    lambda y: pl.DataFrame({"y": y}),
    lambda y: np.asarray(y)[:, None],
]


@pytest.mark.parametrize("as_column", COLUMNS_OF_LABELS)
@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize(
    "estimator", [FairLogisticRegression(), FairRegressor()], ids=["class", "number"]
)
def test_labels_may_be_a_table_of_one_column(data, as_column, test, estimator):
    def swept(form):
        rows = (data.X_test, form(data.y_test), data.sensitive_features_test)
        return tradeoff_curve(
            estimator,
            data.X,
            form(data.y),
            sensitive_features=data.sensitive_features,
            test=rows if test else None,
            fairness_weights=[0, 1],
        )

    plain, stacked = swept(np.asarray), swept(as_column)
    left, right = (c.records.drop(columns="seconds") for c in (plain, stacked))
    pd.testing.assert_frame_equal(left, right)
    assert plain.audits.keys() == stacked.audits.keys()
    for key, found in plain.audits.items():
        assert str(found) == str(stacked.audits[key])


@pytest.mark.parametrize("test", [True, False])
def test_groups_may_come_as_a_lazy_frame(data, test):
    def swept(form):
        groups = form(data.sensitive_features_test)
        return tradeoff_curve(
            FairLogisticRegression(),
            data.X,
            data.y,
            sensitive_features=form(data.sensitive_features),
            test=(data.X_test, data.y_test, groups) if test else None,
            fairness_weights=[0, 1],
        )

    eager, lazy = swept(pd.DataFrame), swept(lambda s: pl.from_pandas(s).lazy())
    left, right = (c.records.drop(columns="seconds") for c in (eager, lazy))
    pd.testing.assert_frame_equal(left, right)
    assert str(lazy.audits[1.0, 0]) == str(eager.audits[1.0, 0])


def test_a_description_says_what_was_compared(curve):
    assert curve.description == {
        "estimator": "FairLogisticRegression",
        "divergence": "KL()",
        "notion": "DemographicParity()",
        "uncertainty": "None",
        "groups": "intersection",
        "test": "given",
        "sample_weight": "none",
        "rows": "630",
        "features": "5",
        "code": "FairLogisticRegression()",
        "fferm": fferm.__version__,
    }


def test_records_are_the_measures_of_their_models(curve, data):
    for _, record in curve.records.iterrows():
        model = curve.models[record["fairness_weight"], record["seed"]]
        is_train = record["split"] == "train"
        X, y, s = (
            (data.X, data.y, data.sensitive_features)
            if is_train
            else (data.X_test, data.y_test, data.sensitive_features_test)
        )
        prob = model.predict_proba(X)
        group = s["group"].astype(int).to_numpy()

        assert record["accuracy"] == model.score(X, y)
        assert record["violation"] == pytest.approx(
            violation(y, model.predict(X), sensitive_features=s), abs=1e-12
        )
        assert record["soft_violation"] == pytest.approx(
            soft_violation(y, prob, classes=[0, 1], sensitive_features=s), abs=1e-12
        )
        assert record["loss"] == pytest.approx(log_loss(y, prob), rel=1e-12)
        expected = penalty(joint(prob, group, 2), "kl")[0]
        assert record["divergence"] == pytest.approx(expected, rel=1e-9)


def test_models_of_a_curve_are_those_of_single_fits(curve, data):
    model = FairLogisticRegression(fairness_weight=10).fit(
        data.X, data.y, sensitive_features=data.sensitive_features
    )

    found = curve.models[10.0, 0]

    assert found.fairness_weight == 10.0
    np.testing.assert_allclose(
        found.predict_proba(data.X), model.predict_proba(data.X), atol=1e-4
    )


def test_divergence_falls_along_the_training_records(curve):
    train = curve.records.query("split == 'train'")

    assert train["divergence"].is_monotonic_decreasing
    assert train["soft_violation"].is_monotonic_decreasing
    assert train["loss"].is_monotonic_increasing


def test_a_quarter_of_the_rows_is_held_out_where_no_test_came(data):
    curve = sweep(data)
    first, other = sweep(data, seeds=2), sweep(data, seeds=[1])

    pd.testing.assert_frame_equal(
        without_time(curve), without_time(first).query("seed == 0")
    )
    second = without_time(first).query("seed == 1").reset_index(drop=True)
    pd.testing.assert_frame_equal(second, without_time(other))
    test = curve.records.query("split == 'test'")
    # A quarter of 630 rows is 158, so accuracies are multiples of 1 / 158.
    right = test["accuracy"] * 158
    np.testing.assert_allclose(right, right.round(), atol=1e-9)
    assert not np.allclose(
        test["accuracy"], other.records.query("split == 'test'")["accuracy"]
    )


def test_seeds_are_set_on_the_models(data):
    curve = sweep(data, FairLogisticRegression(random_state=99), seeds=[3, 8, 3])

    keys = {key[1:] for key in curve.models}
    assert keys == {(0.0, 3), (3.0, 3), (0.0, 8), (3.0, 8)}
    assert curve.models[3.0, 8].random_state == 8
    assert len(curve.records) == 8


def test_two_processes_find_what_one_finds(data):
    alone, together = sweep(data, seeds=2), sweep(data, seeds=2, n_jobs=2)

    pd.testing.assert_frame_equal(without_time(alone), without_time(together))
    assert set(alone.models) == set(together.models)


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y, s: (X.tolist(), y.tolist(), s["group"].tolist()),
        lambda X, y, s: (pd.DataFrame(X), pd.Series(y), s),
        lambda X, y, s: (pl.DataFrame(X), pl.Series(y), pl.from_pandas(s)),
        lambda X, y, s: (scipy.sparse.csr_array(X), y, {"g": s["group"].tolist()}),
        lambda X, y, s: (scipy.sparse.coo_matrix(X), y, s),
    ],
)
def test_rows_are_held_out_of_every_form(data, change):
    X, y, s = np.asarray(data.X), np.asarray(data.y), data.sensitive_features
    plain = sweep(data)
    X, y, s = change(X, y, s)

    curve = tradeoff_curve(
        FairLogisticRegression(), X, y, sensitive_features=s, fairness_weights=[0, 3]
    )

    pd.testing.assert_frame_equal(
        without_time(curve), without_time(plain), check_exact=False, rtol=1e-6
    )


def test_a_control_column_is_looked_up_in_each_split(data):
    frames = [
        pd.DataFrame(X, columns=list("abcde")).assign(
            where=lambda frame: (frame["a"] > 0).astype(int)
        )
        for X in (np.asarray(data.X), np.asarray(data.X_test))
    ]
    notion = ConditionalParity("where")

    curve = tradeoff_curve(
        FairLogisticRegression(notion=notion),
        frames[0],
        data.y,
        sensitive_features=data.sensitive_features,
        test=(frames[1], data.y_test, data.sensitive_features_test),
        fairness_weights=[0, 30],
    )

    test = curve.records.query("split == 'test'")
    for _, record in test.iterrows():
        decisions = curve.models[record["fairness_weight"], 0].predict(frames[1])
        worst = max(
            violation(
                None,
                decisions[frames[1]["where"] == place],
                sensitive_features=data.sensitive_features_test[
                    (frames[1]["where"] == place).to_numpy()
                ],
            )
            for place in (0, 1)
        )
        assert record["violation"] == pytest.approx(worst, abs=1e-12)
    assert test["soft_violation"].iloc[1] < test["soft_violation"].iloc[0]


def test_a_control_column_is_held_out_with_its_rows(data):
    frame = pd.DataFrame(np.asarray(data.X), columns=list("abcde"))
    frame["where"] = (frame["a"] > 0).astype(int)

    curve = tradeoff_curve(
        FairLogisticRegression(notion=ConditionalParity("where")),
        frame,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 30],
    )

    assert curve.records["violation"].notna().all()


def test_a_robust_curve_reports_the_plain_divergence(data):
    test = (data.X_test, data.y_test, data.sensitive_features_test)
    curve = sweep(data, FairLogisticRegression(uncertainty=SmallShift(0.02)), test=test)

    train = curve.records.query("split == 'train'").set_index("fairness_weight")
    group = data.sensitive_features["group"].astype(int).to_numpy()
    for weight, found in train["divergence"].items():
        prob = curve.models[weight, 0].predict_proba(data.X)
        plain = penalty(joint(prob, group, 2), "kl")[0]
        assert found == pytest.approx(plain, rel=1e-9)
    assert train["divergence"].is_monotonic_decreasing
    assert curve.description["uncertainty"].startswith("SmallShift(radius=0.02")


def test_a_test_split_without_two_groups_has_no_violation(data):
    curve = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=(data.X_test, data.y_test, ["0"] * len(data.y_test)),
        fairness_weights=[0, 1],
    )

    test = curve.records.query("split == 'test'")
    assert test[["violation", "soft_violation", "divergence"]].isna().all(axis=None)
    assert test["accuracy"].notna().all()
    assert curve.pareto().empty
    with pytest.raises(InvalidInputError, match="cannot be judged"):
        curve.select(max_violation=0.5)


def test_a_test_split_without_the_stratum_has_no_violation(data):
    is_negative = np.asarray(data.y_test) == 0

    curve = tradeoff_curve(
        FairLogisticRegression(notion="equal_opportunity"),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=(
            np.asarray(data.X_test)[is_negative],
            np.asarray(data.y_test)[is_negative],
            data.sensitive_features_test[is_negative],
        ),
        fairness_weights=[0, 1],
    )

    assert curve.records.query("split == 'test'")["violation"].isna().all()
    assert curve.records.query("split == 'train'")["violation"].notna().all()


@pytest.mark.parametrize(
    ("notion", "lost", "words"),
    [
        (
            "equalized_odds",
            ["low", "no"],
            r"y=no: low \(no rows with a positive weight",
        ),
        ("demographic_parity", ["low"], r"group: low \(no rows\)"),
    ],
)
def test_groups_that_no_test_row_measures_are_warned_of(notion, lost, words):
    rng = np.random.default_rng(0)
    group, y = np.tile(["low", "mid", "top"], 100), rng.choice(["no", "yes"], 300)
    X = rng.normal(size=(300, 2))
    is_lost = group == lost[0]
    if len(lost) > 1:
        is_lost &= y == lost[1]
    with pytest.warns(EmptyStratumWarning, match=words):
        tradeoff_curve(
            FairLogisticRegression(notion=notion),
            X,
            y,
            sensitive_features=group,
            test=(X[~is_lost], y[~is_lost], group[~is_lost]),
            fairness_weights=[1.0],
        )


def test_points_that_did_not_converge_warn_and_say_so(data):
    with pytest.warns(ConvergenceWarning, match="ran out"):
        curve = sweep(data, FairLogisticRegression(max_iter=1), fairness_weights=[3])

    assert set(curve.records["result"]) == {"max_epochs_reached"}


@pytest.mark.parametrize(
    ("divergence", "low", "high"),
    [
        (get("chi2"), 0.05, 50),
        (KL(), 0.1, 100),
        (get("reverse_kl"), 0.1, 100),
        (Alpha(3.0), 0.1, 100),
        (get("jensen_shannon"), 0.2, 200),
        (get("squared_hellinger"), 0.2, 200),
        (Affine(KL(), scale=10.0, slope=3.0), 0.01, 10),
        (get("total_variation"), 0.005, 5),
    ],
)
def test_default_weights_follow_the_curvature(divergence, low, high):
    weights = default_weights(divergence, 7)

    assert weights.size == 7
    assert weights[0] == 0
    assert weights[1] == pytest.approx(low, rel=1e-9)
    assert weights[-1] == pytest.approx(high, rel=1e-9)
    ratios = weights[2:] / weights[1:-1]
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-9)


def test_a_number_of_weights_takes_the_default_ones(data):
    curve = sweep(data, FairLogisticRegression(divergence="chi2"), fairness_weights=3)

    weights = sorted({key.fairness_weight for key in curve.models})
    np.testing.assert_allclose(weights, [0, 0.05, 50], rtol=1e-9)


@pytest.mark.parametrize("measure", ["difference", "ratio", "deviation"])
def test_weights_halve_the_step_over_which_a_bound_is_crossed(data, measure):
    model, start = FairLogisticRegression(measure=measure), [0, 0.1, 100]
    options = {"fairness_weights": start, "seeds": 2}
    bound = 0.4 if measure == "difference" else 0.5
    curve = sweep(data, model, max_violation=bound, **options)
    weights = sorted({key.fairness_weight for key in curve.models})
    assert set(start) < set(weights)
    chosen = curve.select(max_violation=bound, measure=measure).fairness_weight
    place = weights.index(chosen)
    assert weights[place] / weights[place - 1] < 1.12  # 1000 ** (1 / 2 ** 6) is 1.114
    for seed in (0, 1):
        assert {key.fairness_weight for key in curve.models if key.seed == seed} == set(
            weights
        )


def test_a_bound_that_no_step_crosses_adds_no_weights(data):
    for bound in (0.9, 1e-9):
        assert len(sweep(data, max_violation=bound).models) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_violation": -0.1}, "max_violation must be a finite number of at"),
        (
            {"fairness_weights": 1},
            "fairness_weights must be an integer of at least 2; got 1.",
        ),
        ({"fairness_weights": []}, "fairness_weights must be a list of numbers, or"),
        ({"fairness_weights": 1.5}, "or how many; got 1.5."),
        ({"fairness_weights": [1, -1]}, "number of at least 0; got -1."),
        ({"fairness_weights": [np.nan]}, "fairness_weights must be"),
        ({"seeds": 0}, "seeds must be a list of integers of at least 0"),
        ({"seeds": []}, "at least one; got []."),
        ({"seeds": 1.5}, "at least one; got 1.5."),
        ({"test": (1, 2)}, "test must be None, or X, y"),
        ({"model": LogisticRegression()}, "by name; got LogisticRegression."),
        ({"model": FairLogisticRegression(l2=-1)}, "l2 must be"),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused(data, options, words):
    with pytest.raises(InvalidParameterError) as refusal:
        sweep(data, **options)
    assert words in str(refusal.value)


def test_a_curve_needs_groups(data):
    with pytest.raises(
        MissingSensitiveError, match="measured, which needs sensitive_features"
    ):
        tradeoff_curve(
            FairLogisticRegression(), data.X, data.y, sensitive_features=None
        )


def test_a_label_that_training_never_saw_is_refused(data):
    with pytest.raises(InvalidInputError, match="contains the label 7"):
        sweep(
            data,
            test=(data.X_test, np.full(len(data.y_test), 7), ["a"] * len(data.y_test)),
        )


POINTS = [(0.9, 0.3), (0.85, 0.1), (0.84, 0.2), (0.8, 0.02), (0.85, 0.15)]


def test_the_front_goes_from_the_fairest_to_the_most_accurate():
    front = make_curve(POINTS).pareto()

    assert front["fairness_weight"].tolist() == [3.0, 1.0, 0.0]
    assert front.index.tolist() == [0, 1, 2]


def test_splits_have_fronts_of_their_own(curve):
    assert set(curve.pareto("train")["split"]) == {"train"}
    assert set(curve.pareto()["split"]) == {"test"}
    with pytest.raises(InvalidParameterError, match="split must be 'train' or 'test'"):
        curve.pareto("valid")


rates = st.integers(0, 20).map(lambda n: n / 20)
point_lists = st.lists(st.tuples(rates, rates), min_size=1, max_size=12)


def is_dominated(point, others):
    accuracy, gap = point
    return any(
        (a >= accuracy and g <= gap) and (a > accuracy or g < gap) for a, g in others
    )


@settings(max_examples=60)
@given(point_lists)
def test_the_front_is_exactly_what_nothing_dominates(points):
    front = make_curve(points).pareto()

    found = list(zip(front["accuracy"], front["violation"], strict=True))
    assert len(found) == len(set(found))
    assert set(found) == {p for p in points if not is_dominated(p, points)}


@settings(max_examples=60)
@given(point_lists, st.tuples(rates, rates))
def test_more_points_never_shrink_the_dominated_area(points, extra):
    before = make_curve(points).hypervolume()
    after = make_curve([*points, extra]).hypervolume()

    assert 0 <= before <= after + 1e-12
    assert after <= 1


@settings(max_examples=60)
@given(point_lists)
def test_the_dominated_area_is_a_count_of_cells(points):
    # Rates are multiples of 1/20, so the area is a count of squares of that side.
    cells = sum(
        any(a >= (i + 1) / 20 and g <= j / 20 for a, g in points)
        for i in range(20)
        for j in range(20)
    )

    assert make_curve(points).hypervolume() == pytest.approx(cells / 400, abs=1e-12)


@settings(max_examples=60)
@given(point_lists, rates)
def test_a_choice_is_within_its_bound_and_best_there(points, bound):
    curve = make_curve(points)
    within = [p for p in points if p[1] <= bound]
    if not within:
        with pytest.raises(InvalidInputError, match="No model of the curve reaches"):
            curve.select(max_violation=bound)
        return

    chosen = points[int(curve.select(max_violation=bound).split()[1])]

    best = max(accuracy for accuracy, _ in within)
    assert chosen == (best, min(gap for accuracy, gap in within if accuracy == best))


def test_the_area_of_a_hand_computed_front():
    curve = make_curve([(0.9, 0.3), (0.8, 0.1)])

    # 0.8 x (0.3 - 0.1) + 0.9 x (1 - 0.3)
    assert curve.hypervolume() == pytest.approx(0.79, rel=1e-12)
    # Above accuracy 0.5 and below violation 0.4: 0.3 x 0.2 + 0.4 x 0.1
    assert curve.hypervolume(reference=(0.5, 0.4)) == pytest.approx(0.10, rel=1e-12)
    # The second point is too unfair to count.
    assert curve.hypervolume(reference=(0.0, 0.2)) == pytest.approx(0.08, rel=1e-12)
    assert curve.hypervolume(reference=(0.95, 1.0)) == 0.0


def test_a_bound_on_the_violation_takes_the_most_accurate_within():
    curve = make_curve(POINTS)

    assert curve.select(max_violation=0.15) == "model 1"
    assert curve.select(max_violation=0.02) == "model 3"
    assert curve.select(max_violation=1.0) == "model 0"


def test_a_bound_on_the_accuracy_takes_the_fairest_within():
    curve = make_curve(POINTS)

    assert curve.select(min_accuracy=0.85) == "model 1"
    assert curve.select(min_accuracy=0.0) == "model 3"


def test_a_choice_returns_a_model_that_predicts(curve, data):
    model = curve.select(max_violation=1.0)

    assert model.predict(data.X_test).shape == data.y_test.shape


def test_bounds_out_of_reach_name_the_closest_point():
    curve = make_curve(POINTS)

    with pytest.raises(
        InvalidInputError,
        match=r"reaches violation 0\.01; the closest has 0\.0200 at fairness_weight=3",
    ):
        curve.select(max_violation=0.01)
    with pytest.raises(
        InvalidInputError,
        match=r"reaches accuracy 0\.95; the closest has 0\.9000 at fairness_weight=0",
    ):
        curve.select(min_accuracy=0.95)


@pytest.mark.parametrize("bounds", [{}, {"max_violation": 0.1, "min_accuracy": 0.5}])
def test_a_choice_takes_one_bound(bounds):
    with pytest.raises(InvalidParameterError, match="exactly one of"):
        make_curve(POINTS).select(**bounds)


@pytest.mark.parametrize("bound", [-0.1, np.nan, "low"])
def test_a_bound_must_be_a_number(bound):
    with pytest.raises(InvalidParameterError, match="max_violation must be"):
        make_curve(POINTS).select(max_violation=bound)


def test_collapsed_models_are_never_chosen():
    curve = make_curve([(0.9, 0.3), (0.95, 0.0), (0.8, 0.2)], [False, True, False])

    assert curve.select(max_violation=0.5) == "model 0"
    assert curve.select(min_accuracy=0.1) == "model 2"
    assert curve.pareto()["fairness_weight"].tolist() == [2.0, 0.0]
    with pytest.raises(InvalidInputError, match=r"closest has 0\.2000"):
        curve.select(max_violation=0.1)


def test_a_curve_of_collapsed_models_has_nothing_to_choose():
    curve = make_curve([(0.9, 0.0)], [True])

    assert curve.hypervolume() == 0.0
    with pytest.raises(InvalidInputError, match="predicts one class for everyone"):
        curve.select(max_violation=0.5)


def test_a_collapsed_point_is_marked_and_does_not_warn():
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(400, 2)), np.tile(["a", "b"], 200)
    y = (np.arange(400) % 10 == 0).astype(int)

    curve = tradeoff_curve(
        FairLogisticRegression(), X, y, sensitive_features=s, fairness_weights=[0, 1]
    )

    assert curve.records["collapsed"].all()


def test_weights_count_in_training_and_in_every_measure():
    data = make_biased(400, random_state=1)
    weight = np.random.default_rng(0).integers(0, 3, len(data.y)).astype(float)
    weight_test = (
        np.random.default_rng(1).integers(0, 3, len(data.y_test)).astype(float)
    )
    times, times_test = weight.astype(int), weight_test.astype(int)
    weighted = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        sample_weight=weight,
        test={
            "X": data.X_test,
            "y": data.y_test,
            "sensitive_features": data.sensitive_features_test,
            "sample_weight": weight_test,
        },
        fairness_weights=[0, 5],
    )
    repeated = tradeoff_curve(
        FairLogisticRegression(),
        data.X.repeat(times, axis=0),
        data.y.repeat(times),
        sensitive_features=data.sensitive_features.to_numpy().repeat(times, axis=0),
        test=(
            data.X_test.repeat(times_test, axis=0),
            data.y_test.repeat(times_test),
            data.sensitive_features_test.to_numpy().repeat(times_test, axis=0),
        ),
        fairness_weights=[0, 5],
    )
    measures = ["accuracy", "violation", "soft_violation", "loss", "divergence"]
    np.testing.assert_allclose(
        weighted.records[measures], repeated.records[measures], rtol=1e-6
    )


def test_weights_are_held_out_with_their_rows():
    data = make_biased(400, random_state=1)
    number = np.arange(len(data.y))
    weight = np.random.default_rng(0).uniform(0.2, 3, number.size)
    train, test = (
        {
            "X": data.X[part.X],
            "y": data.y[part.X],
            "sensitive_features": data.sensitive_features.iloc[part.X],
            "sample_weight": weight[part.X],
        }
        for part in split_by_label(FitInput(number, data.y, number), 0.25, seed=0)
    )
    curve = sweep(data, sample_weight=weight)
    parted = tradeoff_curve(
        FairLogisticRegression(), **train, test=test, fairness_weights=[0, 3]
    )
    pd.testing.assert_frame_equal(without_time(curve), without_time(parted))
    assert curve.description["sample_weight"] == "given"


def test_several_seeds_of_a_weight_are_judged_by_their_mean():
    rows = [
        {"curve": "X", "fairness_weight": weight, "seed": seed, "split": "test"}
        | {"accuracy": accuracy}
        | {"violation": violation, "collapsed": False, "result": "converged"}
        for weight, seed, accuracy, violation in [
            (1.0, 0, 0.9, 0.01),  # lucky
            (1.0, 1, 0.7, 0.09),
            (2.0, 0, 0.8, 0.02),
            (2.0, 1, 0.8, 0.02),
        ]
    ]
    models = {Key("X", row["fairness_weight"], row["seed"]): str(row) for row in rows}
    curve = TradeoffCurve(pd.DataFrame(rows), models, {"X": {"estimator": "X"}})
    assert curve.select(max_violation=0.03) == models["X", 2.0, 0]
    assert curve.pareto()["fairness_weight"].tolist() == [2.0]


def test_a_curve_prints_in_one_line_and_shows_a_table_in_a_notebook():
    data = make_biased(200, random_state=0)
    curve = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 5],
    )
    assert repr(curve).startswith("TradeoffCurve(2 models of FairLogisticRegression")
    assert "\n" not in repr(curve)
    assert "<table" in curve._repr_html_()


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (([[1.0]], [0]), "tuple with X, y"),
        ({"X": [[1.0]], "s": [0]}, "dict with X, s"),
        (3, "int with none of these"),
    ],
)
def test_a_test_split_of_another_shape_says_what_came(test, words):
    data = make_biased(200, random_state=0)
    with pytest.raises(InvalidParameterError, match=words):
        tradeoff_curve(
            FairLogisticRegression(),
            data.X,
            data.y,
            sensitive_features=data.sensitive_features,
            test=test,
        )


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        (
            "notion",
            "equalized_odds",
            "parity' in 'a' and 'equalized_odds' in 'b'",
        ),
        ("groups", "marginal", "groups is 'intersection' in 'a' and 'marginal' in 'b'"),
    ],
)
def test_models_of_several_notions_do_not_share_a_curve(data, name, other, words):
    models = {"a": FairLogisticRegression(), "b": FairLogisticRegression()}
    models["b"].set_params(**{name: other})
    with pytest.raises(InvalidParameterError, match=words):
        sweep(data, models)


def test_small_groups_may_be_left_out_of_a_sweep_alone(data):
    sensitive = np.asarray(data.sensitive_features).ravel().astype(object)
    sensitive[:5] = "few"
    options = {"sensitive_features": sensitive, "fairness_weights": [0, 3]}
    with pytest.warns(SmallGroupWarning, match="few"):
        curve = tradeoff_curve(
            FairLogisticRegression(), data.X, data.y, **options, min_group_size=20
        )
    for model in curve.models.values():
        assert model.min_group_size == 20


@pytest.fixture(scope="module")
def tested():
    data = make_biased(8000, random_state=0)
    rows = {"sensitive_features": data.sensitive_features}
    return tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        **rows,
        fairness_weights=[0, 10, 100, 200, 300, 500, 1000],
    )


def test_a_model_that_is_selected_with_confidence_passed_its_test(tested):
    model = tested.select(max_violation=0.16, confidence=0.95)

    by_value = tested.select(max_violation=0.16)
    assert model.fairness_weight_ > by_value.fairness_weight_
    audits = {key.fairness_weight: tested.audits[key] for key in tested.models}
    passing = [w for w, audit in audits.items() if audit.passes(0.16, confidence=0.95)]
    assert model.fairness_weight_ in passing
    # From the largest weight on, each of them passed.
    weights = sorted(audits, reverse=True)
    before = weights[: weights.index(model.fairness_weight_)]
    assert set(before) <= set(passing)


def test_weights_that_test_rows_had_a_say_in_are_not_tested_on_them(tmp_path):
    data, bound = make_biased(8000, random_state=0), 0.15
    options = {"sensitive_features": data.sensitive_features}
    options |= {"fairness_weights": [0, 200, 1000], "max_violation": bound}

    curve = tradeoff_curve(
        FairLogisticRegression(), data.X, data.y, **options, records=tmp_path
    )

    asked = {0, 200, 1000}
    assert curve.select(max_violation=bound).fairness_weight_ not in asked
    for each in (curve, TradeoffCurve.load(tmp_path)):
        audits = {key.fairness_weight: each.audits[key] for key in each.models}
        passing = {w for w in audits if audits[w].passes(bound, confidence=0.6)}
        assert passing - asked
        model = each.select(max_violation=bound, confidence=0.6)
        assert model.fairness_weight_ == min(passing & asked)


def test_tests_of_a_selection_begin_at_the_model_that_is_fairest_on_training_rows():
    trained = make_curve([(0.9, 0.3), (0.8, 0.2), (0.7, 0.1)], split="train")
    judged = make_curve([(0.9, 0.1), (0.8, 0.2), (0.7, 0.3)])
    audits = {
        key: SimpleNamespace(passes=lambda *_, key=key, **__: key.fairness_weight < 2)
        for key in judged.models
    }
    records = pd.concat([trained.records, judged.records])
    curve = TradeoffCurve(records, judged.models, {"made": {}}, audits=audits)
    with pytest.raises(InvalidInputError, match="No model of the curve passes"):
        curve.select(max_violation=0.2, confidence=0.9)


def test_several_curves_share_the_risk_of_a_selection(tested, monkeypatch):
    asked = []
    for key in tested.models:
        audit = tested.audits[key]
        monkeypatch.setattr(
            type(audit),
            "passes",
            lambda self, bound, confidence=None: asked.append(confidence) or True,
        )
    both = TradeoffCurve(
        pd.concat([tested.records, tested.records.assign(curve="other")]),
        {**tested.models, **{k._replace(curve="other"): 0 for k in tested.models}},
        {},
        audits={
            **tested.audits,
            **{k._replace(curve="other"): tested.audits[k] for k in tested.models},
        },
    )
    both.choose(max_violation=0.1, confidence=0.9)
    assert asked == [pytest.approx(0.95)] * len(asked)
    assert len(asked) > len(tested.models)


def test_a_selection_that_nothing_passes_or_that_cannot_be_tested_is_refused(tested):
    with pytest.raises(InvalidInputError, match="passes the test of max_violation=0"):
        tested.select(max_violation=0.001, confidence=0.95)
    with pytest.raises(InvalidParameterError, match="confidence needs split='test'"):
        tested.select(max_violation=0.1, confidence=0.95, split="train")
    with pytest.raises(
        InvalidParameterError, match=r"confidence must be at least 0\.5"
    ):
        tested.select(max_violation=0.1, confidence=0.2)


def test_records_hold_the_floor_and_the_violation_without_noise(tested):
    records = tested.records
    test = records[records["split"] == "test"]
    for row in test.itertuples():
        audit = tested.audits[row.fairness_weight, row.seed]
        assert row.floor == pytest.approx(audit.floor, rel=0.1)
        assert row.corrected_violation == pytest.approx(audit.corrected, abs=1e-9)
    assert (test["corrected_violation"] <= test["violation"]).all()


@pytest.mark.parametrize(
    ("goal", "column", "best"),
    [
        ("min_rate", "selection_rate_1", "accuracy"),
        ("min_group_accuracy", "accuracy", "violation"),
    ],
)
def test_a_goal_of_the_worst_group_is_kept_by_the_best_model(curve, goal, column, best):
    points = usable_points(curve.records, "test")
    lowest = {
        key: curve.audits[key].frame[column].min()
        for key in points[["curve", "fairness_weight", "seed"]].itertuples(index=False)
    }
    bound = float(np.median(list(lowest.values())))

    chosen = curve.choose(**{goal: bound})

    within = points[[value >= bound for value in lowest.values()]]
    value = within.loc[within["fairness_weight"] == chosen.fairness_weight, best].iloc[
        0
    ]
    assert value == (within[best].max() if best == "accuracy" else within[best].min())
    assert curve.select(**{goal: bound}) is curve.models[chosen]
    with pytest.raises(InvalidInputError, match="No model of the curve reaches lowest"):
        curve.select(**{goal: 1.0})


def test_models_of_any_kind_are_points_beside_a_curve():
    from sklearn.linear_model import LogisticRegression

    from fferm.deploy import repair

    data = make_biased(2000, random_state=0)
    rows = {"sensitive_features": data.sensitive_features}
    test = data.X_test, data.y_test
    tested = {"sensitive_features": data.sensitive_features_test}
    curve = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        **rows,
        test=(*test, data.sensitive_features_test),
        fairness_weights=[0, 1],
    )
    frozen = LogisticRegression().fit(data.X, data.y)
    fair = repair(
        frozen,
        data.X,
        data.y,
        **rows,
        max_violation=0.05,
        confidence=None,
        uses_group=True,
    )
    both = curve.with_models({"frozen": frozen, "repaired": fair}, *test, **tested)
    assert list(both.curves) == ["FairLogisticRegression", "frozen", "repaired"]
    record = both.curves["repaired"].records.iloc[0]
    decided = fair.predict(test[0], **tested)
    assert record["accuracy"] == pytest.approx((decided == test[1]).mean())
    assert record["violation"] == pytest.approx(violation(test[1], decided, **tested))
    chosen = both.curves["repaired"].select(max_violation=0.5, confidence=0.9)
    assert chosen is fair
    assert set(both.bands()["curve"]) == {
        "FairLogisticRegression",
        "frozen",
        "repaired",
    }
    with pytest.raises(InvalidParameterError, match="is a curve already"):
        both.with_models({"frozen": frozen}, *test, **tested)
