"""The rows that judge candidates: three ways to get them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit

from fferm._typing import IntArray, Table
from fferm.data.groups import encode_sensitive
from fferm.data.rows import FitInput, combine
from fferm.data.split import deal_folds, take_rows
from fferm.data.validate import Number, check_params, factorize, one_column
from fferm.errors import InvalidInputError

Folds = tuple[list[tuple[FitInput, FitInput]], FitInput]


class Validation(ABC):
    """Says which rows candidates are judged by.

    The decisions of all folds are judged together, each made by a model that did not
    see its row. A violation measured on each fold alone would grow with the number of
    folds, because gaps of small samples are never negative.
    """

    @abstractmethod
    def folds(self, passed: FitInput) -> Folds:
        """Return the rows to train on and to judge by of each fold, and all judges.

        The last are those of all folds, one after another.
        """


@dataclass(frozen=True, eq=False)
class TargetSample(Validation):
    """Judge by labelled rows of the domain that the model is for.

    All source rows train. A few percent of the target are enough to choose two numbers,
    although they would be too few to train on.

    Attributes
    ----------
    X, y, sensitive_features
        The sample, as in `fit`.
    """

    X: Table
    y: Table
    sensitive_features: Table

    def folds(self, passed: FitInput) -> Folds:
        """Return one fold: the source to train on, the sample to judge by."""
        sample = FitInput(self.X, one_column(self.y), self.sensitive_features)
        return [(passed, sample)], sample


@dataclass(frozen=True)
class CrossValidation(Validation):
    """Judge by folds of the source, with each label and group in every fold.

    Attributes
    ----------
    splitter
        How many folds, or a splitter of scikit-learn with a seed. It gets the label and
        group of each row as the classes to stratify by.
    random_state
        Seed of the folds; not used with a splitter.
    """

    splitter: Any = 5
    random_state: int = 0

    def folds(self, passed: FitInput) -> Folds:
        """Return each fold."""
        splitter = self.splitter
        kind = combine([factorize(passed.y, "y")[0], _groups(passed)])
        if not hasattr(splitter, "split"):
            check_params(vars(self), {"splitter": Number(2, is_whole=True)})
            splitter = PredefinedSplit(deal_folds(kind, splitter, self.random_state))
        return _take(passed, splitter.split(np.zeros((kind.size, 1)), kind))


@dataclass(frozen=True)
class EvenHoldout(Validation):
    """Judge by held-out rows with equally many of each group.

    The rate of a small group is measured on few rows. So a larger share of its rows is
    held out, up to half of them, and a smaller share of the large groups.

    Attributes
    ----------
    fraction
        The share of all rows that is held out if groups are large enough.
    random_state
        Seed of the rows.
    """

    fraction: float = 0.25
    random_state: int = 0

    def folds(self, passed: FitInput) -> Folds:
        """Return one fold."""
        limits = Number(0, 1, open_low=True, open_high=True)
        check_params(vars(self), {"fraction": limits})
        group = _groups(passed)
        size = np.bincount(group[group >= 0])
        if size.size == 0:
            raise InvalidInputError(
                "No row has a value of every sensitive column, so there are no groups. "
                "Check how sensitive_features was read."
            )
        wanted = np.minimum(size // 2, int(self.fraction * group.size / size.size))
        if wanted.min() == 0:
            raise InvalidInputError(
                "Some group has too few rows to hold any out. Merge groups, or use "
                "CrossValidation."
            )
        order = np.random.default_rng(self.random_state).permutation(group.size)
        parts = [order[group[order] == k][:n] for k, n in enumerate(wanted)]
        held = np.sort(np.concatenate(parts))
        return _take(passed, [(np.setdiff1d(np.arange(group.size), held), held)])


def _take(passed: FitInput, parts: Iterable[tuple[IntArray, IntArray]]) -> Folds:
    folds = list(parts)
    judges = take_rows(passed, np.concatenate([judge for _, judge in folds]))
    return [(take_rows(passed, t), take_rows(passed, j)) for t, j in folds], judges


def _groups(passed: FitInput) -> IntArray:
    # The intersection of all sensitive columns; -1 where a value is missing.
    return encode_sensitive(passed.sensitive_features, len(passed.y))[0].code
