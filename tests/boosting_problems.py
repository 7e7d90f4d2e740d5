"""Small problems of trees: loss and penalty of raw scores, on random rows."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import log_softmax, softmax

from fferm.boosting._kernels import LEAST_CURVATURE
from fferm.boosting.objective import LeafSums, ScoreObjective, decide
from fferm.data.rows import encode_rows
from fferm.notions import ConditionalParity, EqualizedOdds, Labels
from fferm.penalty.objective import Penalty, make_objective

NOTIONS = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalized_odds": "equalized_odds",
    "equalized_odds by frequency": EqualizedOdds("frequency"),
    "false_positive_rate_parity": "false_positive_rate_parity",
    "conditional_parity": ConditionalParity("area"),
    "conditional_parity of equal strata": ConditionalParity("area", "unit"),
    "sufficiency": "sufficiency",
    "predictive_parity": "predictive_parity",
}
TWO_CLASSES = ("equal_opportunity", "false_positive_rate_parity", "predictive_parity")


def classes_of(notion):
    """Return how many classes to look at a notion with."""
    return (2,) if notion in TWO_CLASSES else (2, 3)


def make(
    divergence="kl",
    notion="demographic_parity",
    n_classes=2,
    how="intersection",
    seed=0,
    uncertainty=None,
    fairness_weight=3.0,
    n=40,
):
    """Return an objective on random rows, its oracle, and scores to look at."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    weight = rng.uniform(0.5, 2, n)
    groups = {"a": rng.integers(0, 2, n), "b": rng.integers(0, 3, n)}
    objective = make_objective(
        divergence,
        NOTIONS.get(notion, notion),
        uncertainty,
        fairness_weight=fairness_weight,
        sharpness=1.7,
    )
    area = np.array([None, "x", "y", "z"])[np.arange(n) // 2 % 4]
    labels = Labels(n, y, tuple(range(n_classes)))
    rows = encode_rows(
        groups if how == "marginal" else groups["a"],
        objective.notion,
        labels,
        pd.DataFrame({"area": area}),
        how=how,
        sample_weight=weight,
    )
    penalty = Penalty(objective, rows, labels.classes)
    compiled = ScoreObjective(objective, y, weight, n_classes, penalty)
    scores = rng.normal(size=(compiled.n_scores, n))
    return compiled, Oracle(compiled, penalty), scores


@dataclass(frozen=True)
class Point:
    """What the scores give, in plain NumPy."""

    scores: np.ndarray  # (n_scores, n)
    prob: np.ndarray  # (n_classes, n)
    penalized: np.ndarray  # (n_classes, n), the probabilities that the penalty sees
    loss: float
    tables: list


@dataclass(frozen=True)
class Slopes:
    """Derivatives of the two parts of the objective; those of the loss times ``W``."""

    gradient: np.ndarray  # (n_scores, n), of the loss
    diagonal: np.ndarray  # (n_scores, n), curvature of the loss
    payoff: np.ndarray  # (n_cells, n_classes), gradient of the penalty by its tables


class Oracle:
    """Loss plus penalty of raw scores in plain NumPy: what fused passes are held to."""

    def __init__(self, objective, penalty):
        self.objective = objective
        self.penalty = penalty
        self.y, self.weight = objective.y, objective.weight
        self.first = objective.n_classes - objective.n_scores

    def logits(self, scores):
        return scores if not self.first else np.vstack([np.zeros_like(scores), scores])

    def at(self, scores):
        logits = self.logits(scores)
        log_prob = log_softmax(logits, axis=0)
        losses = -log_prob[self.y, np.arange(self.y.size)]
        penalized = softmax(self.objective.objective.sharpness * logits, axis=0)
        loss = float(self.weight @ losses) / self.weight.sum()
        tables = self.penalty.tables(penalized.T)
        return Point(scores, np.exp(log_prob), penalized, loss, tables)

    def cells(self, point):
        return self.objective.penalty.join(point.tables)

    def decided(self, scores):
        decided = np.eye(self.objective.n_classes)[decide(scores)]
        return self.objective.penalty.join(self.penalty.tables(decided))

    def value(self, point, offsets=None):
        tables = shifted(point.tables, offsets)
        if any(table.min() < 0 for table in tables):
            return np.inf
        weight = self.objective.objective.fairness_weight
        return point.loss + weight * self.penalty.on_tables(tables)[0]

    def slopes(self, point, offsets=None):
        payoffs = self.penalty.on_tables(shifted(point.tables, offsets))[1]
        gradient = point.prob.copy()
        gradient[self.y, np.arange(self.y.size)] -= 1
        n_classes = self.objective.n_classes
        factor = 1 if n_classes == 2 else n_classes / (n_classes - 1)
        curvature = np.maximum(factor * point.prob * (1 - point.prob), LEAST_CURVATURE)
        return Slopes(
            self.weight * gradient[self.first :],
            self.objective.hessian_weight * curvature[self.first :],
            self.objective.penalty.join(payoffs),
        )

    def gradient(self, point, slopes, payoff=None):
        """Return the (n_scores, n) gradient, times ``W``, of loss and penalty."""
        factor = self.objective.objective.fairness_weight * self.weight.sum()
        payoff = slopes.payoff if payoff is None else payoff
        return slopes.gradient + factor * self.pull(point, payoff)

    def pull(self, point, payoff):
        """Return the (n_scores, n) gradient of ``sum payoff * table``."""
        o = self.objective
        by_prob = o.table_weight * (o.membership.T @ payoff)[o.cell].T
        centre = np.sum(point.penalized * by_prob, axis=0)
        by_logits = point.penalized * (by_prob - centre)
        return self.objective.objective.sharpness * by_logits[self.first :]

    def moved(self, point, j, score):
        """Return the (n,) derivatives of the penalized probability of class j."""
        c = score + self.first
        slope = point.penalized[j] * ((j == c) - point.penalized[c])
        return self.objective.objective.sharpness * slope

    def leaf_sums(self, point, slopes, leaves):
        """Return what a Newton step over leaves needs, added up over rows."""
        o, n_joint = self.objective, self.objective.membership.shape[1]
        by_loss, parts = [], []
        for score, tree in enumerate(leaves):
            size = tree.output.size
            by_loss.append(
                [
                    np.bincount(tree.code, weights=rows[score], minlength=size)
                    for rows in (slopes.gradient, slopes.diagonal)
                ]
            )
            both = o.cell * size + tree.code
            moved = [
                o.membership
                @ np.bincount(
                    both,
                    weights=o.table_weight * self.moved(point, j, score),
                    minlength=n_joint * size,
                ).reshape(n_joint, size)
                for j in range(o.n_classes)
            ]
            parts.append(np.stack(moved, axis=1).reshape(-1, size))
        gradient, diagonal = np.hstack([np.array(part) for part in by_loss])
        return LeafSums(gradient, diagonal, np.hstack(parts))


def shifted(tables, offsets):
    """Return tables plus offsets."""
    if offsets is None:
        return list(tables)
    return [table + offset for table, offset in zip(tables, offsets, strict=True)]
