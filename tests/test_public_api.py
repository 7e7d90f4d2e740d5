"""Public names, their parameters and defaults, and the commands stay as they are."""

import json
from functools import cache

import pytest

for _package in ("torch", "lightgbm", "typer", "transformers", "opacus"):
    pytest.importorskip(_package)

import public_api  # noqa: E402 - after the packages

EXPECTED = json.loads(public_api.FILE.read_text())
DESCRIBE_AGAIN = "if it is meant: python tests/public_api.py"


@cache
def found():
    return json.loads(json.dumps(public_api.describe()))


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, names in EXPECTED["modules"].items() for name in names],
)
def test_a_public_name_has_the_parameters_and_defaults_it_had(module, name):
    expected = EXPECTED["modules"][module][name]
    assert found()["modules"][module].get(name) == expected, DESCRIBE_AGAIN


@pytest.mark.parametrize("module", EXPECTED["modules"])
def test_a_module_has_the_public_names_it_had(module):
    names = found()["modules"][module]
    assert sorted(names) == sorted(EXPECTED["modules"][module]), DESCRIBE_AGAIN


@pytest.mark.parametrize("name", EXPECTED["returned"])
def test_a_result_has_the_attributes_and_methods_it_had(name):
    assert found()["returned"][name] == EXPECTED["returned"][name], DESCRIBE_AGAIN


def test_errors_and_warnings_are_caught_by_the_names_they_had():
    assert found()["errors"] == EXPECTED["errors"], DESCRIBE_AGAIN


@pytest.mark.parametrize("name", EXPECTED["commands"])
def test_a_command_has_the_options_and_defaults_it_had(name):
    assert found()["commands"][name] == EXPECTED["commands"][name], DESCRIBE_AGAIN


def test_nothing_that_is_described_is_missing():
    assert "missing" not in json.dumps(EXPECTED)
