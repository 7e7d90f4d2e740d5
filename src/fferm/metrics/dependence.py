r"""How much a number depends on an attribute: measures for continuous predictions.

Measures of groups compare distributions of the prediction: their means
(`mean_gap`), all of them at once (`kolmogorov_smirnov`, `wasserstein`). Measures of two
numbers look for any dependence: `distance_correlation`, `maximal_correlation` (after
Hirschfeld, Gebelein and Renyi) and `f_information`. The linear `correlation` stands
beside them to show what it misses. `independence_test` says what chance would give.
A `RegressionTabulator` takes one measure as the violation of a regressor.

Every measure takes ``weight``, (n_samples,) positive weights of the rows; only their
ratios matter, and without them all rows count alike.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy.special import stdtrit

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    DEFAULT_BINNING,
    Binning,
    GroupMode,
    encode_sensitive,
    quantile_edges,
    read_series,
    split_columns,
)
from fferm.data.rows import add_control
from fferm.data.validate import Number, check_params, one_column, reason_of
from fferm.divergences import Divergence
from fferm.divergences import get as get_divergence
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.metrics.intervals import certify_curves, certify_means, two_sided
from fferm.notions import Labels, Notion, Strata
from fferm.registry import unknown_name

# A measure of a prediction and an attribute, perhaps with weights.
Measure: TypeAlias = Callable[..., float]
# Values of a whole-numbered attribute up to which each is a bin of its own.
N_BINS = 10
# Rows that enter a distance correlation, whose cost is the square of their number.
MOST_DISTANCES = 2000
# A measure needs at least this many rows.
FEWEST_ROWS = 4


def mean_gap(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest difference of the means of two groups."""
    return _compare_groups("mean_gap", prediction, group, weight)


