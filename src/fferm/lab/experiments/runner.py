"""The runner: from a spec to records in a file, resumed where it stopped.

A task is a method in a panel with a seed: it draws its rows, fits one model per value
of the trade-off parameter and measures each on every part of the data.
"""

import contextlib
import functools
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import clone

from fferm import datasets, deploy, divergences
from fferm._typing import FloatArray, IntArray
from fferm.data.rows import FitInput
from fferm.data.split import take_rows
from fferm.data.validate import Number, OneOf, check_params, encode_labels
from fferm.datasets import FairDataset
from fferm.deploy.base import read_prob
from fferm.divergences import Divergence
from fferm.errors import FfermWarning, UnknownNameError, muted
from fferm.estimators.boosting import FairBoostingClassifier
from fferm.estimators.linear import FairLogisticRegression
from fferm.fairness_grid import weight_range
from fferm.lab import baselines
from fferm.lab.baselines import Baseline
from fferm.lab.experiments import published
from fferm.lab.experiments.results import write_experiment
from fferm.lab.experiments.specs import SIZES, Method, Panel, Size, read_spec
from fferm.metrics.intervals import compared_of, floor_of_tables
from fferm.metrics.tabulator import Tabulator, make_tabulator, worst_violation
from fferm.notions import get as get_notion
from fferm.registry import unknown_name
from fferm.uncertainty import Uncertainty

Record = dict[str, Any]
Model = FairLogisticRegression | Baseline
OURS: dict[str, Any] = {
    "FairLogisticRegression": FairLogisticRegression,
    "FairBoostingClassifier": FairBoostingClassifier,
    "PlainLoop": published.PlainLoop,
    "PostProcessed": published.PostProcessed,
}

DATA_HOME = "FFERM_DATA_HOME"
TRAIN_SHARE = 0.8
# Fair models that are drawn for a noise floor, and draws of the test rows.
FLOOR_DRAWS = 500
ROW_DRAWS = 100
TARGET_SHARE = 0.05


class Task(NamedTuple):
    """One sweep: a method in a panel with a seed."""

    panel: Panel
    method: Method
    seed: int
    choice: float | None = None

    @property
    def key(self) -> str:
        """What records of the task are known by."""
        name = f"{self.panel.name} | {self.method.label} | {self.seed}"
        return name if self.choice is None else f"{name} | {self.choice:g}"

    @property
    def chosen_method(self) -> Method:
        """The method with the parameter that is chosen set."""
        if self.method.among:
            return self.method.at(self.choice)
        return replace(self.method, choose="learning_rate").at(self.choice)


