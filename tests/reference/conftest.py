"""Reference values of vectors.json: mpmath with 50 digits, rounded to 17 digits.

They were computed from the definitions, by none of the library's code; the entry
"schema" of the file says what each number is.
"""

import json
from pathlib import Path

import pytest

VECTORS = Path(__file__).with_name("vectors.json")


@pytest.fixture(scope="session")
def reference():
    return json.loads(VECTORS.read_text(encoding="utf-8"))
