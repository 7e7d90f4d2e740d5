"""Save and load fitted models without pickle.

A saved model is a zip archive of one ``manifest.json`` and the learned arrays as
``.npy`` files. Loading parses JSON and numbers and calls constructors of this library
(or of components that the user has registered); it never runs code from the file.
"""

import copy
import importlib
import inspect
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from operator import gt
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

import fferm
from fferm._files import replacing
from fferm.errors import MissingDependencyError, PersistenceError, UnsafeFileError
from fferm.registry import Registered, kind_of, last_step
from fferm.solvers import Result

FORMAT = "fferm-model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CHECKSUM = MANIFEST + ".sha256"
# Classes that can be saved, by name, and the modules that define them.
SAVABLE = {
    "FairBoostingClassifier": "fferm.estimators.boosting",
    "FairLogisticRegression": "fferm.estimators.linear",
    "FairNetClassifier": "fferm.estimators.net",
    "FairRegressor": "fferm.estimators.regression",
    "FeatureRepair": "fferm.deploy.repairing",
    "FrameEncoder": "fferm.data.frame",
    "GroupRepair": "fferm.deploy.repairing",
    "OffsetClassifier": "fferm.deploy.adapting",
    "ParityController": "fferm.deploy.controller",
    "Pipeline": "sklearn.pipeline",
}
# Where the other steps of a pipeline may come from.
STEP_PACKAGES = (
    "sklearn.compose",
    "sklearn.decomposition",
    "sklearn.feature_selection",
    "sklearn.impute",
    "sklearn.preprocessing",
)
# Kinds of numbers that arrays may hold: booleans, integers, floats, text.
ARRAY_KINDS = "biufU"
# Learned numbers that describe the training, not the model.
MAY_BE_INFINITE = {"history_", "violation_"}
# Products of larger ones with features overflow.
LARGEST_LEARNED = 1e200
# What a transformer holds beside lists and arrays.
PLAIN = (type(None), bool, int, float, str, np.dtype)
ADVICE = "Name a file that fferm.save or `fferm fit` wrote."


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file, whole or not at all.

    Parameters
    ----------
    estimator
        A fitted estimator of fferm, or a pipeline that ends in one and whose other
        steps are transformers of scikit-learn.
    path
        Where to write; an existing file is replaced.

    Examples
    --------
    >>> fferm.save(model, "model.fferm")  # doctest: +SKIP
    """
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    name = type(last).__name__
    if not _is_savable(last):
        raise PersistenceError(
            f"save needs one of {', '.join(SAVABLE)}; got {kind_of(last)}."
        )
    if not {"classes_", "result_"} & vars(last).keys():
        raise PersistenceError(f"This {name} is not fitted. Call fit before save.")
    writer = _Writer()
    manifest = {**writer.estimator("", estimator), "fferm_version": fferm.__version__}
    manifest |= {"format": FORMAT, "format_version": FORMAT_VERSION}
    manifest["sha256"] = {
        key: sha256(data).hexdigest() for key, data in writer.files.items()
    }
    manifest["sizes"] = {key: len(data) for key, data in writer.files.items()}
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False).encode()
    files = {
        **writer.files,
        MANIFEST: text,
        CHECKSUM: sha256(text).hexdigest().encode(),
    }
    advice = "Name a file, in a folder that exists and is writable."
    with (
        replacing(Path(path), advice) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for key, data in files.items():
            archive.writestr(key, data)


def load(
    path: str | os.PathLike[str], *, module: object = None, model: object = None
) -> Any:
    """Return the estimator that `save` wrote.

    Parameters
    ----------
    path
        A file written by `save`.
    module
        For a `FairNetClassifier` that was trained with the user's module: that module,
        as it was passed to the constructor. A file holds numbers and no code.
    model
        For a correction of a model of another library, such as `fferm.deploy.adapt`
        returns: that model.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest, files = _read_files(archive, path)
        given = {"module": module, "model": model}
        passed = {name: value for name, value in given.items() if value is not None}
        loaded = _Reader(files, passed).estimator(manifest)
        last = loaded.steps[-1][1] if isinstance(loaded, Pipeline) else loaded
        if not (_is_savable(last) and {"classes_", "result_"} & vars(last).keys()):
            raise PersistenceError(f"{path} does not hold a fitted model.")
    except (PersistenceError, MissingDependencyError, MemoryError):
        raise
    except OSError as error:
        raise PersistenceError(
            f"Cannot read {path} ({error.strerror}). {ADVICE}"
        ) from error
    except (zipfile.BadZipFile, NotImplementedError) as error:
        if "CRC" in str(error):
            raise UnsafeFileError(
                f"{path} was changed: {error}. Get it from its source again."
            ) from error
        message = f"{path} is not a saved fferm model ({error}). {ADVICE}"
        raise PersistenceError(message) from error
    except Exception as error:  # anything a hand-made manifest may provoke
        raise PersistenceError(
            f"{path} claims to be a saved model, but cannot be loaded ({error!r}). "
            f"{ADVICE}"
        ) from error
    return loaded


