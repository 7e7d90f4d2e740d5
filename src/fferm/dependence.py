r"""How much a number depends on an attribute: measures for continuous predictions.

Measures of groups compare distributions of the prediction: their means
(`mean_gap`), all of them at once (`kolmogorov_smirnov`, `wasserstein`). Measures of two
numbers look for any dependence: `distance_correlation`, `maximal_correlation` (after
Hirschfeld, Gebelein and Renyi) and `f_information`. The linear `correlation` stands
beside them to show what it misses. `independence_test` says what chance would give.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fferm import tables
from fferm._types import FloatArray, IntArray, Table
from fferm.distributions import Apart, OrderedPredictions
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.soft_bins import quantile_edges

# Rows that enter a distance correlation, whose cost is the square of their number.
MOST_DISTANCES = 2000
# Values of a whole-numbered attribute up to which each is a bin of its own.
N_BINS = 10


def mean_gap(prediction: FloatArray, group: IntArray) -> float:
    """Return the largest difference of the means of two groups."""
    return _apart(prediction, group).mean_gap()


def kolmogorov_smirnov(prediction: FloatArray, group: IntArray) -> float:
    """Return the largest distance of two groups' distribution functions, 0 to 1.

    It is the largest gap that any threshold on the prediction could make: the
    demographic parity violation of the worst decision rule.
    """
    return _apart(prediction, group).kolmogorov_smirnov()


def wasserstein(prediction: FloatArray, group: IntArray) -> float:
    """Return the largest Wasserstein distance of two groups, in the unit of y.

    How far predictions of one group have to be moved, on average, to become those of
    the other.
    """
    return _apart(prediction, group).wasserstein()


def correlation(prediction: FloatArray, attribute: FloatArray) -> float:
    """Return the absolute linear correlation, which sees no other dependence."""
    if np.ptp(prediction) == 0 or np.ptp(attribute) == 0:
        return 0.0
    return float(abs(np.corrcoef(prediction, attribute)[0, 1]))


def distance_correlation(
    prediction: FloatArray, attribute: FloatArray, *, random_state: int = 0
) -> float:
    """Return the distance correlation, 0 to 1, without the bias of small samples.

    The unbiased estimate of its square may fall below 0 near independence and is cut
    there. More than 2,000 rows are drawn down to as many.
    """
    rows = _few(prediction.size, random_state)
    a, b = (_centred_distances(v[rows]) for v in (prediction, attribute))
    return _correlated(a, b, np.sqrt(_total(a, a) * _total(b, b)))


def maximal_correlation(
    prediction: FloatArray, attribute: FloatArray, *, n_bins: int = N_BINS
) -> float:
    """Return the maximal correlation of functions of both, 0 to 1, by binning.

    The largest correlation of any function of the prediction with any function of the
    attribute: the second singular value of ``P / sqrt(Q)`` on a table of quantile bins.
    Bins can only lower it; of independent rows it is about
    ``(sqrt(r - 1) + sqrt(c - 1)) / sqrt(n)`` of an r x c table, not 0.
    """
    table = _table(prediction, attribute, n_bins)
    scaled = table / np.sqrt(np.outer(table.sum(axis=1), table.sum(axis=0)))
    singular = np.linalg.svd(scaled, compute_uv=False)
    return float(min(singular[1], 1.0)) if singular.size > 1 else 0.0


def f_information(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    divergence: str | Divergence = "kl",
    n_bins: int = N_BINS,
) -> float:
    """Return the f-divergence of joint and product on a table of quantile bins.

    Two biases go against each other. Bins can only lower the divergence. The counts of
    n independent rows in an r x c table raise it, by `information_bias` on average.
    """
    table = _table(prediction, attribute, n_bins)
    return float(tables.penalty(table, get_divergence(divergence))[0])


def information_bias(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    divergence: str | Divergence = "kl",
    n_bins: int = N_BINS,
) -> float:
    """Return what `f_information` is about for as many rows that are independent.

    ``f''(1) / 2 * (r - 1) (c - 1) / n``, the mean of chi-square over n.
    """
    rows, columns = _table(prediction, attribute, n_bins).shape
    curvature = float(get_divergence(divergence).f_second(np.float64(1.0), np)) / 2
    return float(curvature * (rows - 1) * (columns - 1) / prediction.size)


@dataclass(frozen=True)
class IndependenceTest:
    """What chance alone would give.

    Attributes
    ----------
    value
        The measure on the rows.
    chance
        Its mean over rows whose attribute was shuffled.
    p_value
        How often shuffled rows reach the value: ``(1 + count) / (1 + n_permutations)``.
    """

    value: float
    chance: float
    p_value: float


def independence_test(
    measure: str | Callable[[FloatArray, Table], float],
    prediction: Table,
    attribute: Table,
    *,
    n_permutations: int = 199,
    random_state: int = 0,
) -> IndependenceTest:
    """Return a permutation test of independence of prediction and attribute.

    Exact at any number of rows: shuffled rows are independent and otherwise alike.

    Parameters
    ----------
    measure
        A name of `MEASURES`, or a function of prediction and attribute.
    prediction, attribute
        (n_samples,) numbers; groups as whole numbers for measures of groups.
    n_permutations
        How often the attribute is shuffled; the smallest p-value is one over this
        plus 1.
    random_state
        Seed of the shuffling.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.normal(size=300)
    >>> independence_test("distance_correlation", age**2, age).p_value
    0.005
    """
    function = get_measure(measure) if isinstance(measure, str) else measure
    u, s = _numbers(prediction, "prediction"), _numbers(attribute, "attribute")
    _check_lengths(u, s)
    generator = np.random.default_rng(random_state)
    value = function(u, s)
    if function is distance_correlation:
        shuffled = _shuffled_distances(u, s, n_permutations, generator)
    else:
        draws = (generator.permutation(s) for _ in range(n_permutations))
        shuffled = [function(u, drawn) for drawn in draws]
    reached = sum(other >= value - 1e-12 for other in shuffled)
    p_value = (1 + reached) / (1 + n_permutations)
    return IndependenceTest(value, float(np.mean(shuffled)), p_value)


# Measures of a prediction against groups, and against numbers.
GROUP_MEASURES: dict[str, Callable[[FloatArray, Table], float]] = {
    "kolmogorov_smirnov": kolmogorov_smirnov,
    "wasserstein": wasserstein,
    "mean_gap": mean_gap,
}
NUMBER_MEASURES: dict[str, Callable[[FloatArray, Table], float]] = {
    "correlation": correlation,
    "distance_correlation": distance_correlation,
    "maximal_correlation": maximal_correlation,
    "f_information": f_information,
}
MEASURES = {**GROUP_MEASURES, **NUMBER_MEASURES}


def get_measure(name: str) -> Callable[[FloatArray, Table], float]:
    """Return the measure of a name."""
    if name not in MEASURES:
        raise UnknownNameError(
            f"Unknown measure {name!r}. Known: {', '.join(sorted(MEASURES))}."
        )
    return MEASURES[name]


def _apart(prediction: FloatArray, group: IntArray) -> Apart:
    _check_lengths(prediction, group)
    n_groups = np.unique(group[group >= 0]).size
    if n_groups < 2:
        raise InvalidInputError(
            f"{n_groups} groups came. Expected at least two to compare; groups below "
            "0 are unknown."
        )
    return OrderedPredictions.of(prediction).compare(group)


def _table(prediction: FloatArray, attribute: FloatArray, n_bins: int) -> FloatArray:
    _check_lengths(prediction, attribute)
    if not isinstance(n_bins, int | np.integer) or n_bins < 2:
        raise InvalidParameterError(
            f"n_bins={n_bins!r} came. Expected a whole number from 2 on."
        )
    row, column = (_bin(v, int(n_bins)) for v in (prediction, attribute))
    count = np.zeros((row.max() + 1, column.max() + 1))
    np.add.at(count, (row, column), 1.0)
    return np.asarray(count / count.sum())


def _bin(values: FloatArray, n_bins: int) -> IntArray:
    edges = quantile_edges(values, n_bins, np.ones(values.size))
    return np.searchsorted(edges, values, "right")


def _centred_distances(values: FloatArray) -> FloatArray:
    # U-centred: the mean of products is then unbiased for independence.
    n = values.size
    distance = np.abs(values[:, None] - values)
    row = distance.sum(axis=1) / (n - 2)
    centred = distance - row[:, None] - row + distance.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(centred, 0.0)
    return np.asarray(centred)


def _few(n: int, random_state: int) -> IntArray:
    # Row numbers, of all rows or of as many as enter a distance correlation.
    if n <= MOST_DISTANCES:
        return np.arange(n)
    generator = np.random.default_rng(random_state)
    return generator.choice(n, MOST_DISTANCES, replace=False)


def _shuffled_distances(
    u: FloatArray, s: FloatArray, n_permutations: int, generator: np.random.Generator
) -> list[float]:
    # Shuffled rows have the distances of the attribute in another order, so that
    # nothing else is computed again.
    rows = _few(u.size, 0)
    a, b = (_centred_distances(v[rows]) for v in (u, s))
    scale = np.sqrt(_total(a, a) * _total(b, b))
    draws = (generator.permutation(rows.size) for _ in range(n_permutations))
    return [_correlated(a, b[np.ix_(drawn, drawn)], scale) for drawn in draws]


def _correlated(a: FloatArray, b: FloatArray, scale: float) -> float:
    if not scale > 0:
        return 0.0
    return float(np.sqrt(max(_total(a, b) / scale, 0.0)))


def _total(a: FloatArray, b: FloatArray) -> float:
    return float(np.einsum("ij,ij", a, b))


def _numbers(values: Table, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} has shape {array.shape}, or holds missing numbers. Expected one "
            "finite number a row."
        )
    return array


def _check_lengths(prediction: FloatArray, attribute: Table) -> None:
    if prediction.shape != np.shape(attribute) or prediction.size < 4:
        raise InvalidInputError(
            f"prediction has shape {prediction.shape} and the attribute "
            f"{np.shape(attribute)}. Expected one number a row, of four rows at least."
        )
