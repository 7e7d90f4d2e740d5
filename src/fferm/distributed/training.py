"""Training from shards on one process or many, with checkpoints.

`Options` are those of ``python -m fferm.distributed``; `train` joins the ranks that
``torchrun`` started and trains a small network with PyTorch's DistributedDataParallel.
Checkpoints and models are written whole or not at all, and read without pickle.
"""

import argparse
import io
import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn import functional as F  # noqa: N812 - everybody's name for it
from torch.nn.parallel import DistributedDataParallel

import fferm
from fferm._files import replacing
from fferm._locks import locked
from fferm.data.groups import GroupMode
from fferm.data.validate import COUNT, POSITIVE, Number, check_params
from fferm.distributed.shards import ShardSummary, find_shards, summarize
from fferm.distributed.stream import BUFFER, Batch, ShardDataset, ShardLoader
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    LostRankError,
    NonFiniteError,
    PersistenceError,
    explain,
)
from fferm.torch.distributed import add_ranks, rank_and_size, spread_ranks
from fferm.torch.networks import seeded
from fferm.torch.training import find_device

CHECKPOINT = "checkpoint.pt"
MODEL = "model.safetensors"
ADVICE = "Choose an --out that is writable and has room."
RESCUE = "Choose another --out, or start from scratch with --restart."
# What may differ when a run goes on from its checkpoint.
FREE = {"data", "out", "epochs", "streams", "workers", "device", "timeout"}
FREE |= {"checkpoint_every", "restart"}
# What messages of PyTorch say where a rank does not answer: its errors have no class.
LOST = re.compile("gloo|nccl|connection|timed out|timeout|peer|socket|store")
# Options that take one value of the type of their default.
PLAIN_OPTIONS = {
    "divergence": "between predictions and groups",
    "notion": "of fairness",
    "sharpness": "of the probabilities that the penalty sees",
    "fairness_weight": "weight of the penalty",
    "epochs": "passes over the data",
    "batch_size": "rows of a step, on all ranks together",
    "lr": "learning rate of AdamW",
    "weight_decay": "of AdamW",
    "seed": "of weights and shuffles",
    "buffer": "rows in the shuffle buffer of a stream",
    "workers": "processes that read ahead, on each rank",
    "timeout": "seconds to wait for another rank",
    "checkpoint_every": "steps between checkpoints",
}
# What a checkpoint holds the state of.
STATEFUL = ("loader", "model", "fair", "optimizer")

log = logging.getLogger("fferm.distributed")


