"""The smallest fairness weight that keeps a bound on a regressor's violation.

The violation is a named measure of `fferm.dependence`, on held-out rows: the largest of
all sensitive columns and strata.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    DEFAULT_BINNING,
    Binning,
    GroupMode,
    encode_sensitive,
    split_columns,
)
from fferm.data.rows import control_labels
from fferm.dependence import GROUP_MEASURES, get_measure
from fferm.distances import taken
from fferm.distributions import OrderedPredictions
from fferm.errors import InvalidInputError
from fferm.notions import Labels, Notion

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class NumberSetting:
    """Who is compared with whom, on some rows, and by which measure.

    Attributes
    ----------
    measure
        A name of `fferm.dependence.MEASURES`.
    parts
        The attribute on the rows of a column and stratum, and these rows.
    weight
        (n_samples,) weights of all rows, or None where they count alike.
    """

    measure: str
    parts: tuple[tuple[Table, IntArray], ...]
    weight: FloatArray | None = None

    def violation(self, prediction: FloatArray) -> float:
        """Return the measure, the largest of all parts that can be judged."""
        function = get_measure(self.measure)
        return max(
            function(prediction[rows], values, weight=taken(self.weight, rows))
            for values, rows in self.parts
        )

    def interval(
        self, prediction: FloatArray, confidence: float, n_bootstrap: int
    ) -> tuple[float, float]:
        """Return an interval of the violation; NaN for measures of numbers."""
        if self.measure not in GROUP_MEASURES:
            return np.nan, np.nan
        # Each part errs with its share of the risk, so that all of them hold at once.
        level = 1 - (1 - confidence) / len(self.parts)
        limits = [
            OrderedPredictions.of(prediction[rows]).intervals(
                values,
                [self.measure],
                level,
                n_bootstrap=n_bootstrap,
                weight=taken(self.weight, rows),
            )[self.measure]
            for values, rows in self.parts
        ]
        return max(low for low, _ in limits), max(high for _, high in limits)


def make_number_setting(
    measure: str,
    sensitive_features: Table,
    notion: Notion,
    groups: GroupMode,
    X: Table,
    cutting: Binning = DEFAULT_BINNING,
    weight: FloatArray | None = None,
) -> NumberSetting:
    """Return what a violation is measured on.

    Measures of groups see groups, and bands of numbers; measures of numbers see the
    numeric columns alone.
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    control, names = control_labels(notion, X, n)
    strata = notion.strata(Labels(n, None, (), control, names))
    get_measure(measure)
    columns: list[Table]
    if measure in GROUP_MEASURES:
        found = encode_sensitive(sensitive_features, n, groups, cutting)
        columns = [attribute.code for attribute in found]
    else:
        columns = list(_numeric(sensitive_features, measure))
    parts = []
    for values in columns:
        for r in range(len(strata.names)):
            known = values >= 0 if measure in GROUP_MEASURES else ~np.isnan(values)
            # Rows of weight 0 are no rows.
            known &= True if weight is None else weight > 0
            rows = np.flatnonzero((strata.code == r) & known)
            if rows.size >= 4 and np.unique(values[rows]).size > 1:
                parts.append((values[rows], rows))
    if not parts:
        raise InvalidInputError(
            f"No part of the {n} rows holds two groups, so {measure} cannot be "
            "measured. Check sensitive_features, or give more rows."
        )
    return NumberSetting(measure, tuple(parts), weight)


def _numeric(sensitive_features: Table, measure: str) -> list[FloatArray]:
    columns = [
        pd.Series(np.asarray(values)).infer_objects()
        for _, values in split_columns(sensitive_features)
    ]
    found = [
        column.to_numpy(dtype=np.float64)
        for column in columns
        if pd.api.types.is_numeric_dtype(column.dtype)
    ]
    if not found:
        raise InvalidInputError(
            f"{measure} compares numbers, and no sensitive column holds numbers. Use "
            f"one of {', '.join(GROUP_MEASURES)}."
        )
    return found
