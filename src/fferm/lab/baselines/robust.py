"""Baselines that are robust to a shift: of the features, or of what labels may be."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.rows import check_aligned
from fferm.data.validate import read_penalty_data
from fferm.errors import ConvergenceWarning, warn_user
from fferm.lab.baselines.base import SHARES, Baseline, LinearBaseline, TrainingRows
from fferm.notions import Notion

# Newton's method needs a dozen steps, down to a gradient far below that of a row in a
# million.
MAX_ITER, LARGEST_SLOPE = 200, 1e-7
# Newton's steps on one row, which halve the bracket where they would leave it.
MAX_STEPS, ROUNDING = 60, 1e-12
# Where one sample has next to no rows the ratio is a guess; a row counts ten times as
# much as another at most.
LARGEST_RATIO = 10.0
# The multiplier is sought to this share of where adversaries begin to be certain, in at
# most so many doublings.
PRECISION, DOUBLINGS = 1e-3, 8
# No ridge at all would be an infinite C of scikit-learn's.
LEAST_RIDGE = 1e-12
# The norm of coefficients has a kink at 0, far below any that counts.
LEAST_SQUARE = 1e-12


@dataclass(kw_only=True, eq=False, repr=False)
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
        What is left of the violation at :math:`\mu = 0`: 1 leaves all of it, 0
        none, which is what the original asks for.
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
        Tells training rows from target rows; None without target rows.

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
    takes_two_groups: ClassVar[bool] = True
    takes_penalty_data: ClassVar[bool] = True

    share: float = 0.0
    notion: str | Notion = "equal_opportunity"
    l2: float = 1e-4

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
        rows, target = self._encode(X, y, sensitive_features), None
        if penalty_data is not None:
            X, sensitive, *_ = read_penalty_data(penalty_data)
            check_aligned(X=X, sensitive_features=sensitive)
            X = self._features(X)
            target = X, self._group_codes(sensitive, len(X))
        self._train(rows, target)
        return self

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        return self._saddle(X, self._group_codes(sensitive_features, len(X))).chance

    def _train(
        self, rows: TrainingRows, target: tuple[FloatArray, IntArray] | None = None
    ) -> None:
        """Solve the convex problem that each multiplier leaves, up to the right one."""
        self.ratio_ = None
        if target is not None:
            # Its log-odds are those of training against target rows.
            both = np.vstack([rows.X, target[0]])
            is_training = np.arange(len(both)) < len(rows.X)
            model = LogisticRegression(
                solver="newton-cholesky", class_weight="balanced"
            )
            self.ratio_ = model.fit(both, is_training)
        X, group = target or (rows.X, rows.group)
        d, ratio = rows.X.shape[1], self._density_ratio(rows.X)[:, None]
        # Scores are A @ theta; each row counts so much in a mean over the target.
        A, weight = np.hstack([ratio * rows.X, ratio]), 1 / (ratio[:, 0] * len(ratio))
        share = self._shares(rows, X, group)
        known = np.append(rows.y @ rows.X, rows.y.sum()) / len(rows.y)
        if self._is_of_labels():
            # The weights need not add to 1.
            known = np.append(known, weight.sum() * share)
            A = np.hstack([A, np.eye(2)[rows.group]])
        # Without it groups and intercept could move against each other.
        ridge = np.full(known.size, float(self.l2))
        ridge[d] = 0.0
        factor, theta = np.array([-1.0, 1.0]) / share, np.zeros(known.size)

        def evaluate(theta: FloatArray, pull: FloatArray) -> tuple[float, FloatArray]:
            saddle, shrunk = self._play(A @ theta, pull), ridge * theta
            value = weight @ saddle.value - known @ theta + shrunk @ theta / 2
            return float(value), (weight * saddle.label) @ A - known + shrunk

        def hessian(theta: FloatArray, pull: FloatArray) -> FloatArray:
            bend = weight * self._play(A @ theta, pull).bend
            return np.asarray((A * bend[:, None]).T @ A + np.diag(ridge))

        def violation(multiplier: float) -> float:
            nonlocal theta
            solution = minimize(
                evaluate,
                theta,
                (multiplier * factor[rows.group],),
                jac=True,
                hess=hessian,
                method="trust-exact",
                tol=LARGEST_SLOPE,
                options={"maxiter": MAX_ITER},
            )
            if solution.nit >= MAX_ITER:
                warn_user(
                    f"RobustCovariateShift stopped after {MAX_ITER} iterations, before "
                    "the optimum. Scale the features.",
                    ConvergenceWarning,
                )
            theta = np.asarray(solution.x)
            self.coef_, self.intercept_ = theta[None, :d], theta[d : d + 1]
            self.shift_ = theta[d + 1 :] if self._is_of_labels() else np.zeros(2)
            self.pull_ = multiplier * factor
            return self._violation(X, group, factor)

        plain = violation(0.0)
        if self.share < 1 and plain != 0:
            sign = np.sign(plain)
            _find_root(
                lambda size: sign * (violation(sign * size) - self.share * plain),
                float(1 / np.abs(factor).max()),
            )

    def _shares(self, rows: TrainingRows, X: FloatArray, group: IntArray) -> FloatArray:
        """Return the share of each group, or of its positive labels, in the target."""
        chance = None
        if self._is_of_labels():
            # The target rows of each group that a plain model calls 1.
            strength = max(self.l2, LEAST_RIDGE) * len(rows.y)
            plain = LogisticRegression(C=1 / strength, solver="newton-cholesky")
            chance = plain.fit(rows.X, rows.y).predict_proba(X)[:, 1]
        return np.bincount(group, chance, 2) / len(group)

    def _saddle(self, X: FloatArray, group: IntArray) -> "Saddle":
        """Return what both play on rows."""
        score = X @ self.coef_[0] + self.intercept_[0]
        score = self._density_ratio(X) * score + self.shift_[group]
        return self._play(score, self.pull_[group])

    def _violation(self, X: FloatArray, group: IntArray, factor: FloatArray) -> float:
        """Return how far the second group is ahead of the first on target rows.

        ``factor`` is what a multiplier of 1 pulls in each group.
        """
        saddle = self._saddle(X, group)
        is_counted = saddle.label if self._is_of_labels() else 1.0
        return float(np.mean(factor[group] * saddle.chance * is_counted))

    def _is_of_labels(self) -> bool:
        return self._notion().name == "equal_opportunity"

    def _density_ratio(self, X: FloatArray) -> FloatArray:
        """Return the density of training rows over that of target rows."""
        if self.ratio_ is None:
            return np.ones(len(X))
        odds = self.ratio_.decision_function(X)
        bound = np.log(LARGEST_RATIO)
        return np.asarray(np.exp(np.clip(odds, -bound, bound)))

    def _play(self, score: FloatArray, pull: FloatArray) -> "Saddle":
        return (play_on_labels if self._is_of_labels() else play)(score, pull)


def _find_root(function: Callable[[float], float], unit: float) -> None:
    """Evaluate a falling function up to its root, at which the last call is made."""
    low, high = 0.0, unit
    for _ in range(DOUBLINGS):
        if function(high) <= 0:
            function(float(brentq(function, low, high, xtol=PRECISION * unit)))
            return
        low, high = high, 2 * high
    warn_user(
        "RobustCovariateShift found no multiplier at which the violation is small "
        "enough and took the largest that it tried. Raise share.",
        ConvergenceWarning,
    )


class Saddle(NamedTuple):
    """What both play on each row, and the value of the game there.

    The value is convex in the score: its derivative is ``label``, whose own is
    ``bend``.
    """

    chance: FloatArray
    label: FloatArray
    value: FloatArray
    bend: FloatArray


def play(score: FloatArray, pull: FloatArray) -> Saddle:
    """Return the saddle point of -q log p - (1 - q) log(1 - p) + pull p + score q.

    Parameters
    ----------
    score, pull
        (n_samples,) each. Beyond a pull of 1 in either direction the adversary may be
        certain, and p stays where that begins.
    """
    with np.errstate(divide="ignore"):
        end = np.log(np.maximum(np.abs(pull) - 1, 0))
    logit = np.clip(score, np.where(pull < 0, end, -np.inf), _highest_logit(pull))
    p = np.asarray(expit(logit))
    q = p + pull * p * (1 - p)
    value = np.logaddexp(0, logit) + q * (score - logit) + pull * p
    bend = (logit == score) * p * (1 - p) * (1 + pull * (1 - 2 * p))
    return Saddle(p, q, value, bend)


def play_on_labels(score: FloatArray, pull: FloatArray) -> Saddle:
    """Return the saddle point of -q log p - (1 - q) log(1 - p) + pull p q + score q.

    Parameters
    ----------
    score, pull
        (n_samples,) each.
    """
    end = _highest_logit(pull)
    is_certain = score + 1 >= end  # there pull times p is 1
    low = np.where(is_certain, end, score + np.minimum(pull, 0))
    high = np.minimum(end, np.maximum(low, score + np.maximum(pull, 0)))
    logit = np.clip(score, low, high)
    for _ in range(MAX_STEPS):
        p = expit(logit)
        rest = logit - pull * p - score
        low, high = np.where(rest < 0, logit, low), np.where(rest > 0, logit, high)
        step = rest / (1 - pull * p * (1 - p))
        is_done = (np.abs(step) < ROUNDING) | (low >= high)
        is_inside = (low < logit - step) & (logit - step < high)
        halved = np.where(is_done, logit, (low + high) / 2)
        logit = np.where(is_inside, logit - step, halved)
        if np.all(is_done):
            break
    p = np.asarray(expit(logit))
    curve = 1 - pull * p * (1 - p)
    q = p / curve
    value = np.logaddexp(0, logit) + q * (score + pull * p - logit)
    bend = ~is_certain * p * (1 - p) * (1 - pull * p**2) / curve**3
    return Saddle(p, q, value, bend)


def _highest_logit(pull: FloatArray) -> FloatArray:
    """Return the logit of 1 / pull, at which the adversary is certain, or infinity."""
    with np.errstate(divide="ignore"):
        end = -np.log(np.maximum(pull - 1, 0))
    return np.asarray(end)


@dataclass(kw_only=True, eq=False, repr=False)
class WassersteinRobust(LinearBaseline):
    r"""Logistic regression, fair in log-probability against shifts of the features.

    Minimises the worst case over a Wasserstein ball of

    .. math::

        E[\ell] + \eta \, \big| E[\log h \mid s = 1, y = 1]
          - E[\log h \mid s = 0, y = 1] \big|

    where labels and groups are trusted and features may move by ``radius`` on average
    (Euclidean norm). Either sign of the difference gives a weighted log-loss, whose
    worst case adds ``radius`` times its largest weight times the norm of the
    coefficients; the larger of the two convex functions is minimised.

    Parameters
    ----------
    unfairness_share
        :math:`\eta` as a share of the largest value for which the problem is convex,
        the smaller of P(s = 1, y = 1) and P(s = 0, y = 1): from 0, no fairness, to 1.
    radius
        The radius of the ball.
    notion
        ``"equal_opportunity"``, the only one that the method knows.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray

    Notes
    -----
    Differs from the original: the maximum of two functions is found as the best mixture
    of them (minimax theorem), by L-BFGS and a search over the mixture, not by a conic
    solver; the variant that trusts labels and groups only; two groups, as there.

    References
    ----------
    B. Taskesen, V. A. Nguyen, D. Kuhn, J. Blanchet. A Distributionally Robust Approach
    to Fair Classification. 2020, arXiv:2007.09530.
    """

    tradeoff_param: ClassVar[str] = "unfairness_share"
    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    # Its penalty is of bounded strength: it gives up before half of the gap is gone.
    largest_rest: ClassVar[float] = 0.9
    notions: ClassVar[tuple[str, ...]] = ("equal_opportunity",)
    takes_two_groups: ClassVar[bool] = True

    unfairness_share: float = 1.0
    radius: float = 1e-3
    notion: str | Notion = "equal_opportunity"

    def _train(self, rows: TrainingRows) -> None:
        inside = rows.stratum == 0
        sizes = [np.mean(inside & (rows.group == k)) for k in (0, 1)]
        eta = self.unfairness_share * min(sizes)
        tilt = np.where(rows.group == 1, eta / sizes[1], -eta / sizes[0]) * inside
        weights = np.array([1 + tilt, 1 - tilt])  # of the log-loss, a row for each sign

        def worst_case(theta: FloatArray, share: float) -> tuple[float, FloatArray]:
            mixture = np.array([share, 1 - share])
            score = rows.X @ theta[:-1] + theta[-1]
            weight = mixture @ weights / score.size
            largest = self.radius * mixture @ weights.max(axis=1)
            norm = np.sqrt(theta[:-1] @ theta[:-1] + LEAST_SQUARE)
            loss = weight @ (np.logaddexp(0, score) - rows.y * score) + largest * norm
            slope = weight * (expit(score) - rows.y)
            gradient = np.append(rows.X.T @ slope, slope.sum())
            gradient[:-1] += largest * theta[:-1] / norm
            return float(loss), gradient

        def solve(share: float) -> Any:
            start = np.zeros(rows.X.shape[1] + 1)
            return minimize(worst_case, start, (share,), jac=True, method="L-BFGS-B")

        # The least of the larger function is the largest least of a mixture.
        best = minimize_scalar(
            lambda share: -solve(share).fun,
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-2},
        )
        self._store(np.asarray(solve(float(best.x)).x))
