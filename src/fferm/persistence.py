"""Save and load fitted models without pickle.

A saved model is a zip archive of one ``manifest.json`` and the learned arrays as
``.npy`` files. Loading parses JSON and numbers and calls constructors of this library
(or of components that the user has registered); it never runs code from the file.
"""

import hashlib
import importlib
import io
import json
import math
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

import fferm
from fferm.errors import FfermError, PersistenceError, UnsafeFileError
from fferm.registry import Registered
from fferm.solvers import Result

FORMAT = "fferm-model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
# Classes that can be saved, by name, and where they live.
SAVABLE = {
    "FairBoostingClassifier": "fferm.estimators.boosting",
    "FairLogisticRegression": "fferm.estimators",
    "FairNetClassifier": "fferm.estimators.net",
    "FairRegressor": "fferm.estimators.regression",
    "FrameClassifier": "fferm.estimators.frame",
    "FrameEncoder": "fferm.data.frame",
    "FrameRegressor": "fferm.estimators.frame",
}
# Kinds of numbers that arrays may hold: booleans, integers, floats, text.
ARRAY_KINDS = "biufU"


class Savable(Protocol):
    """An estimator that says what of it a file has to hold."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor."""

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]: ...

    def _from_saved(self, learned: dict[str, Any]) -> None: ...


