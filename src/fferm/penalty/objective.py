r"""The objective of fair empirical risk minimisation, in plain NumPy.

.. math::

    \min_\theta \; \frac1n \sum_i \ell(x_i, y_i; \theta)
      + \lambda \, R\big(P_\theta(\hat y, s)\big) + \frac{\text{l2}}2 \|\text{coef}\|^2

`Problem.value_and_gradient` is written to be read: it is the oracle that every faster
path is held to. It speaks of logits, so linear models, networks and trees share it.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from fferm._typing import FloatArray, Table
from fferm.data.rows import Rows
from fferm.divergences import Divergence, LinearTail
from fferm.errors import InvalidInputError, InvalidParameterError, NonFiniteError
from fferm.notions import WITHIN_STRATA, Comparison, Notion, Weighting
from fferm.uncertainty import SmallShift, Uncertainty
from fferm.uncertainty.base import settled, times


@dataclass(frozen=True)
class Objective:
    """What is minimised, apart from the data.

    Attributes
    ----------
    divergence, notion, uncertainty
        The penalty.
    fairness_weight
        The factor of the penalty.
    sharpness
        The penalty sees ``softmax(sharpness * logits)``.
    l2
        The factor of half the squared coefficients; intercepts are free.
    """

    divergence: Divergence
    notion: Notion
    uncertainty: Uncertainty | None = None
    fairness_weight: float = 1.0
    sharpness: float = 1.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.uncertainty, SmallShift) and not self.divergence.is_smooth:
            raise InvalidParameterError(
                f"SmallShift differentiates the dual, and {self.divergence.name} has "
                "none but a sign. Use LargeShift, or a smooth divergence."
            )

    @property
    def has_linear_dual(self) -> bool:
        """Whether the dual of the penalty is linear in the predictions."""
        return self.uncertainty is None and self.notion.compares_predictions

    def check_linear_dual(self, solver: str) -> None:
        """Raise where the dual is not linear in the predictions; a solver needs it."""
        if not self.has_linear_dual:
            raise InvalidParameterError(
                f"solver={solver!r} needs a dual that is linear in predictions, unlike "
                f"that of {self.uncertainty or self.notion!r}. Use "
                "solver='semi_stochastic' or 'lbfgs'."
            )

    @functools.cached_property
    def trained_divergence(self) -> Divergence:
        """The form of the divergence that a gradient method can follow everywhere."""
        return LinearTail(self.divergence.smoothed())


@dataclass(frozen=True)
class RateRatios(Uncertainty, abstract=True):
    r"""The penalty of ``measure="ratio"`` and ``"deviation"``.

    .. math::

        \sum_k w_k \, f\Big(\frac{r_k}{\sum_l w_l r_l}\Big), \qquad
        r_k = P(\hat y = 1 \mid s = k)

    It sees the same ratios ``P / Q`` as the divergence, and does not fall where a class
    becomes rare. Of more than two classes it is the mean over all. Like a robust
    penalty, it is not a mean over rows at a fixed dual, and so it takes their place.

    Parameters
    ----------
    is_even
        Whether groups count alike, or by their share.
    """

    name: ClassVar[str] = "rate_ratios"

    is_even: bool = False

    @property
    def is_coupled(self) -> bool:
        """Group weights are fixed."""
        return True

    def penalty(
        self, p: FloatArray, q: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray, FloatArray]:
        """Raise: rates need the group weights."""
        self._check_coupling(False)
        raise NotImplementedError

    def coupled_penalty(
        self, p: FloatArray, prior: FloatArray, divergence: Divergence
    ) -> tuple[float, FloatArray]:
        """Return the divergence between relative rates and 1, and its payoff."""
        live, kept = prior > 0, p[-1:] if len(p) == 2 else p
        by_prior = np.divide(1.0, prior, out=np.zeros_like(prior), where=live)
        weight = live / live.sum() if self.is_even else prior
        rate = kept * by_prior
        mean = rate @ weight
        mean = np.where(mean > 0, mean, 1.0)[:, None]
        ratio = np.where(live & (kept.sum(axis=1, keepdims=True) > 0), rate / mean, 1.0)
        factor = weight / len(kept)
        value = float(np.sum(factor * divergence.f(ratio, np)))
        slope = factor * divergence.f_prime(ratio, np)
        moved = weight * np.sum(slope * ratio, axis=1, keepdims=True)
        payoff = np.zeros_like(p)
        payoff[-len(kept) :] = (slope - moved) / mean * by_prior
        return value, payoff


def make_objective(
    divergence: str | Divergence = "kl",
    notion: str | Notion = "demographic_parity",
    uncertainty: Uncertainty | None = None,
    *,
    fairness_weight: float | None = 1.0,
    **factors: float,
) -> Objective:
    """Return an objective from names or instances.

    A ``fairness_weight`` of None is a tenth of the largest that sweeps try: 10 for
    ``kl``, 0.5 for total variation, and for others by their curvature at independence.

    Examples
    --------
    >>> make_objective("chi2", fairness_weight=2.0).divergence
    Chi2()
    """
    if uncertainty is not None and not isinstance(uncertainty, Uncertainty):
        raise InvalidParameterError(
            "uncertainty must be None or a set such as LargeShift(radius) of "
            f"fferm.uncertainty; got {uncertainty!r}."
        )
    chosen = Divergence.resolve(divergence)
    if fairness_weight is None:
        is_smooth, one = chosen.is_smooth, np.float64(1)
        fairness_weight = 10 / chosen.f_second(one, np) if is_smooth else 0.5
    factors["fairness_weight"] = float(fairness_weight)
    return Objective(chosen, Notion.resolve(notion), uncertainty, **factors)


def compared_penalty(
    joint: FloatArray,
    comparison: Comparison,
    divergence: Divergence,
    uncertainty: Uncertainty | None,
    weighting: Weighting,
) -> tuple[float, FloatArray]:
    """Return the penalty on the tables that a notion compares, and its payoff.

    ``joint`` is known to be a (strata x classes x groups) table.
    """
    is_placed = comparison.place is not None  # not those of predictions within strata
    table = comparison.tables(joint) if is_placed else joint
    if is_placed and not comparison.has_fixed_groups:
        value, payoff = moving_penalty(table, divergence, uncertainty, weighting)
        return value, comparison.pull_back(payoff)
    value, payoff = 0.0, np.zeros_like(table)
    for r, weight in enumerate(stratum_weights(table, weighting)):
        if weight <= 0:
            continue
        share = float(table[r].sum())
        p = table[r] / share
        prior = p.sum(axis=0)  # (K,)
        if uncertainty is not None and uncertainty.is_coupled:
            part, slope = uncertainty.coupled_penalty(p, prior, divergence)
        else:
            q = p.sum(axis=1, keepdims=True) * prior  # (m, K)
            if uncertainty is None:
                part, by_p, by_q = divergence.value_and_slopes(p, q)
            else:
                part, by_p, by_q = uncertainty.penalty(p, q, divergence)
            with np.errstate(invalid="ignore"):
                slope = by_p + (by_q @ prior)[:, None]
                if not np.isfinite(slope).all():
                    slope = by_p + times(by_q, prior).sum(axis=1)[:, None]
                    slope = settled(slope, by_p)
        value += weight * part
        payoff[r] = weight / share * slope
    return value, comparison.pull_back(payoff) if is_placed else payoff


def stratum_weights(strata: FloatArray, weighting: Weighting) -> list[float]:
    """Return what the strata of a table count in a penalty, 0 where nobody is."""
    mass = strata.sum(axis=(1, 2))
    if weighting == "unit":
        return [float(share > 0) for share in mass]
    total = 1.0 if weighting == "probability" else mass.sum() or 1.0
    return list((mass / total).tolist())


def moving_penalty(
    table: FloatArray,
    divergence: Divergence,
    uncertainty: Uncertainty | None,
    weighting: Weighting,
) -> tuple[float, FloatArray]:
    """Return the penalty where predictions move rows between conditions.

    Group weights within a condition then depend on the model and are differentiated.
    The table is (conditions x outcomes x groups).
    """
    if uncertainty is not None and uncertainty.is_coupled:
        raise InvalidParameterError(
            f"{uncertainty!r} moves predictions at fixed group weights, which under "
            "sufficiency move with the model. Use a set that is not coupled."
        )
    mass = table.sum(axis=(1, 2))
    weights = stratum_weights(table, weighting)
    parts = {
        t: _moving_part(table[t] / mass[t], divergence, uncertainty)
        for t in np.flatnonzero(mass > 0).tolist()
    }
    value = sum(weights[t] * part for t, (part, _, _) in parts.items())
    payoff = np.zeros_like(table)
    for t, (part, slope, by_p) in parts.items():
        # The product rule: the weight of a condition moves with its mass.
        by_weight = {
            "unit": 0.0,
            "frequency": (part - value) / mass.sum(),
            "probability": part,
        }
        with np.errstate(invalid="ignore"):
            moved = by_weight[weighting] + weights[t] / mass[t] * slope
            payoff[t] = settled(moved, by_p)
    return value, payoff


def _moving_part(
    p: FloatArray, divergence: Divergence, uncertainty: Uncertainty | None
) -> tuple[float, FloatArray, FloatArray]:
    # The value on one table that sums to 1, its slope along tables that do, and the
    # slope by the table alone.
    by_outcome, by_group = p.sum(axis=1), p.sum(axis=0)
    q = np.outer(by_outcome, by_group)
    if uncertainty is None:
        value, by_p, by_q = divergence.value_and_slopes(p, q)
    else:
        value, by_p, by_q = uncertainty.penalty(p, q, divergence)
    with np.errstate(invalid="ignore"):
        slope = by_p + times(by_q, by_group).sum(axis=1)[:, None]
        slope = settled(slope + times(by_outcome[:, None], by_q).sum(axis=0), by_p)
        return value, slope - np.sum(times(slope, p)), by_p


def table_penalty(
    objective: Objective, table: FloatArray, comparison: Comparison = WITHIN_STRATA
) -> tuple[float, FloatArray]:
    """Return the penalty of an objective on one attribute's table, and its payoff."""
    return compared_penalty(
        table,
        comparison,
        objective.trained_divergence,
        objective.uncertainty,
        objective.notion.weighting,
    )


