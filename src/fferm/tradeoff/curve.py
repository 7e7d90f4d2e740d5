"""The outcome of a sweep: records, fitted models, and the choice among them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import numpy as np
import pandas as pd

from fferm.auditing import Audit, RegressionAudit
from fferm.data.validate import check_number
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.tradeoff.fronts import (
    confidence_bands,
    dominated_area,
    knee,
    pareto_front,
    usable_points,
)
from fferm.tradeoff.keys import ByKey, Key

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")


@dataclass(frozen=True)
class TradeoffCurve:
    """A sweep over fairness weights: records, and the model behind each.

    Attributes
    ----------
    records
        One row per model and split: ``curve`` (its name), ``fairness_weight``,
        ``seed``, ``split`` (``"train"`` or ``"test"``), ``accuracy``, ``violation``
        (of decisions), ``soft_violation`` (of probabilities), ``loss``
        (cross-entropy), ``divergence`` (of probabilities, as trained), ``collapsed``
        (one class for everyone), ``result``, the ends of 95 % intervals
        (``accuracy_low``, ``accuracy_high``, ``violation_low``, ``violation_high``)
        and ``seconds``. Of a regressor ``accuracy`` is the share of variance that is
        explained, ``loss`` the mean squared error, and ``mean_gap`` and ``wasserstein``
        stand beside the violation.
    models
        The fitted estimator of each ``(curve, fairness_weight, seed)``; of one curve
        ``(fairness_weight, seed)`` is enough.
    descriptions
        What was compared, by the name of the curve: estimator, divergence, notion.
    baseline
        The naive way to less violation, decisions of the plain model that give way to
        the commonest class at random: ``curve``, ``seed``, ``split``, ``thinning`` (the
        share that gives way), and the ``accuracy`` and ``violation`` to expect.
    audits
        What each model does to each group of the test rows, by the keys of ``models``.
    """

    records: pd.DataFrame
    models: Mapping[Key, FairEstimator]
    descriptions: Mapping[str, Mapping[str, str]]
    baseline: pd.DataFrame = field(default_factory=pd.DataFrame)
    audits: Mapping[Key, Audit | RegressionAudit | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the curve of records that were made by hand, without a name."""
        if "curve" not in self.records:
            columns = ["curve", *self.records.columns]
            named = self.records.assign(curve="")[columns]
            object.__setattr__(self, "records", named)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TradeoffCurve":
        """Return the curve of a folder of records, finished or not.

        Models are read from the folder when they are asked for.

        Parameters
        ----------
        path
            What was given to `tradeoff_curve` as ``records``.
        """
        from fferm.tradeoff.assembly import load_curve

        return load_curve(path)

    @property
    def description(self) -> dict[str, str]:
        """What was compared; of several curves, each value that there is."""
        names = dict.fromkeys(n for about in self.descriptions.values() for n in about)
        return {
            name: "; ".join(
                dict.fromkeys(
                    about.get(name, "") for about in self.descriptions.values()
                )
            )
            for name in names
        }

    @property
    def curves(self) -> dict[str, Self]:
        """Each curve alone, by its name."""
        return {name: self._only(name) for name in self.records["curve"].unique()}

    def pareto(self, split: str = "test") -> pd.DataFrame:
        """Return the records that no other beats in accuracy and violation both.

        Several seeds of one weight count as one record, their mean; several curves
        compete with each other.

        Parameters
        ----------
        split
            ``"train"`` or ``"test"``.
        """
        return pareto_front(usable_points(self.records, split))

    def bands(self) -> pd.DataFrame:
        """Return accuracy and violation of each point on test rows, with intervals.

        Of several seeds, ``*_low`` and ``*_high`` are Student's 95 % interval of their
        mean: how much training, and the choice of held-out rows, vary. Of one seed they
        say how sure so many test rows can be. Collapsed points are left out.
        """
        return confidence_bands(self.records)

    def choose(
        self,
        how: Literal["knee"] | None = None,
        *,
        max_violation: float | None = None,
        min_accuracy: float | None = None,
        split: str = "test",
    ) -> Key:
        """Return the key of the best model within a bound; see `select`."""
        asked = [how, max_violation, min_accuracy]
        if sum(value is not None for value in asked) != 1 or how not in (None, "knee"):
            raise InvalidParameterError(
                "select needs one of max_violation and min_accuracy, or 'knee': one of "
                "the three."
            )
        rows = usable_points(self.records, split)
        within = _within(rows, max_violation, min_accuracy)
        if within.empty:
            raise InvalidInputError(_nothing_within(rows, max_violation, min_accuracy))
        best = within.iloc[knee(within) if how else 0]
        return Key(best["curve"], float(best["fairness_weight"]), int(best["seed"]))

    def select(
        self,
        how: Literal["knee"] | None = None,
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
        how
            ``"knee"``: the point of the front that bulges most above the line from
            its fairest to its most accurate end, where more fairness begins to cost
            more than it gains, counted in units of the front's own range.
        max_violation
            Return the most accurate model with at most this violation.
        min_accuracy
            Return the fairest model with at least this accuracy.
        split
            ``"train"`` or ``"test"``.
        """
        key = self.choose(
            how, max_violation=max_violation, min_accuracy=min_accuracy, split=split
        )
        return self.models[key]

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
        return dominated_area(self.pareto(split), reference)

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

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
    ) -> None:
        """Write the curve as one self-contained page on which points can be picked.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the data here.
        max_violation
            The bound that the page picks the most accurate model for; without one it
            picks the knee.
        """
        from fferm.report import write_curve

        write_curve(self, path, title=title, max_violation=max_violation)

    def _only(self, name: str) -> Self:
        def of(frame: pd.DataFrame) -> pd.DataFrame:
            return frame if frame.empty else frame[frame["curve"] == name]

        return replace(
            self,
            records=of(self.records).reset_index(drop=True),
            models=_of_curve(self.models, name),
            descriptions={name: self.descriptions.get(name, {})},
            baseline=of(self.baseline).reset_index(drop=True),
            audits=_of_curve(self.audits, name),
        )

    def __repr__(self) -> str:
        """Return one line: how many models of what, and the range they span."""
        rows = self.records[self.records["split"] == "test"]
        low, high = rows[["violation", "accuracy"]].agg(["min", "max"]).to_numpy()
        named = self.description.get("estimator")
        return (
            f"TradeoffCurve({len(self.models)} models"
            f"{f' of {named}' if named else ''}, test violation {low[0]:.4f} to "
            f"{high[0]:.4f}, accuracy {low[1]:.4f} to {high[1]:.4f})"
        )

    def _repr_html_(self) -> str:
        """Return the test records as a table, for notebooks."""
        rows = self.records[self.records["split"] == "test"]
        shown = ["fairness_weight", "seed", "accuracy", "violation", "soft_violation"]
        if rows["curve"].nunique() > 1:
            shown = ["curve", *shown]
        return rows[shown].to_html(index=False, float_format=lambda x: f"{x:.4g}")


def _of_curve(values: Mapping[Key, T], name: str) -> Mapping[Key, T]:
    keys = [key for key in values if key.curve == name]
    return ByKey({key: partial(values.__getitem__, key) for key in keys})


def _within(
    rows: pd.DataFrame, max_violation: float | None, min_accuracy: float | None
) -> pd.DataFrame:
    # The points in question, the best first; without a bound the front.
    if max_violation is not None:
        bound = check_number("max_violation", max_violation)
        within = rows[rows["violation"] <= bound]
        order, is_ascending = ["accuracy", "violation"], [False, True]
    elif min_accuracy is not None:
        bound = check_number("min_accuracy", min_accuracy)
        within = rows[rows["accuracy"] >= bound]
        order, is_ascending = ["violation", "accuracy"], [True, False]
    else:
        return pareto_front(rows)
    return within.sort_values(order, ascending=is_ascending, kind="stable")


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
