"""``fferm adapt`` levels a saved model where data have moved."""

import json

import numpy as np
import pandas as pd
import pytest

import fferm
from fferm.cli.program import run


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 2000
    sex, state = rng.choice(["f", "m"], n), rng.choice(["UT", "VT"], n)
    skill = rng.normal(size=n) + 0.9 * (sex == "m") + 0.5 * (state == "UT")
    paid = (skill + rng.normal(scale=0.5, size=n) > 0.7).astype(int)
    columns = {"skill": skill, "sex": sex, "state": state, "paid": paid}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def files(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    model = fferm.FairLogisticRegression(fairness_weight=0.0)
    model.fit(table[["skill"]], table["paid"], sensitive_features=table["sex"])
    fferm.save(model, folder / "model.fferm")
    table.to_csv(folder / "new.csv", index=False)
    return folder


def call(capsys, *arguments):
    code = run([str(part) for part in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_rates_are_level_by_place_and_the_model_is_used_like_any_other(
    files, table, capsys
):
    out = files / "adapted.fferm"
    asked = "adapt", files / "model.fferm", files / "new.csv", "--domain", "state"
    code, words, _ = call(capsys, *asked, "--out", out, "--recalibrate", "--json")
    assert code == 0
    result = json.loads(words)
    assert result["after"] < 0.02 < 0.2 < result["before"]
    assert (result["groups"], result["domains"]) == (["f", "m"], 2)
    predictions = files / "predictions.csv"
    code, _, _ = call(capsys, "predict", out, files / "new.csv", "--out", predictions)
    assert code == 0
    made = pd.read_csv(predictions)["prediction"]
    model = fferm.load(out)
    by_hand = model.predict(
        table[["skill", "state"]], sensitive_features=table[["sex"]]
    )
    assert np.array_equal(made, by_hand)
    code, words, _ = call(
        capsys, "audit", out, files / "new.csv", "--max-violation", "0.05"
    )
    assert code == 0
    assert "PASSES" in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--domain", "stat"], "no column 'stat', the domain of rows. Did you mean"),
        (["--sensitive", "gender"], "no column 'gender', the sensitive column"),
    ],
)
def test_columns_that_are_not_there_are_named(files, capsys, options, message):
    out = files / "other.fferm"
    asked = "adapt", files / "model.fferm", files / "new.csv", "--out", out
    code, _, err = call(capsys, *asked, *options)
    assert code == 2
    assert message in err
    assert not out.exists()
