"""Files of records that a killed sweep resumes from, and the curve they hold.

A folder holds one file per curve and seed, ``*.jsonl``. Its first line says what is
swept, every further line is one fitted model with its measures, and the model itself
is in ``models/``, written before its line. Files are only appended to. A line counts
if it is complete: the fit of a line that a killed process left half-written is
repeated.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from fferm.auditing import Audit
from fferm.auditing.base import json_ready
from fferm.curve.curve import Key, LazyValues, TradeoffCurve
from fferm.errors import PersistenceError
from fferm.estimators.base import FairEstimator

try:
    import fcntl
except ImportError:  # not on Unix; there, do not run one sweep twice at the same time
    fcntl = None  # type: ignore[assignment]

FORMAT = "fferm-sweep"
FORMAT_VERSION = 1
MODELS = "models"
SUFFIX = ".jsonl"
KEY = ["curve", "fairness_weight", "seed"]
MEASURES = ["accuracy", "violation", "soft_violation", "loss", "divergence"]
INTERVALS = ["accuracy_low", "accuracy_high", "violation_low", "violation_high"]
COLUMNS = [*KEY, "split", *MEASURES, "collapsed", "result", "seconds", *INTERVALS]
BASELINE = ["curve", "seed", "split", "thinning", "accuracy", "violation"]
NOT_NUMBERS = {"curve", "seed", "split", "collapsed", "result"}


@dataclass
class Recorded:
    """The records of one curve and seed.

    Attributes
    ----------
    header
        What was swept: the first line of the file.
    fits
        The measures by fairness weight: its further lines.
    models
        The model of each fairness weight, or its file.
    stream
        The file that lines are added to, None for records in memory.
    """

    header: dict[str, Any]
    fits: dict[float, dict[str, Any]] = field(default_factory=dict)
    models: dict[float, Any] = field(default_factory=dict)
    stream: IO[bytes] | None = None

    def append(self, line: dict[str, Any]) -> None:
        """Add one line, which is on disk when this returns."""
        if self.stream is not None:
            text = json.dumps(json_ready(line), allow_nan=False)
            self.stream.write(text.encode() + b"\n")
            self.stream.flush()
            os.fsync(self.stream.fileno())


@contextmanager
def open_records(folder: Path, header: dict[str, Any]) -> Iterator[Recorded]:
    """Lock the file of a curve and seed against other writers; yield what it holds.

    A worker may outlive the process that was killed; then this waits for it.
    """
    # Names of curves are the user's; those of files must suit any file system.
    curve, seed = header["curve"], header["seed"]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", curve).strip("-")[:40]
    digest = hashlib.sha256(curve.encode("utf-8", "replace")).hexdigest()[:8]
    path = folder / f"{readable}-{digest}-seed{seed}{SUFFIX}"
    try:
        (folder / MODELS).mkdir(parents=True, exist_ok=True)
        stream = path.open("ab")
    except OSError as error:
        raise PersistenceError(
            f"Cannot write records to {folder} ({error.strerror}). Choose a writable "
            "folder."
        ) from error
    with stream:
        if fcntl is not None:
            fcntl.flock(stream, fcntl.LOCK_EX)
        content, recorded = path.read_bytes(), read_records(path)
        if content and not content.endswith(b"\n"):  # the last line was cut off
            stream.write(b"\n")
        if recorded is None:
            recorded = Recorded(header, {}, _model_paths(path, header))
            recorded.stream = stream
            recorded.append(header)
        else:
            _check_same(recorded.header, header, folder)
            recorded.stream = stream
        # Models are written under a hidden name first; a kill may leave one.
        for half in (folder / MODELS).glob(f".{path.stem}-*"):
            half.unlink(missing_ok=True)
        yield recorded


def read_records(path: Path) -> Recorded | None:
    """Return what a file holds, None if not even its first line is complete."""
    complete: list[dict[str, Any]] = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):  # cut off by a kill; its fit is repeated
            value = json.loads(line)
            if isinstance(value, dict):
                complete.append(value)
    if not complete:
        return None
    header, *fits = complete
    if header.get("format") != FORMAT:
        raise PersistenceError(f"{path} does not contain records of a sweep.")
    if header["version"] != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {header['version']!r}, this library reads "
            f"{FORMAT_VERSION}. Read it with the version of fferm that wrote it."
        )
    by_weight: dict[float, dict[str, Any]] = {}
    for fit in fits:
        by_weight.setdefault(fit["fairness_weight"], fit)
    return Recorded(header, by_weight, _model_paths(path, header))


def _model_paths(path: Path, header: dict[str, Any]) -> dict[float, Path]:
    folder = path.parent / MODELS
    return {
        weight: folder / f"{path.stem}-{number:03d}.fferm"
        for number, weight in enumerate(header["weights"])
    }


def read_folder(folder: Path) -> list[Recorded]:
    """Return what the files of a folder hold."""
    try:
        paths = sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []
        recorded = [read_records(path) for path in paths]
    except OSError as error:
        raise PersistenceError(f"Cannot read {folder} ({error.strerror}).") from error
    return [each for each in recorded if each is not None]


def check_folder(folder: Path, headers: list[dict[str, Any]]) -> None:
    """Raise if a folder holds records that do not belong to this sweep."""
    if folder.exists() and not folder.is_dir():
        raise PersistenceError(
            f"records must be a folder; {str(folder)!r} is a file. A missing folder is "
            "created."
        )
    for recorded in read_folder(folder):
        for header in headers:
            is_same_curve = recorded.header["curve"] == header["curve"]
            if is_same_curve or recorded.header["data"] != header["data"]:
                _check_same(recorded.header, header, folder)


def _check_same(recorded: dict[str, Any], header: dict[str, Any], folder: Path) -> None:
    for name, what in (
        ("data", "rows"),
        ("weights", "fairness weights"),
        ("description", "settings"),
        ("settings", "settings"),
    ):
        if recorded[name] != header[name]:
            raise PersistenceError(
                f"{folder} holds records of another sweep: its {what} differ. Choose "
                "another folder, or repeat the call that began these records."
            )


def load_curve(path: str | os.PathLike[str]) -> TradeoffCurve:
    """Return the curve of a folder of records."""
    recorded = [each for each in read_folder(Path(path)) if each.fits]
    if not recorded:
        raise PersistenceError(
            f"{path} does not contain records of a sweep. Pass the folder that "
            "tradeoff_curve(..., records=...) wrote to."
        )
    recorded.sort(key=lambda each: (each.header["number"], each.header["seed"]))
    return assemble(recorded)


def assemble(
    paths: Iterable[Recorded],
    audit: Callable[[FairEstimator, int], Audit | None] | None = None,
) -> TradeoffCurve:
    """Return the curve of all paths, in their order.

    ``audit`` takes a model and a seed; models on disk have their audits there too.
    """
    rows: list[dict[str, Any]] = []
    baseline: list[dict[str, Any]] = []
    models: dict[Key, Any] = {}
    audits: dict[Key, Any] = {}
    descriptions: dict[str, dict[str, str]] = {}
    for recorded in paths:
        curve, seed = recorded.header["curve"], recorded.header["seed"]
        descriptions[curve] = recorded.header["description"]
        for weight, fit in sorted(recorded.fits.items()):
            key, about = Key(curve, weight, seed), {"curve": curve, "seed": seed}
            here = {**about, "fairness_weight": weight}
            rows += [{**here, **row} for row in fit["measures"]]
            baseline += [{**about, **row} for row in fit.get("thinned", ())]
            models[key] = model = recorded.models[weight]
            if isinstance(model, Path):
                from fferm.persistence import load

                models[key] = partial(load, model)
                if fit.get("audit") is not None:
                    audits[key] = partial(Audit.from_dict, fit["audit"])
            elif audit is not None:
                audits[key] = partial(audit, model, seed)
    return TradeoffCurve(
        _frame(rows, COLUMNS),
        LazyValues(models),
        descriptions,
        _frame(baseline, BASELINE),
        LazyValues(audits),
    )


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame = frame.reindex(columns=list(dict.fromkeys([*columns, *frame])))
    # A file has null for an undefined number and "inf" for an infinite one.
    return frame.astype({n: np.float64 for n in frame if n not in NOT_NUMBERS})
