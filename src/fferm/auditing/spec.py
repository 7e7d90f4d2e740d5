"""What an audit compares: by default what the model was trained for.

A search holds its winner and a pipeline its steps, so the fair classifier whose
parameters count may stand behind transformers. A control feature that such a
classifier knows by name or position is a column of what the transformers return, not
of the raw table that is passed to an audit.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from sklearn.pipeline import Pipeline

from fferm._typing import Table
from fferm.data.groups import BandEdges, GroupMode
from fferm.data.rows import control_labels
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.notions import Notion
from fferm.notions import get as get_notion
from fferm.registry import Registered

C = TypeVar("C", bound=Registered)


@dataclass(frozen=True)
class AuditSpec:
    """What an audit compared, and how: enough to repeat it.

    Attributes
    ----------
    notion, divergence
        As Python code; regressors have no divergence.
    groups, n_bootstrap, n_permutations, continuous
        As passed, or found in the estimator.
    random_state
        The seed; None if a generator was passed.
    is_weighted
        Whether there were sample weights.
    is_behind_pipeline
        Whether the control feature is a column of what a pipeline's transformers
        return; then only the model's own notion finds it.
    """

    notion: str
    groups: str
    n_bootstrap: int
    random_state: int | None
    is_weighted: bool = False
    is_behind_pipeline: bool = False
    divergence: str | None = None
    n_permutations: int | None = None
    continuous: tuple[str, ...] | str = "auto"


class Resolved(NamedTuple):
    """The notion, groups and divergence of an audit, with defaults filled in.

    Attributes
    ----------
    table
        Where a control feature is looked up.
    is_behind_pipeline
        Whether that is what a pipeline's transformers return.
    edges
        The band edges of sensitive numbers in training; empty if unknown.
    """

    notion: Notion
    groups: GroupMode
    divergence: Divergence
    table: Table
    is_behind_pipeline: bool
    edges: BandEdges


def resolve(
    estimator: Any,
    X: Table,
    n_samples: int,
    notion: str | Notion | None,
    groups: GroupMode | None,
    divergence: str | Divergence | None = None,
) -> Resolved:
    """Return what the caller asks for, else what the estimator was trained with."""
    model = _winner(estimator)
    compared = _resolve(model, "notion", notion, get_notion, "demographic_parity")
    chosen = _resolve(model, "divergence", divergence, get_divergence, "kl")
    mode = parameter_of(model, "groups") if groups is None else groups
    if groups is None and mode not in ("intersection", "marginal"):
        mode = "intersection"
    table, is_behind, last = X, False, model
    while isinstance(last, Pipeline):
        last = _winner(last[-1])
    control = compared.control_feature()
    if notion is None and isinstance(control, str | int | np.integer):
        table, is_behind = _transform(model, X)
        _check_control(compared, last, table, n_samples if is_behind else None)
    edges = getattr(last, "band_edges_", {})
    return Resolved(compared, mode, chosen, table, is_behind, edges)


def parameter_of(estimator: Any, name: str) -> Any:
    """Return a parameter of an estimator, or of one inside of it, else None."""
    parameters = _parameters(_winner(estimator))
    keys = [key for key in parameters if f"__{key}".endswith(f"__{name}")]
    # If several have the name, the outermost counts.
    return parameters[min(keys, key=len)] if keys else None


def _resolve(
    model: Any, name: str, passed: object, get: Callable[[Any], C], default: str
) -> C:
    if passed is not None:
        return get(passed)
    learned = getattr(model, f"{name}_", None)
    with suppress(InvalidParameterError):  # another library's parameter of that name
        return get(parameter_of(model, name) if learned is None else learned)
    return get(default)


def _parameters(estimator: Any) -> Mapping[str, Any]:
    with suppress(AttributeError, RuntimeError, TypeError):
        return cast(Mapping[str, Any], estimator.get_params())
    return {}


def _winner(estimator: Any) -> Any:
    return getattr(estimator, "best_estimator_", estimator)


def _transform(model: Any, X: Table) -> tuple[Table, bool]:
    # What reached the last step of a pipeline, and whether that is not X itself.
    is_behind = False
    while isinstance(model, Pipeline):
        # One by one: a slice of a pipeline asks a transformer that learns nothing
        # whether it is fitted. Steps that only draw rows have no transform.
        for _, step in model.steps[:-1]:
            if hasattr(step, "transform"):
                X, is_behind = step.transform(X), True
        model = _winner(model[-1])
    return X, is_behind


def _check_control(
    notion: Notion, model: Any, table: Table, n_samples: int | None
) -> None:
    control = notion.control_feature()
    advice = (
        "Pass its values, one per row: "
        f"audit(..., notion={type(notion).__name__}(values))."
    )
    if any(isinstance(part, Pipeline) for part in _parameters(model).values()):
        raise InvalidParameterError(
            f"The control feature {control!r} belongs to a pipeline inside of a "
            f"{type(model).__name__}, so it is unknown which table it is a column of. "
            f"{advice}"
        )
    if n_samples is None:
        return
    try:
        control_labels(notion, table, n_samples)
    except (InvalidInputError, InvalidParameterError) as error:
        raise InvalidParameterError(
            f"The control feature {control!r} was looked up in X after the pipeline's "
            f"transformers, as in training. {error} {advice}"
        ) from error
