"""Whole data frames in, decisions out: mixed columns, gaps, labels and groups by name.

`FrameEncoder` learns from training rows how columns become numbers. `FrameClassifier`
and `FrameRegressor` hold one beside a fair estimator and the names of the columns that
are predicted and compared, so that a saved model is all that is needed to judge another
file.
"""

from fferm.frames.classifier import FrameClassifier
from fferm.frames.encoder import FrameEncoder
from fferm.frames.model import FrameModel
from fferm.frames.regressor import FrameRegressor

__all__ = ["FrameClassifier", "FrameEncoder", "FrameModel", "FrameRegressor"]