@dataclass(eq=False)
class Penalty:
    """The fairness penalty of an objective on encoded rows.

    Parameters
    ----------
    objective
        Divergence, notion and uncertainty set.
    rows
        Groups, strata and weights.
    classes
        The labels that predictions stand for.
    """

    objective: Objective
    rows: Rows
    classes: tuple[object, ...] = ()

    @functools.cached_property
    def comparison(self) -> Comparison:
        """What the notion compares."""
        notion = self.objective.notion
        return notion.comparison(self.rows.strata.names, self.classes)

    def check_comparable(self) -> None:
        """Raise where some attribute has no stratum with two groups in it."""
        for sums in self.rows.cell_sums:
            if not np.any(np.count_nonzero(sums.present, axis=1) > 1):
                raise InvalidInputError(
                    "No part of the data holds two groups, so there is nothing to be "
                    "fair between. Check sensitive_features, or set fairness_weight=0."
                )

    def tables(self, prob: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute."""
        return [
            cells.table(prob, cells.share, prob.shape[1]) for cells in self.rows.cells
        ]

    def on_tables(self, joints: list[FloatArray]) -> tuple[float, list[FloatArray]]:
        """Return the penalty on the tables of all attributes, and their payoffs."""
        objective, compared = self.objective, self.comparison
        parts = [table_penalty(objective, joint, compared) for joint in joints]
        return sum(value for value, _ in parts), [payoff for _, payoff in parts]

    def value(self, joints: list[FloatArray]) -> float:
        """Return the penalty on the tables of all attributes, without payoffs."""
        notion = self.objective.notion
        if not self.objective.has_linear_dual:
            return self.on_tables(joints)[0]
        return sum(
            weight * self.objective.trained_divergence.between(stratum)
            for table in joints
            for weight, stratum in zip(
                stratum_weights(table, notion.weighting), table, strict=True
            )
            if weight > 0
        )

    def duals(self, tables: list[FloatArray]) -> tuple[FloatArray, ...]:
        """Return the optimal dual ``A = f'(P / Q)`` on the table of each attribute."""
        divergence = self.objective.trained_divergence
        every = replace(self.comparison, kept=None)
        is_placed = every.place is not None
        compared = map(every.tables, tables) if is_placed else tables
        duals = [divergence.value_and_slopes(p, _product(p))[1] for p in compared]
        return tuple(map(every.pull_back, duals) if is_placed else duals)

    def by_prob(self, prob: FloatArray, payoffs: list[FloatArray]) -> FloatArray:
        """Return the (n_samples, n_classes) gradient of the penalty by ``prob``.

        That of sample ``i`` is its share times ``payoff[r_i, :, k_i]``, a look-up in
        the payoff of each attribute.
        """
        gradient = np.zeros_like(prob)
        with np.errstate(invalid="ignore"):  # of two infinite payoffs
            for c, payoff in zip(self.rows.cells, payoffs, strict=True):
                for j in range(payoff.shape[1]):
                    gradient[c.rows, j] += c.share * payoff[:, j].reshape(-1)[c.cell]
        return gradient


@dataclass(frozen=True)
class Problem:
    """An objective bound to data.

    Attributes
    ----------
    objective
        What is minimised.
    X
        (n_samples, n_features) dense or CSR.
    y
        (n_samples,) class codes, or numbers in their standard deviations.
    share
        (n_samples,) sample weights that sum to 1.
    n_classes
        Number of classes; of numbers 2, because the second logit is the prediction,
        the first is 0 and nothing depends on it.
    penalty
        The fairness penalty, None when its weight is 0.
    penalty_X
        Rows for the penalty where they are not the rows of X.
    loss_of, bins
        Of numbers: the `Loss` of residuals, and the `SoftBins` of predictions.
    """

    objective: Objective
    X: Table
    y: NDArray[Any]
    share: FloatArray
    n_classes: int
    penalty: Penalty | None = None
    penalty_X: Table = None  # noqa: N815 - X is mathematics
    loss_of: Any = None  # Loss
    bins: Any = None  # SoftBins

    @property
    def penalized_X(self) -> Table:  # noqa: N802 - X is mathematics
        """The features of the rows that the penalty is taken on."""
        return self.X if self.penalty_X is None else self.penalty_X

    def with_weight(self, fairness_weight: float) -> Self:
        """Return the same problem under another fairness weight."""
        return replace(
            self, objective=replace(self.objective, fairness_weight=fairness_weight)
        )

    def loss(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the weighted mean loss and its gradient by the logits."""
        if self.loss_of is not None:
            residual, gradient = self.y - logits[:, 1], np.zeros_like(logits)
            gradient[:, 1] = -self.share * self.loss_of.slope(residual, np)
            return float(self.share @ self.loss_of.value(residual, np)), gradient
        log_prob = log_softmax(logits, axis=1)
        rows = np.arange(len(logits))
        value = -float(self.share @ log_prob[rows, self.y])
        gradient = np.exp(log_prob) * self.share[:, None]
        gradient[rows, self.y] -= self.share
        return value, gradient

    def fairness(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return the weighted penalty and its gradient by the logits."""
        o = self.objective
        if self.penalty is None or o.fairness_weight == 0:
            return 0.0, np.zeros_like(logits)
        if not np.all(np.isfinite(logits)):
            raise NonFiniteError("Some predictions are not finite numbers.")
        prob = self.penalized_prob(logits)
        value, payoffs = 0.0, []
        for table in self.penalty.tables(prob):
            part, payoff = compared_penalty(
                table,
                self.penalty.comparison,
                o.trained_divergence,
                o.uncertainty,
                o.notion.weighting,
            )
            value += part
            payoffs.append(payoff)
        by_prob = self.penalty.by_prob(prob, payoffs)
        check_finite(value, by_prob)
        centre = np.sum(prob * by_prob, axis=1, keepdims=True)
        by_logits = o.fairness_weight * (o.sharpness * prob * (by_prob - centre))
        if self.bins is not None:
            by_bin, by_logits = by_logits, np.zeros_like(logits)
            by_logits[:, 1] = by_bin @ self.bins.slopes
        return o.fairness_weight * value, by_logits

    def penalized_prob(self, logits: FloatArray) -> FloatArray:
        """Return the probabilities that the penalty sees."""
        if self.bins is not None:
            logits = self.bins.logits(logits[:, 1])
        return np.asarray(softmax(self.objective.sharpness * logits, axis=1))

    def tables(self, logits: FloatArray) -> list[FloatArray]:
        """Return the (strata, classes, groups) table of each attribute, if any."""
        if self.penalty is None:
            return []
        return self.penalty.tables(self.penalized_prob(logits))

    @property
    def is_smooth(self) -> bool:
        """Whether the objective has a gradient everywhere."""
        o = self.objective
        if self.penalty is None or o.fairness_weight == 0:
            return True
        return o.uncertainty is None and o.divergence.is_smooth

    def value_and_gradient(self, logits: FloatArray) -> tuple[float, FloatArray]:
        """Return loss plus penalty on the rows of X, and the gradient by the logits."""
        loss, by_loss = self.loss(logits)
        fairness, by_fairness = self.fairness(logits)
        return loss + fairness, by_loss + by_fairness


def check_finite(value: float, gradient: FloatArray) -> None:
    """Raise where a penalty or its gradient is infinite."""
    # A sum is finite where all its terms are, and takes a fraction of the time.
    with np.errstate(invalid="ignore"):
        total = value + gradient.sum()
    if not math.isfinite(total):
        raise NonFiniteError(
            "The penalty is infinite here: the worst case gives some cell no "
            "probability. Give LargeShift a floor, or choose jensen_shannon."
        )


def _product(table: FloatArray) -> FloatArray:
    # The product of the marginals of outcome and group, as a joint mass.
    mass = table.sum(axis=(1, 2), keepdims=True)
    product = table.sum(axis=2, keepdims=True) * table.sum(axis=1, keepdims=True)
    return np.where(mass > 0, product / np.where(mass > 0, mass, 1.0), 0.0)


def smallest_cell(tables: list[FloatArray]) -> float:
    """Return the smallest product of marginals of a class and a group in a stratum.

    Parameters
    ----------
    tables
        (strata, classes, groups) of each attribute.
    """
    smallest = np.inf
    for table in tables:
        share = table.sum(axis=(1, 2), keepdims=True)
        product = _product(table) / np.where(share > 0, share, 1.0)
        smallest = min(smallest, product[product > 0].min(initial=np.inf))
    return float(smallest)
