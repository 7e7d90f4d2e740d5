"""Solvers, and their choice by name."""

import dataclasses
import importlib
from typing import Any

from fferm.components import unknown_name
from fferm.errors import UnknownNameError
from fferm.solvers.base import Monitor, Result, Solution, Solver
from fferm.solvers.lbfgs import LBFGS

__all__ = ["LBFGS", "Monitor", "Result", "Solution", "Solver", "make"]

# Where the solver of linear models lives that a name stands for. Kernels are imported
# when they are asked for: compiling is not free.
LINEAR = {
    "auto": ("fferm.solvers.lbfgs", "LBFGS"),
    "lbfgs": ("fferm.solvers.lbfgs", "LBFGS"),
    "semi_stochastic": ("fferm.solvers.semi_stochastic", "SemiStochastic"),
    "sgda": ("fferm.solvers.linear_sgda", "SGDA"),
    "sreda": ("fferm.solvers.sreda", "SREDA"),
}


def make(name: str, options: dict[str, Any]) -> Solver[Any]:
    """Return a solver of linear models, which takes the options that it knows."""
    if name not in LINEAR:
        raise UnknownNameError(unknown_name("solver", str(name), tuple(sorted(LINEAR))))
    module, kind = LINEAR[name]
    solver = getattr(importlib.import_module(module), kind)
    known = {field.name for field in dataclasses.fields(solver)}
    return solver(**{k: v for k, v in options.items() if k in known})  # type: ignore[no-any-return]
