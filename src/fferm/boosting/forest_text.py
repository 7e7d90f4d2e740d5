"""The trees of a booster as arrays, read from LightGBM's text format."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray
from fferm.boosting.model_text import split_trees


class Forest(NamedTuple):
    """All trees of a booster, one after another.

    Attributes
    ----------
    n_features, n_scores
        What it takes, and trees a round.
    n_leaves, node_begin, leaf_begin
        (n_trees,) leaves of each tree, its first split and its first leaf.
    feature, kind, threshold
        (n_nodes,) what splits ask.
    child
        (n_nodes, 2) left and right: splits of the tree, or minus a leaf less 1.
    leaf_value
        (n_leaves of all trees,).
    category_set
        (n_nodes,) sets of categories that go left.
    category_begin, category_bits
        The sets, 32 categories a number.
    """

    n_features: int
    n_scores: int
    n_leaves: IntArray
    node_begin: IntArray
    leaf_begin: IntArray
    feature: IntArray
    kind: IntArray
    threshold: FloatArray
    child: IntArray
    leaf_value: FloatArray
    category_set: IntArray
    category_begin: IntArray
    category_bits: NDArray[np.uint32]


def read_forest(text: str) -> Forest | None:
    """Return the trees of a model's text, None where leaves hold more than a number."""
    head, blocks = split_trees(text)
    trees = [_fields(block) for block in blocks]
    if any(tree.get("is_linear", "0") != "0" for tree in trees):
        return None
    said = _fields(head)
    n_leaves = np.array([int(tree["num_leaves"]) for tree in trees], dtype=np.int64)
    # Trees count their own sets of categories; here the sets of all stand in one row.
    sizes = [np.diff(_whole([tree], "cat_boundaries")) for tree in trees]
    n_sets = np.array([size.size for size in sizes], dtype=np.int64)
    threshold = _numbers(trees, "threshold")
    first_set = np.repeat(np.cumsum(n_sets) - n_sets, n_leaves - 1)
    kind = _whole(trees, "decision_type")
    child = [_whole(trees, name) for name in ("left_child", "right_child")]
    return Forest(
        int(said["max_feature_idx"]) + 1,
        int(said["num_tree_per_iteration"]),
        n_leaves,
        np.cumsum(n_leaves - 1) - (n_leaves - 1),
        np.cumsum(n_leaves) - n_leaves,
        _whole(trees, "split_feature"),
        kind,
        threshold,
        np.stack(child, axis=1),
        _numbers(trees, "leaf_value"),
        np.where(kind & 1, first_set + np.where(kind & 1, threshold, 0), 0).astype(
            np.int64
        ),
        np.cumsum(np.concatenate([[0], *sizes])).astype(np.int64),
        _whole(trees, "cat_threshold").astype(np.uint32),
    )


def _fields(block: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in block.split("\n") if "=" in line)


def _numbers(trees: Sequence[dict[str, str]], name: str) -> FloatArray:
    joined = " ".join(tree.get(name, "") for tree in trees)
    return np.array(joined.split(), dtype=np.float64)


def _whole(trees: Sequence[dict[str, str]], name: str) -> IntArray:
    joined = " ".join(tree.get(name, "") for tree in trees)
    return np.array(joined.split(), dtype=np.int64)
