"""Rounds of boosting: LightGBM grows the trees, fferm sets the values of leaves.

This is the only module that calls LightGBM. A tree is grown along the gradient of the
loss plus the *multiplier* times that of the table, and its leaves then get the values
of a Newton step over leaves. The multiplier is the payoff to which the last Newton step
led in its linear model: the payoff of the table itself jumps with every change of the
table, the more the larger the weight, and trees would be spent on the jumps. The result
is a plain booster; the fairness was in the training alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fferm.boosting._kernels as kernels
from fferm._typing import FloatArray, IntArray, Table
from fferm.boosting.newton import Descent
from fferm.boosting.objective import ScoreObjective, scores_of
from fferm.errors import missing_package
from fferm.solvers.base import Callback, EarlyStopping, Monitor, Record, Result

try:
    import lightgbm as lgb
except (ImportError, OSError) as error:
    user = "FairBoostingClassifier"
    raise missing_package(user, "lightgbm", "boosting", error) from error

# What LightGBM adds to the curvature of leaves below a split of categories.
CATEGORY_REGULARISATION = 10.0
END_OF_TREES = "end of trees"
LEAF_VALUES = "\nleaf_value="
# Binned rows: those that trees are grown on, and those that are only scored.
TreeData: TypeAlias = tuple[lgb.Dataset, lgb.Dataset | None]


class Start(NamedTuple):
    """Trees to continue after, and their scores.

    Attributes
    ----------
    text
        The model in LightGBM's text format.
    scores, held_out
        (n_scores, n) scores of the rows that trees are grown on, and of held-out rows
        if there are some.
    """

    text: str
    scores: FloatArray
    held_out: FloatArray | None = None


@dataclass(frozen=True)
class Grown:
    """A trained booster, and how training went.

    ``scores`` are those of the rows that trees were grown on, and ``dual`` the optimal
    dual of a penalty there; None if rounds were dropped.
    """

    booster: lgb.Booster
    scores: FloatArray | None
    dual: FloatArray | None
    history: tuple[Record, ...]
    n_rounds: int
    result: Result


def bin_rows(
    X: Table,
    y: IntArray,
    weight: FloatArray,
    columns: tuple[list[str], list[int]],
    params: Mapping[str, Any],
    held_out: Table = None,
) -> TreeData:
    """Return rows as LightGBM takes them, and those that are only scored or None.

    Parameters
    ----------
    X, y, weight
        The rows that trees are grown on.
    columns
        The names of all columns, and the positions of those that hold categories.
    params
        Parameters of LightGBM, those of bins among them.
    held_out
        Features of the rows that are only scored.
    """
    train = lgb.Dataset(
        X,
        label=y,
        weight=None if np.all(weight == 1) else weight,
        feature_name=columns[0],
        categorical_feature=columns[1] or "auto",
        free_raw_data=False,
        params=dict(params),
    )
    if held_out is None:
        return train, None
    return train, lgb.Dataset(held_out, reference=train, params=dict(params))


def is_constant(rows: lgb.Dataset) -> bool:
    """Return whether no feature has two values, so that there is nothing to split."""
    n_features = rows.construct().num_feature()
    return all(rows.feature_num_bin(n) <= 1 for n in range(n_features))


def aliases(name: str) -> set[str]:
    """Return all names of a parameter of LightGBM."""
    return {str(alias) for alias in lgb.basic._ConfigAliases.get(name)}


def read_booster(text: str) -> lgb.Booster:
    """Return the booster of a text in LightGBM's format."""
    return lgb.Booster(model_str=text)


def grow(
    rounds: "PlainRounds",
    n_rounds: int,
    callbacks: tuple[Callback, ...] = (),
    criterion: Callable[[FloatArray], float] | None = None,
    patience: int = 1,
) -> Grown:
    """Return a booster of all rounds, or of those up to the best on held-out rows.

    Parameters
    ----------
    rounds
        What adds a round, of one tree per score.
    n_rounds
        How many at most.
    callbacks
        Functions of the record of a round.
    criterion
        Early stopping: a function of the (n_scores, n) scores of held-out rows; less is
        better. None runs all rounds.
    patience
        Stop after this many rounds without improvement.
    """
    monitor = Monitor(callbacks=callbacks)
    stopping, kept = EarlyStopping(patience), 0
    result = Result.schedule_completed
    for n in range(1, n_rounds + 1):
        record = rounds.advance()
        if record is None:
            result = Result.nothing_gained
            break
        if criterion is not None:
            record["held_out"] = criterion(rounds.held_out_scores())
            kept = n if stopping.update([record["held_out"]])[0] else kept
        if monitor.record(**record) or stopping.is_over:
            result = monitor.stopped or Result.nothing_gained
            break
    n_grown = len(monitor.history)
    kept = kept or n_grown  # without early stopping, or if no round could be judged
    booster = lgb.Booster(model_str=rounds.text(kept))
    scores, dual = rounds.scores_and_dual() if kept == n_grown else (None, None)
    return Grown(booster, scores, dual, tuple(monitor.history), kept, result)


