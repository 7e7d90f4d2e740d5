"""Data sets with labels and sensitive features, split and ready for a model.

One data set per file. Each loader returns a :class:`FairDataset`, whose description
names the source, the licence and who may be harmed by careless use. Adult and German
ship with the package; the others are files of the user's data folder.
"""

from fferm.datasets._dataset import FairDataset
from fferm.datasets.acs_income import load_acs_income
from fferm.datasets.adult import load_adult
from fferm.datasets.compas import load_compas
from fferm.datasets.german import load_german
from fferm.datasets.gov_census import load_gov_census
from fferm.datasets.synthetic import biased_rates, make_biased

__all__ = [
    "FairDataset",
    "biased_rates",
    "load_acs_income",
    "load_adult",
    "load_compas",
    "load_german",
    "load_gov_census",
    "make_biased",
]
