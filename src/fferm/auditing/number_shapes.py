"""What the audit of a regressor draws: densities of groups, and fans along numbers."""

import numpy as np
from scipy.stats import norm

from fferm._typing import FloatArray, IntArray
from fferm.auditing.number_parts import Densities, Fan
from fferm.data.groups import quantile_edges
from fferm.metrics.dependence import effective_size

# Places of a density, and cells that rows are counted in for it.
N_PLACES = 80
N_FINE = 400
# Bins of a fan, and the share below its lower and upper end.
N_BINS = 20
FAN = (0.1, 0.9)


def densities_of(
    u: FloatArray, code: IntArray, groups: tuple[str, ...], weight: FloatArray
) -> Densities:
    """Return the density of the prediction in each group."""
    low, high = np.quantile(u, [0.001, 0.999])
    # Of predictions that are all alike some width is left to draw.
    room = 0.1 * (high - low) or 1e-3 * max(abs(low), 1.0)
    at = np.linspace(low - room, high + room, N_PLACES)
    by_group = {
        groups[k]: tuple(_density(u[code == k], at, weight[code == k]).tolist())
        for k in np.unique(code)
    }
    return Densities(tuple(at.tolist()), by_group)


def fan_of(u: FloatArray, values: FloatArray, weight: FloatArray) -> Fan:
    """Return the prediction along a number."""
    edges = quantile_edges(values, N_BINS, weight)
    bins = np.searchsorted(edges, values, "right")
    parts = [bins == b for b in np.unique(bins)]
    ends = [_quantiles(u[part], weight[part]) for part in parts]
    return Fan(
        at=tuple(float(np.average(values[p], weights=weight[p])) for p in parts),
        mean=tuple(float(np.average(u[p], weights=weight[p])) for p in parts),
        low=tuple(low for low, _ in ends),
        high=tuple(high for _, high in ends),
    )


def _density(u: FloatArray, at: FloatArray, weight: FloatArray) -> FloatArray:
    # Normal kernels, of the width that suits a normal density, on a fine histogram.
    share = weight / weight.sum()
    ends = at[0], at[-1]
    mass, edges = np.histogram(np.clip(u, *ends), N_FINE, ends, weights=share)
    middle = (edges[1:] + edges[:-1]) / 2
    deviation = np.sqrt(share @ (u - share @ u) ** 2)
    width = max(1.06 * deviation * effective_size(weight) ** -0.2, at[1] - at[0])
    return np.asarray(norm.pdf((at[:, None] - middle) / width) @ mass / width)


def _quantiles(u: FloatArray, weight: FloatArray) -> tuple[float, float]:
    if np.all(weight == weight[0]):
        low, high = np.quantile(u, FAN)
    else:
        low, high = np.quantile(u, FAN, method="inverted_cdf", weights=weight)
    return float(low), float(high)
