"""From what a model puts out to the probabilities that the penalty sees."""

from typing import Literal

import torch
from torch import Tensor

from fferm.data.validate import SUM_TOLERANCE
from fferm.errors import InvalidInputError, InvalidTypeError

Outputs = Literal["auto", "logits", "probabilities", "numbers"]

# Rows of half precision sum to 1 up to this.
HALF_TOLERANCE = 1e-2


def penalized_prob(
    output: Tensor, n_classes: int, sharpness: float, kind: Outputs, check: bool
) -> Tensor:
    """Return (n, n_classes) ``softmax(sharpness * logits)``, never in half precision.

    Parameters
    ----------
    output
        (n, n_classes); of two classes also (n, 1) or (n,), those of the second.
    n_classes, sharpness, kind
        Classes, factor of the logits, and what ``output`` holds.
    check
        Whether probabilities on the CPU are checked to be some.
    """
    is_single = check_shape(output, n_classes)
    tolerance = SUM_TOLERANCE
    if output.dtype in (torch.float16, torch.bfloat16):
        output, tolerance = output.float(), HALF_TOLERANCE
    if kind == "probabilities":
        prob = _both(output.reshape(-1)) if is_single else output
        if check and is_readable(prob):
            _check_prob(prob.detach(), tolerance)
        return prob if sharpness == 1 else _sharpened(prob, sharpness)
    if is_single:
        logit = sharpness * output.reshape(-1)
        return torch.stack([torch.sigmoid(-logit), torch.sigmoid(logit)], dim=1)
    return torch.softmax(sharpness * output, dim=1)


def check_shape(output: Tensor, n_classes: int) -> bool:
    """Return whether one output stands for two classes; refuse other shapes."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise InvalidTypeError(
            f"The output of the model is {_kind(output)}. Expected a floating tensor "
            "of logits (or of probabilities, with outputs='probabilities')."
        )
    is_single = output.dim() == 1 or (output.dim() == 2 and output.shape[1] == 1)
    is_full = output.dim() == 2 and output.shape[1] == n_classes
    if is_full or (is_single and n_classes == 2):
        return is_single
    raise InvalidInputError(
        f"The output of the model has shape {tuple(output.shape)} and there are "
        f"{n_classes} classes. Expected (n, {n_classes})"
        + (", (n, 1) or (n,)." if n_classes == 2 else ".")
    )


def is_readable(values: Tensor) -> bool:
    """Return whether values can be looked at: without a GPU to wait for, uncompiled."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def _check_prob(prob: Tensor, tolerance: float) -> None:
    is_sound = ((prob.sum(dim=1) - 1).abs() <= tolerance).all() and (prob >= 0).all()
    if not bool(is_sound):
        raise InvalidInputError(
            "Some rows of the output are no probabilities: negative, missing, or their "
            "sum is not 1. Give logits and outputs='logits', or a softmax."
        )


def _sharpened(prob: Tensor, sharpness: float) -> Tensor:
    # A probability of 0 has no logarithm; the smallest normal number has.
    log = torch.log(prob.clamp_min(torch.finfo(prob.dtype).tiny))
    return torch.softmax(sharpness * log, dim=1)


def _both(prob: Tensor) -> Tensor:
    return torch.stack([1 - prob, prob], dim=1)


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}"
    return f"a {type(value).__name__}"
