"""Other methods of fair classification, with one signature.

Every baseline has ``fit(X, y, *, sensitive_features)``, declares which parameter trades
accuracy for fairness (``tradeoff_param``, ``tradeoff_values``), and says in its
docstring where it is from and what differs from the original. Those that only add a
penalty share one compiled loop (`penalized`), so that they differ from each other and
from f-FERM in the penalty alone. Nothing outside of `fferm.lab` and `fferm.testing`
imports them.
"""

from fferm.lab.baselines.base import Baseline, LinearBaseline, TrainingRows
from fferm.lab.baselines.constrained import (
    ConstrainedBaseline,
    CovarianceConstraint,
    LinearFERM,
)
from fferm.lab.baselines.fairlearn import (
    ExponentiatedGradient,
    ReductionsGrid,
    RelaxedThresholds,
    ThresholdPostprocessing,
)
from fferm.lab.baselines.penalized import PenalizedBaseline
from fferm.lab.baselines.penalties import (
    CurvatureMatching,
    EnergyDistance,
    FairretNorm,
    Fermi,
    IndependenceCriterion,
    KernelChiSquare,
    KernelDensityClassifier,
    KernelMatching,
    MinMaxDivergence,
    NoisyGroupsRobust,
    RenyiFairInference,
    WassersteinClassifier,
)
from fferm.lab.baselines.representations import LearnedFairRepresentations
from fferm.lab.baselines.robust import RobustCovariateShift, WassersteinRobust

__all__ = [
    "Baseline",
    "ConstrainedBaseline",
    "CovarianceConstraint",
    "CurvatureMatching",
    "EnergyDistance",
    "ExponentiatedGradient",
    "FairretNorm",
    "Fermi",
    "IndependenceCriterion",
    "KernelChiSquare",
    "KernelDensityClassifier",
    "KernelMatching",
    "LearnedFairRepresentations",
    "LinearBaseline",
    "LinearFERM",
    "MinMaxDivergence",
    "NoisyGroupsRobust",
    "PenalizedBaseline",
    "ReductionsGrid",
    "RelaxedThresholds",
    "RenyiFairInference",
    "RobustCovariateShift",
    "ThresholdPostprocessing",
    "TrainingRows",
    "WassersteinClassifier",
    "WassersteinRobust",
]
