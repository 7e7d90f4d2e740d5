"""Candidates, and how they do on the rows that judge."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from fferm._typing import IntArray
from fferm.data.groups import Binning, encode_columns, merged_edges
from fferm.data.rows import FitInput, check_aligned
from fferm.data.validate import check_number, encode_labels
from fferm.divergences import Divergence
from fferm.errors import FfermWarning, InvalidParameterError
from fferm.estimators.base import FairClassifier
from fferm.metrics.tabulator import make_tabulator
from fferm.tuning.validation import Fold, Validation
from fferm.uncertainty import Uncertainty


@dataclass(frozen=True)
class Candidate:
    """All that is chosen but the weight.

    Attributes
    ----------
    divergence
        A name or an instance.
    radius
        Of the estimator's uncertainty set; 0 is none.
    """

    divergence: str | Divergence
    radius: float

    def of(self, estimator: FairClassifier) -> FairClassifier:
        """Return an estimator with what this candidate says."""
        shift = estimator.uncertainty
        chosen: FairClassifier = clone(estimator).set_params(
            divergence=self.divergence,
            max_violation=None,
            uncertainty=_with_radius(shift, self.radius),
        )
        return chosen


class Judge:
    """Measures decisions about the rows that judge, which are encoded once.

    Parameters
    ----------
    estimator
        Whose notion and groups count.
    validation
        Which rows judge.
    given
        The source.
    """

    def __init__(
        self, estimator: FairClassifier, validation: Validation, given: FitInput
    ) -> None:
        # Bands are cut once, on all of the source, for every fold and those who judge.
        own = Binning(estimator.continuous)
        columns = encode_columns(given.sensitive_features, len(given.y), own)
        edges = merged_edges(column.edges for column in columns)
        given = replace(given, edges=edges)
        self.folds = list(validation.folds(given))
        self.classes = np.unique(np.asarray(given.y))
        rows = validation.judges(given)
        check_aligned(
            X=rows.X,
            y=rows.y,
            sensitive_features=rows.sensitive_features,
            sample_weight=rows.sample_weight,
        )
        plain = Candidate("kl", 0.0).of(estimator)
        self.setting = make_tabulator(
            encode_labels(rows.y, len(rows.y), self.classes.tolist(), "y"),
            plain._objective().notion,
            rows.sensitive_features,
            estimator.groups,
            rows.sample_weight,
            rows.X,
            Binning(estimator.continuous, edges),
        )

    def path(
        self,
        estimator: FairClassifier,
        candidate: Candidate,
        weights: Sequence[float],
    ) -> list[dict[str, Any]]:
        """Return one record per weight."""
        model = candidate.of(estimator)
        with warnings.catch_warnings():
            # Folds are smaller than the data, which the last fit looks at as a whole.
            warnings.simplefilter("ignore", FfermWarning)
            decided = [
                [
                    self._decide(fitted, fold)
                    for fitted in model.fit_path(fold.train, weights)
                ]
                for fold in self.folds
            ]
        key = {"divergence": str(candidate.divergence), "radius": candidate.radius}
        return [
            {**key, "fairness_weight": weight, **self._measured(np.concatenate(parts))}
            for weight, parts in zip(weights, zip(*decided, strict=True), strict=True)
        ]

    def _decide(self, model: FairClassifier, fold: Fold) -> IntArray:
        return np.searchsorted(self.classes, model.predict(fold.judge.X))

    def _measured(self, code: IntArray) -> dict[str, Any]:
        is_right = code == self.setting.labels.y
        return {
            "accuracy": float(np.average(is_right, weights=self.setting.rows.weight)),
            "violation": self.setting.violations(code).worst,
            "collapsed": bool(np.unique(code).size == 1),
        }


def check_radii(estimator: FairClassifier, radii: Sequence[float]) -> list[float]:
    """Return the radii, after checking that the estimator has a set for them."""
    numbers = sorted({check_number("radii", radius) for radius in radii})
    if not numbers:
        raise InvalidParameterError(
            "radii is empty. Give some, or leave it out for the estimator's own."
        )
    if estimator.uncertainty is None and numbers[-1] > 0:
        raise InvalidParameterError(
            f"radii={numbers} came and the estimator has no uncertainty set. Give it "
            "one, for example uncertainty=SmallShift(radius=0.01)."
        )
    return numbers


def own_radius(estimator: FairClassifier) -> float:
    """Return the radius that an estimator has; 0 where it has no uncertainty set."""
    shift = estimator.uncertainty
    return 0.0 if shift is None else float(shift.parameters()["radius"])


def _with_radius(shift: Uncertainty | None, radius: float) -> Uncertainty | None:
    if shift is None or radius == 0:
        return None
    return replace(shift, radius=radius)  # type: ignore[call-arg]
