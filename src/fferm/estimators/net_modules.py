"""The network of a `FairNetClassifier`: made anew, taken up again, or read back."""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fferm.data.validate import TrainingData, check_whole
from fferm.errors import InvalidInputError, InvalidTypeError, PersistenceError
from fferm.penalty.objective import Problem
from fferm.torch import bins, networks, states

if TYPE_CHECKING:
    from torch import nn

    from fferm.estimators.net import FairNetClassifier


def maker(
    model: "FairNetClassifier", problem: Problem, start: "nn.Module | None"
) -> "Callable[[int], nn.Module]":
    """Return what makes a network of a seed; with a start, a copy of that."""
    if start is not None:
        return lambda seed: copy.deepcopy(start)
    hidden = _read_hidden(model.hidden)
    if not (model.module is None or callable(model.module)):
        raise InvalidTypeError(
            f"module is a {type(model.module).__name__}. Expected None for the default "
            "network, a torch.nn.Module, or a class or function that makes one of "
            "(n_features, n_classes)."
        )
    cuts = bins.find_bins(problem.X) if model.module is None else bins.NO_CUTS
    default = functools.partial(bins.make_default, hidden=hidden, cuts=cuts)
    sizes = problem.X.shape[1], problem.n_classes
    return lambda seed: networks.make_network(model.module, default, *sizes, seed)


def restore(model: "FairNetClassifier", packed: bytes, own: str | None) -> "nn.Module":
    """Return the network of a file, for a model with all else in place.

    Parameters
    ----------
    model
        What is loaded.
    packed
        Parameters of the network.
    own
        Name of the user's class, where the module was not the default.
    """
    if own is not None and model.module is None:
        raise PersistenceError(
            f"The model was trained with a module of your own, {own}, and a file holds "
            f"no code. Pass it: fferm.load(path, module={own}(...))."
        )
    state = states.unpack(packed)
    sizes = int(model.n_features_in_), model.classes_.size
    default = functools.partial(
        bins.default_of, state, hidden=_read_hidden(model.hidden)
    )
    made = networks.make_network(model.module, default, *sizes, 0)
    return states.load(state, made)


@dataclass(frozen=True)
class Last:
    """The network of the last fit, and what it was fitted to."""

    module: "nn.Module"
    classes: NDArray[Any]
    n_features: int

    def checked(self, data: TrainingData) -> "nn.Module":
        """Return the network, if it fits the data."""
        is_same = np.array_equal(self.classes, data.classes)
        if is_same and self.n_features == data.X.shape[1]:
            return self.module
        raise InvalidInputError(
            f"warm_start found {self.n_features} features and classes "
            f"{self.classes.tolist()}, the data have {data.X.shape[1]} and "
            f"{data.classes.tolist()}. Fit with warm_start=False."
        )


def last_of(model: "FairNetClassifier") -> Last | None:
    """Return the network of the last fit, before a new one says otherwise."""
    if not hasattr(model, "module_"):
        return None
    return Last(model.module_, model.classes_, int(model.n_features_in_))


def _read_hidden(hidden: Sequence[int]) -> list[int]:
    try:
        widths = list(hidden)
    except TypeError as error:
        raise InvalidTypeError(
            f"hidden={hidden!r} came. Expected the width of each hidden layer, for "
            "example (64, 64), or () for none."
        ) from error
    return [check_whole("hidden", width) for width in widths]
