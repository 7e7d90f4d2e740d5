"""The report of a trade-off curve, on which a click shows what a model does to groups.

matplotlib draws the points, once for wide and once for narrow pages. The script of the
page only finds out which one is meant and shows its part of the page; without scripts,
and on paper, the picture is the same.
"""

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd

from fferm.auditing import Audit
from fferm.curve import Key, TradeoffCurve
from fferm.errors import InvalidInputError
from fferm.report import figures
from fferm.report.audits import (
    Verdict,
    compare,
    describe_audit,
    draw_columns,
    mean_axes,
    rate_axis,
)
from fferm.report.pages import (
    brief,
    check_provenance,
    gap,
    percent,
    plain,
    price,
    write_page,
)
from fferm.report.pages import points as points_of
from fferm.report.snippets import curve_snippet
from fferm.report.wording import CurveWords, curve_words, explain
from fferm.solvers import Result

TITLE = "What fairness costs: accuracy against violation"
NUMBER_TITLE = "What fairness costs: variance explained against violation"
POINT = ["curve", "fairness_weight"]


class Spread(NamedTuple):
    """The mean of a measure over seeds, with the lowest and the highest."""

    mean: float
    low: float
    high: float


class Point(NamedTuple):
    """The models of one curve and fairness weight.

    Attributes
    ----------
    curve, fairness_weight, seed
        The key of the model that stands for them: that of the first seed.
    train, test
        Each measure of that split, by name.
    seconds
        Training time of one model.
    is_best
        Whether no other point has a higher accuracy and a lower violation on test.
    is_collapsed
        Whether some model decides the same for everyone.
    is_converged
        Whether every model reached its tolerance, or the end of its schedule.
    audit
        Of the model that stands for them, on the test rows; None if there is none.
    """

    curve: str
    fairness_weight: float
    seed: int
    train: dict[str, Spread]
    test: dict[str, Spread]
    seconds: float
    is_best: bool
    is_collapsed: bool
    is_converged: bool
    audit: Audit | None

    @property
    def is_plain(self) -> bool:
        """Whether this is training without a fairness term."""
        return self.fairness_weight == 0


def write_curve(
    curve: TradeoffCurve,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    audit: Audit | None = None,
    max_violation: float | None = None,
    provenance: Mapping[str, object] | None = None,
) -> None:
    """Write a curve as one page on which a click shows what a model does to groups.

    Parameters
    ----------
    curve
        What `fferm.tradeoff_curve` returned, or `TradeoffCurve.load`.
    path
        Where to write; an existing file is replaced.
    title
        The heading of the page; name the data here.
    audit
        The audit of the model that was chosen from the curve, to be shown beside it.
    max_violation
        The bound that the audit is held against, and that the page picks the most
        accurate model for; without one it picks the knee of the front.
    provenance
        Where the rows and the model come from, by what it is called, such as
        ``{"Data": "loans.csv", "Date": "2024-05-01"}``; shown as it is.

    Examples
    --------
    >>> write_curve(curve, "report.html")  # doctest: +SKIP
    """
    script = files("fferm.report").joinpath("templates/front.js").read_text("utf-8")
    models = points(curve)
    chosen = _chosen(curve, models, max_violation)
    best = chosen or min(
        (point for point in models if point.is_best),
        key=lambda point: point.test["violation"].mean,
        default=models[0],
    )
    picked, about = models.index(best), curve.description
    is_number, say = "metric" in about, curve_words(about.get("metric"))
    plain_number = plain if is_number else percent
    places = [(p.test["violation"].mean, p.test["accuracy"].mean) for p in models]
    plains = {point.curve: point for point in models if point.is_plain}
    # The price of a model is that against the plain model of its own curve.
    base = plains.get(best.curve, next(iter(plains.values()), None))
    values = {
        "title": title or (NUMBER_TITLE if is_number else TITLE),
        "is_number": is_number,
        "say": say,
        "max_violation": max_violation,
        "description": about,
        "notion": explain(about["notion"]),
        "pictures": figures.draw_points(curve, places, max_violation),
        "front": {**pickable(models, say, plain_number), "picked": picked},
        "script": script,
        "digests": [digest(script)],
        "snippet": curve_snippet(
            curve, title=title, max_violation=max_violation, provenance=provenance
        ),
        "provenance": check_provenance(provenance),
        "audited": None if audit is None else describe_audit(audit, max_violation),
        "points": models,
        "chosen": chosen,
        "verdict": judge_curve(curve, base, chosen, max_violation),
        "picked": picked,
        "plains": plains,
        "plain": base,
        "details": [
            _detail(f"point{number}column", point, plains.get(point.curve))
            for number, point in enumerate(models)
        ],
        # One scale for all, so that bars of two models can be compared.
        "axis": rate_axis(point.audit for point in models),
        "bands": curve.bands().set_index(POINT).to_dict("index"),
        "volumes": {name: alone.hypervolume() for name, alone in curve.curves.items()},
        "weights": sorted({point.fairness_weight for point in models}),
        "n_seeds": curve.records["seed"].nunique(),
        "n_curves": curve.records["curve"].nunique(),
    }
    write_page("curve.html", values, path)


def points(curve: TradeoffCurve) -> list[Point]:
    """Return the points of each curve, in ascending order of their weights."""
    records, front = curve.records, figures.average(curve).pareto()
    best = set(zip(front["curve"], front["fairness_weight"], strict=True))
    order = {name: number for number, name in enumerate(records["curve"].unique())}
    listed = []
    for _, rows in records.groupby([records["curve"].map(order), "fairness_weight"]):
        first = rows.iloc[0]
        key = Key(first["curve"], float(first["fairness_weight"]), int(first["seed"]))
        train, test = (_spreads(rows, split) for split in ("train", "test"))
        measured = train, test, figures.mean(rows["seconds"])
        is_best, is_collapsed = key[:2] in best, bool(rows["collapsed"].any())
        is_converged = all(Result[each].is_success for each in rows["result"].dropna())
        flags = is_best, is_collapsed, is_converged
        listed.append(Point(*key, *measured, *flags, curve.audits.get(key)))
    return listed


