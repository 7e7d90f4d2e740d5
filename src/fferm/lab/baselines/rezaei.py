"""Rezaei et al. 2021: fair, and robust to what labels may be where rows are rare."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.rows import check_aligned
from fferm.data.validate import check_number, read_penalty_data
from fferm.errors import ConvergenceWarning, InvalidInputError, InvalidParameterError
from fferm.lab.baselines.base import Baseline, Rows, Target
from fferm.lab.baselines.constrained import SHARES
from fferm.lab.baselines.saddle import Game, Saddle, Side, play, play_on_labels
from fferm.notions import Notion

# Where one sample has next to no rows the ratio is a guess; a row counts ten times as
# much as another at most.
LARGEST_RATIO = 10.0
# The multiplier is sought to this share of where adversaries begin to be certain, in at
# most so many doublings.
PRECISION, DOUBLINGS = 1e-3, 8
# No ridge at all would be an infinite C of scikit-learn's.
LEAST_RIDGE = 1e-12


class RobustCovariateShift(Baseline):
    r"""The best predictor against the worst labels that agree with the training rows.

    On the target rows, which have no labels, a predictor p and an adversary q play

    .. math::

        \min_p \max_q \; E_T[-q \log p - (1 - q) \log(1 - p)] + \mu \cdot
          \text{violation}(p, q)

    where q has the same mean of label times features as the training rows. With r the
    density of training rows over that of target rows, the solution is a logistic
    regression whose scores :math:`r(x) \, \theta^T x` fade where training rows are
    rare. For demographic parity the violation is :math:`E[p \mid s = 1] - E[p \mid s =
    0]` and :math:`\text{logit}\, p = r \theta^T x`; for equal opportunity labels are
    the adversary's, too, so that the violation is :math:`E[p q \mid s = 1] / E[q \mid s
    = 1]` less the same for s = 0, and

    .. math::

        \text{logit}\, p = r \theta^T x + \lambda_s + \mu f_s p

    with :math:`\lambda_s` such that the share of each group with a positive label
    agrees with an estimate, and :math:`f_s` one over that estimate, negative for s = 0.
    The multiplier :math:`\mu` is sought at which the violation is what it may be.

    Parameters
    ----------
    share
        What is left of the violation at :math:`\mu = 0`: 1 is no fairness, 0 no
        violation, which is what the original asks for.
    notion
        ``"equal_opportunity"``, as in the original, or ``"demographic_parity"``.
    l2
        Strength of the ridge on coefficients and on :math:`\lambda`.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray
    groups_ : tuple of str
        The two groups.
    shift_ : ndarray of shape (2,)
        What is added to the scores of each group, :math:`\lambda`.
    pull_ : ndarray of shape (2,)
        The multiplier of each group, :math:`\mu f`.
    ratio_ : LogisticRegression or None
        Tells training rows from target rows; None where no target rows came.

    Notes
    -----
    Differs from the original: the density ratio is that of a logistic regression which
    tells training rows from target rows, kept within a factor of 10 of 1, where the
    original estimates two densities by kernels on two principal components; without
    target rows it is 1 and training rows are the target. The shares of positive labels
    by group are matched on training rows weighted by 1 / r, where the original matches
    them on target rows: everything but :math:`\mu` is then one convex problem, solved
    by Newton's method. Demographic parity is our extension by the same derivation, in
    which :math:`\lambda` and :math:`\mu` drop out of the formula of p. A violation may
    be asked for that is not 0. Two groups, as there.

    The violation that is bounded is that of probabilities, as in the original. Where
    the plain model is certain of most rows it is met by less certainty, not by other
    decisions.

    The group is needed to predict. For demographic parity it makes a difference only
    where :math:`|\mu f_s| > 1`, beyond which the adversary is certain of some labels.

    References
    ----------
    A. Rezaei, A. Liu, O. Memarrast, B. D. Ziebart. Robust Fairness under Covariate
    Shift. AAAI 2021, arXiv:2010.05166.
    """

    tradeoff_param: ClassVar[str] = "share"
    tradeoff_values: ClassVar[tuple[float, ...]] = SHARES
    notions: ClassVar[tuple[str, ...]] = ("demographic_parity", "equal_opportunity")
    predicts_with_groups: ClassVar[bool] = True
    takes_penalty_data: ClassVar[bool] = True

    coef_: FloatArray
    intercept_: FloatArray
    groups_: tuple[str, ...]
    shift_: FloatArray
    pull_: FloatArray
    ratio_: LogisticRegression | None

    def __init__(
        self,
        *,
        share: float = 0.0,
        notion: str | Notion = "equal_opportunity",
        l2: float = 1e-4,
    ) -> None:
        self.share = share
        self.notion = notion
        self.l2 = l2

    def fit(
        self,
        X: Table,
        y: Table,
        *,
        sensitive_features: Table = None,
        penalty_data: tuple[Table, ...] | None = None,
    ) -> Self:
        """Train on data.

        Parameters
        ----------
        X, y, sensitive_features
            As in `Baseline.fit`.
        penalty_data
            ``(X, sensitive_features)`` of rows of the target; a third part, labels, is
            not looked at. None takes the training rows.

        Returns
        -------
        Self
        """
        rows = self._encode(X, y, sensitive_features)
        if penalty_data is not None:
            X, sensitive, *_ = read_penalty_data(penalty_data)
            check_aligned(X=X, sensitive_features=sensitive)
            X = self._features(X)
            group = self._known_groups(sensitive, len(X), rows.groups, "multiplier")
            rows = replace(rows, target=Target(X, group))
        self._train(rows)
        return self

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        group = self._known_groups(
            sensitive_features, len(X), self.groups_, "multiplier"
        )
        z = X @ self.coef_[0] + self.intercept_[0]
        score = self._density_ratio(X) * z + self.shift_[group]
        return self._play(score, self.pull_[group]).chance

    def _train(self, rows: Rows) -> None:
        share = check_number("share", self.share)
        if share > 1:
            raise InvalidParameterError(
                f"share={self.share!r} came. Expected a number from 0, no violation, "
                "to 1, no fairness."
            )
        if rows.n_groups != 2:
            raise InvalidInputError(
                f"{rows.n_groups} groups came and RobustCovariateShift knows two. "
                "Merge groups, or use FairLogisticRegression."
            )
        self.groups_ = rows.groups
        self.ratio_ = None if rows.target is None else _tell_apart(rows.X, rows.target)
        game = self._game(rows)
        theta, multiplier = np.zeros(game.known.size), 0.0

        def violation(value: float) -> float:
            nonlocal theta, multiplier
            theta, multiplier = game.solve(value, theta), value
            return game.violation(value, theta)

        plain = violation(0.0)
        if share < 1 and plain != 0:
            sign = np.sign(plain)
            _find_root(
                lambda value: sign * (violation(sign * value) - share * plain),
                float(1 / np.abs(game.pull).max()),
            )
        d = rows.X.shape[1]
        self.coef_, self.intercept_ = theta[None, :d], theta[d : d + 1]
        self.shift_ = theta[d + 1 :] if self._is_of_labels() else np.zeros(2)
        self.pull_ = multiplier * game.pull

    def _game(self, rows: Rows) -> Game:
        """Return the problem, with shares of groups, or of their positive labels."""
        target = rows.target or Target(rows.X, rows.group)
        ratio = self._density_ratio(rows.X)
        weight = 1 / (ratio * len(ratio))
        share = np.bincount(target.group, minlength=2) / len(target.group)
        known = np.append(rows.y @ rows.X, rows.y.sum()) / len(rows.y)
        if self._is_of_labels():
            share = self._positive_shares(rows, target)
            # The weights need not add to 1.
            known = np.append(known, weight.sum() * share)
        # Without it groups and intercept could move against each other.
        ridge = np.full(known.size, check_number("l2", self.l2))
        ridge[rows.X.shape[1]] = 0.0
        return Game(
            self._play,
            self._side(rows.X, rows.group),
            self._side(target.X, target.group),
            weight,
            known,
            ridge,
            np.array([-1.0, 1.0]) / share,
            self._is_of_labels(),
        )

    def _side(self, X: FloatArray, group: IntArray) -> Side:
        ratio = self._density_ratio(X)[:, None]
        blocks = [ratio * X, ratio]
        if self._is_of_labels():
            blocks.append(np.eye(2)[group])
        return Side(np.hstack(blocks), group)

    def _positive_shares(self, rows: Rows, target: Target) -> FloatArray:
        """Return the share of target rows in each group that a plain model calls 1."""
        strength = max(check_number("l2", self.l2), LEAST_RIDGE) * len(rows.y)
        model = LogisticRegression(C=1 / strength, solver="newton-cholesky")
        chance = model.fit(rows.X, rows.y).predict_proba(target.X)[:, 1]
        return np.bincount(target.group, chance, 2) / len(target.group)

    def _is_of_labels(self) -> bool:
        return self._notion().name == "equal_opportunity"

    def _density_ratio(self, X: FloatArray) -> FloatArray:
        """Return the density of training rows over that of target rows."""
        if self.ratio_ is None:
            return np.ones(len(X))
        odds = self.ratio_.decision_function(X)
        bound = np.log(LARGEST_RATIO)
        return np.asarray(np.exp(np.clip(odds, -bound, bound)))

    def _play(self, score: FloatArray, pull: FloatArray) -> Saddle:
        return (play_on_labels if self._is_of_labels() else play)(score, pull)


def _tell_apart(X: FloatArray, target: Target) -> LogisticRegression:
    """Return a model whose log-odds are those of training against target rows."""
    both = np.vstack([X, target.X])
    is_training = np.arange(len(both)) < len(X)
    model = LogisticRegression(solver="newton-cholesky", class_weight="balanced")
    return model.fit(both, is_training)


def _find_root(function: Callable[[float], float], unit: float) -> None:
    """Evaluate a falling function up to its root, at which the last call is made."""
    low, high = 0.0, unit
    for _ in range(DOUBLINGS):
        if function(high) <= 0:
            function(float(brentq(function, low, high, xtol=PRECISION * unit)))
            return
        low, high = high, 2 * high
    warnings.warn(
        "RobustCovariateShift found no multiplier at which the violation is small "
        "enough and took the largest that it tried. Raise share.",
        ConvergenceWarning,
        stacklevel=5,
    )
