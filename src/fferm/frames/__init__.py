"""Whole data frames in, decisions out: mixed columns, gaps, labels and groups by name.

`FrameEncoder` learns from training rows how columns become numbers. `FrameClassifier`
holds one beside a fair classifier and the names of the columns that are predicted and
compared, so that a saved model is all that is needed to judge another file.
"""

from fferm.frames.classifier import FrameClassifier
from fferm.frames.encoder import FrameEncoder

__all__ = ["FrameClassifier", "FrameEncoder"]
