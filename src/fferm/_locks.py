"""Locks between processes, which end with the process that holds them."""

import errno
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fferm.errors import PersistenceError

if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        os.lseek(file, 1 << 30, os.SEEK_SET)  # others cannot read what is locked
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Another process has the lock, or had it and removed the file since it was opened.
TAKEN = {errno.EAGAIN, errno.EACCES, errno.EDEADLK, errno.ENOENT}
# Seconds between two attempts.
PAUSE = 0.05
# Open files of locks. A forked child closes them, or it would hold the locks of its
# parent as long as it lives.
_held: set[int] = set()


def _close_held() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


@contextmanager
def locked(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is made for it and removed afterwards.

    On a file system without locks nothing is held.

    Parameters
    ----------
    path
        The file; its folder must exist.
    refusal
        What the process that has the lock is doing and what to do about it, for an
        error; None waits for its end.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    while not _is_ours(file, path):
        holder = os.read(file, 200).decode("utf-8", "replace")
        os.close(file)
        if refusal is not None and holder:
            raise PersistenceError(f"{holder} {refusal}")
        time.sleep(PAUSE)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(file)
    try:
        os.ftruncate(file, 0)
        os.write(file, f"Process {os.getpid()} on {platform.node()}".encode())
        yield
    finally:
        if file in _held:  # not in a forked child
            with suppress(OSError):
                os.ftruncate(file, 0)
                path.unlink()
            _held.remove(file)
            os.close(file)


def _is_ours(file: int, path: Path) -> bool:
    """Return whether this process has the lock, or there are none."""
    try:
        _take(file)
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError as error:
        return error.errno not in TAKEN
