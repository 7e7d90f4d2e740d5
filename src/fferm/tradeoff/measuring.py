"""The measures of a model on one split, and of the plain model thinned at random."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray
from fferm.data.groups import BandEdges, Binning
from fferm.data.rows import check_aligned
from fferm.data.validate import encode_labels
from fferm.errors import DataFairnessWarning, EmptyStratumWarning
from fferm.estimators.base import FairClassifier
from fferm.intervals import interval_of_tables, wilson_interval
from fferm.metrics import Violations, measure
from fferm.penalty.objective import Penalty
from fferm.rates import rates_of, worst_gap
from fferm.setting import Setting, make_setting
from fferm.tradeoff.splits import Split

if TYPE_CHECKING:
    from fferm.solvers._passes import RowSums

# The level of every interval of a curve.
CONFIDENCE = 0.95
# What a certain mistake costs, instead of infinity: a chance of about 1e-300.
LARGEST_SURPRISE = 690.0
# The shares of decisions that the naive baseline replaces.
THINNINGS = np.linspace(0, 1, 11)


class Measure:
    """Measures models on one split, whose labels and groups are encoded once.

    Parameters
    ----------
    model
        One of them.
    split
        The rows.
    edges
        Where bands of numbers meet, of the training rows.
    """

    def __init__(self, model: FairClassifier, split: Split, edges: BandEdges) -> None:
        check_aligned(**vars(split))
        objective = replace(model._objective(), uncertainty=None)
        classes = model.classes_.tolist()
        labels = encode_labels(split.y, len(split.y), classes, "y")
        self.X = split.X
        with warnings.catch_warnings():
            # Training has warned of the same groups already.
            warnings.simplefilter("ignore", DataFairnessWarning)
            self.setting = make_setting(
                labels,
                objective.notion,
                split.sensitive_features,
                model.groups,
                split.sample_weight,
                split.X,
                Binning(model.continuous, edges),
            )
        self.edges = self.setting.rows.band_edges
        self.y = np.asarray(self.setting.labels.y)
        self.weight = self.setting.rows.weight
        self.total = self.weight.sum()
        # What the rows are worth to an interval, as in `RateTable.size`.
        self.size = float(self.total**2 / np.sum(self.weight**2))
        attributes = self.setting.rows.attributes
        self.cells = np.stack([self.setting.cells(each) for each in attributes])
        n_strata = len(self.setting.rows.strata.names)
        self.n_cells = [n_strata * len(each.groups) for each in attributes]
        kept_class = objective.notion.kept_class(labels.classes)
        self.penalty = Penalty(objective, self.setting.rows, kept_class)

    def outputs(self, models: Sequence[FairClassifier]) -> Iterator[FloatArray]:
        """Yield the logits of several models, which read the rows together."""
        return models[0].scores_of(models, self.X)

    def __call__(self, model: FairClassifier, scores: FloatArray) -> dict[str, Any]:
        """Return the measures of a model with these logits."""
        sums = self._add_up(scores)
        hard, soft = self._by_attribute(sums.hard), self._by_attribute(sums.soft)
        tables = self.setting.tables_of(sums.decided, hard)
        violation = worst_gap([table.rate for table in tables])
        # Where nobody can be compared there is no table either.
        is_judged = not np.isnan(violation)
        distance = np.nan
        if is_judged:
            shares = [
                mass / table.total for mass, table in zip(soft, tables, strict=True)
            ]
            distance = self.penalty.value(shares)
        accuracy = float(sums.right[0] / self.total)
        low, high = wilson_interval(accuracy, self.size, CONFIDENCE)
        violation_low, violation_high = interval_of_tables(tables, CONFIDENCE)
        return {
            "accuracy": accuracy,
            "violation": violation,
            "soft_violation": worst_gap(
                [rates_of(self.setting.orient(mass)) for mass in soft]
            ),
            "loss": float(sums.loss[0] / self.total),
            "divergence": float(distance),
            "collapsed": bool(np.all(sums.decided == sums.decided[0])),
            "result": model.result_.name,
            "accuracy_low": low,
            "accuracy_high": high,
            "violation_low": violation_low,
            "violation_high": violation_high,
        }

    @property
    def commonest_class(self) -> int:
        """The label of most weight: thinning towards it costs least accuracy."""
        return int(np.bincount(self.y, weights=self.weight).argmax())

    def thinned(self, scores: FloatArray, towards: int) -> list[dict[str, float]]:
        """Return what is left if decisions give way to one class, at random.

        The figures are expected values, exact rather than drawn: a decision that is
        replaced with probability ``thinning`` is a probability itself.
        """
        kept = self._add_up(scores).decided
        ends = kept, np.full_like(kept, towards)
        accuracies = [self._mean(end == self.y) for end in ends]
        masses = [self.setting.masses(end) for end in ends]
        found = []
        for share in THINNINGS.tolist():
            mix = 1 - share, share
            rates = [
                rates_of(self.setting.orient(mix[0] * one + mix[1] * other))
                for one, other in zip(*masses, strict=True)
            ]
            found.append(
                {
                    "thinning": share,
                    "accuracy": float(np.dot(mix, accuracies)),
                    "violation": worst_gap(rates),
                }
            )
        return found

    def _mean(self, values: NDArray[Any]) -> float:
        return float(self.weight @ values / self.total)

    def _add_up(self, scores: FloatArray) -> "RowSums":
        from fferm.solvers._passes import add_up, no_sums, workspace

        n_classes, n_cells = len(self.setting.labels.classes), max(self.n_cells)
        # All logits of a class side by side: compiled once, however they came.
        logits = np.ascontiguousarray(scores.T).reshape(-1, self.y.size)
        work = workspace(len(logits), n_classes)
        sums = no_sums(self.y.size, len(self.cells), n_cells, n_classes)
        add_up(logits, self.y, self.weight, self.cells, LARGEST_SURPRISE, work, sums)
        return sums

    def _by_attribute(self, sums: FloatArray) -> list[FloatArray]:
        # (A, strata x groups, classes) as (strata, classes, groups) of each.
        n_strata = len(self.setting.rows.strata.names)
        return [
            part[:n].reshape(n_strata, -1, part.shape[1]).transpose(0, 2, 1)
            for part, n in zip(sums, self.n_cells, strict=True)
        ]


def warn_of_unmeasured(train: Measure, test: Measure) -> None:
    """Warn of what training compares and the test rows are too few to measure."""
    known, found = (_comparable(each.setting) for each in (train, test))
    if not found.gaps:  # nothing is measured, and the violation says so
        return
    absent = [str(part) for part in found.absent if part not in known.absent]
    pairs = zip(
        train.setting.rows.attributes, test.setting.rows.attributes, strict=True
    )
    for trained, measured in pairs:
        lost = [group for group in trained.groups if group not in measured.groups]
        if lost:
            absent.append(f"{measured.name}: {', '.join(lost)} (no rows)")
    if absent:
        warnings.warn(
            f"Not measured on the test rows: {'; '.join(absent)}. The violation there "
            "is that of the rest; test on more rows, or merge groups.",
            EmptyStratumWarning,
            stacklevel=2,
        )


def _comparable(setting: Setting) -> Violations:
    # What can be compared at all: of predictions that are anything for anyone.
    anything = np.ones((setting.labels.n_samples, len(setting.labels.classes)))
    return measure(setting, anything)
