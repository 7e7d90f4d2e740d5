"""Models of LightGBM in its own text format, with other values in their leaves.

The format is what ``Booster.save_model`` writes: a head, one block a tree, a tail. The
head says how long each block is.
"""

from collections.abc import Sequence

import numpy as np

from fferm._types import FloatArray
from fferm.boosting.leaves import assign

END_OF_TREES = "end of trees"


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
    head, blocks = split_trees(text)
    tail = text.split(END_OF_TREES, 1)[1]
    n_scores = start.size
    changed = []
    for number, block in enumerate(blocks):
        outputs, values = rounds[number // n_scores]
        score = number % n_scores
        added = float(start[score]) if number < n_scores else 0.0
        changed.append(_with_values(block, outputs[score], values[score], added))
    sizes = " ".join(str(len(block.encode())) for block in changed)
    lines = [
        f"tree_sizes={sizes}" if line.startswith("tree_sizes=") else line
        for line in head.split("\n")
    ]
    named = "\n".join(_with_objective(lines, n_scores))
    return named + "".join(changed) + END_OF_TREES + tail


def split_trees(text: str) -> tuple[str, list[str]]:
    """Return the head of a model's text, and the block of each tree."""
    head, *blocks = text.split(END_OF_TREES, 1)[0].split("Tree=")
    return head, ["Tree=" + block for block in blocks]


def _with_objective(lines: list[str], n_scores: int) -> list[str]:
    # So that LightGBM predicts probabilities, as of a model that it trained itself.
    name = "binary sigmoid:1" if n_scores == 1 else f"multiclass num_class:{n_scores}"
    rest = [line for line in lines if not line.startswith("objective=")]
    place = next(n for n, line in enumerate(rest) if line.startswith("feature_names="))
    return [*rest[:place], f"objective={name}", *rest[place:]]


def _with_values(
    block: str, output: FloatArray, values: FloatArray, added: float
) -> str:
    lines = block.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("leaf_value="):
            old = np.array(line.partition("=")[2].split(), dtype=np.float64)
            new = values[assign(output, old)] + added
            lines[number] = "leaf_value=" + " ".join(map(repr, new.tolist()))
    return "\n".join(lines)
