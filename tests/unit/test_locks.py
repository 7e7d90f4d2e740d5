"""Locks: one process at a time, until it ends in any way."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

from fferm import _locks
from fferm._locks import locked
from fferm.errors import PersistenceError

# Hold a lock for ever; with an argument more, beside a forked child that lives on.
HOLDER = """
import os, sys, time
from pathlib import Path
from fferm._locks import locked

with locked(Path(sys.argv[1])):
    child = os.fork() if len(sys.argv) > 2 else 0
    if len(sys.argv) == 2 or child:
        print(child, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".lock"


def test_a_lock_is_held_once_and_leaves_nothing(path):
    me = rf"Process {os.getpid()} on .* is writing to .* Wait for its end"
    with locked(path):
        for _ in range(2):
            with pytest.raises(PersistenceError, match=me), locked(path):
                pass
    assert list(path.parent.iterdir()) == []
    with pytest.raises(KeyError), locked(path):
        raise KeyError
    with locked(path):
        assert path.exists()


def test_those_who_wait_come_one_after_another(path, monkeypatch):
    monkeypatch.setattr(_locks.time, "sleep", lambda seconds: None)
    inside, most = [], []

    def work():
        for _ in range(20):
            with locked(path, is_patient=True):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 120
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_remains_empty_is_removed(path):
    deep = path.parent / "a" / "b"
    with locked(deep / ".lock"):
        assert deep.exists()
    assert list(path.parent.iterdir()) == []
    with locked(deep / ".lock"):
        (deep / "written").write_text("kept")
    assert list(deep.iterdir()) == [deep / "written"]


def test_a_lock_is_of_the_file_that_is_there(path, monkeypatch):
    take, before = _locks._take, ExitStack()
    before.enter_context(locked(path))

    def take_late(file):
        before.close()  # the one before ends here, and removes the file
        take(file)

    monkeypatch.setattr(_locks, "_take", take_late)
    with locked(path):
        assert path.exists()
        with pytest.raises(PersistenceError, match="is writing"), locked(path):
            pass


def test_a_file_system_without_locks_holds_up_nobody(path, monkeypatch):
    def refuse(file):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(_locks, "_take", refuse)
    with locked(path), locked(path):
        pass


@pytest.mark.parametrize("more", [(), ("and a child",)], ids=["alone", "with a child"])
def test_a_lock_ends_with_its_process(path, more):
    if more and not hasattr(os, "fork"):
        pytest.skip("processes are not forked here")
    command = [sys.executable, "-c", HOLDER, str(path), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            match = f"Process {process.pid} on"
            with pytest.raises(PersistenceError, match=match), locked(path):
                pass
            process.kill()
            process.wait()
            with locked(path):  # what the killed process wrote is still there
                assert path.read_text().startswith(f"Process {os.getpid()} on")
        finally:
            process.kill()
            if child:
                os.kill(child, signal.SIGKILL)
