"""Checkpoints and trained models: written whole or not at all, read without pickle."""

import json
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from fferm.distributed.summary import ShardSummary
from fferm.errors import InvalidParameterError, PersistenceError

CHECKPOINT = "checkpoint.pt"
MODEL = "model.safetensors"


def build_model(
    n_features: int,
    n_classes: int,
    hidden: tuple[int, ...],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """Return a network with these hidden layers; a linear model without any."""
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for width in hidden:
            layers += [nn.Linear(n_features, width, dtype=dtype), nn.ReLU()]
            n_features = width
        return nn.Sequential(*layers, nn.Linear(n_features, n_classes, dtype=dtype))


def write_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint in place of the last one."""
    _write(folder / CHECKPOINT, lambda path: torch.save(state, path))


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Return the checkpoint of a folder, None where there is none."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, OSError) as error:
        raise PersistenceError(
            f"{path} could not be read ({error}). Give another folder, or begin anew "
            "with --restart."
        ) from error
    return state


def check_settings(
    state: dict[str, Any], settings: dict[str, Any], folder: Path
) -> None:
    """Refuse to go on with other settings than a checkpoint was made with."""
    other = [name for name in settings if state["settings"].get(name) != settings[name]]
    if other:
        name = other[0]
        raise InvalidParameterError(
            f"{name}={settings[name]!r} came, and {folder / CHECKPOINT} is of a run "
            f"with {name}={state['settings'].get(name)!r}. Go on with that, give "
            "another --out, or begin anew with --restart."
        )


def write_model(
    folder: Path, model: nn.Module, summary: ShardSummary, about: dict[str, Any]
) -> Path:
    """Write a trained model, with all that `load_model` needs."""
    path = folder / MODEL
    tensors = {name: t.detach().cpu() for name, t in model.state_dict().items()}
    metadata = {"summary": summary.to_json(), "about": json.dumps(about)}
    _write(path, lambda partial: save_file(tensors, partial, metadata))
    return path


def load_model(folder: str | Path) -> tuple[nn.Module, ShardSummary]:
    """Return a trained model, and the summary that encodes tables for it.

    Parameters
    ----------
    folder
        The ``--out`` of a run that ended.
    """
    path = Path(folder) / MODEL
    if not path.exists():
        raise PersistenceError(
            f"{path} does not exist. Expected the folder of a run that ended."
        )
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = json.loads(metadata["about"])
    summary = ShardSummary.from_json(metadata["summary"], about["data"])
    model = build_model(
        len(summary.feature_names),
        summary.n_classes,
        tuple(about["hidden"]),
        dtype=getattr(torch, about["dtype"]),
    )
    model.load_state_dict(tensors)
    return model.eval(), summary


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before hours are spent for it."""
    probe = folder / f".{CHECKPOINT}.partial"
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with _explained(probe):
            folder.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
    finally:
        # What is refused later leaves no folder behind; the first checkpoint makes it.
        for path in made:
            with suppress(OSError):
                path.rmdir()


def _write(path: Path, write: Callable[[Path], object]) -> None:
    # A reader finds the old file or the new one, whenever this process is killed.
    partial = path.with_name(f".{path.name}.partial")
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PersistenceError(
            f"Cannot write {path} ({error.strerror}). Give an --out that may be "
            "written, and has room."
        ) from error
