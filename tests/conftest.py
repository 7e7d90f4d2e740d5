"""Where the tests find data and a browser, and which random numbers they draw.

Data are in FFERM_DATA_HOME, else in shared/data beside the checkout.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from fferm.registry import Registered

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BESIDE_CHECKOUT = Path(__file__).parents[2] / "shared" / "data"

# The examples of hypothesis are the same in every run, and others in each with
# --hypothesis-profile=random. On a busy machine one may take long.
PROFILE = settings(database=None, deadline=None)
settings.register_profile("same", PROFILE, derandomize=True)
settings.register_profile("random", PROFILE, derandomize=False)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run():
    """Seed what ``random_state=None`` draws from, so that no test passes by luck."""
    np.random.seed(0)  # noqa: NPY002 - scikit-learn's own source of random numbers


@pytest.fixture
def data_file(monkeypatch):
    """Return a function that finds a data file or skips the test."""
    home = Path(os.environ.get("FFERM_DATA_HOME") or BESIDE_CHECKOUT).expanduser()

    def find(name):
        if not (home / name).exists():
            pytest.skip(f"{name} not found; set FFERM_DATA_HOME")
        monkeypatch.setenv("FFERM_DATA_HOME", str(home))
        return home / name

    return find


@pytest.fixture(scope="module")
def browser():
    """Start a browser without a window, or skip the test."""
    playwright = pytest.importorskip(
        "playwright.sync_api",
        reason="playwright is not installed: pip install -e .[dev]",
    )
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        # A container has no sandbox to offer.
        chromium = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def only_ours(monkeypatch):
    """Leave out the components that other tests have registered."""
    items = Registered._registry.items()
    ours = {key: each for key, each in items if each.__module__.startswith("fferm.")}
    monkeypatch.setattr(Registered, "_registry", ours)
