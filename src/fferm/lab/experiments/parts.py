"""The rows that a panel and a seed train on, and the parts they are judged on."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, IntArray
from fferm.datasets import (
    FairDataset,
    load_acs_income,
    load_adult,
    load_compas,
    load_german,
)
from fferm.lab.experiments.specs import Panel, Size

TRAIN_SHARE = 0.8
TARGET_SHARE = 0.05


@dataclass(frozen=True)
class Part:
    """Rows with labels and groups."""

    X: FloatArray
    y: IntArray
    sensitive_features: pd.DataFrame

    def take(self, rows: IntArray) -> "Part":
        """Return some of the rows."""
        groups = self.sensitive_features.iloc[rows]
        return Part(self.X[rows], self.y[rows], groups)


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
    target
        Rows of the target to train on, without their labels.
    """

    train: Part
    judged: Mapping[str, Part]
    target: Part | None = None


def load_parts(panel: Panel, size: Size, seed: int) -> Parts:
    """Return the rows of a panel and a seed."""
    return _load_parts(json.dumps(panel.data), size, seed)


# Tasks come seed by seed, and the methods of a seed share their rows.
@functools.lru_cache(maxsize=2)
def _load_parts(data: str, size: Size, seed: int) -> Parts:
    options = json.loads(data)
    loader, flip = options.pop("loader"), options.pop("flip", None)
    rng = np.random.default_rng([seed, 7])
    parts = LOADERS[loader](options, size, rng, seed)
    judged = {"train": parts.train, **parts.judged}
    if flip is None:
        judged.pop("validation", None)  # nothing to choose
        return replace(parts, judged=judged)
    # What is chosen is chosen on rows recorded with the same errors.
    noisy = {name: _flip(judged[name], flip, rng) for name in ("train", "validation")}
    return Parts(noisy["train"], {**judged, **noisy})


def _published_split(data: FairDataset, size: Size, rng: np.random.Generator) -> Parts:
    """Return a draw of the training rows, those not drawn, and all test rows."""
    train = Part(data.X, data.y.astype(np.int64), data.sensitive_features)
    n = size.train_rows or int(TRAIN_SHARE * len(train.y))
    order = rng.permutation(len(train.y))
    drawn, rest = train.take(order[:n]), train.take(order[n:])
    test = Part(data.X_test, data.y_test.astype(np.int64), data.sensitive_features_test)
    return Parts(drawn, {"validation": rest, "test": test})


def _adult(
    options: dict[str, Any], size: Size, rng: np.random.Generator, seed: int
) -> Parts:
    return _published_split(load_adult(**options), size, rng)


def _compas(
    options: dict[str, Any], size: Size, rng: np.random.Generator, seed: int
) -> Parts:
    data = load_compas(**options, random_state=seed)
    return _published_split(data, replace(size, train_rows=len(data.y)), rng)


def _german(
    options: dict[str, Any], size: Size, rng: np.random.Generator, seed: int
) -> Parts:
    data = load_german(**options, random_state=seed)
    return _published_split(data, replace(size, train_rows=len(data.y)), rng)


def _acs_income(
    options: dict[str, Any], size: Size, rng: np.random.Generator, seed: int
) -> Parts:
    """Return rows of one state to train on, and all states to judge on.

    The target sample is five in a hundred rows of all states, as the paper allows; they
    are not judged on. States in which a group has fewer than ``least_rows`` rows are
    left out: there the largest gap is chance.
    """
    races, least_rows = options.pop("races", None), options.pop("least_rows", 0)
    data = load_acs_income(**options, test_states="all", random_state=seed)
    whole = _published_split(data, size, rng)
    train, everywhere = whole.train, whole.judged["test"]
    if races is not None:
        train, everywhere = (_merge_races(part, races) for part in (train, everywhere))
    state = data.frame_test.index.get_level_values("STATE").to_numpy()
    is_target = rng.random(len(state)) < TARGET_SHARE
    target = everywhere.take(np.flatnonzero(is_target))
    judged = {"target": target}
    groups = target.sensitive_features.value_counts().index
    for name in np.unique(state):
        rows = rng.permutation(np.flatnonzero((state == name) & ~is_target))
        part = everywhere.take(rows[: size.test_rows])
        rows_of = part.sensitive_features.value_counts().reindex(groups, fill_value=0)
        if rows_of.min() >= least_rows:
            judged[str(name)] = part
    return Parts(train, judged, target)


def _merge_races(part: Part, races: list[str]) -> Part:
    """Return the rows with all races but those named called other."""
    groups = part.sensitive_features
    race = groups["race"].where(groups["race"].isin(races), "Other")
    return replace(part, sensitive_features=groups.assign(race=race))


def _flip(part: Part, share: float, rng: np.random.Generator) -> Part:
    """Return the rows with the group of a share of them changed, in two groups."""
    (name,) = part.sensitive_features.columns
    groups = part.sensitive_features[name].to_numpy()
    first, second = np.unique(groups)
    other = np.where(groups == first, second, first)
    is_flipped = rng.random(len(groups)) < share
    flipped = pd.DataFrame({name: np.where(is_flipped, other, groups)})
    return replace(part, sensitive_features=flipped)


Loader = Callable[[dict[str, Any], Size, np.random.Generator, int], Parts]
LOADERS: dict[str, Loader] = {
    "adult": _adult,
    "compas": _compas,
    "german": _german,
    "acs_income": _acs_income,
}
