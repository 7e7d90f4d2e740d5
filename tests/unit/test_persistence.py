"""Saved models come back the same, and files that are none are refused."""

import copy
import hashlib
import io
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fferm
from fferm import FairLogisticRegression, LargeShift, SmallShift, persistence
from fferm.datasets import make_biased
from fferm.divergences import KL, Alpha, Divergence, get
from fferm.errors import PersistenceError, UnsafeFileError
from fferm.notions import ConditionalParity, EqualOpportunity

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")

MODELS = {
    "plain": {},
    "alpha": {"divergence": Alpha(power=1.5)},
    "paper": {"divergence": get("kl", normalisation="paper")},
    "shift": {"uncertainty": SmallShift(0.01, p=float("inf"))},
    "large shift": {"uncertainty": LargeShift(0.02), "divergence": "jensen_shannon"},
    "notion": {"notion": EqualOpportunity(positive=1)},
    "control": {"notion": ConditionalParity(0)},
    "without fairness": {"fairness_weight": 0},
}


@pytest.fixture(scope="module")
def data():
    return make_biased(200, n_classes=3, random_state=0)


@pytest.fixture(scope="module")
def binary():
    data = make_biased(200, random_state=0)
    X = data.X.copy()
    X[:, 0] = np.round(X[:, 0])
    return X, data.y, data.sensitive_features


@pytest.fixture
def saved(binary, tmp_path):
    X, y, s = binary
    path = tmp_path / "model.fferm"
    fferm.save(FairLogisticRegression().fit(X, y, sensitive_features=s), path)
    return path


