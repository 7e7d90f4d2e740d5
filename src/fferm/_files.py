"""Files that are written whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fferm.errors import PersistenceError

try:
    import fcntl
except ImportError:  # on Windows; there, do not write one file twice at the same time
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path, advice: str, *, makes_folder: bool = False) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` at the end.

    A reader finds the old file or the new one, whenever this process or the machine
    stops. The new one has the permissions of the old one, or of any new file; a
    symbolic link stays, and the file that it points to is replaced.

    Parameters
    ----------
    path
        The file to write.
    advice
        What to do where it cannot be written, for the message.
    makes_folder
        Whether to make the folder of ``path`` where there is none.
    """
    try:
        target = path.resolve()
        if makes_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent) as is_locked:
            # Those who write take turns at one name: what a kill left is cleared away.
            name = "partial" if is_locked else secrets.token_hex(8)
            temporary = target.with_name(f".{target.name}.{name}")
            temporary.unlink(missing_ok=True)
            try:
                temporary.touch(exist_ok=False)
                old = target if target.is_file() else temporary
                mode = old.stat().st_mode & 0o777
                temporary.chmod(mode | 0o600)
                yield temporary
                with temporary.open("r+b") as file:
                    temporary.chmod(mode)
                    os.fsync(file.fileno())
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # the second is what PyTorch raises
        reason = getattr(error, "strerror", None) or error
        raise PersistenceError(f"Cannot write {path} ({reason}). {advice}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    # What is done in the folder is on disk at the end.
    if os.name == "nt":
        yield False
        return
    descriptor, is_locked = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):  # some network file systems have no locks
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                is_locked = True
        yield is_locked
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
