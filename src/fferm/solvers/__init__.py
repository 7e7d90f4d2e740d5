"""Solvers, and their choice by name."""

from fferm.solvers.base import (
    LANES_FROM,
    LARGE_NUMBER,
    LINEAR,
    Monitor,
    Result,
    Solution,
    Solver,
    choose,
    make,
)
from fferm.solvers.lbfgs import LBFGS

__all__ = [
    "LANES_FROM",
    "LARGE_NUMBER",
    "LBFGS",
    "LINEAR",
    "Monitor",
    "Result",
    "Solution",
    "Solver",
    "choose",
    "make",
]
