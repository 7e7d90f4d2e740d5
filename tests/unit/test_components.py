"""Components register by name, and say what is missing or misspelled."""

import dataclasses
import importlib
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fferm.divergences import KL, Affine, Alpha, Divergence, TotalVariation
from fferm.errors import ComponentError, InvalidParameterError, UnknownNameError
from fferm.notions import Notion
from fferm.penalty.losses import Loss
from fferm.registry import Registered, unknown_name
from fferm.uncertainty import Uncertainty


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    """Let classes of one test be forgotten after it."""
    monkeypatch.setattr(Registered, "_registry", dict(Registered._registry))


@dataclass(frozen=True)
class Flavour(Registered, abstract=True):
    """A kind of component that only these tests know."""

    kind: ClassVar[str] = "flavour"
    required: ClassVar[tuple[str, ...]] = ("taste",)

    def taste(self):
        """Return nothing: the contract asks subclasses."""

    taste.__isabstractmethod__ = True


def define(class_name="Sour", name="sour", **extra):
    namespace = {"name": name, "taste": lambda self: class_name, **extra}
    return dataclass(frozen=True)(type(class_name, (Flavour,), namespace))


def test_a_class_is_found_by_its_name_and_aliases():
    sour = define(aliases=("acid",))
    assert Flavour.resolve("sour") == sour()
    assert Flavour.resolve("acid") == sour()
    assert Flavour.registered("sour") is sour


@pytest.mark.parametrize("spelled", [" Sour", "SOUR", "sour "])
def test_names_forgive_case_and_blanks(spelled):
    sour = define()
    assert isinstance(Flavour.resolve(spelled), sour)


@pytest.mark.parametrize("spelled", ["reverse-kl", "reverse kl", "Reverse_KL"])
def test_names_forgive_hyphens(spelled):
    assert Divergence.resolve(spelled).name == "reverse_kl"


def test_an_instance_stands_for_itself():
    alpha = Alpha(power=1.5)
    assert Divergence.resolve(alpha) is alpha


def test_known_names_are_sorted_and_leave_out_aliases():
    define("Sweet", "sweet")
    define("Bitter", "bitter", aliases=("amaro",))
    assert Flavour.known() == ("bitter", "sweet")


def test_the_paper_is_known_by_name():
    paper = {"chi2", "jensen_shannon", "kl", "reverse_kl", "squared_hellinger"}
    assert {*paper, "total_variation", "alpha"} <= set(Divergence.known())
    assert {"large_shift", "small_shift"} <= set(Uncertainty.known())


def test_kinds_have_names_of_their_own():
    with pytest.raises(UnknownNameError, match="Unknown notion 'kl'"):
        Notion.resolve("kl")


def test_a_misspelled_name_is_answered_with_the_known_ones_and_a_guess():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'kl'\? Known: .*chi2"):
        Divergence.resolve("klx")


def test_a_name_like_no_other_gets_no_guess():
    assert unknown_name("flavour", "qqqq", ("kl", "chi2")) == (
        "Unknown flavour 'qqqq'. Known: kl, chi2."
    )


@pytest.mark.parametrize("spec", [None, 3, KL])
def test_anything_else_is_refused(spec):
    with pytest.raises(
        InvalidParameterError, match="must be a name or an instance; got"
    ):
        Divergence.resolve(spec)


def test_a_component_of_another_kind_is_refused():
    with pytest.raises(InvalidParameterError, match="notion must be a name"):
        Notion.resolve(KL())


def test_a_name_that_needs_parameters_says_so():
    with pytest.raises(InvalidParameterError, match=r"pass Affine\(base=\.\.\.\)"):
        Divergence.resolve("affine")


def test_a_repeated_name_is_refused():
    define()
    with pytest.raises(ComponentError, match="Salty repeats the name 'sour'"):
        define("Salty", "sour")


def test_a_repeated_alias_is_refused():
    define()
    with pytest.raises(ComponentError, match="repeats the name 'sour'"):
        define("Salty", "salty", aliases=("sour",))


def test_running_a_notebook_cell_twice_is_no_repetition():
    define()
    again = define()
    assert Flavour.registered("sour") is again


def test_inherited_aliases_stay_with_the_parent():
    finer = type("Finer", (TotalVariation,), {"name": "finer_variation"})
    assert Divergence.registered("tv") is TotalVariation
    assert Divergence.registered("finer_variation") is finer


def test_a_missing_method_is_refused_by_name():
    with pytest.raises(ComponentError, match="Bland misses taste"):
        type("Bland", (Flavour,), {"name": "bland"})


def test_a_missing_formula_is_refused_by_name():
    formulas = {name: getattr(KL, name) for name in ("f", "f_prime", "conjugate")}
    with pytest.raises(ComponentError, match="Half misses conjugate_prime"):
        type("Half", (Divergence,), {"name": "half", **formulas})


def test_an_uncertainty_set_without_a_penalty_is_refused_by_name():
    with pytest.raises(ComponentError, match="Blank misses penalty"):
        type("Blank", (Uncertainty,), {"name": "blank"})


@pytest.mark.parametrize("namespace", [{}, {"name": ""}])
def test_a_class_without_a_name_is_refused(namespace):
    with pytest.raises(ComponentError, match="Nameless has no name"):
        type("Nameless", (KL,), namespace)


def test_components_compare_hash_and_print_by_their_parameters():
    assert Alpha(power=2.0) == Alpha(power=2.0) != Alpha(power=3.0)
    assert hash(Affine(KL(), slope=1.0)) == hash(Affine(KL(), slope=1.0))
    assert repr(Alpha(power=2.0)) == "Alpha(power=2.0)"


def test_parameters_are_the_fields():
    assert Affine(KL(), slope=1.0).parameters() == {
        "base": KL(),
        "scale": 1.0,
        "slope": 1.0,
    }


def subclasses(cls):
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_component_is_a_frozen_dataclass_with_fields_of_its_own():
    ours = {c for c in subclasses(Registered) if c.__module__.startswith("fferm.")}
    assert {Divergence, Loss, Notion, Uncertainty} <= ours
    assert len(ours) > 25
    for component in ours:
        assert vars(component)["__dataclass_params__"].frozen, component


@pytest.mark.parametrize(
    "name",
    [
        *("data.groups", "data.rows", "data.group_counts", "notions"),
        *("metrics.tabulator", "metrics.intervals", "metrics.dependence"),
        *("penalty.dual", "penalty.soft_bins", "tuning.validation"),
    ],
)
def test_what_describes_data_cannot_be_changed(name):
    module = importlib.import_module(f"fferm.{name}")
    described = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and dataclasses.is_dataclass(each)
        and each.__module__ == module.__name__
    ]
    assert described
    for each in described:
        assert each.__dataclass_params__.frozen, each
