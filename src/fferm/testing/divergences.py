"""The laws of f-divergences."""

import importlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.divergences.base import EPS
from fferm.testing._assert import Law, at_most, claim, equal, law_of, not_nan, strictly

# A grid in log t that holds t = 1 and no other round number, where kinks live.
LOG_RATIOS = np.linspace(-7.0, 7.0, 57)
RATIOS = np.exp(LOG_RATIOS)
ONE = np.float64(1.0)
# Tables hold empty cells, and untrained models make ratios like these.
EDGES = np.array([0.0, 1e-300, 1e-150, 1e150, 1e300])
# Plain formulas, t ln t - t + 1 say, lose a few digits that stable ones keep.
LOOSE = 1e-11
# Steps of the secants, relative to the ratio, and within a gap between two duals.
STEP = 1e-5
GAP_STEP = 1e-3

FORMULAS = ("f", "f_prime", "f_second", "conjugate", "conjugate_prime")
LOG_FORMULAS = ("dual_at", "conjugate_at")


@strictly
def check_divergence(divergence: str | Divergence, *, canonical: bool = True) -> None:
    """Hold a divergence to the laws of f-divergences.

    Parameters
    ----------
    divergence
        An instance, or a registered name; nothing beyond the four formulas needs to be
        written.
    canonical
        Whether ``f'(1) = 0`` and ``f >= 0`` are asked for too. Tilted forms such as
        the paper's ``t ln t`` are f-divergences without them.

    Raises
    ------
    ComponentError
        If a law is broken. The message names the law, the point and the numbers.

    Notes
    -----
    Formulas must be quiet where tables send them: no NaN, no division by zero at
    ``t = 0`` (guard it with ``xp.where``), and infinity where the limit is infinite.
    Where ``f'' = 0``, as for total variation, a dual does not tell the ratio, and the
    conjugate is held to the Fenchel-Young inequality only. The law for torch is
    skipped where torch is not installed.

    Examples
    --------
    >>> from fferm.divergences import Alpha
    >>> check_divergence(Alpha(power=1.5))
    """
    d = Divergence.resolve(divergence)
    law = partial(law_of, d, "divergence")
    if canonical:
        with law("f'(1) = 0"):
            equal(d.f_prime(ONE, np), 0.0, 1e-14, 1.0)
        with law("f >= 0"):
            at_most(0.0, d.f(RATIOS, np), LOOSE * (1 + RATIOS), RATIOS)
    with law("f(1) = 0"):
        equal(d.f(ONE, np), 0.0, 1e-14, 1.0)
    with law("f is convex"):
        value, slope = d.f(RATIOS, np), d.f_prime(RATIOS, np)
        t = np.asarray(RATIOS[~np.isinf(value) & ~np.isinf(slope)])  # no overflow
        for stride in (1, 7, 23):
            s, u = t[:-stride], t[stride:]
            chord = (d.f(s, np) + d.f(u, np)) / 2
            at_most(d.f((s + u) / 2, np), chord, LOOSE * (1 + u + np.abs(chord)), s)
        slope = d.f_prime(t, np)
        at_most(slope[:-1], slope[1:], LOOSE * (1 + np.abs(slope[1:])), t[:-1])
    _hold_slopes(d, t, law)
    _hold_conjugate(d, t, law)
    with law("scalars agree with arrays"):
        for name, points in _operands(d, t):
            _scalars_agree_with_arrays(getattr(d, name), name, points)
    _hold_limits(d, t, law)
    _hold_log_forms(d, t, law)
    _hold_tables(d, law)
    with law("float32 works"), np.errstate(divide="ignore", invalid="ignore"):
        # Halves and doubles: further out single precision is not asked for.
        for name, points in _operands(d, np.array([0.5, 0.9, 1.0, 1.1, 2.0])):
            value = getattr(d, name)(points.astype(np.float32), np)
            not_nan(value, points, f"{name} in float32")
    if importlib.util.find_spec("torch") is not None:
        with law("torch float64 agrees and stays float64"):
            for name, points in _operands(d, t):
                _torch_agrees(getattr(d, name), name, points)


