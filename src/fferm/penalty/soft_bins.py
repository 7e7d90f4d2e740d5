r"""Soft bins: a partition of unity over a number, so that tables apply to it.

The share of bin :math:`b` in a prediction :math:`u` is :math:`F_b(u)`, with

.. math:: F(u) = \operatorname{softmax}(a u + d), \qquad
          a_{b+1} - a_b = \kappa_b, \qquad d_{b+1} - d_b = -\kappa_b e_b

Two neighbours share a prediction alike at the edge :math:`e_b` between them, and
:math:`\kappa_b` says how steeply one takes over from the other; in the limit the bins
are hard. A linear model with soft bins is a classifier whose logits are all functions
of one number: divergences, notions, uncertainty sets, duals and losses see nothing new.
The objective of fair regression, a `Problem` with such bins, is

.. math::

    \min_\theta \; \frac1n \sum_i \ell\big(y_i - u_i\big)
      + \lambda \, D_f\big(P(\text{bin}, s) \,\|\, P(\text{bin}) P(s)\big)
      + \frac{\text{l2}}2 \|\text{coef}\|^2

with the prediction :math:`u` and y in standard deviations of y.
"""

from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray
from fferm.data.validate import POSITIVE, check_params
from fferm.errors import InvalidInputError

# How steeply bins change over, in units of one over the distance to the next edge. At
# 4 a prediction in the middle of a bin belongs to it by three quarters.
STEEPNESS = 4.0


@dataclass(frozen=True)
class SoftBins:
    """A partition of unity over a number.

    Attributes
    ----------
    edges
        (n_bins - 1,) where neighbouring bins meet, growing.
    slopes, offsets
        (n_bins,) logits are ``slopes * u + offsets``.
    """

    edges: FloatArray
    slopes: FloatArray
    offsets: FloatArray

    @property
    def n_bins(self) -> int:
        """Number of bins."""
        return int(self.slopes.size)

    def logits(self, u: FloatArray) -> FloatArray:
        """Return the (n_samples, n_bins) logits of predictions."""
        return u[:, None] * self.slopes + self.offsets


def make_bins(edges: FloatArray, steepness: float = STEEPNESS) -> SoftBins:
    """Return soft bins with these edges.

    Parameters
    ----------
    edges
        Growing numbers, at least one.
    steepness
        How steeply bins change over, in units of one over the distance from an edge to
        its neighbour; a lone edge takes 1 for that distance.

    Examples
    --------
    >>> bins = make_bins(np.array([0.0, 1.0]), steepness=100.0)
    >>> bins.logits(np.array([-0.5, 0.5, 1.5])).argmax(axis=1)
    array([0, 1, 2])
    """
    edges = np.asarray(edges, dtype=np.float64)
    gaps = np.diff(edges)
    is_growing = np.all(np.isfinite(edges)) and np.all(gaps > 0)
    if edges.ndim != 1 or edges.size == 0 or not is_growing:
        raise InvalidInputError(
            f"edges must be finite numbers in rising order, at least one; got {edges}."
        )
    check_params({"steepness": steepness}, {"steepness": POSITIVE})
    nearest = np.ones(edges.size)
    if gaps.size:
        nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    kappa = steepness / nearest
    slopes = np.append(0.0, np.cumsum(kappa))
    offsets = np.append(0.0, np.cumsum(-kappa * edges))
    return SoftBins(edges, slopes - slopes.mean(), offsets)


# A problem without a penalty needs no bins, and a table needs some.
UNUSED_BINS = make_bins(np.zeros(1))