class PlainRounds:
    """Boosting of the loss alone, with LightGBM's own objective.

    Parameters
    ----------
    n_classes
        Number of classes.
    data
        Binned rows.
    params
        Parameters of LightGBM.
    start
        Trees to continue after.
    """

    has_own_loss = True  # LightGBM takes the derivatives of the loss itself

    def __init__(
        self,
        n_classes: int,
        data: TreeData,
        params: Mapping[str, Any],
        start: Start | None = None,
    ) -> None:
        self._n_scores = 1 if n_classes == 2 else n_classes
        self._start = start
        train, held_out = data
        params = {**params, "objective": "none"}
        if self.has_own_loss:
            params["objective"] = "binary" if n_classes == 2 else "multiclass"
            params["metric"] = params["objective"]  # its loss
            if start is not None:
                train.set_init_score(start.scores.reshape(-1))
                if held_out is not None and start.held_out is not None:
                    held_out.set_init_score(start.held_out.reshape(-1))
        if self._n_scores > 1:
            # LightGBM calls the number of trees per round the number of classes.
            params["num_class"] = self._n_scores
        self._booster = lgb.Booster(params, train)
        if held_out is not None:
            self._booster.add_valid(held_out, "held out")
        # An empty round counts only if there would be no tree at all without it.
        self._needs_tree = start is None
        # For each round, the outputs that LightGBM gave the leaves of each tree, and
        # our values, if there are some.
        self._rounds: list[tuple[list[FloatArray], list[FloatArray]]] = []
        # The scores before the first tree, which takes them in.
        self._first = np.zeros(self._n_scores)

    def advance(self) -> Record | None:
        """Add a round; return its record, None if there was nothing to split."""
        if self._booster.update() and not self._needs_tree:
            return None
        self._needs_tree = False
        loss = float(self._booster.eval_train()[0][2])
        return {"objective": loss, "loss": loss, "penalty": 0.0, "n_halvings": 0.0}

    def scores_and_dual(self) -> tuple[FloatArray, FloatArray | None]:
        """Return the (n_scores, n) scores after all rounds, and the dual there."""
        # LightGBM gives its own as probabilities.
        return scores_of(self._read_scores(self._booster.eval_train)), None

    def held_out_scores(self) -> FloatArray:
        """Return the (n_scores, n) scores of the held-out rows."""
        return scores_of(self._read_scores(self._booster.eval_valid))

    def text(self, n_rounds: int) -> str:
        """Return the model of the first rounds in LightGBM's text format."""
        text = str(self._booster.model_to_string(num_iteration=n_rounds))
        if self._rounds:
            text = rewrite_leaves(text, self._rounds, self._first)
        if self._start is None:
            return text
        return join_texts(self._start.text, text) if n_rounds else self._start.text

    def _read_scores(self, evaluate: Callable[..., Any]) -> FloatArray:
        # LightGBM's own scores, a view that it writes into again. The only public way
        # to them is a metric.
        read: list[FloatArray] = []

        def keep(scores: FloatArray, data: lgb.Dataset) -> tuple[str, float, bool]:
            read.append(np.ascontiguousarray(scores.T, dtype=np.float64))
            return "none", 0.0, True

        evaluate(feval=keep)
        return read[0].reshape(self._n_scores, -1)


