"""The optional packages that reports need, and what to do where they are missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from fferm.errors import MissingDependencyError


@contextmanager
def report_extra() -> Iterator[None]:
    """Turn a failed import within the block into advice on what to install."""
    try:
        yield
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        raise MissingDependencyError(
            f"Reports need the package {package}, which is not installed. Run: "
            'pip install "fferm[report]"'
        ) from error
