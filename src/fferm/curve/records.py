"""Files of records that a killed sweep resumes from, and the curve they hold.

A folder holds one file per curve and seed, ``*.jsonl``. Its first line says what is
swept, every further line is one fitted model with its measures, and the model itself
is in ``models/``, written before its line. Files are only appended to. A line counts
if it is complete: the fit of a line that a killed process left half-written is
repeated.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fferm._locks import locked
from fferm.auditing import Audit
from fferm.auditing.base import json_ready
from fferm.curve.curve import Key, LazyValues, TradeoffCurve
from fferm.errors import PersistenceError, explain
from fferm.estimators.base import FairEstimator

FORMAT = "fferm-sweep"
FORMAT_VERSION = 1
MODELS = "models"
SUFFIX = ".jsonl"
KEY = ["curve", "fairness_weight", "seed"]
MEASURES = ["accuracy", "violation", "soft_violation", "loss", "divergence"]
INTERVALS = ["accuracy_low", "accuracy_high", "violation_low", "violation_high"]
NOISE = ["floor", "corrected_violation"]
COLUMNS = [*KEY, "split", *MEASURES, "collapsed", "result", "seconds", *INTERVALS]
COLUMNS += NOISE
BASELINE = ["curve", "seed", "split", "thinning", "accuracy", "violation"]
NOT_NUMBERS = {"curve", "seed", "split", "collapsed", "result"}


class Recorded(NamedTuple):
    """The records of one curve and seed.

    Attributes
    ----------
    header
        What was swept: the first line of the file.
    fits
        The measures by fairness weight: its further lines.
    models
        The model of each fairness weight, or its file.
    """

    header: dict[str, Any]
    fits: dict[float, dict[str, Any]]
    models: dict[float, Any]


@contextmanager
def open_records(
    folder: Path, header: dict[str, Any], weights: Iterable[float] = ()
) -> Iterator[tuple[Recorded, Callable[[dict[str, Any]], None]]]:
    """Lock the file of a curve and seed; yield what it holds and what adds a line.

    ``weights`` have a place among the models even if the header lacks them.

    A worker may outlive the process that was killed, and another sweep may be adding
    to the same records; then this waits for it.
    """
    # Names of curves are the user's; those of files must suit any file system.
    curve, seed = header["curve"], header["seed"]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", curve).strip("-")[:40]
    digest = hashlib.sha256(curve.encode("utf-8", "replace")).hexdigest()[:8]
    path = folder / f"{readable}-{digest}-seed{seed}{SUFFIX}"

    def append(line: dict[str, Any]) -> None:  # on disk when this returns
        text = json.dumps(json_ready(line), allow_nan=False).encode() + b"\n"
        with _writing(folder):
            while text:
                text = text[stream.write(text) :]
            os.fsync(stream.fileno())

    with ExitStack() as held:
        with _writing(folder):
            (folder / MODELS).mkdir(parents=True, exist_ok=True)
            lock = locked(path.with_name(f".{path.stem}.lock"), is_patient=True)
            held.enter_context(lock)
            stream = held.enter_context(path.open("ab", buffering=0))
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):  # the last line was cut off
                stream.write(b"\n")
            if not _complete_lines(path):
                append({"format": FORMAT, "version": FORMAT_VERSION, **header})
            recorded = _read_lines(path, _complete_lines(path), weights)
            _check_same(recorded.header, header, folder)
            # Models are written under a hidden name first; a kill may leave one.
            for half in (folder / MODELS).glob(f".{path.stem}-*"):
                half.unlink(missing_ok=True)
        yield recorded, append


def _writing(folder: Path) -> AbstractContextManager[None]:
    advice = "Make room or choose another folder, and repeat the call."
    return explain(f"Cannot write records to {folder}", advice, OSError)


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    complete = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):  # cut off by a kill; its fit is repeated
            value = json.loads(line)
            if isinstance(value, dict):
                complete.append(value)
    return complete


def _read_lines(
    path: Path, lines: list[dict[str, Any]], weights: Iterable[float] = ()
) -> Recorded:
    header, *fits = lines
    if header.get("format") != FORMAT:
        raise PersistenceError(f"{path} does not contain records of a sweep.")
    if header["version"] != FORMAT_VERSION:
        raise PersistenceError(
            f"{path} has format version {header['version']!r}, this library reads "
            f"{FORMAT_VERSION}. Read it with the version of fferm that wrote it."
        )
    by_weight = {fit["fairness_weight"]: fit for fit in reversed(fits)}
    tried = [fit["fairness_weight"] for fit in fits]
    models = {
        weight: path.parent / MODELS / f"{path.stem}-{number:03d}.fferm"
        for number, weight in enumerate(
            dict.fromkeys([*header["weights"], *tried, *weights])
        )
    }
    return Recorded(header, by_weight, models)


def read_folder(folder: Path) -> list[Recorded]:
    """Return what the files of a folder hold, if their first line is complete."""
    with explain(f"Cannot read {folder}", "Choose another folder.", OSError):
        paths = sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []
        by_path = {path: _complete_lines(path) for path in paths}
    return [_read_lines(path, lines) for path, lines in by_path.items() if lines]


def claim_folder(folder: Path, headers: list[dict[str, Any]]) -> None:
    """Write what is swept to a folder; raise if it holds records of another sweep."""
    if folder.exists() and not folder.is_dir():
        raise PersistenceError(
            f"records must be a folder, which may be missing; {folder} is a file."
        )
    # A sweep that begins now waits, and then sees what this one is.
    with _writing(folder), locked(folder / ".lock", is_patient=True):
        recorded = [each.header for each in read_folder(folder)]
        for old, new in itertools.product(recorded, headers):
            _check_same(old, new, folder)
        known = [(old["curve"], old["seed"]) for old in recorded]
        for new in headers:
            if (new["curve"], new["seed"]) not in known:
                with open_records(folder, new):
                    pass


def _check_same(recorded: dict[str, Any], header: dict[str, Any], folder: Path) -> None:
    words = {"data": "rows", "weights": "fairness weights"}
    is_same_curve = recorded["curve"] == header["curve"]
    names = (
        ["data", "weights", "description", "settings"] if is_same_curve else ["data"]
    )
    other = [words.get(n, "settings") for n in names if recorded[n] != header[n]]
    begun, now = (each["description"].get("fferm") for each in (recorded, header))
    if begun != now:
        other.insert(0, f"versions of fferm ({begun}, now {now})")
    if other:
        raise PersistenceError(
            f"{folder} holds records of another sweep: its {other[0]} differ. Choose "
            "another folder, or repeat the call that began these records."
        )


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
            at = {**about, "fairness_weight": weight}
            if weight not in recorded.header["weights"]:
                at["refined"] = 1.0
            rows += [{**at, **measured} for measured in fit["measures"]]
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
    # Of a type, not its class, which pandas looks up without the process's warnings.
    number = np.dtype(np.float64)
    return frame.astype({n: number for n in frame if n not in NOT_NUMBERS})
