"""The measures of a model on one split, and of the plain model thinned at random."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fferm._types import FloatArray, IntArray
from fferm.bands import BandEdges, Cutting
from fferm.data import check_aligned
from fferm.errors import DataFairnessWarning, EmptyStratumWarning
from fferm.estimators.base import FairClassifier
from fferm.intervals import interval_of_tables, wilson_interval
from fferm.labels import encode_labels
from fferm.metrics import Violations, measure, measure_tables
from fferm.objective import Penalty
from fferm.setting import Setting, make_setting
from fferm.tradeoff.splits import Split

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
                Cutting(model.continuous, edges),
            )
        self.edges = self.setting.rows.band_edges
        self.y = np.asarray(self.setting.labels.y)
        self.weight = self.setting.rows.weight
        # What the rows are worth to an interval, as in `RateTable.size`.
        self.size = float(self.weight.sum() ** 2 / np.sum(self.weight**2))
        kept_class = objective.notion.kept_class(labels.classes)
        self.penalty = Penalty(objective, self.setting.rows, kept_class)

    def outputs(self, models: Sequence[FairClassifier]) -> Iterator[FloatArray]:
        """Yield the logits of several models, which read the rows together."""
        return models[0].scores_of(models, self.X)

    def __call__(self, model: FairClassifier, scores: FloatArray) -> dict[str, Any]:
        """Return the measures of a model with these logits."""
        codes, prob = _decide(scores), self._probabilities(scores)
        tables, masses = self.setting.tables(codes), self.setting.masses(prob)
        hard = measure_tables(tables).worst
        # Where nobody can be compared there is no table either.
        is_judged = not np.isnan(hard)
        distance = np.nan
        if is_judged:
            shares = [
                mass / table.total for mass, table in zip(masses, tables, strict=True)
            ]
            distance = self.penalty.value(shares)
        accuracy = self._mean(codes == self.y)
        low, high = wilson_interval(accuracy, self.size, CONFIDENCE)
        violation_low, violation_high = interval_of_tables(tables, CONFIDENCE)
        return {
            "accuracy": accuracy,
            "violation": hard,
            "soft_violation": measure_tables(
                self.setting.tables_of(prob, masses)
            ).worst,
            "loss": self._mean(self._surprise(scores)),
            "divergence": float(distance),
            "collapsed": bool(np.all(codes == codes[0])),
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
        kept = _decide(scores)
        ends = kept, np.full_like(kept, towards)
        accuracies = [self._mean(end == self.y) for end in ends]
        tables = [self.setting.tables(end) for end in ends]
        found = []
        for share in THINNINGS.tolist():
            mix = 1 - share, share
            mixed = tuple(
                replace(one, mass=mix[0] * one.mass + mix[1] * other.mass)
                for one, other in zip(*tables, strict=True)
            )
            found.append(
                {
                    "thinning": share,
                    "accuracy": float(np.dot(mix, accuracies)),
                    "violation": measure_tables(mixed).worst,
                }
            )
        return found

    def _mean(self, values: NDArray[Any]) -> float:
        return float(self.weight @ values / self.weight.sum())

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        from fferm.solvers._kernels import probabilities_into

        prob = np.empty((len(self.setting.labels.classes), self.y.size))
        probabilities_into(_by_class(scores), 1.0, prob)
        return prob.T

    def _surprise(self, scores: FloatArray) -> FloatArray:
        from fferm.solvers._full_batch import surprise_into

        surprise = np.empty(self.y.size)
        surprise_into(_by_class(scores), self.y, surprise)
        return np.minimum(surprise, LARGEST_SURPRISE)


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


def _by_class(scores: FloatArray) -> FloatArray:
    # All logits of a class side by side, as compiled code wants them.
    return np.ascontiguousarray(scores.T).reshape(-1)


def _decide(scores: FloatArray) -> IntArray:
    decided = scores > 0 if scores.ndim == 1 else scores.argmax(axis=1)
    return np.asarray(decided, dtype=np.int64)
