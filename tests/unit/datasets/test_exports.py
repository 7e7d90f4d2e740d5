"""What fferm.datasets offers."""

import inspect
from pathlib import Path

import pytest

import fferm.datasets
from fferm.datasets import synthetic
from fferm.datasets._store import CATALOG


def test_the_public_names_are_sorted_and_complete():
    public = {
        name
        for name, value in vars(fferm.datasets).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert fferm.datasets.__all__ == sorted(public)


def test_every_data_set_file_has_an_exported_function():
    folder = Path(fferm.datasets.__file__).parent
    files = {path.stem for path in folder.glob("[a-z]*.py")}
    exported = (getattr(fferm.datasets, name) for name in fferm.datasets.__all__)
    assert files == {
        value.__module__.rpartition(".")[2]
        for value in exported
        if inspect.isfunction(value)
    }


@pytest.mark.parametrize(
    ("name", "source", "terms"),
    [
        ("adult", "doi 10.24432/C5XW20", "CC BY 4.0"),
        ("german", "doi 10.24432/C5NC77", "CC BY 4.0"),
        ("compas", "propublica/compas-analysis", "states no licence"),
        ("acs_income", "dssg/aequitas", "terms of use"),
        ("gov_census", "fairadapt", "GPL"),
        ("synthetic", "make_biased", "licence"),
    ],
)
def test_every_description_names_source_terms_and_harm(name, source, terms):
    is_drawn = name == "synthetic"
    text = synthetic.DESCRIPTION if is_drawn else CATALOG[name].description
    assert source in text
    assert terms in text
    assert "Harm: " in text
