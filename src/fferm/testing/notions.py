"""The laws of notions of fairness."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from fferm.errors import FfermError
from fferm.notions import Labels, Notion, Weighting
from fferm.testing._assert import claim, equal, hold, refused


def check_notion(notion: Notion, *, classes: tuple[object, ...] = (0, 1)) -> None:
    """Hold a notion of fairness to its contract.

    Parameters
    ----------
    notion
        An instance.
    classes
        The labels to try it on, for notions that name one of them.

    Raises
    ------
    ComponentError
        If a law is broken. The message names the law and what broke it.

    Examples
    --------
    >>> from fferm.notions import EqualOpportunity
    >>> check_notion(EqualOpportunity(positive="yes"), classes=("no", "yes"))
    """
    hold(notion, NOTION_LAWS, _made_up_labels(classes))


def _made_up_labels(classes: tuple[object, ...]) -> Labels:
    rng = np.random.default_rng(0)
    return Labels(
        n_samples=24,
        y=rng.permutation(np.arange(24) % len(classes)),
        classes=classes,
        control=rng.integers(-1, 3, 24),
        control_names=("low", "middle", "high"),
    )


def _is_one_code_per_row(notion: Notion, labels: Labels) -> None:
    strata = notion.strata(labels)
    code, n_strata = np.asarray(strata.code), len(strata.names)
    claim(
        code.shape == (labels.n_samples,),
        f"codes have shape {code.shape} for {labels.n_samples} rows",
    )
    claim(code.dtype == np.int64, f"codes have dtype {code.dtype}, int64 is expected")
    claim(
        bool(code.min() >= -1 and code.max() < n_strata),
        f"codes run from {code.min()} to {code.max()} for {n_strata} names of strata",
    )
    claim(bool(np.any(code >= 0)), "every row is left out")


def _names_tell_strata_apart(notion: Notion, labels: Labels) -> None:
    names = notion.strata(labels).names
    claim(
        all(isinstance(name, str) for name in names) and len(set(names)) == len(names),
        f"names {names!r} are not distinct strings",
    )


def _order_of_rows_does_not_matter(notion: Notion, labels: Labels) -> None:
    order = np.random.default_rng(1).permutation(labels.n_samples)
    expected = np.asarray(notion.strata(labels).code)[order]
    y, control = np.asarray(labels.y)[order], np.asarray(labels.control)[order]
    reordered = replace(labels, y=y, control=control)
    code = np.asarray(notion.strata(reordered).code)
    equal(code, expected, 0, order, "row")


def _data_are_left_alone(notion: Notion, labels: Labels) -> None:
    notion.strata(labels)
    untouched = _made_up_labels(labels.classes)
    for name in ("y", "control"):
        is_same = np.array_equal(getattr(labels, name), getattr(untouched, name))
        claim(is_same, f"strata() wrote into labels.{name}")


def _missing_labels_are_refused(notion: Notion, labels: Labels) -> None:
    unlabelled = replace(labels, y=None)
    if not notion.needs_labels:
        code = np.asarray(notion.strata(unlabelled).code)
        equal(code, notion.strata(labels).code, 0, np.arange(code.size), "row")
        return
    complaint = "it needs labels, got none and raised nothing of fferm.errors"
    with refused(FfermError, complaint):
        notion.strata(unlabelled)


def _weights_and_comparison_are_known(notion: Notion, labels: Labels) -> None:
    claim(notion.weighting in get_args(Weighting), f"weighting is {notion.weighting!r}")
    strata = notion.strata(labels).names
    compared = notion.comparison(strata, labels.classes)
    place = compared.place
    if place is None:
        return
    shape, n_rows = place.shape, len(compared.conditions) * len(compared.outcomes)
    expected = len(strata), len(labels.classes)
    claim(shape == expected, f"place has shape {shape}, {expected} is expected")
    claim(
        bool(place.min() >= -1 and place.max() < n_rows),
        f"places run from {place.min()} to {place.max()} for {n_rows} outcomes",
    )


NOTION_LAWS: dict[str, Callable[[Notion, Labels], None]] = {
    "one stratum per row": _is_one_code_per_row,
    "names tell strata apart": _names_tell_strata_apart,
    "labels are left alone": _data_are_left_alone,
    "the order of rows does not matter": _order_of_rows_does_not_matter,
    "missing labels are refused": _missing_labels_are_refused,
    "weighting and comparison are known": _weights_and_comparison_are_known,
}
