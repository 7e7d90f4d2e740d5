"""Loading a damaged or hostile file ends in a model or in an error of ours.

Files are loaded in child processes, because a fault may end the process. As many as are
asked for: ``python tests/fuzz/test_load.py 20000``, or set ``FFERM_FUZZED_FILES``.
"""

import collections
import copy
import hashlib
import json
import os
import pickle
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FILES = int(os.environ.get("FFERM_FUZZED_FILES", "300"))
FILES_PER_CHILD = 1000
MOST_SECONDS = 5
MOST_MEGABYTES = 200
MANIFEST, CHECKSUM = "manifest.json", "manifest.json.sha256"
DEEP = "<deep>"


# Models of every kind, each with rows to predict


def make_models():
    """Return a name, a fitted model, rows and options of load for each kind of file."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from torch import nn

    from fferm import (
        FairBoostingClassifier,
        FairLogisticRegression,
        FairNetClassifier,
        FairRegressor,
        SmallShift,
    )
    from fferm.notions import ConditionalParity

    rng = np.random.default_rng(0)
    n = 90
    X, s = rng.normal(size=(n, 3)), rng.choice(["a", "b"], n)
    binary = (X[:, 0] + (s == "a") > 0).astype(int)
    words = np.array(["no", "perhaps", "yes"])[(binary + (X[:, 1] > 0))]
    pay = X @ [1.0, 2.0, 0.5]
    gaps = np.where(rng.random((n, 3)) < 0.1, np.nan, X)
    raw = pd.DataFrame({"x": X[:, 0], "city": rng.choice([*"cdef", None], n)})
    raw["age"] = rng.integers(20, 60, n)
    raw.loc[::9, "x"] = np.nan
    named, levels = raw[["x", "age"]].fillna(0), raw[["x", "city"]]
    levels = levels.astype({"city": "category"})
    ages = {"age": rng.normal(40, 9, n), "s": s}
    net = {"hidden": (4,), "max_epochs": 1, "random_state": 0}
    trees = {"n_estimators": 3, "num_leaves": 5, "min_child_samples": 5, "n_jobs": 1}
    often = {"min_data_per_group": 1, "cat_smooth": 1, "max_bin": 63}
    forest = FairBoostingClassifier(**trees, lightgbm_params=often)
    own = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    robust = FairLogisticRegression(
        uncertainty=SmallShift(0.01), notion=ConditionalParity(np.arange(n) % 2)
    )
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["x", "age"]),
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
    )
    plain = FairLogisticRegression(fairness_weight=0)
    numbers = {"fairness_weight": 0, "max_epochs": 1}
    rows = {
        "linear": (FairLogisticRegression(), X, binary, s),
        "linear, three classes": (FairLogisticRegression(), X, words, s),
        "linear, bands": (FairLogisticRegression(), named, binary, ages),
        "linear, robust": (robust, X, binary, s),
        "linear, bound": (FairLogisticRegression(max_violation=0.3), X, binary, s),
        "linear, raw table": (FairLogisticRegression(), raw, words, s),
        "net": (FairNetClassifier(**net), X, binary, s),
        "net, critic": (FairNetClassifier(method="critic", **net), X, words, ages),
        "net, weights": (
            FairNetClassifier(class_weight={0: 1.0, 1: 2.0}, **net),
            *(X, binary, s),
        ),
        "net, raw table": (FairNetClassifier(**net), raw, words, s),
        "own net": (FairNetClassifier(module=own, max_epochs=1), X, binary, s),
        "trees": (FairBoostingClassifier(**trees), gaps, binary, s),
        "trees, three classes": (FairBoostingClassifier(**trees), X, words, s),
        "trees, levels": (forest, levels, binary, s),
        "trees, raw table": (forest, raw, words, s),
        "trees, plain": (clone(forest, fairness_weight=0), levels, words, s),
        "regressor": (FairRegressor(), X, pay, s),
        "regressor, raw table": (FairRegressor(), raw, pay, s),
        "regressor, net": (FairRegressor(hidden=(3,), max_epochs=1), X, pay, s),
        "regressor, critic": (
            FairRegressor(method="critic", max_epochs=1),
            X,
            pay,
            ages,
        ),
        "pipeline": (make_pipeline(steps, plain), raw, words),
        "pipeline, net": (
            make_pipeline(StandardScaler(), FairRegressor(hidden=(3,), **numbers)),
            *(X, pay),
        ),
        "pipeline, trees": (
            make_pipeline(SimpleImputer(), clone(forest, fairness_weight=0)),
            *(gaps, binary),
        ),
    }
    for name, (model, table, y, *groups) in rows.items():
        sensitive = {"sensitive_features": groups[0]} if groups else {}
        fitted = copy.deepcopy(model).fit(table, y, **sensitive)
        options = {"module": own} if name == "own net" else {}
        yield name, fitted, {"X": table[:5]}, options
    yield from make_corrections(X, binary, words, s, plain)


def make_corrections(X, binary, words, s, plain):
    """Return the same of corrections of frozen models."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from fferm import FairBoostingClassifier, FairNetClassifier
    from fferm.deploy import ParityController, adapt, recalibrate, repair
    from fferm.notions import ConditionalParity

    groups, place = {"sensitive_features": s}, np.where(X[:, 1] > 0, "east", "west")
    net = FairNetClassifier(hidden=(3,), max_epochs=1, random_state=0)
    trees = FairBoostingClassifier(n_estimators=2, min_child_samples=5, n_jobs=1)
    frozen, three, deep, other = (
        model.fit(X, y, **fair)
        for model, y, fair in (
            (clone(plain), binary, groups),
            (clone(plain), words, groups),
            (net, binary, groups),
            (LogisticRegression(), binary, {}),
        )
    )
    bound = {**groups, "max_violation": 0.3, "confidence": None}
    controllers = ParityController(model=frozen), ParityController(0.4, groups=["a"])
    controllers[0].update(X, s)
    controllers[1].update(frozen.predict_proba(X)[:40, 1], ["a"] * 40)
    waiting = ParityController(notion="equal_opportunity")
    decided = waiting.update(frozen.predict_proba(X)[:, 1], s)
    waiting.observe(frozen.predict_proba(X)[:9, 1], s[:9], decided[:9], binary[:9])
    named = pd.DataFrame(X, columns=[*"xyz"])
    steps = make_pipeline(StandardScaler(), clone(plain)).fit(named, binary)
    placed = named.assign(place=place)
    scored = placed.assign(score=steps.predict_proba(named)[:, 1])
    ages = {"sensitive_features": {"age": 40 + 9 * X[:, 2]}}
    by_group, by_feature = {**bound, "uses_group": True}, {"correction": trees}
    made = {
        "offsets": (adapt(frozen, X, **groups, domain=place), X),
        "offsets, bands": (adapt(three, X, **ages), X),
        "offsets of trees": (
            recalibrate(clone(trees).fit(X, words, **groups), X, words),
            X,
        ),
        "offsets of offsets": (adapt(recalibrate(deep, X, binary), X, **groups), X),
        "offsets of another library": (adapt(other, X, **groups), X),
        "rules": (repair(frozen, X, binary, **by_group), X),
        "rules, three classes": (repair(three, X, words, **by_group), X),
        "rules of scores": (
            repair(frozen.decision_function(X), None, binary, **by_group),
            frozen.decision_function(X),
        ),
        "rules of a column, by place": (
            repair(
                *("score", scored, binary),
                **by_group,
                notion=ConditionalParity("place"),
            ),
            scored,
        ),
        "offsets of a pipeline": (
            adapt(steps, placed, **groups, domain="place"),
            placed,
        ),
        "correction of a column": (
            repair("score", scored.drop(columns="place"), binary, **bound),
            scored.drop(columns="place"),
        ),
        "correction": (repair(frozen, X, binary, **bound), X),
        "correction by trees": (repair(deep, X, binary, **bound, **by_feature), X),
        "controller": (controllers[0], X),
        "controller of scores": (controllers[1], frozen.predict_proba(X)[:, 1]),
        "controller that waits": (waiting, frozen.predict_proba(X)[:, 1]),
    }
    for name, (model, table) in made.items():
        asked = {"X": table[:5]}
        if model.predicts_with_groups:
            (column,) = (ages if "bands" in name else {"sensitive": s}).values()
            asked["sensitive_features"] = (
                {"age": column["age"][:5]} if "bands" in name else column[:5]
            )
        if name == "controller of scores":
            asked["sensitive_features"] = ["a"] * 5
        yield name, model, asked, {"model": other} if "library" in name else {}


