"""The laws of f-divergences."""

import importlib
import importlib.util
from collections.abc import Callable

import numpy as np

from fferm._typing import FloatArray
from fferm.divergences import Divergence
from fferm.testing._assert import at_most, claim, equal, hold, is_a_number

# A grid in log t that holds t = 1 and no other round number, where kinks live.
LOG_RATIOS = np.linspace(-7.0, 7.0, 57)
RATIOS = np.exp(LOG_RATIOS)
ONE = np.float64(1.0)
# Tables hold empty cells, and untrained models make ratios like these.
EDGES = np.array([0.0, 1e-300, 1e-150, 1e150, 1e300])
EPS = float(np.finfo(np.float64).eps)
# Plain formulas, t ln t - t + 1 say, lose a few digits that stable ones keep.
LOOSE = 1e-11
# Steps of the secants, relative to the ratio, and within a gap between two duals.
STEP = 1e-5
GAP_STEP = 1e-3

FORMULAS = ("f", "f_prime", "f_second", "conjugate", "conjugate_prime")
LOG_FORMULAS = ("dual_at", "conjugate_at")


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
    hold(
        Divergence.resolve(divergence),
        {**CANONICAL_LAWS, **LAWS} if canonical else LAWS,
    )


# The points that laws are tried at.


def _ratios(divergence: Divergence) -> FloatArray:
    """Return ratios where the generator does not overflow."""
    value, slope = divergence.f(RATIOS, np), divergence.f_prime(RATIOS, np)
    return np.asarray(RATIOS[~np.isinf(value) & ~np.isinf(slope)])


def _duals(divergence: Divergence) -> tuple[FloatArray, FloatArray]:
    """Return duals between those of neighbouring ratios, and the half gaps."""
    slope = np.sort(np.asarray(divergence.f_prime(_ratios(divergence), np)))
    gap, middle = np.diff(slope) / 2, slope[:-1] + np.diff(slope) / 2
    is_wide = gap > 1e-7 * (1 + np.abs(middle))
    return middle[is_wide], gap[is_wide]


def _tables() -> list[FloatArray]:
    """Return tables of 2 to 4 classes and groups, the last with an empty cell."""
    rng = np.random.default_rng(0)
    shapes = ((2, 2), (3, 2), (2, 4), (3, 4))
    tables = [rng.dirichlet(np.ones(m * k)).reshape(m, k) for m, k in shapes]
    with_empty = tables[-1].copy()
    with_empty[0, 1] = 0.0
    return [*tables, with_empty / with_empty.sum()]


# Laws of one generator.


def _is_convex(d: Divergence) -> None:
    t = _ratios(d)
    for stride in (1, 7, 23):
        s, u = t[:-stride], t[stride:]
        chord = (d.f(s, np) + d.f(u, np)) / 2
        at_most(d.f((s + u) / 2, np), chord, LOOSE * (1 + u + np.abs(chord)), s)
    slope = d.f_prime(t, np)
    at_most(slope[:-1], slope[1:], LOOSE * (1 + np.abs(slope[1:])), t[:-1])


def _slope_lies_between_secants(d: Divergence) -> None:
    # Secants of a convex function enclose its slope, also at a kink.
    t = _ratios(d)
    value, slope, h = d.f(t, np), d.f_prime(t, np), STEP * t
    slack = 32 * EPS * (1 + t + np.abs(value) + np.abs(t * slope)) / h
    at_most((value - d.f(t - h, np)) / h, slope, slack, t)
    at_most(slope, (d.f(t + h, np) - value) / h, slack, t)


def _curvature_is_the_slope_of_the_slope(d: Divergence) -> None:
    t = _ratios(d)
    t = t if d.is_smooth else t[t != 1]
    h = 1e-4 * t
    slope, curvature = d.f_prime(t, np), d.f_second(t, np)
    difference = (d.f_prime(t + h, np) - d.f_prime(t - h, np)) / (2 * h)
    rounding = 32 * EPS * (1 + np.abs(slope)) / h
    equal(curvature, difference, 1e-5 * np.abs(curvature) + rounding, t)


def _fenchel_young_is_an_equality(d: Divergence) -> None:
    t = _ratios(d)
    value, slope = d.f(t, np), d.f_prime(t, np)
    charge = d.conjugate(slope, np)
    slack = LOOSE * (1 + t + np.abs(value) + np.abs(t * slope))
    equal(value + charge, t * slope, slack, t)


def _fenchel_young_is_an_inequality(d: Divergence) -> None:
    t = _ratios(d)[:, None]
    a = np.concatenate([_duals(d)[0], np.asarray(d.f_prime(_ratios(d), np))])
    value, charge = d.f(t, np), d.conjugate(a, np)
    slack = LOOSE * (1 + t + np.abs(value) + np.abs(charge) + np.abs(t * a))
    at_most(t * a, value + charge, slack, t)


