"""The rows that candidates are judged by, three ways to get them."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import _safe_indexing

from fferm._typing import IntArray, Table, is_sparse
from fferm.data.groups import encode_sensitive
from fferm.data.rows import FitInput
from fferm.data.validate import check_number, check_whole, factorize, one_column
from fferm.errors import InvalidInputError, InvalidParameterError


@dataclass(frozen=True)
class Fold:
    """Rows to train on, and rows that the model then decides about."""

    train: FitInput
    judge: FitInput


class Validation(ABC):
    """Says which rows candidates are judged by.

    The decisions about all folds are judged together, each made by a model that did not
    see its row: a violation measured on each fold alone would grow with the number of
    folds, for gaps of small samples never are negative.
    """

    @abstractmethod
    def folds(self, given: FitInput) -> Iterator[Fold]:
        """Yield the folds; the same in every call."""

    @abstractmethod
    def judges(self, given: FitInput) -> FitInput:
        """Return the rows of all folds that are decided about, one after another."""


@dataclass(frozen=True, eq=False)
class TargetSample(Validation):
    """Judge by labelled rows of the domain that the model is for.

    All source rows train. A few percent of the target are enough to choose two numbers
    by, where they would be too few to train on.

    Attributes
    ----------
    X, y, sensitive_features
        The sample, as in `fit`.
    """

    X: Table
    y: Table
    sensitive_features: Table

    def folds(self, given: FitInput) -> Iterator[Fold]:
        """Yield one fold: the source to train on, the sample to judge by."""
        yield Fold(given, self.judges(given))

    def judges(self, given: FitInput) -> FitInput:
        """Return the sample."""
        return FitInput(self.X, one_column(self.y), self.sensitive_features)


@dataclass(frozen=True)
class CrossValidation(Validation):
    """Judge by folds of the source, with each label and group in every fold.

    Attributes
    ----------
    splitter
        How many folds, or a splitter of scikit-learn with a seed. It is given the label
        and group of each row as the classes to stratify by.
    random_state
        Seed of the folds; not used with a splitter.
    """

    splitter: Any = 5
    random_state: int = 0

    def folds(self, given: FitInput) -> Iterator[Fold]:
        """Yield each fold."""
        for train, judge in self._parts(given):
            yield Fold(take(given, train), take(given, judge))

    def judges(self, given: FitInput) -> FitInput:
        """Return the rows of all folds."""
        return take(given, np.concatenate([rows for _, rows in self._parts(given)]))

    def _parts(self, given: FitInput) -> list[tuple[IntArray, IntArray]]:
        kind = _kinds(given)
        with warnings.catch_warnings():
            # Kinds of fewer rows than folds are in some folds only, as they must.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            return list(self._splitter().split(np.zeros((kind.size, 1)), kind))

    def _splitter(self) -> Any:
        if hasattr(self.splitter, "split"):
            return self.splitter
        if check_whole("splitter", self.splitter) < 2:
            raise InvalidParameterError(
                "splitter=1 came. Expected two folds or more, or a splitter of "
                "scikit-learn."
            )
        return StratifiedKFold(
            self.splitter, shuffle=True, random_state=self.random_state
        )


@dataclass(frozen=True)
class EvenHoldout(Validation):
    """Judge by held-out rows that have as many of each group.

    A violation compares rates, so copies of rows of a small group change nothing of
    it; what a small group lacks is rows to measure its rate by. So more of its rows are
    held out, up to half of them, and fewer of the large ones.

    Attributes
    ----------
    fraction
        The share of all rows that is held out where groups are large enough.
    random_state
        Seed of the rows.
    """

    fraction: float = 0.25
    random_state: int = 0

    def folds(self, given: FitInput) -> Iterator[Fold]:
        """Yield one fold."""
        held = self._held(given)
        rest = np.setdiff1d(np.arange(len(given.y)), held)
        yield Fold(take(given, rest), take(given, held))

    def judges(self, given: FitInput) -> FitInput:
        """Return the held-out rows."""
        return take(given, self._held(given))

    def _held(self, given: FitInput) -> IntArray:
        share = check_number("fraction", self.fraction, above=True)
        if share >= 1:
            raise InvalidParameterError(
                f"fraction={share:g} came. Expected a share above 0 and below 1."
            )
        group = _groups(given)
        size = np.bincount(group[group >= 0])
        if size.size == 0:
            raise InvalidInputError(
                "No row has a value of every sensitive column. Expected groups to hold "
                "rows out of; check how sensitive_features was read."
            )
        wanted = np.minimum(size // 2, int(share * group.size / size.size))
        if wanted.min() == 0:
            raise InvalidInputError(
                "Some group has too few rows to hold any out. Merge groups, or use "
                "CrossValidation."
            )
        rng = np.random.default_rng(self.random_state)
        order = rng.permutation(group.size)
        held = [order[group[order] == k][:n] for k, n in enumerate(wanted)]
        return np.sort(np.concatenate(held))


def take(given: FitInput, rows: IntArray) -> FitInput:
    """Return some of the rows."""
    sensitive = given.sensitive_features
    if isinstance(sensitive, Mapping):
        groups: Table = {k: _safe_indexing(v, rows) for k, v in sensitive.items()}
    else:
        groups = _safe_indexing(sensitive, rows)
    X = given.X.tocsr() if is_sparse(given.X) else given.X
    weight = given.sample_weight
    return replace(
        given,
        X=_safe_indexing(X, rows),
        y=_safe_indexing(given.y, rows),
        sensitive_features=groups,
        sample_weight=None if weight is None else _safe_indexing(weight, rows),
    )


def _groups(given: FitInput) -> IntArray:
    # The intersection of all sensitive columns; -1 where a value is missing.
    columns = encode_sensitive(given.sensitive_features, len(given.y), "marginal")
    codes = np.stack([column.code for column in columns])
    is_known = (codes >= 0).all(axis=0)
    group = np.full(codes.shape[1], -1, dtype=np.int64)
    found = np.unique(codes[:, is_known], axis=1, return_inverse=True)[1]
    group[is_known] = found.reshape(-1)
    return group


def _kinds(given: FitInput) -> IntArray:
    label = factorize(given.y, "y")[0]
    pairs = np.stack([label, _groups(given)])
    kind = np.unique(pairs, axis=1, return_inverse=True)[1]
    return np.asarray(kind, dtype=np.int64).reshape(-1)