def save(estimator: Savable, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to one file, whole or not at all.

    Parameters
    ----------
    estimator
        A fitted estimator of fferm.
    path
        Where to write; an existing file is replaced.

    Examples
    --------
    >>> fferm.save(model, "model.fferm")  # doctest: +SKIP
    """
    name = type(estimator).__name__
    if not _is_savable(estimator):
        raise PersistenceError(
            f"A {name} came. Expected one of {', '.join(SAVABLE)}; save other "
            "estimators with their own library."
        )
    if not any(
        hasattr(estimator, learned) for learned in ("classes_", "result_", "estimator_")
    ):
        raise PersistenceError(f"This {name} is not fitted. Call fit before save.")
    arrays: dict[str, bytes] = {}
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "fferm_version": fferm.__version__,
        **_encode_estimator("", estimator, arrays),
    }
    manifest["sha256"] = {key: _digest(data) for key, data in arrays.items()}
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False)
    files = {**arrays, MANIFEST: text.encode()}
    files[MANIFEST + ".sha256"] = _digest(files[MANIFEST]).encode()
    _write_whole(Path(path), files)


def load(path: str | os.PathLike[str], *, module: object = None) -> Any:
    """Return the estimator that `save` wrote.

    Parameters
    ----------
    path
        A file written by `save`.
    module
        Of a `FairNetClassifier` that was trained with a module of the user's own: that
        module, as it was given to the constructor. A file holds numbers and no code.
    """
    files = _read_files(Path(path))
    try:
        manifest = _checked_manifest(files, path)
        given = {} if module is None else {"module": module}
        return _decode_estimator(manifest, files, given)
    except (FfermError, MemoryError):
        raise
    except Exception as error:  # anything a hand-made manifest may provoke
        raise PersistenceError(
            f"{path} says it is a saved model, and its content makes none ({error})."
        ) from error


def _savable(name: str) -> type[Savable]:
    home = importlib.import_module(SAVABLE[name])
    return cast(type[Savable], getattr(home, name))


def _is_savable(value: object) -> bool:
    name = type(value).__name__
    return name in SAVABLE and type(value) is _savable(name)


def _encode_estimator(
    prefix: str, estimator: Savable, arrays: dict[str, bytes]
) -> dict[str, Any]:
    parameters: dict[str, Any] = estimator.get_params(deep=False)
    learned: dict[str, Any] = {}
    if any(name.endswith("_") for name in vars(estimator)):
        # Of an estimator within another only the parameters may count.
        parameters, learned = estimator._to_saved()
    return {
        "class": type(estimator).__name__,
        "parameters": _encode_all(parameters, arrays, prefix),
        "learned": _encode_all(learned, arrays, prefix),
    }


def _decode_estimator(
    content: Mapping[str, Any], files: dict[str, bytes], given: Mapping[str, Any]
) -> Savable:
    parameters = _decode_all(content["parameters"], files)
    model = _savable(content["class"])(**{**parameters, **given})
    learned = _decode_all(content["learned"], files)
    for name in learned:
        if not (name.isidentifier() and name.endswith("_") and name[0] != "_"):
            raise PersistenceError(f"{name!r} is no learned attribute of a model.")
    if learned:
        model._from_saved(learned)
    return model


def _encode_all(
    values: Mapping[str, Any], arrays: dict[str, bytes], prefix: str = ""
) -> dict[str, Any]:
    return {
        name: _encode(prefix + name, value, arrays) for name, value in values.items()
    }


def _encode(name: str, value: Any, arrays: dict[str, bytes]) -> Any:
    value = _plain(value)
    if isinstance(value, Result):
        return {"@result": value.name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"@float": repr(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in ARRAY_KINDS:
        return _encode_array(name, value, arrays)
    if isinstance(value, Registered) or _is_savable(value):
        return _encode_object(name, value, arrays)
    return _encode_container(name, value, arrays)


def _plain(value: Any) -> Any:
    # What has a plain form that does as well: of a column its values, of a path its
    # text.
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    native = nw.from_native(value, series_only=True, pass_through=True)
    return native.to_numpy() if isinstance(native, nw.Series) else value


def _encode_array(name: str, value: NDArray[Any], arrays: dict[str, bytes]) -> Any:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    arrays[f"{name}.npy"] = stream.getvalue()
    return {"@array": f"{name}.npy"}


def _encode_object(
    name: str, value: Registered | Savable, arrays: dict[str, bytes]
) -> Any:
    if not isinstance(value, Registered):
        return {"@estimator": _encode_estimator(f"{name}.", value, arrays)}
    fields = {
        field: _encode(f"{name}.{field}", inner, arrays)
        for field, inner in value.parameters().items()
    }
    return {"@component": [value.kind, value.name, fields]}


def _encode_container(name: str, value: Any, arrays: dict[str, bytes]) -> Any:
    if isinstance(value, bytes):
        arrays[f"{name}.safetensors"] = value
        return {"@bytes": f"{name}.safetensors"}
    if isinstance(value, np.ndarray):  # objects: labels of mixed or text type
        return {"@objects": [_encode(name, item, arrays) for item in value.tolist()]}
    if isinstance(value, tuple | list):
        tag = "@tuple" if isinstance(value, tuple) else "@list"
        return {tag: [_encode(name, item, arrays) for item in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {"@dict": _encode_all(value, arrays, f"{name}.")}
        return {"@pairs": _encode(name, list(value.items()), arrays)}
    raise PersistenceError(
        f"{name} is a {type(value).__name__}, which a saved model cannot hold. Replace "
        "it by numbers, text or a component, for example random_state=0."
    )


def _decode_all(values: Mapping[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    return {name: _decode(value, files) for name, value in values.items()}


def _decode(value: Any, files: dict[str, bytes]) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    return _DECODERS[tag](content, files)


def _decode_component(content: Any, files: dict[str, bytes]) -> Registered:
    kind, name, fields = content
    component = Registered._registry.get((kind, name))
    if component is None:
        raise PersistenceError(
            f"The model uses the {kind} {name!r}, which is not registered here. Import "
            "the module that defines it, then load again."
        )
    return component(**_decode_all(fields, files))


def _decode_array(name: str, files: dict[str, bytes]) -> NDArray[Any]:
    stream = io.BytesIO(files[name])
    version = np.lib.format.read_magic(stream)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    shape, is_fortran, dtype = read_header(stream)
    rest = stream.read()
    # Checked before anything is allocated: a header may claim any size.
    if dtype.kind not in ARRAY_KINDS or len(rest) != math.prod(shape) * dtype.itemsize:
        raise PersistenceError(f"{name} does not hold the numbers that it announces.")
    flat = np.frombuffer(rest, dtype=dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C").copy(order="K")


def _decode_objects(content: Any, files: dict[str, bytes]) -> NDArray[Any]:
    array = np.empty(len(content), dtype=object)
    array[:] = [_decode(item, files) for item in content]
    return array


_DECODERS: dict[str, Callable[[Any, dict[str, bytes]], Any]] = {
    "@array": _decode_array,
    "@bytes": lambda name, files: files[name],
    "@component": _decode_component,
    "@dict": _decode_all,
    "@estimator": lambda content, files: _decode_estimator(content, files, {}),
    "@float": lambda text, _: float(text),
    "@list": lambda items, files: [_decode(item, files) for item in items],
    "@objects": _decode_objects,
    "@pairs": lambda content, files: dict(_decode(content, files)),
    "@result": lambda name, _: Result[name],
    "@tuple": lambda items, files: tuple(_decode(item, files) for item in items),
}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_whole(path: Path, files: Mapping[str, bytes]) -> None:
    # Opened by name, so that the file gets the permissions that any new file would.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        stream = temporary.open("xb")
    except OSError as error:
        raise PersistenceError(
            f"Cannot write to {path.parent} ({error.strerror}). Choose a folder that "
            "exists and may be written."
        ) from error
    try:
        with stream, zipfile.ZipFile(stream, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        os.replace(temporary, path)
    except OSError as error:
        raise PersistenceError(f"Cannot write {path} ({error.strerror}).") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_files(path: Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            # Stored, not compressed: a small file cannot unfold into a large one.
            if any(
                info.compress_type != zipfile.ZIP_STORED for info in archive.filelist
            ):
                raise PersistenceError(f"{path} is a zip archive but no saved model.")
            return {info.filename: archive.read(info) for info in archive.filelist}
    except OSError as error:
        raise PersistenceError(f"Cannot read {path} ({error.strerror}).") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        if "CRC" in str(error):
            raise UnsafeFileError(f"{path} was changed: {error}.") from error
        raise PersistenceError(
            f"{path} is no saved model ({error}). Expected a file of fferm.save."
        ) from error


def _checked_manifest(files: dict[str, bytes], path: object) -> dict[str, Any]:
    if MANIFEST not in files:
        raise PersistenceError(
            f"{path} has no {MANIFEST}. Expected a file that fferm.save wrote."
        )
    if files.get(MANIFEST + ".sha256", b"").decode("ascii", "replace") != _digest(
        files[MANIFEST]
    ):
        raise UnsafeFileError(f"{path}: {MANIFEST} does not match its checksum.")
    manifest = json.loads(files[MANIFEST])
    kind = (manifest["format"], manifest["class"])
    if kind[0] != FORMAT or kind[1] not in SAVABLE:
        raise PersistenceError(f"{path} holds {kind}, which this version cannot load.")
    if manifest["format_version"] != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {manifest['format_version']!r}, this library "
            f"reads {FORMAT_VERSION}. Load it with the version of fferm that wrote it."
        )
    _check_members(files, manifest["sha256"], path)
    return manifest  # type: ignore[no-any-return]


def _check_members(files: dict[str, bytes], sums: dict[str, str], path: object) -> None:
    arrays = set(files) - {MANIFEST, MANIFEST + ".sha256"}
    for name in sorted(arrays | set(sums)):
        if name not in files or sums.get(name) != _digest(files[name]):
            raise UnsafeFileError(
                f"{path}: {name} is missing or does not match its checksum. The file "
                "was changed or cut off; take it from its source again."
            )
