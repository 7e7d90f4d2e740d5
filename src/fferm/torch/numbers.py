"""Predictions that are numbers: how a loss knows them, and where it counts them."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fferm._typing import Table
from fferm.data.groups import is_continuous, quantile_edges
from fferm.errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from fferm.notions import Notion
from fferm.penalty.soft_bins import SoftBins, make_bins
from fferm.torch.encoding import plain
from fferm.torch.outputs import Outputs


def read_outputs(y: Table, outputs: Outputs) -> Outputs:
    """Return what a loss is called with, told from the labels where it is not said."""
    if outputs != "auto":
        return outputs
    if y is None:
        return "logits"
    values = np.asarray(plain(y))
    is_number = values.ndim == 1 and is_continuous(pd.Series(values))
    return "numbers" if is_number else "logits"


def read_bins(y: Table, bins: int | SoftBins, notion: Notion) -> SoftBins:
    """Return the bins given, or as many as asked for, between quantiles of y."""
    if notion.needs_labels:
        raise InvalidParameterError(
            f"{notion.name} conditions on a label, and the model predicts numbers. Use "
            "demographic_parity, or ConditionalParity with one value per row."
        )
    if isinstance(bins, SoftBins):
        return bins
    if not isinstance(bins, int | np.integer) or bins < 2 or y is None:
        raise InvalidParameterError(
            f"bins={bins!r} came. Expected a whole number from 2 on, with y to place "
            "them by, or the bins themselves: fferm.penalty.soft_bins.make_bins(edges)."
        )
    values = np.asarray(plain(y), dtype=np.float64)
    edges = quantile_edges(values, int(bins), np.ones(values.size))
    if edges.size == 0:
        raise InvalidInputError(
            "y holds one number only, so there are no bins to predict. Check y, or "
            "give bins=fferm.penalty.soft_bins.make_bins(edges)."
        )
    return make_bins(edges)


def bin_logits(output: Tensor, bins: SoftBins) -> Tensor:
    """Return the (n, n_bins) logits of predicted numbers, (n,) or (n, 1)."""
    u = as_numbers(output)
    slopes = torch.as_tensor(bins.slopes, device=u.device).to(u.dtype)
    offsets = torch.as_tensor(bins.offsets, device=u.device).to(u.dtype)
    return u[:, None] * slopes + offsets


def as_numbers(output: Tensor) -> Tensor:
    """Return predicted numbers as (n,), never in half precision."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise InvalidTypeError(
            f"The output of the model is a {type(output).__name__}. Expected a "
            "floating tensor of predicted numbers."
        )
    is_column = output.dim() == 2 and output.shape[1] == 1
    if not (output.dim() == 1 or is_column):
        raise InvalidInputError(
            f"The output of the model has shape {tuple(output.shape)}. Expected one "
            "number a row, (n,) or (n, 1)."
        )
    u = output.reshape(-1)
    return u.float() if u.dtype in (torch.float16, torch.bfloat16) else u
