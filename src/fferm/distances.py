r"""Distance correlation: dependence of two numbers of any kind, by pairs of rows.

Of distances :math:`a_{ij}` and :math:`b_{ij}` the squared covariance is

.. math:: E[a_{12} b_{12}] + E[a_{12}] E[b_{34}] - 2 E[a_{12} b_{13}]

with different rows at different places. Averages over all such tuples, each weighted by
the product of the weights of its rows, are unbiased; where rows weigh alike they are
the means of products of U-centred distances, which are quicker.
"""

from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray, IntArray

# Rows that enter a distance correlation, whose cost is the square of their number.
MOST_DISTANCES = 2000


def few_rows(n: int, random_state: int) -> IntArray:
    """Return row numbers: of all rows, or of as many as enter."""
    if n <= MOST_DISTANCES:
        return np.arange(n)
    generator = np.random.default_rng(random_state)
    return generator.choice(n, MOST_DISTANCES, replace=False)


def taken(weight: FloatArray | None, rows: IntArray) -> FloatArray | None:
    """Return the weights of some rows."""
    return None if weight is None else weight[rows]


@dataclass(frozen=True)
class Distances:
    """The distances of a prediction and of an attribute.

    Attributes
    ----------
    a, b
        (n, n) distances of either; U-centred where there are no weights.
    weight
        (n,) weights that sum to 1, or None.
    """

    a: FloatArray
    b: FloatArray
    weight: FloatArray | None

    @classmethod
    def of(
        cls, prediction: FloatArray, attribute: FloatArray, weight: FloatArray | None
    ) -> "Distances":
        """Return the distances of two numbers."""
        a, b = (np.abs(v[:, None] - v) for v in (prediction, attribute))
        if weight is None:
            return cls(_centred(a), _centred(b), None)
        return cls(a, b, weight / weight.sum())

    def value(self) -> float:
        """Return the distance correlation."""
        return _root(self._covariance(self.a, self.b), self._scale())

    def shuffled(
        self, n_permutations: int, generator: np.random.Generator
    ) -> list[float]:
        """Return it where the attribute, with its weights, is shuffled.

        Shuffled rows have the same distances in another order; they are scaled as the
        rows themselves are, so that it is covariances that are compared.
        """
        scale, n = self._scale(), len(self.a)
        found = []
        for _ in range(n_permutations):
            drawn = generator.permutation(n)
            # With weights it is the prediction that moves, the other way round.
            if self.weight is None:
                value = self._covariance(self.a, self.b[np.ix_(drawn, drawn)])
            else:
                value = self._covariance(self.a[np.ix_(drawn, drawn)], self.b)
            found.append(_root(value, scale))
        return found

    def _scale(self) -> float:
        own = self._covariance(self.a, self.a) * self._covariance(self.b, self.b)
        return float(np.sqrt(max(own, 0.0)))

    def _covariance(self, a: FloatArray, b: FloatArray) -> float:
        if self.weight is None:
            return float(np.einsum("ij,ij", a, b))
        return _weighted_covariance(a, b, self.weight)


def _centred(distance: FloatArray) -> FloatArray:
    # U-centred: the mean of products is then unbiased for independence.
    n = len(distance)
    row = distance.sum(axis=1) / (n - 2)
    centred = distance - row[:, None] - row + distance.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0.0)
    return np.asarray(centred)


def _weighted_covariance(a: FloatArray, b: FloatArray, w: FloatArray) -> float:
    # Sums over tuples of different rows, by taking out those with rows in common; the
    # diagonals are 0 anyway.
    product, square = a * b, w**2
    row_a, row_b = a @ w, b @ w
    pairs = w @ product @ w
    in_common = w @ product @ square
    triples = w @ (row_a * row_b) - in_common
    quadruples = (w @ row_a) * (w @ row_b)
    quadruples += 2 * (square @ product @ square) - 4 * (square @ (row_a * row_b))
    p2, p3, p4 = (float(np.sum(w**k)) for k in (2, 3, 4))
    return float(
        pairs / (1 - p2)
        + quadruples / (1 - 6 * p2 + 8 * p3 + 3 * p2**2 - 6 * p4)
        - 2 * triples / (1 - 3 * p2 + 2 * p3)
    )


def _root(value: float, scale: float) -> float:
    return float(np.sqrt(max(value / scale, 0.0))) if scale > 0 else 0.0
