import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from fairlearn import metrics as fairlearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    make_scorer,
    mean_absolute_error,
    precision_score,
    recall_score,
)
from sklearn.model_selection import cross_validate

from fferm.errors import (
    EmptyStratumWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
)
from fferm.metrics import (
    by_group,
    group_table,
    soft_violation,
    violation,
    violations,
)
from fferm.metrics.tabulator import (
    CONTROL,
    Absence,
    Gap,
    Violations,
    distances_of,
    distinct,
    left_out,
    worst_violation,
)
from fferm.notions import ConditionalParity, EqualOpportunity

NOTIONS = ["demographic_parity", "equal_opportunity", "equalized_odds", "sufficiency"]
seeds = pytest.mark.parametrize("seed", range(12))


def draw(seed, n_groups=None, n_classes=2):
    """Return labels, decisions, groups and weights; every cell has a row."""
    rng = np.random.default_rng(seed)
    n_groups = n_groups or int(rng.integers(2, 6))
    shape = n_classes, n_classes, n_groups
    cells = np.stack([axis.ravel() for axis in np.indices(shape)])
    more = rng.integers(0, np.array(shape)[:, None], size=(3, 150))
    y, decision, group = np.concatenate([cells, more], axis=1)
    return y, decision, group, rng.exponential(size=y.size)


def draw_prob(seed, n, n_classes=3):
    return np.random.default_rng(seed).dirichlet(np.ones(n_classes), size=n)


@seeds
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize(
    ("notion", "theirs"),
    [
        ("demographic_parity", fairlearn.demographic_parity_difference),
        ("equalized_odds", fairlearn.equalized_odds_difference),
        ("equal_opportunity", fairlearn.equal_opportunity_difference),
    ],
)
def test_violations_agree_with_fairlearn(notion, theirs, seed, is_weighted):
    y, decision, group, weight = draw(seed)
    weight = weight if is_weighted else None

    ours = violation(
        y, decision, sensitive_features=group, notion=notion, sample_weight=weight
    )

    expected = theirs(y, decision, sensitive_features=group, sample_weight=weight)
    assert ours == pytest.approx(expected, rel=1e-12)


