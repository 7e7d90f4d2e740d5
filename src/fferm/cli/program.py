"""The program itself: its commands, and one line for whatever goes wrong."""

import os
import sys
from typing import Any

import typer

import fferm
from fferm.cli.audit import audit
from fferm.cli.curve import curve
from fferm.cli.datasets import datasets
from fferm.cli.fit import fit
from fferm.cli.outputs import let_everything_print, one_line
from fferm.cli.report import report
from fferm.cli.reproduce import reproduce
from fferm.errors import FfermError

BAD_INPUT, FAILURE, INTERRUPTED = 2, 3, 130
NO_MEMORY = "The data do not fit into memory. Give fewer rows or columns."

# What typer raises for options that it cannot read; it has no public name for it.
UsageError: Any = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="fferm",
    help="Accurate and fair models from tables of data. "
    "Exit codes: 0 done, bound kept; 1 bound not kept; 2 bad input.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (fit, audit, curve, report, reproduce, datasets):
    app.command()(command)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"fferm {fferm.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show it."
    ),
) -> None:
    """Read the options that stand before a command."""


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        let_everything_print(stream)
    command = typer.main.get_command(app)
    try:
        return int(
            command.main(arguments, prog_name="fferm", standalone_mode=False) or 0
        )
    except UsageError as error:
        return _refuse(error.format_message(), " Try: fferm --help")
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads has seen enough; the interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except (FfermError, OSError, MemoryError) as error:
        is_full = isinstance(error, MemoryError)
        return _refuse(NO_MEMORY if is_full else str(error))
    except Exception as error:
        return _fail(error)


def _refuse(message: str, advice: str = "") -> int:
    sys.stderr.write(f"error: {one_line(message)}{advice}\n")
    return BAD_INPUT


def _fail(error: Exception) -> int:
    if os.environ.get("FFERM_TRACEBACK"):
        raise error
    sys.stderr.write(
        f"error: fferm failed ({type(error).__name__}: {one_line(str(error))}). Set "
        "FFERM_TRACEBACK=1 to see where, and report it.\n"
    )
    return FAILURE
