"""The command ``fferm``: plan, fit, predict, audit, curve, reproduce, report, datasets.

`program` runs a command line and turns errors into one line and an exit code. Each
command has a file of its own; `options` declares what they share, `inputs` reads
tables, `outputs` writes to the terminal.

Exit codes
----------
0
    Done; of an audit, and of a fit under a bound: the bound is kept.
1
    The bound is not kept, or not shown to be kept, or needs more rows.
2
    The input cannot be used: an option, a file, a column. Nothing was written.
3
    fferm failed where it should not; ``FFERM_TRACEBACK=1`` shows where.
130
    Interrupted.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Parameters
    ----------
    arguments
        What follows the name of the program; by default what the shell gave.
    """
    for package in ("typer", "rich", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            from fferm.errors import missing_package

            error = missing_package("The command line", package, "cli")
            sys.stderr.write(f"error: {error}\n")
            return 2
    from fferm.cli.program import run

    for stream in (sys.stdout, sys.stderr):
        # What its encoding lacks is escaped; not every stream can be told so.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    return run(sys.argv[1:] if arguments is None else list(arguments))
