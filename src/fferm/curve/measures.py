"""The measures of a model on one split, and of random decisions beside it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm
from sklearn import config_context

from fferm._typing import FloatArray
from fferm.auditing import Audit, audit
from fferm.curve.curve import CONFIDENCE
from fferm.data.groups import BandEdges, Binning, encode_sensitive
from fferm.data.rows import FitInput
from fferm.data.validate import encode_labels, encode_weight
from fferm.errors import (
    DataFairnessWarning,
    EmptyStratumWarning,
    InvalidInputError,
    muted,
    warn_user,
)
from fferm.estimators.base import FairClassifier, FairEstimator
from fferm.metrics.intervals import (
    compared_of,
    corrected_violation,
    floor_of_tables,
    two_sided,
    violation_interval,
    wilson_limits,
)
from fferm.metrics.tabulator import (
    Tabulator,
    make_tabulator,
    worst_violation,
)
from fferm.penalty.objective import Penalty
from fferm.registry import last_step

if TYPE_CHECKING:
    from fferm.estimators.regression import FairRegressor
    from fferm.solvers._passes import RowSums

# What a certain mistake costs, instead of infinity: a chance of about 1e-300.
LARGEST_SURPRISE = 690.0
# The shares of decisions that the random baseline replaces.
RANDOM_SHARES = np.linspace(0, 1, 11)
LIMITS = ("accuracy_low", "accuracy_high", "violation_low", "violation_high")
# Fair models that are drawn for the noise floor of a record.
FLOOR_DRAWS = 2000
# Draws of the bootstrap behind the interval of a regressor's violation.
N_DRAWS = 50


def make_measures(model: FairEstimator, splits: dict[str, FitInput]) -> dict[str, Any]:
    """Return what measures models on the training rows and on the test rows."""
    is_classifier = isinstance(model, FairClassifier)
    kind: Any = Measure if is_classifier else RegressionMeasure
    # A model without a penalty has no bands, so they are those of its training rows.
    train = kind(model, splits["train"], model.band_edges_)
    test = kind(model, splits["test"], train.edges)
    if is_classifier:
        _warn_of_unmeasured(train.tabulator, test.tabulator)
    # Training has checked its rows. The test rows are the same for every model.
    model._check_fitted_features(splits["test"].X)
    return {"train": train, "test": test}


def measure_models(
    measures: dict[str, Any], models: list[FairEstimator], seconds: float
) -> Iterator[tuple[dict[str, Any], FairEstimator]]:
    """Yield the record of each model, and the model."""
    if not models:
        return
    with config_context(assume_finite=True):
        by_split = [measure.outputs(models) for measure in measures.values()]
        for model, *outputs in zip(models, *by_split, strict=True):
            output = dict(zip(measures, outputs, strict=True))
            record: dict[str, Any] = {"fairness_weight": model.fairness_weight}
            record["measures"] = [
                {"split": name, **measure(model, output[name]), "seconds": seconds}
                for name, measure in measures.items()
            ]
            # A regressor has no decisions that could be replaced.
            if model.fairness_weight == 0 and isinstance(model, FairClassifier):
                train = measures["train"]
                # Replacing decisions by the most frequent class costs least accuracy.
                towards = int(np.bincount(train.y, weights=train.weight).argmax())
                record["thinned"] = [
                    {"split": name, **row}
                    for name, measure in measures.items()
                    for row in measure.random_baseline(output[name], towards)
                ]
            yield record, model


def audit_rows(model: Any, rows: FitInput) -> Audit | None:
    """Return a short audit of a model on some rows.

    None for a regressor if some sensitive column has no two groups to compare.
    """
    # Training has warned about the same groups already.
    with muted(DataFairnessWarning):
        options: dict[str, Any] = {**rows.tables, "confidence": CONFIDENCE}
        if isinstance(last_step(model), FairClassifier):
            made: Any = audit(model, **options, n_bootstrap=0, random_state=0)
            result: Audit = replace(made, people=None)  # many share their rows
            return result
        from fferm.auditing import audit_regression

        try:
            options |= {"n_permutations": 0, "n_bootstrap": N_DRAWS}
            return replace(audit_regression(model, **options), people=None)
        except InvalidInputError:
            return None


class Measure:
    """Measures models on one split, whose labels and groups are encoded once.

    Parameters
    ----------
    model
        One of them.
    split
        The rows.
    edges
        Band edges of continuous sensitive columns, from the training rows.
    """

    def __init__(
        self, model: FairClassifier, split: FitInput, edges: BandEdges
    ) -> None:
        objective = replace(model._objective(), uncertainty=None)
        classes = model.classes_.tolist()
        labels = encode_labels(split.y, len(split.y), classes, "y")
        tables = split.sensitive_features, model.groups, split.sample_weight
        small = model.small_groups_
        binning = Binning(model.continuous, edges, small=small, warns=False)
        self.tabulator = make_tabulator(
            labels, objective.notion, *tables, split.X, binning
        )
        rows = self.tabulator.rows
        self.X, self.y, self.weight = split.X, np.asarray(labels.y), rows.weight
        columns = rows.attributes
        self.edges = {name: e for c in columns for name, e in c.edges.items()}
        self.total = rows.weight.sum()
        self.cells = np.stack([each.by_row(self.y.size) for each in rows.cells])
        self.penalty = Penalty(objective, rows, labels.classes)
        self.group_factor: Any = 1.0  # of the cells of a table, as trained
        if model.group_weights == "equal":
            factor = rows.group_factor(objective.notion.compares_predictions)
            self.group_factor = factor[:, None]

    def outputs(self, models: Sequence[FairClassifier]) -> Iterator[FloatArray]:
        """Yield the logits of several models, which read the rows together."""
        return models[0].scores_of(models, self.X)

    def __call__(self, model: FairClassifier, scores: FloatArray) -> dict[str, Any]:
        """Return the measures of a model with these logits."""
        sums, cells = self._add_up(scores), self.tabulator.rows.cells
        masses: dict[str, list[FloatArray]] = {"hard": [], "soft": []}
        for name, parts in masses.items():
            # (A, strata x groups, classes) as (strata, classes, groups) of each.
            for table, cell in zip(getattr(sums, name), cells, strict=True):
                whole = table[: math.prod(cell.shape)].reshape(*cell.shape, -1)
                parts.append(whole.transpose(0, 2, 1))
        tables = self.tabulator.tables(sums.decided, masses["hard"])
        compared = [table.mass for table in tables]
        violation, distance = worst_violation(compared), np.nan
        # Where nobody can be compared there is no table either.
        if not np.isnan(violation):
            shared = zip(masses["soft"], tables, strict=True)
            distance = self.penalty.value(
                [self.group_factor * mass / table.total for mass, table in shared]
            )
        accuracy = float(sums.right[0] / self.total)
        # What the rows are worth to an interval, as in `RateTable.size`.
        size = float(self.total**2 / np.sum(self.weight**2))
        rates = compared_of(tables)
        ends = violation_interval(*rates, CONFIDENCE)
        share = np.array(accuracy), np.array(size)
        limits = *map(float, wilson_limits(*share, two_sided(CONFIDENCE))), *ends
        return {
            "accuracy": accuracy,
            "violation": violation,
            "soft_violation": self._violation(masses["soft"]),
            "loss": float(sums.loss[0] / self.total),
            "divergence": float(distance),
            "collapsed": bool(np.all(sums.decided == sums.decided[0])),
            "result": model.result_.name,
            **dict(zip(LIMITS, limits, strict=True)),
            "floor": floor_of_tables(tables, n_draws=FLOOR_DRAWS).mean,
            "corrected_violation": corrected_violation(*rates),
            "ratio": 1 - worst_violation(compared, "ratio"),
            "deviation": worst_violation(compared, "deviation"),
        }

    def _violation(self, masses: Iterable[FloatArray]) -> float:
        return worst_violation(map(self.tabulator.comparison.tables, masses))

    def random_baseline(
        self, scores: FloatArray, towards: int
    ) -> list[dict[str, float]]:
        """Return the measures if decisions are replaced by one class at random.

        They are exact expected values: a decision that is replaced with probability
        ``thinning`` is a probability itself.
        """
        kept = self._add_up(scores).decided
        ends = kept, np.full_like(kept, towards)
        accuracies = [self.weight @ (end == self.y) / self.total for end in ends]
        pairs = list(zip(*map(self.tabulator.masses, ends), strict=True))
        return [
            {
                "thinning": share,
                "accuracy": float(np.dot((1 - share, share), accuracies)),
                "violation": self._violation(
                    (1 - share) * one + share * other for one, other in pairs
                ),
            }
            for share in RANDOM_SHARES.tolist()
        ]

    def _add_up(self, scores: FloatArray) -> "RowSums":
        from fferm.solvers._passes import add_up, no_sums, workspace

        n_classes = len(self.tabulator.labels.classes)
        n_cells = max(math.prod(each.shape) for each in self.tabulator.rows.cells)
        # All logits of a class side by side, so that only one layout is compiled.
        logits = np.ascontiguousarray(scores.T).reshape(-1, self.y.size)
        work = workspace(len(logits), n_classes)
        sums = no_sums(self.y.size, len(self.cells), n_cells, n_classes)
        add_up(logits, self.y, self.weight, self.cells, LARGEST_SURPRISE, work, sums)
        return sums


class RegressionMeasure:
    """Measures regressors on one split, whose groups are encoded once.

    Parameters are those of `Measure`.
    """

    def __init__(
        self, model: "FairRegressor", split: FitInput, edges: BandEdges
    ) -> None:
        from fferm.metrics import dependence

        self.X, self.y = split.X, dependence.read_finite(split.y, "y")
        self.weight = encode_weight(split.sample_weight, self.y.size)
        binning = Binning(model.continuous, edges, small=model.small_groups_)
        columns = encode_sensitive(
            split.sensitive_features, self.y.size, "marginal", binning
        )
        self.edges = {name: e for column in columns for name, e in column.edges.items()}
        measures = {"violation": model.violation_metric}
        measures |= {name: name for name in dependence.GROUP_MEASURES}
        compared = split.sensitive_features, model._objective().notion, model.groups
        weight = None if split.sample_weight is None else self.weight
        rows = *compared, split.X, replace(binning, edges=self.edges), weight
        self.tabulators = {
            column: dependence.make_regression_tabulator(measure, *rows)
            for column, measure in measures.items()
        }

    def outputs(self, models: "Sequence[FairRegressor]") -> Iterator[FloatArray]:
        """Yield the predictions of several models."""
        return (model.predict(self.X) for model in models)

    def __call__(
        self, model: "FairRegressor", prediction: FloatArray
    ) -> dict[str, Any]:
        """Return the measures of a model with these predictions."""
        from fferm.metrics import dependence

        error, variance = dependence.squared_error(self.y, prediction, self.weight)
        share = self.weight / self.weight.sum()
        deviations = share * ((self.y - prediction) ** 2 - error)
        half = norm.ppf((1 + CONFIDENCE) / 2) * np.sqrt(np.sum(deviations**2))
        # That of the mean squared error, as a share of the variance of y.
        low, high = (float(1 - (error + sign * half) / variance) for sign in (1, -1))
        violations = {
            column: tabulator.violation(prediction)
            for column, tabulator in self.tabulators.items()
        }
        ends = self.tabulators["violation"].interval(prediction, CONFIDENCE, N_DRAWS)
        information = partial(dependence.f_information, divergence=model.divergence)
        return {
            "accuracy": 1 - error / variance,
            **violations,
            # A number is not a decision, so there is one violation only.
            "soft_violation": violations["violation"],
            "loss": error,
            "divergence": self.tabulators["mean_gap"].violation(
                prediction, information
            ),
            "collapsed": bool(np.ptp(prediction) == 0),
            "result": model.result_.name,
            **dict(zip(LIMITS, (low, min(high, 1.0), *ends), strict=True)),
        }


def _warn_of_unmeasured(train: Tabulator, test: Tabulator) -> None:
    # Warn about groups that training compares and the test rows cannot measure.
    by_split = []
    for tabulator in (train, test):
        # What can be compared at all: by predictions that are anything for anyone.
        shape = tabulator.labels.n_samples, len(tabulator.labels.classes)
        by_split.append(tabulator.tables(np.ones(shape)))
    if not any(table.is_judged.any() for table in by_split[1]):
        return  # nothing is measured, and the violation is undefined
    absent = []
    for trained, tested in zip(*by_split, strict=True):
        known = list(trained.absences())
        absent += [str(part) for part in tested.absences() if part not in known]
        lost = [group for group in trained.groups if group not in tested.groups]
        if lost:
            absent.append(f"{tested.attribute}: {', '.join(lost)} (no rows)")
    if absent:
        warn_user(
            f"Not measured on the test rows: {'; '.join(absent)}. The violation is "
            "that of the other groups; test on more rows, or merge groups.",
            EmptyStratumWarning,
        )
