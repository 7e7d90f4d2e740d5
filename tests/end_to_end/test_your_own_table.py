"""Five tables, as users have them: a fair model, its audit, its curve and its file.

Six lines of Python each, the last of them in a process of its own, and four commands.
"""

import json
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fferm
from fferm.cli import main
from fferm.errors import SmallGroupWarning

pytest.importorskip("lightgbm")

PAGE = Path(__file__).parents[2] / "docs" / "your-own-table.md"
IMPORTS = """
from fferm import FairBoostingClassifier, FairLogisticRegression
from fferm import audit, load, save, tradeoff_curve
"""
LINES = """
rows = {"X": old.drop(columns="won"), "y": old["won"], "sensitive_features": old["sex"]}
model = FairLogisticRegression().fit(**rows)
check = audit(model, new.drop(columns="won"), new["won"], sensitive_features=new["sex"])
curve = tradeoff_curve({"linear": model, "trees": FairBoostingClassifier()}, **rows)
save(model, "grants.fferm")
predicted = load("grants.fferm").predict(new.drop(columns="won"))
""".strip().splitlines()
COMMANDS = (
    "fferm fit old.csv --target won --sensitive sex --out grants.fferm",
    "fferm audit grants.fferm new.csv",
    "fferm curve old.csv --target won --sensitive sex --model linear --model boosting "
    "--weights 5 --out curve",
    "fferm predict grants.fferm new.csv --out predicted.csv",
)
# Rows of each of twenty groups.
SIZES = [*range(4, 28, 4), *[100] * 14]
SMALL = {f"region {n}": SIZES[n] for n in range(6)}


def make_people(sex, seed):
    """Return text, categories, numbers and gaps, and a score that depends on sex."""
    rng = np.random.default_rng(seed)
    n = len(sex)
    table = pd.DataFrame(
        {
            "sex": sex,
            "age": rng.integers(18, 80, n).astype(float),
            "income": rng.lognormal(3, 0.4, n).round(2),
            "job": rng.choice(["nurse", "cook", "clerk", "none"], n),
            "city": pd.Categorical(rng.choice(["Rome", "Oslo", "Łódź"], n)),
            "owner": rng.random(n) < 0.4,
        }
    )
    is_ahead = pd.Series(sex).isin(["man", 1, *(f"region {n}" for n in range(13))])
    score = table["income"] / 8 + 1.5 * is_ahead + rng.normal(0, 0.7, n)
    table.loc[rng.random(n) < 0.1, ["age", "job"]] = None
    return table, (score - score.median()).to_numpy()


def text_and_gaps(seed):
    sex = np.random.default_rng(seed).choice(["woman", "man"], 900)
    table, score = make_people(sex, seed)
    return table.assign(won=np.where(score > 0, "yes", "no"))


def only_numbers(seed):
    table, score = make_people(np.random.default_rng(seed).integers(0, 2, 900), seed)
    numbers = table[["sex", "age", "income"]].fillna(40)
    return numbers.assign(won=(score > 0).astype(int))


def polars_frame(seed):
    return pl.from_pandas(text_and_gaps(seed)).with_columns(pl.col("won") == "yes")


def twenty_groups(seed):
    table, score = make_people(
        np.repeat([f"region {n}" for n in range(20)], SIZES), seed
    )
    return table.assign(won=np.where(score > 0, "granted", "refused"))


def three_classes(seed):
    sex = np.random.default_rng(seed).choice(["woman", "man"], 1500)
    table, score = make_people(sex, seed)
    return table.assign(
        won=np.select([score > 0.8, score > -0.8], ["all", "part"], "none")
    )


def for_polars(line):
    return line.replace('drop(columns="won")', 'drop("won")')


def for_small_groups(line):
    line = line.replace("Regression()", "Regression(min_group_size=30)")
    line = line.replace('=new["sex"])', '=new["sex"], min_group_size=30)')
    return line.replace("}, **rows)", "}, **rows, min_group_size=30)")


