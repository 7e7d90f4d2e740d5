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
from numpy.typing import NDArray

import fferm.boosting._kernels as kernels
from fferm._typing import FloatArray, IntArray, Table
from fferm.boosting.newton import Descent
from fferm.boosting.objective import ScoreObjective, scores_of
from fferm.errors import (
    InvalidParameterError,
    PersistenceError,
    UnknownNameError,
    missing_package,
)
from fferm.registry import close_name
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
# The lines of a tree in LightGBM's text format: their numbers, and how many there are.
TREE_LINES: Mapping[str, tuple[type, str]] = {
    "num_leaves": (int, "one"),
    "num_cat": (int, "one"),
    "split_feature": (int, "splits"),
    "split_gain": (float, "splits"),
    "threshold": (float, "splits"),
    "decision_type": (int, "splits"),
    "left_child": (int, "splits"),
    "right_child": (int, "splits"),
    "leaf_value": (float, "leaves"),
    "leaf_weight": (float, "leaves"),
    "leaf_count": (int, "leaves"),
    "internal_value": (float, "splits"),
    "internal_weight": (float, "splits"),
    "internal_count": (int, "splits"),
    "cat_boundaries": (int, "sets"),
    "cat_threshold": (int, "words"),
    "is_linear": (int, "one"),
    "shrinkage": (float, "one"),
}
# Sums of larger leaves overflow.
LARGEST_LEAF = 1e200
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


