"""Networks and runs as bytes: numbers, never code.

A saved network is in the safetensors format. A folder of checkpoints holds one file per
run, written after every epoch and named by a digest of data, parameters and settings:
a search or a curve that was interrupted resumes run by run, and a run that was trained
on anything else is never taken for it.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

import fferm
from fferm._files import replacing
from fferm._typing import Table, is_sparse
from fferm.errors import PersistenceError, explain, import_extra
from fferm.solvers.base import Result

if TYPE_CHECKING:
    from fferm.torch.training import Run

SAFETENSORS = "safetensors.torch", "torch", "A saved network"
# Of a network that is loaded.
MOST_LAYERS = 1000


def pack(module: nn.Module) -> bytes:
    """Return the parameters and buffers of a module as bytes."""
    # Copies: the format refuses tensors that share memory, as tied weights do.
    state = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in module.state_dict().items()
    }
    packed: bytes = import_extra(*SAFETENSORS).save(state)
    return packed


def unpack(packed: bytes) -> dict[str, Tensor]:
    """Return what `pack` wrote."""
    loaded = import_extra(*SAFETENSORS).load(packed)
    # Copies lie in memory as PyTorch likes it.
    return {name: tensor.clone() for name, tensor in loaded.items()}


def widths(state: dict[str, Tensor]) -> list[int]:
    """Return the width of each hidden layer of one of our networks."""
    weights = [name for name in state if name.endswith(".weight")]
    if len(weights) > MOST_LAYERS:  # PyTorch takes the square of their number
        raise PersistenceError(f"{len(weights)} layers are more than {MOST_LAYERS}.")
    weights.sort(key=lambda name: int(name.split(".")[-2]))  # layers are numbered
    return [state[name].shape[0] for name in weights[:-1]]


def load(state: dict[str, Tensor], module: nn.Module) -> nn.Module:
    """Return a module with the parameters of a state, in evaluation mode.

    One on the device "meta" has no memory of its own, so that widths in a file cannot
    ask for more than the file holds.
    """
    floating = [t.dtype for t in state.values() if t.is_floating_point()]
    is_empty = all(parameter.is_meta for parameter in module.parameters())
    problem = f"The saved parameters do not fit {type(module).__name__}"
    advice = "Pass the module that the model was trained with."
    with explain(problem, advice, RuntimeError):
        module = module.to(floating[0]) if floating else module
        module.load_state_dict(state, assign=is_empty)
    # Buffers of a user's module may be infinite, as those of masks are.
    numbers = state.values() if is_empty else module.parameters()
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        raise PersistenceError(
            "module_ must hold finite numbers; got NaN or infinity. Train it again."
        )
    return module.eval()


class Checkpoint:
    """The file of one run, named by a digest of what makes it the same run again.

    Parameters
    ----------
    folder
        Where checkpoints are kept; made if it is not there.
    settings, tables
        Settings count by how they read, tables by their numbers.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Iterable[object],
        tables: Iterable[Table],
    ) -> None:
        digest = hashlib.sha256(fferm.__version__.encode())
        for setting in settings:
            digest.update(repr(setting).encode())
        for table in tables:
            parts = [] if table is None else [table]
            if is_sparse(table):
                parts = [table.data, table.indices, table.indptr]
            for array in map(np.asarray, parts):
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        self.path = Path(folder) / f"{digest.hexdigest()[:32]}.pt"

    def _reading(self) -> AbstractContextManager[None]:
        problem = f"{self.path} could not be read as a checkpoint"
        return explain(problem, "Delete it to train from the beginning.", Exception)

    def read(self) -> dict[str, Any] | None:
        """Return what was written last, None where there is nothing yet."""
        if not self.path.exists():
            return None
        with self._reading():
            return {**torch.load(self.path, map_location="cpu", weights_only=True)}

    def restore(self, run: "Run") -> None:
        """Put a run where it was when the checkpoint was written."""
        content = self.read()
        if content is None:
            return
        with self._reading():
            run.networks.load(content["networks"])
            run.optimizer.load_state_dict(content["optimizer"])
            for group in run.optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    # A captured step follows a rate on its device and freezes others.
                    group["lr"] = group["lr"].to(run.config.device)
            if run.objective.penalty is not None:
                run.objective.penalty.load_state_dict(content["penalty"])
            for monitor, history in zip(
                run.monitors, content["histories"], strict=True
            ):
                monitor.history[:] = history
                monitor.began -= history[-1]["seconds"] if history else 0.0
            device = run.config.device
            run.epoch, run.stopping.n_idle = content["epoch"], content["n_idle"]
            run.stopping.best = content["best"]
            run.best_state = {n: t.to(device) for n, t in content["best_state"].items()}
            run.result = Result[content["result"]] if content["result"] else None
            torch.set_rng_state(content["random"])
            if device.type == "cuda":
                torch.cuda.set_rng_state(content["cuda_random"], device)

    def write(self, run: "Run") -> None:
        """Write where a run is, whole or not at all."""
        device, penalty = run.config.device, run.objective.penalty
        content = {
            "seed": run.config.seed,
            "networks": run.networks.state(),
            "optimizer": run.optimizer.state_dict(),
            "penalty": None if penalty is None else penalty.state_dict(),
            "histories": [monitor.history for monitor in run.monitors],
            "epoch": run.epoch,
            "n_idle": run.stopping.n_idle,
            "best": run.stopping.best,
            "best_state": run.best_state,
            "result": None if run.result is None else run.result.name,
            "random": torch.get_rng_state(),
        }
        if device.type == "cuda":
            content["cuda_random"] = torch.cuda.get_rng_state(device)
        advice = "Choose a writable folder for checkpoints, or checkpoint=None."
        with replacing(self.path, advice, makes_folder=True) as temporary:
            torch.save(content, temporary)
