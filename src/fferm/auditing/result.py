"""What all audits have in common: their parts, and how they become JSON and pages."""

import dataclasses
import math
import os
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from html import escape
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from fferm.auditing.spec import AuditSpec
from fferm.errors import PersistenceError
from fferm.metrics.intervals import Interval


class Audit(ABC):
    """What a model does to each group; see the two kinds of audits for their fields."""

    # What the plain values of an audit begin with; None for classifiers.
    kind: ClassVar[str | None]

    n_rows: int
    notion: str
    confidence: float
    spec: AuditSpec
    violation: float
    interval: Interval

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The audit as a data frame."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences on who is compared with whom, and who is left out."""

    @abstractmethod
    def passes(self, bound: float, /, *, confident: bool = False) -> bool:
        """Return whether the violation, or its whole interval, keeps a bound."""

    @abstractmethod
    def _summary(self) -> tuple[str, list[pd.DataFrame]]:
        """Return a line and the tables that a notebook shows."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON: undefined is None, infinite is ``"inf"``."""
        plain: dict[str, Any] = {} if self.kind is None else {"kind": self.kind}
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return plain | {f.name: json_ready(getattr(self, f.name)) for f in fields}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the audit that `to_dict` turned into plain values.

        Parameters
        ----------
        plain
            What `to_dict` returned, as it is or back from JSON.
        """
        kinds = {known.kind: known for known in Audit.__subclasses__()}
        try:
            chosen = kinds[plain.get("kind")] if cls is Audit else cls
            audit = _from_plain(chosen, plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PersistenceError(
                f"These values are not an audit ({type(error).__name__}: {error}). "
                f"Pass what {cls.__name__}.to_dict() returns."
            ) from error
        return audit  # type: ignore[no-any-return]

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
        before: "Audit | None" = None,
    ) -> None:
        """Write a report that needs nothing but a browser.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the model and the data here.
        max_violation
            The bound to hold the violation against.
        before
            The audit, on the same rows, of the classifier that this one replaces; the
            page then says what changed for whom.
        """
        # Late, because the report stands above audits and needs an extra.
        from fferm.report import write_audit

        write_audit(self, path, title=title, max_violation=max_violation, before=before)

    def _repr_html_(self) -> str:
        """Return compact tables, for notebooks."""
        line, tables = self._summary()
        shown = [
            table.to_html(
                index=not isinstance(table.index, pd.RangeIndex),
                float_format=self.format_number,
                na_rep="undefined" if self.kind is None else "-",
                border=0,
            )
            for table in tables
        ]
        lines = [f"<p>{escape(text)}</p>" for text in (line, *self.notes)]
        return "".join([*lines, *shown])

    @staticmethod
    @abstractmethod
    def format_number(value: float) -> str:
        """Return a violation with as many digits as make sense."""


def json_ready(value: Any) -> Any:
    """Return a value for JSON: undefined is None, infinite is ``"inf"``."""
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return {name: json_ready(getattr(value, name)) for name in names}
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): json_ready(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [json_ready(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _from_plain(hint: Any, plain: Any) -> Any:
    """Return the value of a type hint that `json_ready` turned into plain values."""
    if hint is float:
        return math.nan if plain is None else float(plain)
    options = get_args(hint)
    if get_origin(hint) is types.UnionType:
        return _from_union(options, plain)
    if get_origin(hint) is dict:
        return {key: _from_plain(options[1], part) for key, part in plain.items()}
    if get_origin(hint) is tuple:
        parts = [options[0]] * len(plain) if options[-1] is ... else options
        return tuple(map(_from_plain, parts, plain))
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        names = getattr(hint, "_fields", None) or [
            field.name for field in dataclasses.fields(hint)
        ]
        known = {name: plain[name] for name in names if name in plain}
        return hint(**{name: _from_plain(hints[name], known[name]) for name in known})
    return hint(plain)


def _from_union(options: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and types.NoneType in options:
        return None
    if isinstance(plain, str) and str in options:
        return plain
    return _from_plain(
        next(o for o in options if o not in (str, types.NoneType)), plain
    )
