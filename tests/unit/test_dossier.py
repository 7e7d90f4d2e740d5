"""The dossier of an audit: what the text of a rule asks, and what it does not say."""

import json
import math
import re
from importlib.resources import files

import jsonschema
import numpy as np
import pandas as pd
import pytest

from fferm.auditing import Audit, audit, audit_regression
from fferm.auditing.dossier import DISCLAIMER, MEASURES, rules
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.report.dossiers import judge_dossier

# People without a category, and small ones, are what a dossier is about.
pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")
HOSTILE = "<img src=x onerror=alert(1)>"
SCHEMA = json.loads(
    files("fferm.auditing").joinpath("dossier.schema.json").read_text("utf-8")
)


def make_people(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "gender": rng.choice(["man", "woman"], n),
            "Race": rng.choice(["A", "B", HOSTILE], n, p=[0.6, 0.385, 0.015]),
            "age": rng.choice(["young", "old"], n),
        }
    )
    frame.loc[:8, "gender"] = None
    frame.loc[9:20, "Race"] = "Prefer not to say"
    lower = 0.12 * (frame["gender"] == "woman").to_numpy()
    prob = np.clip(rng.beta(2, 2, n) - lower, 0, 1)
    return frame, np.where(rng.random(n) < prob, "yes", "no"), prob


@pytest.fixture(scope="module")
def found():
    frame, y, prob = make_people()
    return audit(y_true=y, y_prob=prob, sensitive_features=frame, n_bootstrap=0)


def table_of(dossier, columns, basis="selection"):
    (table,) = [t for t in dossier.tables if (t.name, t.basis) == (columns, basis)]
    return table


def audit_counts(selected, n_rows, **options):
    """Return the audit of categories of so many people, of whom some are selected."""
    race = np.repeat([*n_rows], [*n_rows.values()])
    decision = np.concatenate(
        [np.arange(n) < x for n, x in zip(n_rows.values(), selected, strict=True)]
    ).astype(int)
    features = {"race": race, "sex": np.where(np.arange(race.size) % 2, "f", "m")}
    return audit(y_pred=decision, sensitive_features=features, n_bootstrap=0, **options)


# The example of § 5-301(b) of the rules: applicants, selected, published impact ratios.
APPLICANTS = {
    "Hispanic or Latino": 408,
    "White": 797,
    "Black": 390,
    "Native Hawaiian": 119,
    "Asian": 616,
    "Native American": 41,
    "Two or More Races": 213,
}
SELECTED = 204, 412, 170, 52, 302, 18, 96
PUBLISHED = 0.97, 1.00, 0.84, 0.85, 0.95, 0.85, 0.87


def test_impact_ratios_are_those_of_the_example_in_the_rules_of_new_york():
    dossier = audit_counts(SELECTED, APPLICANTS).dossier("ll144")
    rows = table_of(dossier, "race").categories
    assert table_of(dossier, "race").reference == "White"
    for (name, n), x, ratio in zip(
        APPLICANTS.items(), SELECTED, PUBLISHED, strict=True
    ):
        assert rows[name]["rows"] == n
        assert rows[name]["selected"] == x
        # The city divides rates that it has rounded.
        assert rows[name]["impact_ratio"] == pytest.approx(ratio, abs=0.0101)


def test_scoring_rates_are_those_of_the_example_in_the_rules_of_new_york():
    # § 5-301(c): applicants with a score above the median.
    sizes, above = {"Male": 92, "Female": 76}, {"Male": 50, "Female": 34}
    sex = np.repeat([*sizes], [*sizes.values()])
    scores = np.concatenate([np.arange(n) < above[k] for k, n in sizes.items()])
    result = audit_regression(
        None,
        scores.astype(float),
        scores.astype(float),
        sensitive_features={"sex": sex, "race": np.arange(168) % 3},
        n_permutations=0,
        n_bootstrap=0,
    )
    rows = table_of(result.dossier("ll144"), "sex", "score").categories
    assert rows["Male"]["rate"] == pytest.approx(0.543, abs=5e-4)
    assert rows["Female"]["rate"] == pytest.approx(0.447, abs=5e-4)
    assert rows["Female"]["impact_ratio"] == pytest.approx(0.82, abs=5e-3)


