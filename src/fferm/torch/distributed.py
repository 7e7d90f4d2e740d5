"""Sums over the ranks of a distributed run; without one, nothing happens."""

from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

Value = TypeVar("Value")


def rank_and_size() -> tuple[int, int]:
    """Return the number of this rank, and how many there are: 0 and 1 without a run."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def add_ranks(*tables: Tensor) -> tuple[Tensor, ...]:
    """Return tables summed over all ranks; each must ask as often as the others."""
    if rank_and_size()[1] > 1:
        for table in tables:
            dist.all_reduce(table)
    return tables


def collect_ranks(value: Value) -> list[Value]:
    """Return the values of all ranks, in their order, on each of them."""
    n_ranks = rank_and_size()[1]
    if n_ranks == 1:
        return [value]
    values: list[Value | None] = [None] * n_ranks
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def spread_ranks(value: Value) -> Value:
    """Return the value of rank 0, on each of them."""
    if rank_and_size()[1] == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
