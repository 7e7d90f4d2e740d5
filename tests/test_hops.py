"""A reader follows one job of a user through few files, functions and frames."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fferm

for _package in ("torch", "lightgbm"):
    pytest.importorskip(_package)

# The most files, functions and frames at once; lower them, never raise them.
CEILING = {
    "linear fit": (13, 110, 14),
    "linear fit, sgda": (21, 158, 13),
    "predict": (3, 8, 6),
    "audit": (15, 118, 8),
    "tradeoff_curve": (23, 190, 18),
    "boosting fit": (18, 131, 10),
    "regression fit": (16, 117, 15),
    "FairnessLoss.from_labels": (11, 64, 7),
    "FairnessLoss.forward": (4, 19, 5),
    "net fit": (17, 183, 14),
    "save and load": (4, 26, 13),
}
SCRIPT = Path(__file__).with_name("hops.py")


def run():
    """Return the counts of every job, in a process where nothing is imported yet."""
    source = str(Path(fferm.__file__).parents[1])
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def is_above(counts):
    return any(
        number > most
        for name, ceiling in CEILING.items()
        for number, most in zip(counts[name], ceiling, strict=True)
    )


@pytest.fixture(scope="module")
def counts():
    """The counts, with compiled kernels in their cache: compiling runs code of ours."""
    found = run()
    return run() if is_above(found) else found


@pytest.mark.parametrize("name", CEILING)
def test_a_job_runs_through_few_of_our_files_and_functions(name, counts):
    for what, number, most in zip(
        ("files", "functions", "frames at once"),
        counts[name],
        CEILING[name],
        strict=True,
    ):
        assert number <= most, f"{name}: {number} {what}, the ceiling is {most}"


def test_every_job_has_a_ceiling(counts):
    assert list(counts) == list(CEILING)
