"""The data sets that commands know by name."""

from collections.abc import Sequence
from typing import NamedTuple

from fferm import datasets


class Entry(NamedTuple):
    """A data set: what can be predicted and its sensitive columns, defaults first."""

    targets: tuple[str, ...]
    sensitive: tuple[str, ...]
    is_shipped: bool
    about: str


CATALOG = {
    "adult": Entry(("income",), ("sex",), True, "who earned more than 50,000 dollars"),
    "german": Entry(("good_risk",), ("sex",), True, "who is a good credit risk"),
    "compas": Entry(("two_year_recid",), ("race",), False, "who was charged again"),
    "acs_income": Entry(
        ("over_50k",), ("sex",), False, "who earns more than 50,000, California 2018"
    ),
    "gov_census": Entry(
        ("over_50k", "salary"),
        ("sex",),
        False,
        "which government employees earn more than 50,000 dollars, or how much",
    ),
}


def load(name: str, sensitive: Sequence[str], target: str) -> datasets.FairDataset:
    """Return a data set of the catalog with these sensitive columns and this target."""
    # A loader with one target does not ask which.
    options = {"target": target} if len(CATALOG[name].targets) > 1 else {}
    loader = getattr(datasets, f"load_{name}")
    data: datasets.FairDataset = loader(sensitive=tuple(sensitive), **options)
    return data