@seeds
def test_intersections_agree_with_fairlearn(seed):
    y, decision, group, _ = draw(seed, n_groups=4)
    columns = pd.DataFrame({"sex": group // 2, "race": group % 2})

    ours = violation(y, decision, sensitive_features=columns)

    expected = fairlearn.demographic_parity_difference(
        y, decision, sensitive_features=columns
    )
    assert ours == pytest.approx(expected, rel=1e-12)


@seeds
@pytest.mark.parametrize("is_weighted", [False, True])
def test_rates_of_groups_agree_with_fairlearn(seed, is_weighted):
    y, decision, group, weight = draw(seed)
    metrics = {
        "selection_rate_1": fairlearn.selection_rate,
        "true_positive_rate": fairlearn.true_positive_rate,
        "false_positive_rate": fairlearn.false_positive_rate,
        "precision": precision_score,
        "accuracy": sklearn.metrics.accuracy_score,
    }
    given_weight = {"sample_weight": weight if is_weighted else None}

    ours = group_table(y, decision, sensitive_features=group, **given_weight)

    theirs = fairlearn.MetricFrame(
        metrics=metrics,
        y_true=y,
        y_pred=decision,
        sensitive_features=group,
        sample_params=dict.fromkeys(metrics, given_weight) if is_weighted else None,
    ).by_group
    np.testing.assert_allclose(ours[list(metrics)], theirs[list(metrics)], rtol=1e-12)
    assert ours["count"].tolist() == np.bincount(group).tolist()


@seeds
def test_predictive_parity_is_the_gap_of_precisions(seed):
    y, decision, group, weight = draw(seed)
    rows = {"sensitive_features": group, "sample_weight": weight}

    precision = group_table(y, decision, **rows)["precision"]

    assert violation(y, decision, notion="predictive_parity", **rows) == pytest.approx(
        precision.max() - precision.min(), rel=1e-12
    )


@seeds
def test_sufficiency_is_the_largest_gap_of_labels_given_the_decision(seed):
    y, decision, group, _ = draw(seed, n_classes=3)
    gaps = [
        np.ptp([np.mean(y[(decision == j) & (group == k)] == l) for k in set(group)])
        for j in range(3)
        for l in range(3)  # noqa: E741
    ]

    ours = violation(y, decision, sensitive_features=group, notion="sufficiency")

    assert ours == pytest.approx(max(gaps), rel=1e-12)


@seeds
def test_equalized_odds_of_many_classes_takes_the_worst_label_and_class(seed):
    y, decision, group, _ = draw(seed, n_classes=3)
    gap = {
        (l, j): np.ptp(
            [np.mean(decision[(y == l) & (group == k)] == j) for k in set(group)]
        )
        for l in range(3)  # noqa: E741
        for j in range(3)
    }

    found = violations(y, decision, sensitive_features=group, notion="equalized_odds")

    assert found.worst == pytest.approx(max(gap.values()), rel=1e-12)
    by_label = [max(gap[l, j] for j in range(3)) for l in range(3)]  # noqa: E741
    assert list(found.by_stratum.values()) == pytest.approx(by_label, rel=1e-12)
    assert found.mean == pytest.approx(np.mean(by_label), rel=1e-12)


@given(seed=st.integers(0, 2**32 - 1), notion=st.sampled_from(NOTIONS))
@settings(max_examples=60)
def test_relabelling_groups_changes_nothing(seed, notion):
    y, decision, group, weight = draw(seed)
    renamed = np.array(list("zyxwvu"))[group]
    rows = {"notion": notion, "sample_weight": weight}

    assert violation(y, decision, sensitive_features=renamed, **rows) == pytest.approx(
        violation(y, decision, sensitive_features=group, **rows), rel=1e-12
    )


@given(seed=st.integers(0, 2**32 - 1), notion=st.sampled_from(NOTIONS))
@settings(max_examples=60)
def test_a_weight_of_two_is_a_row_given_twice(seed, notion):
    y, decision, group, _ = draw(seed)
    times = np.random.default_rng(seed).integers(1, 3, size=y.size)
    twice = [np.repeat(values, times) for values in (y, decision, group)]

    weighted = violation(
        y, decision, sensitive_features=group, notion=notion, sample_weight=times
    )

    assert weighted == pytest.approx(
        violation(*twice[:2], sensitive_features=twice[2], notion=notion), rel=1e-12
    )


@pytest.mark.parametrize("notion", NOTIONS)
def test_certain_probabilities_are_decisions(notion):
    y, decision, group, weight = draw(3)
    rows = {"sensitive_features": group, "notion": notion, "sample_weight": weight}

    soft = soft_violation(y, np.eye(2)[decision], classes=[0, 1], **rows)

    assert soft == pytest.approx(violation(y, decision, **rows), rel=1e-12)


def test_the_soft_violation_is_the_gap_of_mean_probabilities():
    prob, group = draw_prob(1, 90), np.arange(90) % 4
    means = pd.DataFrame(prob).groupby(group).mean()

    soft = soft_violation(None, prob, classes="abc", sensitive_features=group)

    assert soft == pytest.approx((means.max() - means.min()).max(), rel=1e-12)


def test_marginal_groups_take_the_worst_attribute():
    sex = ["f", "f", "m", "m"] * 5
    race = ["x", "y"] * 10
    decision = [1, 0, 1, 1] * 5
    both = {"sex": sex, "race": race}

    worst = violation(None, decision, sensitive_features=both, groups="marginal")
    found = violations(None, decision, sensitive_features=both, groups="marginal")

    assert worst == 0.5
    assert found.by_stratum == {("sex", "everyone"): 0.5, ("race", "everyone"): 0.5}
    assert violation(None, decision, sensitive_features=both) == 1.0


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series], ids=repr)
def test_labels_and_groups_come_in_any_container(make):
    y = make(["no", "yes", "no", "yes"])
    decision = make(["yes", "yes", "no", "yes"])
    group = make(["a", "a", "b", "b"])

    found = violation(
        y, decision, sensitive_features=group, notion="false_positive_rate_parity"
    )

    assert found == 1.0


def test_booleans_integers_and_floats_are_the_same_labels():
    group = ["a", "a", "b", "b"]

    found = violation(
        [True, True, False, True],
        np.array([1.0, 0.0, 0.0, 1.0]),
        sensitive_features=group,
        notion="equal_opportunity",
    )

    assert found == 0.5


def test_a_gap_names_its_groups():
    (no, yes) = violations(
        None, [1, 1, 0, 1], sensitive_features=["a", "a", "b", "b"]
    ).gaps

    assert (yes.lowest_group, yes.highest_group) == ("b", "a")
    assert (no.lowest_group, no.highest_group) == ("a", "b")
    assert (yes.attribute, yes.stratum, yes.outcome) == (
        "group",
        "everyone",
        "prediction=1",
    )


