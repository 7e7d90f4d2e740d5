"""Every solver obeys the laws of solvers, and a broken one is named."""

from dataclasses import dataclass, replace

import pytest

from fferm.errors import ComponentError
from fferm.solvers import LBFGS, LINEAR, make
from fferm.testing import check_solver

# What is left of the way to the optimum: exact methods, and stochastic ones.
SLACK = {"lbfgs": 1e-8, "sgda": 0.02, "semi_stochastic": 0.02, "sreda": 0.02}


@pytest.mark.parametrize("name", sorted(LINEAR))
def test_a_solver_of_ours_obeys_the_laws(name):
    check_solver(make(name, {"max_epochs": 20, "seed": 0}), slack=SLACK[name])


@dataclass(frozen=True)
class Broken(LBFGS):
    """L-BFGS with a mistake."""

    mistake: str = ""

    def finish(self, problem, state):
        if self.mistake == "raises":
            raise RuntimeError("no luck")
        found = super().finish(problem, state)
        if self.mistake == "shape":
            found["value"] = found["value"].ravel()
        if self.mistake == "far":
            found["value"] = 0 * found["value"]
        return found

    def solve_path(self, problem, weights, **options):
        found = list(super().solve_path(problem, weights, **options))
        return iter(found[::-1] if self.mistake == "order" else found)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("shape", "a whole solution.*value has shape"),
        ("far", "near the optimum.*1 of the way to the optimum is left"),
        ("order", "a path in the order of its weights"),
        ("raises", "fails under the law.*RuntimeError: no luck"),
    ],
)
def test_a_broken_solver_is_named(mistake, said):
    with pytest.raises(ComponentError, match=said):
        check_solver(replace(Broken(), mistake=mistake), slack=1e-4)
