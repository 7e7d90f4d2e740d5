"""One path of a sweep: the models of one curve and seed, in order of their weights."""

import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn import config_context
from sklearn.base import clone

from fferm._typing import FloatArray
from fferm.auditing import Audit, RegressionAudit, audit, audit_regression
from fferm.data.rows import FitInput
from fferm.errors import CollapseWarning, DataFairnessWarning, InvalidInputError
from fferm.estimators.base import FairClassifier, FairEstimator
from fferm.persistence import load, save
from fferm.tradeoff.journal import FORMAT, FORMAT_VERSION, Journal, Recorded
from fferm.tradeoff.measuring import CONFIDENCE, Measure, warn_of_unmeasured
from fferm.tradeoff.regression import N_DRAWS, RegressionMeasure
from fferm.tradeoff.splits import Rows, Split

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """What a path trains: an estimator along fairness weights, with one seed.

    Attributes
    ----------
    curve
        The name of the curve.
    estimator
        Unfitted; its own fairness weight and random state are not used.
    weights
        Ascending.
    seed
        Sets ``random_state``, and the held-out rows.
    description
        What is compared, in words.
    number
        Where the curve stands among those of the sweep.
    """

    curve: str
    estimator: FairEstimator
    weights: list[float]
    seed: int
    description: dict[str, str]
    number: int

    def header(self, data: str, settings: str) -> dict[str, Any]:
        """Return the first line of its records; two digests tell sweeps apart."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "curve": self.curve,
            "number": self.number,
            "seed": self.seed,
            "weights": self.weights,
            "description": self.description,
            "data": data,
            "settings": settings,
        }


@dataclass(frozen=True)
class Outcome:
    """What a path found: records, and the models themselves unless they are on disk."""

    recorded: Recorded
    models: dict[float, FairEstimator] = field(default_factory=dict)


def train_path(task: Task, rows: Rows) -> Outcome:
    """Return the measures and models of one path, kept in memory."""
    outcome = Outcome(Recorded(task.header("", ""), {}))
    with _marked_collapse():
        for fit, model in _fits(task, rows.for_seed(task.seed), {}):
            outcome.recorded.fits[model.fairness_weight] = fit
            outcome.models[model.fairness_weight] = model
    return outcome


def record_path(
    task: Task, rows: Rows, folder: Path, header: dict[str, Any]
) -> Outcome:
    """Return the measures of one path, each on disk with its model once it is made."""
    journal = Journal(folder, task.curve, task.seed)
    files = {w: journal.model_path(number) for number, w in enumerate(task.weights)}
    splits = rows.for_seed(task.seed)
    with journal.opened(header) as recorded, _marked_collapse():
        done = {w: files[w] for w in recorded.fits if files[w].exists()}
        for fit, model in _fits(task, splits, done):
            weight = model.fairness_weight
            save(model, files[weight])
            if (found := audit_rows(model, splits["test"])) is not None:
                fit["audit"] = found.to_dict()
            journal.append(fit)
            recorded.fits[weight] = fit
    return Outcome(recorded)


def audit_rows(model: FairEstimator, split: Split) -> Audit | RegressionAudit | None:
    """Return what a model does to each group of a split, in short.

    None for a regressor where a sensitive column has no two groups to compare.
    """
    with warnings.catch_warnings():
        # Training has warned of the same groups already.
        warnings.simplefilter("ignore", DataFairnessWarning)
        if isinstance(model, FairClassifier):
            return audit(
                model,
                **vars(split),
                confidence=CONFIDENCE,
                n_bootstrap=0,
                random_state=0,
            )
        try:
            return audit_regression(
                model,
                **vars(split),
                confidence=CONFIDENCE,
                n_permutations=0,
                n_bootstrap=N_DRAWS,
            )
        except InvalidInputError:
            return None


@contextmanager
def _marked_collapse() -> Iterator[None]:
    # A collapsed point is in the records; one warning a point would drown them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        yield


def _fits(
    task: Task, splits: dict[str, Split], done: dict[float, Path]
) -> Iterator[tuple[dict[str, Any], FairEstimator]]:
    # Yields the fits that are not done, with their models.
    measures: dict[str, Any] = {}
    began = time.perf_counter()
    for trained in _path(task, splits["train"], done):
        seconds = (time.perf_counter() - began) / len(trained)
        models = [model for model in trained if model.fairness_weight not in done]
        if not measures:
            measures = _make_measures(trained[0], splits)
            # Training has looked at its own rows. They are the same for every model,
            # and so are the others: look at those once.
            trained[0]._check_fitted_features(splits["test"].X)
        if models:
            with config_context(assume_finite=True):
                outputs = [measure.outputs(models) for measure in measures.values()]
                for model, *found in zip(models, *outputs, strict=True):
                    output = dict(zip(measures, found, strict=True))
                    yield _measured(task, model, measures, output, seconds), model
        began = time.perf_counter()


def _make_measures(model: FairEstimator, splits: dict[str, Split]) -> dict[str, Any]:
    # A plain model has no bands of its own: those of its training rows do.
    edges = model.band_edges_
    if not isinstance(model, FairClassifier):
        train = RegressionMeasure(model, splits["train"], edges)
        test = RegressionMeasure(model, splits["test"], train.edges)
        return {"train": train, "test": test}
    trained = Measure(model, splits["train"], edges)
    tested = Measure(model, splits["test"], trained.edges)
    warn_of_unmeasured(trained, tested)
    return {"train": trained, "test": tested}


def _path(
    task: Task, train: Split, done: dict[float, Path]
) -> Iterator[list[FairEstimator]]:
    # Yields the models that were trained together, or one after the other.
    model: FairEstimator = clone(task.estimator).set_params(random_state=task.seed)
    given = FitInput(train.X, train.y, train.sensitive_features, train.sample_weight)
    left = [weight for weight in task.weights if weight not in done]
    if not left:
        return
    # What comes before the first weight that is left was made by this very path, so a
    # path that begins each model at the last one can go on from there.
    n_before = task.weights.index(left[0])
    if n_before and model.warm_starts_path(given, task.weights):
        start = _restored(done[task.weights[n_before - 1]], task.estimator)
        path = model.fit_path(given, task.weights[n_before:], start)
    else:
        path = model.fit_path(given, task.weights)
    if model.fits_path_jointly(given) and not model.warm_starts_path(
        given, task.weights
    ):
        yield list(path)
    else:
        yield from ([fitted] for fitted in path)


def _restored(path: Path, estimator: FairEstimator) -> FairEstimator:
    model: FairEstimator = load(path, module=getattr(estimator, "module", None))
    return model


def _measured(
    task: Task,
    fitted: FairEstimator,
    measures: dict[str, Any],
    outputs: dict[str, FloatArray],
    seconds: float,
) -> dict[str, Any]:
    fit: dict[str, Any] = {
        "fairness_weight": fitted.fairness_weight,
        "measures": [
            {"split": name, **found(fitted, outputs[name]), "seconds": seconds}
            for name, found in measures.items()
        ],
    }
    # A number is no decision that could give way to another.
    if fitted.fairness_weight == 0 and isinstance(fitted, FairClassifier):
        towards = measures["train"].commonest_class
        fit["thinned"] = [
            {"split": name, **row}
            for name, found in measures.items()
            for row in found.thinned(outputs[name], towards)
        ]
    logger.info(
        "%s, seed %d: fairness weight %g took %.3g s",
        task.curve,
        task.seed,
        fitted.fairness_weight,
        seconds,
    )
    return fit
