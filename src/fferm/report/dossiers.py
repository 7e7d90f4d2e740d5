"""The pages of a dossier and of a search for alternatives: to read, print and sign."""

import math
import os
from typing import Any

from fferm.auditing.dossier import (
    DISCLAIMER,
    FOUR_FIFTHS,
    MEASURES,
    METHODS,
    SIGNED,
    SMALL_SHARE,
    Dossier,
    describe,
)
from fferm.curve import alternatives
from fferm.curve.alternatives import Alternatives
from fferm.report.audits import Verdict
from fferm.report.figures import draw_points
from fferm.report.pages import brief, number, percent, write_page

# Measures that are shares of people, and chances; others are plain numbers.
SHARES = ("accuracy", "true_positive_rate", "false_positive_rate")
CHANCES = ("p_z", "p_fisher")


def write_dossier(
    dossier: Dossier, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write a dossier as one page that needs nothing but a browser.

    Parameters
    ----------
    dossier
        What `Audit.dossier` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; by default what the rule is about.
    """
    values = {
        "title": title or dossier.rule.title,
        "dossier": dossier,
        "provenance": dossier.provenance,
        "digests": [],
        "disclaimer": DISCLAIMER,
        "verdict": judge_dossier(dossier),
        "tables": [(describe(table), table) for table in dossier.tables],
        "titles": MEASURES,
        "methods": METHODS,
        "show": show_measure,
        "axis": _rate_axis(dossier),
        "small_share": SMALL_SHARE,
        "blanks": [*dossier.rule.fill_in, *SIGNED],
    }
    write_page("dossier.html", values, path)


def write_alternatives(
    search: Alternatives, path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write a search for less discriminatory alternatives as one page.

    Parameters
    ----------
    search
        What `TradeoffCurve.alternatives` returned.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page.
    """
    rows: Any = search.models.to_dict("records")
    places = [(row["violation"], row["accuracy"]) for row in rows]
    words = "No model was taken" if search.taken is None else "A model was taken"
    values = {
        "title": title or "Search for less discriminatory alternatives",
        "search": search,
        "disclaimer": alternatives.DISCLAIMER,
        "provenance": search.provenance,
        "digests": [],
        "verdict": Verdict(words, search.reason, None),
        "pictures": draw_points(search.curve, places, search.goal.get("max_violation")),
        "models": rows,
        "is_number": "metric" in search.curve.description,
        "blanks": ["Why the model was taken", "Reviewer", *SIGNED],
    }
    write_page("alternatives.html", values, path)


def judge_dossier(dossier: Dossier) -> Verdict:
    """Return what stands at the head: what was counted, and never that all is well."""
    rows = [row for table in dossier.tables for row in table.categories.values()]
    if not dossier.rule.four_fifths:
        words = "Figures without a verdict: the text sets no limit"
        return Verdict(words, dossier.rule.limit, None)
    below = [row for row in rows if (row["impact_ratio"] or math.inf) < FOUR_FIFTHS]
    words = f"Categories below four fifths: {len(below)} of {len(rows)}"
    return Verdict(words, dossier.rule.limit, False if below else None)


def show_measure(name: str, value: float | bool | None) -> str:
    """Return a value of a measure as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or math.isnan(value):
        return "–"
    if name in SHARES:
        return percent(value)
    if name in CHANCES:
        return brief(value)
    return number(value, 2 if name == "z" else 3)


def _rate_axis(dossier: Dossier) -> tuple[float, float]:
    # Of the dots: whole twentieths around all intervals.
    ends = [
        row[end]
        for table in dossier.tables
        for row in table.categories.values()
        for end in ("rate_low", "rate_high")
        if end in row and not math.isnan(row[end])
    ]
    low = math.floor(20 * min(ends, default=0.0)) / 20
    high = math.ceil(20 * max(ends, default=1.0)) / 20
    return low, high if high > low else low + 0.05
