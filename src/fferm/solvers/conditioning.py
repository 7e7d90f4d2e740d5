r"""Coordinates in which a linear problem is round.

The Hessian of cross-entropy is ``X' diag(p (1 - p)) X``, so in the coordinates
``theta = M phi`` with ``M M' = (X' X / 4n + l2)^{-1}`` it is near the identity, however
the features are scaled or correlated. L-BFGS then needs tens of iterations where it
needs hundreds on raw columns. One pass over the data, shared by a whole path.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fferm._typing import FloatArray, Table, is_sparse

# Above this width the Gram matrix costs more than it saves: use its diagonal.
WIDEST_GRAM = 1024
ROWS_PER_BLOCK = 8192
# Directions without data get this share of the mean curvature, so M stays finite.
RIDGE = 1e-8
# A column below this says nothing that a double can tell from 0.
SMALLEST_SIZE = 1e-150


@dataclass(frozen=True)
class Coordinates:
    """A linear change of coordinates, ``theta = scale * (factor^-T phi)``.

    Attributes
    ----------
    scale
        (n_features + 1,) the scale of each coordinate.
    factor
        Lower triangular (n_features + 1, n_features + 1), or None for the identity.
    """

    scale: FloatArray
    factor: FloatArray | None = None

    def to_theta(self, phi: FloatArray) -> FloatArray:
        """Return the parameters at round coordinates, row by row."""
        if self.factor is not None:
            phi = scipy.linalg.solve_triangular(
                self.factor, phi.T, lower=True, trans=1
            ).T
        return phi * self.scale

    def to_phi(self, theta: FloatArray) -> FloatArray:
        """Return the round coordinates of parameters, row by row."""
        phi = theta / self.scale
        return phi if self.factor is None else phi @ self.factor

    def gradient(self, by_theta: FloatArray) -> FloatArray:
        """Return the gradient in round coordinates."""
        by_phi = by_theta * self.scale
        if self.factor is None:
            return by_phi
        return scipy.linalg.solve_triangular(self.factor, by_phi.T, lower=True).T


def round_coordinates(X: Table, share: FloatArray, l2: float) -> Coordinates:
    """Return coordinates in which cross-entropy on X is near round.

    Parameters
    ----------
    X
        (n_samples, n_features) dense or CSR.
    share
        (n_samples,) weights that sum to 1.
    l2
        Strength of the ridge on the features.
    """
    # Each column's own curvature, as a root: squares of tiny features underflow.
    size = np.append(np.hypot(_column_size(X) / 2, np.sqrt(l2)), 0.5)
    scale = 1 / np.where(size > SMALLEST_SIZE, size, 1.0)
    n_columns = scale.size
    ridge = np.append(np.full(n_columns - 1, l2), 0.0) * scale**2
    if n_columns > WIDEST_GRAM:
        return Coordinates(scale)
    curvature = _gram(X, share, scale) / 4 + np.diag(ridge)
    curvature += np.eye(n_columns) * (RIDGE * np.trace(curvature) / n_columns)
    return Coordinates(scale, scipy.linalg.cholesky(curvature, lower=True))


def _column_size(X: Table) -> FloatArray:
    # Not abs(X), which would be a copy of it.
    largest, smallest = (_dense(end).reshape(-1) for end in (X.max(0), X.min(0)))
    return np.maximum(largest, -smallest)


def _gram(X: Table, share: FloatArray, scale: FloatArray) -> FloatArray:
    # Block by block, so that no weighted copy of X is ever held.
    total = np.zeros((scale.size, scale.size))
    for begin in range(0, X.shape[0], ROWS_PER_BLOCK):
        block = X[begin : begin + ROWS_PER_BLOCK]
        dense = _dense(block)
        with_ones = np.column_stack([dense, np.ones(len(dense))]) * scale
        weight = share[begin : begin + ROWS_PER_BLOCK, None]
        total += with_ones.T @ (weight * with_ones)
    return total


def _dense(values: Table) -> FloatArray:
    return np.asarray(
        values.toarray() if is_sparse(values) else values, dtype=np.float64
    )
