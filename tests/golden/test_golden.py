"""Every job gives what it gave before: fits, audits, curves, command lines."""

import json
from pathlib import Path

import pytest

for _package in ("torch", "lightgbm", "typer", "polars"):
    pytest.importorskip(_package)

from golden.compare import differences, largest  # noqa: E402 - after the packages
from golden.jobs import JOBS, TOLERANCE, run  # noqa: E402

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())


@pytest.mark.parametrize("name", JOBS)
def test_a_job_gives_what_it_gave_before(name):
    found = json.loads(json.dumps(run(name)))
    place, deviation = largest(GOLDEN[name], found)
    assert deviation <= TOLERANCE[name], f"{name}: {place} is off by {deviation:.1e}"


def test_the_golden_file_holds_the_jobs_and_nothing_else():
    assert sorted(GOLDEN) == sorted(JOBS)


@pytest.mark.parametrize(
    ("expected", "found", "deviation"),
    [
        ([1.0, 1e-9], [1.0, 2e-9], 1e-9),
        (2.0, 2.2, 0.2 / 2.2),
        ([3, 4], [3, 5], float("inf")),
        ({"n_iter": 50}, {"n_iter": 54}, 0.0),
        ({"n_iter": 50}, {"n_iter": 60}, float("inf")),
        ("a", "b", float("inf")),
        (True, 1, float("inf")),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, float("inf")),
        ([1.0], [1.0, 2.0], float("inf")),
    ],
)
def test_the_comparison_sees_what_differs(expected, found, deviation):
    worst = max(value for _, value in differences(expected, found))
    assert worst == pytest.approx(deviation)
