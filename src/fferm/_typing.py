"""The array types that signatures speak of, and the namespace of the formulas."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

# A formula takes a NumPy array, a torch tensor or one float and returns its like.
Operand: TypeAlias = Any
# Data as users hold it: arrays, lists, data frames, sparse matrices.
Table: TypeAlias = Any


class Namespace(Protocol):
    """The five functions a formula may use; numpy and torch both are one."""

    def exp(self, x: Operand, /) -> Operand:
        """Return e to the x."""

    def log(self, x: Operand, /) -> Operand:
        """Return the natural logarithm of x."""

    def sqrt(self, x: Operand, /) -> Operand:
        """Return the square root of x."""

    def abs(self, x: Operand, /) -> Operand:
        """Return the absolute value of x."""

    def where(self, condition: Operand, x: Operand, y: Operand, /) -> Operand:
        """Return x where the condition holds and y elsewhere."""


# Whether X is a scipy sparse matrix or array.
is_sparse: Callable[[Table], bool] = scipy.sparse.issparse
