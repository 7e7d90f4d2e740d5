r"""How much a number depends on an attribute: measures for continuous predictions.

Measures of groups compare distributions of the prediction: their means
(`mean_gap`), all of them at once (`kolmogorov_smirnov`, `wasserstein`). Measures of two
numbers look for any dependence: `distance_correlation`, `maximal_correlation` (after
Hirschfeld, Gebelein and Renyi) and `f_information`. The linear `correlation` stands
beside them to show what it misses. `independence_test` says what chance would give.

Every measure takes ``weight``, (n_samples,) positive weights of the rows; only their
ratios matter, and without them all rows count alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fferm import tables
from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import quantile_edges
from fferm.distances import Distances, few_rows, taken
from fferm.distributions import Apart, OrderedPredictions, effective_size
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError

# A measure of a prediction and an attribute, perhaps with weights.
Measure: TypeAlias = Callable[..., float]
# Values of a whole-numbered attribute up to which each is a bin of its own.
N_BINS = 10


def mean_gap(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest difference of the means of two groups."""
    return _apart(prediction, group, weight).mean_gap()


def kolmogorov_smirnov(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest distance of two groups' distribution functions, 0 to 1.

    It is the largest gap that any threshold on the prediction could make: the
    demographic parity violation of the worst decision rule.
    """
    return _apart(prediction, group, weight).kolmogorov_smirnov()


def wasserstein(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest Wasserstein distance of two groups, in the unit of y.

    How far predictions of one group have to be moved, on average, to become those of
    the other.
    """
    return _apart(prediction, group, weight).wasserstein()


def correlation(
    prediction: FloatArray, attribute: FloatArray, *, weight: FloatArray | None = None
) -> float:
    """Return the absolute linear correlation, which sees no other dependence."""
    if np.ptp(prediction) == 0 or np.ptp(attribute) == 0:
        return 0.0
    if weight is None:
        return float(abs(np.corrcoef(prediction, attribute)[0, 1]))
    covariance = np.cov(prediction, attribute, aweights=weight, ddof=0)
    return float(abs(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])))


def distance_correlation(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    weight: FloatArray | None = None,
    random_state: int = 0,
) -> float:
    """Return the distance correlation, 0 to 1, without the bias of small samples.

    The unbiased estimate of its square may fall below 0 near independence and is cut
    there. More than 2,000 rows are drawn down to as many.
    """
    rows = few_rows(prediction.size, random_state)
    return Distances.of(prediction[rows], attribute[rows], taken(weight, rows)).value()


def maximal_correlation(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    weight: FloatArray | None = None,
    n_bins: int = N_BINS,
) -> float:
    """Return the maximal correlation of functions of both, 0 to 1, by binning.

    The largest correlation of any function of the prediction with any function of the
    attribute: the second singular value of ``P / sqrt(Q)`` on a table of quantile bins.
    Bins can only lower it; of independent rows it is about
    ``(sqrt(r - 1) + sqrt(c - 1)) / sqrt(n)`` of an r x c table, not 0.
    """
    table = _table(prediction, attribute, n_bins, weight)
    scaled = table / np.sqrt(np.outer(table.sum(axis=1), table.sum(axis=0)))
    singular = np.linalg.svd(scaled, compute_uv=False)
    return float(min(singular[1], 1.0)) if singular.size > 1 else 0.0


def f_information(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    weight: FloatArray | None = None,
    divergence: str | Divergence = "kl",
    n_bins: int = N_BINS,
) -> float:
    """Return the f-divergence of joint and product on a table of quantile bins.

    Two biases go against each other. Bins can only lower the divergence. The counts of
    n independent rows in an r x c table raise it, by `information_bias` on average.
    """
    table = _table(prediction, attribute, n_bins, weight)
    return float(tables.penalty(table, get_divergence(divergence))[0])


