"""The data sets that commands know by name."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from fferm.datasets import FairDataset


@dataclass(frozen=True)
class Entry:
    """A data set: its loader, and the default target and sensitive columns."""

    loader: str
    target: str
    sensitive: tuple[str, ...]
    is_shipped: bool
    about: str
    numbers: tuple[str, ...] = ()  # further targets; the loader takes their name

    @property
    def targets(self) -> tuple[str, ...]:
        """What can be predicted."""
        return (self.target, *self.numbers)

    def load(self, sensitive: Sequence[str], target: str) -> FairDataset:
        """Return the data set with these sensitive columns and this target."""
        loader = getattr(importlib.import_module("fferm.datasets"), self.loader)
        options = {"target": target} if self.numbers else {}
        data: FairDataset = loader(sensitive=tuple(sensitive), **options)
        return data


CATALOG = {
    "adult": Entry(
        "load_adult", "income", ("sex",), True, "who earned more than 50,000 dollars"
    ),
    "german": Entry(
        "load_german", "good_risk", ("sex",), True, "who is a good credit risk"
    ),
    "compas": Entry(
        "load_compas", "two_year_recid", ("race",), False, "who was charged again"
    ),
    "acs_income": Entry(
        "load_acs_income",
        "over_50k",
        ("sex",),
        False,
        "who earns more than 50,000, California 2018",
    ),
    "gov_census": Entry(
        "load_gov_census",
        "over_50k",
        ("sex",),
        False,
        "which government employees earn more than 50,000 dollars, or how much",
        ("salary",),
    ),
}
