"""The small linear algebra of a round: sums of leaves, the Newton step, offsets.

A dozen calls of NumPy on a few numbers each would take longer, after LightGBM has had
the cache to itself, than a pass over all rows.

Arrays in, arrays changed in place.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math

from fferm._jit import kernel


@kernel
def are_apart(keys):
    """Return whether no two whole numbers are within 2 of each other."""
    for a in range(keys.size):
        for b in range(a):
            if abs(keys[a] - keys[b]) <= 2:
                return False
    return True


@kernel
def leaf_sums_into(sums, member, gradient, diagonal, moved):
    """Add up over kinds of rows, and over the cells that kinds stand in.

    Parameters
    ----------
    sums
        (n_leaves, n_kinds, 2 + n_classes), as passes over rows leave them: nothing yet
        of the first class.
    member
        (n_cells, n_kinds): how a cell moves with a kind of rows.
    gradient, diagonal
        (n_leaves,) room for derivatives of the loss.
    moved
        (n_cells * n_classes, n_leaves) room for how tables move.
    """
    n_cells, n_kinds = member.shape
    n_classes = sums.shape[2] - 2
    for leaf in range(gradient.size):
        gradient[leaf], diagonal[leaf] = 0.0, 0.0
        for k in range(n_kinds):
            gradient[leaf] += sums[leaf, k, 0]
            diagonal[leaf] += sums[leaf, k, 1]
        for q in range(n_cells):
            first = q * n_classes
            moved[first, leaf] = 0.0  # probabilities sum to 1
            for j in range(1, n_classes):
                total = 0.0
                for k in range(n_kinds):
                    total += member[q, k] * sums[leaf, k, 2 + j]
                moved[first + j, leaf] = total
                moved[first, leaf] -= total


@kernel
def newton_into(gradient, diagonal, moved, bowl, rate, root, system, values, payoff):
    """Write the Newton step over leaves, and the payoff that it leads to.

    Returns how fast the objective falls along it.

    Parameters
    ----------
    gradient, diagonal, moved
        Derivatives by the values of leaves.
    bowl
        A `Bowl`: derivatives by the tables.
    rate
        The share of a step that is taken where the table does not move.
    root, system
        (n, n_leaves) and (n, n) room, with n the cells of all classes.
    values, payoff
        (n_leaves,) and (n_cells, n_classes) room for the results.
    """
    n, n_leaves = moved.shape
    lam, total = bowl.weight, bowl.total
    pull, found = bowl.payoff.reshape(-1), payoff.reshape(-1)
    for u in range(n_leaves):
        slope = 0.0
        for q in range(n):
            slope += pull[q] * moved[q, u]
        values[u] = gradient[u] / total + lam * slope
    for q in range(n):
        root[q, :] = 0.0
        for c in range(n):
            if bowl.root[q, c] != 0:
                for u in range(n_leaves):
                    root[q, u] += bowl.root[q, c] * moved[c, u]
    scale = rate * total
    for q in range(n):
        found[q] = 0.0
        for u in range(n_leaves):
            found[q] += root[q, u] * values[u] * scale / diagonal[u]
        for c in range(q + 1):
            shared = 0.0
            for u in range(n_leaves):
                shared += root[q, u] * root[c, u] * scale / diagonal[u]
            system[q, c] = lam * shared + (1.0 if q == c else 0.0)
    _solve(system, found)
    slope = 0.0
    for u in range(n_leaves):
        held = 0.0
        for q in range(n):
            held += lam * found[q] * root[q, u]
        down = values[u]
        values[u] = (held - down) * scale / diagonal[u]
        slope += down * values[u]
    _lead_into(root, bowl.root, values, pull, found)
    return slope


@kernel
def _solve(system, found):
    # Cholesky's factor takes the place of the lower half.
    n = found.size
    for i in range(n):
        for j in range(i + 1):
            rest = system[i, j]
            for k in range(j):
                rest -= system[i, k] * system[j, k]
            system[i, j] = math.sqrt(rest) if i == j else rest / system[j, j]
    for i in range(n):
        for k in range(i):
            found[i] -= system[i, k] * found[k]
        found[i] /= system[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            found[i] -= system[k, i] * found[k]
        found[i] /= system[i, i]


@kernel
def _lead_into(root, bowl_root, values, pull, found):
    for q in range(found.size):
        found[q] = pull[q]
    for q in range(found.size):
        change = 0.0
        for u in range(values.size):
            change += root[q, u] * values[u]
        for c in range(found.size):
            found[c] += bowl_root[q, c] * change


@kernel
def regularisation_into(sums, pulled, output, rate, least, most, added):
    """Write what LightGBM added to the curvature of each leaf, by its own output.

    Parameters
    ----------
    sums
        A `LeafSums`.
    pulled
        (n_cells * n_classes,) what the trees were aimed by, besides the loss.
    output
        (n_leaves,) values that LightGBM gave.
    rate
        The learning rate.
    least, most
        Bounds.
    added
        (n_leaves,) room for the result.
    """
    for u in range(output.size):
        aim = sums.gradient[u]
        for q in range(pulled.size):
            aim += pulled[q] * sums.moved[q, u]
        whole = -rate * aim / output[u] if output[u] != 0 else 0.0
        added[u] = min(max(whole - sums.diagonal[u], least), most)


@kernel
def follow_into(cells, decided, ends, rate, least_decided, offsets):
    """Move offsets a step nearer to those that lead to the tables of decisions.

    Parameters
    ----------
    cells, decided
        (n_cells, n_classes) cells of the tables of probabilities and of decisions.
    ends
        Where the cells of each table end.
    rate
        How much of the way.
    least_decided
        Decisions are trusted in full where every class is decided at least so often,
        as a share of its probability.
    offsets
        (n_cells, n_classes) the last ones, changed.
    """
    begin = 0
    for end in ends:
        trust = 1.0
        for j in range(cells.shape[1]):
            mass, found = 0.0, 0.0
            for q in range(begin, end):
                mass += cells[q, j]
                found += decided[q, j]
            if mass > 0:
                trust = min(trust, found / (least_decided * mass))
        for q in range(begin, end):
            room = 1.0
            for j in range(cells.shape[1]):
                goal = trust * (decided[q, j] - cells[q, j])
                offsets[q, j] += rate * (goal - offsets[q, j])
                # Every class keeps a tenth of its own.
                if offsets[q, j] < 0:
                    room = min(room, 0.9 * cells[q, j] / -offsets[q, j])
            for j in range(cells.shape[1]):
                offsets[q, j] *= room
        begin = end
