"""`fferm audit --for RULE`: the dossier of a table, or of a saved model."""

import json

import numpy as np
import pandas as pd
import pytest

ROWS = 400


@pytest.fixture
def people(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=ROWS),
            "sex": rng.choice(["f", "m"], ROWS),
            "group": rng.choice(["A", "B"], ROWS),
        }
    )
    frame["hired"] = np.where(frame["x"] + rng.normal(size=ROWS) > 0, "yes", "no")
    frame["decision"] = np.where(frame["x"] > 0, "yes", "no")
    frame["chance"] = (1 / (1 + np.exp(-frame["x"]))).round(4)
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


def columns_of(dossier):
    return [
        table["columns"] for table in dossier["tables"] if table["basis"] != "score"
    ]


def test_predictions_in_a_table_make_a_dossier_with_hashes(call, people, tmp_path):
    page = tmp_path / "dossier.html"
    given = ["--prediction", "decision", "--probability", "chance", "--target", "hired"]
    given += ["--sensitive", "sex", "--sensitive", "group", "--race", "group"]
    asked = ["--for", "ll144", "--html", page, "--date", "2026-11-18", "--json"]
    done = call("audit", people, *given, *asked)
    assert done.code == 0
    dossier = json.loads(done.out)["dossier"]
    assert columns_of(dossier) == [["sex"], ["group"], ["sex", "group"]]
    assert "SHA-256" in dossier["provenance"]["Data"]
    assert dossier["provenance"]["Date"] == "2026-11-18"
    assert "fferm audit" in dossier["provenance"]["Command"]
    assert dossier["provenance"]["Data"] in page.read_text("utf-8")


def test_a_saved_model_has_a_dossier_of_columns_that_it_was_not_trained_with(
    call, people, tmp_path
):
    model = tmp_path / "model.fferm"
    fit = ["--target", "hired", "--sensitive", "sex", "--fairness-weight", 1]
    fit += ["--drop", "decision", "--drop", "chance", "--quiet", "--out", model]
    assert call("fit", people, *fit).code == 0
    named = ["--sensitive", "sex", "--sensitive", "group", "--race", "group"]
    done = call("audit", model, people, "--for", "eeoc", *named)
    assert done.code == 0
    assert done.out.startswith("Adverse impact, Uniform Guidelines")
    assert "By sex × group: decision 'yes'" in done.out
    assert "This dossier is not legal advice." in done.out


def test_a_dossier_still_judges_the_bound(call, people):
    given = ["--prediction", "decision", "--target", "hired", "--sensitive", "sex"]
    done = call("audit", people, *given, "--for", "eeoc", "--max-violation", 0)
    assert done.code == 1
    assert "FAILS" in done.out


def test_alternatives_are_documented_from_records(call, people, tmp_path):
    records, page = tmp_path / "records", tmp_path / "alternatives.html"
    sweep = ["--target", "hired", "--sensitive", "sex", "--weights", 3, "--quiet"]
    assert call("curve", people, *sweep, "--out", records).code == 0
    done = call("alternatives", records, "--max-loss", 0.5, "--html", page, "--json")
    assert done.code == 0
    search = json.loads(done.out)
    assert len(search["models"]) == 3
    assert any(text.startswith("SHA-256") for text in search["provenance"].values())
    assert search["taken"]["fairness_weight"] in [
        row["fairness_weight"] for row in search["models"]
    ]
    assert page.exists()
    vain = call("alternatives", records, "--min-accuracy", 1)
    assert vain.code == 1
    assert vain.out.startswith("None was taken.")