def test_a_group_without_positives_is_skipped_by_name_and_not_counted_as_0():
    y = [1, 1, 1, 1, 0, 0]
    decision = [1, 1, 1, 0, 0, 0]
    group = ["a", "a", "b", "b", "c", "c"]

    with pytest.warns(EmptyStratumWarning, match=r"group, y=1: c \(no rows"):
        found = violations(
            y, decision, sensitive_features=group, notion="equal_opportunity"
        )

    assert found.worst == 0.5  # a rate of 0 for c would have made it 1
    (absence,) = found.absent
    assert absence.groups == ("c",)


def test_a_stratum_with_one_group_is_left_out_of_the_maximum():
    y = [1, 1, 0, 0, 0, 0]
    decision = [1, 0, 1, 0, 0, 0]
    group = ["a", "a", "a", "a", "b", "b"]

    with pytest.warns(EmptyStratumWarning, match="the stratum is left out"):
        found = violations(
            y, decision, sensitive_features=group, notion="equalized_odds"
        )

    assert found.by_stratum == {("group", "y=0"): 0.5}


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_single_group_is_undefined_and_not_fair(notion):
    with pytest.warns(EmptyStratumWarning, match="fewer than two groups"):
        found = violations(
            [0, 1, 0], [0, 1, 1], sensitive_features=["a"] * 3, notion=notion
        )

    assert math.isnan(found.worst)
    assert math.isnan(found.mean)


def test_a_group_of_weight_0_is_absent():
    rows = {"sensitive_features": list("aabbcc"), "sample_weight": [1, 1, 1, 1, 0, 0]}

    with pytest.warns(EmptyStratumWarning, match="c "):
        found = violation(None, [1, 0, 1, 0, 1, 1], **rows)

    assert found == 0.0


def test_only_negatives_leave_equal_opportunity_undefined():
    with pytest.warns(EmptyStratumWarning, match="y=1"):
        found = violation(
            [0, 0], [0, 0], sensitive_features=["a", "b"], notion="equal_opportunity"
        )

    assert math.isnan(found)


def test_one_unknown_label_leaves_the_positive_class_open():
    with pytest.raises(InvalidInputError, match="unknown which class is positive"):
        violation(
            ["x"] * 2,
            ["x"] * 2,
            sensitive_features=["a", "b"],
            notion="equal_opportunity",
        )


def test_rows_without_a_group_are_counted_aloud_and_left_out():
    with pytest.warns(MissingGroupWarning, match="1 of 5 rows"):
        found = violation(
            None, [1, 0, 1, 0, 1], sensitive_features=["a", "a", "b", "b", None]
        )

    assert found == 0.0


def test_an_undefined_rate_of_a_group_is_nan():
    table = group_table(
        [1, 0, 0, 0], [1, 0, 0, 0], sensitive_features=["a", "a", "b", "b"]
    )

    assert table.loc["b", "false_positive_rate"] == 0
    assert math.isnan(table.loc["b", "true_positive_rate"])
    assert math.isnan(table.loc["b", "precision"])


def test_the_group_table_counts_rows_and_shares_weight():
    table = group_table(
        [1, 0, 0, 2],
        [1, 0, 1, 2],
        sensitive_features=["a", "a", "b", "b"],
        sample_weight=[1, 1, 3, 3],
    )

    assert table["count"].tolist() == [2, 2]
    assert table["share"].tolist() == [0.25, 0.75]
    assert table["size"].tolist() == [2, 2]
    assert table["base_rate_2"].tolist() == [0, 0.5]
    assert table["accuracy"].tolist() == [1, 0.5]
    assert "precision" not in table.columns


def test_groups_of_several_attributes_carry_their_column():
    both = {"sex": ["f", "m"], "race": ["x", "y"]}

    table = group_table([0, 1], [0, 1], sensitive_features=both, groups="marginal")

    assert table.index.tolist() == ["sex=f", "sex=m", "race=x", "race=y"]


def test_a_control_feature_may_come_as_one_value_per_row():
    notion = ConditionalParity(control=["p", "p", "q", "q"])

    found = violations(
        None, [1, 0, 1, 1], sensitive_features=["a", "b", "a", "b"], notion=notion
    )

    assert list(found.by_stratum.values()) == [1.0, 0.0]


def test_a_control_feature_by_name_needs_an_audit():
    with pytest.raises(InvalidParameterError, match="control feature is named 'dept'"):
        violation(
            None,
            [1, 0],
            sensitive_features=["a", "b"],
            notion=ConditionalParity(control="dept"),
        )


def test_the_positive_class_of_many_can_be_named():
    y = ["a", "b", "c", "c"]

    found = violation(
        y,
        ["a", "b", "c", "a"],
        sensitive_features=["x", "x", "x", "y"],
        notion=EqualOpportunity(positive="c"),
    )

    assert found == 1.0


