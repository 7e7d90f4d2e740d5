"""The report of an audit."""

import math
import os
from dataclasses import dataclass

from fferm.auditing import Audit
from fferm.metrics import Gap
from fferm.metrics.tabulator import left_out
from fferm.report.costs import compare
from fferm.report.pages import brief, number, points, render, write_page
from fferm.report.recipes import audit_recipe
from fferm.report.wording import explain

TITLE = "Fairness audit"
# Gaps closer than this are one gap: of two classes both have the same, up to rounding.
SAME_GAP = 1e-12
ERROR_RATES = {
    "accuracy": "Accuracy",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
    "precision": "Precision",
}


@dataclass(frozen=True)
class ClassRow:
    """How often one group has one label and gets one decision."""

    group: str
    count: float
    share: float
    of_labels: float
    of_decisions: float
    low: float
    high: float
    of_probabilities: float | None


@dataclass(frozen=True)
class Verdict:
    """A judgement in a few words, the sentence behind it, and whether it is good."""

    words: str
    sentence: str
    is_good: bool | None


def write_audit(
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    max_violation: float | None = None,
    before: Audit | None = None,
) -> None:
    """Write an audit as one page: verdict, groups, divergences, meaning and limits.

    Parameters
    ----------
    audit
        What `fferm.audit` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the model and the data here.
    max_violation
        The bound to hold the audit against; without one the page states the gap and
        judges nothing.
    before
        The audit, on the same rows, of the model that this one takes the place of; the
        page then says what changed for whom.

    Examples
    --------
    >>> write_audit(found, "audit.html", max_violation=0.05)  # doctest: +SKIP
    """
    values = {
        "title": title or TITLE,
        "notion": explain(audit.notion),
        "recipe": audit_recipe(
            audit,
            title=title,
            max_violation=max_violation,
            before=before,
        ),
        "audited": describe_audit(audit, max_violation, before),
        "digests": [],
    }
    write_page(render("audit.html", values), path)


def describe_audit(
    audit: Audit, max_violation: float | None, before: Audit | None = None
) -> dict[str, object]:
    """Return what the audit's part of a page speaks of."""
    classes = class_rows(audit)
    highs = [row.high for rows in classes.values() for row in rows]
    return {
        "audit": audit,
        "verdict": judge_audit(audit, max_violation),
        "worst": _worst(audit),
        "left_out": [left_out(*item, audit.n_rows) for item in audit.unjudged.items()],
        "classes": classes,
        "scale": scale_of(highs),
        "costs": [] if before is None else compare(before, audit),
        "errors": {
            name: label
            for name, label in ERROR_RATES.items()
            if any(name in row for row in audit.groups.values())
        },
    }


def judge_audit(audit: Audit, max_violation: float | None) -> Verdict:
    """Return the verdict on an audit; without a bound it only states the gap."""
    if math.isnan(audit.violation):
        return Verdict(
            "Cannot be judged", "No two groups could be compared with each other.", None
        )
    if max_violation is None:
        return Verdict(f"Largest gap: {points(audit.violation)}", "", None)
    bound = f"the bound of {brief(max_violation)}"
    if not audit.passes(max_violation):
        sentence = f"The violation of {number(audit.violation)} is above {bound}."
        return Verdict("Does not keep the bound", sentence, False)
    if audit.passes(max_violation, confident=True):
        sentence = f"The whole interval of the violation is within {bound}."
        return Verdict("Keeps the bound", sentence, True)
    sentence = (
        f"The violation of {number(audit.violation)} is within {bound}, but its "
        f"interval reaches {number(audit.interval[1])}: these rows leave room for a "
        "larger gap."
    )
    return Verdict("Keeps the bound on these rows", sentence, None)


def class_rows(audit: Audit) -> dict[str, list[ClassRow]]:
    """Return the rates of each group, by class; of two classes one says all."""
    shown = audit.classes[1:] if len(audit.classes) == 2 else audit.classes
    return {label: _class_rows(audit, label) for label in shown}


def _class_rows(audit: Audit, label: str) -> list[ClassRow]:
    return [
        ClassRow(
            group=group,
            count=row["count"],
            share=row["share"],
            of_labels=row[f"base_rate_{label}"],
            of_decisions=row[f"selection_rate_{label}"],
            low=row[f"selection_low_{label}"],
            high=row[f"selection_high_{label}"],
            of_probabilities=row.get(f"soft_rate_{label}"),
        )
        for group, row in audit.groups.items()
    ]


def _worst(audit: Audit) -> Gap | None:
    # The last of equals: of two classes the positive one.
    largest = [gap for gap in audit.gaps if gap.gap >= audit.violation - SAME_GAP]
    return largest[-1] if largest else None


def scale_of(highs: list[float]) -> float:
    """Return the right end of bars: the next tenth above every interval."""
    highest = max((high for high in highs if not math.isnan(high)), default=1.0)
    return min(1.0, math.ceil(10 * highest) / 10) or 1.0
