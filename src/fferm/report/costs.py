"""What changed for whom between two models, and whether the gap closed from above.

A gap between two groups can close because the lower one rises or because the higher
one falls. The second is levelling down: the groups are more equal and nobody is better
off. A violation cannot tell the two apart, so the page names which it was.
"""

import math
from dataclasses import dataclass

from fferm.auditing import ClassificationAudit

# Rates closer than this are the same: less than one row in two thousand.
SAME_RATE = 5e-4
# Of the narrowing of a gap, the share that has to come from above to name it.
MOSTLY = 0.5


@dataclass(frozen=True)
class Change:
    """A rate of one group, with the model before and with the model in question."""

    group: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """By how much it rose; negative where it fell."""
        return self.after - self.before


@dataclass(frozen=True)
class Levelling:
    """How a gap between groups closed.

    Attributes
    ----------
    words
        In a few words, ``"Levelling down"`` among them where it applies.
    is_down
        Whether the gap closed mostly, or only, because higher groups fell.
    highest, lowest
        The group with the highest and the lowest rate before.
    gap_before, gap_after
        Between the highest and the lowest rate.
    losers
        The groups whose rate fell.
    """

    words: str
    is_down: bool
    highest: Change
    lowest: Change
    gap_before: float
    gap_after: float
    losers: tuple[Change, ...]


@dataclass(frozen=True)
class Cost:
    """One measure of every group, before and after.

    Attributes
    ----------
    name
        What the measure is called.
    is_better_if_high
        Whether a higher rate is better for whoever is judged, whatever the decision
        means to them.
    changes
        Of each group.
    levelling
        How the gap closed; None where it did not, or where nothing can be compared.
    """

    name: str
    is_better_if_high: bool
    changes: tuple[Change, ...]
    levelling: Levelling | None


def compare(before: ClassificationAudit, after: ClassificationAudit) -> list[Cost]:
    """Return what changed for each group, measure by measure.

    Parameters
    ----------
    before, after
        Audits of two models on the same rows.
    """
    shown = after.shown_classes
    measures = {f"Decision {label}": f"selection_rate_{label}" for label in shown}
    if len(after.classes) == 2:
        measures["True positive rate"] = "true_positive_rate"
    measures["Accuracy"] = "accuracy"
    return [
        _cost(name, column, before, after)
        for name, column in measures.items()
        if all(column in row for row in after.groups.values())
    ]


def _cost(
    name: str, column: str, before: ClassificationAudit, after: ClassificationAudit
) -> Cost:
    changes = tuple(
        Change(group, before.groups[group][column], row[column])
        for group, row in after.groups.items()
        if group in before.groups
    )
    compared = [change for change in changes if change.group in _compared(before)]
    known = [change for change in compared if not math.isnan(change.difference)]
    levelling = _levelling(known) if len(known) > 1 else None
    return Cost(name, not column.startswith("selection"), changes, levelling)


def _compared(audit: ClassificationAudit) -> set[str]:
    # Attributes one by one: only groups of the same attribute make a gap.
    if audit.spec.groups != "marginal" or not audit.gaps:
        return set(audit.groups)
    worst = max(audit.gaps, key=lambda gap: gap.gap)
    # As the table of groups calls them where there are several attributes.
    return {
        f"{worst.attribute}={group}"
        for group in (worst.lowest_group, worst.highest_group)
    }


def _levelling(changes: list[Change]) -> Levelling | None:
    highest = max(changes, key=lambda change: change.before)
    lowest = min(changes, key=lambda change: change.before)
    gap_before = highest.before - lowest.before
    after = [change.after for change in changes]
    gap_after = max(after) - min(after)
    if gap_before - gap_after <= SAME_RATE:
        return None
    losers = tuple(c for c in changes if c.difference < -SAME_RATE)
    is_nobody_better = all(c.difference <= SAME_RATE for c in changes)
    fall, rise = -highest.difference, lowest.difference
    if is_nobody_better:
        words, is_down = "Levelling down: no group is higher than before", True
    elif rise <= SAME_RATE:
        words, is_down = "Levelling down: the lowest group did not rise", True
    elif fall > 0 and fall / (fall + rise) > MOSTLY:
        share = 100 * fall / (fall + rise)
        words, is_down = f"Mostly levelling down: {share:.0f} % from above", True
    else:
        words, is_down = "Levelling up: mostly from below", False
    return Levelling(words, is_down, highest, lowest, gap_before, gap_after, losers)