def test_it_scores_a_search_with_groups_routed_by_scikit_learn():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, size=200)
    X = rng.normal(size=(200, 2)) + group[:, None]
    y = (X[:, 0] + rng.normal(size=200) > 0.5).astype(int)

    with sklearn.config_context(enable_metadata_routing=True):
        scorer = make_scorer(violation, greater_is_better=False).set_score_request(
            sensitive_features=True
        )
        scores = cross_validate(
            LogisticRegression(),
            X,
            y,
            scoring=scorer,
            cv=3,
            params={"sensitive_features": group},
        )["test_score"]

    assert np.all((scores < 0) & (scores >= -1))


@pytest.mark.parametrize(
    ("y", "decision", "message"),
    [
        ([0, 1, 0], [0, 1], "y_true has 3 labels for 2 rows"),
        ([], [], "not empty"),
        ([0, None], [0, 1], "y_true has 1 missing labels"),
        ([0, 1], [0, math.nan], "y_pred has 1 missing labels"),
        (["a", "b"], [0, 1], "Labels must be all numbers or all strings"),
        ([0, 1], [0.2, 0.7], "y_pred contains fractional numbers such as 0.2"),
        ([[0], [1]], [0, 1], r"y_true must be one-dim.* \(2, 1\)"),
        (None, None, "y_pred"),
    ],
)
def test_labels_that_cannot_be_judged_are_refused(y, decision, message):
    with pytest.raises(InvalidInputError, match=message):
        violation(y, decision, sensitive_features=["a", "b"])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0], "one non-negative weight per row"),
        ([1.0, -1.0], "one non-negative weight per row"),
        ([1.0, math.nan], "one non-negative weight per row"),
        ([0.0, 0.0], "one non-negative weight per row.* and not only zeros"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weight, message):
    with pytest.raises(InvalidInputError, match=message):
        violation(None, [0, 1], sensitive_features=["a", "b"], sample_weight=weight)


@pytest.mark.parametrize(
    ("prob", "message"),
    [
        ([0.2, 0.8], "prob must have shape"),
        ([[0.2, 0.3, 0.5]] * 2, "\\(n_samples, 2\\)"),
        ([[2.0, -1.0]] * 2, "softmax"),
        ([[0.2, 0.2]] * 2, "softmax"),
        ([[math.nan, 0.5]] * 2, "softmax"),
    ],
)
def test_scores_that_are_no_probabilities_are_refused(prob, message):
    with pytest.raises(InvalidInputError, match=message):
        soft_violation(None, prob, classes=[0, 1], sensitive_features=["a", "b"])


def test_a_label_outside_of_the_classes_is_refused():
    with pytest.raises(InvalidInputError, match="label 2"):
        soft_violation(
            [0, 2], [[0.5, 0.5]] * 2, classes=[0, 1], sensitive_features=["a", "b"]
        )


def test_a_notion_that_conditions_on_labels_needs_them():
    with pytest.raises(InvalidInputError, match="equalized_odds conditions on"):
        violation(None, [0, 1], sensitive_features=["a", "b"], notion="equalized_odds")


def test_groups_whose_names_collide_have_rows_of_their_own():
    table = group_table(
        [0, 1] * 4,
        [0, 1] * 4,
        sensitive_features={"a": ["b=c", "b=d"] * 4, "a=b": ["c", "c", "d", "d"] * 2},
        groups="marginal",
    )

    assert list(table.index) == ["'a'='b=c'", "'a'='b=d'", "'a=b'='c'", "'a=b'='d'"]


def test_columns_that_share_a_name_have_numbered_rows():
    columns = {1: ["p", "q"] * 4, "1": ["p", "p", "q", "q"] * 2}
    table = group_table(
        [0, 1] * 4, [0, 1] * 4, sensitive_features=columns, groups="marginal"
    )

    assert table.index.is_unique
    assert table.index[2] == "'1'='p' (2)"


@pytest.mark.parametrize("metric", [violation, violations, group_table])
def test_groups_that_are_missing_in_every_row_are_refused(metric):
    with (
        pytest.warns(MissingGroupWarning, match="3 of 3 rows"),
        pytest.raises(InvalidInputError, match="No row has a value of group"),
    ):
        metric([0, 1, 1], [1, 0, 1], sensitive_features=[None, None, None])


def test_names_that_repeat_are_numbered():
    names = ["a", "a", "b", "a", "a (2)"]
    assert distinct(names) == ["a", "a (2)", "b", "a (3)", "a (2) (2)"]


