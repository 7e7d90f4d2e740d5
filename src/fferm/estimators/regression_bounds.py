"""The smallest fairness weight that keeps a bound on a regressor's violation.

The violation is a named measure of `fferm.dependence`, on held-out rows: the largest of
all sensitive columns and strata.
"""

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from sklearn import config_context
from sklearn.utils import _safe_indexing

from fferm._types import FloatArray, IntArray, Table, is_sparse
from fferm.bands import OWN_QUANTILES, Cutting
from fferm.columns import GroupMode, encode_sensitive, split_columns, take_rows
from fferm.data import control_labels
from fferm.dependence import GROUP_MEASURES, get_measure
from fferm.distances import taken
from fferm.distributions import OrderedPredictions
from fferm.errors import FfermWarning, InfeasibleWarning, InvalidInputError
from fferm.estimators.base import Choice, FitInput
from fferm.estimators.bounds import Judged, Search, read_fraction
from fferm.estimators.holdout import hold_out, kinds
from fferm.estimators.regression_data import Encoded
from fferm.estimators.validation import check_number
from fferm.notions import Labels, Notion

if TYPE_CHECKING:
    from fferm.estimators.regression import FairRegressor


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
    cutting: Cutting = OWN_QUANTILES,
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


def choose_regression_weight(
    model: "FairRegressor", given: FitInput, encoded: Encoded
) -> Choice:
    """Return the smallest weight tried whose violation keeps ``max_violation``.

    Where none keeps it, return the closest, with a warning.
    """
    bound = check_number("max_violation", model.max_violation)
    rest, X, measured = _hold_out(model, given, encoded)

    def judge(fitted: "FairRegressor") -> Judged["FairRegressor"]:
        value = measured.violation(fitted.predict(X))
        return Judged(fitted, value, value, True, value <= bound)

    search = Search(model, rest, judge)
    with warnings.catch_warnings(), config_context(assume_finite=True):
        warnings.simplefilter("ignore", FfermWarning)
        tried = list(search.climb(model._objective().divergence))
        if tried[-1].is_within:
            best = search.narrow(*tried[-2:]) if len(tried) > 1 else tried[0]
            return Choice(best.fairness_weight, best.violation, True)
    closest = min(tried, key=lambda judged: judged.value)
    warnings.warn(
        f"No fairness_weight up to {tried[-1].fairness_weight:g} brings "
        f"{model.violation_metric} on {X.shape[0]} held-out rows to max_violation="
        f"{bound:g}. The closest is fairness_weight={closest.fairness_weight:.4g} with "
        f"{closest.value:.4g}. Raise max_violation, or hold out more rows.",
        InfeasibleWarning,
        stacklevel=3,
    )
    return Choice(closest.fairness_weight, closest.violation, False)


def _hold_out(
    model: "FairRegressor", given: FitInput, encoded: Encoded
) -> tuple[FitInput, Table, NumberSetting]:
    # What is trained on, and what is judged: features, and who is compared with whom.
    data = encoded.data
    if encoded.rows is None or given.penalty_data is not None:
        raise InvalidInputError(
            "max_violation is judged on held-out training rows; leave penalty_data out."
        )
    kind = kinds(encoded.rows, np.zeros(data.y.size, dtype=np.int64))
    held = hold_out(kind, read_fraction(model), model.random_state)
    position = np.flatnonzero(data.kept)[held]
    weight = np.zeros(data.kept.size)
    weight[data.kept] = np.where(held, 0.0, data.weight)
    X = given.X.tocsr() if is_sparse(given.X) else given.X
    judged = _safe_indexing(X, position)
    sensitive = take_rows(given.sensitive_features, position)
    measured = make_number_setting(
        model.violation_metric,
        sensitive,
        _notion_of(model._objective().notion, position),
        model.groups,
        judged,
        Cutting(model.continuous, encoded.rows.band_edges),
        None if given.sample_weight is None else data.weight[held],
    )
    return replace(given, sample_weight=weight), judged, measured


def _notion_of(notion: Notion, position: IntArray) -> Notion:
    # A control feature of one value per row is cut to the rows that are judged.
    control = notion.control_feature()
    if control is None or isinstance(control, str | int | np.integer):
        return notion
    return replace(notion, control=_safe_indexing(control, position))  # type: ignore[call-arg]


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