def check_tree_params(params: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """Raise for parameters that LightGBM does not know, or refuses."""
    known = lgb.basic._ConfigAliases._get_all_param_aliases()
    names = {*known, *(alias for others in known.values() for alias in others)}
    for name in named:
        if name not in names:
            close = close_name(name, names)
            hint = f"Did you mean {close!r}? " if close else ""
            raise UnknownNameError(
                f"lightgbm_params has {name!r}, which LightGBM does not know. {hint}"
                "Correct it, or leave it out."
            )
    try:
        rows = lgb.Dataset(np.arange(4.0)[:, None], np.arange(4), params=dict(params))
        lgb.Booster({**params, "objective": "none"}, rows)
    except lgb.basic.LightGBMError as error:
        reason = str(error).split(" at ")[0]
        raise InvalidParameterError(
            f"lightgbm_params={dict(named)!r} is refused by LightGBM ({reason})."
        ) from error


def aliases(name: str) -> set[str]:
    """Return all names of a parameter of LightGBM."""
    return {str(alias) for alias in lgb.basic._ConfigAliases.get(name)}


def read_booster(text: str, n_scores: int, n_features: int) -> lgb.Booster:
    """Return the booster of a text in LightGBM's format; raise if it is not sound.

    LightGBM trusts what it reads: a wrong number may crash the process, or keep it for
    ever. It only sees trees that are written here, from numbers that were checked.

    Parameters
    ----------
    text
        The model, as a file holds it.
    n_scores, n_features
        Trees of a round, and columns of X.
    """
    head, blocks = split_trees(text)
    tail = text[len(head) + sum(map(len, blocks)) :]
    n_more, number, name = n_features - 1, "[-+.e0-9]+", r"[\w.+-]+"
    info = rf"(?:none|\[{number}:{number}\]|[-:0-9]+)"
    expected = (
        f"tree\nversion=v4\nnum_class={n_scores}\nnum_tree_per_iteration={n_scores}\n"
        f"label_index=0\nmax_feature_idx={n_more}\n"
        f"objective=(?:binary sigmoid:{number}|multiclass num_class:{n_scores})\n"
        f"feature_names={name}(?: {name}){{{n_more}}}\n"
        f"feature_infos={info}(?: {info}){{{n_more}}}\n"
        "tree_sizes=([0-9 ]+)\n\n"
        f"end of trees\n\nfeature_importances:\n(?:{name}={number}\n)*+\nparameters:\n"
        r"(?:\[(?!linear_tree: [^0])\w+: [^\r\n\0]*\]\n)*+\nend of parameters\n\n"
        r"pandas_categorical:[^\r\n\0]*\n"
    )
    match = re.fullmatch(expected, head + tail)
    sizes = [str(len(block)) for block in blocks]
    if not match or match[1].split() != sizes or len(blocks) % n_scores or not blocks:
        raise PersistenceError(
            f"booster_ must be a text of LightGBM's format 4 for {n_features} features "
            f"and {n_scores} trees a round; this is not."
        )
    trees = [_write_tree(n, block, n_features) for n, block in enumerate(blocks)]
    listed = " ".join(str(len(tree)) for tree in trees)
    head = f"{head[: match.start(1)]}{listed}\n\n"
    return lgb.Booster(model_str=head + "".join(trees) + tail)


def _write_tree(n: int, block: str, n_features: int) -> str:
    # The text of a tree, written from its numbers if they lead every row to a leaf.
    lines = [line.partition("=") for line in block.rstrip("\n").split("\n")]
    has_sets = any(key == "num_cat" and value != "0" for key, _, value in lines)
    names = [key for key in TREE_LINES if has_sets or not key.startswith("cat_")]
    is_sound = [key for key, _, _ in lines] == ["Tree", *names]
    if is_sound:
        tree = {
            key: np.array([*map(TREE_LINES[key][0], value.split())])
            for key, _, value in lines[1:]
        }
        is_sound = _has_sizes(tree) and _is_sound(tree, n_features)
    if not is_sound:
        raise PersistenceError(
            f"booster_: tree {n} does not lead every row of {n_features} features to "
            "a leaf. Get the file from its source again."
        )
    written = [f"{key}={' '.join(map(repr, tree[key].tolist()))}\n" for key in names]
    return f"Tree={n}\n{''.join(written)}\n\n"


def _has_sizes(tree: Mapping[str, NDArray[Any]]) -> bool:
    n_leaves, n_sets = (sum(tree[name].tolist()) for name in ("num_leaves", "num_cat"))
    last = tree["cat_boundaries"].tolist()[-1:] if n_sets else []
    sizes = {"one": 1, "splits": n_leaves - 1, "leaves": n_leaves}
    sizes |= {"sets": n_sets + 1, "words": sum(last)}
    return all(
        numbers.size == sizes[TREE_LINES[key][1]]
        # LightGBM writes no weight of a leaf that is alone.
        or (key == "leaf_weight" and n_leaves == 1 and not numbers.size)
        for key, numbers in tree.items()
    )


def _is_sound(tree: Mapping[str, NDArray[Any]], n_features: int) -> bool:
    n_splits, how = tree["left_child"].size, tree["decision_type"]
    children = np.concatenate([tree["left_child"], tree["right_child"]])
    column, ends = tree["split_feature"], tree.get("cat_boundaries", np.zeros(1))
    whole = [tree[key] for key in tree if TREE_LINES[key][0] is int]
    finite = [tree[key] for key in tree if key != "threshold"]
    # Each leaf n, as -n - 1, and each node but the first is the child of one node, and
    # nodes come before their children. The split of categories n has the threshold n.
    checks = (
        np.sort(children) == np.r_[-n_splits - 1 : 0, 1:n_splits][: children.size],
        (children < 0) | (children > np.tile(np.arange(n_splits), 2)),
        (column >= 0) & (column < n_features),
        (how >= 0) & (how < 12),  # the last bits: how values are missing, 0 to 2
        np.array_equal(tree["threshold"][how % 2 == 1], np.arange(ends.size - 1)),
        (ends[0] == 0) & (np.diff(ends) >= 0),
        tree.get("cat_threshold", np.zeros(0)) >= 0,
        tree["is_linear"] == 0,
        # A threshold of infinity tells missing values from all others.
        ~np.isnan(tree["threshold"]),
        np.abs(np.concatenate(whole)) < 2.0**32,
        np.abs(np.concatenate(finite)) <= LARGEST_LEAF,
    )
    return all(map(np.all, checks))


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