def clone(model, **changes):
    """Return an unfitted copy with other parameters."""
    return copy.deepcopy(model).set_params(**changes)


# Ways to spoil a file


def pick(rng, options):
    """Return one of the options."""
    options = list(options)
    return options[int(rng.integers(len(options)))]


def strange_number(rng):
    """Return a number that the file of a model rarely holds."""
    whole = [0, 1, -1, 2, 7, 255, 40_000, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63]
    other = [10**18, 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308, np.nan, np.inf]
    return pick(rng, whole + other)


def strange_value(rng, manifest, names):
    """Return a value that a manifest does not hold where it is put."""
    nodes = [parent[key] for parent, key in places(manifest)]
    others = [None, True, False, "", "x", "\ud800", "\0é" * 3, "x" * 9000, [], {}, DEEP]
    others += [[[]], [None], [0] * 500, {"@list": [1]}, {"@tuple": []}, {"@dict": {}}]
    others += [{"@array": pick(rng, names)}, {"@bytes": pick(rng, names)}]
    others += [{"@float": "nan"}, {"@float": "-inf"}, {"@float": "1e999"}]
    others += [{"@objects": ["a", 1]}, {"@objects": [{"@list": []}]}, {"@pairs": 1}]
    others += [{"@result": "converged"}, {"@component": ["divergence", "kl", {}]}]
    others += [{"@component": ["divergence", "alpha", {"power": 1e300}]}]
    others += [{"@estimator": {"class": "FrameEncoder", "parameters": {}}}]
    ways = [lambda: strange_number(rng), lambda: pick(rng, others)]
    return copy.deepcopy(pick(rng, [*ways, lambda: pick(rng, nodes)])())


