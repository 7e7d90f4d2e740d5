"""What a command writes: results to standard output, all else to standard error."""

import contextlib
import json
import os
import secrets
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from typer import Context

from fferm.errors import ColumnHint, InvalidInputError


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

    def note(self, sentence: str) -> None:
        """Write a sentence on what is done beside the result, if there is one."""
        if sentence and not self.is_quiet:
            sys.stderr.write(f"note: {one_line(sentence)}\n")

    @property
    def verbose(self) -> int:
        """Whether progress is shown: 1 on a terminal, else 0."""
        is_hidden = self.is_quiet or self.is_json or not sys.stderr.isatty()
        return 0 if is_hidden else 1

    @contextlib.contextmanager
    def warnings_as_lines(self) -> Iterator[None]:
        """Write each warning within the block once, as one line."""
        seen: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            line = one_line(str(message))
            if isinstance(message, ColumnHint):  # options in place of parameters
                line = line.replace("Drop them", "Name each with --drop")
                line, *found = line.split(" pass categorical")
                line += " name each with --categorical." if found else ""
            if line not in seen and not self.is_quiet:
                sys.stderr.write(f"warning: {line}\n")
            seen.add(line)

        with warnings.catch_warnings():  # noqa: TID251 - a command owns its process
            warnings.simplefilter("always", UserWarning)
            for category in (DeprecationWarning, FutureWarning, RuntimeWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = show
            yield


def table_text(columns: Iterable[str], rows: Iterable[Mapping[Any, object]]) -> str:
    """Return rows as an aligned table of text."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        texts = (f"{c:.4f}" if isinstance(c, float) else str(c) for c in row.values())
        table.add_row(*map(printable, texts))
    console = Console(width=100, color_system=None, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


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


def check_writable(path: Path, *inputs: str, is_folder: bool = False) -> None:
    """Raise, before any work, if a path cannot be written or is one of the inputs."""
    folder, problem = path.parent, ""
    if is_folder and path.exists():
        folder, problem = path, "" if path.is_dir() else "is a file. Name a folder."
    elif path.is_dir():
        problem = "is a folder. Name a file to write."
    elif path.exists() and any(
        Path(each).exists() and os.path.samefile(path, each) for each in inputs
    ):
        problem = "is the input itself. Name another file."
    elif not folder.is_dir():
        problem = f"cannot be written: {folder} is not a folder. Make it first."
    if problem:
        raise InvalidInputError(f"{path} {problem}")
    probe = folder / f".fferm.{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise InvalidInputError(
            f"Cannot write {path} ({error.strerror}). Choose a writable folder."
        ) from error


def provenance(
    context: Context,
    data: str,
    target: str,
    sensitive: Sequence[str],
    *,
    model: str,
    date: str | None,
) -> dict[str, str]:
    """Return what a report says of where its results come from.

    Parameters
    ----------
    context
        Of the command, which knows its arguments.
    data, model
        A file, whose hash is stated, or what there is to say of it.
    target, sensitive
        The columns in question.
    date
        As the caller states it; without one there is none.
    """
    stated = {"Data": data, "Model": model}
    for name, path in [*stated.items()]:
        if Path(path).is_file():
            digest = sha256(Path(path).read_bytes()).hexdigest()
            stated[name] = f"{path}, SHA-256 {digest}"
    stated |= {"Target": target, "Sensitive columns": ", ".join(sensitive)}
    return stated | command_line(context, date)


def of_records(context: Context, source: Path, date: str | None) -> dict[str, str]:
    """Return the provenance of what a folder of records, or one file, holds."""
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    stated = {"Records": str(source)}
    for path in files:
        stated[path.name] = f"SHA-256 {sha256(path.read_bytes()).hexdigest()}"
    return stated | command_line(context, date)


def command_line(context: Context, date: str | None) -> dict[str, str]:
    """Return the date, if the caller states one, and the command."""
    stated = {} if date is None else {"Date": date}
    return stated | {"Command": shlex.join(["fferm", *(context.obj or ())])}
