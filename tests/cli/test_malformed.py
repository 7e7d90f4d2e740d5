"""Whatever comes in that cannot be used: one clear line, exit code 2, nothing left."""

import io
import os
import string

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fferm.cli import main
from fferm.errors import install_line

N_GENERATED = 140

ROWS = "".join(f"{i},{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
GOOD = "n,g,y\n" + ROWS


def csv(text):
    return {"data.csv": text.encode() if isinstance(text, str) else text}


def parquet(frame):
    stream = io.BytesIO()
    frame.to_parquet(stream)
    return {"data.csv": stream.getvalue()}


FIT = "fit data.csv --target y --sensitive g --out out/model.fferm"
CURVE = "curve data.csv --target y --sensitive g --out out/records"
AUDIT = "audit good.fferm data.csv"

# What is wrong, the files there are, the command line, a part of what is said.
FILES = [
    ("no file", {}, FIT, "does not exist"),
    ("an empty file", csv(""), FIT, "it is empty"),
    ("an empty line", csv("\n\n"), FIT, "it is empty"),
    ("spaces", csv("   \n"), FIT, "it is empty"),
    ("a header alone", csv("n,g,y\n"), FIT, "no rows"),
    ("a long row", csv(GOOD + "1,a,x,9\n"), FIT, "Expected 3 columns, got 4"),
    ("a short row", csv(GOOD + "1,a\n"), FIT, "Expected 3 columns, got 2"),
    ("an open quote", csv(GOOD + '1,"a,x\n'), FIT, "cannot be read as CSV"),
    ("a name twice", csv("n,g,g,y\n1,a,a,x\n"), FIT, "Two columns"),
    ("no name", csv("n,,y\n1,a,x\n"), FIT, "has no name"),
    ("zeros", csv(b"\0" * 100), FIT, "not a text file"),
    ("Latin 1", csv("n,g,y\n1,\xe9,x\n".encode("latin-1") * 9), FIT, "utf-8"),
    ("Latin 1 above", csv("n,g,\xe9\n1,a,x\n".encode("latin-1")), FIT, "encod"),
    ("UTF-16", csv(GOOD.encode("utf-16")), FIT, "error"),
    ("a picture", csv(b"\x89PNG\r\n\x1a\n" + bytes(range(256))), FIT, "error"),
    ("half a Parquet file", csv(b"PAR1" + b"x" * 50), FIT, "as Parquet"),
    ("cut Parquet", csv(parquet(pd.DataFrame({"y": [1]}))["data.csv"][:60]), FIT, ""),
    ("Parquet without rows", parquet(pd.DataFrame({"y": []})), FIT, "no rows"),
    ("a folder", {"data.csv/inner": b""}, FIT, "is a folder"),
    ("no way to read", {}, FIT.replace("data.csv", "/proc/self/mem"), "Cannot read"),
]
COLUMNS = [
    ("no target", csv("n,g,z\n" + ROWS), FIT, "no column 'y'"),
    ("no sensitive column", csv("n,h,y\n" + ROWS), FIT, "no column 'g'"),
    (
        "one class",
        csv(
            GOOD.replace(",y\n", ",x\n")
            .replace(",z\n", ",x\n")
            .replace("n,g,x", "n,g,y")
        ),
        FIT,
        "only one class",
    ),
    ("one group", csv(GOOD.replace(",b,", ",a,")), FIT, "group"),
    (
        "no group at all",
        csv(GOOD.replace(",b,", ",,").replace(",a,", ",,")),
        FIT,
        "group",
    ),
    ("no label at all", csv("n,g,y\n" + "1,a,\n2,b,\n" * 9), FIT, "missing in every"),
    (
        "3000 values",
        csv("n,g,y\n" + "".join(f"1,{'ab'[i % 2]},t{i}\n" for i in range(3000))),
        FIT,
        "got 3000 distinct values",
    ),
    (
        "a fractional target",
        csv("n,g,y\n" + "".join(f"1,{'ab'[i % 2]},{i}.5\n" for i in range(40))),
        FIT + " --task classification",
        "fractional",
    ),
    (
        "a target of dates",
        csv(
            "n,g,y\n"
            + "".join(f"1,{'ab'[i % 2]},{1900 + i}-01-01\n" for i in range(120))
        ),
        FIT,
        "got 120 distinct values",
    ),
    (
        "groups that name rows",
        csv("n,g,y\n" + "".join(f"{i},p{i},{'xy'[i % 2]}\n" for i in range(90))),
        FIT,
        "identifies rows",
    ),
    (
        "no features",
        csv("g,y\n" + "a,x\nb,y\n" * 20),
        FIT + " --drop-sensitive",
        "No column to predict from",
    ),
    (
        "constant features",
        csv("n,g,y\n" + "1,a,x\n1,b,y\n" * 20),
        FIT + " --drop-sensitive",
        "No column to predict from",
    ),
    ("infinity", csv(GOOD + "inf,a,x\n"), FIT, "infinity"),
    ("a huge number", csv(GOOD + "1e300,a,x\n"), FIT, "above 1e+100"),
    (
        "lists",
        parquet(
            pd.DataFrame(
                {"n": [[1], [2]] * 20, "g": ["a", "b"] * 20, "y": [0, 1, 1, 0] * 10}
            )
        ),
        FIT,
        "type",
    ),
    (
        "bytes",
        parquet(
            pd.DataFrame(
                {"n": [b"1", b"2"] * 20, "g": ["a", "b"] * 20, "y": [0, 1, 1, 0] * 10}
            )
        ),
        FIT,
        "type bytes",
    ),
    (
        "target and sensitive alike",
        csv(GOOD),
        FIT.replace("--sensitive g", "--sensitive y"),
        "not the target",
    ),
    (
        "a column to drop that is not there",
        csv(GOOD),
        FIT + " --drop q",
        "no column 'q'",
    ),
    ("two rows", csv("n,g,y\n1,a,x\n2,b,z\n"), FIT, "rows"),
    ("one row", csv("n,g,y\n1,a,x\n"), FIT, "only one class, 'x'"),
]
# A target of numbers, predictions of it, and a sensitive column of numbers.
NUMBERS = "n,g,age,y,p\n" + "".join(
    f"{i % 7},{'ab'[i % 2]},{i % 30}.5,{3 * i}.5,{2 * i}\n" for i in range(120)
)
GIVEN = "audit data.csv --prediction p --target y --sensitive g"
REGRESSION = [
    ("trees for numbers", csv(NUMBERS), FIT + " --model boosting", "--model boosting"),
    ("an unknown metric", csv(NUMBERS), FIT + " --metric size", "Unknown measure"),
    ("a metric of classes", csv(GOOD), FIT + " --metric mean_gap", "has classes"),
    (
        "a metric of numbers by groups",
        csv(NUMBERS),
        FIT + " --metric correlation --max-violation 0.1 --confidence 0",
        "needs a numeric sensitive column",
    ),
    (
        "a notion of classes",
        csv(NUMBERS),
        FIT + " --notion equalized_odds",
        "conditions on a label",
    ),
    ("confidence in a correlation", csv(NUMBERS), FIT + " --max-violation 0.5 "
     "--metric correlation", "Pass --confidence 0"),
    ("no confidence", csv(GOOD), FIT + " --max-violation 0.5 --confidence 0.2",
     "confidence must be at least 0.5"),
    ("confidence in nothing", csv(GOOD), AUDIT + " --confidence 0.95",
     "needs --max-violation"),
    ("a plan of numbers", csv(NUMBERS), "plan data.csv --target y --sensitive g",
     "needs a target of classes"),
    ("a plan without power", csv(GOOD), "plan data.csv --target y --sensitive g "
     "--power 2", "--power must be"),
    ("a weight and a bound", csv(GOOD), FIT + " --fairness-weight 1 --max-violation 1",
     "contradict each other"),
    ("no such encoding", csv(GOOD), FIT + " --encoding klingon", "got 'klingon'"),
    ("two separators", csv(GOOD), FIT + " --sep ::", "--sep must be one character"),
    ("no such codes", csv(GOOD), FIT + " --categorical q", "Unknown column 'q'"),
    ("an unknown task", csv(NUMBERS), FIT + " --task ranking", "--task"),
    ("labels for numbers", csv(GOOD), FIT + " --task regression", "must be numbers"),
    ("no such bands", csv(NUMBERS), FIT + " --bands q", "not a sensitive column"),
    ("bands of words", csv(NUMBERS), FIT + " --bands g", "non-numeric"),
    ("one number", csv("n,g,y\n" + "1,a,2\n2,b,2\n" * 9), FIT + " --task regression",
     "only one value"),
    ("an infinite number", csv(NUMBERS + "1,a,1,inf,1\n"), FIT, "infinite in 1"),
    ("a negative bound on numbers", csv(NUMBERS), FIT + " --max-violation -1",
     "--max-violation must be"),
    ("no truth", csv(NUMBERS), GIVEN.replace("--target y ", ""), "--target is missing"),
    ("no groups", csv(NUMBERS), GIVEN.replace(" --sensitive g", ""), "--sensitive is"),
    ("no such prediction", csv(NUMBERS), GIVEN + " --sensitive q", "no column 'q'"),
    ("two files", csv(NUMBERS), GIVEN.replace("csv", "csv data.csv"), "second file"),
    ("no data", csv(NUMBERS), "audit good.fferm", "Missing argument DATA"),
    ("a target of a model", csv(GOOD), AUDIT + " --target y", "--target cannot"),
    ("a task of a model", csv(GOOD), AUDIT + " --task regression", "--task cannot"),
    ("gaps among predictions", csv(NUMBERS + "1,a,1,1.5,\n"), GIVEN, "'p' is missing"),
    ("a bound on a distance above 1", csv(NUMBERS), GIVEN + " --max-violation 2",
     "--max-violation must be between 0 and 1; got 2.0"),
    ("a bound that is none", csv(NUMBERS), GIVEN + " --max-violation nan", "got nan"),
    ("confidence in numbers", csv(NUMBERS), GIVEN + " --sensitive age --metric "
     "correlation --max-violation 0.5 --confidence 0.9", "needs an interval"),
    ("a metric of given classes", csv("g,y,p\n" + "a,x,x\nb,z,z\n" * 9),
     GIVEN + " --metric mean_gap", "are classes"),
    ("a notion of given numbers", csv(NUMBERS), GIVEN + " --notion equalized_odds",
     "are numbers"),
    ("no audit of numbers", csv('{"kind": "regression"}'), "report data.csv",
     "are not an audit"),
]  # fmt: skip
OPTIONS = [
    (
        "no target named",
        csv(GOOD),
        "fit data.csv --sensitive g --out out/m",
        "--target is missing",
    ),
    (
        "no groups named",
        csv(GOOD),
        "fit data.csv --target y --out out/m",
        "--sensitive is missing",
    ),
    ("no out", csv(GOOD), "fit data.csv --target y --sensitive g", "--out"),
    ("an unknown option", csv(GOOD), FIT + " --colour red", "No such option"),
    ("an unknown command", {}, "train data.csv", "No such command"),
    ("too many arguments", csv(GOOD), FIT + " more", "unexpected extra argument"),
    ("an unknown notion", csv(GOOD), FIT + " --notion karma", "Unknown notion 'karma'"),
    (
        "an unknown divergence",
        csv(GOOD),
        FIT + " --divergence klx",
        "Did you mean 'kl'?",
    ),
    (
        "a notion that needs more",
        csv(GOOD),
        FIT + " --notion conditional_parity",
        "needs parameters",
    ),
    ("an unknown model", csv(GOOD), FIT + " --model forest", "--model"),
    ("unknown groups", csv(GOOD), FIT + " --groups all", "--groups"),
    (
        "a negative weight",
        csv(GOOD),
        FIT + " --fairness-weight -1",
        "--fairness-weight must be",
    ),
    (
        "a weight that is none",
        csv(GOOD),
        FIT + " --fairness-weight nan",
        "got nan",
    ),
    (
        "a weight in words",
        csv(GOOD),
        FIT + " --fairness-weight much",
        "--fairness-weight",
    ),
    ("a bound above 1", csv(GOOD), FIT + " --max-violation 2", "got 2.0"),
    (
        "a negative bound",
        csv(GOOD),
        FIT + " --max-violation -0.1",
        "got -0.1",
    ),
    ("a test share of 0", csv(GOOD), FIT + " --test-share 0", "--test-share must be"),
    ("a test share of 1", csv(GOOD), FIT + " --test-share 1", "--test-share must be"),
    (
        "a test share that is none",
        csv(GOOD),
        FIT + " --test-share nan",
        "got nan",
    ),
    ("a negative seed", csv(GOOD), FIT + " --seed -1", "seed"),
    (
        "another target of Adult",
        {},
        "fit adult --target age --out out/m",
        "--target must be income",
    ),
    (
        "a column that Adult lacks",
        {},
        "fit adult --sensitive shoe --out out/m",
        "Unknown sensitive column",
    ),
    ("data that are not here", {}, "fit compas --out out/m", "compas"),
    (
        "one weight",
        csv(GOOD),
        CURVE + " --weights 1",
        "--weights must be",
    ),
    ("no seeds", csv(GOOD), CURVE + " --seeds 0", "--seeds must be"),
    ("no processes", csv(GOOD), CURVE + " --jobs 0", "--jobs must be"),
    (
        "an unknown divergence among others",
        csv(GOOD),
        CURVE + " --divergence kl --divergence q",
        "Unknown divergence",
    ),
    ("an unknown figure", {}, "reproduce fig99", "fig99"),
    ("an unknown method", {}, "reproduce fig1 --only me", "Unknown method"),
    ("an unknown size", {}, "reproduce fig1 --size huge", "--size"),
]
TARGETS = [
    (
        "a folder to write to",
        csv(GOOD),
        FIT.replace("out/model.fferm", "out"),
        "is a folder",
    ),
    (
        "no folder to write to",
        csv(GOOD),
        FIT.replace("out/", "nowhere/"),
        "is not a folder",
    ),
    (
        "no permission",
        csv(GOOD),
        FIT.replace("out/model.fferm", "/proc/model.fferm"),
        "Cannot write",
    ),
    (
        "the input itself",
        csv(GOOD),
        FIT.replace("out/model.fferm", "data.csv"),
        "input itself",
    ),
    (
        "a file for a folder",
        csv(GOOD),
        CURVE.replace("out/records", "data.csv"),
        "is a file",
    ),
    (
        "no folder for records",
        csv(GOOD),
        CURVE.replace("out/", "nowhere/"),
        "is not a folder",
    ),
    (
        "a page nowhere",
        csv(GOOD),
        AUDIT + " --html nowhere/page.html",
        "is not a folder",
    ),
    (
        "a report nowhere",
        csv("{}"),
        "report data.csv --out nowhere/r.html",
        "is not a folder",
    ),
]
MODELS = [
    ("no model", csv(GOOD), "audit none.fferm data.csv", "none.fferm"),
    ("a CSV for a model", csv(GOOD), "audit data.csv data.csv", "not a saved fferm"),
    ("a folder for a model", csv(GOOD), "audit out data.csv", "out"),
    ("other columns", csv(GOOD), AUDIT, "no column"),
    ("a lost feature", csv("region,outcome\nA,low\nB,high\n"), AUDIT, "column 'age'"),
    ("an unknown label", {}, "audit good.fferm other.csv", "'mighty'"),
    ("words for numbers", {}, "audit good.fferm words.csv", "must hold numbers"),
    ("an audit's bound above 1", {}, AUDIT + " --max-violation 7", "got 7.0"),
    ("an audit of karma", {}, "audit good.fferm fine.csv --notion karma", "karma"),
    ("nothing to report on", {}, "report none", "does not exist"),
    ("a report on no JSON", csv("{"), "report data.csv", "is not JSON"),
    ("a report on a number", csv("3"), "report data.csv", "not an audit"),
    ("a report on bytes", csv(b"\xff\xfe"), "report data.csv", "is not JSON"),
]  # fmt: skip
BY_HAND = [*FILES, *COLUMNS, *REGRESSION, *OPTIONS, *TARGETS, *MODELS]


@pytest.fixture
def place(tmp_path, monkeypatch, folder, table):
    """A folder to work in, with a good model and a place to write to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FFERM_DATA_HOME", str(tmp_path / "no data"))
    # An address that nothing listens on: no test may reach for a network.
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (tmp_path / "out").mkdir()
    (tmp_path / "good.fferm").write_bytes((folder / "model.fferm").read_bytes())
    table.to_csv("fine.csv", index=False)
    table.replace({"outcome": {"high": "mighty"}}).to_csv("other.csv", index=False)
    table.assign(age="old").to_csv("words.csv", index=False)
    return tmp_path


def write(files):
    for name, content in files.items():
        if os.path.dirname(name):
            os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as stream:
            stream.write(content)


def assert_refused(done, place):
    assert done.code == 2, done
    assert len(done.errors) == 1, done.err
    assert done.err.splitlines()[-1] == done.errors[0]
    assert "Traceback" not in done.err
    assert done.out == ""
    assert list((place / "out").iterdir()) == [], "something was half written"


@pytest.mark.parametrize(
    ("files", "line", "words"),
    [case[1:] for case in BY_HAND],
    ids=[c[0] for c in BY_HAND],
)
def test_what_cannot_be_used_gets_one_line_and_exit_code_2(
    files, line, words, place, call
):
    write(files)
    done = call(*line.split())
    assert_refused(done, place)
    assert words in done.err


# Tables that are wrong by construction, and what is wrong with them.
NAMES = st.text(string.ascii_letters, min_size=1, max_size=8).filter(
    lambda name: name not in ("y", "g", "n")
)
FIELDS = st.text("ab1.- \t'éλ<&", max_size=6)


@st.composite
def ragged(draw):
    """A good table with one row of another length."""
    fields = draw(st.lists(FIELDS, max_size=8).filter(lambda row: len(row) != 3))
    row = ",".join(fields) or "only one"
    lines = GOOD.splitlines()
    lines.insert(draw(st.integers(1, len(lines))), row)
    return "\n".join(lines).encode()


@st.composite
def other_columns(draw):
    """A table without target or group."""
    lost = draw(st.sampled_from(["g", "y"]))
    return GOOD.replace(f",{lost}", f",{draw(NAMES)}", 1).encode()


@st.composite
def no_contrast(draw):
    """A table in which all labels, or all groups, are the same."""
    only, column = draw(NAMES), draw(st.sampled_from([1, 2]))
    rows = [line.split(",") for line in ROWS.splitlines()]
    for row in rows:
        row[column] = only
    return ("n,g,y\n" + "\n".join(map(",".join, rows))).encode()


@st.composite
def too_many_classes(draw):
    """A table whose target names rows, or measures in words."""
    count = draw(st.integers(101, 400))
    form = draw(st.sampled_from(["{}%", "t{}", "{} years"]))
    rows = (f"1,{'ab'[i % 2]},{form.format(i)}\n" for i in range(count))
    return ("n,g,y\n" + "".join(rows)).encode()


BAD_TABLES = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
    ragged(),
    other_columns(),
    no_contrast(),
    too_many_classes(),
)
BAD_NUMBERS = st.one_of(
    st.floats(max_value=-1e-9), st.just(float("nan")), NAMES, st.just("1e999")
).map(str)


@settings(
    max_examples=N_GENERATED // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=BAD_TABLES, command=st.sampled_from([FIT, CURVE, AUDIT]))
def test_a_generated_table_that_is_wrong_is_refused(content, command, place, call):
    write({"data.csv": content})
    assert_refused(call(*command.split()), place)


@settings(
    max_examples=N_GENERATED // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    option=st.sampled_from(
        [
            "--fairness-weight",
            "--max-violation",
            "--max-divergence",
            "--test-share",
            "--seed",
        ]
    ),
    value=BAD_NUMBERS,
)
def test_a_generated_option_that_is_wrong_is_refused(option, value, place, call):
    write(csv(GOOD))
    assert_refused(call(*FIT.split(), f"{option}={value}"), place)


@settings(
    max_examples=N_GENERATED // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_model_with_one_other_byte_is_refused(where, change, place, call):
    content = bytearray((place / "good.fferm").read_bytes())
    position = int(where * len(content))
    content[position] ^= change
    write({"changed.fferm": bytes(content)})
    done = call("audit", "changed.fferm", "fine.csv", "--quiet")
    if done.code == 0:  # a byte that says nothing, such as a file's date
        clean = call("audit", "good.fferm", "fine.csv", "--json")
        assert call("audit", "changed.fferm", "fine.csv", "--json").out == clean.out
        return
    assert_refused(done, place)


def test_there_are_200_malformed_inputs():
    assert len(BY_HAND) + N_GENERATED >= 200
    assert len({case[0] for case in BY_HAND}) == len(BY_HAND)


def test_control_characters_of_data_do_not_reach_the_terminal(place, call):
    frame = pd.DataFrame({"\x1b[31mred": [1, 2], "g": ["a", "b"], "z": [0, 1]})
    frame.to_csv("data.csv", index=False)
    done = call(*FIT.split())
    assert_refused(done, place)
    assert "\x1b" not in done.err
    assert "\\x1b[31mred" in done.err


def test_a_failure_of_ours_is_one_line_and_exit_code_3(place, call, monkeypatch):
    def fail(*_):
        raise RuntimeError("a mistake")

    monkeypatch.setattr("fferm.cli.datasets.data_home", fail)
    done = call("datasets")
    assert done.code == 3
    assert "RuntimeError: a mistake" in done.err
    monkeypatch.setenv("FFERM_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="a mistake"):
        main(["datasets"])


def test_an_interrupt_is_exit_code_130(place, call, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fferm.cli.datasets.data_home", stop)
    assert call("datasets").code == 130


def test_a_missing_extra_says_what_to_install(call, monkeypatch):
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "typer" else find(name)
    )
    done = call("datasets")
    assert done.code == 2
    assert done.err == (
        "error: The command line needs the package typer, which is not installed. "
        f"Run: {install_line('cli')}\n"
    )


def test_a_collapsed_fit_leaves_no_file_beside_the_model(place, call):
    # The folder keeps neither temporary files nor a model where training refuses.
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.normal(size=40), "g": "a", "y": [0, 1] * 20})
    frame.to_csv("data.csv", index=False)
    assert_refused(call(*FIT.split()), place)
