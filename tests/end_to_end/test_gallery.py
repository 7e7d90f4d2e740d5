"""The examples of the gallery run, draw their pictures, and are all shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "examples").is_dir():
    pytest.skip("examples/ is not beside the tests", allow_module_level=True)

# demo.py has a test of its own.
PICTURES = (
    "against_fairlearn",
    "who_pays",
    "six_divergences",
    "tiny_batches",
    "tune_for_the_target",
)


@pytest.mark.parametrize("name", PICTURES)
def test_an_example_runs_and_draws_its_picture(name, tmp_path):
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", ROOT / "examples" / f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert f"wrote {name}.png" in done.stdout


def test_every_picture_is_in_the_gallery():
    gallery = ROOT / "docs" / "gallery.md"
    if not gallery.exists():
        pytest.skip("docs/ is not beside the tests")
    text = gallery.read_text(encoding="utf-8")
    shown = re.findall(r"\(((?:images|assets)/(\w+)\.png)\)", text)
    assert {*PICTURES, "adult"} == {name for _, name in shown}
    for path, _ in shown:
        assert (ROOT / "docs" / path).exists()
