"""The one place that speaks with LightGBM: data, trees, scores, text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table
from fferm.errors import MissingDependencyError

try:
    import lightgbm as lgb
except ImportError as error:
    raise MissingDependencyError(
        "FairBoostingClassifier needs the package lightgbm, which is not installed. "
        'Run: pip install "fferm[boosting]"'
    ) from error


Booster = lgb.Booster


@dataclass(frozen=True)
class Columns:
    """What LightGBM is told of the columns."""

    names: list[str]
    categorical: list[int]


@dataclass(frozen=True)
class TreeData:
    """Binned rows: those that trees are grown on, and those that are only scored."""

    train: lgb.Dataset
    held_out: lgb.Dataset | None = None

    def begun(self, scores: FloatArray, held_out: FloatArray | None) -> "TreeData":
        """Return the same rows with (n_scores, n) scores to begin at."""
        self.train.set_init_score(scores.reshape(-1))
        if self.held_out is not None and held_out is not None:
            self.held_out.set_init_score(held_out.reshape(-1))
        return self

    @property
    def is_flat(self) -> bool:
        """Whether no feature has two values, so that there is nothing to split."""
        n_features = self.train.construct().num_feature()
        return all(self.train.feature_num_bin(n) <= 1 for n in range(n_features))


def bin_rows(
    X: Table,
    y: IntArray,
    weight: FloatArray,
    columns: Columns,
    settings: Mapping[str, Any],
    held_out: Table = None,
) -> TreeData:
    """Return rows as LightGBM takes them.

    Parameters
    ----------
    X, y, weight
        The rows that trees are grown on.
    columns
        Names, and which hold categories.
    settings
        Parameters of LightGBM, those of bins among them.
    held_out
        Features of the rows that are only scored.
    """
    train = lgb.Dataset(
        X,
        label=y,
        weight=None if np.all(weight == 1) else weight,
        feature_name=columns.names,
        categorical_feature=columns.categorical or "auto",
        free_raw_data=False,
        params=dict(settings),
    )
    if held_out is None:
        return TreeData(train)
    rest = lgb.Dataset(held_out, reference=train, params=dict(settings))
    return TreeData(train, rest)


def aliases(setting: str) -> set[str]:
    """Return all names under which LightGBM knows a setting."""
    return {str(name) for name in lgb.basic._ConfigAliases.get(setting)}


def read_booster(text: str) -> lgb.Booster:
    """Return the booster of a text in LightGBM's format."""
    return lgb.Booster(model_str=text)


class Trees:
    """A booster under construction, and the scores that LightGBM itself keeps.

    Parameters
    ----------
    settings
        Parameters of LightGBM.
    data
        Binned rows.
    n_scores
        Trees a round.
    """

    def __init__(self, settings: dict[str, Any], data: TreeData, n_scores: int) -> None:
        self._booster = lgb.Booster(settings, data.train)
        self._n_scores = n_scores
        if data.held_out is not None:
            self._booster.add_valid(data.held_out, "held out")

    def grow(
        self, gradient: NDArray[np.float32], diagonal: NDArray[np.float32]
    ) -> bool:
        """Grow the trees of a round; return whether there was something to split.

        Parameters
        ----------
        gradient, diagonal
            (n_scores, n): a leaf's output is the one over the other.
        """
        shaped = [a[0] if self._n_scores == 1 else a.T for a in (gradient, diagonal)]
        return not self._booster.update(fobj=lambda *_: (shaped[0], shaped[1]))

    def grow_by_objective(self) -> bool:
        """Grow the trees of a round by LightGBM's own objective."""
        return not self._booster.update()

    def train_metric(self) -> float:
        """Return the metric of the settings on the training rows."""
        return float(self._booster.eval_train()[0][2])

    def train_scores(self) -> FloatArray:
        """Return LightGBM's own (n_scores, n) scores of the training rows.

        They are a view of what LightGBM writes into again.
        """
        return self._scores(self._booster.eval_train)

    def held_out_scores(self) -> FloatArray:
        """Return LightGBM's own scores of the held-out rows, a view as well."""
        return self._scores(self._booster.eval_valid)

    def text(self, n_rounds: int) -> str:
        """Return the first rounds in LightGBM's text format."""
        return str(self._booster.model_to_string(num_iteration=n_rounds))

    def _scores(self, evaluate: Any) -> FloatArray:
        # The one public way to the scores: as a metric of them.
        seen: list[FloatArray] = []

        def keep(scores: FloatArray, data: lgb.Dataset) -> tuple[str, float, bool]:
            seen.append(np.ascontiguousarray(scores.T, dtype=np.float64))
            return "none", 0.0, True

        evaluate(feval=keep)
        return seen[0].reshape(self._n_scores, -1)