def _spreads(rows: pd.DataFrame, split: str) -> dict[str, Spread]:
    rows = rows[rows["split"] == split]
    return {
        name: Spread(figures.mean(rows[name]), rows[name].min(), rows[name].max())
        for name in figures.MEASURES
    }


def _detail(label: str, point: Point, plain: Point | None) -> dict[str, Any]:
    before = None if plain is None or point.is_plain else plain.audit
    columns = getattr(point.audit, "columns", {})
    shown = {name: column for name, column in columns.items() if not column.is_joint}
    pictures, costs = draw_columns(shown, label), compare(before, point.audit)
    axes = mean_axes(point.audit, before)
    return {"before": before, "pictures": pictures, "costs": costs, "axes": axes}


def _chosen(
    curve: TradeoffCurve, models: list[Point], max_violation: float | None
) -> Point | None:
    how = "knee" if max_violation is None else None
    try:
        key = curve.choose(how, max_violation=max_violation)  # type: ignore[arg-type]
    except InvalidInputError:  # no model is within the bound, or none can be judged
        return None
    return next(point for point in models if point[:2] == key[:2])


def judge_curve(
    curve: TradeoffCurve,
    base: Point | None,
    chosen: Point | None,
    max_violation: float | None,
) -> Verdict:
    """Return the verdict on a curve and three sentences behind it.

    Parameters
    ----------
    curve
        What the page is about.
    base, chosen
        The model without a fairness term, and the one that the page proposes.
    max_violation
        The bound; without one the page proposes the knee and judges nothing.
    """
    is_number = "metric" in curve.description
    bound = "" if max_violation is None else gap(max_violation, is_number)
    first = [] if base is None else [_state("The plain model", base, is_number)]
    if chosen is None and max_violation is None:
        return Verdict("Cannot be judged", "No model could be judged.", None)
    if chosen is None:
        words = (
            f"No model of this curve keeps the violation within {bound} on test rows."
        )
        more = "More fairness weight, or another divergence, may reach it."
        return Verdict("The bound is not kept", " ".join([*first, words, more]), False)
    headline, change = _compare(base, chosen, is_number)
    weight = f"(fairness weight {brief(chosen.fairness_weight)})"
    name = f"The most accurate model within {bound} {weight}"
    if max_violation is None:
        name = f"The knee, where more fairness begins to cost more {weight},"
    words = " ".join([*first, _state(name, chosen, is_number), *change])
    if max_violation is None:
        return Verdict(headline, words, None)
    band = curve.bands().set_index(POINT)["violation_high"]
    high = band.get((chosen.curve, chosen.fairness_weight), float("nan"))
    if high <= max_violation:
        return Verdict("The bound can be kept", words, True)
    headline = "The bound can be kept on these rows; the interval reaches beyond it"
    return Verdict(headline, words, None)


def _state(name: str, point: Point, is_number: bool) -> str:
    accuracy = percent(point.test["accuracy"].mean)
    violation = gap(point.test["violation"].mean, is_number)
    if is_number:
        return (
            f"{name} explains {accuracy} of the variance; its violation is {violation}."
        )
    return f"{name} has an accuracy of {accuracy} and a violation of {violation}."


def _compare(
    base: Point | None, chosen: Point, is_number: bool
) -> tuple[str, list[str]]:
    # What a model costs and brings: in a headline, and in a sentence.
    reached = chosen.test["violation"].mean
    headline = f"A violation of {gap(reached, is_number)}"
    if base is None:
        return headline, []
    if chosen is base:
        return headline, ["On these rows a fairness term does not improve on it."]
    lost = base.test["accuracy"].mean - chosen.test["accuracy"].mean
    paid = price(lost, "the variance" if is_number else "accuracy")
    before = base.test["violation"].mean
    less = gap(before - reached, True) if is_number else points_of(before - reached)
    sentence = f"It lowers the violation by {less}{_levelled(base, chosen)}, {paid}."
    return f"{headline} instead of {gap(before, is_number)}, {paid}", [sentence]


def _levelled(base: Point, chosen: Point) -> str:
    # Who paid for a smaller gap, in brackets.
    for cost in compare(base.audit, chosen.audit)[:1]:
        if cost.levelling:
            words = cost.levelling.words
            return f" ({words[0].lower()}{words[1:]})"
    return ""


def pickable(
    points: list[Point], words: CurveWords, form: Callable[[float], str]
) -> dict[str, Any]:
    """Return what the script of a page needs to know of points that can be picked.

    Parameters
    ----------
    points
        In the order of the page.
    words
        What the measures are called.
    form
        How violations are written.
    """
    at = [point.test["violation"].mean for point in points]
    is_alone = len({point.curve for point in points}) == 1
    texts = [
        [
            *([] if is_alone else [point.curve]),
            f"fairness weight {brief(point.fairness_weight)}",
            f"{words.accuracy.lower()} {percent(point.test['accuracy'].mean)}",
            f"violation {form(violation)}",
        ]
        for point, violation in zip(points, at, strict=True)
    ]
    # From the fairest to the most accurate of the best trade-offs.
    best = (k for k, point in enumerate(points) if point.is_best)
    known = [violation if violation == violation else None for violation in at]
    front = sorted(best, key=lambda k: at[k])
    return {"violations": known, "texts": texts, "front": front}


def digest(script: str) -> str:
    """Return what a page's security policy knows a script by."""
    value = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(value).decode()}"
