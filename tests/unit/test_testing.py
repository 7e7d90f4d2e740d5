"""The laws accept what obeys them and name what is broken."""

import importlib.util
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fferm.divergences import (
    KL,
    Affine,
    Alpha,
    Chi2,
    Divergence,
    LinearTail,
    TotalVariation,
    get,
    trainable,
)
from fferm.errors import ComponentError
from fferm.notions import (
    ConditionalParity,
    EqualOpportunity,
    Labels,
    Notion,
    PredictiveParity,
    Strata,
)
from fferm.registry import Registered
from fferm.testing import check_divergence, check_notion

OWN = tuple(
    name
    for name in Divergence.known()
    if Divergence.registered(name).__module__.startswith("fferm.")
)
# Divergences that are made from another one; every other has a default instance.
MADE_OF_ANOTHER = {"affine": Affine(KL(), scale=2.0), "linear_tail": LinearTail(KL())}
POWERS = (-2, -1, -1e-9, 0, 1e-9, 0.5, 1 - 1e-9, 1, 1 + 1e-9, 1.5, 2, 3, 10)
FORMULAS = (
    "f",
    "f_prime",
    "f_second",
    "conjugate",
    "conjugate_prime",
    "dual_at",
    "conjugate_at",
)
OWN_NOTIONS = tuple(
    name
    for name in Notion.known()
    if Notion.registered(name).__module__.startswith("fferm.")
)

NEEDS_PARAMETERS = {"conditional_parity": ConditionalParity("department")}


def registered(name):
    return MADE_OF_ANOTHER.get(name) or get(name)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    """Let classes of one test be forgotten after it."""
    monkeypatch.setattr(Registered, "_registry", dict(Registered._registry))


@pytest.mark.parametrize("name", OWN)
def test_every_registered_divergence_obeys_the_laws(name):
    check_divergence(registered(name))


@pytest.mark.parametrize("name", OWN)
def test_the_form_for_training_obeys_the_laws(name):
    check_divergence(trainable(registered(name)))


@pytest.mark.parametrize("power", POWERS)
def test_alpha_obeys_the_laws_at_any_power(power):
    check_divergence(Alpha(power=power))
    check_divergence(LinearTail(Alpha(power=power), floor=0.05))


@pytest.mark.parametrize("name", OWN)
def test_tilted_divergences_obey_all_laws_but_those_of_the_canonical_form(name):
    tilted = Affine(registered(name), scale=0.5, slope=-0.3)
    check_divergence(tilted, canonical=False)
    with pytest.raises(ComponentError, match=re.escape('law "f\'(1) = 0"')):
        check_divergence(tilted)


@pytest.mark.parametrize("name", ["kl", "reverse_kl", "squared_hellinger"])
@pytest.mark.parametrize("scale", ["none", "curvature"])
def test_the_normalisation_of_the_paper_obeys_the_laws(name, scale):
    check_divergence(get(name, normalisation="paper", scale=scale), canonical=False)


def test_rounded_total_variation_obeys_the_laws():
    check_divergence(TotalVariation(smoothing=0.01))


def define_neyman():
    @dataclass(frozen=True)
    class Neyman(Divergence):
        """What a user writes: four formulas, guarded at t = 0."""

        name: ClassVar[str] = "neyman"

        def f(self, t, xp):
            safe = xp.where(t > 0, t, 1.0)
            return xp.where(t > 0, (t - 1) * (t - 1) / (2 * safe), math.inf)

        def f_prime(self, t, xp):
            inverse = 1 / xp.where(t > 0, t, 1.0)
            return xp.where(t > 0, (1 - inverse * inverse) / 2, -math.inf)

        def conjugate(self, a, xp):
            return 1 - xp.sqrt(1 - 2 * a)

        def conjugate_prime(self, a, xp):
            return 1 / xp.sqrt(1 - 2 * a)

    return Neyman


def test_four_formulas_make_a_lawful_divergence():
    neyman = define_neyman()()
    check_divergence(neyman)
    check_divergence(trainable(neyman))
    table = np.array([[0.3, 0.15], [0.25, 0.3]])
    assert get("neyman").between(table) == pytest.approx(
        Alpha(power=-1.0).between(table), rel=1e-13
    )


def test_defaults_find_infinite_and_finite_limits():
    neyman = define_neyman()()
    assert neyman.value_at_zero == math.inf
    assert neyman.slope_at_zero == -math.inf
    assert neyman.slope_at_infinity == pytest.approx(0.5)


