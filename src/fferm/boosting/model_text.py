"""Models of LightGBM in its own text format, with other values in their leaves.

The format is what ``Booster.save_model`` writes: a head, one block a tree, a tail. The
head says how long each block is.
"""

from collections.abc import Sequence

import numpy as np

from fferm._typing import FloatArray
from fferm.boosting.leaves import assign

END_OF_TREES = "end of trees"
LEAF_VALUES = "\nleaf_value="
NEW_LINE = "\n"


def rewrite(
    text: str,
    rounds: Sequence[tuple[Sequence[FloatArray], Sequence[FloatArray]]],
    start: FloatArray,
) -> str:
    """Return the text of a model whose leaves have other values.

    Parameters
    ----------
    text
        What LightGBM wrote of as many rounds.
    rounds
        Of each round, the outputs of the leaves of each tree as LightGBM set
        them, and the new values.
    start
        (n_scores,) the scores before the first round; the first trees take them in.
    """
    head, *parts = text.split(LEAF_VALUES)
    n_scores = start.size
    changed, sizes = [], []
    for number, (part, size) in enumerate(zip(parts, _sizes(head), strict=True)):
        outputs, values = rounds[number // n_scores]
        score = number % n_scores
        added = float(start[score]) if number < n_scores else 0.0
        old, rest = part.split("\n", 1)
        output = np.array(old.split(), dtype=np.float64)
        found = values[score][assign(outputs[score], output)] + added
        new = " ".join(map(repr, found.tolist()))
        changed.append(f"{new}\n{rest}")
        sizes.append(size + len(new) - len(old))
    named = "\n".join(_with_head(head.split("\n"), sizes, n_scores))
    return LEAF_VALUES.join([named, *changed])


def join(before: str, after: str) -> str:
    """Return the text of a model with the trees of one and then of another."""
    head, blocks = split_trees(after)
    blocks = [*split_trees(before)[1], *blocks]
    numbered = [
        f"Tree={number}\n{block.split(NEW_LINE, 1)[1]}"
        for number, block in enumerate(blocks)
    ]
    sizes = " ".join(str(len(block)) for block in numbered)
    lines = [
        f"tree_sizes={sizes}" if line.startswith("tree_sizes=") else line
        for line in head.split(NEW_LINE)
    ]
    tail = after.split(END_OF_TREES, 1)[1]
    return NEW_LINE.join(lines) + "".join(numbered) + END_OF_TREES + tail


def _sizes(head: str) -> list[int]:
    said = head.split("\ntree_sizes=", 1)[1].split("\n", 1)[0]
    return [int(size) for size in said.split()]


def split_trees(text: str) -> tuple[str, list[str]]:
    """Return the head of a model's text, and the block of each tree."""
    head, *blocks = text.split(END_OF_TREES, 1)[0].split("Tree=")
    return head, ["Tree=" + block for block in blocks]


def _with_head(lines: list[str], sizes: list[int], n_scores: int) -> list[str]:
    # Other sizes, and the objective, so that LightGBM predicts probabilities as of a
    # model that it trained itself.
    name = "binary sigmoid:1" if n_scores == 1 else f"multiclass num_class:{n_scores}"
    said = f"tree_sizes={' '.join(map(str, sizes))}"
    rest = [
        said if line.startswith("tree_sizes=") else line
        for line in lines
        if not line.startswith("objective=")
    ]
    place = next(n for n, line in enumerate(rest) if line.startswith("feature_names="))
    return [*rest[:place], f"objective={name}", *rest[place:]]