def _hold_slopes(d: Divergence, t: FloatArray, law: Law) -> None:
    value, slope = d.f(t, np), d.f_prime(t, np)
    with law("f' is the slope of f"):
        # Secants of a convex function enclose its slope, also at a kink.
        h = STEP * t
        slack = 32 * EPS * (1 + t + np.abs(value) + np.abs(t * slope)) / h
        at_most((value - d.f(t - h, np)) / h, slope, slack, t)
        at_most(slope, (d.f(t + h, np) - value) / h, slack, t)
    with law("f'' is the slope of f'"):
        t = t if d.is_smooth else t[t != 1]
        h = 1e-4 * t
        curvature = d.f_second(t, np)
        difference = (d.f_prime(t + h, np) - d.f_prime(t - h, np)) / (2 * h)
        rounding = 32 * EPS * (1 + np.abs(d.f_prime(t, np))) / h
        equal(curvature, difference, 1e-5 * np.abs(curvature) + rounding, t)


def _hold_conjugate(d: Divergence, t: FloatArray, law: Law) -> None:
    value, slope = d.f(t, np), np.asarray(d.f_prime(t, np))
    # Duals between those of neighbouring ratios, and the half gaps.
    ordered = np.sort(slope)
    gap, a = np.diff(ordered) / 2, ordered[:-1] + np.diff(ordered) / 2
    is_wide = gap > 1e-7 * (1 + np.abs(a))
    a, h = a[is_wide], GAP_STEP * gap[is_wide]
    with law("f(t) + f*(f'(t)) = t f'(t)"):
        slack = LOOSE * (1 + t + np.abs(value) + np.abs(t * slope))
        equal(value + d.conjugate(slope, np), t * slope, slack, t)
    with law("f(t) + f*(a) >= t a"):
        every, ratio = np.concatenate([a, slope]), t[:, None]
        value, charge, gain = d.f(ratio, np), d.conjugate(every, np), ratio * every
        slack = LOOSE * (1 + ratio + np.abs(value) + np.abs(charge) + np.abs(gain))
        at_most(gain, value + charge, slack, ratio)
    with law("f*' is the slope of f*"):
        value, ratio = d.conjugate(a, np), d.conjugate_prime(a, np)
        slack = 32 * EPS * (1 + np.abs(value) + (1 + np.abs(a)) * np.abs(ratio)) / h
        at_most((value - d.conjugate(a - h, np)) / h, ratio, slack, a, "a")
        at_most(ratio, (d.conjugate(a + h, np) - value) / h, slack, a, "a")
    with law("f*' inverts f'"):
        curvature = np.asarray(d.f_second(t, np))
        # Where f is affine, one dual belongs to many ratios.
        t, slope, curvature = (x[curvature > 0] for x in (t, slope, curvature))
        # The dual is known to eps only, and f*'' = 1 / f'' magnifies that.
        conditioning = 1e3 * EPS * (1 + np.abs(slope)) / curvature
        equal(d.conjugate_prime(slope, np), t, 1e-9 * t + conditioning, t)


def _hold_limits(d: Divergence, t: FloatArray, law: Law) -> None:
    with law("no NaN at the edges"):
        for name in ("f", "f_prime", "f_second"):
            formula = getattr(d, name)
            not_nan(formula(EDGES, np), EDGES, name)
            not_nan(formula(0.0, np), np.zeros(1), name)
        with np.errstate(all="ignore"):
            charge = d.conjugate(d.f_prime(EDGES, np), np)
        not_nan(charge, EDGES, "conjugate of f_prime")
    with law("limits are those of the formulas"):
        zero, slope = np.float64(0.0), d.f_prime(t, np)
        equal(d.f(zero, np), d.value_at_zero, 1e-9, 0.0)
        equal(d.f_prime(zero, np), d.slope_at_zero, 1e-9, 0.0)
        at_most(d.slope_at_zero, slope, LOOSE * (1 + np.abs(slope)), t)
        at_most(slope, d.slope_at_infinity, LOOSE * (1 + np.abs(slope)), t)
        with np.errstate(all="ignore"):
            far = d.f_prime(np.float64(np.inf), np)
        slack = 1e-9 * (1 + abs(far)) if np.isfinite(far) else 0.0
        equal(far, d.slope_at_infinity, slack, np.inf)


