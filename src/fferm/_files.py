"""Files that are written whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fferm.errors import PersistenceError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]


def lock(file: IO[bytes]) -> None:
    """Wait until no other process or thread has locked a file; not on Windows."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def replacing(path: Path, advice: str, *, makes_folder: bool = False) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` at the end.

    A reader finds the old file or the new one, whenever this process or the machine
    stops. The new one has the permissions of the old one, or of any new file; a
    symbolic link stays, and the file that it points to is replaced. All processes that
    write a file do so under one name and take turns, so that what a killed one left is
    written over by the next.

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
        temporary = target.with_name(f".{target.name}.partial")
        with _alone(temporary):
            try:
                old = target if target.is_file() else temporary
                mode = stat.S_IMODE(old.stat().st_mode)
                temporary.chmod(mode | stat.S_IRUSR | stat.S_IWUSR)
                yield temporary
                with temporary.open("r+b") as file:
                    temporary.chmod(mode)
                    os.fsync(file.fileno())
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        with suppress(OSError):  # not every system can
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except (OSError, RuntimeError) as error:  # the second is what PyTorch raises
        reason = getattr(error, "strerror", None) or error
        raise PersistenceError(f"Cannot write {path} ({reason}). {advice}") from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    # Makes the file, and waits while another process or thread has it.
    if fcntl is None:
        path.touch()
        yield
        return
    is_ours = False
    while not is_ours:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o666), "rb") as file:
            lock(file)
            with suppress(FileNotFoundError):  # else it is another's finished file
                is_ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
            if is_ours:
                yield
