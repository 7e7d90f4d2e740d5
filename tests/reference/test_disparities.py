"""Ratios, differences and rates by group are those of other libraries.

`solas_tables.json.gz` holds 1,000 random tables and what solas-ai 0.6.0, which cannot
be installed beside the newest pandas, makes of them. A table is two strings, of race a
and race b, with a letter per person: its place in the alphabet is the score, and a
capital was selected. Every other person, over both strings, is of sex m. solas-ai
counts a score at the median as above it; the rules of New York speak of scores above,
so scoring rates are compared where no score is at the median.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from fferm.auditing import audit
from fferm.metrics import by_group, group_table, violation

TABLES = json.loads(
    gzip.decompress(Path(__file__).with_name("solas_tables.json.gz").read_bytes())
)
pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")


def read(table):
    people = "".join(table["people"])
    score = np.array([ord(letter.lower()) - ord("a") for letter in people]) / 25
    selected = np.array([letter.isupper() for letter in people]).astype(int)
    race = np.repeat(["a", "b"], [*map(len, table["people"])])
    return score, selected, {"race": race, "sex": np.resize(["m", "f"], race.size)}


def compare_with_solas(table):
    score, selected, groups = read(table)
    found = audit(
        y_pred=selected,
        y_prob=score,
        y_true=1 - selected,
        sensitive_features=groups,
        n_bootstrap=0,
    )
    near = {"rel": 1e-9, "abs": 1e-9}
    air, odds, difference, p = table["values"]
    credit = found.dossier("ecoa", reference={"race": "b"}).tables
    row = credit[0].categories["a"]
    assert row["adverse_impact_ratio"] == pytest.approx(air, **near)
    assert row["odds_ratio"] == pytest.approx(odds, **near)
    assert row["p_fisher"] == pytest.approx(p, **near)
    scored = credit[1].categories["a"]["standardized_mean_difference"]
    assert scored == pytest.approx(difference, **near)
    is_clear = np.all(score != np.median(score))
    for part in found.dossier("ll144").tables:
        if part.basis == "score" and not is_clear:
            continue
        expected = table["selection" if part.basis == "selection" else "scoring"]
        for name, row in part.categories.items():
            key = "/".join(reversed(name.split(" × "))) if " × " in name else name
            assert row["impact_ratio"] == pytest.approx(expected[key], **near)


@pytest.mark.parametrize("number", range(0, 1000, 125))
def test_disparities_are_those_of_solas(number):
    compare_with_solas(TABLES[number])


@pytest.mark.slow
def test_disparities_are_those_of_solas_on_a_thousand_tables():
    assert len(TABLES) == 1000
    for table in TABLES:
        compare_with_solas(table)


EVERY = pytest.mark.parametrize("step", [125, pytest.param(1, marks=pytest.mark.slow)])


@EVERY
def test_rates_by_group_are_those_of_fairlearn(step):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    for number, table in enumerate(TABLES[::step]):
        score, selected, groups = read(table)
        y = (score > 0.5).astype(int)
        race = groups["race"]
        rates = fairlearn.MetricFrame(
            metrics=fairlearn.selection_rate,
            y_true=y,
            y_pred=selected,
            sensitive_features=race,
        )
        ours = by_group(
            lambda _, decided: np.mean(decided),
            y,
            selected,
            sensitive_features=race,
        )
        np.testing.assert_allclose(ours.by_group["<lambda>"], rates.by_group, atol=1e-9)
        assert float(ours.ratio.iloc[0]) == pytest.approx(rates.ratio(), abs=1e-9)
        if number % 10 == 0:
            gap = violation(y, selected, sensitive_features=race)
            theirs = fairlearn.demographic_parity_difference(
                y, selected, sensitive_features=race
            )
            assert gap == pytest.approx(theirs, abs=1e-9)


@EVERY
def test_rates_by_group_are_those_of_torchmetrics(step):
    torch = pytest.importorskip("torch")
    stats = pytest.importorskip("torchmetrics.functional.classification")
    for table in TABLES[::step]:
        score, selected, groups = read(table)
        y, race = (score > 0.5).astype(int), (groups["race"] == "b").astype(int)
        if not all(len({*y[race == k]}) == 2 for k in (0, 1)):
            continue
        theirs = stats.binary_groups_stat_rates(
            torch.tensor(selected), torch.tensor(y), torch.tensor(race), 2
        )
        ours = group_table(y, selected, sensitive_features=race)
        for k, group in enumerate(("0", "1")):
            # It divides counts in single precision, so the counts are compared.
            n = int(np.sum(race == k))
            tp, fp, _, fn = (round(float(part) * n) for part in theirs[f"group_{k}"])
            row = ours.loc[group]
            assert row["selection_rate_1"] == pytest.approx((tp + fp) / n, abs=1e-9)
            assert row["base_rate_1"] == pytest.approx((tp + fn) / n, abs=1e-9)