@pytest.mark.parametrize("rule", rules())
def test_the_json_of_every_rule_is_as_its_schema_says(found, rule):
    plain = json.loads(json.dumps(found.dossier(rule).to_dict(), allow_nan=False))
    jsonschema.validate(plain, SCHEMA)
    assert plain["disclaimer"] == DISCLAIMER
    assert plain["rule"]["citation"]


def test_the_schema_names_every_measure():
    known = SCHEMA["$defs"]["category"]["properties"]
    assert set(MEASURES) < set(known)
    asked = {measure for rule in rules().values() for measure in rule.measures}
    assert asked == set(MEASURES)


def test_sex_race_and_their_crossing_are_compared_and_no_other_column(found):
    names = [t.name for t in found.dossier("ll144").tables if t.basis == "selection"]
    assert names == ["gender", "Race", "gender × Race"]


def test_unknown_categories_are_counted_and_in_no_rate(found):
    tables = {t.name: t for t in found.dossier("eeoc").tables}
    assert tables["gender"].n_unknown == 9
    assert tables["Race"].n_unknown == 12
    assert tables["Race"].unknown == {"Prefer not to say": 12}
    assert tables["gender × Race"].n_unknown == 21
    for table in tables.values():
        assert table.n_rows + table.n_unknown == found.n_rows
        assert sum(row["rows"] for row in table.categories.values()) == table.n_rows


def test_the_median_is_that_of_all_people(found):
    _, _, prob = make_people()
    table = table_of(found.dossier("ll144"), "gender", "score")
    assert table.median == np.median(prob)
    row = table.categories["woman"]
    inside = make_people()[0]["gender"] == "woman"
    assert row["rate"] == pytest.approx(np.mean(prob[inside] > np.median(prob)))


def test_categories_under_two_percent_are_named_and_may_be_left_out(found):
    kept, left = (found.dossier("ll144", exclude_small=out) for out in (False, True))
    assert any("under 2 %" in text and HOSTILE in text for text in kept.findings)
    for dossier, is_known in ((kept, True), (left, False)):
        row = table_of(dossier, "Race").categories[HOSTILE]
        assert row["is_small"]
        assert row["rows"] > 0
        assert math.isfinite(row["rate"])
        assert math.isfinite(row["impact_ratio"]) == is_known


def test_a_tiny_category_that_is_left_out_is_no_reference():
    sizes = {"many": 600, "few": 390, "tiny": 5}
    result = audit_counts((300, 100, 5), sizes)
    assert table_of(result.dossier("ll144"), "race").reference == "tiny"
    table = table_of(result.dossier("ll144", exclude_small=True), "race")
    assert table.reference == "many"
    assert table.categories["few"]["impact_ratio"] == pytest.approx(100 / 390 / 0.5)


def test_four_fifths_comes_with_its_tests():
    # 48 of 80 against 12 of 40: the ratio is one half; scipy gives the p-values.
    dossier = audit_counts((48, 12), {"a": 80, "b": 40}).dossier("eeoc", sex="sex")
    row = table_of(dossier, "race").categories["b"]
    assert row["impact_ratio"] == pytest.approx(0.5)
    assert row["four_fifths"] is False
    assert row["z"] == pytest.approx(-0.3 / math.sqrt(0.25 * (1 / 80 + 1 / 40)))
    assert row["p_z"] == pytest.approx(0.00194577369, rel=1e-8)
    assert row["p_fisher"] == pytest.approx(0.00340922177, rel=1e-8)
    (text,) = [t for t in dossier.findings if "race" in t and ", b: below" in t]
    assert "statistically significant" in text
    assert judge_dossier(dossier).is_good is False


def test_few_people_below_four_fifths_are_not_significant():
    dossier = audit_counts((5, 3), {"a": 8, "b": 7}).dossier("eeoc")
    assert any("statistically not significant" in text for text in dossier.findings)


