r"""Sums over the cells of tables: products of marginals, payoffs, curvature.

All tables of a penalty stand in one array of cells, (n_cells, n_classes), in the order
attribute, stratum, group; ``shapes`` says how many strata and groups each attribute
has. With few cells, calls of NumPy would take longer than a pass over the rows.

Arrays in, arrays changed in place.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN202, C901, PLR0913, PLR0917

import math

from fferm._jit import kernel

# Nearer to 1 than this, the slope of f over the distance is nothing but rounding.
SECANT_WIDTH = 1e-6


@kernel
def complete_into(sums, membership, mass, cells):
    """Write cells from the sums over kinds; the first class gets what is left.

    Parameters
    ----------
    sums
        (n_classes, n_kinds), or parts of the sums of the second of two classes.
    membership
        (n_cells, n_kinds).
    mass
        (n_cells, 1) weights of all rows in a cell.
    cells
        (n_cells, n_classes) room for the result.
    """
    n_cells, n_classes = cells.shape
    first = 0 if n_classes == 2 else 1
    for q in range(n_cells):
        cells[q, :] = 0.0
        for k in range(membership.shape[1]):
            if membership[q, k] != 0:
                for n in range(first, sums.shape[0]):
                    j = 1 if n_classes == 2 else n
                    cells[q, j] += membership[q, k] * sums[n, k]
        rest = mass[q, 0]
        for j in range(1, n_classes):
            rest -= cells[q, j]
        cells[q, 0] = rest if rest > 0 else 0.0


@kernel
def products_into(cells, shapes, is_sufficiency, product, ratio):
    """Write the products of marginals, and the ratios to them; 1 where both are 0."""
    begin = 0
    for a in range(shapes.shape[0]):
        n_strata, n_groups = shapes[a, 0], shapes[a, 1]
        for r in range(n_strata):
            for k in range(n_groups):
                q = begin + r * n_groups + k
                for j in range(cells.shape[1]):
                    by_group, by_other, mass = _marginals(
                        cells, begin, n_strata, n_groups, r, k, j, is_sufficiency
                    )
                    found = by_group * by_other / mass if mass > 0 else 0.0
                    product[q, j] = found
                    ratio[q, j] = cells[q, j] / found if found > 0 else 1.0
        begin += n_strata * n_groups


@kernel
def _marginals(cells, begin, n_strata, n_groups, r, k, j, is_sufficiency):
    # Two marginals around a cell, and the mass that they are marginals of: of classes
    # and groups within a stratum, or of labels and groups within a predicted class.
    by_group, by_other, mass = 0.0, 0.0, 0.0
    if is_sufficiency:
        for label in range(n_strata):
            for g in range(n_groups):
                value = cells[begin + label * n_groups + g, j]
                by_group += value if g == k else 0.0
                by_other += value if label == r else 0.0
                mass += value
        return by_group, by_other, mass
    for g in range(n_groups):
        for c in range(cells.shape[1]):
            value = cells[begin + r * n_groups + g, c]
            by_group += value if g == k else 0.0
            by_other += value if c == j else 0.0
            mass += value
    return by_group, by_other, mass


@kernel
def independence_into(cells, shapes, counts_one, product, dual, charge, payoff):
    """Write the payoff of demographic parity and its like; return the penalty."""
    value, begin = 0.0, 0
    n_classes = cells.shape[1]
    for a in range(shapes.shape[0]):
        n_strata, n_groups = shapes[a, 0], shapes[a, 1]
        whole = cells[begin : begin + n_strata * n_groups].sum()
        for r in range(n_strata):
            first = begin + r * n_groups
            share, part = 0.0, 0.0
            for q in range(first, first + n_groups):
                for j in range(n_classes):
                    share += cells[q, j]
                    part += cells[q, j] * dual[q, j] - product[q, j] * charge[q, j]
            if share <= 0:  # a stratum of nobody
                payoff[first : first + n_groups, :] = 0.0
                continue
            scale = 1.0 / (share if counts_one else whole)
            value += scale * part
            for j in range(n_classes):
                mean = 0.0
                for q in range(first, first + n_groups):
                    prior = 0.0
                    for c in range(n_classes):
                        prior += cells[q, c]
                    mean += prior / share * charge[q, j]
                for q in range(first, first + n_groups):
                    payoff[q, j] = scale * (dual[q, j] - mean)
        begin += n_strata * n_groups
    return value


@kernel
def sufficiency_into(cells, shapes, kept, product, dual, charge, payoff):
    """Write the payoff of sufficiency; return the penalty.

    ``kept`` is the one predicted class that counts, below 0 for all of them.
    """
    value, begin = 0.0, 0
    for a in range(shapes.shape[0]):
        n_strata, n_groups = shapes[a, 0], shapes[a, 1]
        end = begin + n_strata * n_groups
        for j in range(cells.shape[1]):
            mass, part = 0.0, 0.0
            for q in range(begin, end):
                mass += cells[q, j]
                part += cells[q, j] * dual[q, j] - product[q, j] * charge[q, j]
            if mass <= 0 or (kept >= 0 and j != kept):
                payoff[begin:end, j] = 0.0
                continue
            value += part
            radial = 0.0
            for q in range(begin, end):
                slope = dual[q, j]
                r, k = (q - begin) // n_groups, (q - begin) % n_groups
                for other in range(begin, end):
                    label, g = (other - begin) // n_groups, (other - begin) % n_groups
                    # dQ / dP reaches cells of the same label and of the same group.
                    if label == r:
                        share = _sum(cells, begin + g, end, n_groups, j) / mass
                        slope -= share * charge[other, j]
                    if g == k:
                        first = begin + label * n_groups
                        share = _sum(cells, first, first + n_groups, 1, j) / mass
                        slope -= share * charge[other, j]
                payoff[q, j] = slope
                radial += slope * cells[q, j] / mass
            # R = mass V(cells / mass): the product rule takes out the radial part.
            for q in range(begin, end):
                payoff[q, j] += part / mass - radial
        begin = end
    return value


@kernel
def _sum(cells, begin, end, step, j):
    found = 0.0
    for q in range(begin, end, step):
        found += cells[q, j]
    return found


@kernel
def _bent(t, slope, second):
    # The curvature of the parabola that stands for f at a ratio: the larger of f''(t)
    # and f'(t) / (t - 1). The second is that of the parabola which touches f at t and
    # is lowest at 1; it lies above the total variation everywhere, whose own curvature
    # is 0 off its kink.
    secant = slope / (t - 1.0) if abs(t - 1.0) > SECANT_WIDTH else 0.0
    found = max(second, secant)
    return found if found < math.inf else 0.0


@kernel
def root_into(
    cells, shapes, is_sufficiency, counts_one, kept, product, dual, second, root
):
    """Write the root of the curvature, over cells and classes, into zeros.

    Parameters
    ----------
    cells, shapes, is_sufficiency, counts_one, kept
        The tables and their kind; whether strata count one each; the one predicted
        class that counts, below 0 for all.
    product
        Of marginals.
    dual, second
        ``f'`` and ``f''`` at each ratio.
    root
        (n_cells * n_classes, the same) of zeros.
    """
    begin, m = 0, cells.shape[1]
    for a in range(shapes.shape[0]):
        n_strata, n_groups = shapes[a, 0], shapes[a, 1]
        end = begin + n_strata * n_groups
        whole = 1.0 if is_sufficiency else cells[begin:end].sum()
        for q in range(begin, end):
            r, k = (q - begin) // n_groups, (q - begin) % n_groups
            for j in range(m):
                if product[q, j] <= 0 or (kept >= 0 and j != kept):
                    continue
                by_group, by_other, mass = _marginals(
                    cells, begin, n_strata, n_groups, r, k, j, is_sufficiency
                )
                # The penalty weighs D of a table over its share: unit weights leave one
                # factor of 1 / share behind, others that of the whole.
                share = mass if counts_one and not is_sufficiency else whole
                t = cells[q, j] / product[q, j]
                bent = _bent(t, dual[q, j], second[q, j])
                scale = math.sqrt(bent / (product[q, j] * share))
                for other in range(begin, end):
                    label, g = (other - begin) // n_groups, (other - begin) % n_groups
                    if not (is_sufficiency or label == r):
                        continue
                    # How the product answers to the other cell.
                    moved = by_group / mass if label == r else 0.0
                    if is_sufficiency:
                        moved += by_other / mass if g == k else 0.0
                        moved -= by_group * by_other / (mass * mass)
                    own = 1.0 if other == q else 0.0
                    root[q * m + j, other * m + j] = scale * (own - t * moved)
        begin = end
