"""Records of a sweep: what is written, what is read back, and what is refused."""

import json
import threading
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from full_disk import short_of_room

import fferm
from fferm import FairLogisticRegression, TradeoffCurve, tradeoff_curve
from fferm.auditing import Audit
from fferm.curve import records
from fferm.datasets import make_biased
from fferm.errors import PersistenceError
from fferm.notions import ConditionalParity

WEIGHTS = [0, 1, 5]


@pytest.fixture(scope="module")
def data():
    return make_biased(300, random_state=0)


def sweep(data, folder, model=None, **options):
    given = {
        "X": data.X,
        "y": data.y,
        "sensitive_features": data.sensitive_features,
        "fairness_weights": WEIGHTS,
        "seeds": 2,
    }
    model = model or FairLogisticRegression(solver="lbfgs")
    return tradeoff_curve(model, **given | options, records=folder)


@pytest.fixture
def folder(data, tmp_path):
    sweep(data, tmp_path / "records")
    return tmp_path / "records"


def test_weights_that_a_bound_adds_are_recorded_and_resumed(data, tmp_path):
    options = {"seeds": 1, "max_violation": 0.4}
    in_memory = sweep(data, None, **options)
    assert len(in_memory.models) > len(WEIGHTS)
    sweep(data, tmp_path, seeds=1)
    assert_same(sweep(data, tmp_path, **options), in_memory)
    lines = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert_same(sweep(data, tmp_path, **options), in_memory)
    assert_same(TradeoffCurve.load(tmp_path), in_memory)
    assert lines == {path: path.read_bytes() for path in lines}


@pytest.fixture(scope="module")
def in_memory(data):
    return sweep(data, None)


