"""A full disk, as far as a test can have one on any machine."""

from contextlib import contextmanager

import pytest


@contextmanager
def short_of_room(n_bytes):
    """Let no file grow beyond so many bytes; what fits is written."""
    resource = pytest.importorskip("resource", reason="only Unix limits files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