def test_nobody_selected_is_below_four_fifths():
    dossier = audit_counts((0, 60), {"a": 80, "b": 100}).dossier("eeoc", race="race")
    race = table_of(dossier, "race").categories
    assert race["a"]["impact_ratio"] == 0
    rows = [row for table in dossier.tables for row in table.categories.values()]
    below = sum(row["four_fifths"] is False for row in rows)
    assert judge_dossier(dossier).words.endswith(f": {below} of {len(rows)}")
    assert below >= 3  # the race, and its crossings with both sexes


def test_no_page_says_that_all_is_well():
    dossier = audit_counts((50, 50), {"a": 100, "b": 100}).dossier("eeoc")
    assert judge_dossier(dossier).is_good is None


def test_a_reference_may_be_chosen_where_the_rule_leaves_it_open(found):
    table = table_of(found.dossier("ecoa", reference={"Race": "B"}), "Race")
    rows = table.categories
    assert table.reference == "B"
    ratio = rows["A"]["rate"] / rows["B"]["rate"]
    assert rows["A"]["adverse_impact_ratio"] == pytest.approx(ratio)
    assert math.isnan(rows["B"]["odds_ratio"])


def test_the_outcome_that_is_favorable_may_be_the_first(found):
    for name in ("yes", "no"):
        table = table_of(found.dossier("ecoa", favorable=name), "gender")
        assert table.outcome == name
    rates = [
        table_of(found.dossier("ecoa", favorable=name), "gender").categories["man"]
        for name in ("yes", "no")
    ]
    assert rates[0]["rate"] + rates[1]["rate"] == pytest.approx(1)


def test_each_of_several_decisions_has_its_tables():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 300)})
    frame["race"] = rng.choice(["A", "B"], 300)
    found = audit(
        y_pred=rng.choice(["x", "y", "z"], 300),
        sensitive_features=frame,
        n_bootstrap=0,
    )
    outcomes = [t.outcome for t in found.dossier("ll144").tables if t.name == "sex"]
    assert outcomes == ["x", "y", "z"]


def test_further_columns_of_the_same_rows_may_be_named(found):
    other = make_people()[0].rename(columns={"gender": "g", "Race": "r"})
    dossier = found.dossier("ll144", sensitive_features=other, sex="g", race="r")
    expected = found.dossier("ll144")
    assert [t.categories for t in dossier.tables] == [
        t.categories for t in expected.tables
    ]


def test_labels_and_scores_that_are_missing_are_said(found):
    frame, _, _ = make_people()
    decided = audit(
        y_pred=np.where(np.arange(len(frame)) % 3, "yes", "no"),
        sensitive_features=frame,
        n_bootstrap=0,
    )
    said = " ".join(decided.dossier("eu-ai-act").not_computed)
    assert "no scores" in said
    assert "no labels" in said
    assert not found.dossier("eu-ai-act").not_computed


def test_calibration_and_area_are_those_of_the_scores(found):
    frame, y, prob = make_people()
    rows = table_of(found.dossier("ecoa"), "gender", "score").categories
    inside = (frame["gender"] == "woman").to_numpy()
    observed = np.mean(y[inside] == "yes") - prob[inside].mean()
    assert rows["woman"]["calibration"] == pytest.approx(observed)
    positive, negative = (prob[inside & (y == each)] for each in ("yes", "no"))
    pairs = positive[:, None] - negative
    area = np.mean((pairs > 0) + 0.5 * (pairs == 0))
    assert rows["woman"]["auc"] == pytest.approx(area)
    assert rows["woman"]["auc_low"] < area < rows["woman"]["auc_high"]


def test_the_bins_of_calibration_hold_everybody(found):
    table = table_of(found.dossier("ecoa"), "gender", "score")
    for name, cells in table.bins.items():
        row = table.categories[name]
        assert sum(cell["rows"] for cell in cells) == row["rows"]
        mean = sum(cell["rows"] * cell["mean_score"] for cell in cells) / row["rows"]
        assert mean == pytest.approx(row["mean_score"])


