"""The question that an audit asks: by default the one that the model was trained for.

A search holds its winner and a pipeline its steps, so the fair classifier whose
settings count may stand behind transformers. A control feature that such a classifier
knows by name or position is a column of what the transformers return, not of the raw
table that an audit is given.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

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

RAW = "X"
TRANSFORMED = "X after the pipeline's transformers"


@dataclass(frozen=True)
class Question:
    """What is asked of a model.

    Attributes
    ----------
    notion, groups, divergence
        What is compared, of whom, and how far from equal it is.
    table
        Where a control feature is looked up.
    looked_in
        What that table is called.
    """

    notion: Notion
    groups: GroupMode
    divergence: Divergence
    table: Table
    looked_in: str


def make_question(
    estimator: Any,
    X: Table,
    n_samples: int,
    notion: str | Notion | None,
    groups: GroupMode | None,
    divergence: str | Divergence | None,
) -> Question:
    """Return what the caller asks, else what the estimator was trained with."""
    kind = _resolved(estimator, "notion", notion, get_notion, "demographic_parity")
    chosen = _resolved(estimator, "divergence", divergence, get_divergence, "kl")
    table, looked_in = X, RAW
    if notion is None and isinstance(kind.control_feature(), str | int | np.integer):
        table, looked_in = _table_of_training(estimator, X, kind)
        if looked_in == TRANSFORMED:
            _check_control(kind, table, n_samples)
    return Question(kind, _mode(estimator, groups), chosen, table, looked_in)


def trained_edges(estimator: Any) -> BandEdges:
    """Return where bands of sensitive numbers met in training; empty if unknown."""
    fitted = _winner(estimator)
    while isinstance(fitted, Pipeline):
        fitted = _winner(fitted[-1])
    return cast(BandEdges, getattr(fitted, "band_edges_", {}))


def own_parameter(estimator: Any, name: str, default: object) -> Any:
    """Return a parameter of an estimator, or of one inside, else the default."""
    found = _own_parameter(estimator, name)
    return default if found is None else found


def _resolved(
    estimator: Any, name: str, given: object, get: Callable[[Any], C], default: str
) -> C:
    if given is not None:
        return get(given)
    learned = getattr(_winner(estimator), f"{name}_", None)
    with suppress(InvalidParameterError):  # another library's parameter of that name
        return get(_own_parameter(estimator, name) if learned is None else learned)
    return get(default)


def _mode(estimator: Any, groups: GroupMode | None) -> GroupMode:
    mode = _own_parameter(estimator, "groups") if groups is None else groups
    if groups is None and mode not in ("intersection", "marginal"):
        return "intersection"
    return cast(GroupMode, mode)


def _own_parameter(estimator: Any, name: str) -> Any:
    # Of several that carry the name the outermost counts.
    parameters = _parameters(_winner(estimator))
    keys = [key for key in parameters if f"__{key}".endswith(f"__{name}")]
    return parameters[min(keys, key=len)] if keys else None


def _parameters(estimator: Any) -> Mapping[str, Any]:
    with suppress(AttributeError, RuntimeError, TypeError):
        return cast(Mapping[str, Any], estimator.get_params())
    return {}


def _winner(estimator: Any) -> Any:
    return getattr(estimator, "best_estimator_", estimator)


def _table_of_training(estimator: Any, X: Table, notion: Notion) -> tuple[Table, str]:
    fitted, looked_in = _winner(estimator), RAW
    while isinstance(fitted, Pipeline):
        # One by one: a slice of a pipeline asks a transformer that learns nothing
        # whether it is fitted. Steps that only draw rows have no transform.
        for _, step in fitted.steps[:-1]:
            if hasattr(step, "transform"):
                X, looked_in = step.transform(X), TRANSFORMED
        fitted = _winner(fitted[-1])
    if any(isinstance(part, Pipeline) for part in _parameters(fitted).values()):
        raise InvalidParameterError(
            f"The control feature {notion.control_feature()!r} belongs to a pipeline "
            f"inside of a {type(fitted).__name__}, so it is unknown which table it is "
            f"a column of. {_advice(notion)}"
        )
    return X, looked_in


def _check_control(notion: Notion, table: Table, n_samples: int) -> None:
    try:
        control_labels(notion, table, n_samples)
    except (InvalidInputError, InvalidParameterError) as error:
        raise InvalidParameterError(
            f"The control feature {notion.control_feature()!r} was looked up in "
            f"{TRANSFORMED}, as training did. {error} {_advice(notion)}"
        ) from error


def _advice(notion: Notion) -> str:
    name = type(notion).__name__
    return f"Give its values, one per row: audit(..., notion={name}(values))."
