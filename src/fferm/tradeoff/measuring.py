"""The measures of a model on one split, and of the plain model thinned at random."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fferm._types import FloatArray
from fferm.data import check_aligned
from fferm.errors import DataFairnessWarning
from fferm.estimators.base import FairClassifier, probabilities
from fferm.intervals import interval_of_tables, wilson_interval
from fferm.labels import encode_labels, one_hot
from fferm.metrics import measure, measure_tables
from fferm.objective import Penalty
from fferm.setting import make_setting
from fferm.tradeoff.splits import Split

# The level of every interval of a curve.
CONFIDENCE = 0.95
# A certain mistake costs the logarithm of this, not infinity.
SMALLEST_CHANCE = 1e-300
# The shares of decisions that the naive baseline replaces.
THINNINGS = np.linspace(0, 1, 11)


class Measure:
    """Measures models on one split, whose labels and groups are encoded once."""

    def __init__(self, model: FairClassifier, split: Split) -> None:
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
            )
        self.y = np.asarray(self.setting.labels.y)
        self.weight = self.setting.rows.weight
        # What the rows are worth to an interval, as in `RateTable.size`.
        self.size = float(self.weight.sum() ** 2 / np.sum(self.weight**2))
        kept_class = objective.notion.kept_class(labels.classes)
        self.penalty = Penalty(objective, self.setting.rows, kept_class)

    def outputs(self, models: Sequence[FairClassifier]) -> Iterator[FloatArray]:
        """Yield the probabilities of several models, which read the rows together."""
        return map(probabilities, models[0].scores_of(models, self.X))

    def __call__(self, model: FairClassifier, prob: FloatArray) -> dict[str, Any]:
        """Return the measures of a model with these probabilities."""
        codes = prob.argmax(axis=1)
        chance = self._chance_of_truth(prob)
        surprise = -np.log(np.maximum(chance, SMALLEST_CHANCE))
        tables = self.setting.tables(one_hot(codes, prob.shape[1]))
        hard = measure_tables(tables).worst
        # Where nobody can be compared there is no table either.
        is_judged = not np.isnan(hard)
        distance = np.nan
        if is_judged:
            distance = self.penalty.on_tables(self.penalty.tables(prob))[0]
        accuracy = float(np.average(codes == self.y, weights=self.weight))
        low, high = wilson_interval(accuracy, self.size, CONFIDENCE)
        violation_low, violation_high = interval_of_tables(tables, CONFIDENCE)
        return {
            "accuracy": accuracy,
            "violation": hard,
            "soft_violation": measure(self.setting, prob).worst,
            "loss": float(np.average(surprise, weights=self.weight)),
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

    def thinned(self, prob: FloatArray, towards: int) -> list[dict[str, float]]:
        """Return what is left if decisions give way to one class, at random.

        The figures are expected values, exact rather than drawn: a decision that is
        replaced with probability ``thinning`` is a probability itself.
        """
        kept = one_hot(prob.argmax(axis=1), prob.shape[1])
        given_up = np.zeros_like(kept)
        given_up[:, towards] = 1
        ends = kept, given_up
        accuracies = [self._accuracy(end) for end in ends]
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

    def _accuracy(self, prob: FloatArray) -> float:
        return float(np.average(self._chance_of_truth(prob), weights=self.weight))

    def _chance_of_truth(self, prob: FloatArray) -> FloatArray:
        return np.asarray(prob[np.arange(len(prob)), self.y])
