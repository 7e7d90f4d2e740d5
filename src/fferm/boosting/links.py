"""From raw scores of trees to probabilities, the loss and their derivatives.

Two classes have one score, that of the second; more have one each. Gradient and
curvature of the loss are LightGBM's own.
"""

from abc import ABC, abstractmethod

import numpy as np
from scipy.special import log_softmax

from fferm._typing import FloatArray, IntArray

# Probabilities nearer to 0 or 1 than this have scores that are only rounding.
LEAST_CHANCE = 1e-15


class Link(ABC):
    """Probabilities and loss of raw scores, (n_scores, n_samples)."""

    n_classes: int
    n_scores: int

    @abstractmethod
    def losses(self, scores: FloatArray, y: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the (n,) cross-entropies and the (n_classes, n) probabilities."""

    @abstractmethod
    def prob(self, scores: FloatArray) -> FloatArray:
        """Return the (n_classes, n) probabilities."""

    @abstractmethod
    def gradient(self, prob: FloatArray, y: IntArray) -> FloatArray:
        """Return the (n_scores, n) gradient of the cross-entropies."""

    @abstractmethod
    def curvature(self, prob: FloatArray) -> FloatArray:
        """Return the (n_scores, n) curvature of the cross-entropies.

        Of several classes, a diagonal that bounds the whole matrix.
        """

    @abstractmethod
    def slope(self, prob: FloatArray, j: int, score: int) -> FloatArray:
        """Return the (n,) derivatives of the probability of class j by a score."""

    @abstractmethod
    def start(self, share: FloatArray) -> FloatArray:
        """Return the (n_scores,) scores at which probabilities are given shares."""

    @abstractmethod
    def scores(self, prob: FloatArray) -> FloatArray:
        """Return (n_scores, n) scores of the probabilities that LightGBM returns."""

    @abstractmethod
    def decide(self, scores: FloatArray) -> IntArray:
        """Return the (n,) classes of highest score."""


class Logistic(Link):
    """Two classes, one score."""

    n_classes = 2
    n_scores = 1

    def losses(self, scores: FloatArray, y: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return ``log(1 + e^z) - y z`` and the probabilities."""
        z = scores[0]
        prob, larger = self._prob(z)
        # The larger probability is 1 / (1 + e^-|z|), whose logarithm loses nothing.
        value = np.maximum(z, 0.0)
        value -= np.log(larger)
        value -= y * z
        return value, prob

    def prob(self, scores: FloatArray) -> FloatArray:
        """Return the logistic function of the score, and its complement."""
        return self._prob(scores[0])[0]

    def _prob(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        # Both probabilities, each exact however small, and the larger of the two.
        smaller = np.exp(-np.abs(z))
        larger = 1 / (1 + smaller)
        smaller *= larger
        prob, is_positive = np.empty((2, z.size)), z >= 0
        prob[0] = np.where(is_positive, smaller, larger)
        prob[1] = np.where(is_positive, larger, smaller)
        return prob, larger

    def gradient(self, prob: FloatArray, y: IntArray) -> FloatArray:
        """Return ``p - y``."""
        found: FloatArray = prob[1:] - y
        return found

    def curvature(self, prob: FloatArray) -> FloatArray:
        """Return ``p (1 - p)``."""
        found: FloatArray = prob[1:] * prob[:1]
        return found

    def slope(self, prob: FloatArray, j: int, score: int) -> FloatArray:
        """Return ``p (1 - p)``, with a minus for the first class."""
        found: FloatArray = prob[0] * prob[1]
        return found if j == 1 else -found

    def start(self, share: FloatArray) -> FloatArray:
        """Return the logarithm of the odds."""
        return np.asarray(np.log(share[1:] / share[:1]))

    def scores(self, prob: FloatArray) -> FloatArray:
        """Return the logarithm of the odds of the second class."""
        safe = np.clip(prob, LEAST_CHANCE, 1 - LEAST_CHANCE)
        return np.asarray(np.log(safe / (1 - safe)))

    def decide(self, scores: FloatArray) -> IntArray:
        """Return 1 where the score is above 0."""
        return np.asarray(scores[0] > 0, dtype=np.int64)


class Softmax(Link):
    """Several classes, one score each."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = self.n_scores = n_classes

    def losses(self, scores: FloatArray, y: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return minus the logarithm of the label's probability, and all of them."""
        log_prob = np.asarray(log_softmax(scores, axis=0), dtype=np.float64)
        return -log_prob[y, np.arange(len(y))], np.exp(log_prob)

    def prob(self, scores: FloatArray) -> FloatArray:
        """Return the softmax of the scores."""
        return np.exp(np.asarray(log_softmax(scores, axis=0), dtype=np.float64))

    def gradient(self, prob: FloatArray, y: IntArray) -> FloatArray:
        """Return the probabilities less the label's indicator."""
        found = prob.copy()
        found[y, np.arange(len(y))] -= 1
        return found

    def curvature(self, prob: FloatArray) -> FloatArray:
        """Return ``m / (m - 1) p (1 - p)``."""
        factor = self.n_classes / (self.n_classes - 1)
        return factor * prob * (1 - prob)

    def slope(self, prob: FloatArray, j: int, score: int) -> FloatArray:
        """Return ``p_j (1[j = score] - p_score)``."""
        found: FloatArray = prob[j] * ((j == score) - prob[score])
        return found

    def start(self, share: FloatArray) -> FloatArray:
        """Return the logarithms of the shares."""
        return np.log(share)

    def scores(self, prob: FloatArray) -> FloatArray:
        """Return the logarithms of the probabilities."""
        return np.log(np.maximum(prob, LEAST_CHANCE))

    def decide(self, scores: FloatArray) -> IntArray:
        """Return the first of the highest scores."""
        return np.asarray(scores.argmax(axis=0), dtype=np.int64)


def make_link(n_classes: int) -> Link:
    """Return the link of a number of classes."""
    return Logistic() if n_classes == 2 else Softmax(n_classes)
