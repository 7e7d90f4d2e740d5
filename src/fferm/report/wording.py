"""The notions of fairness in plain words."""

# By the name of a notion, without underscores and capitals.
NOTIONS = {
    "demographicparity": (
        "Every group should get each decision equally often, whatever the labels say."
    ),
    "equalopportunity": (
        "Among those whose label is positive, every group should get each decision "
        "equally often."
    ),
    "falsepositiverateparity": (
        "Among those whose label is negative, every group should get each decision "
        "equally often."
    ),
    "equalizedodds": (
        "Among those with the same label, every group should get each decision "
        "equally often."
    ),
    "conditionalparity": (
        "Among those who are alike in the control feature, every group should get "
        "each decision equally often."
    ),
    "sufficiency": (
        "Among those who got the same decision, the label should be equally frequent "
        "in every group: a decision should mean the same for all."
    ),
    "predictiveparity": (
        "Among those who got the positive decision, the label should be equally "
        "frequent in every group."
    ),
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
