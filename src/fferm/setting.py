"""Who is compared with whom, and given what: all of a question but the predictions."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    DEFAULT_BINNING,
    Attribute,
    Binning,
    GroupMode,
    encode_sensitive,
)
from fferm.data.rows import Rows, control_labels
from fferm.data.validate import encode_weight, rescaled
from fferm.errors import InvalidInputError, MissingGroupWarning
from fferm.notions import Labels, Notion
from fferm.rates import RateTable
from fferm.tables import joint_from_cells, joint_of_decisions

# What messages call the feature that a notion conditions on.
CONTROL = "the control feature"
# Codes of decisions, or probabilities of the classes.
Predicted: TypeAlias = IntArray | FloatArray


@dataclass(frozen=True)
class Kept:
    """The rows of one attribute that count, and where they stand in its table."""

    rows: IntArray | slice
    cell: IntArray  # stratum * n_groups + group
    weight: FloatArray
    shape: tuple[int, int]  # strata, groups
    total: float  # the weight of all rows whose group is known

    @functools.cached_property
    def squares(self) -> FloatArray:
        """(strata, groups) sums of squared weights."""
        n_strata, n_groups = self.shape
        sums = np.bincount(self.cell, self.weight**2, n_strata * n_groups)
        return np.asarray(sums, dtype=np.float64).reshape(self.shape)


@dataclass(frozen=True)
class Setting:
    """Who is compared with whom, and given what: all but the predictions."""

    rows: Rows
    notion: Notion
    labels: Labels

    @property
    def unjudged(self) -> dict[str, int]:
        """The number of rows without a value, by attribute, where there are any."""
        codes = [attribute.code for attribute in self.rows.attributes]
        names = [attribute.name for attribute in self.rows.attributes]
        if self.labels.control is not None:
            codes, names = [*codes, self.labels.control], [*names, CONTROL]
        missing = [int(np.sum(code < 0)) for code in codes]
        return {
            name: n for name, n in zip(distinct(names), missing, strict=True) if n > 0
        }

    def tables(self, predicted: Predicted) -> tuple[RateTable, ...]:
        """Return the table of each attribute.

        Parameters
        ----------
        predicted
            (n_samples,) codes of decisions, or (n_samples, n_classes) probabilities.
        """
        return self.tables_of(predicted, self.masses(predicted))

    def masses(self, predicted: Predicted) -> list[FloatArray]:
        """Return the (strata, classes, groups) weights of each attribute."""
        return [self._mass(predicted, kept, kept.weight) for kept in self._kept]

    def tables_of(
        self, predicted: Predicted, masses: list[FloatArray]
    ) -> tuple[RateTable, ...]:
        """Return the table of each attribute whose weights are summed already."""
        return tuple(
            RateTable(
                attribute.name,
                attribute.groups,
                *self._names(),
                self.orient(mass),
                functools.partial(self._squares, predicted, kept),
                kept.total,
            )
            for attribute, kept, mass in zip(
                self.rows.attributes, self._kept, masses, strict=True
            )
        )

    @functools.cached_property
    def _kept(self) -> tuple[Kept, ...]:
        return tuple(self._keep(attribute) for attribute in self.rows.attributes)

    def _keep(self, attribute: Attribute) -> Kept:
        cell, weight = self.cells(attribute), self.rows.weight
        rows = np.flatnonzero(cell >= 0)
        return Kept(
            slice(None) if rows.size == cell.size else rows,
            cell[rows],
            weight[rows],
            (len(self.rows.strata.names), len(attribute.groups)),
            float(weight[attribute.code >= 0].sum()),
        )

    def cells(self, attribute: Attribute) -> IntArray:
        """Return ``stratum * n_groups + group`` of each row, -1 if it is left out."""
        stratum = self.rows.strata.code
        cell = stratum * len(attribute.groups) + attribute.code
        return np.where((attribute.code >= 0) & (stratum >= 0), cell, -1)

    def orient(self, table: FloatArray) -> FloatArray:
        """Return (..., strata, classes, groups) as (..., given, outcome, group)."""
        if not self.notion.is_sufficiency:
            return table
        given = np.swapaxes(table, -3, -2)
        kept = self.notion.kept_class(self.labels.classes)
        return given if kept is None else given[..., kept : kept + 1, :, :]

    def _mass(self, predicted: Predicted, kept: Kept, weight: FloatArray) -> FloatArray:
        n_strata, n_groups = kept.shape
        found: Any = predicted[kept.rows]
        if predicted.ndim == 2:
            return joint_from_cells(found, kept.cell, weight, n_strata, n_groups)
        shape = n_strata, len(self.labels.classes), n_groups
        return joint_of_decisions(found, kept.cell, weight, shape)

    def _squares(self, predicted: Predicted, kept: Kept) -> FloatArray:
        # The square of a decision, 0 or 1 for each class, is the decision itself.
        is_hard = predicted.ndim == 1
        if is_hard and not self.notion.is_sufficiency:
            return kept.squares
        squared = predicted if is_hard else predicted**2
        squares = self.orient(self._mass(squared, kept, kept.weight**2))
        return np.asarray(squares.sum(axis=1))

    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        classes = self.labels.classes
        predictions = tuple(f"prediction={label}" for label in classes)
        if not self.notion.is_sufficiency:
            return self.rows.strata.names, predictions
        kept = self.notion.kept_class(classes)
        given = predictions if kept is None else predictions[kept : kept + 1]
        return given, self.rows.strata.names


def make_setting(
    labels: Labels,
    notion: Notion,
    sensitive_features: Table,
    groups: GroupMode,
    sample_weight: Table,
    X: Table = None,
    cutting: Binning = DEFAULT_BINNING,
) -> Setting:
    """Return labels, groups and weights encoded for a notion."""
    _check_labels(labels, notion)
    n = labels.n_samples
    control, names = control_labels(notion, X, n)
    attributes = encode_sensitive(sensitive_features, n, groups, cutting)
    labels = replace(labels, control=control, control_names=names)
    weight = rescaled(encode_weight(sample_weight, n))
    rows = Rows(attributes, notion.strata(labels), weight)
    setting = Setting(rows, notion, labels)
    for name, n_missing in setting.unjudged.items():
        warnings.warn(
            f"{left_out(name, n_missing, n)}. They are not judged; fill in the values, "
            "or say how many rows the result leaves out.",
            MissingGroupWarning,
            stacklevel=3,
        )
    _check_groups(attributes)
    return setting


def left_out(name: str, n_missing: int, n_samples: int) -> str:
    """Return how many rows have no value of an attribute, in words."""
    # A row without a control value still counts in the table of its group.
    what = "compared with none" if name == CONTROL else "in no group"
    return f"{n_missing} of {n_samples} rows have no value of {name} and are {what}"


def _check_labels(labels: Labels, notion: Notion) -> None:
    if labels.y is None and notion.needs_labels:
        raise InvalidInputError(
            f"{notion.name} conditions on the label and there is none. Give y_true, or "
            "use demographic_parity."
        )
    parameters = notion.parameters()
    is_open = any(parameters.get(name, 0) is None for name in ("positive", "negative"))
    if is_open and len(labels.classes) == 1:
        raise InvalidInputError(
            f"Every label and prediction is {labels.classes[0]!r}, so it is unknown "
            f"which class is positive. Expected two classes; give {notion.name} rows "
            "of both."
        )


def _check_groups(attributes: Sequence[Attribute]) -> None:
    empty = [attribute.name for attribute in attributes if not attribute.groups]
    if empty:
        raise InvalidInputError(
            f"No row has a value of {', '.join(empty)}. Expected groups to compare; "
            "check how sensitive_features was read, or leave that column out."
        )


def distinct(names: Sequence[str]) -> list[str]:
    """Return names no two of which are the same: repeats are numbered."""
    seen: dict[str, None] = {}
    for name in names:
        n, free = 1, name
        while free in seen:
            n, free = n + 1, f"{name} ({n + 1})"
        seen[free] = None
    return list(seen)
