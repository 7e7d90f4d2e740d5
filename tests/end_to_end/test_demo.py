"""The demo that newcomers run first: its table, its sentences and its report."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.py"
SAID = re.compile(
    r"rates differ by (\d+) points .* a gap of (\d+) points costs (\d\.\d) points"
)
LINE = re.compile(r"^[* ] (\S+) +(\d\.\d{4}) +(\d\.\d{4}) +(\d\.\d{4}) +(\d\.\d{4})$")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo once, in a folder of its own, with warnings as errors."""
    if not DEMO.exists():
        pytest.skip("the examples are not beside the tests")
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(DEMO)],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "report.png").stat().st_size > 10_000
    return done.stdout, (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def table(demo):
    found = [LINE.match(line) for line in demo[0].splitlines()]
    return [[float(cell) for cell in line.groups()] for line in found if line]


def test_the_demo_prints_twenty_models_that_trade_accuracy_for_fairness(table):
    assert len(table) == 20
    assert [row[0] for row in table] == sorted(row[0] for row in table)
    plain, fairest = table[0], min(table, key=lambda row: row[2])
    assert plain[0] == 0
    assert plain[1] > 0.84
    assert plain[2] > 0.15
    assert fairest[1] > 0.80
    assert fairest[2] < 0.03


def test_the_demo_marks_the_best_trade_offs(demo):
    lines = [line for line in demo[0].splitlines() if LINE.match(line)]
    assert 1 < sum(line.startswith("*") for line in lines) <= 20


def test_the_demo_says_what_fairness_costs_and_where_the_report_is(demo, table):
    text = demo[0]
    assert re.search(r"plain model is right for 8\d\.\d% of people", text)
    chosen = max((row for row in table if row[2] <= 0.05), key=lambda row: row[1])
    assert f"With fairness_weight={chosen[0]:.4g}" in text
    assert re.search(r"are in \S.*report\.html,$", text, re.MULTILINE)
    assert re.search(r"picture alone is in \S.*report\.png$", text.strip())
    assert re.search(r"took \d+ s", text)


def test_the_gallery_says_what_the_demo_prints(table):
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    gap, left, cost = map(float, SAID.search(" ".join(text.split())).groups())
    plain = table[0]
    assert 100 * plain[2] == pytest.approx(gap, abs=0.5)
    (chosen,) = (row for row in table if round(100 * row[2]) == left)
    assert 100 * (plain[1] - chosen[1]) == pytest.approx(cost, abs=0.06)


def test_the_report_of_the_demo_has_picture_table_and_groups(demo, table):
    page = demo[1]
    assert "<svg" in page
    for row in table:
        assert f"{100 * row[2]:.2f}\N{NO-BREAK SPACE}%" in page
    for group in ("Female × Black", "Female × White", "Male × Black", "Male × White"):
        assert f"<bdi>{group}</bdi>" in page
