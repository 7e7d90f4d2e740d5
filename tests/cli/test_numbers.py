"""Targets and sensitive columns that are numbers, on the command line."""

import json

import numpy as np
import pandas as pd
import pytest

import fferm
from fferm.auditing import RegressionAudit

COLUMNS = ("--target", "pay", "--sensitive", "sex")


@pytest.fixture(scope="module")
def pay(tmp_path_factory):
    """A folder with a table of pay by sex and age, which pay depends on."""
    home = tmp_path_factory.mktemp("numbers")
    rng = np.random.default_rng(0)
    n = 900
    sex, age = rng.choice(["f", "m"], n), rng.integers(18, 65, n)
    years = np.maximum(rng.normal(age / 4, 4), 0)
    pay = 20 + 1.5 * years + 6 * (sex == "m") + rng.normal(0, 4, n)
    kind = rng.choice(["a", "b"], n)
    frame = pd.DataFrame({"years": years, "kind": kind, "sex": sex, "age": age})
    frame["pay"] = pay.round(2)
    frame.to_csv(home / "pay.csv", index=False)
    return home


@pytest.fixture(scope="module")
def table(pay):
    return pd.read_csv(pay / "pay.csv")


def test_a_target_of_numbers_makes_a_regressor(pay, table, call, tmp_path):
    out = tmp_path / "pay.fferm"
    done = call("fit", pay / "pay.csv", *COLUMNS, "--out", out)
    assert done.code == 0, done.err
    assert "Audit of 225 rows, a regression" in done.out
    model = fferm.load(out)
    assert isinstance(model, fferm.FairRegressor)
    predicted = model.predict(table[list(model.feature_names_in_)])
    assert np.corrcoef(predicted, table["pay"])[0, 1] > 0.7


def test_a_bound_names_its_metric_and_is_kept(pay, call, tmp_path):
    out = tmp_path / "pay.fferm"
    line = ("fit", pay / "pay.csv", *COLUMNS, "--out", out, "--metric", "mean_gap")
    done = call(*line, "--max-violation", "2", "--confidence", "0", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["feasible"] is True
    assert found["audit"]["metric"] == "mean_gap"
    plain = json.loads(call(*line, "--fairness-weight", "0", "--json").out)["audit"]
    gaps = [
        RegressionAudit.from_dict(part).violation for part in (plain, found["audit"])
    ]
    assert gaps[1] < 3 < gaps[0]


def test_an_audit_judges_by_the_model_s_metric_or_another(pay, call, tmp_path):
    out = tmp_path / "pay.fferm"
    call("fit", pay / "pay.csv", *COLUMNS, "--out", out, "--fairness-weight", "0")
    line = ("audit", out, pay / "pay.csv")
    found = RegressionAudit.from_dict(json.loads(call(*line, "--json").out)["audit"])
    value = found.value("kolmogorov_smirnov")
    assert call(*line, "--max-violation", value + 0.01).code == 0
    done = call(*line, "--max-violation", value - 0.01)
    assert done.code == 1
    assert "FAILS" in done.out
    assert "(kolmogorov_smirnov)" in done.out
    assert call(*line, "--max-violation", value + 0.01, "--confidence", 0.9).code == 1
    dollars = found.value("wasserstein") + 1
    line = (*line, "--metric", "wasserstein", "--max-violation", dollars)
    assert call(*line).code == 0


def test_a_column_of_ages_is_cut_into_bands_where_asked(pay, table, call, tmp_path):
    out = tmp_path / "pay.fferm"
    line = ("fit", pay / "pay.csv", "--target", "pay", "--sensitive", "age")
    done = call(*line, "--bands", "age", "--out", out, "--json")
    assert done.code == 0, done.err
    model = fferm.load(out)
    assert len(model.groups_) == 8
    assert set(model.band_edges_) == {"age"}
    audited = json.loads(done.out)["audit"]["columns"]["age"]
    assert "distance_correlation" in audited["measures"]
    assert len(audited["groups"]) == 8


def test_predictions_in_a_table_are_audited_without_a_model(table, call, tmp_path):
    frame = table.assign(guess=table["pay"] + 1)
    frame.to_csv(tmp_path / "guessed.csv", index=False)
    page = tmp_path / "page.html"
    done = call(
        "audit", tmp_path / "guessed.csv", "--prediction", "guess", *COLUMNS,
        "--sensitive", "age", "--html", page, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = RegressionAudit.from_dict(json.loads(done.out)["audit"])
    assert found.mse == pytest.approx(1)
    assert set(found.columns) == {"sex", "age", "sex × age"}
    assert "Kolmogorov-Smirnov" in page.read_text(encoding="utf-8")


def test_decisions_in_a_table_are_audited_without_a_model(table, call, tmp_path):
    truth = np.where(table["pay"] > 35, "high", "low")
    frame = table.assign(truth=truth, said=np.where(table["years"] > 10, "high", "low"))
    frame.to_csv(tmp_path / "said.csv", index=False)
    line = ("--prediction", "said", "--target", "truth", "--sensitive", "sex")
    done = call("audit", tmp_path / "said.csv", *line, "--json")
    assert done.code == 0, done.err
    rates = frame["said"].eq("high").groupby(frame["sex"]).mean()
    found = json.loads(done.out)["audit"]["violation"]
    assert found == pytest.approx(rates.max() - rates.min())


def test_a_curve_and_the_reports_of_numbers(pay, call, tmp_path):
    records, page = tmp_path / "records", tmp_path / "page.html"
    line = ("curve", pay / "pay.csv", *COLUMNS, "--weights", "3", "--out", records)
    done = call(*line)
    assert done.code == 0, done.err
    assert "violation the kolmogorov_smirnov" in done.out
    assert call("report", records, "--out", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "Variance explained" in text
    assert "ecision" not in text.split("<script", 1)[0]
    out = tmp_path / "pay.fferm"
    call("fit", pay / "pay.csv", *COLUMNS, "--out", out, "--quiet")
    audit = tmp_path / "audit.json"
    audit.write_text(call("audit", out, pay / "pay.csv", "--json").out)
    assert call("report", audit, "--out", page, "--max-violation", "0.2").code == 0
    assert "the bound of 0.2" in page.read_text(encoding="utf-8")


def test_a_network_predicts_numbers_too(pay, call, tmp_path):
    pytest.importorskip("torch", reason="the extra torch is not installed")
    small = tmp_path / "small.csv"
    pd.read_csv(pay / "pay.csv").head(200).to_csv(small, index=False)
    out = tmp_path / "net.fferm"
    done = call("fit", small, *COLUMNS, "--model", "net", "--out", out)
    assert done.code == 0, done.err
    assert fferm.load(out).hidden == (64, 64)


def test_whole_numbers_of_few_values_stay_classes_unless_said(pay, call, tmp_path):
    frame = pd.read_csv(pay / "pay.csv").assign(stars=lambda f: f["age"] // 10)
    frame.to_csv(tmp_path / "stars.csv", index=False)
    line = ("fit", tmp_path / "stars.csv", "--target", "stars", "--sensitive", "sex")
    out = tmp_path / "m.fferm"
    assert "accuracy" in call(*line, "--out", out).out
    assert "a regression" in call(*line, "--out", out, "--task", "regression").out