def rewrite(path, change):
    """Apply a change to the files of an archive, as somebody who tampers would."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def reseal(files, manifest):
    """Replace the manifest and make its checksum, and sizes, right again."""
    members = {n: len(c) for n, c in files.items() if not n.startswith("manifest")}
    text = json.dumps({**manifest, "sizes": members}).encode()
    files["manifest.json"] = text
    files["manifest.json.sha256"] = hashlib.sha256(text).hexdigest().encode()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_with_its_parameters_and_what_it_learned(
    name, binary, tmp_path
):
    X, y, s = binary
    model = FairLogisticRegression(**MODELS[name]).fit(X, y, sensitive_features=s)
    fferm.save(model, tmp_path / "m")
    back = fferm.load(tmp_path / "m")
    assert type(back) is FairLogisticRegression
    assert repr(back) == repr(model)
    assert back.history_ == model.history_
    assert back.result_ is model.result_
    for learned in ("coef_", "intercept_", "dual_", "classes_", "groups_"):
        np.testing.assert_array_equal(getattr(back, learned), getattr(model, learned))
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))


def test_numbers_of_numpy_come_back_as_plain_numbers(binary, tmp_path):
    X, y, s = binary
    model = FairLogisticRegression(fairness_weight=np.float64(2), max_iter=np.int64(50))
    fferm.save(model.fit(X, y, sensitive_features=s), tmp_path / "m")
    back = fferm.load(tmp_path / "m")
    assert (back.fairness_weight, back.max_iter) == (2.0, 50)
    assert type(back.max_iter) is int


@pytest.mark.parametrize(
    "labels",
    [["a", "b", "ü"], [10, 20, 30], [1.0, 2.0, 3.0], ["1.5", "2", "x"]],
    ids=str,
)
def test_labels_of_any_kind_come_back(labels, data, tmp_path):
    y = np.array(labels, dtype=object if isinstance(labels[0], str) else None)[data.y]
    model = FairLogisticRegression().fit(
        data.X, y, sensitive_features=data.sensitive_features
    )
    fferm.save(model, tmp_path / "m")
    back = fferm.load(tmp_path / "m")
    assert back.classes_.dtype == model.classes_.dtype
    assert back.predict(data.X).tolist() == model.predict(data.X).tolist()


def test_column_names_come_back(binary, tmp_path):
    X, y, s = binary
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    model = FairLogisticRegression().fit(frame, y, sensitive_features=s)
    fferm.save(model, tmp_path / "m")
    back = fferm.load(tmp_path / "m")
    assert list(back.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))


def test_predictions_are_bit_equal_in_a_fresh_process(saved, binary, tmp_path):
    np.save(tmp_path / "X.npy", binary[0])
    code = (
        "import sys, numpy as np, fferm\n"
        "model = fferm.load(sys.argv[1])\n"
        "np.save(sys.argv[3], model.predict_proba(np.load(sys.argv[2])))\n"
    )
    out = tmp_path / "out.npy"
    subprocess.run(
        [sys.executable, "-c", code, saved, tmp_path / "X.npy", out], check=True
    )
    expected = fferm.load(saved).predict_proba(binary[0])
    assert np.load(out).tobytes() == expected.tobytes()


def test_saving_the_same_model_twice_gives_the_same_content(binary, tmp_path):
    X, y, s = binary
    model = FairLogisticRegression().fit(X, y, sensitive_features=s)
    model.history_ = ()  # holds seconds
    contents = []
    for name in ("a", "b"):
        fferm.save(model, tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as archive:
            contents.append({n: archive.read(n) for n in archive.namelist()})
    assert contents[0] == contents[1]


def test_a_users_own_divergence_comes_back_where_it_is_registered(binary, tmp_path):
    @dataclass(frozen=True)
    class Doubled(Divergence):
        name: ClassVar[str] = "doubled_kl_of_the_persistence_test"

        def f(self, t, xp):
            return 2 * KL().f(t, xp)

        def f_prime(self, t, xp):
            return 2 * KL().f_prime(t, xp)

        def conjugate(self, a, xp):
            return 2 * KL().conjugate(a / 2, xp)

        def conjugate_prime(self, a, xp):
            return KL().conjugate_prime(a / 2, xp)

    X, y, s = binary
    model = FairLogisticRegression(divergence=Doubled())
    fferm.save(model.fit(X, y, sensitive_features=s), tmp_path / "m")
    assert fferm.load(tmp_path / "m").divergence == Doubled()

    def forget(files):
        text = files["manifest.json"].replace(Doubled.name.encode(), b"unheard_of")
        reseal(files, json.loads(text))

    rewrite(tmp_path / "m", forget)
    with pytest.raises(PersistenceError, match="'unheard_of', which is not registered"):
        fferm.load(tmp_path / "m")


def test_changed_numbers_are_noticed(saved):
    def change(files):
        files["coef_.npy"] = files["coef_.npy"][:-1] + b"\x00"

    rewrite(saved, change)
    with pytest.raises(UnsafeFileError, match=r"coef_\.npy is missing or does not"):
        fferm.load(saved)


def test_a_changed_manifest_is_noticed(saved):
    def change(files):
        text = files["manifest.json"]
        files["manifest.json"] = text.replace(b'"sharpness": 1.0', b'"l2": 9')

    rewrite(saved, change)
    with pytest.raises(UnsafeFileError, match=r"manifest\.json does not match"):
        fferm.load(saved)


def test_an_extra_file_is_noticed(saved):
    rewrite(saved, lambda files: files.update({"more.npy": b"x"}))
    with pytest.raises(UnsafeFileError, match=r"more\.npy"):
        fferm.load(saved)


def resealed(path, **changes):
    def change(files):
        reseal(files, {**json.loads(files["manifest.json"]), **changes})

    rewrite(path, change)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"class": "os.system"}, "cannot load"),
        ({"class": ["FairLogisticRegression"]}, "but cannot be loaded"),
        ({"format": "another"}, "cannot load"),
        ({"format": "other"}, "cannot load"),
        ({"format_version": 0}, "format version 0"),
        ({"format_version": 99}, "format version 99"),
        ({"parameters": {"unknown": 1}}, "but cannot be loaded"),
        ({"parameters": {"l2": {"@code": "1+1"}}}, "but cannot be loaded"),
        ({"parameters": None}, "but cannot be loaded"),
        ({"learned": {}}, "does not hold a fitted model"),
        ({"learned": {"__class__": 1}}, "not a learned attribute"),
        ({"learned": {"fit": 1}}, "not a learned attribute"),
        ({"learned": {"coef_": {"@array": "absent.npy"}}}, "but cannot be loaded"),
        ({"learned": {"result_": {"@result": "mro"}}}, "but cannot be loaded"),
        ({"sha256": 3}, "but cannot be loaded"),
    ],
    ids=str,
)
def test_a_forged_manifest_is_refused_by_name(changes, words, saved):
    resealed(saved, **changes)
    with pytest.raises(PersistenceError, match=words):
        fferm.load(saved)


def test_an_array_that_announces_more_than_it_holds_is_refused(saved):
    def change(files):
        huge = files["coef_.npy"].replace(b"(1, 5)", b"(9, 9)")
        assert huge != files["coef_.npy"]
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"]["coef_.npy"] = hashlib.sha256(huge).hexdigest()
        files["coef_.npy"] = huge
        reseal(files, manifest)

    rewrite(saved, change)
    with pytest.raises(PersistenceError, match="does not hold the numbers"):
        fferm.load(saved)


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('code from a file was run')",)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", pickle.dumps(Bomb()), b"PK\x03\x04", b"\x93NUMPY\x01\x00"],
    ids=["empty", "text", "pickle", "cut zip", "npy"],
)
def test_a_foreign_file_is_refused_and_runs_nothing(content, tmp_path):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(PersistenceError, match="is not a saved fferm model"):
        fferm.load(tmp_path / "m")


def test_a_pickle_inside_the_archive_is_refused_and_runs_nothing(saved):
    def change(files):
        bomb = pickle.dumps(np.array([Bomb()], dtype=object))
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"]["coef_.npy"] = hashlib.sha256(bomb).hexdigest()
        files["coef_.npy"] = bomb
        reseal(files, manifest)

    rewrite(saved, change)
    with pytest.raises(PersistenceError, match="but cannot be loaded"):
        fferm.load(saved)


def test_a_cut_off_file_is_refused(saved):
    content = saved.read_bytes()
    for length in range(0, len(content), 97):
        saved.write_bytes(content[:length])
        with pytest.raises(PersistenceError, match="model"):
            fferm.load(saved)


def test_a_compressed_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", "{}" * 100)
    with pytest.raises(PersistenceError, match="is not a saved fferm model"):
        fferm.load(tmp_path / "m")


def overlapping(path):
    """Add a large member, and three hundred that are the same bytes."""
    rewrite(path, lambda files: files.update({"more.npy": bytes(2_000_000)}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("last", "")
        for number in range(300):
            again = copy.copy(archive.getinfo("more.npy"))
            again.filename = f"{number}.npy"
            archive.filelist.append(again)


def test_members_that_overlap_are_refused_before_they_are_read(saved):
    overlapping(saved)
    assert saved.stat().st_size < 2_100_000
    tracemalloc.start()
    with pytest.raises(PersistenceError, match="overlap"):
        fferm.load(saved)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_small_member_with_two_names_overlaps_itself(saved):
    rewrite(saved, lambda files: files.update({"more.npy": bytes(10)}))
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("last", "")
        again = copy.copy(archive.getinfo("more.npy"))
        again.filename = "again.npy"
        archive.filelist.append(again)
    with pytest.raises(PersistenceError, match="overlap"):
        fferm.load(saved)


def test_a_member_larger_than_the_manifest_says_is_not_read(saved, monkeypatch):
    rewrite(saved, lambda files: files.update({"coef_.npy": bytes(10_000)}))
    read, names = zipfile.ZipFile.read, []

    def note(archive, name):
        names.append(name)
        return read(archive, name)

    monkeypatch.setattr(zipfile.ZipFile, "read", note)
    with pytest.raises(UnsafeFileError, match=r"coef_\.npy is missing or does not"):
        fferm.load(saved)
    assert set(names) == {"manifest.json", "manifest.json.sha256"}


def change_entry(**changes):
    """Return what changes the entry of a member in the directory of an archive."""

    def change(path):
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("last", "")  # so that the directory is written again
            for name, value in changes.items():
                setattr(archive.getinfo("coef_.npy"), name, value)

    return change


def twice(path):
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr("coef_.npy", b"")


@pytest.mark.parametrize(
    "change",
    [
        overlapping,
        twice,
        change_entry(file_size=2**31),
        change_entry(file_size=2**40, compress_size=2**40),
        change_entry(header_offset=0),
        change_entry(flag_bits=1),
        change_entry(CRC=1),
        change_entry(filename="é.npy"),
    ],
    ids=[
        *("overlap", "twice", "larger", "larger than the file", "elsewhere"),
        *("encrypted", "checksum", "renamed"),
    ],
)
def test_an_archive_out_of_order_is_refused(change, saved):
    change(saved)
    with pytest.raises(PersistenceError):
        fferm.load(saved)


def test_a_file_that_says_nothing_of_sizes_is_loaded(saved):
    def change(files):
        manifest = json.loads(files["manifest.json"])
        del manifest["sizes"]
        text = json.dumps(manifest).encode()
        digest = hashlib.sha256(text).hexdigest().encode()
        files |= {"manifest.json": text, "manifest.json.sha256": digest}

    rewrite(saved, change)
    assert fferm.load(saved).coef_.shape == (1, 5)


def replace_array(path, name, array):
    """Put another array into a saved model, with the right checksums."""

    def change(files):
        stream = io.BytesIO()
        np.save(stream, array)
        files[name] = stream.getvalue()
        manifest = json.loads(files["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
        reseal(files, manifest)

    rewrite(path, change)


@pytest.mark.parametrize("name", ["coef_", "intercept_", "dual_"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -1e308])
def test_learned_numbers_that_are_not_finite_are_named(name, number, saved):
    array = getattr(fferm.load(saved), name)
    array.flat[0] = number
    replace_array(saved, f"{name}.npy", array)
    with pytest.raises(PersistenceError, match=f"{name} must hold finite numbers"):
        fferm.load(saved)


def test_a_number_among_words_that_is_not_finite_is_named(saved):
    model = fferm.load(saved)
    model.classes_ = np.array(["no", np.nan], dtype=object)
    fferm.save(model, saved)
    with pytest.raises(PersistenceError, match="classes_ must hold finite numbers"):
        fferm.load(saved)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("coef_", np.zeros((1, 4))),
        ("coef_", np.zeros(5)),
        ("coef_", np.zeros((1, 5)).astype(str)),
        ("coef_", np.zeros((1, 5, 1))),
        ("intercept_", np.zeros(3)),
        ("intercept_", np.zeros(0)),
        ("classes_", np.arange(3)),
        ("classes_", np.arange(1)),
        ("classes_", np.zeros((2, 2))),
    ],
    ids=str,
)
def test_learned_arrays_that_do_not_fit_are_refused(name, array, saved):
    replace_array(saved, f"{name}.npy", array)
    with pytest.raises(PersistenceError):
        fferm.load(saved)


@pytest.mark.parametrize("n_features", [4, 10**9, 10**15, -1, "5", None])
def test_a_number_of_features_that_does_not_fit_is_refused(n_features, saved):
    learned = json.loads(zipfile.ZipFile(saved).read("manifest.json"))["learned"]
    resealed(saved, learned={**learned, "n_features_in_": n_features})
    with pytest.raises(PersistenceError):
        fferm.load(saved)


def test_an_array_is_not_read_twice(saved):
    learned = json.loads(zipfile.ZipFile(saved).read("manifest.json"))["learned"]
    learned["more_"] = {"@list": [{"@array": "coef_.npy"}] * 1000}
    resealed(saved, learned=learned)
    with pytest.raises(PersistenceError, match="but cannot be loaded"):
        fferm.load(saved)


@pytest.mark.parametrize("name", ["regressor", "frame"])
def test_plain_numbers_that_are_not_finite_are_named(name, binary, tmp_path):
    X, y, s = binary
    if name == "regressor":
        model = fferm.FairRegressor().fit(X, X[:, 1], sensitive_features=s)
        model.intercept_ = float("nan")
    else:
        frame = pd.DataFrame(X, columns=list("abcde"))
        model = FairLogisticRegression().fit(frame, y, sensitive_features=s)
        model.encoder_.columns_[0]["mean"] = float("inf")
    fferm.save(model, tmp_path / "m")
    with pytest.raises(PersistenceError, match="must hold finite numbers"):
        fferm.load(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [{"scale": 0.0}, {"name": 5}, {"fill": "x"}, {"kind": "levels", "levels": [1]}],
    ids=str,
)
def test_an_encoding_that_cannot_be_used_is_refused(change, binary, tmp_path):
    X, y, s = binary
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = FairLogisticRegression().fit(frame, y, sensitive_features=s)
    model.encoder_.columns_[0].update(change)
    fferm.save(model, tmp_path / "m")
    with np.errstate(all="ignore"), pytest.raises(PersistenceError):
        fferm.load(tmp_path / "m")


def test_an_archive_without_a_manifest_is_refused(tmp_path):
    np.savez(tmp_path / "m.npz", a=np.arange(3))
    with pytest.raises(PersistenceError, match=r"has no manifest\.json"):
        fferm.load(tmp_path / "m.npz")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(PersistenceError, match=r"Cannot read .*absent"):
        fferm.load(tmp_path / "absent")


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(PersistenceError, match="not fitted"):
        fferm.save(FairLogisticRegression(), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_another_librarys_model_is_not_saved(tmp_path):
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(PersistenceError, match="got LogisticRegression"):
        fferm.save(LogisticRegression(), tmp_path / "m")


def test_a_folder_that_is_not_there_leaves_nothing_behind(saved, tmp_path):
    with pytest.raises(PersistenceError, match="in a folder that exists"):
        fferm.save(fferm.load(saved), tmp_path / "absent" / "m")
    assert [p.name for p in tmp_path.iterdir()] == [saved.name]


def test_a_failed_save_keeps_the_old_file(saved, monkeypatch):
    model, before = fferm.load(saved), saved.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(PersistenceError, match="No space left"):
        fferm.save(model, saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o644])
def test_a_file_that_is_replaced_keeps_its_permissions(mode, saved):
    model = fferm.load(saved)
    saved.chmod(mode)
    fferm.save(model, saved)
    assert stat.S_IMODE(saved.stat().st_mode) == mode
    fferm.load(saved)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_the_file_that_it_points_to_is_written(
    exists, saved, tmp_path
):
    model, link = fferm.load(saved), tmp_path / "link"
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "model"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    fferm.save(model, link)
    assert link.is_symlink()
    assert not target.is_symlink()
    fferm.load(target)
    assert [p.name for p in target.parent.iterdir()] == ["model"]


def test_a_saved_file_is_on_disk_before_it_takes_its_place(saved, monkeypatch):
    model, done = fferm.load(saved), []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append("folder" if is_folder else os.fstat(descriptor).st_size)
        sync(descriptor)

    def note_replace(*paths):
        done.append("replace")
        replace(*paths)

    monkeypatch.setattr("os.fsync", note_sync)
    monkeypatch.setattr("os.replace", note_replace)
    fferm.save(model, saved)
    assert done == [saved.stat().st_size, "replace", "folder"]


def test_a_save_that_was_killed_leaves_nothing_after_the_next(saved):
    code = (
        "import os, signal, sys, fferm, fferm.persistence\n"
        "model = fferm.load(sys.argv[1])\n"
        "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "fferm.persistence.zipfile.ZipFile.writestr = die\n"
        "fferm.save(model, sys.argv[1])\n"
    )
    before = saved.read_bytes()
    killed = subprocess.run([sys.executable, "-c", code, saved], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert saved.read_bytes() == before
    fferm.save(fferm.load(saved), saved)
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_threads_that_save_to_one_file_leave_the_whole_file_of_one(saved, tmp_path):
    models = [fferm.load(saved).set_params(max_iter=n) for n in range(1, 9)]
    path = tmp_path / "shared"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda model: fferm.save(model, path), models * 5))
    assert fferm.load(path).max_iter in range(1, 9)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["shared", saved.name])


def test_a_parameter_that_cannot_be_saved_is_named(binary, tmp_path):
    X, y, s = binary
    model = FairLogisticRegression(random_state=np.random.RandomState(0))
    model.fit(X, y, sensitive_features=s)
    with pytest.raises(PersistenceError, match="random_state is a RandomState"):
        fferm.save(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [pd.Series, pl.Series], ids=["pandas", "polars"])
def test_a_control_feature_in_a_column_is_saved_by_its_values(make, tmp_path):
    rng = np.random.default_rng(0)
    X, y, control = rng.normal(size=(80, 2)), np.tile([0, 1], 40), ["x", "z"] * 40
    model = FairLogisticRegression(notion=ConditionalParity(make(control)))
    model.fit(X, y, sensitive_features=["a", "a", "b", "b"] * 20)
    fferm.save(model, tmp_path / "model")
    loaded = fferm.load(tmp_path / "model")
    assert list(loaded.notion.control) == control
    np.testing.assert_array_equal(loaded.coef_, model.coef_)


def test_a_path_among_the_parameters_is_saved_as_text(tmp_path):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.tile([0, 1], 20)
    model = fferm.FairNetClassifier(
        hidden=(), max_epochs=1, fairness_weight=0, checkpoint=tmp_path / "run"
    )
    fferm.save(model.fit(X, y), tmp_path / "model")
    assert fferm.load(tmp_path / "model").checkpoint == str(tmp_path / "run")


@pytest.mark.parametrize("steps", [[], [[]]])
def test_a_pipeline_without_steps_is_refused_wherever_it_is(steps):
    empty = {"class": "Pipeline", "parameters": {"steps": steps}, "learned": {}}
    with pytest.raises(ValueError, match=r"must have steps|2 is required"):
        persistence._Reader({}).value({"@estimator": empty})
