"""Small named pieces that a user can add to: divergences, notions, uncertainty sets.

A component is a frozen dataclass: its fields are its parameters, so it prints,
compares, hashes and copies by itself. A subclass registers under its ``name`` when
it is defined, and is refused if it misses a method of its kind or repeats a name.
"""

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.pipeline import Pipeline

from fferm.errors import (
    ComponentError,
    InvalidParameterError,
    PersistenceError,
    UnknownNameError,
)


@dataclasses.dataclass(frozen=True)
class Registered:
    """Base of everything that has a name, parameters and a place in a registry."""

    kind: ClassVar[str] = ""
    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()

    _registry: ClassVar[dict[tuple[str, str], type["Registered"]]] = {}

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        """Register a final class under its name, after checking its contract."""
        if abstract:
            return
        missing = [name for name in cls.required if _is_abstract(cls, name)]
        if missing:
            raise ComponentError(
                f"{cls.__name__} misses {', '.join(missing)}. Every {cls.kind} has it."
            )
        if "name" not in cls.__dict__ or not cls.name:
            raise ComponentError(
                f'{cls.__name__} has no name. Add `name: ClassVar[str] = "..."`.'
            )
        # Inherited aliases still belong to the parent.
        for name in (cls.name, *cls.__dict__.get("aliases", ())):
            holder = Registered._registry.get((cls.kind, name), cls)
            origins = {(each.__module__, each.__qualname__) for each in (holder, cls)}
            # Running a notebook cell twice defines the same class again, which is fine.
            if len(origins) > 1:
                raise ComponentError(
                    f"{cls.__name__} repeats the name {name!r}, which belongs to "
                    f"{holder.__module__}.{holder.__qualname__}. Choose another name."
                )
            Registered._registry[cls.kind, name] = cls

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """Return the registered names of this kind, sorted, aliases left out."""
        items = Registered._registry.items()
        names = [n for (kind, n), each in items if kind == cls.kind and n == each.name]
        return tuple(sorted(names))

    @classmethod
    def resolve(cls, spec: object) -> Self:
        """Return the component that a name or an instance stands for."""
        if isinstance(spec, cls):
            return spec
        if not isinstance(spec, str):
            raise InvalidParameterError(
                f"{cls.kind} must be a name or an instance; got {spec!r}. Known names: "
                f"{', '.join(cls.known())}."
            )
        component = cls.registered(spec)
        try:
            return component()
        except TypeError as error:
            open_fields = [
                f"{each.name}=..."
                for each in dataclasses.fields(component)
                if each.default is each.default_factory is dataclasses.MISSING
            ]
            raise InvalidParameterError(
                f"{spec!r} needs parameters. In Python pass "
                f"{component.__name__}({', '.join(open_fields)})."
            ) from error

    @classmethod
    def registered(cls, name: str) -> type[Self]:
        """Return the class that answers to a name."""
        key = name.strip().lower().replace("-", "_").replace(" ", "_")
        component = Registered._registry.get((cls.kind, key))
        if component is None or not issubclass(component, cls):
            raise UnknownNameError(unknown_name(cls.kind, name, cls.known()))
        return component

    def parameters(self) -> dict[str, Any]:
        """Return the values of the fields by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


class Saved:
    """An estimator that a file can hold: by its parameters and what it learned."""

    # The axes of learned arrays, which are checked when a model is loaded.
    learned_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def _to_saved(self: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return parameters and learned attributes, of types that a file can hold."""
        names = [name for name in vars(self) if name.endswith("_") and name[0] != "_"]
        learned = {name: getattr(self, name) for name in names}
        return self.get_params(deep=False), learned

    def _from_saved(self: Any, learned: dict[str, Any]) -> None:
        """Set the learned attributes that `_to_saved` returned; raise if unfit."""
        vars(self).update(learned)
        if not self.learned_axes:
            return
        n_classes, n_inputs = len(self.classes_), self.n_features_in_
        if "encoder_" in learned:
            n_inputs = len(self.encoder_.get_feature_names_out())
        lengths = {"classes": n_classes, "inputs": n_inputs}
        lengths["scores"] = 1 if n_classes == 2 else n_classes
        for name, axes in self.learned_axes.items():
            shape = tuple(lengths[axis] for axis in axes)
            array = learned[name]
            is_fit = isinstance(array, np.ndarray) and array.shape == shape
            is_fit = is_fit and (name == "classes_" or array.dtype.kind in "fiu")
            if not is_fit or n_classes < 2:
                raise PersistenceError(
                    f"{name} must be an array of shape {shape}; got {array!r:.200}."
                )


def last_step(model: Any) -> Any:
    """Return what a pipeline ends in; anything else as it is."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def kind_of(value: Any) -> str:
    """Return the name of a value's class; a class itself is said to be one."""
    if isinstance(value, type):
        return f"the class itself, not {value.__name__}(...)"
    return type(value).__name__


def code_of(value: Any, name: str) -> str:
    """Return the code that makes a value; what has no short code becomes its name.

    Examples
    --------
    >>> from fferm.notions import ConditionalParity, EqualOpportunity
    >>> code_of(EqualOpportunity(positive="yes"), "notion")
    "EqualOpportunity(positive='yes')"
    >>> code_of(ConditionalParity(range(9000)), "notion")
    "ConditionalParity(control=control, weights='frequency')"
    """
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()  # of NumPy
    if isinstance(value, Registered):
        parts = (f"{key}={code_of(v, key)}" for key, v in value.parameters().items())
        return f"{type(value).__name__}({', '.join(parts)})"
    is_short = value is None or isinstance(value, str | int | float)
    return repr(value) if is_short else name


def unknown_name(kind: str, name: str, known: Collection[str]) -> str:
    """Return the message for a name that nothing answers to."""
    close = close_name(name, known)
    hint = f" Did you mean {close!r}?" if close else ""
    return f"Unknown {kind} {name!r}.{hint} Known: {', '.join(known)}."


def close_name(name: str, known: Collection[str]) -> str | None:
    """Return the known name that was probably meant, None if none is close."""
    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), lowered, n=1, cutoff=0.5)
    return lowered[close[0]] if close else None


def _is_abstract(cls: type, method: str) -> bool:
    function = getattr(cls, method, None)
    return function is None or getattr(function, "__isabstractmethod__", False)