def places(node):
    """Yield every parent and key of a nested value."""
    keys = range(len(node)) if isinstance(node, list) else node
    if isinstance(node, list | dict):
        for key in keys:
            yield node, key
            yield from places(node[key])


def spoil_fields(rng, files):
    """Change, move, rename, copy or delete fields of the manifest."""
    manifest = json.loads(files[MANIFEST])
    parts = [manifest["parameters"], manifest["learned"], manifest["learned"], manifest]
    parent, key = pick(rng, places(pick(rng, filter(None, parts))))
    how = rng.integers(6)
    if how < 3:
        parent[key] = strange_value(rng, manifest, list(files))
    elif how == 3:
        del parent[key]
    elif isinstance(parent, dict):
        taken = parent.pop(key) if how == 4 else parent[key]
        parent[
            pick(rng, [*parent, "coef_", "module_", "__class__", "x_", "@array"])
        ] = taken
    else:
        parent.append(copy.deepcopy(parent[key]))
    files[MANIFEST] = seal(manifest)


def seal(manifest):
    """Return the text of a manifest; what JSON cannot hold is put in by hand."""
    text = json.dumps(manifest, ensure_ascii=True)
    return text.replace(f'"{DEEP}"', "[" * 90_000 + "]" * 90_000).encode()


def spoil_bytes(rng, content):
    """Return bytes of which some are flipped, cut out, repeated or put in."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(content) + 1))
        length = int(pick(rng, [1, 1, 2, 4, 8, 60, 700]))
        new = [rng.bytes(length), b"\xff" * length, b"\0" * length]
        new += [bytes(content[at : at + length]) * 2, b""]
        keeps = rng.random() < 0.7
        part = pick(rng, new)
        content[at : at + (len(part) if keeps else length)] = part
    return bytes(
        content[: int(rng.integers(len(content) + 1))]
        if rng.random() < 0.1
        else content
    )


def spoil_array(rng, files):
    """Change the header or the numbers of an array."""
    names = [name for name in files if name.endswith(".npy")]
    if not names:
        return
    name = pick(rng, names)
    array = np.load(BytesIO(files[name]))
    dtype, shape = array.dtype.str, array.shape
    how = rng.integers(5)
    if how == 0 and array.size and array.dtype.kind == "f":
        array = array.copy()
        array.flat[rng.integers(array.size)] = float(
            pick(rng, [np.nan, np.inf, -np.inf, 1e308, 0])
        )
    elif how == 1:
        change = [lambda a: a[None], np.ravel, lambda a: a[..., :0], np.zeros_like]
        change += [lambda a: np.concatenate([a.ravel()] * 3), lambda a: a.astype(str)]
        array = pick(rng, change)(array)
    stream = BytesIO()
    np.save(stream, array)
    content = stream.getvalue()
    if how == 2:
        dtypes = ["|O", "<f4", ">f8", "<f2", "<c16", "<i8", "<U2", "|b1", "<M8[s]"]
        dtypes += ["|V8", "<U999999999", "|S8", "<f16", "i8,f8", "<U0"]
        content = content.replace(dtype.encode(), pick(rng, dtypes).encode())
    elif how == 3:
        shapes = ["(9, 9)", "()", "(-1,)", "(0,)", "(10**9, 10**9)", "(99999999999,)"]
        shapes += [f"({2**62}, 4)", f"({2**63},)", "(0, 999999999999)", "'x'", "(1.5,)"]
        shapes += ["(" * 200 + ")" * 200, "[1]", "{}", "(1, 5)", "(5, 1)"]
        content = content.replace(str(shape).encode(), pick(rng, shapes).encode())
    elif how == 4:
        content = spoil_bytes(rng, content)
    files[name] = content


def spoil_tensors(rng, files):
    """Change the header or the numbers of a network."""
    names = [name for name in files if name.endswith(".safetensors")]
    if not names:
        return
    name = pick(rng, names)
    content, length = files[name], struct.unpack("<Q", files[name][:8])[0]
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    how = rng.integers(4)
    if how == 0:
        files[name] = spoil_bytes(rng, content)
        return
    if how == 1:
        at = 4 * int(rng.integers(len(data) // 4))
        number = struct.pack("<f", float(pick(rng, [np.nan, np.inf, 3e38, 0])))
        data = data[:at] + number + data[at + 4 :]
    else:
        parent, key = pick(rng, places(header))
        values = ["F32", "F64", "I64", "BOOL", "F8_E4M3", "C64", "I8", [0], [10**9, 0]]
        parent[key] = pick(rng, [*values, [3], [2**62, 2**62], strange_number(rng)])
    text = json.dumps(header).encode()
    sizes = [len(text), len(text), len(text), 2**63, 0, len(text) + 8]
    files[name] = struct.pack("<Q", pick(rng, sizes)) + text + data


def spoil_trees(rng, files):
    """Change the text of trees: numbers, keys, lines, blocks, sizes."""
    manifest = json.loads(files[MANIFEST])
    homes = [p for p, key in places(manifest) if key == "booster_"]
    if not homes:
        return
    lines = homes[0]["booster_"].split("\n")
    end = lines.index("end of trees") if "end of trees" in lines else len(lines)
    for _ in range(int(rng.integers(1, 3))):
        everywhere = rng.random() < 0.15 or end < 2
        at = int(rng.integers(len(lines) if everywhere else min(end, len(lines))))
        key, equals, value = lines[at].partition("=")
        how, tokens = rng.integers(8), value.split(" ")
        if how < 4:
            new = ["", "nan", "inf", "1e999", "-", "1.5", "1_0", "é", "0x1", "9" * 40]
            near = [str(int(rng.integers(-6, 7))) for _ in range(12)]
            number = pick(rng, [*near, *new, str(strange_number(rng))])
            tokens[int(rng.integers(len(tokens)))] = number
            lines[at] = key + equals + " ".join(tokens)
        elif how == 4:
            lines[at] = (
                key + equals + " ".join(tokens[: int(rng.integers(len(tokens)))])
            )
        elif how == 5:
            lines.insert(int(rng.integers(len(lines))), lines[at])
        elif how == 6:
            del lines[at]
        else:
            lines[at] = pick(rng, ["", "Tree=0", "\0", "\r", "parameters:", "x=1", "x"])
    text = "\n".join(lines)
    if rng.random() < 0.5:  # sizes that fit
        blocks = text.split("end of trees")[0].split("Tree=")[1:]
        sizes = " ".join(str(len(block) + 5) for block in blocks)
        text = re.sub("tree_sizes=.*", f"tree_sizes={sizes}", text, count=1)
    homes[0]["booster_"] = text
    files[MANIFEST] = seal(manifest)


def spoil_names(rng, files):
    """Rename, exchange, add or drop members."""
    name, other = pick(rng, files), pick(rng, files)
    new = ["../x.npy", "/etc/x", "é.npy", "a\0.npy", "x" * 60_000, MANIFEST, other]
    how = rng.integers(4)
    if how == 0:
        files[pick(rng, new)] = files.pop(name)
    elif how == 1:
        files[name], files[other] = files[other], files[name]
    elif how == 2:
        del files[name]
    else:
        files[pick(rng, new)] = rng.bytes(int(rng.integers(100)))


SPOILED = [spoil_fields, spoil_fields, spoil_array, spoil_tensors, spoil_trees]
SPOILED += [spoil_trees, spoil_names]


def add_twice(rng, archive):
    """Add a member again, under the same name."""
    name = pick(rng, archive.namelist())
    archive.writestr(name, b"")


def add_comment(rng, archive):
    """Add bytes after the directory."""
    archive.comment = rng.bytes(int(rng.integers(60_000)))


def add_overlaps(rng, archive):
    """Add up to thousands of members that are the same bytes."""
    info = pick(rng, archive.filelist)
    for number in range(int(rng.integers(1, 3000))):
        again = copy.copy(info)
        again.filename = f"{number}.npy"
        archive.filelist.append(again)


def change_sizes(rng, archive):
    """Change what the directory says of a member."""
    info = pick(rng, archive.filelist)
    size = int(pick(rng, [0, 1, info.file_size + 1, 2**31, 2**32 - 2, 2**60]))
    for field in pick(rng, [("file_size", "compress_size"), ("file_size",), ("CRC",)]):
        setattr(info, field, size % 2**32 if field == "CRC" else size)
    if rng.random() < 0.3:
        info.header_offset = size


def change_flags(rng, archive):
    """Change how the directory says that a member is to be read."""
    info = pick(rng, archive.filelist)
    info.flag_bits ^= 1 << int(rng.integers(16))
    info.extra = pick(rng, [b"", rng.bytes(20), b"\x01\0\x10\0" + b"\xff" * 16])


ARCHIVES = [add_twice, add_comment, add_overlaps, change_sizes, change_flags]


def pack(rng, files):
    """Return the archive of some files, which may itself be out of order."""
    stream = BytesIO()
    way = pick(rng, ["compressed", "directory", *ARCHIVES, *[None] * 25])
    method = zipfile.ZIP_DEFLATED if way == "compressed" else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, content in files.items():
            archive.writestr(name, content)
        if callable(way):
            way(rng, archive)
    content = bytearray(stream.getvalue())
    if way == "directory":
        at = int(rng.integers(content.find(b"PK\x01\x02"), len(content) - 4))
        number = int(pick(rng, [0, 1, 2**31, 2**32 - 1]))
        content[at : at + 4] = number.to_bytes(4, "little")
    return bytes(content)


def spoil(seed, saved):
    """Return the spoiled bytes of a saved file."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.15:
        return spoil_bytes(rng, saved)
    with zipfile.ZipFile(BytesIO(saved)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(int(rng.integers(1, 3))):
        with_fault = [way for way in SPOILED if MANIFEST in files]
        if with_fault:
            try:
                pick(rng, with_fault)(rng, files)
            except Exception:  # spoiled beyond what can be spoiled again
                break
    if MANIFEST in files and rng.random() < 0.95:
        reseal(files)
    return pack(rng, files)


def reseal(files):
    """Make checksums and sizes right again, as somebody who tampers would."""
    try:
        manifest = json.loads(files[MANIFEST])
        parts = {n: c for n, c in files.items() if n not in (MANIFEST, CHECKSUM)}
        manifest["sha256"] = {n: digest(c) for n, c in parts.items()}
        manifest["sizes"] = {n: len(c) for n, c in parts.items()}
        files[MANIFEST] = json.dumps(manifest).encode()
    except (ValueError, TypeError, RecursionError):
        pass  # not JSON any more
    files[CHECKSUM] = digest(files[MANIFEST]).encode()


def digest(content):
    return hashlib.sha256(content).hexdigest()


# Loading, in a child process


def outcome(path, rows, options):
    """Load a file and predict; return what came of it."""
    import fferm
    from fferm.errors import FfermError

    try:
        model = fferm.load(path, **options)
    except FfermError as error:
        return type(error).__name__
    try:
        predicted = model.predict(**rows)
        if hasattr(model, "classes_"):
            predicted = model.predict_proba(**rows)
        repr(model)
    except FfermError as error:
        return f"model, then {type(error).__name__}"
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        if not (hasattr(model, "steps") and is_of_a_step(error)):
            raise
        return "model, then an error of scikit-learn's steps"
    return "model" if np.isfinite(predicted).all() else "bare NaN"


def is_of_a_step(error):
    """Return whether a pipeline's step raised, before the fair model saw the rows."""
    import fferm

    ours = Path(fferm.__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    return not any(Path(frame.filename).is_relative_to(ours) for frame in frames)


def memory(field):
    """Return a number of megabytes that the system keeps about this process."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text)[1]) / 1024


def save_models(folder):
    """Return a name, the bytes of a saved model, rows and options for each kind."""
    import fferm

    kept = folder / "models.pickle"  # for the children that follow
    if not kept.exists():
        models = []
        for name, model, rows, options in make_models():
            fferm.save(model, folder / "model")
            models.append((name, (folder / "model").read_bytes(), rows, options))
        kept.write_bytes(pickle.dumps(models))
    models = pickle.loads(kept.read_bytes())
    for name, saved, rows, options in models:
        (folder / "model").write_bytes(saved)
        assert outcome(folder / "model", rows, options) == "model", name
    return models


def write_line(folder, **record):
    """Add a line to what a child process says; LightGBM prints to its output."""
    with (folder / "records").open("a") as stream:
        stream.write(json.dumps(record) + "\n")


def load_many(begin, end, folder):
    """Load spoiled files and write a line about each, as a child process."""
    warnings.simplefilter("ignore")
    models = save_models(folder)
    # More than any file may take, and less than would hurt the machine.
    most = int((memory("VmSize") + 4 * MOST_MEGABYTES) * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for seed in range(begin, end):
        name, saved, rows, options = models[seed % len(models)]
        path = folder / "spoiled"
        path.write_bytes(spoil(seed, saved))
        write_line(folder, seed=seed, model=name)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
        before, start = memory("VmRSS"), time.process_time()
        # Nobody catches the signals: the process ends. Seconds of the processor count,
        # because other processes may keep this one waiting.
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        signal.alarm(20 * MOST_SECONDS)
        try:
            what = outcome(path, rows, options)
        except Exception as error:
            what = f"bare {type(error).__name__}: {str(error)[:200]}"
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - start
        grown = memory("VmHWM") - before
        write_line(folder, outcome=what, seconds=seconds, mb=grown)


def run_child(begin, end, folder):
    """Return one record per seed; of one that ended the process, how it did."""
    command = [sys.executable, __file__, "child", str(begin), str(end), str(folder)]
    (folder / "records").write_text("")
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = list(map(json.loads, (folder / "records").read_text().splitlines()))
    records = [{**a, **b} for a, b in zip(lines[::2], lines[1::2], strict=False)]
    if len(lines) % 2:
        ended = {"outcome": f"ended with {child.returncode}", "seconds": 0.0, "mb": 0.0}
        records.append({**lines[-1], **ended})
        if lines[-1]["seed"] + 1 < end:
            records += run_child(lines[-1]["seed"] + 1, end, folder)
    elif len(records) < end - begin:
        raise RuntimeError(child.stderr)
    return records


def is_fault(record):
    """Return whether the outcome of a file is neither a model nor a named error."""
    what = record["outcome"]
    is_bad = what.startswith(("bare", "ended"))
    return is_bad or record["seconds"] > MOST_SECONDS or record["mb"] > MOST_MEGABYTES


needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured in /proc"
)


@needs_linux
@pytest.mark.timeout(3600)
def test_spoiled_files_end_in_a_model_or_a_named_error(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("lightgbm")
    records = run_child(0, FILES, tmp_path)
    assert len(records) == FILES
    assert not [record for record in records if is_fault(record)]
    # Otherwise the fuzzing would test nothing but checksums.
    assert sum(record["outcome"] == "model" for record in records) > FILES / 50


def main():
    """Load as many spoiled files as the command line says, and print the outcomes."""
    if sys.argv[1] == "child":
        load_many(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
        return
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    last, records, say = first + int(sys.argv[1]), [], sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        for begin in range(first, last, FILES_PER_CHILD):
            end = min(begin + FILES_PER_CHILD, last)
            records += run_child(begin, end, Path(folder))
            bad = [r for r in records if begin <= r["seed"] and is_fault(r)]
            say(f"{len(records)} files, faults: {bad}\n")
            sys.stdout.flush()
    for what, count in collections.Counter(r["outcome"] for r in records).most_common():
        say(f"{count:7} {what}\n")
    say(f"by model: {collections.Counter(r['model'] for r in records)}\n")
    say(f"most seconds: {max(r['seconds'] for r in records):.2f}\n")
    say(f"most megabytes: {max(r['mb'] for r in records):.1f}\n")
    say(f"faults: {sum(map(is_fault, records))} of {len(records)}\n")


if __name__ == "__main__":
    main()
