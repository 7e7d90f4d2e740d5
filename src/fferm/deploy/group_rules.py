"""The most accurate decisions by group within a bound, by linear programming.

A *cell* holds the rows that are decided alike: those of a group or, where the stratum
is known at prediction, of a group within a stratum. A *rule* decides them from their
probabilities alone: a threshold for two classes, a tilt of the probabilities for more.

Accuracy and rates are linear in the shares of the rules that a cell mixes, so the best
mixture is a linear programme. Its columns are too many to write down, and are made when
they pay: at the prices of the last programme, the best rule of a cell is known in
closed form (Dantzig and Wolfe). For thresholds that is every threshold there is, so the
optimum is exact: on the convex hull of each group's ROC curve. Tilts take the
probabilities at their word, and accuracy and rates are measured nevertheless.

Groups of several attributes, compared one by one, are unions of cells, and their rates
sums over these.

A mixture draws decisions by chance. Where one rule for each cell does as well, to
within `RANDOM_GAIN`, there is no mixture. If one rate of each group counts, as under
demographic parity, the standard error of the accuracy does not justify one either:
what the hull of a curve lies above the curve is then noise, or ties of scores.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linprog

from fferm._typing import FloatArray, IntArray
from fferm.errors import NonFiniteError

# Decisions are drawn by chance only for so much more accuracy on the fitting rows.
RANDOM_GAIN = 1e-3
# Rounds of new columns, and the gain below which none is worth adding.
MOST_ROUNDS, SMALLEST_GAIN = 100, 1e-8
# Shares below this are rounding of the linear programme.
SMALLEST_SHARE = 1e-6
# Rates differ by rounding alone up to this.
ROUNDING = 1e-12
# Thresholds that a cell begins with.
FIRST_THRESHOLDS = 33
# How often a bound is lowered so that rules without chance keep it.
MOST_CUTS = 12
# The share of a bound of several attributes that mixtures use, so that rules without
# chance have room.
ROOM = 0.97
# Thresholds that accept all and none.
ALL, NONE = -1.0, 1.0


@dataclass(eq=False)
class Cell(ABC):
    """Rows that one rule decides, and the rules known so far.

    Parameters
    ----------
    prob
        (n, n_classes) probabilities.
    y, stratum
        (n,) class codes, and codes of strata, -1 for rows that no rate counts.
    weight
        (n,) shares of the weight of all cells.
    n_strata
        How many strata there are.
    """

    prob: FloatArray
    y: IntArray
    stratum: IntArray
    weight: FloatArray
    n_strata: int
    rules: list[Any] = field(default_factory=list, init=False)
    values: list[float] = field(default_factory=list, init=False)
    rates: list[FloatArray] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Add up the weight of each stratum, and make the first rules."""
        known = self.stratum >= 0
        self.mass = np.bincount(
            self.stratum[known], self.weight[known], self.n_strata
        ).astype(np.float64)
        self.is_present = self.mass > 0
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the first rules, among them one of constant decisions."""

    @abstractmethod
    def best(self, price: FloatArray) -> tuple[Any, float, FloatArray]:
        """Return the rule of the largest value minus priced rates, and both of these.

        ``price`` is (n_strata, n_outcomes), as rates are.
        """

    def add(self, rule: Any, value: float, rate: FloatArray) -> None:
        """Add a rule to those that are mixed."""
        self.rules.append(rule)
        self.values.append(value)
        self.rates.append(rate)


class ThresholdCell(Cell):
    """Rows of two classes; a rule accepts probabilities above a threshold."""

    def prepare(self) -> None:
        """Measure every threshold, and begin with some of them."""
        level, code = np.unique(self.prob[:, 1], return_inverse=True)
        middle = (level[1:] + level[:-1]) / 2
        middle = np.where(middle < level[1:], middle, level[:-1])
        self.thresholds = np.concatenate([[ALL], middle, [NONE]])
        signed = np.where(self.y == 1, self.weight, -self.weight)
        gain = np.bincount(code, signed, level.size)
        at_none = float(self.weight[self.y == 0].sum())
        self.value = at_none + _above(gain)
        place = self.stratum * level.size + code
        known = self.stratum >= 0
        mass = np.bincount(
            place[known], self.weight[known], self.n_strata * level.size
        ).reshape(self.n_strata, level.size)
        total = np.where(self.is_present, self.mass, 1.0)
        self.rate = np.minimum(_above(mass) / total[:, None], 1.0)
        self.rate[self.is_present, 0] = 1.0
        first = np.linspace(0, level.size, FIRST_THRESHOLDS).astype(np.int64)
        for n in np.unique(first):
            self.take(int(n))

    def take(self, n: int) -> None:
        """Add a threshold by its number."""
        self.add(self.thresholds[n], self.value[n], self.rate[:, n, None])

    def best(self, price: FloatArray) -> tuple[Any, float, FloatArray]:
        """Return the best threshold of all."""
        n = int(np.argmax(self.value - price[:, 0] @ self.rate))
        return self.thresholds[n], float(self.value[n]), self.rate[:, n, None]


@dataclass(eq=False)
class TiltCell(Cell):
    """Rows of several classes; a rule adds ``prob @ tilt`` to probabilities.

    Parameters
    ----------
    stratum_of
        (n_classes,) the stratum of rows of each label, or None where all rows of the
        cell are in one stratum.
    """

    stratum_of: IntArray | None = None

    def prepare(self) -> None:
        """Begin with the frozen decisions, and with constant ones."""
        n_classes = self.prob.shape[1]
        for tilt in (0.0, *2 * np.eye(n_classes)):
            self.measure(np.broadcast_to(tilt, (n_classes, n_classes)))

    def measure(self, tilt: FloatArray) -> None:
        """Add a tilt, with the value and the rates of its decisions."""
        self.add(tilt, *self.decide(tilt))

    def decide(self, tilt: FloatArray) -> tuple[float, FloatArray]:
        """Return value and rates of the decisions of a tilt."""
        n_classes = self.prob.shape[1]
        decided = (self.prob + self.prob @ tilt).argmax(axis=1)
        known = self.stratum >= 0
        place = self.stratum[known] * n_classes + decided[known]
        size = self.n_strata * n_classes
        mass = np.bincount(place, self.weight[known], size).reshape(-1, n_classes)
        total = np.where(self.is_present, self.mass, 1.0)
        value = float(self.weight[decided == self.y].sum())
        return value, mass / total[:, None]

    def best(self, price: FloatArray) -> tuple[Any, float, FloatArray]:
        """Return the best tilt, if probabilities are right."""
        total = np.where(self.is_present, self.mass, 1.0)
        cost = np.where(self.is_present, 1 / total, 0.0)[:, None] * price
        if self.stratum_of is None:
            tilt = np.tile(-cost.sum(axis=0), (self.prob.shape[1], 1))
        else:
            tilt = np.where(self.stratum_of[:, None] >= 0, -cost[self.stratum_of], 0.0)
        return tilt, *self.decide(tilt)


class Mixture(NamedTuple):
    """The rules of each cell, and the share of its rows that each decides."""

    rules: list[list[Any]]
    shares: list[FloatArray]
    accuracy: float

    @property
    def is_random(self) -> bool:
        """Whether some cell mixes rules."""
        return any(len(rules) > 1 for rules in self.rules)


def _above(mass: NDArray[Any]) -> FloatArray:
    # Sums over levels above each threshold, from that below all levels on.
    sums = np.cumsum(mass[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate([sums, np.zeros((*mass.shape[:-1], 1))], axis=-1)


@dataclass(frozen=True)
class Links:
    """Which rates are compared: of groups in strata, each made of cells.

    Attributes
    ----------
    share
        (n_rates, n_cells) shares of the weight of a group in a stratum.
    stratum, lowest
        (n_rates,) its stratum, and the number of what it is compared with: groups of
        one attribute in one stratum.
    """

    share: FloatArray
    stratum: IntArray
    lowest: IntArray

    @classmethod
    def of(cls, cells: Sequence[Cell], members: IntArray) -> "Links":
        """Return those of cells in the groups ``members``, (n_cells, n_attributes)."""
        mass = np.stack([cell.mass for cell in cells], axis=1)
        shares: list[FloatArray] = []
        places: list[tuple[int, int]] = []
        for group, (r, row) in itertools.product(members.T, enumerate(mass)):
            sums = [np.where(group == g, row, 0.0) for g in np.unique(group[row > 0])]
            if len(sums) > 1:
                shares += [each / each.sum() for each in sums]
                places += [(r, len(set(places)))] * len(sums)
        stratum, lowest = np.array(places, np.int64).reshape(-1, 2).T
        return cls(np.array(shares).reshape(-1, len(cells)), stratum, lowest)

    def rates(self, rates: FloatArray) -> FloatArray:
        """Return the (n_rates, n_outcomes) rates of (n_cells, n_strata, n_outcomes)."""
        sums = np.einsum("lk,klj->lj", self.share, rates[:, self.stratum])
        return np.asarray(sums)

    def limits(self, rates: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
        """Return what each of `rates` must lie between, beside those compared."""
        n_rates = len(rates)
        is_other = self.lowest[:, None] == self.lowest
        is_other &= ~np.eye(n_rates, dtype=bool)
        high = np.where(is_other[:, :, None], rates, -np.inf).max(axis=1)
        low = np.where(is_other[:, :, None], rates, np.inf).min(axis=1)
        return high - bound - ROUNDING, low + bound + ROUNDING


def best_rules(
    cells: Sequence[Cell], bound: float, members: IntArray | None = None
) -> Mixture:
    """Return the most accurate rules whose rates differ by at most ``bound``.

    Between any two groups, in every stratum and outcome, on average over chance.

    Parameters
    ----------
    cells
        The rows that are decided alike, and the rules known so far.
    bound
        The largest difference.
    members
        (n_cells, n_attributes) the group of each cell by each attribute. None: a cell
        is a group of one attribute.

    Examples
    --------
    >>> half = np.array([[0.8, 0.2], [0.4, 0.6]])
    >>> cells = [
    ...     ThresholdCell(half, np.array(y), np.zeros(2, int), np.full(2, 0.25), 1)
    ...     for y in ([0, 1], [0, 0])
    ... ]
    >>> best_rules(cells, 1.0).accuracy, best_rules(cells, 0.0).accuracy
    (1.0, 0.75)
    """
    if members is None:
        members = np.arange(len(cells))[:, None]
    links = Links.of(cells, members)
    mixed = _mix(cells, bound, links)
    if not mixed.is_random:
        return mixed
    alone = all(cell.is_present.sum() <= 1 for cell in cells)
    noise = 0.5 * np.sqrt(sum(float(np.sum(cell.weight**2)) for cell in cells))
    gain = max(RANDOM_GAIN, noise) if alone else RANDOM_GAIN
    is_single = members.shape[1] == 1
    if not is_single:
        mixed = _mix(cells, ROOM * bound, links)
    if not isinstance(cells[0], ThresholdCell):
        settled = _average(cells, mixed, bound, links)
    elif alone and is_single:
        settled = _sweep(cells, bound)
    else:
        settled = _settle(cells, mixed, bound, links, gain)
    if settled is None or settled.accuracy < mixed.accuracy - gain:
        return mixed
    return settled


def _mix(cells: Sequence[Cell], bound: float, links: Links) -> Mixture:
    # The linear programme, with new columns until none pays.
    for _ in range(MOST_ROUNDS):
        shares, prices, worth = _solve(cells, bound, links)
        gain = 0.0
        for cell, price, least in zip(cells, prices, worth, strict=True):
            rule, value, rate = cell.best(price)
            extra = value - float(np.sum(price * rate)) - least
            if extra > SMALLEST_GAIN:
                cell.add(rule, value, rate)
                gain += extra
        if gain <= SMALLEST_GAIN:
            break
    rules, kept, accuracy = [], [], 0.0
    for cell, share in zip(cells, shares, strict=True):
        chosen = np.flatnonzero(share > SMALLEST_SHARE)
        part = share[chosen] / share[chosen].sum()
        rules.append([cell.rules[n] for n in chosen])
        kept.append(part)
        accuracy += float(part @ np.array(cell.values)[chosen])
    return Mixture(rules, kept, accuracy)


def _solve(
    cells: Sequence[Cell], bound: float, links: Links
) -> tuple[list[FloatArray], FloatArray, list[float]]:
    # Shares of known rules, prices of rates in each cell, and what each cell is worth.
    sizes = [len(cell.rules) for cell in cells]
    owner = np.repeat(np.arange(len(cells)), sizes)
    rates = np.concatenate([np.stack(cell.rates) for cell in cells])
    n_rates, n_shares, n_outcomes = len(links.lowest), len(rates), rates.shape[2]
    # How far a rate lies above the lowest of those compared.
    terms = links.share[:, owner, None] * rates[:, links.stratum].swapaxes(0, 1)
    lowest = np.eye(links.lowest.max(initial=-1) + 1)[links.lowest]
    below = np.kron(lowest, np.eye(n_outcomes))
    above = terms.swapaxes(1, 2).reshape(n_rates * n_outcomes, n_shares)
    gap: Any = sp.csr_matrix(np.hstack([above, -below]))
    equal: Any = sp.csr_matrix(
        (np.ones(n_shares), (owner, np.arange(n_shares))), (len(cells), gap.shape[1])
    )
    cost = np.zeros(gap.shape[1])
    cost[:n_shares] = np.concatenate([np.negative(cell.values) for cell in cells])
    solved = linprog(
        cost,
        sp.vstack([gap, -gap]),
        np.repeat([bound, 0.0], gap.shape[0]),
        equal,
        np.ones(len(cells)),
        method="highs",
    )
    if solved.x is None:
        raise NonFiniteError(
            f"The linear programme of thresholds failed ({solved.message}). Scores may "
            "differ by rounding alone; round them."
        )
    high, low = np.split(-solved.ineqlin.marginals, 2)
    prices = np.zeros((len(cells), *rates.shape[1:]))
    price = (high - low).reshape(n_rates, n_outcomes)
    np.add.at(
        prices.swapaxes(0, 1), links.stratum, links.share[:, :, None] * price[:, None]
    )
    shares = np.split(solved.x[:n_shares], np.cumsum(sizes)[:-1])
    return shares, prices, (-solved.eqlin.marginals).tolist()


def _sweep(cells: Sequence[Any], bound: float) -> Mixture:
    # The best single thresholds where each cell has one rate: for every lowest rate
    # that there can be, each takes its best threshold up to the bound above it.
    present = np.stack([cell.is_present for cell in cells], axis=1)
    places = [int(np.argmax(cell.value)) for cell in cells]  # where no rate counts
    for r in np.flatnonzero(present.sum(axis=1) > 1):
        part = np.flatnonzero(present[r]).tolist()
        low = _best_lowest([(cells[n].rate[r], cells[n].value) for n in part], bound)
        for n in part:
            above = cells[n].rate[r] - low
            fits = (above >= -ROUNDING) & (above <= bound + ROUNDING)
            places[n] = int(np.argmax(np.where(fits, cells[n].value, -np.inf)))
    chosen = [*zip(cells, places, strict=True)]
    accuracy = sum(float(cell.value[place]) for cell, place in chosen)
    rules = [[cell.thresholds[place]] for cell, place in chosen]
    return Mixture(rules, [np.ones(1)] * len(cells), accuracy)


def _best_lowest(tables: list[tuple[FloatArray, FloatArray]], width: float) -> float:
    # The lowest rate that allows the best values: a running maximum over rates, which
    # pandas knows of times.
    lowest = np.unique(np.concatenate([rate for rate, _ in tables]))
    total, unit = np.zeros(lowest.size), 2 / ROUNDING
    for rate, value in tables:
        time = np.rint(unit * np.append(rate, lowest + width + ROUNDING))
        order = np.argsort(time, kind="stable")
        index = pd.to_timedelta(time[order].astype(np.int64))
        values = pd.Series(np.append(value, np.full(lowest.size, np.nan))[order], index)
        window = pd.Timedelta(round(unit * (width + 2 * ROUNDING)), "ns")
        best = np.empty(time.size)
        best[order] = values.rolling(window, min_periods=1, closed="both").max()
        total += np.nan_to_num(best[rate.size :], nan=-np.inf)
    return float(lowest[np.argmax(total)])


def _settle(
    cells: Sequence[Any], mixed: Mixture, bound: float, links: Links, gain: float
) -> Mixture:
    # Replaces mixtures by single thresholds, one cell after another, where the rates
    # that the other cells have leave room for one at little cost.
    rules, shares = list(mixed.rules), list(mixed.shares)
    accuracy, n_random = mixed.accuracy, sum(len(each) > 1 for each in rules)
    places = [
        np.searchsorted(cell.thresholds, each)
        for cell, each in zip(cells, rules, strict=True)
    ]
    by_cell = [
        cell.rate[:, place] @ share
        for cell, place, share in zip(cells, places, shares, strict=True)
    ]
    rates = links.rates(np.stack(by_cell)[:, :, None])
    for n, cell in enumerate(cells):
        if len(rules[n]) == 1:
            continue
        own = np.flatnonzero(links.share[:, n])
        low, high = (limit[own] for limit in links.limits(rates, bound))
        moved = cell.rate - by_cell[n][:, None]
        rate = rates[own] + links.share[own, n, None] * moved[links.stratum[own]]
        fits = np.all((rate >= low) & (rate <= high), axis=0)
        best = int(np.argmax(np.where(fits, cell.value, -np.inf)))
        now = float(shares[n] @ cell.value[places[n]])
        if fits[best] and cell.value[best] >= now - gain / n_random:
            accuracy += float(cell.value[best]) - now
            rules[n], shares[n] = [cell.thresholds[best]], np.ones(1)
            rates[own] = rate[:, [best]]
    return Mixture(rules, shares, accuracy)


def _average(
    cells: Sequence[Any], mixed: Mixture, bound: float, links: Links
) -> Mixture | None:
    # Averages the tilts of a mixture, which differ in a few rows, under a bound that is
    # lowered until the averages keep the one that was asked for.
    inner = bound
    for _ in range(MOST_CUTS):
        tilts = [
            np.tensordot(share, np.stack(rules), axes=1)
            for rules, share in zip(mixed.rules, mixed.shares, strict=True)
        ]
        measured = [cell.decide(tilt) for cell, tilt in zip(cells, tilts, strict=True)]
        rates = links.rates(np.stack([rate for _, rate in measured]))
        above = links.limits(rates, bound)[0] - rates
        excess = float(np.max(above, initial=-bound))
        if excess <= ROUNDING:
            accuracy = sum(value for value, _ in measured)
            ones = [np.ones(1)] * len(cells)
            return Mixture([[tilt] for tilt in tilts], ones, accuracy)
        if inner == 0:
            return None
        inner = max(0.0, inner - 1.1 * excess)
        mixed = _mix(cells, inner, links)
    return None
