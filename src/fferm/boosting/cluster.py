"""The objective on the workers of a cluster, who add up their tables.

Every worker of XGBoost has some of the rows and knows the weight of all that are alike
in label and groups. ``xgboost.collective`` makes one table and one set of leaves of
theirs, so all take the same step. The booster carries the offsets of `Descent`, so that
training goes on from it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fferm._typing import FloatArray
from fferm.boosting._kernels import RowPass
from fferm.boosting.custom import BoostingObjective, boosting_objective
from fferm.boosting.newton import Descent
from fferm.boosting.objective import (
    SAME_OUTPUT,
    Gradients,
    LeafSums,
    Leaves,
    ScoreObjective,
)
from fferm.data.group_counts import GroupCounts, warn_of_unknown
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    import_extra,
    muted,
)
from fferm.penalty.objective import Penalty

collective = import_extra("xgboost.collective", "xgboost", "Training on a cluster")
TrainingCallback: Any = import_extra("xgboost.callback", "xgboost").TrainingCallback

# What the objective knows between two calls, among the attributes of a booster.
STATE = "fferm"


class SharedScores(ScoreObjective):
    """Loss plus penalty of the rows of all workers, each of whom has some."""

    def row_pass(
        self,
        scores: FloatArray,
        values: Sequence[FloatArray] = (),
        payoff: FloatArray | None = None,
    ) -> RowPass:
        """Return a pass whose loss and tables are those of all rows."""
        at = super().row_pass(scores, values, payoff)
        own = np.concatenate([[at.loss], at.cells.ravel(), at.decided.ravel()])
        loss, *tables = np.split(
            collective.allreduce(own, collective.Op.SUM), [1, 1 + at.cells.size]
        )
        cells, decided = (table.reshape(at.cells.shape) for table in tables)
        return at._replace(loss=float(loss[0]), cells=cells, decided=decided)

    def gather(
        self,
        at: RowPass,
        before: FloatArray,
        after: FloatArray,
        tolerance: float = SAME_OUTPUT,
    ) -> tuple[list[Leaves], LeafSums]:
        """Return the leaves of the own rows, and the sums over those of all rows."""
        leaves, sums = super().gather(at, before, after, tolerance)
        trees = np.repeat(np.arange(len(leaves)), [t.output.size for t in leaves])
        output = np.concatenate([tree.output for tree in leaves])
        unit = tolerance * max(1.0, np.abs(after).max(initial=0.0))
        parts = [
            collective.broadcast((unit, trees, output, *sums), rank)
            for rank in range(collective.get_world_size())
        ]
        units, *columns = zip(*parts, strict=True)
        return leaves, add_leaves(max(units), *columns)


def add_leaves(
    unit: float,
    trees: Sequence[Any],
    output: Sequence[FloatArray],
    gradient: Sequence[FloatArray],
    diagonal: Sequence[FloatArray],
    moved: Sequence[FloatArray],
) -> LeafSums:
    """Return sums over the leaves of all workers; outputs nearly alike are one leaf."""
    tree, value = np.concatenate(trees), np.concatenate(output)
    order = np.lexsort([value, tree])
    is_new = (np.diff(value[order]) > 2 * unit) | (np.diff(tree[order]) > 0)
    begin = np.flatnonzero(np.append(True, is_new))
    return LeafSums(
        *(
            np.ascontiguousarray(
                np.add.reduceat(np.concatenate(part, -1)[..., order], begin, axis=-1)
            )
            for part in (gradient, diagonal, moved)
        )
    )


@dataclass(eq=False, repr=False)
class ClusterObjective(BoostingObjective, TrainingCallback):
    """Gradient and curvature on a worker; also the callback that keeps the state.

    Its labels and rows are one for each kind, and ``label_lower_bound`` of the training
    data says of which kind each row is.
    """

    settings: str = ""
    _model: Any = None

    def __call__(self, scores: FloatArray, data: Any) -> Gradients:
        """Return gradient and curvature in the shape of the scores."""
        if self._model is not None:
            self._resume(self._model, scores, data)
            self._model = None
        return super().__call__(scores, data)

    def before_training(self, model: Any) -> Any:
        """Begin where the last call ended, if the model has trees."""
        self._model = model if model.attr(STATE) else None
        return model

    def after_training(self, model: Any) -> Any:
        """Keep the state with the model."""
        offsets = None if self._descent is None else self._descent.offsets.tolist()
        model.set_attr(fferm=json.dumps({"offsets": offsets, "for": self.settings}))
        return model

    def _resume(self, model: Any, scores: FloatArray, data: Any) -> None:
        self._bound, n = self._bind(data), model.num_boosted_rounds()
        shaped = self._shaped(self._bound, scores)
        self._descent = Descent(self._bound, shaped, self.is_calibrated)
        self._descent.offsets = np.array(json.loads(model.attr(STATE))["offsets"])
        self._last = np.zeros_like(shaped)
        if n > 1:
            # By a copy, because XGBoost keeps the predictions of the training rows.
            part = {"iteration_range": (0, n - 1), "output_margin": True}
            self._last = self._shaped(self._bound, model.copy().predict(data, **part))

    def _bind(self, data: Any) -> ScoreObjective:
        kind = data.get_float_info("label_lower_bound").astype(np.int64)
        y, classes = self._labels.y, self._labels.classes
        if y is None or not np.array_equal(y[kind], data.get_label()):
            raise InvalidInputError(
                "The labels of the training data are not those that were counted. The "
                "data must be the same each time they are read."
            )
        weight = np.asarray(data.get_weight(), dtype=np.float64)
        weight = weight if weight.size else np.ones(kind.size)
        penalty = Penalty(self._objective, self._rows, classes)
        parts = self._objective, y[kind], weight, len(classes), penalty
        return SharedScores(*parts, kind=kind)


def cluster_objective(
    counts: GroupCounts, settings: str, **options: Any
) -> ClusterObjective:
    """Return the objective of rows that were counted.

    Parameters
    ----------
    counts
        The weight of all rows by label and groups; a kind is a cell of these.
    settings
        What a booster must have been trained with, to be trained further.
    **options
        Of `boosting_objective`.
    """
    cells = counts.cells
    columns = zip(*(values for _, values in cells), strict=True)
    groups = dict(zip(counts.columns or (), map(list, columns), strict=True))
    with muted(DataFairnessWarning):  # which counts kinds
        alone = boosting_objective([label for label, _ in cells], groups, **options)
    rows = replace(alone._rows, weight=np.array([*cells.values()]))
    warn_of_unknown(rows)
    known = alone._objective, alone._labels, rows
    return ClusterObjective(
        *known, alone.is_calibrated, alone.learning_rate, settings=settings
    )
