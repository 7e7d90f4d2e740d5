"""Fairness where a model runs: frozen scores, corrected where data have moved.

One noun: a `CorrectedClassifier` is a frozen scorer, of any library, and a correction
of its scores by cell of the table, that is by group and by domain. Scores go in,
decisions come out, and the scorer is never trained again.

Most corrections decide by group. That is lawful in some places and uses and not in
others, equal people may meet different thresholds, and a notion is equalized whether or
not the labels are just.
"""

from fferm.deploy.adapting import OffsetClassifier, adapt, recalibrate
from fferm.deploy.base import CorrectedClassifier
from fferm.deploy.controller import ParityController
from fferm.deploy.repairing import (
    FeatureRepair,
    GroupRepair,
    RepairedClassifier,
    repair,
)

__all__ = [
    "CorrectedClassifier",
    "FeatureRepair",
    "GroupRepair",
    "OffsetClassifier",
    "ParityController",
    "RepairedClassifier",
    "adapt",
    "recalibrate",
    "repair",
]
