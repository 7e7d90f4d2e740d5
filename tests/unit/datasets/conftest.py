"""A data folder that holds nothing."""

import pytest


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    """Return an empty data folder that the loaders look in."""
    home = tmp_path / "home"
    monkeypatch.setenv("FFERM_DATA_HOME", str(home))
    return home