class FairRounds(PlainRounds):
    """Boosting of loss and penalty."""

    has_own_loss = False

    def __init__(
        self,
        objective: ScoreObjective,
        data: TreeData,
        params: Mapping[str, Any],
        start: Start | None = None,
        *,
        is_calibrated: bool = True,
    ) -> None:
        super().__init__(objective.n_classes, data, params, start)
        self._params, self._objective = params, objective
        if start is None:
            # Probabilities are the shares of labels.
            mass = np.bincount(objective.y, objective.weight, objective.n_classes)
            share = mass / mass.sum()
            odds = share[1:] / share[:1] if self._n_scores == 1 else share
            self._first = np.log(odds)
            scores = np.repeat(self._first[:, None], objective.y.size, axis=1)
        else:
            scores = start.scores.copy()
        self._descent = Descent(objective, scores, is_calibrated)
        self._payoff: FloatArray | None = None
        # LightGBM's scores, those of its outputs.
        self._grown = np.zeros_like(scores)
        self._held_out: tuple[FloatArray, FloatArray] | None = None  # and those here

    def advance(self) -> Record | None:
        """Grow trees along the gradient, and take a Newton step over their leaves."""
        descent = self._descent
        payoff = descent.payoff if self._payoff is None else self._payoff
        gradients = self._objective.gradients(descent.at, payoff)
        first, second = (a[0] if self._n_scores == 1 else a.T for a in gradients)
        is_empty = self._booster.update(fobj=lambda *_: (first, second))
        if is_empty and not self._needs_tree:
            return None
        self._needs_tree = False
        grown = self._read_scores(self._booster.eval_train)
        leaves, sums = self._objective.gather(descent.at, self._grown, grown)
        rate, added = (float(self._params[n]) for n in ("learning_rate", "lambda_l2"))
        output = np.concatenate([tree.output for tree in leaves])
        by_leaf = np.full_like(output, added)
        if "bagging_fraction" not in self._params:  # outputs are those of all rows
            # LightGBM adds to the curvature of a leaf what its parameters say, and more
            # below splits of categories. Its output of a leaf shows how much it was.
            weight = self._objective.objective.fairness_weight
            pulled = (weight * self._objective.total) * payoff.ravel()
            bounds = added, added + CATEGORY_REGULARISATION
            kernels.regularisation_into(sums, pulled, output, rate, *bounds, by_leaf)
        step = descent.newton_step(sums, rate, by_leaf)
        values, n_halvings = descent.take(leaves, step)
        self._payoff = step.payoff
        self._rounds.append(([tree.output for tree in leaves], values))
        return {
            "objective": descent.value,
            "loss": descent.at.loss,
            "penalty": descent.penalty,
            "n_halvings": float(n_halvings),
        }

    def scores_and_dual(self) -> tuple[FloatArray, FloatArray | None]:
        """Return the scores with our values in the leaves."""
        at = self._descent.at
        duals = self._objective.penalty.duals(at.cells)
        return at.scores, np.concatenate(duals, axis=2)

    def held_out_scores(self) -> FloatArray:
        """Return the scores with our values in the leaves."""
        grown = self._read_scores(self._booster.eval_valid).copy()
        if self._held_out is None:
            scores = np.zeros_like(grown) + self._first[:, None]
            if self._start is not None and self._start.held_out is not None:
                scores += self._start.held_out
            last = np.zeros_like(grown)
        else:
            last, scores = self._held_out
        moved = grown - last
        for score, (output, values) in enumerate(zip(*self._rounds[-1], strict=True)):
            scores[score] += values[nearest(output, moved[score])]
        self._held_out = grown, scores
        return scores


def nearest(output: FloatArray, values: FloatArray) -> IntArray:
    """Return the position of the nearest output to each value."""
    order = np.argsort(output)
    middle = (output[order][1:] + output[order][:-1]) / 2
    return np.asarray(order[np.searchsorted(middle, values)], dtype=np.int64)


def rewrite_leaves(
    text: str,
    rounds: Sequence[tuple[Sequence[FloatArray], Sequence[FloatArray]]],
    start: FloatArray,
) -> str:
    """Return the text of a model with other values in its leaves.

    The format is that of ``Booster.save_model``: a head, a block per tree, a tail. The
    head contains the length of each block.

    Parameters
    ----------
    text
        What LightGBM wrote for as many rounds.
    rounds
        For each round, the outputs of the leaves of each tree as LightGBM set them, and
        the new values.
    start
        (n_scores,) the scores before the first round; the first trees take them in.
    """
    head, *parts = text.split(LEAF_VALUES)
    n_scores = start.size
    sizes = head.split("\ntree_sizes=", 1)[1].split("\n", 1)[0].split()
    changed, new_sizes = [], []
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        outputs, values = rounds[number // n_scores]
        score = number % n_scores
        added = float(start[score]) if number < n_scores else 0.0
        old, rest = part.split("\n", 1)
        output = np.array(old.split(), dtype=np.float64)
        leaf_values = values[score][nearest(outputs[score], output)] + added
        new = " ".join(map(repr, leaf_values.tolist()))
        changed.append(f"{new}\n{rest}")
        new_sizes.append(int(size) + len(new) - len(old))
    # With an objective LightGBM predicts probabilities, as for a model of its own.
    name = "binary sigmoid:1" if n_scores == 1 else f"multiclass num_class:{n_scores}"
    head = re.sub("\nobjective=.*", "", head)
    head = head.replace("\nfeature_names=", f"\nobjective={name}\nfeature_names=", 1)
    listed = " ".join(map(str, new_sizes))
    head = re.sub("\ntree_sizes=.*", f"\ntree_sizes={listed}", head)
    return LEAF_VALUES.join([head, *changed])


def join_texts(before: str, after: str) -> str:
    """Return the text of a model with the trees of one and then of another."""
    head, blocks = split_trees(after)
    blocks = [*split_trees(before)[1], *blocks]
    numbered = [
        "\n".join([f"Tree={number}", *block.split("\n")[1:]])
        for number, block in enumerate(blocks)
    ]
    tail = after.split(END_OF_TREES, 1)[1]
    sizes = " ".join(str(len(block)) for block in numbered)
    head = re.sub("\ntree_sizes=.*", f"\ntree_sizes={sizes}", head)
    return head + "".join(numbered) + END_OF_TREES + tail


def split_trees(text: str) -> tuple[str, list[str]]:
    """Return the head of a model's text, and the block of each tree."""
    head, *blocks = text.split(END_OF_TREES, 1)[0].split("Tree=")
    return head, ["Tree=" + block for block in blocks]