def _conjugate_slope_lies_between_secants(d: Divergence) -> None:
    a, gap = _duals(d)
    value, ratio, h = d.conjugate(a, np), d.conjugate_prime(a, np), GAP_STEP * gap
    slack = 32 * EPS * (1 + np.abs(value) + (1 + np.abs(a)) * np.abs(ratio)) / h
    at_most((value - d.conjugate(a - h, np)) / h, ratio, slack, a, "a")
    at_most(ratio, (d.conjugate(a + h, np) - value) / h, slack, a, "a")


def _conjugate_slope_inverts_the_slope(d: Divergence) -> None:
    t = _ratios(d)
    curvature = np.asarray(d.f_second(t, np))
    # Where f is affine, one dual belongs to many ratios.
    t, curvature = t[curvature > 0], curvature[curvature > 0]
    a = d.f_prime(t, np)
    # The dual is known to eps only, and f*'' = 1 / f'' magnifies that.
    conditioning = 1e3 * EPS * (1 + np.abs(a)) / curvature
    equal(d.conjugate_prime(a, np), t, 1e-9 * t + conditioning, t)


def _limits_are_those_of_the_formulas(d: Divergence) -> None:
    t, zero = _ratios(d), np.float64(0.0)
    slope = d.f_prime(t, np)
    equal(d.f(zero, np), d.value_at_zero, 1e-9, 0.0)
    equal(d.f_prime(zero, np), d.slope_at_zero, 1e-9, 0.0)
    at_most(d.slope_at_zero, slope, LOOSE * (1 + np.abs(slope)), t)
    at_most(slope, d.slope_at_infinity, LOOSE * (1 + np.abs(slope)), t)
    with np.errstate(all="ignore"):
        far = d.f_prime(np.float64(np.inf), np)
    slack = 1e-9 * (1 + abs(far)) if np.isfinite(far) else 0.0
    equal(far, d.slope_at_infinity, slack, np.inf)


def _is_quiet_at_the_edges(d: Divergence) -> None:
    for name in ("f", "f_prime", "f_second"):
        formula = getattr(d, name)
        is_a_number(formula(EDGES, np), EDGES, name)
        is_a_number(formula(0.0, np), np.zeros(1), name)
    with np.errstate(all="ignore"):
        charge = d.conjugate(d.f_prime(EDGES, np), np)
    is_a_number(charge, EDGES, "conjugate of f_prime")


# Laws of the log-ratio form.


def _log_forms_agree_with_the_formulas(d: Divergence) -> None:
    z = np.log(_ratios(d))
    t = np.exp(z)
    a, charge = d.f_prime(t, np), d.conjugate(d.f_prime(t, np), np)
    equal(d.dual_at(z, np), a, 1e-9 * (1 + np.abs(a)), z, "z")
    slack = 1e-9 * (1 + np.abs(charge) + t * np.abs(a))
    equal(d.conjugate_at(z, np), charge, slack, z, "z")


