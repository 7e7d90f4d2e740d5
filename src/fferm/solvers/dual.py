"""The dual table as the kernels take it, and who may ascend one."""

from dataclasses import dataclass

import numpy as np

from fferm.divergences import strip
from fferm.errors import InvalidParameterError
from fferm.penalty.dual import NO_GROUPS, GroupWeights, dual_variable, group_weights
from fferm.penalty.objective import Objective, Problem
from fferm.solvers._arrays import Dual
from fferm.solvers._pointers import log_ratio_pointer, projected_pointer

VARIABLES = ("auto", "log_ratio", "projected")


@dataclass(frozen=True)
class ChosenDual:
    """A dual at independence, the address of what reads it, the penalty's factor."""

    dual: Dual
    pointer: int
    scale: float


def make_dual(
    problem: Problem, n_lanes: int, *, solver: str, variable: str = "auto"
) -> ChosenDual:
    """Return the dual of independence, for a solver that ascends it.

    Parameters
    ----------
    problem
        Its penalty has to have a dual that is linear in the predictions.
    n_lanes
        How many duals.
    solver
        Who asks, for the message.
    variable
        ``"log_ratio"``, ``"projected"`` or ``"auto"``.
    """
    check_linear_dual(problem.objective, solver)
    return bind_dual(
        problem.objective, _group_weights(problem), problem.n_classes, n_lanes, variable
    )


def bind_dual(
    objective: Objective,
    weights: GroupWeights,
    n_classes: int,
    n_lanes: int,
    variable: str = "auto",
) -> ChosenDual:
    """Return the dual of independence for given weights of groups."""
    if variable not in VARIABLES:
        raise InvalidParameterError(
            f"dual={variable!r} came. Expected one of {', '.join(VARIABLES)}."
        )
    chosen = dual_variable(objective.divergence, variable)
    pointer = projected_pointer if chosen.is_projected else log_ratio_pointer
    n_strata, n_attributes = weights.share.shape
    dual = Dual(
        np.zeros((n_strata, n_classes, weights.prior.shape[1], n_lanes)),
        np.full((n_strata, n_classes, n_attributes, n_lanes), 1 / n_classes),
        weights.prior,
        weights.factor,
        weights.share,
        weights.ends,
        chosen.lower,
        chosen.upper(weights.prior),
        chosen.speed,
    )
    scale = strip(objective.divergence)[1]
    return ChosenDual(dual, pointer(chosen.divergence).address, scale)


def has_linear_dual(objective: Objective) -> bool:
    """Return whether the dual of a penalty is linear in the predictions."""
    return objective.uncertainty is None and not objective.notion.is_sufficiency


def check_linear_dual(objective: Objective, solver: str) -> None:
    """Refuse penalties whose dual is not linear in the predictions."""
    if not has_linear_dual(objective):
        what = objective.uncertainty or objective.notion
        raise InvalidParameterError(
            f"solver={solver!r} needs a penalty whose dual is linear in the "
            f"predictions, and that of {what!r} is not. Use solver='semi_stochastic' "
            "or 'lbfgs'."
        )


def _group_weights(problem: Problem) -> GroupWeights:
    if problem.penalty is None:
        return NO_GROUPS
    return group_weights(problem.penalty.rows, problem.objective.notion.weighting)
