"""The rows of a sweep: what is trained on, and what is measured on."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing

from fferm._typing import IntArray, Table, is_sparse
from fferm.data.groups import collected
from fferm.data.rows import check_aligned, check_lengths
from fferm.data.validate import one_column
from fferm.errors import InvalidInputError, InvalidParameterError

HELD_OUT_SHARE = 0.25


@dataclass(frozen=True)
class Split:
    """Rows to train or to measure on."""

    X: Table
    y: Table
    sensitive_features: Table
    sample_weight: Table = None

    def __post_init__(self) -> None:
        """Take labels of one column, and groups of a lazy frame, as `fit` does."""
        object.__setattr__(self, "y", one_column(self.y))
        whole = collected(self.sensitive_features)
        object.__setattr__(self, "sensitive_features", whole)


@dataclass(frozen=True)
class Rows:
    """All rows of a sweep; without ``test`` a quarter is held out for each seed."""

    whole: Split
    test: Split | None

    def for_seed(self, seed: int) -> dict[str, Split]:
        """Return the rows to train and to measure on, ``"train"`` and ``"test"``."""
        if self.test is not None:
            return {"train": self.whole, "test": self.test}
        train, test = hold_out(self.whole, seed)
        return {"train": train, "test": test}


def check_part(part: Split) -> None:
    """Refuse rows that cannot be told apart: before some of them are held out."""
    if part.y is None:
        raise InvalidInputError(
            "y is None. Expected a label, or a number, of every row: a curve measures "
            "accuracy too."
        )
    check_lengths(**vars(part))
    check_aligned(**vars(part))


def read_test(test: tuple[Table, ...] | Mapping[str, Table] | None) -> Split | None:
    """Return the rows that a caller gave to measure on."""
    if test is None:
        return None
    names = ("X", "y", "sensitive_features", "sample_weight")
    if isinstance(test, Mapping):
        if set(names[:3]) <= set(test) <= set(names):
            return Split(**test)
        came = f"keys {', '.join(map(str, test))}"
    else:
        if isinstance(test, tuple | list) and len(test) in (3, 4):
            return Split(*test)
        came = f"{len(test)} parts" if isinstance(test, Sized) else "no parts"
    raise InvalidParameterError(
        f"test is a {type(test).__name__} with {came}. Expected a dict with keys X, y, "
        "sensitive_features and perhaps sample_weight, a tuple of them in this order, "
        "or None to hold out a quarter of the rows."
    )


def hold_out(whole: Split, seed: int) -> tuple[Split, Split]:
    """Return three quarters and one quarter of the rows, stratified by label."""
    y = np.asarray(whole.y)
    counts = np.unique(y, return_counts=True)[1]
    train, test = train_test_split(
        np.arange(len(y)),
        test_size=HELD_OUT_SHARE,
        random_state=seed,
        stratify=y if counts.min() > 1 else None,
    )
    return _take(whole, train), _take(whole, test)


def _take(whole: Split, rows: IntArray) -> Split:
    sensitive = whole.sensitive_features
    if isinstance(sensitive, Mapping):
        taken: Table = {k: _safe_indexing(v, rows) for k, v in sensitive.items()}
    else:
        taken = _safe_indexing(sensitive, rows)
    X = whole.X.tocsr() if is_sparse(whole.X) else whole.X
    weight = whole.sample_weight
    return Split(
        _safe_indexing(X, rows),
        _safe_indexing(whole.y, rows),
        taken,
        None if weight is None else _safe_indexing(weight, rows),
    )
