"""Rows held out of training, the same share of every label, stratum and group."""

from collections.abc import Mapping
from dataclasses import replace

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, check_random_state

from fferm._typing import IntArray, Table, is_sparse
from fferm.data.rows import FitInput, Rows, check_aligned, combine
from fferm.data.validate import TrainingData, one_column, read_frame
from fferm.errors import InvalidInputError, InvalidParameterError, MissingSensitiveError

# Held-out rows of a kind below which the kind is rare.
RARE = 5


def kinds(rows: Rows, label: IntArray) -> IntArray:
    """Return (n_samples,) codes, one for each label, stratum and group."""
    return combine([label, rows.strata.code, *(a.code for a in rows.attributes)])


def hold_out(
    kind: IntArray, fraction: float, random_state: int | np.random.RandomState | None
) -> NDArray[np.bool_]:
    """Return which rows are held out, stratified by ``kind``.

    If there are two rows of a kind, at least one is on either side.
    """
    size = np.bincount(kind)
    count = np.minimum(np.maximum(np.rint(fraction * size), 1), size - 1)
    order = np.lexsort((check_random_state(random_state).random(kind.size), kind))
    rank = np.empty_like(kind)
    rank[order] = np.arange(kind.size) - np.repeat(np.cumsum(size) - size, size)
    return np.asarray(rank < count[kind])


def hold_out_evenly(
    rows: Rows,
    label: IntArray,
    fraction: float,
    random_state: int | np.random.RandomState | None,
) -> NDArray[np.bool_]:
    """Return which rows are held out to test a bound: each as probably as any other.

    Rows are stratified as by `hold_out`, which would take too many rows of a rare kind,
    or none. So of rare kinds that are parts of a group, every so many-th row is taken.
    """
    kind = kinds(rows, label)
    held = hold_out(kind, fraction, random_state)
    group = combine([rows.attributes[0].code, rows.strata.code])
    size, whole = (np.bincount(code)[code] for code in (kind, group))
    rare = np.flatnonzero((fraction * size < RARE) & (size < whole))
    order, is_held = _deal(group[rare], fraction, check_random_state(random_state))
    held[rare[order]] = is_held
    return held


def deal_folds(kind: IntArray, n_folds: int, seed: int) -> IntArray:
    """Return the fold of each row, stratified by kind.

    The folds are those of scikit-learn's `StratifiedKFold`, which would warn of kinds
    with fewer rows than folds: these are in some of the folds only.
    """
    _, first, code = np.unique(kind, return_index=True, return_inverse=True)
    most = np.bincount(code).max()
    if most < n_folds:
        raise InvalidInputError(
            f"{n_folds} folds need a label and group with at least as many rows; the "
            f"largest has {most}. Use fewer folds."
        )
    order = np.argsort(first[code], kind="stable")  # by kind, the first to appear first
    fold, rng = np.arange(kind.size) % n_folds, check_random_state(seed)
    ends = np.cumsum(np.bincount(code)[np.argsort(first)])[:-1]
    dealt = [rng.permutation(np.sort(part)) for part in np.split(fold, ends)]
    fold[order] = np.concatenate(dealt)
    return fold


def keep_rows(
    passed: FitInput, data: TrainingData, kept: NDArray[np.bool_]
) -> FitInput:
    """Return the same arguments of `fit`, with weight 0 for rows that are not kept.

    No row is removed, so tables of every kind work as passed.
    """
    weight = np.zeros(data.kept.size)
    weight[data.kept] = np.where(kept, data.weight, 0.0)
    return replace(passed, sample_weight=weight)


def keep_penalty_rows(
    passed: FitInput, counted: NDArray[np.bool_], kept: NDArray[np.bool_]
) -> FitInput:
    """Return the same arguments of `fit`, with some of the penalty's rows only.

    ``kept`` says so for each row that counted before, ``counted``.
    """
    penalty_kept = counted.copy()
    penalty_kept[counted] = kept
    return replace(passed, penalty_kept=penalty_kept)


def read_rows(
    X: Table, y: Table, sensitive_features: Table, sample_weight: Table = None
) -> FitInput:
    """Return tables that belong together, of equal length, so that rows can be taken.

    Labels of one column and groups of a lazy frame are read as `fit` does.
    """
    if y is None:
        raise InvalidInputError(
            "y is None. Accuracy is measured, so every row needs a label or a number."
        )
    if sensitive_features is None:
        raise MissingSensitiveError(
            "Fairness is measured, which needs sensitive_features. Pass the groups."
        )
    native = nw.from_native(sensitive_features, pass_through=True)
    if isinstance(native, nw.LazyFrame):
        sensitive_features = native.collect().to_native()
    if not isinstance(X, np.ndarray):
        read_frame(X)  # refuses a lazy frame
    rows = FitInput(X, one_column(y), sensitive_features, sample_weight)
    check_aligned(**rows.tables, are_equal=True)
    return rows


def take_rows(passed: FitInput, rows: IntArray) -> FitInput:
    """Return the same arguments of `fit` for some of the rows."""

    def take(table: Table) -> Table:
        if table is None:
            return None
        if isinstance(table, Mapping):
            return {name: take(column) for name, column in table.items()}
        return _safe_indexing(table.tocsr() if is_sparse(table) else table, rows)

    return replace(passed, **{n: take(table) for n, table in passed.tables.items()})


def split_by_label(
    passed: FitInput, fraction: float, seed: int
) -> tuple[FitInput, FitInput]:
    """Return rows to train on and a share to test on, stratified by label."""
    y = np.asarray(passed.y)
    is_repeated = np.unique(y, return_counts=True)[1].min() > 1
    train, test = train_test_split(
        np.arange(len(y)),
        test_size=fraction,
        random_state=seed,
        stratify=y if is_repeated else None,
    )
    return take_rows(passed, train), take_rows(passed, test)


def split_strata(
    stratum: IntArray, test_size: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Return shuffled positions of the training rows and of the test rows.

    The rows are put in random order, grouped by stratum, and every (1/test_size)-th
    of them is taken from a random start. Each row is tested with probability
    `test_size`, and each stratum, however small, gives its share to within one row
    (scikit-learn's stratified split refuses strata of one).
    """
    n_samples = len(stratum)
    order, is_test = _deal(stratum, test_size, rng)
    train, test = rng.permutation(order[~is_test]), rng.permutation(order[is_test])
    if not len(train) or not len(test):
        raise InvalidParameterError(
            f"A test share of {test_size:g} leaves {len(train)} training and "
            f"{len(test)} test rows of {n_samples}. Both need some; pass more rows."
        )
    return train, test


def _deal(
    stratum: IntArray, share: float, rng: np.random.Generator | np.random.RandomState
) -> tuple[IntArray, NDArray[np.bool_]]:
    # Rows in random order, grouped by stratum, and which of them belong to the share.
    order = rng.permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    ticks = np.floor(np.arange(len(stratum) + 1) * share + rng.random())
    return order, np.diff(ticks) > 0
