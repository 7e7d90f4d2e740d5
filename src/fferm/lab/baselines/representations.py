"""Zemel et al. 2013: learning fair representations."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.utils import check_random_state

from fferm._typing import FloatArray, Table
from fferm.lab.baselines.base import Baseline, TrainingRows
from fferm.notions import Notion

LIMITS: Any = {"maxiter": 300}
# Mixtures of logistic functions come this close to certainty.
ROUNDING = 1e-9


@dataclass(kw_only=True, eq=False, repr=False)
class LearnedFairRepresentations(Baseline):
    r"""Prototypes that groups are mapped to alike, and labels are read from.

    A row goes to prototype k with probability :math:`M_{nk} = \text{softmax}_k
    (-\sum_i \alpha_i (x_{ni} - v_{ki})^2)`, and its chance of the positive label is
    :math:`\sum_k M_{nk} w_k`. Minimises

    .. math::

        L_y + a_x L_x + a_z \sum_k \sum_g |\bar M_{gk} - \bar M_k|

    over prototypes v, feature weights :math:`\alpha` and labels w: the cross-entropy,
    the squared error of rebuilding x from prototypes (per feature), and how differently
    groups are mapped. For two groups the last is the original's
    :math:`\sum_k |M^+_k - M^-_k|`.

    Parameters
    ----------
    fairness_weight
        The weight :math:`a_z`.
    reconstruction_weight
        The weight :math:`a_x`.
    n_prototypes
        How many prototypes there are.
    notion
        ``"demographic_parity"``, the only one that the method knows.
    random_state
        Seed of the rows at which prototypes begin.

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_prototypes, n_features)
    feature_weights_ : ndarray of shape (n_features,)
    labels_ : ndarray of shape (n_prototypes,), in [0, 1]
    classes_ : ndarray

    Notes
    -----
    Differs from the original: one set of feature weights for all groups, so that no
    group is needed to predict; weights are kept positive and labels within [0, 1] by
    exponential and logistic functions; any number of groups; derivatives are exact.

    References
    ----------
    R. Zemel, Y. Wu, K. Swersky, T. Pitassi, C. Dwork. Learning Fair Representations.
    ICML 2013.
    """

    tradeoff_values: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.3, 1, 3, 10)
    notions: ClassVar[tuple[str, ...]] = ("demographic_parity",)

    fairness_weight: float = 1.0
    reconstruction_weight: float = 0.01
    n_prototypes: int = 10
    notion: str | Notion = "demographic_parity"
    random_state: int | np.random.RandomState | None = None

    def _train(self, rows: TrainingRows) -> None:
        n_samples, d = rows.X.shape
        count = min(self.n_prototypes, n_samples)
        rng = check_random_state(self.random_state)
        chosen = rng.choice(n_samples, count, replace=False)
        # Distances of about 1 at first: prototypes share rows.
        scale = np.full(d, -np.log(d))
        start = np.concatenate([rows.X[chosen].ravel(), scale, rng.normal(size=count)])

        solution = minimize(
            self._objective, start, (rows, count), "L-BFGS-B", jac=True, options=LIMITS
        )
        prototypes, scale, label = _unpack(np.asarray(solution.x), count, d)
        self.prototypes_, self.feature_weights_ = prototypes, np.exp(scale)
        self.labels_ = np.asarray(expit(label))

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        mapped = _map(X, self.prototypes_, self.feature_weights_)
        return np.asarray(mapped @ self.labels_)

    def _objective(
        self, theta: FloatArray, rows: TrainingRows, count: int
    ) -> tuple[float, FloatArray]:
        """Return the objective and its derivative by all parameters."""
        n_samples, d = rows.X.shape
        V, scale, label = _unpack(theta, count, d)
        alpha, w = np.exp(scale), expit(label)
        M = _map(rows.X, V, alpha)  # (n, K)
        chance = np.clip(M @ w, ROUNDING, 1 - ROUNDING)
        part = self.reconstruction_weight / (n_samples * d)
        # |X - M V|^2 by its terms: no array as large as X is made.
        gram, gathered = M.T @ M @ V, M.T @ rows.X
        square = np.vdot(rows.X, rows.X) + np.vdot(V, gram - 2 * gathered)
        # How differently groups are mapped.
        member = np.eye(rows.n_groups)[rows.group]  # (n, G)
        share = member / member.sum(axis=0)
        mean = share.T @ M
        gap = mean - mean.mean(axis=0)
        sign = np.sign(gap)
        value = (
            -np.mean(np.log(np.where(rows.y == 1, chance, 1 - chance)))
            + part * square
            + self.fairness_weight * np.abs(gap).sum()
        )
        by_chance = (chance - rows.y) / (chance * (1 - chance)) / n_samples
        by_M = np.outer(by_chance, w) + 2 * part * (M @ (V @ V.T) - rows.X @ V.T)
        by_M += self.fairness_weight * (share @ (sign - sign.mean(axis=0)))
        by_logit = M * (by_M - np.sum(by_M * M, axis=1, keepdims=True))
        mass, pull = by_logit.sum(axis=0), by_logit.T @ rows.X
        by_V = 2 * part * (gram - gathered) + 2 * alpha * (pull - V * mass[:, None])
        by_alpha = np.sum(2 * pull * V - mass[:, None] * V**2, axis=0)
        by_label = (M.T @ by_chance) * w * (1 - w)
        gradient = np.concatenate([by_V.ravel(), by_alpha * alpha, by_label])
        return float(value), gradient


def _unpack(
    theta: FloatArray, count: int, d: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return prototypes, logarithms of feature weights, and logits of labels."""
    prototypes, scale, label = np.split(theta, [count * d, count * d + d])
    return prototypes.reshape(count, d), scale, label


def _map(X: FloatArray, prototypes: FloatArray, alpha: FloatArray) -> FloatArray:
    """Return the (n_samples, n_prototypes) probabilities of prototypes."""
    # The square of x itself is the same for all prototypes and drops out.
    logits = 2 * X @ (alpha * prototypes).T - prototypes**2 @ alpha
    return np.asarray(softmax(logits, axis=1))
