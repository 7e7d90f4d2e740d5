"""The parts of a regressor's audit: a column, its measures and what is drawn."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Measured(NamedTuple):
    """A measure of dependence on one column.

    Attributes
    ----------
    value
        On the rows.
    low, high
        Ends of its interval, None for measures of numbers: there a row that is drawn
        twice would itself be dependence.
    chance, p_value
        Its mean where the column is shuffled, which for measures that cannot fall below
        0 is not 0, and how often shuffled rows reach the value; None if not asked for.
    """

    value: float
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class Densities:
    """The density of the prediction in each group, at common places."""

    at: tuple[float, ...]
    by_group: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Fan:
    """The prediction along a number: in bins of it, the mean and the middle 80 %."""

    at: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ColumnAudit:
    """How predictions depend on one sensitive column, or on several jointly.

    Attributes
    ----------
    groups
        By group, or by band of numbers: ``rows``, ``mean_prediction`` with the ends of
        its interval ``mean_low`` and ``mean_high``, ``mean_target``, ``mse``; with
        weights also ``size``, what the rows are worth without.
    measures
        By name.
    densities
        Of the groups or bands.
    fan
        Of numbers, else None.
    information_bias
        Of numbers: how much of ``f_information`` counts alone make; else None.
    n_missing
        Rows without a value, which are in no group.
    is_joint
        Whether these are the groups of several columns jointly.
    has_trained_bands
        Whether the bands of numbers are those of the model's training.
    strata
        Given a control feature, by its value: ``rows``, and each measure there; the
        largest is that of the column. Empty where all rows are compared.
    absent
        Values of the control feature without two groups to compare, or with fewer than
        four rows.
    """

    groups: dict[str, dict[str, float]]
    measures: dict[str, Measured]
    densities: Densities
    fan: Fan | None
    information_bias: float | None
    n_missing: int
    is_joint: bool = False
    has_trained_bands: bool = False
    strata: dict[str, dict[str, float]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers, whose groups are bands."""
        return self.fan is not None


@dataclass(frozen=True)
class AskedOfNumbers:
    """What an audit was asked: enough to ask it again; as in `Asked`."""

    groups: str
    n_permutations: int
    n_bootstrap: int
    random_state: int
    continuous: tuple[str, ...] | str
    notion: str = "'demographic_parity'"
    is_behind_pipeline: bool = False
    is_weighted: bool = False
    imports: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
