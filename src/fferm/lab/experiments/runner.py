"""The runner: from a spec to records in a file, gone on with where it stopped."""

import contextlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from fferm.data.validate import encode_labels
from fferm.errors import FfermWarning, InvalidParameterError, UnknownNameError
from fferm.lab.experiments.methods import (
    Point,
    fit_sweep,
    make_model,
    takes_part,
    trade_offs,
)
from fferm.lab.experiments.parts import Part, load_parts
from fferm.lab.experiments.specs import SIZES, Method, Panel, Size, Spec, read_spec
from fferm.metrics.tabulator import Tabulator, make_tabulator
from fferm.notions import get as get_notion
from fferm.registry import unknown_name

Record = dict[str, Any]


class Task(NamedTuple):
    """One sweep: a method in a panel with a seed."""

    panel: Panel
    method: Method
    seed: int
    choice: float | None = None

    @property
    def key(self) -> str:
        """What records of the task are known by."""
        name = f"{self.panel.name} | {self.method.label} | {self.seed}"
        return name if self.choice is None else f"{name} | {self.choice:g}"


def run(  # noqa: PLR0913 - one call states all that a run depends on
    name: str,
    size: str = "small",
    out: str | os.PathLike[str] = "reproduced",
    data_home: str | os.PathLike[str] | None = None,
    *,
    only: Sequence[str] = (),
    first_seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run an experiment, write records, figure and table, and return the records.

    Parameters
    ----------
    name
        ``"fig1"`` to ``"fig5"``.
    size
        ``"small"``, minutes on two cores, or ``"full"``, what the documentation shows.
    out
        The folder to write to: ``fig1-small.jsonl`` (records, which a later call goes
        on from), ``fig1-small.png`` and ``fig1-small.md``.
    data_home
        The folder of data files, in place of ``FFERM_DATA_HOME``.
    only
        Labels of the methods to run; none runs all. What other methods left in the
        folder is drawn beside them.
    first_seed
        The first of the seeds. Others than those of the documentation, in a folder of
        their own, say whether what was chosen while looking at it still holds.
    n_jobs
        Parallel processes, through joblib.
    progress
        Whether to show progress.

    Returns
    -------
    DataFrame
        One row per value, seed and part that was judged.
    """
    spec = read_spec(name)
    if size not in SIZES:
        raise InvalidParameterError(
            f"size={size!r} came. Expected one of {', '.join(SIZES)}."
        )
    if first_seed < 0:
        raise InvalidParameterError(
            f"first_seed={first_seed!r} came. Expected a whole number from 0 on."
        )
    labels = tuple(method.label for method in spec.methods)
    for label in only:
        if label not in labels:
            raise UnknownNameError(unknown_name("method", label, labels))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{size}.jsonl"
    with _environment(data_home):
        found = tasks_of(spec, spec.sizes[size], first_seed)
        tasks = [task for task in found if not only or task.method.label in only]
        records = _run_missing(tasks, spec.sizes[size], file, n_jobs, progress)
    from fferm.report import write_experiment

    write_experiment(spec, records, folder / f"{name}-{size}")
    return records


def tasks_of(spec: Spec, size: Size, first_seed: int = 0) -> list[Task]:
    """Return all tasks of an experiment."""
    return [
        Task(panel, method, seed, choice)
        for panel in spec.panels
        for seed in range(first_seed, first_seed + size.seeds)
        for method in spec.methods
        if takes_part(method, panel)
        for choice in method.among or (None,)
    ]


def read_records(file: Path) -> list[Record]:
    """Return the records of a file; a line that was cut off is left out."""
    records = []
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                records.extend(json.loads(line))
    return records


def _run_missing(
    tasks: list[Task], size: Size, file: Path, n_jobs: int | None, progress: bool
) -> pd.DataFrame:
    records = read_records(file)
    done = {record["task"] for record in records}
    missing = [task for task in tasks if task.key not in done]
    batches = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
        delayed(run_task)(task, size) for task in missing
    )
    # One line a task: a run that is cut off loses no task that had ended.
    with file.open("a", encoding="utf-8") as target:
        for found in _shown(batches, len(missing), file.stem, progress):
            target.write(json.dumps(found) + "\n")
            target.flush()
            records.extend(found)
    return pd.DataFrame(records)


def run_task(task: Task, size: Size) -> list[Record]:
    """Return the records of one sweep."""
    panel, seed = task.panel, task.seed
    method = task.method.at(task.choice)
    with warnings.catch_warnings():
        # Collapsed and unfinished points are in the records; a warning each is noise.
        warnings.simplefilter("ignore", FfermWarning)
        parts = load_parts(panel, size, seed)
        model = make_model(method, panel, seed)
        judged = dict(parts.judged)
        if method.penalty_on_target and parts.target is not None:
            judged["train"] = parts.target  # where the penalty was taken
        settings = {name: _setting(part, panel.notion) for name, part in judged.items()}
        return [
            {
                "task": task.key,
                "panel": panel.name,
                "method": method.label,
                "seed": seed,
                "choice": task.choice,
                "part": name,
                **_judge(point, part, settings[name]),
            }
            for point in fit_sweep(
                method, model, parts, trade_offs(method, model, size.n_values)
            )
            for name, part in judged.items()
        ]


def _setting(part: Part, notion: str) -> Tabulator:
    labels = encode_labels(part.y, len(part.y), (0, 1), "y")
    groups = part.sensitive_features
    return make_tabulator(labels, get_notion(notion), groups, "intersection", None)


def _judge(point: Point, part: Part, setting: Tabulator) -> Record:
    chance = point.chances(part)
    right = chance[np.arange(len(part.y)), part.y]
    rate = chance[:, 1].mean()
    return {
        "value": point.value,
        "accuracy": float(right.mean()),
        "violation": setting.violations(chance).worst,
        "collapsed": bool(rate in (0.0, 1.0)),
        "seconds": point.seconds,
    }


def _shown(
    batches: Iterable[list[Record]], total: int, name: str, progress: bool
) -> Iterator[list[Record]]:
    """Yield batches while showing how many there were."""
    if not progress:
        yield from batches
        return
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        for count, found in enumerate(batches, 1):
            sys.stderr.write(f"\r{name}: {count} of {total}")
            yield found
        sys.stderr.write("\n")
        return
    yield from tqdm(batches, total=total, desc=name, unit="sweep")


@contextlib.contextmanager
def _environment(data_home: str | os.PathLike[str] | None) -> Iterator[None]:
    """Point the loaders, of worker processes too, at a folder of data files."""
    before = os.environ.get("FFERM_DATA_HOME")
    if data_home is not None:
        os.environ["FFERM_DATA_HOME"] = os.fspath(data_home)
    try:
        yield
    finally:
        if data_home is not None:
            os.environ.pop("FFERM_DATA_HOME")
            if before is not None:
                os.environ["FFERM_DATA_HOME"] = before
