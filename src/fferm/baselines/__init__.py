"""Rival methods, one file each, with one signature.

Every rival has ``fit(X, y, *, sensitive_features)``, declares which parameter trades
accuracy for fairness (``tradeoff_param``, ``tradeoff_values``), and says in its
docstring where it is from and what differs from the original. Rivals that only add a
penalty share one compiled loop, so that they differ from each other and from f-FERM in
the penalty alone.
"""

from fferm.baselines.agarwal import ExponentiatedGradient, ReductionsGrid
from fferm.baselines.baharlouei import RenyiFairInference
from fferm.baselines.base import Baseline, Rows, Target
from fferm.baselines.buyl import FairretNorm
from fferm.baselines.cho import KernelDensityClassifier
from fferm.baselines.constrained import ConstrainedBaseline
from fferm.baselines.donini import LinearFERM
from fferm.baselines.hardt import ThresholdPostprocessing
from fferm.baselines.jiang import WassersteinClassifier
from fferm.baselines.lowy import Fermi
from fferm.baselines.mary import KernelChiSquare
from fferm.baselines.penalized import PenalizedBaseline
from fferm.baselines.prost import KernelMatching
from fferm.baselines.rezaei import RobustCovariateShift
from fferm.baselines.taskesen import WassersteinRobust
from fferm.baselines.wang_2020 import NoisyGroupsRobust
from fferm.baselines.wang_2023 import CurvatureMatching
from fferm.baselines.zafar import CovarianceConstraint
from fferm.baselines.zemel import LearnedFairRepresentations

__all__ = [
    "Baseline",
    "ConstrainedBaseline",
    "CovarianceConstraint",
    "CurvatureMatching",
    "ExponentiatedGradient",
    "FairretNorm",
    "Fermi",
    "KernelChiSquare",
    "KernelDensityClassifier",
    "KernelMatching",
    "LearnedFairRepresentations",
    "LinearFERM",
    "NoisyGroupsRobust",
    "PenalizedBaseline",
    "ReductionsGrid",
    "RenyiFairInference",
    "RobustCovariateShift",
    "Rows",
    "Target",
    "ThresholdPostprocessing",
    "WassersteinClassifier",
    "WassersteinRobust",
]
