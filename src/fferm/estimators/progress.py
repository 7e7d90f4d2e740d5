"""Progress of a fit, shown where the user asked for it."""

import contextlib
import importlib
import sys
from collections.abc import Iterator

from fferm.solvers.base import Callback, Record


@contextlib.contextmanager
def progress(verbose: int, total: int | None) -> Iterator[tuple[Callback, ...]]:
    """Give the callbacks that show a fit's progress: none unless asked for.

    A bar of tqdm where it is installed, else one line that is written over. How many
    records will come, None where that is not known, is the ``total``.
    """
    if not verbose:
        yield ()
        return
    try:
        bar = importlib.import_module("tqdm.auto").tqdm(total=total, unit="it")
    except ImportError:
        yield (_write_line,)
        sys.stderr.write("\n")
        return

    def advance(record: Record) -> None:
        bar.update()
        bar.set_postfix(objective=f"{record['objective']:.6g}")

    with bar:
        yield (advance,)
        bar.total = bar.n  # few fits need all of their iterations


def _write_line(record: Record) -> None:
    sys.stderr.write(
        f"\riteration {record['iteration']:.0f}: objective {record['objective']:.6g}"
    )
