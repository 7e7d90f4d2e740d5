"""Files that are written whole or not at all."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fferm.errors import PersistenceError


@contextmanager
def replacing(path: Path, advice: str) -> Iterator[Path]:
    """Give a path to write to, which takes the place of ``path`` at the end.

    A reader finds the old file or the new one, whenever this process is killed. The new
    one has the permissions of any new file, which those of `tempfile` do not have.

    Parameters
    ----------
    path
        The file to write.
    advice
        What to do where it cannot be written, for the message.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        temporary.replace(path)
    except (OSError, RuntimeError) as error:  # the second is what PyTorch raises
        reason = getattr(error, "strerror", None) or error
        raise PersistenceError(f"Cannot write {path} ({reason}). {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
