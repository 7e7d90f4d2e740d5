"""The steps of a parity controller, one row after another.

Kernels take arrays and change them in place. They are compiled without reordering or
contraction, so that a stream that is resumed elsewhere goes on with the same decisions.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, C901, PLR0912, PLR0913, PLR0917

from typing import Any

from fferm._jit import cached

IN_ORDER: Any = {"error_model": "numpy", "_nrt": False, "nogil": True}

# Where the target rates come from; see `ParityController.target_rate`.
GIVEN, LEARNED, MODEL = 0, 1, 2
# Rows for which the model's rate counts before what was learned replaces it.
PRIOR_ROWS = 200.0
# Rows of probabilities sum to 1 up to this.
SUM_TOLERANCE = 1e-3


def _are_probabilities(score):
    """Return whether all scores are between 0 and 1, and rows of several sum to 1."""
    n_rows, n_columns = score.shape
    for i in range(n_rows):
        total = 0.0
        for j in range(n_columns):
            if not (0.0 <= score[i, j] <= 1.0):
                return False
            total += score[i, j]
        if n_columns > 1 and abs(total - 1.0) > SUM_TOLERANCE:
            return False
    return True


def _follow(score, cell, step, source, target, counts, expected, totals, code, decides):
    """Decide row after row, and move the thresholds of its group after each.

    Parameters
    ----------
    score
        (n_rows, n_columns) probabilities; one column is that of the second class.
    cell
        (n_rows,) the group of each row.
    step, source, target
        The step of the thresholds, where target rates come from, and those given.
    counts
        (n_groups, 1 + n_columns) rows, and how many of them were given each class.
    expected
        (n_groups, n_columns) the sum of the target rates over these rows.
    totals
        (1 + 2 n_columns,) rows of all groups, decisions, and the model's decisions.
    code
        (n_rows,) the decisions.
    decides
        Whether decisions are made here, or were made before.
    """
    n_rows, n_columns = score.shape
    first = 1 if n_columns == 1 else 0  # the class of the first column
    for i in range(n_rows):
        k, chosen, plain = cell[i], 0, 0
        if n_columns == 1:
            bar = 0.5 + step * (counts[k, 1] - expected[k, 0])
            chosen = 1 if score[i, 0] > bar else 0
            plain = 1 if score[i, 0] > 0.5 else 0
        else:
            best = -1e300
            for j in range(n_columns):
                worth = score[i, j] - step * (counts[k, 1 + j] - expected[k, j])
                if worth > best:
                    best, chosen = worth, j
                if score[i, j] > score[i, plain]:
                    plain = j
        if decides:
            code[i] = chosen
        else:
            chosen = code[i]
        counts[k, 0] += 1
        totals[0] += 1
        if chosen >= first:
            counts[k, 1 + chosen - first] += 1
            totals[1 + chosen - first] += 1
        if plain >= first:
            totals[1 + n_columns + plain - first] += 1
        for j in range(n_columns):
            if source == GIVEN:
                expected[k, j] = target[j] * counts[k, 0]
                continue
            rate = totals[1 + n_columns + j] / totals[0]
            if source == LEARNED:
                rate = (PRIOR_ROWS * rate + totals[1 + j]) / (PRIOR_ROWS + totals[0])
            expected[k, j] += rate


are_probabilities: Any = cached(_are_probabilities, **IN_ORDER)
follow: Any = cached(_follow, **IN_ORDER)
