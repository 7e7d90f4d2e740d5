"""The pages of a dossier and of a search for alternatives: to read, print and sign."""

import math
import os
from typing import Any

from fferm.auditing.dossier import (
    DISCLAIMER,
    MEASURES,
    METHODS,
    SIGNED,
    SMALL_SHARE,
    Dossier,
    describe,
)
from fferm.curve import alternatives
from fferm.curve.alternatives import Alternatives
from fferm.report.audits import Verdict, axis_around
from fferm.report.figures import draw_points
from fferm.report.pages import brief, gap, number, percent, price, write_page

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
        "axis": axis_around(
            row[end]
            for table in dossier.tables
            for row in table.categories.values()
            for end in ("rate_low", "rate_high")
            if end in row
        ),
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
    is_number = "metric" in search.curve.description
    keys = [(row["curve"], row["fairness_weight"]) for row in rows]
    taken = None if search.taken is None else keys.index(search.taken[:2])
    bound = search.goal.get("max_violation")
    values = {
        "title": title or "Search for less discriminatory alternatives",
        "search": search,
        "disclaimer": alternatives.DISCLAIMER,
        "provenance": search.provenance,
        "digests": [],
        "verdict": judge_search(search, rows, is_number),
        "pictures": draw_points(search.curve, places, bound, taken),
        "models": rows,
        "is_number": is_number,
        "blanks": ["Why the model was taken", "Reviewer", *SIGNED],
    }
    write_page("alternatives.html", values, path)


def judge_search(
    search: Alternatives, rows: list[dict[str, Any]], is_number: bool
) -> Verdict:
    """Return which model was taken, in the units of the page."""
    if search.taken is None:
        return Verdict("No model was taken", search.reason, None)
    at = {(row["curve"], row["fairness_weight"]): row for row in rows}
    row, base = (at[key[:2]] for key in (search.taken, search.compared_with))
    goal = next(name for name in alternatives.WORDS if name in search.goal)
    is_plain = is_number and goal == "max_violation"
    share = "the variance" if is_number else "accuracy"
    return Verdict(
        f"Taken: {row['curve']}, fairness weight {brief(row['fairness_weight'])}",
        f"Of {len(rows)} models it is {alternatives.WORDS[goal]} "
        f"{gap(search.goal[goal], is_plain)} on test rows. Its violation is "
        f"{gap(row['violation'], is_number)} instead of "
        f"{gap(base['violation'], is_number)}, {price(row['accuracy_lost'], share)}.",
        None,
    )


def judge_dossier(dossier: Dossier) -> Verdict:
    """Return what stands at the head: what was counted, and never that all is well."""
    rows = [row for table in dossier.tables for row in table.categories.values()]
    if not dossier.rule.four_fifths:
        words = "Figures without a verdict: the text sets no limit"
        return Verdict(words, dossier.rule.limit, None)
    below = [row for row in rows if row["four_fifths"] is False]
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
