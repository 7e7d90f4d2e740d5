"""What a command writes: results to standard output, all else to standard error."""

import contextlib
import json
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

SECONDS_BETWEEN_COUNTS = 0.2


@dataclass(frozen=True)
class Output:
    """How a command speaks.

    Attributes
    ----------
    is_quiet
        Neither progress nor warnings nor results in words: the exit code says all.
    is_json
        The result as one JSON document instead of words.
    """

    is_quiet: bool = False
    is_json: bool = False

    def result(self, words: str, data: Mapping[str, Any]) -> None:
        """Write a result, in the form that was asked for."""
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
            table.add_row(*(_plain(cell) for cell in row))
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
        """Show on a terminal that something is done, and how much of it.

        Parameters
        ----------
        what
            What is done.
        total
            How much there is to do; without it, a spinner.
        count
            How much is done already; asked a few times a second, from another thread.
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
            with _asked(count, lambda done: bar.update(task, completed=done)):
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
def _asked(
    count: Callable[[], int] | None, tell: Callable[[int], None]
) -> Iterator[None]:
    if count is None:
        yield
        return
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(SECONDS_BETWEEN_COUNTS):
            tell(count())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()


def one_line(message: str) -> str:
    """Return a message on one line, without characters that steer a terminal."""
    return printable(" ".join(message.split()))


def printable(text: str, keep: str = "") -> str:
    """Return text with control characters spelled out."""
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def let_everything_print(stream: TextIO) -> None:
    """Let a stream spell out what its encoding lacks, instead of failing."""
    with contextlib.suppress(AttributeError, ValueError):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]


def _plain(cell: object) -> str:
    return f"{cell:.4f}" if isinstance(cell, float) else printable(str(cell))
