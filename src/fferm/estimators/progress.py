"""Progress of a fit, shown where the user asked for it."""

import importlib
import logging

from fferm.solvers.base import Callback, Record

logger = logging.getLogger("fferm")


def progress_callbacks(verbose: int, total: int) -> tuple[Callback, ...]:
    """Return the callbacks that show a fit's progress: none unless asked for."""
    if not verbose:
        return ()
    try:
        bar = importlib.import_module("tqdm.auto").tqdm(total=total, unit="it")
    except ImportError:
        return (_log,)

    def advance(record: Record) -> None:
        bar.update()
        bar.set_postfix(objective=f"{record['objective']:.6g}")

    return (advance,)


def _log(record: Record) -> None:
    logger.info("iteration %d: %.6g", record["iteration"], record["objective"])