@dataclass(frozen=True)
class Options:
    """The options of a run; those of the command line are spelled with hyphens.

    Attributes
    ----------
    data
        Folder of Parquet shards.
    target
        Column of labels.
    sensitive
        Columns that make groups.
    out
        Folder for checkpoint and model.
    features, drop_sensitive
        As in `fferm.distributed.summarize`.
    divergence, notion, sharpness, groups
        As in `fferm.FairLogisticRegression`.
    fairness_weight
        The factor of the penalty, whatever its divergence.
    hidden
        Widths of the hidden layers; none for a linear model.
    epochs, batch_size, lr, weight_decay
        Of AdamW; ``batch_size`` counts the rows of all ranks together.
    seed, streams, buffer, workers
        As in `fferm.distributed.ShardDataset` and ``ShardLoader``.
    dtype, device
        ``"float32"`` or ``"float64"``; ``"auto"``, ``"cpu"`` or ``"cuda"``.
    timeout
        Seconds to wait for another rank.
    checkpoint_every
        Steps between two checkpoints; there is one after each epoch too.
    restart
        Whether to start from scratch even if ``out`` holds a checkpoint.
    """

    data: Path
    target: str
    sensitive: tuple[str, ...]
    out: Path
    features: tuple[str, ...] | None = None
    drop_sensitive: bool = False
    divergence: str = "kl"
    notion: str = "demographic_parity"
    sharpness: float = 1.0
    groups: GroupMode = "intersection"
    fairness_weight: float = 10.0
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 3
    batch_size: int = 256
    lr: float = 1e-3
    weight_decay: float = 0.0
    seed: int = 0
    streams: int | None = None
    buffer: int = BUFFER
    workers: int = 0
    dtype: str = "float32"
    device: str = "auto"
    timeout: float = 600.0
    checkpoint_every: int = 1000
    restart: bool = False

    def __post_init__(self) -> None:
        check_params(
            {**vars(self), "hidden": min(self.hidden, default=1)},
            {
                **dict.fromkeys(("epochs", "checkpoint_every", "hidden"), COUNT),
                **dict.fromkeys(("lr", "timeout"), POSITIVE),
                **dict.fromkeys(("fairness_weight", "weight_decay"), Number()),
            },
        )

    def pick(self, *names: str) -> dict[str, Any]:
        """Return some of the options by name."""
        return {name: getattr(self, name) for name in names}

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint holds a run to."""
        return {"version": fferm.__version__} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in FREE
        }


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fferm.distributed",
        description="Train a fair classifier from a folder of Parquet shards; with "
        "torchrun, on many processes. Run again to go on from the last checkpoint.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    optional = [field for field in fields(Options) if field.default is not MISSING]
    defaults: dict[str, Any] = {field.name: field.default for field in optional}
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder of *.parquet files")
    add("--target", required=True, help="column of labels")
    add("--sensitive", required=True, action="append", help="column of groups; repeat")
    add("--out", required=True, type=Path, help="folder for checkpoint and model")
    add("--features", nargs="+", help="columns that the model sees (default: all)")
    add("--drop-sensitive", action="store_true", help="hide the groups from the model")
    add("--groups", choices=["intersection", "marginal"], help="of several columns")
    add("--hidden", nargs="*", type=int, help="widths of layers; none: a linear model")
    add("--dtype", choices=["float32", "float64"], help="of model and features")
    add("--device", choices=["auto", "cpu", "cuda"], help="where the model is")
    add("--streams", type=int, help="parts of an epoch in a batch (default: 4)")
    add("--restart", action="store_true", help="ignore a checkpoint in --out")
    for name, meaning in PLAIN_OPTIONS.items():
        add(f"--{name.replace('_', '-')}", type=type(defaults[name]), help=meaning)
    parser.set_defaults(**defaults)
    options = vars(parser.parse_args(arguments))
    for name in ("sensitive", "features", "hidden"):
        options[name] = None if options[name] is None else tuple(options[name])
    return Options(**options)


# The loop


def train(options: Options) -> list[dict[str, Any]]:
    """Train with the given options, from the last checkpoint on if there is one.

    Returns
    -------
    list of dict
        Loss, penalty and violation of each epoch.
    """
    with _joined_ranks(options.device, options.timeout) as device, ExitStack() as held:
        rescue = f"run the same command again to go on from {options.out / CHECKPOINT}"
        with _explain_lost("at the beginning", rescue):
            training = Training(options, device, _last_state(options, held))
        with _explain_lost("in training", rescue):
            while training.loader.dataset.epoch < options.epochs:
                training.run_epoch()
        training.finish()
        return training.history


class Training:
    """A run between two steps.

    Parameters
    ----------
    options
        Of the run.
    device
        Where it runs.
    state
        The checkpoint to go on from, or None.
    """

    def __init__(
        self, options: Options, device: torch.device, state: dict[str, Any] | None
    ) -> None:
        self.options, self.device = options, device
        self.rank, self.n_ranks = rank_and_size()
        self.history: list[dict[str, Any]] = []
        self.total = torch.zeros(2, dtype=torch.float64, device=device)  # loss, rows
        if state is None:
            columns = ("target", "sensitive", "features", "drop_sensitive")
            self.summary = summarize(options.data, **options.pick(*columns))
        else:
            with _reading(options.out / CHECKPOINT):
                self.summary = ShardSummary.from_json(state["summary"], options.data)
            shards = find_shards(options.data)[0]
            changed = shards.items() ^ self.summary.shards.items()
            if changed:
                names = ", ".join(sorted({name for name, _ in changed}))
                raise InvalidInputError(
                    f"{options.data} changed since the checkpoint: {names}. Put the "
                    "shards back, or start from scratch with --restart."
                )
        dtype: torch.dtype = getattr(torch, options.dtype)
        dataset = ShardDataset(
            self.summary,
            **options.pick("batch_size", "seed", "buffer"),
            streams=options.streams if state is None else state["streams"],
            dtype=dtype,
        )
        self.loader = ShardLoader(dataset, num_workers=options.workers)
        self.model = _make_model(self.summary, options.hidden, dtype, options.seed)
        self.model.to(device)
        penalty = options.pick("divergence", "notion", "sharpness", "groups")
        self.fair = self.summary.fairness_loss(**penalty).to(device)
        rates = options.pick("lr", "weight_decay")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **rates)
        if state is None:
            return
        with _reading(options.out / CHECKPOINT):
            for name in STATEFUL:
                getattr(self, name).load_state_dict(state[name])
            self.history = list(state["history"])
            if self.rank == 0:
                self.total.copy_(state["total"])
        if self.rank == 0:
            log.info("goes on from epoch %d, step %d", dataset.epoch + 1, dataset.step)

    def run_epoch(self) -> None:
        """Train to the end of the epoch, with checkpoints."""
        began, data = time.perf_counter(), self.loader.dataset
        model: nn.Module = self.model
        if self.n_ranks > 1:
            model = DistributedDataParallel(self.model)
        epoch, every = data.epoch + 1, self.options.checkpoint_every
        for batch in self.loader:
            self._step(model, batch, data.n_rows(data.step - 1))
            if data.step % every == 0 and data.step < data.n_steps:
                self._save()
        self._check_total()
        diagnostics = self.fair.diagnostics()
        loss, n_rows = self.total.tolist() if self.rank == 0 else (0.0, 1.0)
        record = {
            "epoch": epoch,
            "loss": loss / n_rows,
            "divergence": diagnostics.divergence,
            "violation": diagnostics.violation,
            "n_rows": diagnostics.n_samples,
        }
        self.history.append(record)
        self.total.zero_()
        if self.rank == 0:
            seconds = time.perf_counter() - began
            log.info(
                "epoch %(epoch)d of %(epochs)d: loss %(loss).4f, divergence "
                "%(divergence).5f, violation %(violation).4f (%(seconds).1f s)",
                {**record, "epochs": self.options.epochs, "seconds": seconds},
            )
        self._save()

    def finish(self) -> None:
        """Write the trained model, on rank 0."""
        if self.rank == 0:
            about = {**self.options.settings(), "data": str(self.options.data)}
            about["history"] = self.history
            metadata = {"summary": self.summary.to_json(), "about": json.dumps(about)}
            state = self.model.state_dict().items()
            tensors = {name: tensor.detach().cpu() for name, tensor in state}
            path = self.options.out / MODEL
            with replacing(path, ADVICE, makes_folder=True) as temporary:
                temporary.write_bytes(save(tensors, metadata))
            log.info("%s is trained", path)

    def _save(self) -> None:
        """Write a checkpoint, on rank 0; every rank must call."""
        self._check_total()
        if self.rank == 0:
            state = {
                "settings": self.options.settings(),
                "summary": self.summary.to_json(),
                "streams": len(self.loader.dataset.bounds) - 1,
                **{name: getattr(self, name).state_dict() for name in STATEFUL},
                "total": self.total.cpu(),
                "history": self.history,
            }
            torch.save(state, content := io.BytesIO())
            path = self.options.out / CHECKPOINT
            with replacing(path, ADVICE, makes_folder=True) as temporary:
                temporary.write_bytes(content.getbuffer())

    def _step(self, model: nn.Module, batch: Batch, n_rows: int) -> None:
        x, y, group = (part.to(self.device, non_blocking=True) for part in batch)
        logits = model(x)
        loss = F.cross_entropy(logits, y, reduction="sum") / max(len(y), 1)
        loss = loss + self.options.fairness_weight * self.fair(logits, group, y)
        # Gradients are averaged over ranks; the rows of a batch are to weigh alike.
        share = len(y) * self.n_ranks / n_rows
        self.optimizer.zero_grad()
        (share * loss).backward()
        self.optimizer.step()
        self.total[0] += loss.detach() * len(y)
        self.total[1] += len(y)

    def _check_total(self) -> None:
        """Gather the loss so far on rank 0, after checking it."""
        (self.total,) = add_ranks(self.total)
        if not math.isfinite(float(self.total[0])):
            raise NonFiniteError(
                f"The loss of epoch {self.loader.dataset.epoch + 1} is not finite. "
                "Lower --lr or --fairness-weight; the last checkpoint is from before."
            )
        if self.rank > 0:
            self.total.zero_()


def _last_state(options: Options, held: ExitStack) -> dict[str, Any] | None:
    """Return the last checkpoint, None where there is none or it is not wanted.

    On rank 0, ``held`` gets the lock of the folder.
    """
    # Rank 0 alone needs to see the folder; another machine may not.
    state, failure = None, None
    if rank_and_size()[0] == 0:
        try:
            # Before hours are spent for a folder that cannot be written to.
            with explain(f"Cannot write to {options.out}", ADVICE, OSError):
                held.enter_context(locked(options.out / ".lock"))
            state = _read_checkpoint(options)
        except ValueError as error:
            failure = error
    state, failure = spread_ranks((state, failure))
    if failure is not None:
        raise failure
    return state


def _make_model(
    summary: ShardSummary, hidden: Sequence[int], dtype: torch.dtype, seed: int = 0
) -> nn.Sequential:
    """Return a network with these hidden layers; a linear model without any."""
    widths = [len(summary.feature_names), *hidden, summary.n_classes]
    layers: list[nn.Module] = []
    with seeded(seed):
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after, dtype=dtype), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# The files


def load_model(folder: str | Path) -> tuple[nn.Module, ShardSummary]:
    """Return a trained model, and the summary that encodes tables for it.

    Parameters
    ----------
    folder
        The ``--out`` of a run that ended.
    """
    path = Path(folder) / MODEL
    if not path.exists():
        raise PersistenceError(f"{path} does not exist. Pass the --out of a run.")
    problem = f"{path} could not be read as a trained model"
    with (
        explain(problem, "Pass the --out of a run that ended.", Exception),
        safe_open(path, framework="pt") as file,
    ):
        names, metadata = file.keys(), file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in names}
        about = json.loads(metadata["about"])
        summary = ShardSummary.from_json(metadata["summary"], about["data"])
        dtype: torch.dtype = getattr(torch, about["dtype"])
        with torch.device("meta"):  # a width that no tensor has takes no memory
            model = _make_model(summary, about["hidden"], dtype)
        model.load_state_dict(tensors, assign=True)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise ValueError("some parameters are not finite")
    return model.eval(), summary


def _reading(path: Path) -> AbstractContextManager[None]:
    return explain(f"{path} could not be read as a checkpoint", RESCUE, Exception)


def _read_checkpoint(options: Options) -> dict[str, Any] | None:
    """Return the checkpoint of a run with these options, None where there is none."""
    path = options.out / CHECKPOINT
    if options.restart or not path.exists():
        return None
    with _reading(path):
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        expected = {**state["settings"], "streams": state["streams"]}
    for name, value in {**options.settings(), "streams": options.streams}.items():
        is_free = name == "streams" and value is None
        if expected.get(name) != value and not is_free:
            raise InvalidParameterError(
                f"{name} must be {expected.get(name)!r} as in {path}; got {value!r}. "
                f"{RESCUE}"
            )
    return state


# The ranks


@contextmanager
def _joined_ranks(device: str, timeout: float) -> Iterator[torch.device]:
    """Join the ranks that a launcher started, if one did; yields the device to use."""
    chosen = find_device(device)
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if chosen.type == "cuda" and "RANK" in os.environ:
        torch.cuda.set_device(chosen)
    # Ray Train has joined them itself, and takes them apart.
    is_alone = "RANK" not in os.environ or "WORLD_SIZE" not in os.environ
    if is_alone or dist.is_initialized():
        yield chosen
        return
    with _explain_lost("before training", "nothing was lost"):
        wait = timedelta(seconds=timeout)
        store, rank, n_ranks = next(rendezvous("env://", timeout=wait))
        # torchrun keeps its store when it starts ranks again, with the addresses of
        # those that are gone: https://github.com/pytorch/pytorch/issues/135712. Only on
        # one machine does everybody count restarts alike; the how-to has the remedy
        # for more.
        if os.environ.get("GROUP_WORLD_SIZE") == "1":
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = PrefixStore(f"attempt_{attempt}", store)
        backend = "nccl" if chosen.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=n_ranks, timeout=wait
        )
    # Left as it is after an error: to take it apart, all ranks would have to answer.
    yield chosen
    dist.destroy_process_group()


@contextmanager
def _explain_lost(when: str, rescue: str) -> Iterator[None]:
    """Say in plain words that another rank is gone, where an error means it."""
    try:
        yield
    except RuntimeError as error:
        if "RANK" not in os.environ or not LOST.search(str(error).lower()):
            raise
        rank = rank_and_size()[0] if dist.is_initialized() else os.environ["RANK"]
        raise LostRankError(
            f"Rank {rank} lost another rank {when}: it died, or did not answer in time "
            f"({str(error).strip().splitlines()[0]}). Look at its own output first; "
            f"{rescue}."
        ) from error
