"""Locks between processes, which end with the process that holds them."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fferm.errors import PersistenceError

# Another has the lock, or had it and removed the file since it was opened.
TAKEN = BlockingIOError, PermissionError, FileNotFoundError
# Open files of locks.
_held: set[int] = set()

if sys.platform == "win32":
    from msvcrt import LK_NBLCK, locking

    def _take(file: int) -> None:
        os.lseek(file, 1 << 30, os.SEEK_SET)  # others cannot read what is locked
        try:
            locking(file, LK_NBLCK, 1)
        finally:
            os.lseek(file, 0, os.SEEK_SET)
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

    def _take(file: int) -> None:
        flock(file, LOCK_EX | LOCK_NB)

    def _close_held() -> None:
        while _held:
            os.close(_held.pop())

    # Or a forked child would hold the locks of its parent as long as it lives.
    os.register_at_fork(after_in_child=_close_held)


@contextmanager
def locked(path: Path, *, is_patient: bool = False) -> Iterator[None]:
    """Hold the lock of a file, which is made for it and removed afterwards.

    So is its folder, if it was missing and is still empty. On a file system without
    locks nothing is held.

    Parameters
    ----------
    path
        The file.
    is_patient
        Whether to wait for the process that has the lock, instead of raising.
    """
    folder = path.parent
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    while not _is_ours(file := os.open(path, os.O_RDWR | os.O_CREAT), path):
        holder = os.read(file, 200).decode("utf-8", "replace").strip()
        os.close(file)
        if holder and not is_patient:
            raise PersistenceError(
                f"{holder} is writing to {folder}. Wait for its end, or choose another."
            )
        time.sleep(0.05)
    _held.add(file)
    try:
        os.write(file, f"Process {os.getpid()} on {platform.node():200}".encode())
        yield
    finally:
        if file in _held:  # not in a forked child
            with suppress(OSError):
                os.ftruncate(file, 0)  # whoever has it open waits for nobody
                path.unlink()
                for each in made:
                    each.rmdir()
            _held.remove(file)
            os.close(file)


def _is_ours(file: int, path: Path) -> bool:
    """Return whether this process has the lock, or there are none."""
    try:
        _take(file)
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError as error:
        return not isinstance(error, TAKEN)
