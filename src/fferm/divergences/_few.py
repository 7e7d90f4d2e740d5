"""Formulas of divergences on the few cells of a table.

A call of NumPy takes as long for four numbers as for four hundred, and a formula is
some fifty calls. Few cells are cheaper one by one, as plain numbers of Python.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fferm._typing import FloatArray, Namespace, Operand

Formula: TypeAlias = Callable[[Operand, Namespace], Operand]

# With more cells, arrays are faster.
FEW = 24


class Numbers:
    """The five functions of a formula, on one number."""

    exp = staticmethod(math.exp)
    log = staticmethod(math.log)
    sqrt = staticmethod(math.sqrt)
    abs = staticmethod(abs)

    @staticmethod
    def where(condition: bool, x: float, y: float) -> float:
        """Return x where the condition holds, else y."""
        return x if condition else y


NUMBERS = Numbers()


def each(formula: Formula, t: FloatArray) -> FloatArray:
    """Return a formula of every number of an array.

    Examples
    --------
    >>> each(lambda t, xp: xp.where(t > 1, xp.log(t), 0.0), np.array([0.5, np.e]))
    array([0., 1.])
    """
    if t.size <= FEW:
        try:
            found = [formula(x, NUMBERS) for x in t.ravel().tolist()]
            return np.array(found, dtype=np.float64).reshape(t.shape)
        except (ArithmeticError, ValueError):
            pass  # infinities, which are numbers for NumPy alone
        except (AttributeError, TypeError):
            pass  # a formula of somebody's own, for arrays alone
    with np.errstate(all="ignore"):
        return np.asarray(formula(t, np), dtype=np.float64)
