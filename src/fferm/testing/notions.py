"""The laws of notions of fairness."""

from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np

from fferm.errors import FfermError
from fferm.notions import Labels, Notion, Weighting
from fferm.testing._assert import claim, equal, law_of, refused, strictly


@strictly
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
    labels = _made_up_labels(classes)
    law = partial(law_of, notion, "notion")
    with law("one stratum per row"):
        strata = notion.strata(labels)
        code, names = np.asarray(strata.code), strata.names
        n_rows, low, high = labels.n_samples, code.min(), code.max()
        is_long = code.shape == (n_rows,)
        claim(is_long, f"codes have shape {code.shape} for {n_rows} rows")
        is_whole = code.dtype == np.int64
        claim(is_whole, f"codes have dtype {code.dtype}, int64 is expected")
        span = f"codes run from {low} to {high} for {len(names)} names of strata"
        claim(bool(low >= -1 and high < len(names)), span)
        claim(bool(np.any(code >= 0)), "every row is left out")
    with law("names tell strata apart"):
        is_distinct = len(set(names)) == len(names)
        is_text = all(isinstance(name, str) for name in names)
        claim(is_distinct and is_text, f"names {names!r} are not distinct strings")
    with law("labels are left alone"):
        untouched = _made_up_labels(classes)
        for name in ("y", "control"):
            is_same = np.array_equal(getattr(labels, name), getattr(untouched, name))
            claim(is_same, f"strata() wrote into labels.{name}")
    with law("the order of rows does not matter"):
        order = np.random.default_rng(1).permutation(labels.n_samples)
        y, control = np.asarray(labels.y)[order], np.asarray(labels.control)[order]
        reordered = notion.strata(replace(labels, y=y, control=control))
        equal(reordered.code, code[order], 0, order, "row")
    with law("missing labels are refused"):
        unlabelled = replace(labels, y=None)
        if notion.needs_labels:
            complaint = "it needs labels, got none and raised nothing of fferm.errors"
            with refused(FfermError, complaint):
                notion.strata(unlabelled)
        else:
            equal(notion.strata(unlabelled).code, code, 0, np.arange(code.size), "row")
    with law("weighting and comparison are known"):
        _weights_and_comparison_are_known(notion, names, labels.classes)


def _made_up_labels(classes: tuple[object, ...]) -> Labels:
    rng = np.random.default_rng(0)
    return Labels(
        n_samples=24,
        y=rng.permutation(np.arange(24) % len(classes)),
        classes=classes,
        control=rng.integers(-1, 3, 24),
        control_names=("low", "middle", "high"),
    )


def _weights_and_comparison_are_known(
    notion: Notion, strata: tuple[str, ...], classes: tuple[object, ...]
) -> None:
    claim(notion.weighting in get_args(Weighting), f"weighting is {notion.weighting!r}")
    compared = notion.comparison(strata, classes)
    place = compared.place
    if place is not None:
        low, high, shape = place.min(), place.max(), place.shape
        n_rows = len(compared.conditions) * len(compared.outcomes)
        expected = len(strata), len(classes)
        claim(shape == expected, f"place has shape {shape}, {expected} is expected")
        span = f"places run from {low} to {high} for {n_rows} outcomes"
        claim(bool(low >= -1 and high < n_rows), span)
