"""Where the tests find data: FFERM_DATA_HOME, else shared/data beside the checkout."""

import os
from pathlib import Path

import pytest

BESIDE_CHECKOUT = Path(__file__).parents[2] / "shared" / "data"


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
