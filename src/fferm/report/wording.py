"""Notions of fairness and measures of dependence in plain words."""

from typing import NamedTuple

ALIKE = "every group should get each decision equally often"
# By the name of a notion, without underscores and capitals.
NOTIONS = {
    "demographicparity": f"{ALIKE.capitalize()}, whatever the labels say.",
    "equalopportunity": f"Among those whose label is positive, {ALIKE}.",
    "falsepositiverateparity": f"Among those whose label is negative, {ALIKE}.",
    "equalizedodds": f"Among those with the same label, {ALIKE}.",
    "conditionalparity": f"Among those who are alike in the control feature, {ALIKE}.",
    "sufficiency": "Among those who got the same decision, the label should be equally "
    "frequent in every group: a decision should mean the same for all.",
    "predictiveparity": "Among those who got the positive decision, the label should "
    "be equally frequent in every group.",
}
UNKNOWN = "Groups are compared as this notion says."


def explain(notion: str) -> str:
    """Return what a notion asks for.

    Parameters
    ----------
    notion
        Its name, or its repr.

    Examples
    --------
    >>> explain("EqualizedOdds()") == explain("equalized_odds")
    True
    """
    name = notion.partition("(")[0].replace("_", "").lower()
    return NOTIONS.get(name, UNKNOWN)


# What a measure of `fferm.metrics.dependence` is called; `meaning.html` says more.
TITLES = {
    "kolmogorov_smirnov": "Kolmogorov-Smirnov distance",
    "wasserstein": "Wasserstein distance",
    "mean_gap": "Gap of means",
    "correlation": "Linear correlation",
    "distance_correlation": "Distance correlation",
    "maximal_correlation": "Maximal correlation",
    "f_information": "f-information",
}


class CurveWords(NamedTuple):
    """What measures of a curve are called, and a model that tells nobody apart."""

    accuracy: str
    violation: str
    violation_axis: str
    collapsed: str


def curve_words(metric: str | None) -> CurveWords:
    """Return what the measures of a curve are called; None is a classifier's."""
    if metric is None:
        gap = "Violation: largest gap between groups"
        return CurveWords("Accuracy", "Violation", gap, "one decision for everyone")
    title = TITLES.get(metric, metric)
    same = "one prediction for everyone"
    return CurveWords("Variance explained", title, f"Violation: {title}", same)