def _hold_log_forms(d: Divergence, t: FloatArray, law: Law) -> None:
    z = np.log(t)

    def dual_value(p: FloatArray, q: float, z: FloatArray) -> tuple[Any, Any]:
        """Return ``p A(z) - q C(z)`` for each p and z, and the size of its terms."""
        gain, charge = p[:, None] * d.dual_at(z, np), q * d.conjugate_at(z, np)
        return gain - charge, np.abs(gain) + np.abs(charge)

    with law("dual_at and conjugate_at agree with f' and f*"):
        a = d.f_prime(t, np)
        charge = d.conjugate(a, np)
        equal(d.dual_at(z, np), a, 1e-9 * (1 + np.abs(a)), z, "z")
        slack = 1e-9 * (1 + np.abs(charge) + t * np.abs(a))
        equal(d.conjugate_at(z, np), charge, slack, z, "z")
    with law("p A(z) - q C(z) <= q f(p/q)"):
        q = 0.3
        best, (value, size) = q * d.f(t, np), dual_value(q * t, q, z)
        slack = LOOSE * (1 + t[:, None] + size)
        at_most(value, best[:, None], slack, t[:, None], "p/q")
        slack = LOOSE * (1 + t + np.diag(size) + np.abs(best))
        equal(np.diag(value), best, slack, t, "p/q")
    if not d.log_ratio_is_concave:
        return
    with law("log_ratio_is_concave is true"):
        dual, (low, high) = np.asarray(d.dual_at(z, np)), d.dual_domain
        margin = 1e-9 * (1 + np.abs(dual))
        z = z[(dual > low + margin) & (dual < high - margin)]
        value, size = dual_value(np.array([0.01, 0.2, 1.0, 3.0, 50.0]), 1.0, z)
        bend = value[:, 2:] - 2 * value[:, 1:-1] + value[:, :-2]
        at_most(bend, 0.0, LOOSE * (1 + size[:, 2:] + size[:, :-2]), z[1:-1], "z")


def _hold_tables(d: Divergence, law: Law) -> None:
    # Of 2 to 4 classes and groups, the last with an empty cell.
    rng = np.random.default_rng(0)
    shapes = ((2, 2), (3, 2), (2, 4), (3, 4))
    tables = [rng.dirichlet(np.ones(m * k)).reshape(m, k) for m, k in shapes]
    with_empty = tables[-1].copy()
    with_empty[0, 1] = 0.0
    for table in (*tables, with_empty / with_empty.sum()):
        with law("D = 0 at independence only"):
            product = np.outer(table.sum(axis=1), table.sum(axis=0))
            equal(d.between(product), 0.0, 1e-12, 0.0, "an independent table, D - 0")
            # A generator that is flat around 1 sees nothing near independence.
            mild = 0.9 * product + 0.1 * table
            where = "a dependent table, P[0, 0]"
            at_most(1e-9, d.between(mild), 0.0, mild[0, 0], where)
        with law("merging never increases D"):
            whole, at = d.between(table), (table[0, 0], "P[0, 0]")
            slack = LOOSE * (1 + abs(whole)) if np.isfinite(whole) else 0.0
            for merged in (table, table.T):
                merged = np.vstack([merged[:1] + merged[1:2], merged[2:]])
                at_most(d.between(merged), whole, slack, *at)
        with law("names of classes and groups do not matter"):
            renamed = d.between(np.roll(table[::-1], 1, axis=1))
            equal(renamed, whole, slack, *at)


def _operands(d: Divergence, t: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    """Yield each formula by name, with the operands that belong to ratios."""
    for name in (*FORMULAS, *LOG_FORMULAS):
        points = d.f_prime(t, np) if "conjugate" in name else t
        yield name, np.asarray(np.log(t) if name in LOG_FORMULAS else points)


def _scalars_agree_with_arrays(formula: Any, name: str, points: FloatArray) -> None:
    expected = np.asarray(formula(points, np))
    made = f"{expected.dtype} of shape {expected.shape}"
    is_same = expected.shape == points.shape and expected.dtype == np.float64
    claim(is_same, f"{name} made {made} from float64 of shape {points.shape}")
    slack = LOOSE * (1 + np.abs(expected))
    for scalar in (float, np.float64, np.array):
        one_by_one = [formula(scalar(point), np) for point in points]
        is_scalar = all(np.shape(value) == () for value in one_by_one)
        claim(is_scalar, f"{name} made an array with axes from one number")
        equal(np.asarray(one_by_one, float), expected, slack, points, name)


def _torch_agrees(formula: Any, name: str, points: FloatArray) -> None:
    torch = importlib.import_module("torch")
    for chosen in (points, points[3]):
        expected = np.asarray(formula(chosen, np))
        value = formula(torch.tensor(chosen, dtype=torch.float64), torch)
        dtype = getattr(value, "dtype", type(value))
        claim(
            dtype == torch.float64,
            f"{name} of a float64 tensor is {dtype}; torch.where between two plain "
            "numbers forgets the precision",
        )
        slack = LOOSE * (1 + np.abs(expected))
        equal(value.numpy(), expected, slack, chosen, name)
