"""The examples of other frameworks run where they are installed."""

import importlib.util
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"
if not EXAMPLES.is_dir():
    pytest.skip("examples/ is not beside the tests", allow_module_level=True)


@pytest.mark.parametrize("framework", ["lightning", "accelerate", "skorch"])
@pytest.mark.filterwarnings("ignore")  # theirs, and they differ between versions
def test_the_penalty_works_within_a_framework(framework, tmp_path, monkeypatch):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: pip install 'fferm[integrations]'")
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / f"with_{framework}.py"))
    plain, fair = example["train"](0.0, 1), example["train"](10.0, 1)
    assert plain > 0.1
    assert fair < plain / 2


def test_a_text_classifier_looks_at_merit_and_not_at_names():
    example = runpy.run_path(str(EXAMPLES / "text_classifier.py"))
    plain, fair = example["train"](0.0), example["train"](5.0)
    assert plain["gap"] > 0.5
    assert fair["gap"] < 0.1
    assert fair["accuracy"] > plain["accuracy"] + 0.2