def run(  # noqa: PLR0913 - one call states all that a run depends on
    name: str,
    size: str = "small",
    out: str | os.PathLike[str] = "reproduced",
    data_home: str | os.PathLike[str] | None = None,
    *,
    only: Sequence[str] = (),
    first_seed: int = 0,
    n_jobs: int | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run an experiment, write records, figure and table, and return the records.

    Parameters
    ----------
    name
        ``"fig1"`` to ``"fig5"``.
    size
        ``"small"``, minutes on two cores, or ``"full"``, what the documentation shows.
    out
        The folder to write to: ``fig1-small.jsonl`` (records, which a later call goes
        on from), ``fig1-small.png``, ``fig1-small.csv`` (every number) and
        ``fig1-small.md`` (the table of a page).
    data_home
        The folder of data files, in place of ``FFERM_DATA_HOME``.
    only
        Labels of the methods to run; none runs all. What other methods left in the
        folder is drawn beside them.
    first_seed
        The first of the seeds. Others than those of the documentation, in a folder of
        their own, say whether what was chosen while looking at it still holds.
    n_jobs
        Parallel processes, through joblib.
    progress
        Whether to show progress.

    Returns
    -------
    DataFrame
        One row per value, seed and part that was judged.
    """
    spec = read_spec(name)
    check_params(
        {"size": size, "first_seed": first_seed},
        {"size": OneOf(SIZES), "first_seed": Number(is_whole=True)},
    )
    labels = tuple(method.label for method in spec.methods)
    for label in only:
        if label not in labels:
            raise UnknownNameError(unknown_name("method", label, labels))
    folder, chosen = Path(out), spec.sizes[size]
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        Task(panel, method, seed, choice)
        for panel in spec.panels
        for seed in range(first_seed, first_seed + chosen.seeds)
        for method in spec.methods
        if takes_part(method, panel) and (not only or method.label in only)
        for choice in method.among or panel.learning_rates or (None,)
    ]
    home = {} if data_home is None else {DATA_HOME: os.fspath(data_home)}
    # The loaders of worker processes, too, look into this folder.
    with patch.dict(os.environ, home):
        file = folder / f"{name}-{size}.jsonl"
        records = _run_missing(tasks, chosen, file, n_jobs, progress)
    write_experiment(spec, records, folder / f"{name}-{size}")
    return records


def _run_missing(
    tasks: list[Task], size: Size, file: Path, n_jobs: int | None, progress: bool
) -> pd.DataFrame:
    records: list[Record] = []
    with file.open("a+", encoding="utf-8") as stream:
        stream.seek(0)
        for line in stream:
            with contextlib.suppress(json.JSONDecodeError):  # a line that was cut off
                records.extend(json.loads(line))
        done = {record["task"] for record in records}
        batches = Parallel(
            n_jobs=n_jobs, return_as="generator_unordered", verbose=10 * progress
        )(delayed(run_task)(task, size) for task in tasks if task.key not in done)
        # One line a task: a run that is cut off loses no task that had ended.
        for batch in batches:
            stream.write(json.dumps(batch) + "\n")
            stream.flush()
            records.extend(batch)
    return pd.DataFrame(records)


def run_task(task: Task, size: Size) -> list[Record]:
    """Return the records of one sweep."""
    panel, seed = task.panel, task.seed
    if panel.limits:
        return _run_published(task, size)
    method = task.chosen_method
    # Collapsed and unfinished points are in the records; a warning each is noise.
    with muted(FfermWarning):
        parts = load_parts(json.dumps(panel.data), size, seed)
        judged = dict(parts.judged)
        if method.penalty_on_target and parts.target is not None:
            judged["train"] = parts.target  # where the penalty was taken
        tables = {}
        for name, part in judged.items():
            if method.follows == "half" and name in parts.states:
                judged[name] = part = take_rows(part, _halves(part)[1])
            labels = encode_labels(part.y, len(part.y), (0, 1), "y")
            notion, groups = get_notion(panel.notion), part.sensitive_features
            tables[name] = make_tabulator(labels, notion, groups, "intersection", None)
        about = {"task": task.key, "panel": panel.name, "method": method.label}
        drawn = {"seed": seed, "choice": task.choice}
        records, alike = [], replace(method, label="", regime="", follows="")
        alike = replace(alike, recalibrates=False, panels=(), choose="", among=())
        what = json.dumps(asdict(panel)), json.dumps(asdict(alike))
        for value, fitted, seconds in fit_models(*what, size, seed):
            moved = _follow(method, fitted, parts)
            for name, part in judged.items():
                chance = moved.get(name)
                if chance is None:
                    chance = _chance(fitted, part)
                measured = _measure(chance, part, tables[name], name)
                point = {**about, **drawn, "part": name, "value": value}
                records.append({**point, **measured, "seconds": seconds})
        return records


def _run_published(task: Task, size: Size) -> list[Record]:
    panel, method, seed = task.panel, task.method, task.seed
    with muted(FfermWarning):
        loader = published.LOADERS[panel.data["loader"]]
        rows = loader(panel.data, panel.notion, seed)
        shown = take_rows(rows.all, rows.parts["train"][: size.train_rows])
        model = make_model(method, panel, seed)
        if isinstance(model, published.PostProcessed):
            model.validation = take_rows(rows.all, rows.parts["validation"])
        swept = fit_sweep(method, model, Parts(shown, {}), list(method.values))
        about: Record = {"task": task.key, "panel": panel.name, "seed": seed}
        about |= {"method": method.label, "choice": None}
        return [{**about, **each} for each in published.measure_sweep(rows, swept)]


# Methods that differ in what is done with the model share it.
@functools.lru_cache(maxsize=4)
def fit_models(
    panel: str, method: str, size: Size, seed: int
) -> list[tuple[float, Model, float]]:
    """Return each value, its fitted model, and the seconds that it took.

    Parameters
    ----------
    panel, method
        As JSON.
    size, seed
        Of the task.
    """
    where, how = Panel(**json.loads(panel)), Method(**json.loads(method))
    parts = load_parts(json.dumps(where.data), size, seed)
    if how.trains_on == "target" and parts.target is not None:
        parts = replace(parts, train=parts.target)
    model = make_model(how, where, seed)
    values = trade_offs(how, model, size.n_values)
    return [*fit_sweep(how, model, parts, values)]


def _chance(model: Model, part: FitInput) -> FloatArray:
    # Of each decision; decisions that are not drawn have a chance of 0 or 1.
    groups: dict[str, Any] = {}
    if isinstance(model, Baseline):
        groups["sensitive_features"] = part.sensitive_features
    chance = model.predict_proba(part.X, **groups)
    if getattr(model, "is_randomized", False):
        return chance
    return np.eye(2)[(chance[:, 1] > 0.5).astype(np.int64)]


def _follow(method: Method, model: Any, parts: "Parts") -> dict[str, FloatArray]:
    """Return the decisions in each state, as chances, of a model that is corrected."""
    sample = parts.target
    if sample is None or not (method.recalibrates or method.follows):
        return {}
    states = {name: parts.judged[name] for name in parts.states}
    groups = {name: part.sensitive_features for name, part in states.items()}
    scorer = model
    if method.recalibrates:
        sampled = parts.sampled_states
        scorer = deploy.recalibrate(model, sample.X, sample.y, domain=sampled)
    score = {
        name: read_prob(scorer, part.X, domain=name) for name, part in states.items()
    }
    seen, where = score, {name: np.full(len(score[name]), name) for name in score}
    if method.follows == "stream":
        moved = {}
        for name, prob in score.items():
            controller = deploy.ParityController()
            moved[name] = np.eye(2)[controller.update(prob, groups[name])]
            certificate = controller.certificate()
            assert (certificate["gap"] <= certificate["bound"]).all(), name
        return moved
    if method.follows == "sample":
        domain = parts.sampled_states
        prob = read_prob(scorer, sample.X, domain=domain)
        told = prob, sample.sensitive_features, domain
    else:
        share = {
            name: _halves(part)[0] if method.follows == "half" else slice(None)
            for name, part in states.items()
        }
        told = (
            np.concatenate([seen[name][share[name]] for name in states]),
            pd.concat([groups[name].iloc[share[name]] for name in states]),
            np.concatenate([where[name][share[name]] for name in states]),
        )
    prob, sensitive, domain = told
    adapted = deploy.adapt(None, prob, sensitive_features=sensitive, domain=domain)
    moved = {}
    for name, part in states.items():
        rows = _halves(part)[1] if method.follows == "half" else slice(None)
        passed = {"sensitive_features": groups[name].iloc[rows], "domain": name}
        moved[name] = np.eye(2)[adapted.predict(score[name][rows], **passed)]
    return moved


def _halves(part: FitInput) -> tuple[IntArray, IntArray]:
    # The rows of a state lie in random order.
    first, second = np.array_split(np.arange(len(part.y)), 2)
    return first, second


def _measure(
    chance: FloatArray, part: FitInput, tabulator: Tabulator, name: str
) -> Record:
    measured = {
        "accuracy": float(chance[np.arange(len(part.y)), part.y].mean()),
        "violation": tabulator.violations(chance).worst,
        "collapsed": bool(chance[:, 1].mean() in (0.0, 1.0)),
        "constant": float(np.bincount(part.y, minlength=2).max() / len(part.y)),
    }
    tables = tabulator.tables(chance)
    measured["floor"] = floor_of_tables(tables, n_draws=FLOOR_DRAWS).mean
    if name == "test":
        measured |= _measure_draws(chance, part.y, tabulator)
    elif name not in ("train", "validation"):
        # The mean square of the difference of two groups, less the part of noise.
        (rates,), (sizes,) = compared_of(tables)
        noise = np.mean(rates[-1] * (1 - rates[-1]) / sizes[-1])
        measured["square"] = float(2 * (np.var(rates[-1], ddof=1) - noise))
    return measured


def _measure_draws(chance: FloatArray, y: IntArray, tabulator: Tabulator) -> Record:
    """Return accuracy and violation on draws of the rows, the same for every method."""
    draws, right = row_draws(len(y)), chance[np.arange(len(y)), y]
    gaps = []
    for count in draws:
        masses = [
            cell.table(chance, count[cell.rows], 2) for cell in tabulator.rows.cells
        ]
        gaps.append(worst_violation(map(tabulator.comparison.tables, masses)))
    accuracies = np.round(draws @ right / len(y), 6)
    drawn = {"accuracy": accuracies, "violation": np.round(gaps, 6)}
    return {f"{name}_drawn": numbers.tolist() for name, numbers in drawn.items()}


@functools.lru_cache(maxsize=1)
def row_draws(n: int) -> FloatArray:
    """Return (ROW_DRAWS, n) how often each of n rows is in a draw of as many."""
    drawn = np.random.default_rng(n).integers(n, size=(ROW_DRAWS, n))
    return np.array([np.bincount(rows, minlength=n) for rows in drawn], np.float64)


# The rows


@dataclass(frozen=True)
class Parts:
    """What one task needs of the data.

    Attributes
    ----------
    train
        Rows to train on.
    judged
        Rows to judge on, by name; ``"train"`` is among them, with groups as recorded.
        ``"validation"`` and ``"target"`` are there to choose on.
    target, sampled_states
        Rows of the target that methods may know, and the state of each.
    """

    train: FitInput
    judged: Mapping[str, FitInput]
    target: FitInput | None = None
    sampled_states: NDArray[Any] | None = None

    @property
    def states(self) -> list[str]:
        """The judged parts that are states."""
        known = ("train", "target", "validation", "test")
        return [name for name in self.judged if name not in known]


# Tasks come seed by seed, and the methods of a seed share their rows.
@functools.lru_cache(maxsize=2)
def load_parts(data: str, size: Size, seed: int) -> Parts:
    """Return the rows of a seed; ``data`` is what a panel says of them, as JSON."""
    options = json.loads(data)
    loader, flip = options.pop("loader"), options.pop("flip", None)
    rng = np.random.default_rng([seed, 7])
    if loader == "acs_income":
        parts = _acs_income(options, size, rng, seed)
    elif loader == "adult":
        parts = _split(datasets.load_adult(**options), size.train_rows, rng)
    else:  # the random split follows the seed; Adult has a published one
        whole = getattr(datasets, f"load_{loader}")(**options, random_state=seed)
        parts = _split(whole, len(whole.y), rng)
    judged = {"train": parts.train, **parts.judged}
    if flip is None:
        judged.pop("validation", None)  # nothing to choose
        return replace(parts, judged=judged)
    # What is chosen is chosen on rows recorded with the same errors.
    noisy = {name: _flip(judged[name], flip, rng) for name in ("train", "validation")}
    return Parts(noisy["train"], {**judged, **noisy})


def _split(data: FairDataset, n: int | None, rng: np.random.Generator) -> Parts:
    """Return a draw of the training rows, those not drawn, and all test rows."""
    train = FitInput(data.X, data.y.astype(np.int64), data.sensitive_features)
    n = n or int(TRAIN_SHARE * len(train.y))
    order = rng.permutation(len(train.y))
    drawn, rest = take_rows(train, order[:n]), take_rows(train, order[n:])
    y_test = data.y_test.astype(np.int64)
    test = FitInput(data.X_test, y_test, data.sensitive_features_test)
    return Parts(drawn, {"validation": rest, "test": test})


def _acs_income(
    options: dict[str, Any], size: Size, rng: np.random.Generator, seed: int
) -> Parts:
    """Return rows of one state to train on, and all states to judge on.

    The target sample is five in a hundred rows of all states, as the paper allows; they
    are not judged on. States in which a group has fewer than ``least_rows`` rows are
    left out: there the largest gap is chance.
    """
    races, least_rows = options.pop("races", None), options.pop("least_rows", 0)
    data = datasets.load_acs_income(**options, test_states="all", random_state=seed)
    whole = _split(data, size.train_rows, rng)
    train, everywhere = whole.train, whole.judged["test"]

    def merged(part: FitInput) -> FitInput:
        groups = part.sensitive_features
        race = groups["race"].where(groups["race"].isin(races), "Other")
        return replace(part, sensitive_features=groups.assign(race=race))

    if races is not None:
        train, everywhere = merged(train), merged(everywhere)
    state = data.frame_test.index.get_level_values("STATE").to_numpy()
    is_target = rng.random(len(state)) < TARGET_SHARE
    target = take_rows(everywhere, np.flatnonzero(is_target))
    judged = {"target": target}
    groups = target.sensitive_features.value_counts().index
    for name in np.unique(state):
        rows = rng.permutation(np.flatnonzero((state == name) & ~is_target))
        part = take_rows(everywhere, rows[: size.test_rows])
        rows_of = part.sensitive_features.value_counts().reindex(groups, fill_value=0)
        if rows_of.min() >= least_rows:
            judged[str(name)] = part
    return Parts(train, judged, target, state[is_target])


def _flip(part: FitInput, share: float, rng: np.random.Generator) -> FitInput:
    """Return the rows with the group of a share of them changed, in two groups."""
    (name,) = part.sensitive_features.columns
    groups = part.sensitive_features[name].to_numpy()
    first, second = np.unique(groups)
    other = np.where(groups == first, second, first)
    is_flipped = rng.random(len(groups)) < share
    flipped = pd.DataFrame({name: np.where(is_flipped, other, groups)})
    return replace(part, sensitive_features=flipped)


# The models


def make_model(method: Method, panel: Panel, seed: int) -> Model:
    """Return the unfitted model of a method."""
    params = dict(method.params)
    if "normalisation" in params:
        form = params.pop("normalisation")
        params["divergence"] = divergences.get(params["divergence"], normalisation=form)
    if "uncertainty" in params:
        options = dict(params["uncertainty"])
        params["uncertainty"] = Uncertainty.registered(options.pop("name"))(**options)
    model: Model = _class(method.name)(**params, notion=panel.notion)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    if panel.batch_size is not None:
        model.set_params(batch_size=panel.batch_size)
        if isinstance(model, FairLogisticRegression) and model.solver == "auto":
            solver = "semi_stochastic" if model.uncertainty else "sgda"
            model.set_params(solver=solver)
    elif isinstance(model, FairLogisticRegression) and not panel.limits:
        model.set_params(solver="lbfgs")
    return model


def takes_part(method: Method, panel: Panel) -> bool:
    """Return whether a method is run in a panel."""
    if method.panels and panel.name not in method.panels:
        return False
    if panel.limits:
        return True
    model = _class(method.name)
    if issubclass(model, Baseline) and panel.notion not in model.notions:
        return False
    # A method that knows no batches is shown once, where all rows are used.
    return panel.batch_size is None or "batch_size" in model().get_params()


def trade_offs(method: Method, model: Model, n_values: int) -> list[float]:
    """Return the values of the trade-off parameter to try."""
    if method.values:
        return list(method.values)
    if isinstance(model, FairLogisticRegression):
        low, high = weight_range(Divergence.resolve(model.divergence), *method.weights)
        if method.largest_reach is not None:
            radius = method.params["uncertainty"]["radius"]
            high = min(high, method.largest_reach / radius)
        return [0.0, *np.geomspace(low, high, n_values - 1).tolist()]
    first, *rest = (0.0, *method.weights) if method.weights else model.tradeoff_values
    if first == 0 and rest[-1] > rest[0] > 0:  # a weight, which acts by its logarithm
        return [0.0, *np.geomspace(rest[0], rest[-1], n_values - 1).tolist()]
    places = np.linspace(0, len(rest), n_values)
    return [*np.interp(places, np.arange(len(rest) + 1), [first, *rest]).tolist()]


def fit_sweep(
    method: Method, model: Model, parts: Parts, values: list[float]
) -> Iterator[tuple[float, Model, float]]:
    """Yield each value, its fitted model, and the seconds that it took."""
    train, target = parts.train, parts.target
    extra: dict[str, Any] = {}
    if method.penalty_on_target and target is not None:
        extra["penalty_data"] = target.X, target.sensitive_features
    models: Iterable[Model]
    if hasattr(model, "fit_path"):
        if extra:
            train = replace(train, sensitive_features=None, **extra)
        models = model.fit_path(train, values)
    else:
        extra["sensitive_features"] = train.sensitive_features
        name = model.tradeoff_param
        models = (
            clone(model).set_params(**{name: value}).fit(train.X, train.y, **extra)
            for value in values
        )
    began = time.process_time()
    for value, fitted in zip(values, models, strict=True):
        yield value, fitted, time.process_time() - began
        began = time.process_time()


def _class(name: str) -> Any:
    if name in OURS:
        return OURS[name]
    if name not in baselines.__all__:
        raise UnknownNameError(unknown_name("method", name, baselines.__all__))
    return getattr(baselines, name)