def information_bias(
    prediction: FloatArray,
    attribute: FloatArray,
    *,
    weight: FloatArray | None = None,
    divergence: str | Divergence = "kl",
    n_bins: int = N_BINS,
) -> float:
    """Return what `f_information` is about for as many rows that are independent.

    ``f''(1) / 2 * (r - 1) (c - 1) / n``, the mean of chi-square over n; with weights n
    is what the rows are worth without, ``(sum w)^2 / sum w^2``.
    """
    rows, columns = _table(prediction, attribute, n_bins, weight).shape
    n = effective_size(np.ones(prediction.size) if weight is None else weight)
    curvature = float(get_divergence(divergence).f_second(np.float64(1.0), np)) / 2
    return float(curvature * (rows - 1) * (columns - 1) / n)


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
    measure: str | Measure,
    prediction: Table,
    attribute: Table,
    *,
    n_permutations: int = 199,
    random_state: int = 0,
    weight: Table = None,
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
    weight
        (n_samples,) positive weights, which are shuffled with the attribute: the test
        is of a prediction that knows neither.

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
    w = None if weight is None else _numbers(weight, "weight")
    if w is not None and (w.shape != u.shape or not np.all(w > 0)):
        raise InvalidInputError(
            f"weight has shape {w.shape}, or holds 0 and below. Expected a positive "
            f"weight a row, ({u.size},)."
        )
    generator = np.random.default_rng(random_state)
    value = function(u, s) if w is None else function(u, s, weight=w)
    others = shuffled_values(function, u, s, n_permutations, generator, w)
    reached = sum(other >= value - 1e-12 for other in others)
    p_value = (1 + reached) / (1 + n_permutations)
    return IndependenceTest(value, float(np.mean(others)), p_value)


def shuffled_values(
    function: Measure,
    prediction: FloatArray,
    attribute: Table,
    n_permutations: int,
    generator: np.random.Generator,
    weight: FloatArray | None = None,
) -> list[float]:
    """Return a measure where the attribute, with its weights, is shuffled."""
    if function is distance_correlation:
        rows = few_rows(prediction.size, 0)
        parts = prediction[rows], attribute[rows], taken(weight, rows)
        return Distances.of(*parts).shuffled(n_permutations, generator)
    found = []
    for _ in range(n_permutations):
        order = generator.permutation(np.arange(prediction.size))
        given = {} if weight is None else {"weight": weight[order]}
        found.append(function(prediction, attribute[order], **given))
    return found


# Measures of a prediction against groups, and against numbers.
GROUP_MEASURES: dict[str, Measure] = {
    "kolmogorov_smirnov": kolmogorov_smirnov,
    "wasserstein": wasserstein,
    "mean_gap": mean_gap,
}
NUMBER_MEASURES: dict[str, Measure] = {
    "correlation": correlation,
    "distance_correlation": distance_correlation,
    "maximal_correlation": maximal_correlation,
    "f_information": f_information,
}
MEASURES = {**GROUP_MEASURES, **NUMBER_MEASURES}


def get_measure(name: str) -> Measure:
    """Return the measure of a name."""
    if name not in MEASURES:
        raise UnknownNameError(
            f"Unknown measure {name!r}. Known: {', '.join(sorted(MEASURES))}."
        )
    return MEASURES[name]


def _apart(prediction: FloatArray, group: IntArray, weight: FloatArray | None) -> Apart:
    _check_lengths(prediction, group)
    n_groups = np.unique(group[group >= 0]).size
    if n_groups < 2:
        raise InvalidInputError(
            f"{n_groups} groups came. Expected at least two to compare; groups below "
            "0 are unknown."
        )
    return OrderedPredictions.of(prediction).compare(group, weight)


def _table(
    prediction: FloatArray,
    attribute: FloatArray,
    n_bins: int,
    weight: FloatArray | None,
) -> FloatArray:
    _check_lengths(prediction, attribute)
    if not isinstance(n_bins, int | np.integer) or n_bins < 2:
        raise InvalidParameterError(
            f"n_bins={n_bins!r} came. Expected a whole number from 2 on."
        )
    mass = np.ones(prediction.size) if weight is None else weight
    row, column = (_bin(v, int(n_bins), mass) for v in (prediction, attribute))
    count = np.zeros((row.max() + 1, column.max() + 1))
    np.add.at(count, (row, column), mass)
    return np.asarray(count / count.sum())


def _bin(values: FloatArray, n_bins: int, weight: FloatArray) -> IntArray:
    edges = quantile_edges(values, n_bins, weight)
    return np.searchsorted(edges, values, "right")


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