def can_hold(model: Any) -> bool:
    """Return whether a file can hold a model, or a pipeline that ends in one."""
    return _is_savable(last_step(model))


def _is_savable(value: object) -> bool:
    return SAVABLE.get(type(value).__name__) == type(value).__module__


@dataclass
class _Writer:
    """Turns values into JSON; arrays and bytes become files of the archive."""

    files: dict[str, bytes] = field(default_factory=dict)

    def estimator(self, prefix: str, estimator: Any) -> dict[str, Any]:
        params, learned = estimator.get_params(deep=False), {}
        if any(name.endswith("_") for name in vars(estimator)):
            # An estimator inside another may have parameters only.
            params, learned = estimator._to_saved()
        return {
            "class": type(estimator).__name__,
            "parameters": self.all(prefix, params),
            "learned": self.all(prefix, learned),
        }

    def all(self, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value(prefix + name, v) for name, v in values.items()}

    def value(self, name: str, value: Any) -> Any:
        value = _plain(value)
        if isinstance(value, Result):
            return {"@result": value.name}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"@float": repr(value)}
        if isinstance(value, bytes):
            self.files[f"{name}.safetensors"] = value
            return {"@bytes": f"{name}.safetensors"}
        if isinstance(value, np.ndarray):
            return self._array(name, value)
        return self._object(name, value)

    def _array(self, name: str, value: NDArray[Any]) -> Any:
        if value.dtype.kind not in ARRAY_KINDS:  # labels of mixed or text type
            items = enumerate(value)
            return {"@objects": [self.value(f"{name}.{n}", v) for n, v in items]}
        stream = io.BytesIO()
        np.save(stream, value, allow_pickle=False)
        self.files[f"{name}.npy"] = stream.getvalue()
        return {"@array": f"{name}.npy"}

    def _object(self, name: str, value: Any) -> Any:
        if isinstance(value, Registered):
            fields = self.all(f"{name}.", value.parameters())
            return {"@component": [value.kind, value.name, fields]}
        if _is_savable(value):
            return {"@estimator": self.estimator(f"{name}.", value)}
        if isinstance(value, tuple | list):
            tag = "@tuple" if isinstance(value, tuple) else "@list"
            items = enumerate(value)
            return {tag: [self.value(f"{name}.{n}", v) for n, v in items]}
        if isinstance(value, dict):
            if all(isinstance(key, str) for key in value):
                return {"@dict": self.all(f"{name}.", value)}
            return {"@pairs": self.value(name, list(value.items()))}
        return self._part_of_step(name, value)

    def _part_of_step(self, name: str, value: Any) -> Any:
        # What the transformers of scikit-learn consist of, beside numbers and text.
        if isinstance(value, slice):
            return {"@slice": self.value(name, [value.start, value.stop, value.step])}
        if isinstance(value, type | np.dtype):  # of the numbers that a step returns
            return {"@dtype": np.dtype(value).str}
        for package in STEP_PACKAGES:
            public = vars(importlib.import_module(package))
            word = str(getattr(value, "__name__", ""))
            if public.get(word) is value:
                return {"@function": [package, word]}
            if public.get(type(value).__name__) is type(value):
                state = self.all(f"{name}.", vars(value))
                return {"@step": [package, type(value).__name__, state]}
        raise PersistenceError(
            f"{name} is a {type(value).__name__}, which a saved model cannot hold. Use "
            "numbers, text or a component instead, for example random_state=0."
        )


