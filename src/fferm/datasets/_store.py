"""Where the files come from: the package, the data folder or their publisher.

``files/catalog.toml`` says what is known of each data set. Nothing is parsed before its
sha256 has been checked. The data folder is the environment variable
``FFERM_DATA_HOME``, else ``fferm`` in the user's cache folder.
"""

import gzip
import hashlib
import http.client
import importlib.resources
import importlib.util
import io
import os
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fferm._files import replacing
from fferm.errors import DataUnavailableError, MissingDependencyError, PersistenceError

TIMEOUT_SECONDS = 60.0
FOLDER = importlib.resources.files("fferm.datasets") / "files"


@dataclass(frozen=True)
class DataFile:
    """A data set and its file.

    Attributes
    ----------
    name : str
        The name of the file.
    sha256 : sequence of str
        Checksums of the accepted forms of it.
    source : str
        Where it is published, for messages.
    url : str or None
        Where exactly these bytes can be downloaded, if anywhere.
    is_shipped : bool
        Whether the package holds it.
    targets, sensitive : sequence of str
        What can be predicted, and the sensitive columns; defaults first.
    about, description : str
        What the label says; source, licence, and who may be harmed by careless use.
    """

    name: str
    sha256: Sequence[str]
    source: str = ""
    url: str | None = None
    is_shipped: bool = False
    targets: Sequence[str] = ()
    sensitive: Sequence[str] = ()
    about: str = ""
    description: str = ""


_entries = tomllib.loads((FOLDER / "catalog.toml").read_text(encoding="utf-8"))
# The data sets that commands know by name.
CATALOG = {name: DataFile(**entry) for name, entry in _entries.items()}


def data_home() -> Path:
    """Return the folder that external data files lie in."""
    if folder := os.environ.get("FFERM_DATA_HOME"):
        return Path(folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "fferm"


def read_shipped(file: DataFile) -> pd.DataFrame:
    """Return the table of a gzipped CSV in the package's ``files`` folder."""
    content = (FOLDER / file.name).read_bytes()
    if problem := _problem(content, *file.sha256):
        raise DataUnavailableError(f"{file.name} {problem}. Reinstall fferm.")
    return pd.read_csv(io.BytesIO(gzip.decompress(content)), keep_default_na=False)


def read_parquet(file: DataFile, columns: list[str] | None = None) -> pd.DataFrame:
    """Return columns of a Parquet file of the data folder, by default all."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingDependencyError(
            f"Reading {file.name} needs pyarrow, which is not installed. Install it: "
            "pip install pyarrow"
        )
    content = io.BytesIO(read_external(file))
    return pd.read_parquet(content, engine="pyarrow", columns=columns)


def read_external(file: DataFile) -> bytes:
    """Return the checked content of a file of the data folder.

    Where the folder lacks it, it is downloaded there if its publisher has it.
    """
    path = data_home() / file.name
    if not path.exists():
        _download(file, path)
    content = path.read_bytes()
    if problem := _problem(content, *file.sha256):
        raise DataUnavailableError(
            f"{path} {problem}. Replace it with the file from {file.source}."
        )
    return content


def _download(file: DataFile, path: Path) -> None:
    problem, cause = "cannot be downloaded", None
    if file.url is not None:
        try:
            with urllib.request.urlopen(file.url, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read()
            if wrong := _problem(content, *file.sha256):
                raise OSError(f"it {wrong}")
            advice = "Choose a writable folder."
            with replacing(path, advice, makes_folder=True) as part:
                part.write_bytes(content)
            return
        except (OSError, http.client.HTTPException, PersistenceError) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # the error is the answer, with its connection open
            problem = f"could not be downloaded from {file.url}: {error}"
            cause = error
    raise DataUnavailableError(
        f"{file.name} is not in the data folder and {problem}. Put it there as {path}, "
        "or set FFERM_DATA_HOME to the folder that holds it. Source: "
        f"{file.source}. Accepted sha256: {' or '.join(file.sha256)}."
    ) from cause


def _problem(content: bytes, *accepted: str) -> str:
    digest = hashlib.sha256(content).hexdigest()
    expected = f"has sha256 {digest}; expected {' or '.join(accepted)}"
    return "" if digest in accepted else expected
