"""The command ``python -m fferm.distributed``, alone or under ``torchrun``."""

import logging
import os
import sys

from torch.distributed.elastic.multiprocessing.errors import record

from fferm.distributed.training import log, parse, train
from fferm.errors import FfermError, LostRankError


@record
def main(arguments: list[str] | None = None) -> int:
    """Train, and return the exit status: 0, 1 where it failed, 2 for bad input."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        train(parse(arguments))
    except LostRankError as error:
        log.error("error: %s", error)
        # What is left of the process group would wait for the rank that is gone.
        _leave(1)
    except FfermError as error:
        log.error("error: %s", error)
        return 2 if isinstance(error, ValueError | TypeError) else 1
    if "RANK" in os.environ:
        # A thread of the process group may still run, and would abort the process when
        # Python ends: torchrun would take a rank that is done for one that failed.
        _leave(0)
    return 0


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
