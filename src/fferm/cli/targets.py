"""Files that commands write: whether they can, before any work is done."""

import os
import secrets
from pathlib import Path

from fferm.errors import InvalidInputError


def check_writable(path: Path, *inputs: str) -> None:
    """Refuse a file that cannot be written, or that is one of the inputs."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Expected the name of a file.")
    if any(Path(each).exists() and _is_same(path, Path(each)) for each in inputs):
        raise InvalidInputError(f"{path} is the input itself. Name another file.")
    _probe(path.parent, path)


def check_folder(path: Path) -> None:
    """Refuse a folder that can neither be written to nor be made."""
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"{path} is a file. Expected the name of a folder.")
    _probe(path if path.exists() else path.parent, path)


def _probe(folder: Path, path: Path) -> None:
    if not folder.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {folder} is no folder.")
    probe = folder / f".fferm.{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write {path} ({error.strerror}). Choose a folder that may be "
            "written."
        ) from error


def _is_same(path: Path, other: Path) -> bool:
    return path.exists() and os.path.samefile(path, other)
