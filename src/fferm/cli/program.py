"""The program itself: its commands, and one line for whatever goes wrong."""

import itertools
import os
import re
import sys
from typing import Any, get_args, get_type_hints

import typer

import fferm
from fferm.cli.adapt import adapt
from fferm.cli.alternatives import alternatives
from fferm.cli.audit import audit
from fferm.cli.curve import curve
from fferm.cli.datasets import datasets
from fferm.cli.fit import fit
from fferm.cli.outputs import one_line
from fferm.cli.plan import plan
from fferm.cli.predict import predict
from fferm.cli.repair import repair
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
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS = {
    command.__name__: command
    for command in (
        *(plan, fit, repair, predict, adapt, audit, curve, alternatives),
        *(report, reproduce, datasets),
    )
}
for command in COMMANDS.values():
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


def _explain(error: Any, arguments: list[str]) -> str:
    # Why a command line cannot be read, and for a value what it must be.
    sentence = one_line(error.format_message())
    param = getattr(error, "param", None)
    if param is not None and type(error).__name__ == "BadParameter":  # none is missing
        name = param.opts[0]
        kind = get_type_hints(COMMANDS[error.ctx.info_name])[param.name]
        kind = next(iter(get_args(kind)), kind)  # of float | None the first
        must = {float: "a number", int: "an integer"}.get(kind)
        given = [a.partition("=")[2] for a in arguments if a.startswith(f"{name}=")]
        given += [b for a, b in itertools.pairwise(arguments) if a == name]
        must = must or f"one of {', '.join(kind)}"
        sentence = f"{name} must be {must}; got {given[-1]!r}."
    command = "fferm" if error.ctx is None else error.ctx.command_path
    end = "" if sentence.endswith((".", "?")) else "."
    return f"{sentence}{end} Try: {command} --help"


def _run_command(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    status = command.main(
        arguments, prog_name="fferm", standalone_mode=False, obj=[*arguments]
    )
    if status == INTERRUPTED:  # typer turns an interrupt into a status
        raise KeyboardInterrupt
    return int(status or 0)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    code = BAD_INPUT
    try:
        return _run_command(arguments or ["--help"])
    except UsageError as error:
        message = _explain(error, arguments)
    except (KeyboardInterrupt, typer.Abort):
        resumes = "; the same command resumes" if arguments[:1] == ["curve"] else ""
        sys.stderr.write(f"interrupted{resumes}\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Who reads has seen enough; the interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except MemoryError:
        message = NO_MEMORY
    except (FfermError, OSError) as error:
        # What is a step in Python is an option here.
        message = re.sub("[Dd]rop the column", r"\g<0> (--drop)", one_line(str(error)))
    except Exception as error:
        if os.environ.get("FFERM_TRACEBACK"):
            raise
        cause = f"{type(error).__name__}: {one_line(str(error))}"
        advice = "Set FFERM_TRACEBACK=1 to see where, and report it."
        message, code = f"fferm failed ({cause}). {advice}", FAILURE
    sys.stderr.write(f"error: {message}\n")
    return code
