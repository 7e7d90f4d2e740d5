"""Other methods of fair classification, one file each, with one signature.

Every baseline has ``fit(X, y, *, sensitive_features)``, declares which parameter trades
accuracy for fairness (``tradeoff_param``, ``tradeoff_values``), and says in its
docstring where it is from and what differs from the original. Baselines that only add a
penalty share one compiled loop, so that they differ from each other and from f-FERM in
the penalty alone.
"""

from fferm.lab.baselines.agarwal import ExponentiatedGradient, ReductionsGrid
from fferm.lab.baselines.baharlouei import RenyiFairInference
from fferm.lab.baselines.base import Baseline, LinearBaseline, Target, TrainingRows
from fferm.lab.baselines.buyl import FairretNorm
from fferm.lab.baselines.cho import KernelDensityClassifier
from fferm.lab.baselines.constrained import ConstrainedBaseline
from fferm.lab.baselines.donini import LinearFERM
from fferm.lab.baselines.hardt import ThresholdPostprocessing
from fferm.lab.baselines.jiang import WassersteinClassifier
from fferm.lab.baselines.lowy import Fermi
from fferm.lab.baselines.mary import KernelChiSquare
from fferm.lab.baselines.penalized import PenalizedBaseline
from fferm.lab.baselines.prost import KernelMatching
from fferm.lab.baselines.rezaei import RobustCovariateShift
from fferm.lab.baselines.taskesen import WassersteinRobust
from fferm.lab.baselines.wang_2020 import NoisyGroupsRobust
from fferm.lab.baselines.wang_2023 import CurvatureMatching
from fferm.lab.baselines.zafar import CovarianceConstraint
from fferm.lab.baselines.zemel import LearnedFairRepresentations

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
    "LinearBaseline",
    "LinearFERM",
    "NoisyGroupsRobust",
    "PenalizedBaseline",
    "ReductionsGrid",
    "RenyiFairInference",
    "RobustCovariateShift",
    "Target",
    "ThresholdPostprocessing",
    "TrainingRows",
    "WassersteinClassifier",
    "WassersteinRobust",
]
