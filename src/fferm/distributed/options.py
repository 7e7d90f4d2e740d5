"""What a run is told, and which of it a checkpoint holds it to."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fferm.data.groups import GroupMode
from fferm.distributed.dataset import BUFFER
from fferm.errors import InvalidParameterError

# What may differ when a run goes on from its checkpoint.
FREE = {"data", "out", "epochs", "streams", "workers", "device", "timeout"}
FREE |= {"checkpoint_every", "restart"}


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
    divergence, notion, sharpness, groups, fairness_weight
        As in `fferm.FairLogisticRegression`.
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
        Whether to begin anew where ``out`` holds a checkpoint.
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
    fairness_weight: float = 1.0
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
        positive = ("epochs", "checkpoint_every", "lr", "timeout")
        numbers: dict[str, float] = {name: getattr(self, name) for name in positive}
        numbers["hidden"] = min(self.hidden, default=1)
        for name, value in numbers.items():
            if not 0 < value < math.inf:
                raise InvalidParameterError(
                    f"{name}={value!r} came. Expected a positive number."
                )
        for name in ("fairness_weight", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidParameterError(
                    f"{name}={getattr(self, name)!r} came. Expected a finite number of "
                    "0 or more."
                )

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint holds a run to."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in FREE
        }


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options of a command line."""
    given = vars(_parser().parse_args(arguments))
    for name in ("sensitive", "features", "hidden"):
        given[name] = None if given[name] is None else tuple(given[name])
    return Options(**given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fferm.distributed",
        description="Train a fair classifier from a folder of Parquet shards; with "
        "torchrun, on many processes. Run again to go on from the last checkpoint.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    usual: dict[str, Any] = {
        field.name: field.default
        for field in fields(Options)
        if isinstance(field.default, str | int | float | tuple)
    }
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
    add(
        "--streams",
        type=int,
        help="parts of an epoch that a batch draws on (default: 4)",
    )
    add("--restart", action="store_true", help="begin anew, whatever is in --out")
    described = {
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
    for name, meaning in described.items():
        add(f"--{name.replace('_', '-')}", type=type(usual[name]), help=meaning)
    parser.set_defaults(**usual)
    return parser
