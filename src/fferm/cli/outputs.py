"""What a command writes: results to standard output, all else to standard error."""

import contextlib
import json
import os
import secrets
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as RichTable

from fferm.errors import InvalidInputError

SECONDS_BETWEEN_COUNTS = 0.2


@dataclass(frozen=True)
class Output:
    """How a command writes.

    Attributes
    ----------
    is_quiet
        Neither progress nor warnings nor results in words, only the exit code.
    is_json
        The result as one JSON document instead of words.
    """

    is_quiet: bool = False
    is_json: bool = False

    def result(self, words: str, data: Mapping[str, Any]) -> None:
        """Write a result as words or as JSON."""
        if self.is_json:
            # Text of the data may hold anything; ASCII passes through every terminal.
            sys.stdout.write(json.dumps(data, indent=1, allow_nan=False) + "\n")
        elif not self.is_quiet:
            sys.stdout.write(printable(words, keep="\n") + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        """Return rows as an aligned table of text."""
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            texts = (f"{c:.4f}" if isinstance(c, float) else str(c) for c in row)
            table.add_row(*map(printable, texts))
        console = Console(width=100, color_system=None, highlight=False, markup=False)
        with console.capture() as capture:
            console.print(table)
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    @contextlib.contextmanager
    def progress(
        self,
        what: str,
        total: int | None = None,
        count: Callable[[], int] | None = None,
    ) -> Iterator[None]:
        """Show progress on a terminal.

        Parameters
        ----------
        what
            What is done.
        total
            How much there is to do; without it, a spinner.
        count
            Returns how much is done; called a few times a second, from a thread.
        """
        console = Console(stderr=True, markup=False)
        is_hidden = self.is_quiet or self.is_json or not console.is_terminal
        shown = [BarColumn(), MofNCompleteColumn()] if total else [SpinnerColumn()]
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            *shown,
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=is_hidden,
        )
        with bar:
            task = bar.add_task(printable(what), total=total)
            with _polled(count, lambda done: bar.update(task, completed=done)):
                yield

    @contextlib.contextmanager
    def warnings_as_lines(self) -> Iterator[None]:
        """Write each warning within the block once, as one line."""
        seen: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            line = one_line(str(message))
            if line not in seen and not self.is_quiet:
                sys.stderr.write(f"warning: {line}\n")
            seen.add(line)

        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            for category in (DeprecationWarning, FutureWarning, RuntimeWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = show
            yield


@contextlib.contextmanager
def _polled(
    count: Callable[[], int] | None, report: Callable[[int], None]
) -> Iterator[None]:
    if count is None:
        yield
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(SECONDS_BETWEEN_COUNTS):
            report(count())

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def one_line(message: str) -> str:
    """Return a message on one line, without characters that control a terminal."""
    return printable(" ".join(message.split()))


def printable(text: str, keep: str = "") -> str:
    """Return text with control characters escaped."""
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def let_everything_print(stream: TextIO) -> None:
    """Let a stream escape what its encoding lacks, instead of failing."""
    with contextlib.suppress(AttributeError, ValueError):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]


def check_writable(path: Path, *inputs: str) -> None:
    """Raise, before any work, if a file cannot be written or is one of the inputs."""
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Name a file to write.")
    if path.exists() and any(
        Path(each).exists() and os.path.samefile(path, each) for each in inputs
    ):
        raise InvalidInputError(f"{path} is the input itself. Name another file.")
    _try_to_write(path.parent, path)


def check_folder(path: Path) -> None:
    """Raise, before any work, if a folder can neither be written to nor created."""
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"{path} is a file. Name a folder.")
    _try_to_write(path if path.exists() else path.parent, path)


def _try_to_write(folder: Path, path: Path) -> None:
    if not folder.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {folder} is not a folder.")
    probe = folder / f".fferm.{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write {path} ({error.strerror}). Choose a writable folder."
        ) from error
