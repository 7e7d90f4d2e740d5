"""The reference values, computed with 50 digits, where they are at hand."""

import json
from pathlib import Path

import pytest

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "vectors.json"


@pytest.fixture(scope="session")
def reference():
    if not VECTORS.exists():
        pytest.skip("vectors.json, the reference values, is not beside this checkout")
    return json.loads(VECTORS.read_text())