@pytest.mark.parametrize("n_tables", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_metrics_by_group_agree_with_fairlearn(n_tables):
    names = {
        "accuracy": accuracy_score,
        "recall": lambda *rows, **options: recall_score(
            *rows, zero_division=0, **options
        ),
        "selection": fairlearn.selection_rate,
        "error": mean_absolute_error,
    }
    for seed in range(n_tables):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 40))
        y, decision, group = rng.integers(0, [[2], [2], [4]], size=(3, n))
        weight = rng.exponential(size=n) if seed % 2 else None
        parameters = {} if weight is None else {"sample_weight": weight}

        ours = by_group(
            names, y, decision, sensitive_features=group, sample_weight=weight
        )
        theirs = fairlearn.MetricFrame(
            metrics=names,
            y_true=y,
            y_pred=decision,
            sensitive_features=group,
            sample_params=dict.fromkeys(names, parameters),
        )

        pairs = {
            "overall": (ours.overall, theirs.overall),
            "by_group": (ours.by_group, theirs.by_group),
            "minimum": (ours.minimum, theirs.group_min()),
            "maximum": (ours.maximum, theirs.group_max()),
            "difference": (ours.difference, theirs.difference()),
            "ratio": (ours.ratio, theirs.ratio()),
        }
        for mine, other in pairs.values():
            np.testing.assert_allclose(
                mine.to_numpy(dtype=float), other.to_numpy(dtype=float), atol=1e-9
            )


def test_rows_without_a_group_count_overall_only():
    with pytest.warns(MissingGroupWarning):
        scores = by_group(
            accuracy_score,
            ["yes", "no", "no"],
            ["yes", "no", "yes"],
            sensitive_features=["a", "b", None],
        )

    assert scores.overall["accuracy_score"] == pytest.approx(2 / 3)
    assert scores.minimum["accuracy_score"] == 1


def test_a_metric_that_fails_on_a_group_is_named():
    message = "The metric 'recall_score' failed on all rows .* must take these values"
    with pytest.raises(InvalidInputError, match=message):
        by_group(recall_score, [0, 1], [0.5, 0.2], sensitive_features=["a", "b"])


def test_a_ratio_of_rates_is_that_of_the_lowest_to_the_highest():
    names = "group", "everyone", "1"
    assert Gap(*names, 0.2, "a", "b", 0.2, 0.4).ratio == pytest.approx(0.5)
    assert Gap(*names, 0.0, "a", "b", 0.3, 0.3).ratio == 1
    assert np.isnan(Gap(*names, 0.0, "a", "b", 0.0, 0.0).ratio)
    assert np.isnan(Gap(*names, 0.2, "a", "b").ratio)


def test_the_largest_gap_of_each_stratum_is_averaged():
    gaps = [
        Gap("sex", stratum, outcome, gap, "a", "b")
        for stratum, outcome, gap in [("0", "x", 0.1), ("0", "y", 0.3), ("1", "x", 0.2)]
    ]
    found = Violations(tuple(gaps), ())
    assert found.by_stratum == {("sex", "0"): 0.3, ("sex", "1"): 0.2}
    assert found.mean == pytest.approx(0.25)
    assert found.worst == 0.3
    nothing = Violations((), ())
    assert np.isnan(nothing.worst)
    assert np.isnan(nothing.mean)


def test_who_is_left_out_is_said_with_the_reason():
    absent = Absence("sex", "y = 1", ("a", "b"), "no rows")
    assert str(absent) == "sex, y = 1: a, b (no rows)"
    alone = Absence("sex", "y = 1", (), "no rows")
    assert str(alone) == "sex, y = 1: there is no other group (no rows)"
    assert (
        left_out("sex", 2, 9) == "2 of 9 rows have no value of sex and are in no group"
    )
    assert left_out(CONTROL, 2, 9).endswith("and are compared with none")


def test_the_violation_is_that_of_the_groups_that_are_there():
    some, none = np.array([[2, 5, 0], [8, 5, 0]]) * 1.0, np.array([[9, 0, 0]] * 2) * 1.0
    both, further = np.stack([some, none]), np.array([[[1, 6], [9, 4]]]) * 1.0
    np.testing.assert_allclose(distances_of(both), [[0.3, 0.3], [np.nan, np.nan]])
    assert worst_violation([both, further[:, :, [0, 0]]]) == pytest.approx(0.3)
    assert worst_violation([further, both]) == pytest.approx(0.5)
    assert np.isnan(worst_violation([both[1:]]))
    assert np.isnan(worst_violation([]))
