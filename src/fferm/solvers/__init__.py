"""Solvers, and their choice by name."""

from fferm.components import unknown_name
from fferm.errors import UnknownNameError
from fferm.solvers.base import Monitor, Result, Solution, Solver
from fferm.solvers.lbfgs import LBFGS

__all__ = ["LBFGS", "Monitor", "Result", "Solution", "Solver", "choose"]

# "auto" is the best that is known for a linear model.
LINEAR = {"auto": LBFGS, "lbfgs": LBFGS}


def choose(name: str) -> type[LBFGS]:
    """Return the solver of linear models that a name stands for."""
    if name not in LINEAR:
        raise UnknownNameError(unknown_name("solver", str(name), tuple(sorted(LINEAR))))
    return LINEAR[name]