def assert_same(one, other):
    pd.testing.assert_frame_equal(
        one.records.drop(columns="seconds"), other.records.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(one.baseline, other.baseline)
    assert one.descriptions == other.descriptions
    assert list(one.models) == list(other.models)
    for key in one.models:
        assert one.models[key].coef_.tobytes() == other.models[key].coef_.tobytes()
        assert one.audits[key].to_dict() == other.audits[key].to_dict()


def test_a_recorded_sweep_is_one_in_memory_and_can_be_read_back(folder, in_memory):
    assert_same(TradeoffCurve.load(folder), in_memory)


def test_there_is_a_line_for_each_fit_and_a_file_for_each_model(folder):
    files = sorted(folder.glob("*.jsonl"))
    assert len(files) == 2
    for path in files:
        header, *fits = map(json.loads, path.read_text().splitlines())
        assert header["weights"] == [0.0, 1.0, 5.0]
        assert [fit["fairness_weight"] for fit in fits] == [0.0, 1.0, 5.0]
    assert len(list((folder / "models").iterdir())) == 6


def test_a_finished_sweep_is_not_trained_again(data, folder, in_memory, monkeypatch):
    def refuse(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(FairLogisticRegression, "fit_path", refuse)
    assert_same(sweep(data, folder), in_memory)


@pytest.mark.parametrize(
    ("solver", "n_kept"),
    [("lbfgs", 0), ("lbfgs", 1), ("lbfgs", 2), ("lbfgs", 3), ("sgda", 2)],
)
def test_a_sweep_goes_on_from_any_line(data, tmp_path, solver, n_kept):
    model = FairLogisticRegression(solver=solver, max_epochs=2)
    whole = sweep(data, tmp_path, model)
    for path in tmp_path.glob("*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        # The next line is torn, as by a kill.
        path.write_bytes(b"".join(lines[:n_kept]) + lines[n_kept][:40])
    assert_same(sweep(data, tmp_path, model), whole)
    assert_same(TradeoffCurve.load(tmp_path), whole)


def test_networks_that_train_as_one_stack_go_on_too(data, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: pip install .[torch]")
    from fferm import FairNetClassifier

    model = FairNetClassifier(max_epochs=2)
    whole = sweep(data, tmp_path, model, seeds=1)
    (path,) = tmp_path.glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    again = sweep(data, tmp_path, model, seeds=1)
    pd.testing.assert_frame_equal(
        again.records.drop(columns="seconds"), whole.records.drop(columns="seconds")
    )
    assert path.read_bytes().startswith(b"".join(lines[:3]))


def test_a_model_that_is_gone_is_trained_again(data, folder, in_memory):
    for path in (folder / "models").glob("*-001.fferm"):
        path.unlink()
    (folder / "models" / f".{path.name}.half").write_bytes(b"cut off")
    assert_same(sweep(data, folder), in_memory)
    assert not list((folder / "models").glob(".*"))


def test_more_seeds_and_curves_can_be_added(data, folder, in_memory):
    assert set(sweep(data, folder, seeds=3).records["seed"]) == {0, 1, 2}
    both = {"FairLogisticRegression": FairLogisticRegression(solver="lbfgs")}
    both["chi"] = FairLogisticRegression(divergence="chi2")
    curve = sweep(data, folder, both)
    assert_same(curve.curves["FairLogisticRegression"], in_memory)
    found = TradeoffCurve.load(folder)
    assert list(found.curves) == ["FairLogisticRegression", "chi"]
    assert len(found.models) == 3 * 3 + 2 * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fairness_weights": [0, 2]}, "its fairness weights differ"),
        ({"y": np.zeros(210)}, "its rows differ"),
        ({"model": FairLogisticRegression(l2=1.0)}, "its settings differ"),
        ({"sample_weight": np.ones(210)}, "its rows differ"),
    ],
)
def test_records_of_another_sweep_are_refused(data, folder, options, words):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(PersistenceError, match=words):
        sweep(data, folder, **options)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert before == after


def test_another_control_feature_is_another_sweep(data, tmp_path):
    def model(first):
        control = np.r_[first, np.arange(209) % 2]
        return FairLogisticRegression(notion=ConditionalParity(control))

    rows = (data.X, data.y, data.sensitive_features)
    sweep(data, tmp_path, model(0), test=rows)
    with pytest.raises(PersistenceError, match="its settings differ"):
        sweep(data, tmp_path, model(1), test=rows)


def test_a_file_in_place_of_the_folder_is_refused(data, tmp_path):
    (tmp_path / "records").write_text("mine")
    with pytest.raises(PersistenceError, match="records must be a folder"):
        sweep(data, tmp_path / "records")
    with pytest.raises(PersistenceError, match="does not contain records of a sweep"):
        TradeoffCurve.load(tmp_path / "records")


def test_a_folder_that_cannot_be_made_is_refused(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PersistenceError, match=r"Cannot write records to .*Not a dir"):
        sweep(data, tmp_path / "file" / "records")


@pytest.mark.parametrize("text", ["", "{}\n", '{"format": "other"}\n', "no json\n"])
def test_what_holds_no_records_is_no_curve(tmp_path, text):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(PersistenceError, match="does not contain records of a sweep"):
        TradeoffCurve.load(tmp_path)


def test_records_of_another_version_are_refused(folder):
    path = next(folder.glob("*.jsonl"))
    path.write_text(path.read_text().replace('"version": 1', '"version": 9', 1))
    with pytest.raises(PersistenceError, match="format version 9"):
        TradeoffCurve.load(folder)


def test_a_curve_with_any_name_has_a_file_of_its_own(data, tmp_path):
    names = ["../up", "a/b", "a b", "<img>", "日本", "x" * 300]
    model, folder = FairLogisticRegression(solver="lbfgs"), tmp_path / "records"
    sweep(data, folder, dict.fromkeys(names, model), seeds=1, fairness_weights=[0])
    assert list(TradeoffCurve.load(folder).curves) == names
    assert len(list(folder.glob("*.jsonl"))) == len(names)
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_a_second_writer_waits_for_the_first(tmp_path):
    header = {"format": "fferm-sweep", "version": 1, "curve": "c", "seed": 0}
    header |= {"data": "", "weights": [0.0], "description": {}, "settings": ""}
    order = []

    def write(name, ready, go):
        with records.open_records(tmp_path, header) as (found, append):
            order.append((name, len(found.fits)))
            ready.set()
            go.wait(60)
            append({"fairness_weight": float(len(found.fits))})

    holds, release = threading.Event(), threading.Event()
    first = threading.Thread(target=write, args=("first", holds, release))
    first.start()
    assert holds.wait(60)
    free = threading.Event()
    free.set()
    second = threading.Thread(target=write, args=("second", threading.Event(), free))
    second.start()
    second.join(0.2)
    assert order == [("first", 0)]
    release.set()
    first.join()
    second.join()
    assert order == [("first", 0), ("second", 1)]


def header(**more):
    about = {"curve": "c", "seed": 0, "data": "", "weights": [0.0], "settings": ""}
    return about | {"number": 0, "description": {}} | more


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (header(curve="d", data="others"), "its rows differ"),
        (header(curve="d", description={"fferm": "9"}), "its versions of fferm"),
        (header(seed=1, settings="others"), "its settings differ"),
    ],
)
def test_two_sweeps_that_begin_together_see_each_other(
    tmp_path, monkeypatch, other, words
):
    look, both, refused = records.read_folder, threading.Barrier(2), []

    def look_together(folder):
        seen = look(folder)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # before either writes what it is
        return seen

    def begin(about):
        try:
            records.claim_folder(tmp_path, [about])
        except PersistenceError as error:
            refused.append(str(error))

    monkeypatch.setattr(records, "read_folder", look_together)
    threads = [threading.Thread(target=begin, args=(h,)) for h in (header(), other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (message,) = refused
    assert words in message
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert not list(tmp_path.glob(".*"))


def test_records_of_another_release_are_not_resumed(data, folder):
    about = TradeoffCurve.load(folder).description
    assert about["fferm"] == fferm.__version__
    for path in folder.glob("*.jsonl"):
        begun = f'"fferm": "{fferm.__version__}"'
        path.write_text(path.read_text().replace(begun, '"fferm": "0.0.9"'))
    words = rf"its versions of fferm \(0.0.9, now {fferm.__version__}\) differ"
    for options in ({}, {"seeds": [7]}, {"model": {"new": FairLogisticRegression()}}):
        with pytest.raises(PersistenceError, match=words):
            sweep(data, folder, **options)
    assert TradeoffCurve.load(folder).description["fferm"] == "0.0.9"


@pytest.mark.parametrize("room", [200, 5_000, 10_000], ids=["none", "line", "lines"])
def test_a_full_disk_is_named_and_the_sweep_resumes(data, tmp_path, in_memory, room):
    # Room for less than the first line, than the second, or than the third.
    words = r"Cannot write records to .*File too large\). Make room or choose another"
    with pytest.raises(PersistenceError, match=words), short_of_room(room):
        sweep(data, tmp_path)
    assert not list(tmp_path.glob(".*"))
    assert_same(sweep(data, tmp_path), in_memory)


def test_undefined_and_infinite_numbers_survive_a_file(data, tmp_path):
    # One group alone in the test rows: there is no violation to speak of.
    test = (data.X_test, data.y_test, ["0"] * len(data.y_test))
    made = sweep(data, tmp_path, test=test)
    read = TradeoffCurve.load(tmp_path)
    pd.testing.assert_frame_equal(made.records, read.records)
    rows = read.records.query("split == 'test'")
    assert rows["violation"].isna().all()
    assert rows["violation"].dtype == float
    for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("broken", [{}, {"groups": 3}, {"groups": {}}])
def test_values_that_make_no_audit_are_refused(broken):
    with pytest.raises(PersistenceError, match="are not an audit"):
        Audit.from_dict(broken)