def kolmogorov_smirnov(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest distance of two groups' distribution functions, 0 to 1.

    It is the largest gap that any threshold on the prediction could make: the
    demographic parity violation of the worst decision rule.
    """
    return _compare_groups("kolmogorov_smirnov", prediction, group, weight)


def wasserstein(
    prediction: FloatArray, group: IntArray, *, weight: FloatArray | None = None
) -> float:
    """Return the largest Wasserstein distance of two groups, in the unit of y.

    How far predictions of one group have to be moved, on average, to become those of
    the other.
    """
    return _compare_groups("wasserstein", prediction, group, weight)


def correlation(
    prediction: FloatArray, attribute: FloatArray, *, weight: FloatArray | None = None
) -> float:
    """Return the absolute linear correlation, which sees no other dependence."""
    if np.ptp(prediction) == 0 or np.ptp(attribute) == 0:
        return 0.0
    covariance = np.cov(prediction, attribute, aweights=weight, ddof=0)
    scale = np.sqrt(covariance[0, 0] * covariance[1, 1])
    return float(min(abs(covariance[0, 1] / scale), 1.0))


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
    order = np.arange(min(prediction.size, MOST_DISTANCES))
    columns = prediction, attribute, weight
    return _distance_correlations(*columns, [order], random_state)[0]


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
    return get_divergence(divergence).between(table)


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
    u, s = read_finite(prediction, "prediction"), read_finite(attribute, "attribute")
    _check_lengths(u, s)
    w = None if weight is None else read_finite(weight, "weight")
    if w is not None and (w.shape != u.shape or not np.all(w > 0)):
        raise InvalidInputError(
            f"weight must hold one positive number per row, ({u.size},); got shape "
            f"{w.shape}, or numbers that are not positive."
        )
    generator = np.random.default_rng(random_state)
    value = function(u, s) if w is None else function(u, s, weight=w)
    others = shuffled_values(function, u, s, n_permutations, generator, w)
    return IndependenceTest(value, *chance_of(value, others))


def chance_of(value: float, shuffled: Sequence[float]) -> tuple[float, float]:
    """Return the mean of shuffled values, and the p-value of the observed one."""
    reached = sum(other >= value - 1e-12 for other in shuffled)
    return float(np.mean(shuffled)), (1 + reached) / (1 + len(shuffled))


def shuffled_values(
    function: Measure,
    prediction: FloatArray,
    attribute: Table,
    n_permutations: int,
    generator: np.random.Generator,
    weight: FloatArray | None = None,
) -> list[float]:
    """Return a measure where the attribute, with its weights, is shuffled."""
    is_costly, n = function is distance_correlation, prediction.size
    size = min(n, MOST_DISTANCES) if is_costly else n
    orders = (generator.permutation(size) for _ in range(n_permutations))
    if is_costly:
        return _distance_correlations(prediction, attribute, weight, orders)
    values = []
    for order in orders:
        weights = {} if weight is None else {"weight": weight[order]}
        values.append(function(prediction, attribute[order], **weights))
    return values


# Measures of a prediction against groups, and against numbers.
GROUP_MEASURES: dict[str, Measure] = {
    each.__name__: each for each in (kolmogorov_smirnov, wasserstein, mean_gap)
}
NUMBER_MEASURES: dict[str, Measure] = {
    each.__name__: each
    for each in (correlation, distance_correlation, maximal_correlation, f_information)
}
MEASURES = {**GROUP_MEASURES, **NUMBER_MEASURES}


def get_measure(name: str) -> Measure:
    """Return the measure of a name."""
    if name not in MEASURES:
        raise UnknownNameError(unknown_name("measure", name, sorted(MEASURES)))
    return MEASURES[name]


def _compare_groups(
    name: str, prediction: FloatArray, group: IntArray, weight: FloatArray | None
) -> float:
    _check_lengths(prediction, group)
    n_groups = np.unique(group[group >= 0]).size
    if n_groups < 2:
        raise InvalidInputError(
            "group must hold at least two different codes; got "
            f"{n_groups}. Codes below 0 stand for unknown groups."
        )
    ordered = OrderedPredictions(prediction)
    return ordered.measure(name, ordered.below(group, weight))


def _table(
    prediction: FloatArray,
    attribute: FloatArray,
    n_bins: int,
    weight: FloatArray | None,
) -> FloatArray:
    _check_lengths(prediction, attribute)
    check_params({"n_bins": n_bins}, {"n_bins": Number(low=2, is_whole=True)})
    mass = np.ones(prediction.size) if weight is None else weight
    row, column = (
        np.searchsorted(quantile_edges(v, int(n_bins), mass), v, "right")
        for v in (prediction, attribute)
    )
    count = np.zeros((row.max() + 1, column.max() + 1))
    np.add.at(count, (row, column), mass)
    return np.asarray(count / count.sum())


def read_finite(values: Table, name: str) -> FloatArray:
    """Return one finite number per row, else raise."""
    try:
        array = np.asarray(one_column(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} contains non-numeric values ({reason_of(error)}). Pass one number "
            "per row."
        ) from error
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} must hold one finite number per row; got shape {array.shape}, or "
            "missing or infinite numbers."
        )
    return array


def _check_lengths(prediction: FloatArray, attribute: Table) -> None:
    if prediction.shape != np.shape(attribute) or prediction.size < FEWEST_ROWS:
        raise InvalidInputError(
            f"prediction and attribute must have one number per row, in at least "
            f"{FEWEST_ROWS} rows; got shapes {prediction.shape} and "
            f"{np.shape(attribute)}."
        )


def squared_error(
    target: FloatArray, prediction: FloatArray, weight: FloatArray
) -> tuple[float, float]:
    """Return the mean squared error and the variance of the target, NaN if 0."""
    error = np.average((target - prediction) ** 2, weights=weight)
    mean = np.average(target, weights=weight)
    variance = np.average((target - mean) ** 2, weights=weight)
    return float(error), float(variance) if variance > 0 else np.nan


def effective_size(weight: FloatArray) -> float:
    """Return how many rows without weights are worth as much."""
    return float(weight.sum() ** 2 / np.sum(weight**2))


class OrderedPredictions:
    """Predictions in ascending order, by which groups are compared."""

    def __init__(self, prediction: FloatArray) -> None:
        self._order = np.argsort(prediction, kind="stable")
        ordered = prediction[self._order]
        # Whether a place in the order is the last of its value.
        self._is_last = np.append(ordered[1:] != ordered[:-1], True)
        self._points = ordered[self._is_last]

    def below(self, group: IntArray, weight: FloatArray | None = None) -> FloatArray:
        """Return the share of each group at or below each different prediction.

        Parameters
        ----------
        group
            (n,) codes of at least two groups; below 0 is unknown.
        weight
            (n,) how much each row counts; once by default.
        """
        code = group[self._order]
        count = np.ones(code.size) if weight is None else weight[self._order]
        below = []
        for k in np.unique(code[code >= 0]):
            sums = np.cumsum(np.where(code == k, count, 0.0))
            below.append(sums[self._is_last] / sums[-1])
        return np.stack(below)

    def measure(self, name: str, below: FloatArray) -> float:
        """Return a measure of groups, by its name, of distribution functions."""
        if name == "kolmogorov_smirnov":
            return float(np.max(below.max(axis=0) - below.min(axis=0)))
        if name == "mean_gap":
            means = np.diff(below, axis=1, prepend=0.0) @ self._points
            return float(np.ptp(means))
        widths = np.diff(self._points)
        pairs = itertools.combinations(below[:, :-1], 2)
        return max((float(np.abs(a - b) @ widths) for a, b in pairs), default=0.0)

    def farthest(self, name: str, below: FloatArray) -> tuple[int, int]:
        """Return the places of the two groups that a measure finds farthest apart."""
        pairs = itertools.combinations(range(len(below)), 2)
        return max(pairs, key=lambda pair: self.measure(name, below[list(pair)]))

    def intervals(
        self,
        group: IntArray,
        measures: Sequence[str],
        confidence: float = 0.95,
        *,
        n_bootstrap: int = 200,
        random_state: int | np.random.Generator = 0,
        weight: FloatArray | None = None,
    ) -> dict[str, tuple[float, float]]:
        """Return a bootstrap interval of each measure of groups.

        Rows are drawn again within each group. Every measure is a norm of differences
        of distribution functions, so that it errs by no more than that norm of their
        errors; the quantile of the latter, over draws, is how far the limits lie from
        the value. They hold for all pairs of groups at once, and cover 0 where there is
        no gap, which percentiles of drawn gaps never do.

        Rows drawn from n have ``(n - 1) / n`` of the variance of new ones, and it is
        itself an estimate. So the error of a group is stretched to that variance and
        to the quantile of Student, with n the rows that it is worth under weights and
        Welch's degrees of freedom for its difference from the largest group.

        Parameters
        ----------
        group
            (n,) codes of at least two groups; below 0 is unknown.
        measures
            Names of measures of groups.
        confidence, n_bootstrap, random_state
            Level, number of draws, and seed or generator.
        weight
            (n,) positive weights, which rows keep when they are drawn.
        """
        rng = np.random.default_rng(random_state)
        weight = np.ones(group.size) if weight is None else weight
        observed = self.below(group, weight)
        members = [np.flatnonzero(group == k) for k in np.unique(group[group >= 0])]
        size = np.array([effective_size(weight[rows]) for rows in members])
        free = np.maximum(size - 1, 1.0)  # one row says nothing of a variance
        quantile = stdtrit(free * (1 + size / size.max()), (1 + confidence) / 2)
        stretch = (np.sqrt(size / free) * quantile / two_sided(confidence))[:, None]
        errors: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(n_bootstrap):
            # As many draws from a group as it has rows.
            times = np.zeros(group.size)
            for rows in members:
                drawn = rng.integers(rows.size, size=rows.size)
                times[rows] = np.bincount(drawn, minlength=rows.size)
            error = stretch * (self.below(group, times * weight) - observed)
            for name in measures:
                errors[name].append(self.measure(name, error))
        limits = {}
        for name in measures:
            value = self.measure(name, observed)
            reach = np.quantile(errors[name], confidence)
            most = 1.0 if name == "kolmogorov_smirnov" else np.inf
            limits[name] = max(value - reach, 0.0), float(min(value + reach, most))
        return limits


def take(weight: FloatArray | None, rows: IntArray) -> FloatArray | None:
    """Return the weights of some rows."""
    return None if weight is None else weight[rows]


def _distance_correlations(
    prediction: FloatArray,
    attribute: FloatArray,
    weight: FloatArray | None,
    orders: Iterable[IntArray],
    random_state: int = 0,
) -> list[float]:
    """Return the distance correlation for each order of the attribute and its weights.

    Shuffled rows have the same distances in another order; they are scaled as the rows
    themselves are, so that it is covariances that are compared.
    """
    n = prediction.size
    if n > MOST_DISTANCES:
        generator = np.random.default_rng(random_state)
        rows = generator.choice(n, MOST_DISTANCES, replace=False)
        prediction, attribute = prediction[rows], attribute[rows]
        weight, n = take(weight, rows), MOST_DISTANCES
    a, b = (np.abs(v[:, None] - v) for v in (prediction, attribute))
    covariance: Callable[[FloatArray, FloatArray], float]
    if weight is not None:
        covariance = functools.partial(_weighted_covariance, weight / weight.sum())
    else:
        covariance = functools.partial(np.einsum, "ij,ij")
        for distance in (a, b):
            # U-centred: the mean of products is then unbiased for independence.
            row, total = distance.sum(axis=1) / (n - 2), distance.sum()
            distance -= row[:, None]
            distance -= row
            distance += total / ((n - 1) * (n - 2))
            np.fill_diagonal(distance, 0.0)
    scale = np.sqrt(max(covariance(a, a) * covariance(b, b), 0.0))
    values = []
    for order in orders:
        moved = np.ix_(order, order)
        # With weights it is the prediction that moves, the other way round.
        pair = (a, b[moved]) if weight is None else (a[moved], b)
        square = covariance(*pair) / scale if scale > 0 else 0.0
        values.append(float(np.sqrt(max(square, 0.0))))
    return values


def _weighted_covariance(w: FloatArray, a: FloatArray, b: FloatArray) -> float:
    # Sums over tuples of different rows, by taking out those with rows in common;
    # the diagonals are 0 anyway.
    product, square = a * b, w**2
    row_a, row_b = a @ w, b @ w
    pairs = w @ product @ w
    triples = w @ (row_a * row_b) - w @ product @ square
    quadruples = (w @ row_a) * (w @ row_b)
    quadruples += 2 * (square @ product @ square) - 4 * (square @ (row_a * row_b))
    p2, p3, p4 = (float(np.sum(w**k)) for k in (2, 3, 4))
    return float(
        pairs / (1 - p2)
        + quadruples / (1 - 6 * p2 + 8 * p3 + 3 * p2**2 - 6 * p4)
        - 2 * triples / (1 - 3 * p2 + 2 * p3)
    )


@dataclass(frozen=True)
class RegressionTabulator:
    """Groups, strata and weights of some rows, and the measure to compare them by.

    Attributes
    ----------
    measure
        A name of `fferm.metrics.dependence.MEASURES`.
    parts
        The attribute on the rows of a column and stratum, and these rows.
    weight
        (n_samples,) weights of all rows, or None where they count alike.
    names
        Of the groups of each part; empty for measures of numbers.
    """

    measure: str
    parts: tuple[tuple[Table, IntArray], ...]
    weight: FloatArray | None = None
    names: tuple[tuple[str, ...], ...] = ()

    def violation(
        self, prediction: FloatArray, measure: Measure | None = None
    ) -> float:
        """Return the measure, or another: the largest of all parts."""
        function = measure or get_measure(self.measure)
        return max(
            function(prediction[rows], values, weight=take(self.weight, rows))
            for values, rows in self.parts
        )

    def worst_pair(self, prediction: FloatArray) -> dict[str, int]:
        """Return the rows of the two groups farthest apart; none for numbers."""
        worst: dict[str, int] = {}
        most = -np.inf
        for (group, rows), names in zip(self.parts, self.names, strict=False):
            ordered = OrderedPredictions(prediction[rows])
            below = ordered.below(group, take(self.weight, rows))
            value = ordered.measure(self.measure, below)
            if value > most:
                codes = np.unique(group)[list(ordered.farthest(self.measure, below))]
                worst = {names[k]: int(np.sum(group == k)) for k in codes}
                most = value
        return worst

    def by_chance(self, prediction: FloatArray, n_permutations: int = 99) -> float:
        """Return the mean violation if nothing depended on the attributes."""
        rng, function = np.random.default_rng(0), get_measure(self.measure)
        shuffled = [
            shuffled_values(
                function,
                *(prediction[rows], values, n_permutations, rng),
                take(self.weight, rows),
            )
            for values, rows in self.parts
        ]
        return float(np.max(shuffled, axis=0).mean())

    def certify(
        self, prediction: FloatArray, bound: float, span: tuple[float, float]
    ) -> float:
        """Return the p-value of "the violation is above a bound".

        Every pair of groups is tested at the same level, and the largest p-value
        counts, as in `fferm.metrics.intervals.certify`.

        Parameters
        ----------
        prediction
            (n_samples,) predictions.
        bound
            The largest violation allowed.
        span
            The least and the largest prediction that count, of rows that are not
            these: means need values of a known range, so others are cut there.
        """
        clipped, p = np.clip(prediction, *span), [0.0]
        for values, rows in self.parts:
            weight = np.ones(rows.size) if self.weight is None else self.weight[rows]
            groups = [values == k for k in np.unique(values)]
            sizes = np.array([effective_size(weight[group]) for group in groups])
            if self.measure == "kolmogorov_smirnov":
                below = OrderedPredictions(prediction[rows]).below(values, weight)
                p.append(certify_curves(below, sizes, bound))
                continue
            u, function = clipped[rows], get_measure(self.measure)
            for a, b in itertools.combinations(range(len(groups)), 2):
                both, pair = groups[a] | groups[b], np.array([a, b])
                gap = function(u[both], values[both], weight=weight[both])
                spread = [_variance(u[groups[k]], weight[groups[k]]) for k in pair]
                parts = sizes[pair], np.array(spread), span[1] - span[0]
                p.append(certify_means(gap, bound, *parts))
        return max(p)

    def interval(
        self, prediction: FloatArray, confidence: float, n_bootstrap: int
    ) -> tuple[float, float]:
        """Return an interval of the violation; NaN for measures of numbers."""
        if self.measure not in GROUP_MEASURES:
            return np.nan, np.nan
        # Each part errs with its share of the risk, so that all of them hold at once.
        level = 1 - (1 - confidence) / len(self.parts)
        limits: list[tuple[float, float]] = []
        for values, rows in self.parts:
            ordered, weight = OrderedPredictions(prediction[rows]), self.weight
            drawn: Any = {"n_bootstrap": n_bootstrap, "weight": take(weight, rows)}
            limits += ordered.intervals(values, [self.measure], level, **drawn).values()
        return max(low for low, _ in limits), max(high for _, high in limits)


def _variance(values: FloatArray, weight: FloatArray) -> float:
    # The unbiased one, of as many rows as the weights are worth.
    share, n = weight / weight.sum(), effective_size(weight)
    square = float(share @ (values - share @ values) ** 2)
    return square * n / max(n - 1, 1.0)


def make_regression_tabulator(
    measure: str,
    sensitive_features: Table,
    notion: Notion,
    groups: GroupMode,
    X: Table,
    binning: Binning = DEFAULT_BINNING,
    weight: FloatArray | None = None,
) -> RegressionTabulator:
    """Return groups and strata encoded for a measure.

    Measures of groups see groups, and bands of numbers; measures of numbers see the
    numeric columns alone.
    """
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    get_measure(measure)
    columns: list[tuple[Table, NDArray[np.bool_]]]
    named_groups: list[tuple[str, ...]] = []
    if measure in GROUP_MEASURES:
        attributes = encode_sensitive(sensitive_features, n, groups, binning)
        columns = [(attribute.code, attribute.code >= 0) for attribute in attributes]
        named_groups = [attribute.groups for attribute in attributes]
    else:
        named = split_columns(sensitive_features)
        series = [read_series(values, name).infer_objects() for name, values in named]
        numeric = [each for each in series if is_numeric_dtype(each.dtype)]
        numbers = [each.to_numpy(dtype=np.float64) for each in numeric]
        columns = [(values, ~np.isnan(values)) for values in numbers]
        if not numeric:
            raise InvalidInputError(
                f"{measure} needs a numeric sensitive column; there is none. Use one "
                f"of {', '.join(GROUP_MEASURES)}."
            )
    strata = control_strata(notion, X, n)
    # Rows of weight 0 do not count as rows.
    counts = True if weight is None else weight > 0
    compared = [
        (values[rows], rows, n_column)
        for n_column, (values, known) in enumerate(columns)
        for rows in comparable_rows(values, known & counts, strata).values()
    ]
    parts = tuple((values, rows) for values, rows, _ in compared)
    if not parts:
        raise InvalidInputError(
            f"{measure} needs two groups, or two different numbers, in at least "
            f"{FEWEST_ROWS} rows of some stratum; the {n} rows have none. Check "
            "sensitive_features, or pass more rows."
        )
    names = tuple(named_groups[n_column] for *_, n_column in compared if named_groups)
    return RegressionTabulator(measure, parts, weight, names)


def control_strata(notion: Notion, X: Table, n_samples: int) -> Strata:
    """Return the strata of a notion that needs no labels, else raise."""
    if notion.needs_labels:
        raise InvalidParameterError(
            f"notion={notion.name!r} conditions on a label, but y is numeric. Use "
            "'demographic_parity', or ConditionalParity(control)."
        )
    return notion.strata(add_control(Labels(n_samples), notion, X))


def comparable_rows(
    values: Table, known: NDArray[np.bool_], strata: Strata
) -> dict[int, IntArray]:
    """Return the rows of each stratum that has enough of them and two values."""
    parts = {}
    for r in range(len(strata.names)):
        rows = np.flatnonzero(known & (strata.code == r))
        if rows.size >= FEWEST_ROWS and np.unique(values[rows]).size > 1:
            parts[r] = rows
    return parts
