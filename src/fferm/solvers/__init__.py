"""Solvers, and their choice by name."""

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from fferm.errors import UnknownNameError
from fferm.fairness_grid import weight_range
from fferm.penalty.objective import Objective
from fferm.registry import unknown_name
from fferm.solvers.base import Monitor, Result, Solution, Solver
from fferm.solvers.lbfgs import LBFGS

__all__ = [
    "LBFGS",
    "Monitor",
    "Result",
    "Solution",
    "Solver",
    "choose",
    "make",
]

# Where the solver of linear models lives that a name stands for. Kernels are imported
# when they are asked for: compiling is not free.
LINEAR = {
    "lbfgs": ("fferm.solvers.lbfgs", "LBFGS"),
    "semi_stochastic": ("fferm.solvers.semi_stochastic", "SemiStochastic"),
    "sgda": ("fferm.solvers.sgda", "SGDA"),
    "sreda": ("fferm.solvers.sreda", "SREDA"),
}


# From so many models and numbers in X on, `auto` trains the models of a path as lanes:
# the full batch would take ten times as long. A single model is worth its exact optimum
# until that takes minutes.
LANES_FROM = 4
PATH_FROM = 500_000
SINGLE_FROM = 200_000_000
# How far beyond the default range a weight counts as rounding.
ROUNDING = 1e-9


def choose(
    name: str, objective: Objective, n_numbers: int, weights: Sequence[float]
) -> str:
    """Return the name of the solver to use.

    Parameters
    ----------
    name
        A solver, or ``"auto"``.
    objective
        What is minimised.
    n_numbers
        Rows times columns of X.
    weights
        The fairness weights that are trained for.
    """
    if name in LINEAR:
        return name
    if name != "auto":
        known = tuple(sorted(("auto", *LINEAR)))
        raise UnknownNameError(unknown_name("solver", str(name), known))
    enough = PATH_FROM if len(weights) >= LANES_FROM else SINGLE_FROM
    if n_numbers < enough or not objective.has_linear_dual:
        return "lbfgs"
    # Minibatches are noisy where the penalty is all that counts.
    largest = weight_range(objective.divergence)[1] * (1 + ROUNDING)
    return "lbfgs" if max(weights, default=0.0) > largest else "sgda"


def make(name: str, options: dict[str, Any]) -> Solver[Any]:
    """Return a solver of linear models, which takes the options that it knows."""
    module, class_name = LINEAR[name]
    solver = getattr(importlib.import_module(module), class_name)
    known = {field.name for field in dataclasses.fields(solver)}
    return solver(**{k: v for k, v in options.items() if k in known})  # type: ignore[no-any-return]
