"""The ranks of a run: PyTorch's process group, and what to say when one is gone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from fferm.errors import InvalidParameterError, LostRankError
from fferm.torch.ranks import rank_and_size

# What messages of PyTorch say where a rank does not answer: its errors have no class.
SIGNS = (
    "gloo",
    "nccl",
    "connection",
    "timed out",
    "timeout",
    "peer",
    "socket",
    "store",
)


@contextmanager
def joined_ranks(device: str, timeout: float) -> Iterator[torch.device]:
    """Join the ranks that ``torchrun`` started, if it did; yields the device to use."""
    chosen = choose_device(device)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield chosen
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    with explained("before training", "nothing was lost"):
        wait = timedelta(seconds=timeout)
        store, rank, n_ranks = next(rendezvous("env://", timeout=wait))
        dist.init_process_group(
            "nccl" if chosen.type == "cuda" else "gloo",
            store=_fresh(store),
            rank=rank,
            world_size=n_ranks,
            timeout=wait,
        )
    # Left as it is after an error: to take it apart, all ranks would have to answer.
    yield chosen
    dist.destroy_process_group()


def choose_device(name: str) -> torch.device:
    """Return the device of this rank."""
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise InvalidParameterError(
            "device='cuda' came and PyTorch sees no GPU. Use 'cpu' or 'auto'."
        )
    if name == "cpu" or not has_gpu:
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def explained(when: str, rescue: str) -> Iterator[None]:
    """Say in plain words that another rank is gone, where an error means it."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if "RANK" not in os.environ or not any(sign in text for sign in SIGNS):
            raise
        rank = rank_and_size()[0] if dist.is_initialized() else os.environ["RANK"]
        raise LostRankError(
            f"Rank {rank} lost another rank {when}: it died, or did not answer in time "
            f"({str(error).strip().splitlines()[0]}). Look at its own output first; "
            f"{rescue}."
        ) from error


def _fresh(store: Store) -> Store:
    # torchrun keeps its store when it starts ranks again, with the addresses of those
    # that are gone: https://github.com/pytorch/pytorch/issues/135712. Only on one
    # machine does everybody count restarts alike; the how-to has the remedy for more.
    if os.environ.get("GROUP_WORLD_SIZE") != "1":
        return store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"attempt_{attempt}", store)