def test_nobody_is_selected_and_nothing_is_divided_by_zero():
    result = audit_counts((0, 0, 7), {"a": 5, "b": 6, "c": 7})
    for rule in rules():
        json.dumps(result.dossier(rule).to_dict(), allow_nan=False)
    rows = table_of(result.dossier("eeoc"), "race").categories
    assert rows["a"]["impact_ratio"] == 0
    assert rows["a"]["odds_ratio"] == 0


@pytest.fixture(scope="module")
def audits(found):
    frame, y, prob = make_people()
    passed = {"y_true": y, "y_prob": prob, "n_bootstrap": 0}
    return {
        "one": found,
        "of numbers": audit_regression(
            None, prob, prob, sensitive_features=frame, n_permutations=0, n_bootstrap=0
        ),
        "weighted": audit(**passed, sensitive_features=frame, sample_weight=prob),
        "by age": audit(**passed, sensitive_features=frame[["age"]]),
        "from a file": Audit.from_dict(found.to_dict()),
    }


BAD, UNREAD = InvalidParameterError, InvalidInputError
NAMED = {"reference": {"Race": "B"}}
MISTAKES = [
    ("one", "ll44", {}, UnknownNameError, "Did you mean 'll144'"),
    ("by age", "ll144", {}, UNREAD, "ll144 needs a column of sex and race; got age"),
    ("by age", "eeoc", {}, UNREAD, "eeoc needs a column of sex or race; got age"),
    ("one", "ll144", {"sex": "gendr"}, BAD, "Did you mean 'gender'"),
    ("one", "ecoa", {"favorable": "maybe"}, BAD, "Known: no, yes"),
    ("one", "ll144", NAMED, BAD, "ll144 compares with the category of the highest"),
    ("one", "ecoa", {"reference": {"Rce": "B"}}, BAD, "Did you mean 'Race'"),
    ("one", "ecoa", {"reference": {"Race": "C"}}, BAD, "Unknown category of Race"),
    ("one", "ecoa", {"sensitive_features": ["a"]}, UNREAD, "1 values for 1200"),
    ("weighted", "ecoa", {}, BAD, "Audit without sample_weight"),
    ("of numbers", "eeoc", {}, UNREAD, "Audit decisions, as y_pred"),
    ("from a file", "ecoa", {}, UNREAD, "This audit has no rows"),
]


@pytest.mark.parametrize(("which", "rule", "options", "error", "words"), MISTAKES)
def test_a_mistake_is_answered_in_one_line(audits, which, rule, options, error, words):
    with pytest.raises(error) as raised:
        audits[which].dossier(rule, **options)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_score_that_is_missing_is_refused():
    scores = np.append(np.linspace(0, 1, 9), np.nan)
    with pytest.raises(InvalidInputError):
        audit(y_prob=scores, sensitive_features={"sex": ["f", "m"] * 5})


def test_the_page_has_the_text_of_the_rule_hashes_and_blanks_to_sign(found, tmp_path):
    known = {"Data": "people.csv, SHA-256 abc", HOSTILE: HOSTILE}
    dossier = found.dossier("ll144", provenance=known)
    dossier.to_html(tmp_path / "dossier.html", title=HOSTILE)
    page = (tmp_path / "dossier.html").read_text("utf-8")
    assert "§§ 5-300 to 5-304" in page
    assert DISCLAIMER in page
    assert "people.csv, SHA-256 abc" in page
    for name in ("Independent auditor", "Signature", "Date"):
        assert re.search(rf"<dt>{name}</dt>", page)
    assert HOSTILE not in page
    assert "&lt;img src=x" in page


def test_a_dossier_reads_as_text_and_as_a_frame(found):
    dossier = found.dossier("ecoa")
    text = str(dossier)
    assert DISCLAIMER in text
    assert "effective 21 July 2026, removed the effects test" in text
    assert repr(dossier) == "Dossier(ecoa, 1200 rows, 8 tables)"
    frame = dossier.frame
    assert {"columns", "basis", "category", "rate", "auc"} <= set(frame.columns)


def test_the_rows_of_an_audit_stay_out_of_its_json(found):
    assert "people" not in found.to_dict()
    assert Audit.from_dict(found.to_dict()).people is None
