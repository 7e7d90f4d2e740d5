"""Notions of fairness: from labels to one integer per sample, its stratum.

Demographic parity puts everyone in stratum 0; equalized odds uses the label; equal
opportunity keeps the positives and drops the rest (-1). Within each stratum the
prediction shall not depend on the group.

A notion may compare something else: its `Comparison` says which outcome is compared
given which condition, for each stratum and predicted class. Sufficiency asks that the
label not depend on the group among those who got the same prediction: its table has the
prediction as condition and the label as outcome. All other parts of the library ask the
comparison, so that a notion with tables of its own is one class.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fferm._typing import FloatArray, IntArray, Table
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.registry import Registered

# What a condition counts in a penalty: one, its share of the rows that are compared, or
# its probability, its share of all rows.
Weighting = Literal["unit", "frequency", "probability"]
# How rates of groups are compared: by their largest difference, by one minus the lowest
# over the highest, or by the largest distance from the overall rate, relative to it.
Measure = Literal["difference", "ratio", "deviation"]
MEASURES: tuple[Measure, ...] = ("difference", "ratio", "deviation")


@dataclass(frozen=True)
class Labels:
    """What a notion may look at.

    Attributes
    ----------
    y
        (n_samples,) class codes, or None where labels are unknown.
    classes
        The label that each code stands for.
    control
        (n_samples,) codes of the control feature, -1 where it is missing.
    control_names
        The value that each control code stands for.
    """

    n_samples: int
    y: IntArray | None = None
    classes: tuple[object, ...] = ()
    control: IntArray | None = None
    control_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Strata:
    """One stratum per sample, -1 for samples that the notion leaves out."""

    code: IntArray
    names: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """The tables that a notion compares, made from those of strata and predictions.

    Within each condition the outcome shall not depend on the group.

    Attributes
    ----------
    conditions, outcomes
        Their names.
    place
        (n_strata, n_classes) ``condition * len(outcomes) + outcome`` that rows of a
        stratum and a predicted class are counted in, -1 where they are left out. None
        compares predictions within strata.
    kept
        The one condition that counts, None where all do.
    """

    conditions: tuple[str, ...]
    outcomes: tuple[str, ...]
    place: IntArray | None = None
    kept: int | None = None

    @property
    def has_fixed_groups(self) -> bool:
        """Whether no prediction moves a row from one condition to another."""
        if self.place is None:
            return True
        condition = self.place // len(self.outcomes)
        return bool(np.all(condition == condition[:, :1]))

    @property
    def kept_conditions(self) -> tuple[str, ...]:
        """The names of the conditions that count."""
        return self.conditions if self.kept is None else (self.conditions[self.kept],)

    def tables(self, joint: FloatArray) -> FloatArray:
        """Return (..., strata, classes, groups) as (..., condition, outcome, group)."""
        if self.place is None:
            return joint
        *lead, n_strata, n_classes, n_groups = joint.shape
        rows = joint.reshape(*lead, n_strata * n_classes, n_groups)
        shape = len(self.conditions), len(self.outcomes), n_groups
        tables = np.zeros((*lead, shape[0] * shape[1], n_groups), dtype=joint.dtype)
        for row, place in enumerate(self.place.reshape(-1)):
            if place >= 0:
                tables[..., place, :] += rows[..., row, :]
        tables = tables.reshape(*lead, *shape)
        return tables if self.kept is None else tables[..., [self.kept], :, :]

    def pull_back(self, tables: FloatArray) -> FloatArray:
        """Return what (condition, outcome, group) hold for (stratum, class, group).

        Rows that are left out get 0.
        """
        if self.place is None:
            return tables
        n_conditions, (_, n_outcomes, n_groups) = len(self.conditions), tables.shape
        rows = np.zeros((n_conditions * n_outcomes + 1, n_groups), tables.dtype)
        kept = slice(None) if self.kept is None else self.kept
        rows[:-1].reshape(n_conditions, n_outcomes, n_groups)[kept] = tables
        return rows[self.place]  # the last for -1


# Predictions compared within strata, whatever they are called.
WITHIN_STRATA = Comparison((), ())


@dataclass(frozen=True)
class Notion(Registered, abstract=True):
    """A notion of fairness."""

    kind: ClassVar[str] = "notion"
    required: ClassVar[tuple[str, ...]] = ("strata",)

    # Whether the notion needs the labels of the rows that it is enforced on.
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A notion that weights by a rule of its own may mean anything by `weights`.
        has_rule = type(self).weighting is not Notion.weighting
        if not has_rule and self.weighting not in ("unit", "frequency"):
            raise InvalidParameterError(
                "weights must be 'unit' (one penalty per stratum, added up) or "
                "'frequency' (weighted by the share of the stratum); got "
                f"{self.weighting!r}."
            )

    @abstractmethod
    def strata(self, labels: Labels) -> Strata:
        """Return the stratum of each sample."""

    @property
    def weighting(self) -> Weighting:
        """What each condition counts: the parameter ``weights``, if there is one."""
        return getattr(self, "weights", "unit")

    @property
    def compares_predictions(self) -> bool:
        """Whether predictions are compared within strata, as most notions do."""
        return type(self).comparison is Notion.comparison

    def comparison(
        self, strata: tuple[str, ...], classes: tuple[object, ...]
    ) -> Comparison:
        """Return what is compared, for the names of strata and the classes."""
        return Comparison(strata, tuple(f"prediction={label}" for label in classes))

    def control_feature(self) -> Table:
        """Return the control feature as the user gave it, None where there is none."""
        return None


@dataclass(frozen=True)
class DemographicParity(Notion):
    """Predictions are independent of the group."""

    name: ClassVar[str] = "demographic_parity"
    aliases: ClassVar[tuple[str, ...]] = ("statistical_parity", "independence")
    needs_labels: ClassVar[bool] = False

    def strata(self, labels: Labels) -> Strata:
        """Put everyone in one stratum."""
        # One number, seen n times: rows may be many.
        return Strata(np.broadcast_to(np.int64(0), labels.n_samples), ("everyone",))


@dataclass(frozen=True)
class EqualOpportunity(Notion):
    """Among the positives, predictions are independent of the group.

    Parameters
    ----------
    positive
        The label that counts as positive; None is the larger of two.
    """

    name: ClassVar[str] = "equal_opportunity"
    aliases: ClassVar[tuple[str, ...]] = ("true_positive_rate_parity",)

    positive: object = None

    def strata(self, labels: Labels) -> Strata:
        """Keep the positives."""
        return _by_label(labels, _class_code(labels.classes, self.positive, -1))


@dataclass(frozen=True)
class FalsePositiveRateParity(Notion):
    """Among the negatives, predictions are independent of the group.

    Parameters
    ----------
    negative
        The label that counts as negative; None is the smaller of two.
    """

    name: ClassVar[str] = "false_positive_rate_parity"
    aliases: ClassVar[tuple[str, ...]] = ("predictive_equality",)

    negative: object = None

    def strata(self, labels: Labels) -> Strata:
        """Keep the negatives."""
        return _by_label(labels, _class_code(labels.classes, self.negative, 0))


@dataclass(frozen=True)
class EqualizedOdds(Notion):
    """Given the label, predictions are independent of the group.

    Parameters
    ----------
    weights
        ``"unit"``: one penalty per label, added up, as in the paper.
        ``"frequency"``: each weighted by the share of its label; with ``kl`` this is
        the conditional mutual information.
    """

    name: ClassVar[str] = "equalized_odds"
    aliases: ClassVar[tuple[str, ...]] = ("separation",)

    weights: Weighting = "unit"

    def strata(self, labels: Labels) -> Strata:
        """Use the label."""
        return _by_label(labels)


@dataclass(frozen=True, eq=False)
class ConditionalParity(Notion):
    """Given a control feature, predictions are independent of the group.

    Parameters
    ----------
    control
        A column of X by name or by position, or one value per training row.
    weights
        As in `EqualizedOdds`; by default a stratum counts as its share of the
        rows that have a control feature.
    """

    name: ClassVar[str] = "conditional_parity"
    aliases: ClassVar[tuple[str, ...]] = ("conditional_demographic_parity",)
    needs_labels: ClassVar[bool] = False

    control: str | int | Sequence[object]
    weights: Weighting = "frequency"

    def control_feature(self) -> Table:
        """Return the control feature as given."""
        return self.control

    def strata(self, labels: Labels) -> Strata:
        """Use the control feature; rows where it is missing are left out."""
        if labels.control is None:
            raise InvalidParameterError(
                "The control feature of ConditionalParity was not found. Give a column "
                "of X, ConditionalParity('department'), or one value per row."
            )
        return Strata(labels.control, labels.control_names)


@dataclass(frozen=True)
class Sufficiency(Notion):
    """Given the prediction, labels are independent of the group."""

    name: ClassVar[str] = "sufficiency"

    @property
    def weighting(self) -> Weighting:
        """A prediction counts as often as it is made."""
        return "probability"

    def strata(self, labels: Labels) -> Strata:
        """Use the label."""
        return _by_label(labels)

    def comparison(
        self, strata: tuple[str, ...], classes: tuple[object, ...]
    ) -> Comparison:
        """Compare labels given the prediction."""
        shape = len(classes), len(strata)
        place = np.arange(shape[0] * shape[1]).reshape(shape).T
        predictions = tuple(f"prediction={label}" for label in classes)
        return Comparison(predictions, strata, place)


@dataclass(frozen=True)
class PredictiveParity(Sufficiency):
    """Among those predicted positive, labels are independent of the group.

    Parameters
    ----------
    positive
        The prediction that counts as positive; None is the larger of two.
    """

    name: ClassVar[str] = "predictive_parity"

    positive: object = None

    def comparison(
        self, strata: tuple[str, ...], classes: tuple[object, ...]
    ) -> Comparison:
        """Compare labels among those predicted positive."""
        kept = _class_code(classes, self.positive, -1)
        return replace(super().comparison(strata, classes), kept=kept)


def get(spec: str | Notion) -> Notion:
    """Return the notion that a name or an instance stands for.

    Examples
    --------
    >>> get("true_positive_rate_parity")
    EqualOpportunity(positive=None)
    """
    return Notion.resolve(spec)


def _class_code(classes: tuple[object, ...], label: object, default: int) -> int:
    if label is None and len(classes) > 2:
        raise InvalidParameterError(
            f"The labels have {len(classes)} classes and the notion does not say "
            "which one counts. Name it, for example "
            f"EqualOpportunity(positive={classes[-1]!r})."
        )
    if label is None:
        return range(len(classes))[default] if classes else 0
    if label not in classes:
        raise InvalidParameterError(
            f"The notion names the class {label!r}, which the labels do not have. "
            f"Classes: {', '.join(map(repr, classes))}."
        )
    return classes.index(label)


def _by_label(labels: Labels, kept: int | None = None) -> Strata:
    # One stratum per label, or the one that is kept.
    if labels.y is None:
        raise InvalidInputError(
            "This notion of fairness conditions on the label, and the penalty rows "
            "have none. Give penalty_data=(X, s, y), or use demographic parity."
        )
    names = tuple(f"y={label}" for label in labels.classes)
    if kept is None:
        return Strata(labels.y, names)
    code = np.where(labels.y == kept, 0, -1).astype(np.int64)
    return Strata(code, (names[kept],))
