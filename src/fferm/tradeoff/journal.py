"""Append-only files of records: a sweep that is killed goes on where it was.

A folder holds one file per curve and seed, ``*.jsonl``. Its first line says what is
swept, every further line is one fitted model with its measures, and the model itself
is in ``models/``, written before its line. A line counts if it is whole: what a killed
process left half-written is passed over, and only that fit is done again.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fferm.auditing.result import json_ready
from fferm.errors import PersistenceError

try:
    import fcntl
except ImportError:  # no Unix; there, do not run one sweep twice at the same time
    fcntl = None  # type: ignore[assignment]

FORMAT = "fferm-sweep"
FORMAT_VERSION = 1
MODELS = "models"
SUFFIX = ".jsonl"


@dataclass(frozen=True)
class Recorded:
    """What a file says: its first line, and the fits by fairness weight."""

    header: dict[str, Any]
    fits: dict[float, dict[str, Any]]


class Journal:
    """The file of one curve and seed.

    Parameters
    ----------
    folder
        Of the sweep; made where it is missing.
    curve, seed
        Whose records they are.
    """

    def __init__(self, folder: Path, curve: str, seed: int) -> None:
        # Names of curves are the user's; those of files must suit any file system.
        readable = re.sub(r"[^A-Za-z0-9]+", "-", curve).strip("-")[:40]
        digest = hashlib.sha256(curve.encode("utf-8", "replace")).hexdigest()[:8]
        self.stem = f"{readable}-{digest}-seed{seed}"
        self.folder = folder
        self.path = folder / (self.stem + SUFFIX)

    def model_path(self, number: int) -> Path:
        """Return the file of the model of the weight of that number."""
        return self.folder / MODELS / f"{self.stem}-{number:03d}.fferm"

    @contextmanager
    def opened(self, header: dict[str, Any]) -> Iterator[Recorded]:
        """Hold the file against other writers and yield what it has.

        A worker may outlive the process that was killed, and then this waits for it.
        """
        try:
            (self.folder / MODELS).mkdir(parents=True, exist_ok=True)
            self._stream: IO[bytes] = self.path.open("ab")
        except OSError as error:
            raise PersistenceError(
                f"Cannot write records to {self.folder} ({error.strerror}). Choose a "
                "folder that may be written."
            ) from error
        with self._stream:
            if fcntl is not None:
                fcntl.flock(self._stream, fcntl.LOCK_EX)
            found = read_journal(self.path)
            if found is None:
                self.append(header)
                found = Recorded(header, {})
            _check_same(found.header, header, self.folder)
            self._remove_halves()
            yield found

    def append(self, line: dict[str, Any]) -> None:
        """Add one line, on disk when this returns."""
        text = json.dumps(json_ready(line), allow_nan=False).encode() + b"\n"
        if self._ends_torn():
            text = b"\n" + text
        self._stream.write(text)
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def _ends_torn(self) -> bool:
        size = self.path.stat().st_size
        if size == 0:
            return False
        with self.path.open("rb") as stream:
            stream.seek(size - 1)
            return stream.read() != b"\n"

    def _remove_halves(self) -> None:
        # Models are written under a hidden name first; a kill may leave one.
        for half in (self.folder / MODELS).glob(f".{self.stem}-*"):
            half.unlink(missing_ok=True)


def read_journal(path: Path) -> Recorded | None:
    """Return what a file says, None if not even its first line is whole."""
    lines = [_parsed(line) for line in path.read_bytes().split(b"\n")]
    whole = [line for line in lines if line is not None]
    if not whole:
        return None
    header, *fits = whole
    if header.get("format") != FORMAT:
        raise PersistenceError(f"{path} holds no records of a sweep.")
    if header["version"] != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {header['version']!r}, this library reads "
            f"{FORMAT_VERSION}. Read it with the version of fferm that wrote it."
        )
    by_weight: dict[float, dict[str, Any]] = {}
    for fit in fits:
        by_weight.setdefault(fit["fairness_weight"], fit)
    return Recorded(header, by_weight)


def read_folder(folder: Path) -> dict[Path, Recorded]:
    """Return what each file of a folder says, by its path."""
    try:
        paths = sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []
        found = {path: read_journal(path) for path in paths}
    except OSError as error:
        raise PersistenceError(f"Cannot read {folder} ({error.strerror}).") from error
    return {path: records for path, records in found.items() if records is not None}


def check_folder(folder: Path, headers: list[dict[str, Any]]) -> None:
    """Raise where a folder holds records that do not belong to this sweep."""
    if folder.exists() and not folder.is_dir():
        raise PersistenceError(
            f"records={str(folder)!r} is a file. Expected a folder; it is made where "
            "it is missing."
        )
    for found in read_folder(folder).values():
        for header in headers:
            is_same_curve = found.header["curve"] == header["curve"]
            if is_same_curve or found.header["data"] != header["data"]:
                _check_same(found.header, header, folder)


def _check_same(found: dict[str, Any], asked: dict[str, Any], folder: Path) -> None:
    for name, what in (
        ("data", "rows"),
        ("weights", "fairness weights"),
        ("description", "settings"),
        ("settings", "settings"),
    ):
        if found[name] != asked[name]:
            raise PersistenceError(
                f"{folder} holds records of another sweep: its {what} differ. Choose "
                "another folder, or repeat the call that began these records."
            )


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:  # cut off by a kill; its fit is done again
        return None
    return value if isinstance(value, dict) else None
