"""One formula, three executions: NumPy arrays, torch tensors, plain numbers."""

import math

import numpy as np
import pytest
from instances import REGISTERED
from ulps import assert_same_up_to_ulps

from fferm.divergences import KL, Affine, Alpha, TotalVariation, trainable

torch = pytest.importorskip("torch")

EPS = np.finfo(np.float64).eps

FAMILY = {
    **REGISTERED,
    "tilted": Affine(KL(), scale=2.0, slope=0.5),
    "rounded_total_variation": TotalVariation(smoothing=0.01),
    **{f"trainable_{name}": trainable(d) for name, d in REGISTERED.items()},
    **{
        f"alpha={a}": Alpha(power=a) for a in (-1.0, 0.0, 1e-9, 1.0, 1 + 1e-9, 2.0, 3.0)
    },
}
FORMULAS = (
    "f",
    "f_prime",
    "f_second",
    "conjugate",
    "conjugate_prime",
    "dual_at",
    "conjugate_at",
)
LOG_RATIOS = np.concatenate(
    [np.linspace(-6, 6, 49), [-1e-3, -1e-9, 1e-15, 1e-9, 1e-3, 0.09, 0.11]]
)

every_divergence = pytest.mark.parametrize("divergence", FAMILY.values(), ids=FAMILY)
every_formula = pytest.mark.parametrize("formula", FORMULAS)


def operands(divergence, formula):
    """Return points within the domain of a formula, and how it magnifies roundings.

    The libraries may differ by a unit in the last place of exp and log. Such a
    unit moves f by t f', f' by t f'', f* by |a| t and f*' by (1 + |a|) / f''.
    """
    t = np.exp(LOG_RATIOS)
    a, curvature = divergence.f_prime(t, np), divergence.f_second(t, np)
    with np.errstate(divide="ignore"):
        stretch = np.where(curvature > 0, (1 + np.abs(a)) / curvature, 0.0)
    size = {
        "f": 1 + t * (1 + np.abs(a)),
        "f_prime": 1 + np.abs(a) + t * curvature,
        "f_second": np.abs(curvature),
        "conjugate": 1 + t * (1 + np.abs(a)),
        "conjugate_prime": t + stretch,
        "dual_at": 1 + np.abs(a) + t * curvature,
        "conjugate_at": 1 + t * (1 + np.abs(a)),
    }[formula]
    if formula.endswith("_at"):
        return LOG_RATIOS, size
    return (a if formula.startswith("conjugate") else t), size


@every_formula
@every_divergence
def test_torch_agrees_with_numpy_and_stays_float64(divergence, formula):
    points, size = operands(divergence, formula)
    expected = getattr(divergence, formula)(points, np)
    came = getattr(divergence, formula)(torch.from_numpy(points), torch)
    assert came.dtype == torch.float64
    assert came.shape == points.shape
    np.testing.assert_array_less(
        np.abs(came.numpy() - expected), 32 * EPS * size + 1e-300
    )


@every_formula
@every_divergence
@pytest.mark.parametrize("number", [float, np.float64])
def test_plain_numbers_agree_with_arrays(divergence, formula, number):
    points, size = operands(divergence, formula)
    expected = getattr(divergence, formula)(points, np)
    came = np.array([getattr(divergence, formula)(number(x), np) for x in points])
    assert came.shape == points.shape
    # Vectorised exp and log may differ from scalar ones by a unit, as torch's do.
    np.testing.assert_array_less(np.abs(came - expected), 32 * EPS * size + 1e-300)


@every_divergence
def test_torch_agrees_with_numpy_at_the_edges(divergence):
    t = np.array([0.0, 1e-300, 1e-150, 1.0, 1e150, 1e300])
    for formula in ("f", "f_prime", "f_second"):
        with np.errstate(over="ignore"):
            expected = getattr(divergence, formula)(t, np)
        came = getattr(divergence, formula)(torch.from_numpy(t), torch)
        np.testing.assert_allclose(came.numpy(), expected, rtol=1e-12)


@every_divergence
def test_the_shape_of_a_tensor_is_kept(divergence):
    for shape in ((), (1,), (2, 3)):
        t = torch.full(shape, 0.7, dtype=torch.float64)
        for formula in FORMULAS:
            x = t - 1 if "conjugate" in formula else t
            assert getattr(divergence, formula)(x, torch).shape == shape


@every_divergence
def test_single_precision_stays_single_in_torch(divergence):
    for formula in FORMULAS:
        points, _ = operands(divergence, formula)
        single = torch.tensor(points[20:30], dtype=torch.float32)
        assert getattr(divergence, formula)(single, torch).dtype == torch.float32


def test_infinite_duals_agree():
    ends = np.array([-math.inf, math.inf])
    for divergence in FAMILY.values():
        with np.errstate(over="ignore", invalid="ignore"):
            expected = divergence.conjugate(ends, np)
        came = divergence.conjugate(torch.from_numpy(ends), torch)
        assert_same_up_to_ulps(came.numpy(), expected, ulps=2)