def _plain(value: Any) -> Any:
    # A column as its values, a path as its text.
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    native = nw.from_native(value, series_only=True, pass_through=True)
    return native.to_numpy() if isinstance(native, nw.Series) else value


@dataclass
class _Reader:
    """Turns JSON back into values; `TAGS` says which method reads which tag.

    A file is read once: one that is named a thousand times would fill the memory.
    """

    files: dict[str, bytes]
    # Parameters that a file cannot hold, of the model or of a pipeline's last step.
    passed: dict[str, Any] = field(default_factory=dict)

    def value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        return TAGS[tag](self, content)

    def all(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) for name, value in values.items()}

    def items(self, values: list[Any]) -> list[Any]:
        return [self.value(value) for value in values]

    def estimator(self, content: Mapping[str, Any]) -> Any:
        name = content["class"]
        params = self.all(content["parameters"])
        # A correction may hold a model, which then gets what is meant for models.
        saved_class = getattr(importlib.import_module(SAVABLE[name]), name)
        if params.get("model") is None:
            known = inspect.signature(saved_class).parameters
            params |= {key: v for key, v in self.passed.items() if key in known}
        model = saved_class(**params)
        if isinstance(model, Pipeline) and not dict(model.steps):
            raise PersistenceError("A pipeline must have steps; got none.")
        learned = self.all(content["learned"])
        for name, value in learned.items():
            if not (name.isidentifier() and name.endswith("_") and name[0] != "_"):
                raise PersistenceError(f"{name!r} is not a learned attribute.")
            if name not in MAY_BE_INFINITE and not _is_finite(value):
                raise PersistenceError(
                    f"{name} must hold finite numbers; got NaN, infinity or one above "
                    f"{LARGEST_LEARNED:g}. Get the file again, or train again."
                )
        if learned:
            model._from_saved(learned)
        return model

    def component(self, content: Any) -> Registered:
        kind, name, fields = content
        component = Registered._registry.get((kind, name))
        if component is None:
            raise PersistenceError(
                f"The model uses the {kind} {name!r}, which is not registered here. "
                "Import the module that defines it, then load again."
            )
        return component(**self.all(fields))

    def step(self, content: Any) -> Any:
        package, name, state = content
        kind = _public(package, name)
        made = object.__new__(kind)
        vars(made).update(self.all(state))
        if name == "OneHotEncoder" and "categories_" in vars(made):
            _check_codes(made)
        return made

    def array(self, name: str) -> NDArray[Any]:
        stream = io.BytesIO(self.files.pop(name))
        version, _ = np.lib.format.read_magic(stream)
        read_header = getattr(np.lib.format, f"read_array_header_{version}_0")
        shape, is_fortran, dtype = read_header(stream)
        rest = stream.read()
        # Checked before anything is allocated: a header may claim any size.
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in ARRAY_KINDS or len(rest) != size:
            raise PersistenceError(f"{name} does not hold the numbers it announces.")
        flat = np.frombuffer(rest, dtype=dtype)
        return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")

    def objects(self, content: list[Any]) -> NDArray[Any]:
        array = np.empty(len(content), dtype=object)
        array[:] = self.items(content)
        return array


TAGS: dict[str, Callable[[_Reader, Any], Any]] = {
    "@array": _Reader.array,
    "@bytes": lambda reader, name: reader.files.pop(name),
    "@component": _Reader.component,
    "@dict": _Reader.all,
    "@dtype": lambda _, text: np.dtype(text),
    "@estimator": _Reader.estimator,
    "@function": lambda _, content: _public(*content),
    "@float": lambda _, text: float(text),
    "@list": _Reader.items,
    "@objects": _Reader.objects,
    "@pairs": lambda reader, content: dict(reader.value(content)),
    "@result": lambda _, name: Result[name],
    "@slice": lambda reader, parts: slice(*reader.value(parts)),
    "@step": _Reader.step,
    "@tuple": lambda reader, items: tuple(reader.items(items)),
}


