"""Settings as Python: the code that makes a value again, and what it needs."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from fferm.registry import Registered


@dataclass(frozen=True)
class Spelling:
    """A value as code.

    Attributes
    ----------
    code
        An expression.
    imports
        The lines that it needs before it.
    notes
        Comments on the names in it that a reader has to fill in.
    """

    code: str
    imports: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def spell(value: object, name: str) -> Spelling:
    """Return a value as code; what has no short form becomes the variable ``name``.

    Examples
    --------
    >>> from fferm.notions import EqualOpportunity
    >>> spelling = spell(EqualOpportunity(positive="granted"), "notion")
    >>> spelling.code
    "EqualOpportunity(positive='granted')"
    >>> spelling.imports
    ('from fferm.notions import EqualOpportunity',)
    >>> spell(EqualOpportunity(), "notion").code
    "'equal_opportunity'"
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Registered):
        is_named = _is_plain(value)
        return Spelling(repr(value.name)) if is_named else _spell_component(value)
    if value is None or type(value) in (str, int, bool):
        return Spelling(repr(value))
    if isinstance(value, float):
        is_finite = math.isfinite(value)
        return Spelling(repr(value) if is_finite else f'float("{value}")')
    note = f"# {name}: what was given before, of type {type(value).__name__}."
    return Spelling(name, notes=(note,))


def spell_call(maker: type, arguments: dict[str, Spelling]) -> Spelling:
    """Return a call of a class with spelled arguments."""
    code = ", ".join(f"{name}={part.code}" for name, part in arguments.items())
    imports, notes = _home(maker)
    return Spelling(
        f"{maker.__name__}({code})",
        unique(
            [*imports, *(line for part in arguments.values() for line in part.imports)]
        ),
        unique([*notes, *(line for part in arguments.values() for line in part.notes)]),
    )


def spell_model(model: BaseEstimator, hidden: Collection[str] = ()) -> Spelling:
    """Return the call that makes an estimator, of parameters that are not the usual.

    ``hidden`` names parameters to leave out.
    """
    usual = _spelled_parameters(type(model)())
    changed = {
        name: value
        for name, value in _spelled_parameters(model).items()
        if name not in hidden and value != usual[name]
    }
    return spell_call(type(model), changed)


def unique(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines without repeats, in order."""
    return tuple(dict.fromkeys(lines))


def _spelled_parameters(model: BaseEstimator) -> dict[str, Spelling]:
    parameters = model.get_params(deep=False)
    return {name: spell(value, name) for name, value in parameters.items()}


def _spell_component(component: Registered) -> Spelling:
    # Inside of another component a name is no component.
    return spell_call(
        type(component),
        {
            name: _spell_component(value)
            if isinstance(value, Registered)
            else spell(value, name)
            for name, value in component.parameters().items()
        },
    )


def _is_plain(component: Registered) -> bool:
    # A name says all of a class of ours without other parameters than the usual.
    # Classes of others are known by name only once they are imported.
    if not type(component).__module__.startswith("fferm."):
        return False
    try:
        usual = type(component)()
    except TypeError:  # it has parameters without a default
        return False
    return repr(usual) == repr(component)


def _home(maker: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    # Ours are exported by the package that they are in.
    module, name = maker.__module__, maker.__qualname__
    if module.startswith("fferm."):
        module = ".".join(module.split(".")[:2])
    if module == "__main__" or "." in name:
        return (), (f"# {maker.__name__}: the class of your own script.",)
    return (f"from {module} import {name}",), ()