def _dual_value(
    d: Divergence, p: FloatArray, q: float, z: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ``p A(z) - q C(z)`` for each p and z, and the size of its terms."""
    gain, charge = p[:, None] * d.dual_at(z, np), q * d.conjugate_at(z, np)
    return gain - charge, np.abs(gain) + np.abs(charge)


def _dual_value_is_a_lower_bound(d: Divergence) -> None:
    t, q = _ratios(d), 0.3
    z, best = np.log(t), q * d.f(t, np)
    value, size = _dual_value(d, q * t, q, z)
    at_most(value, best[:, None], LOOSE * (1 + t[:, None] + size), t[:, None], "p/q")
    slack = LOOSE * (1 + t + np.diag(size) + np.abs(best))
    equal(np.diag(value), best, slack, t, "p/q")


def _log_ratio_is_concave_as_declared(d: Divergence) -> None:
    if not d.log_ratio_is_concave:
        return
    z = np.log(_ratios(d))
    dual, (low, high) = np.asarray(d.dual_at(z, np)), d.dual_domain
    margin = 1e-9 * (1 + np.abs(dual))
    z = z[(dual > low + margin) & (dual < high - margin)]
    p = np.array([0.01, 0.2, 1.0, 3.0, 50.0])
    value, size = _dual_value(d, p, 1.0, z)
    bend = value[:, 2:] - 2 * value[:, 1:-1] + value[:, :-2]
    at_most(bend, 0.0, LOOSE * (1 + size[:, 2:] + size[:, :-2]), z[1:-1], "z")


# Laws of tables.


def _vanishes_at_independence_only(d: Divergence) -> None:
    for table in _tables():
        product = np.outer(table.sum(axis=1), table.sum(axis=0))
        equal(d.between(product), 0.0, 1e-12, 0.0, "an independent table, D - 0")
        # Near independence too: a generator that is flat around 1 sees nothing there.
        mild = 0.9 * product + 0.1 * table
        at_most(1e-9, d.between(mild), 0.0, mild[0, 0], "a dependent table, P[0, 0]")


def _merging_never_increases_it(d: Divergence) -> None:
    for table in _tables():
        whole = d.between(table)
        for merged in (table, table.T):
            merged = np.vstack([merged[:1] + merged[1:2], merged[2:]])
            slack = LOOSE * (1 + whole) if np.isfinite(whole) else 0.0
            at_most(d.between(merged), whole, slack, table[0, 0], "P[0, 0]")


def _names_do_not_matter(d: Divergence) -> None:
    for table in _tables():
        whole = d.between(table)
        renamed = d.between(np.roll(table[::-1], 1, axis=1))
        equal(renamed, whole, LOOSE * (1 + abs(whole)), table[0, 0], "P[0, 0]")


# Laws of the ways to run a formula.


def _points_of(d: Divergence, formula: str, t: FloatArray) -> FloatArray:
    """Return the operands of a formula that belong to ratios."""
    if formula in LOG_FORMULAS:
        return np.asarray(np.log(t))
    return np.asarray(d.f_prime(t, np)) if "conjugate" in formula else t


def _scalars_agree_with_arrays(d: Divergence) -> None:
    for name in (*FORMULAS, *LOG_FORMULAS):
        formula, points = getattr(d, name), _points_of(d, name, _ratios(d))
        expected = np.asarray(formula(points, np))
        claim(
            expected.shape == points.shape and expected.dtype == np.float64,
            f"{name} made {expected.dtype} of shape {expected.shape} from float64 of "
            f"shape {points.shape}",
        )
        slack = LOOSE * (1 + np.abs(expected))
        for kind in (float, np.float64, np.array):
            one_by_one = [formula(kind(point), np) for point in points]
            claim(
                all(np.shape(value) == () for value in one_by_one),
                f"{name} made an array with axes from one number",
            )
            equal(np.asarray(one_by_one, float), expected, slack, points, name)


def _float32_works(d: Divergence) -> None:
    for name in (*FORMULAS, *LOG_FORMULAS):
        formula = getattr(d, name)
        # Halves and doubles: further out single precision is not asked for.
        points = _points_of(d, name, np.array([0.5, 0.9, 1.0, 1.1, 2.0]))
        with np.errstate(divide="ignore", invalid="ignore"):
            value = formula(points.astype(np.float32), np)
        is_a_number(value, points, f"{name} in float32")


def _torch_agrees(d: Divergence) -> None:
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    for name in (*FORMULAS, *LOG_FORMULAS):
        formula, points = getattr(d, name), _points_of(d, name, _ratios(d))
        for chosen in (points, points[3]):
            expected = np.asarray(formula(chosen, np))
            value = formula(torch.tensor(chosen, dtype=torch.float64), torch)
            claim(
                getattr(value, "dtype", None) == torch.float64,
                f"{name} of a float64 tensor is {getattr(value, 'dtype', type(value))};"
                " torch.where between two plain numbers forgets the precision",
            )
            slack = LOOSE * (1 + np.abs(expected))
            equal(value.numpy(), expected, slack, chosen, name)


CANONICAL_LAWS: dict[str, Callable[[Divergence], None]] = {
    "f'(1) = 0": lambda d: equal(d.f_prime(ONE, np), 0.0, 1e-14, 1.0),
    "f >= 0": lambda d: at_most(0.0, d.f(RATIOS, np), LOOSE * (1 + RATIOS), RATIOS),
}
LAWS: dict[str, Callable[[Divergence], None]] = {
    "f(1) = 0": lambda d: equal(d.f(ONE, np), 0.0, 1e-14, 1.0),
    "f is convex": _is_convex,
    "f' is the slope of f": _slope_lies_between_secants,
    "f'' is the slope of f'": _curvature_is_the_slope_of_the_slope,
    "f(t) + f*(f'(t)) = t f'(t)": _fenchel_young_is_an_equality,
    "f(t) + f*(a) >= t a": _fenchel_young_is_an_inequality,
    "f*' is the slope of f*": _conjugate_slope_lies_between_secants,
    "f*' inverts f'": _conjugate_slope_inverts_the_slope,
    "scalars agree with arrays": _scalars_agree_with_arrays,
    "no NaN at the edges": _is_quiet_at_the_edges,
    "limits are those of the formulas": _limits_are_those_of_the_formulas,
    "dual_at and conjugate_at agree with f' and f*": _log_forms_agree_with_the_formulas,
    "p A(z) - q C(z) <= q f(p/q)": _dual_value_is_a_lower_bound,
    "log_ratio_is_concave is true": _log_ratio_is_concave_as_declared,
    "D = 0 at independence only": _vanishes_at_independence_only,
    "merging never increases D": _merging_never_increases_it,
    "names of classes and groups do not matter": _names_do_not_matter,
    "float32 works": _float32_works,
    "torch float64 agrees and stays float64": _torch_agrees,
}