def _public(package: str, name: str) -> Any:
    # A class or a function of scikit-learn that a step may be, or may refer to.
    if package in STEP_PACKAGES:
        module = importlib.import_module(package)
        if name in module.__all__:
            return getattr(module, name)
    raise PersistenceError(f"{package}.{name} cannot be part of a pipeline.")


def _check_codes(encoder: Any) -> None:
    # It trusts what it learned: a code beyond its columns is a place beyond its memory.
    state = {k: v for k, v in vars(encoder).items() if k != "feature_names_in_"}
    lists = {k: v for k, v in state.items() if isinstance(v, list | np.ndarray)}
    others = [state[key] for key in state.keys() - lists.keys()]
    is_plain = all(isinstance(v, PLAIN) for v in others)
    if not is_plain or {len(v) for v in lists.values()} != {encoder.n_features_in_}:
        raise PersistenceError("OneHotEncoder must have one list of levels per column.")
    for n, levels in enumerate(lists["categories_"]):
        tried = copy.copy(encoder)
        vars(tried).clear()  # one column at a time, so that a table stays small
        vars(tried).update(state | {k: v[n : n + 1] for k, v in lists.items()})
        tried.n_features_in_ = 1
        tried.sparse_output = True  # nothing is written
        tried.transform(np.asarray(levels)[:, None]).check_format(full_check=True)


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, np.ndarray) and value.dtype.kind != "f":
        value = value.tolist() if value.dtype == object else ()
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    if not isinstance(value, float | np.ndarray):
        return True
    return bool(np.all(np.abs(value) <= LARGEST_LEARNED))


def _read_files(
    archive: zipfile.ZipFile, path: object
) -> tuple[dict[str, Any], dict[str, bytes]]:
    infos = sorted(archive.filelist, key=lambda info: info.header_offset)
    names = [info.filename for info in infos]
    # Before anything is read: members are neither compressed nor encrypted, and share
    # no bytes, so that a small file cannot unfold into a large one.
    ends = [0, *(i.header_offset + 30 + len(i.filename) + i.file_size for i in infos)]
    begins = [*(info.header_offset for info in infos), archive.start_dir]
    is_plain = all(
        not i.compress_type and not i.flag_bits & 1 and i.compress_size == i.file_size
        for i in infos
    )
    if not is_plain or any(map(gt, ends, begins)) or len(set(names)) < len(names):
        raise zipfile.BadZipFile("members are compressed, encrypted or overlap")
    if MANIFEST not in names:
        raise PersistenceError(f"{path} has no {MANIFEST}, so it is not a saved model.")
    text = archive.read(MANIFEST)
    checksum = sha256(text).hexdigest().encode()
    if CHECKSUM not in names or archive.read(CHECKSUM) != checksum:
        raise UnsafeFileError(f"{path}: {MANIFEST} does not match its checksum.")
    manifest = json.loads(text)
    format_, version = manifest["format"], manifest["format_version"]
    is_known = manifest["class"] in SAVABLE and format_ == FORMAT
    if not is_known or version != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} contains {manifest['class']!r} as {format_}, format version "
            f"{version!r}, which this version of fferm cannot load."
        )
    members = {i.filename: i.file_size for i in infos}
    del members[MANIFEST], members[CHECKSUM]
    sums, sizes = manifest["sha256"], manifest.get("sizes", {})
    expected = {name: sizes.get(name, members.get(name)) for name in sums}
    wrong = {name for name, _ in members.items() ^ expected.items()}
    files = {} if wrong else {name: archive.read(name) for name in members}
    wrong |= {n for n, data in files.items() if sums[n] != sha256(data).hexdigest()}
    if wrong:
        raise UnsafeFileError(
            f"{path}: {min(wrong)} is missing or does not match its checksum. The file "
            "was changed or cut off; get it from its source again."
        )
    return manifest, files
