"""Checkpoints of a run: written after every epoch, found again by what is trained.

A folder holds one file per run, named by a digest of data, parameters and settings. So
a search or a curve that was interrupted goes on where it was, run by run, and a run
that was trained on anything else is never taken for it. Files hold tensors and numbers
and are read without running code.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import fferm
from fferm._typing import Table, is_sparse
from fferm.errors import PersistenceError
from fferm.solvers.base import Result

if TYPE_CHECKING:
    from fferm.torch.training import Run


class Checkpoint:
    """The file of one run.

    Parameters
    ----------
    folder
        Where checkpoints are kept; made if it is not there.
    digest
        Names the run.
    """

    def __init__(self, folder: str | os.PathLike[str], digest: str) -> None:
        self.path = Path(folder) / f"{digest[:32]}.pt"

    def read(self) -> dict[str, Any] | None:
        """Return what was written last, None where there is nothing yet."""
        if not self.path.exists():
            return None
        try:
            found: dict[str, Any] = torch.load(
                self.path, map_location="cpu", weights_only=True
            )
        except Exception as error:  # whatever a damaged file may provoke
            raise PersistenceError(
                f"{self.path} is no checkpoint that can be read ({error}). Delete it "
                "to train from the beginning."
            ) from error
        return found

    def restore(self, run: "Run") -> None:
        """Put a run where it was when the checkpoint was written."""
        found = self.read()
        if found is None:
            return
        run.networks.load(found["networks"])
        run.optimizer.load_state_dict(found["optimizer"])
        for group in run.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                # A captured step follows a rate on its device, and freezes any other.
                group["lr"] = group["lr"].to(run.recipe.device)
        if run.penalty is not None:
            run.penalty.load_state_dict(found["penalty"])
        for monitor, history in zip(run.monitors, found["histories"], strict=True):
            monitor.history[:] = history
            monitor.began -= history[-1]["seconds"] if history else 0.0
        progress, device = run.progress, run.recipe.device
        progress.epoch, progress.n_idle = found["epoch"], found["n_idle"]
        progress.best = found["best"]
        progress.best_state = {n: t.to(device) for n, t in found["best_state"].items()}
        progress.result = Result[found["result"]] if found["result"] else None
        torch.set_rng_state(found["random"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(found["cuda_random"], device)

    def write(self, run: "Run") -> None:
        """Write where a run is, whole or not at all."""
        progress, device = run.progress, run.recipe.device
        content = {
            "seed": run.recipe.seed,
            "networks": run.networks.state(),
            "optimizer": run.optimizer.state_dict(),
            "penalty": None if run.penalty is None else run.penalty.state_dict(),
            "histories": [monitor.history for monitor in run.monitors],
            "epoch": progress.epoch,
            "n_idle": progress.n_idle,
            "best": progress.best,
            "best_state": progress.best_state,
            "result": None if progress.result is None else progress.result.name,
            "random": torch.get_rng_state(),
        }
        if device.type == "cuda":
            content["cuda_random"] = torch.cuda.get_rng_state(device)
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(content, temporary)
            os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:
            raise PersistenceError(
                f"Cannot write the checkpoint {self.path} ({error}). Choose a folder "
                "that may be written, or checkpoint=None."
            ) from error
        finally:
            temporary.unlink(missing_ok=True)


def digest_of(settings: Iterable[object], tables: Iterable[Table]) -> str:
    """Return a digest of settings, by how they read, and of the numbers of tables."""
    found = hashlib.sha256(fferm.__version__.encode())
    for setting in settings:
        found.update(repr(setting).encode())
    for table in tables:
        for array in _arrays(table):
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _arrays(table: Table) -> list[Any]:
    if table is None:
        return []
    if is_sparse(table):
        return [table.data, table.indices, table.indptr]
    return [np.asarray(table)]
