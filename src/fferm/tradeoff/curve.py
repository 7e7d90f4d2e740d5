"""The outcome of a sweep: records, fitted models, and the choice among them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.estimators.validation import check_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class TradeoffCurve:
    """A sweep over fairness weights: records, and the model behind each.

    Attributes
    ----------
    records
        One row per model and split: ``fairness_weight``, ``seed``, ``split``
        (``"train"`` or ``"test"``), ``accuracy``, ``violation`` (of decisions),
        ``soft_violation`` (of probabilities), ``loss`` (cross-entropy),
        ``divergence`` (of probabilities, as trained), ``collapsed`` (one class for
        everyone), ``result`` and ``seconds``. Of a regressor ``accuracy`` is the share
        of variance that is explained, ``loss`` the mean squared error, and
        ``mean_gap`` and ``wasserstein`` stand beside the violation.
    models
        The fitted estimator of each ``(fairness_weight, seed)``.
    description
        What was compared: divergence, notion, groups.
    """

    records: pd.DataFrame
    models: Mapping[tuple[float, int], FairEstimator]
    description: Mapping[str, str]

    def pareto(self, split: str = "test") -> pd.DataFrame:
        """Return the records that no other beats in accuracy and violation both.

        Several seeds of one weight count as one record, their mean.

        Parameters
        ----------
        split
            ``"train"`` or ``"test"``.
        """
        rows = self._usable(split).sort_values(
            ["violation", "accuracy"], ascending=[True, False]
        )
        best_before = rows["accuracy"].cummax().shift(fill_value=-np.inf)
        return rows[rows["accuracy"] > best_before].reset_index(drop=True)

    def select(
        self,
        *,
        max_violation: float | None = None,
        min_accuracy: float | None = None,
        split: str = "test",
    ) -> FairEstimator:
        """Return the best fitted model within a bound.

        Measure on rows of their own for an unbiased figure: a model that was chosen
        on a split looks better there than it is. With several seeds the weight is
        chosen by the means over them, and the model is that of the first seed.

        Parameters
        ----------
        max_violation
            Return the most accurate model with at most this violation.
        min_accuracy
            Return the fairest model with at least this accuracy.
        split
            ``"train"`` or ``"test"``.
        """
        if (max_violation is None) == (min_accuracy is None):
            raise InvalidParameterError(
                "select needs one of max_violation and min_accuracy, not both or none."
            )
        rows = self._usable(split)
        if max_violation is not None:
            bound = check_number("max_violation", max_violation)
            within = rows[rows["violation"] <= bound]
            order, is_ascending = ["accuracy", "violation"], [False, True]
        else:
            bound = check_number("min_accuracy", min_accuracy)
            within = rows[rows["accuracy"] >= bound]
            order, is_ascending = ["violation", "accuracy"], [True, False]
        if within.empty:
            raise InvalidInputError(_nothing_within(rows, max_violation, min_accuracy))
        best = within.sort_values(order, ascending=is_ascending).iloc[0]
        return self.models[float(best["fairness_weight"]), int(best["seed"])]

    def hypervolume(
        self, split: str = "test", reference: tuple[float, float] = (0.0, 1.0)
    ) -> float:
        """Return the area that the curve dominates in accuracy x (1 - violation).

        Parameters
        ----------
        split
            ``"train"`` or ``"test"``.
        reference
            The worst accuracy and the worst violation that count.
        """
        if np.shape(reference) != (2,):
            raise InvalidParameterError(
                f"reference={reference!r} came. Expected the worst accuracy and the "
                "worst violation that count, such as (0.0, 1.0)."
            )
        worst_accuracy, worst_violation = reference
        front = self.pareto(split)
        front = front[
            (front["accuracy"] > worst_accuracy)
            & (front["violation"] < worst_violation)
        ]
        edges = np.append(front["violation"].to_numpy(), worst_violation)
        heights = front["accuracy"].to_numpy() - worst_accuracy
        return float(np.sum(heights * np.diff(edges)))

    def plot(self, ax: "Axes | None" = None, *, split: str = "test") -> "Axes":
        """Draw accuracy against violation and return the axes (needs matplotlib).

        Parameters
        ----------
        ax
            Where to draw; a new figure by default.
        split
            ``"train"`` or ``"test"``.
        """
        from fferm.report import plot_curve

        return plot_curve(self, ax, split=split)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the curve as one self-contained page.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        """
        from fferm.report import write_curve

        write_curve(self, path)

    def _usable(self, split: str) -> pd.DataFrame:
        if split not in ("train", "test"):
            raise InvalidParameterError(
                f"split={split!r} came. Expected 'train' or 'test'."
            )
        rows = self.records[self.records["split"] == split]
        # One class for everyone is fair and useless: never a choice in silence.
        is_usable = ~rows["collapsed"] & rows["violation"].notna()
        by_weight = is_usable.groupby(rows["fairness_weight"]).transform("all")
        numbers = rows.select_dtypes("number").columns.difference(
            ["fairness_weight", "seed"]
        )
        how = {
            name: "mean" if name in numbers else "first"
            for name in rows.columns.drop("fairness_weight")
        }
        points = rows[by_weight].groupby("fairness_weight", as_index=False).agg(how)
        return points[rows.columns]

    def __repr__(self) -> str:
        """Return one line: how many models of what, and the range they span."""
        rows = self.records[self.records["split"] == "test"]
        low, high = rows[["violation", "accuracy"]].agg(["min", "max"]).to_numpy()
        return (
            f"TradeoffCurve({len(self.models)} models of "
            f"{self.description['estimator']}, test violation {low[0]:.4f} to "
            f"{high[0]:.4f}, accuracy {low[1]:.4f} to {high[1]:.4f})"
        )

    def _repr_html_(self) -> str:
        """Return the test records as a table, for notebooks."""
        rows = self.records[self.records["split"] == "test"]
        shown = ["fairness_weight", "seed", "accuracy", "violation", "soft_violation"]
        return rows[shown].to_html(index=False, float_format=lambda x: f"{x:.4g}")


def _nothing_within(
    rows: pd.DataFrame, max_violation: float | None, min_accuracy: float | None
) -> str:
    if rows.empty:
        return (
            "Every model of the curve predicts one class for everyone or cannot be "
            "judged. Lower the fairness weights, or check the groups."
        )
    if max_violation is not None:
        closest = rows.iloc[int(rows["violation"].argmin())]
        asked, found = f"violation {max_violation:g}", closest["violation"]
    else:
        closest = rows.iloc[int(rows["accuracy"].argmax())]
        asked, found = f"accuracy {min_accuracy:g}", closest["accuracy"]
    return (
        f"No model of the curve reaches {asked}; the closest has {found:.4f} at "
        f"fairness_weight={closest['fairness_weight']:g}. Add weights, or loosen the "
        "bound."
    )