def spoiled(base, **formulas):
    """Return a divergence with some formulas of another replaced."""
    return type("Spoiled", (type(base),), {"name": "spoiled", **formulas})()


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize(
    "name", ["chi2", "kl", "reverse_kl", "jensen_shannon", "squared_hellinger"]
)
def test_a_formula_that_is_off_by_a_thousandth_is_refused(name, formula):
    base = get(name)

    def off(self, x, xp):
        return getattr(base, formula)(x, xp) * 1.001

    with pytest.raises(ComponentError, match="breaks the law"):
        check_divergence(spoiled(base, **{formula: off}))


def unguarded(self, t, xp):
    return t * xp.log(t) - t + 1


def bump(self, t, xp):
    return (t - 1) * (t - 1) / (1 + (t - 1) * (t - 1))


def for_arrays_only(self, t, xp):
    return KL().f_prime(t.clip(0.0), xp)


BROKEN = {
    "f(1) = 0": {"f": lambda self, t, xp: KL().f(t, xp) + 0.1},
    "f'(1) = 0": {"f_prime": lambda self, t, xp: KL().f_prime(t, xp) + 0.1},
    "f >= 0": {"f": lambda self, t, xp: KL().f(t, xp) + (t - 1) / 2},
    "f is convex": {"f": bump},
    "f' is the slope of f": {"f": lambda self, t, xp: 2 * KL().f(t, xp)},
    "f'' is the slope of f'": {"f_second": lambda self, t, xp: 1 + 0 * t},
    "f(t) + f*(f'(t)) = t f'(t)": {
        "conjugate": lambda self, a, xp: KL().conjugate(a, xp) + 0.1
    },
    "f*' is the slope of f*": {"conjugate_prime": lambda self, a, xp: 1 + a},
    "f*' inverts f'": {"conjugate_prime": lambda self, a, xp: xp.exp(a + 1e-6)},
    "no NaN at the edges": {"f": unguarded},
    "limits are those of the formulas": {"value_at_zero": 2.0},
    "dual_at and conjugate_at agree with f' and f*": {
        "dual_at": lambda self, z, xp: z + 0.1
    },
    "D = 0 at independence only": {"between": lambda self, joint: joint[0, 0]},
    "merging never increases D": {
        "between": lambda self, joint: KL().between(joint) / len(joint) ** 3
    },
    "names of classes and groups do not matter": {
        "between": lambda self, joint: KL().between(joint) * (1 + joint[0, 0] / 1e3)
    },
    "scalars agree with arrays": {"f_prime": for_arrays_only},
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_message_names_the_broken_law(name):
    with pytest.raises(ComponentError, match=re.escape(f"law {name!r}: ")):
        check_divergence(spoiled(KL(), **BROKEN[name]))


def test_the_message_names_the_point_and_the_two_numbers():
    lifted = spoiled(KL(), f=lambda self, t, xp: KL().f(t, xp) + 0.25)
    with pytest.raises(ComponentError, match=re.escape("at t=1, 0.25 is not 0. ")):
        check_divergence(lifted)


@pytest.mark.parametrize("limit", ["value_at_zero", "slope_at_zero"])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(ComponentError, match="limits are those of the formulas"):
        check_divergence(spoiled(KL(), **{limit: -0.5}))


@pytest.mark.parametrize("slope", [0.25, 1.0])
def test_a_wrong_slope_at_infinity_is_refused(slope):
    with pytest.raises(ComponentError, match="limits are those of the formulas"):
        check_divergence(spoiled(TotalVariation(), slope_at_infinity=slope))


def test_a_conjugate_that_is_too_low_between_slopes_is_refused():
    def sagging(self, a, xp):  # right at -1/2, 0 and 1/2, the only slopes there are
        return a - a * a * (0.25 - a * a)

    with pytest.raises(ComponentError, match=re.escape("f(t) + f*(a) >= t a")):
        check_divergence(spoiled(TotalVariation(), conjugate=sagging))


def test_chi2_cannot_claim_concavity_in_the_log_ratio():
    with pytest.raises(ComponentError, match="log_ratio_is_concave is true"):
        check_divergence(spoiled(Chi2(), log_ratio_is_concave=True))


def test_a_generator_that_is_flat_around_one_is_refused():
    class Blind(Divergence):
        """The part of |t - 1| above 1/2."""

        name: ClassVar[str] = "blind"
        is_smooth = False

        def f(self, t, xp):
            beyond = xp.abs(t - 1) - 0.5
            return xp.where(beyond > 0, beyond, 0 * t)

        def f_prime(self, t, xp):
            one = 1 + 0 * xp.where(t < math.inf, t, 1.0)
            return xp.where(t > 1.5, one, xp.where(t < 0.5, -one, 0 * one))

        def conjugate(self, a, xp):
            return a + xp.abs(a) / 2

        def conjugate_prime(self, a, xp):
            return 1 + xp.where(a > 0, 0.5 + 0 * a, xp.where(a < 0, 0 * a - 0.5, 0 * a))

    with pytest.raises(ComponentError, match="D = 0 at independence only"):
        check_divergence(Blind())


def leaking(self, t, xp):
    return xp.where(t > 1, 0.5, xp.where(t < 1, -0.5, 0.0))


def test_a_formula_that_forgets_float64_in_torch_is_refused():
    pytest.importorskip("torch")
    with pytest.raises(ComponentError, match=r"f_prime of a float64 tensor is .*32"):
        check_divergence(spoiled(TotalVariation(), f_prime=leaking))


def test_the_law_for_torch_is_skipped_where_torch_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_divergence(spoiled(TotalVariation(), f_prime=leaking))


def test_a_function_outside_of_the_five_is_refused_by_name():
    pytest.importorskip("torch")

    def of_numpy_only(self, a, xp):
        return xp.power(np.e, a) - 1

    with pytest.raises(ComponentError, match="fails under the law 'torch"):
        check_divergence(spoiled(KL(), conjugate=of_numpy_only))


@pytest.mark.parametrize("name", OWN_NOTIONS)
def test_every_registered_notion_obeys_the_laws(name):
    check_notion(NEEDS_PARAMETERS.get(name) or Notion.resolve(name))


@pytest.mark.parametrize("kind", [EqualOpportunity, PredictiveParity])
def test_a_notion_that_names_a_class_is_tried_on_that_class(kind):
    check_notion(kind(positive="b"), classes=("a", "b", "c"))
    with pytest.raises(ComponentError, match="'b', which the labels do not have"):
        check_notion(kind(positive="b"))


def one_code(code, names=("everyone",)):
    return lambda self, labels: Strata(code(labels), names)


@pytest.mark.parametrize(
    ("strata", "complaint"),
    [
        (one_code(lambda x: np.zeros((x.n_samples, 1), int)), r"shape \(24, 1\)"),
        (one_code(lambda x: np.zeros(x.n_samples)), "dtype float64"),
        (one_code(lambda x: np.full(x.n_samples, 1)), "from 1 to 1 for 1 names"),
        (one_code(lambda x: np.full(x.n_samples, -2)), "from -2 to -2"),
        (one_code(lambda x: np.full(x.n_samples, -1)), "every row is left out"),
        (one_code(lambda x: x.y, ("a", "a")), "not distinct"),
        (
            one_code(lambda x: np.arange(x.n_samples) % 2, ("even", "odd")),
            "the order of rows does not matter",
        ),
        (one_code(lambda x: np.zeros(x.n_samples, int)), "missing labels are refused"),
    ],
)
def test_a_broken_notion_is_refused_with_the_reason(strata, complaint):
    broken = type("Broken", (Notion,), {"name": "broken", "strata": strata})
    with pytest.raises(ComponentError, match=complaint):
        check_notion(broken())


def test_a_notion_may_not_write_into_its_labels():
    class Greedy(Notion):
        """Marks what it has read."""

        name: ClassVar[str] = "greedy"

        def strata(self, labels: Labels) -> Strata:
            code = labels.y.copy()
            labels.y[0] = 1 - labels.y[0]
            return Strata(code, ("y=0", "y=1"))

    with pytest.raises(ComponentError, match=r"wrote into labels\.y"):
        check_notion(Greedy())


def test_a_notion_without_need_of_labels_works_without_them():
    class Forgetful(Notion):
        """Says that it needs no labels and uses them."""

        name: ClassVar[str] = "forgetful"
        needs_labels: ClassVar[bool] = False

        def strata(self, labels: Labels) -> Strata:
            return Strata(labels.y * 1, ("y=0", "y=1"))

    with pytest.raises(ComponentError, match="missing labels are refused"):
        check_notion(Forgetful())


def test_an_unknown_weighting_is_refused():
    odd = type("Odd", (EqualOpportunity,), {"name": "odd", "weighting": "heavy"})
    with pytest.raises(ComponentError, match="weighting is 'heavy'"):
        check_notion(odd())