# How to make the table, the lines for it, options of commands, and the labels.
TABLES = {
    "text and gaps": (text_and_gaps, str, "", {"yes", "no"}),
    "only numbers": (only_numbers, str, "", {0, 1}),
    "polars": (polars_frame, for_polars, "", {True, False}),
    "twenty groups": (
        twenty_groups,
        for_small_groups,
        "--min-group-size 30",
        {"granted", "refused"},
    ),
    "three classes": (three_classes, str, "", {"all", "part", "none"}),
}


@pytest.fixture(params=TABLES)
def table(request, monkeypatch, tmp_path):
    """Two parts of a table, also as files, what to do with them, and the labels."""
    make, write, options, labels = TABLES[request.param]
    monkeypatch.chdir(tmp_path)
    frames = {"old": make(0), "new": make(1)}
    for name, frame in frames.items():
        frame = frame.to_pandas() if isinstance(frame, pl.DataFrame) else frame
        frame.to_csv(f"{name}.csv", index=False)
        frame.to_parquet(f"{name}.parquet")
    return frames, [write(line) for line in LINES], options, labels


def gap_of_labels(new, min_group_size):
    """Return the violation of a model that is always right."""
    labels, groups = new["won"], new["sex"]
    return fferm.audit(
        y_true=labels,
        y_pred=labels,
        sensitive_features=groups,
        min_group_size=min_group_size,
        n_bootstrap=0,
    ).violation


def test_six_lines_lead_from_a_table_to_the_labels_it_was_given(table):
    frames, lines, options, labels = table
    assert len(lines) <= 6
    *here, last = lines
    names = dict(frames)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(IMPORTS + "\n".join(here), names)
    assert {w.category for w in caught} == ({SmallGroupWarning} if options else set())
    found, curve, model = names["check"], names["curve"], names["model"]
    least = 30 if options else 1
    assert found.violation < gap_of_labels(frames["new"], least) / 2
    assert found.accuracy > max(0.6, 1.2 / len(labels))
    assert set(curve.records["curve"]) == {"linear", "trees"}
    assert model.small_groups_ == ({"sex": SMALL} if options else {})
    for region, size in SMALL.items() if options else ():
        assert f"{region} ({size} rows)" in str(found)
    read = "pl" if isinstance(frames["new"], pl.DataFrame) else "pd"
    fresh = (
        f"import pandas as pd, polars as pl\nnew = {read}.read_parquet('new.parquet')"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            IMPORTS + f"{fresh}\n{last}\nprint(predicted.tolist())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    predicted = eval(done.stdout)
    assert set(predicted) == labels
    assert {type(label) for label in predicted} == {type(label) for label in labels}
    features = frames["new"].drop("won", **({} if read == "pl" else {"axis": 1}))
    assert predicted == model.predict(features).tolist()


def test_four_commands_lead_from_a_file_to_the_labels_it_holds(table, capsys):
    frames, _, options, labels = table
    assert len(COMMANDS) == 4
    printed = {}
    for line in COMMANDS:
        _, command, *arguments = shlex.split(line)
        if command != "predict":
            arguments += shlex.split(options)
        code = main([command, *arguments, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        printed[command] = json.loads(out)
    found = printed["audit"]["audit"]
    least = 30 if options else 1
    assert found["violation"] < gap_of_labels(frames["new"], least) / 2
    listed = found.get("small_groups", {}).get("sex", {})
    assert listed == (SMALL if options else {})
    curve = fferm.TradeoffCurve.load("curve")
    assert set(curve.records["curve"]) == {"linear, kl", "boosting, kl"}
    predicted = pd.read_csv("predicted.csv")["prediction"].tolist()
    assert set(predicted) == labels
    assert {type(label) for label in predicted} == {type(label) for label in labels}
    assert printed["predict"]["rows"] == len(frames["new"])


def test_the_page_shows_these_lines_and_commands():
    if not PAGE.exists():
        pytest.skip("docs/ is not beside the tests")
    shown = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in shown if line in LINES] == LINES
    assert tuple(line for line in shown if line.startswith("fferm ")) == COMMANDS
