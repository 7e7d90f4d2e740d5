"""The exceptions and warnings of fferm, in one tree.

Every error is also the built-in error a reader would expect, so nobody has to
know this file to catch one. A message says what must hold, what was passed and how
to fix it::

    FfermError
    ├── InvalidInputError         (ValueError)   data that cannot be used
    ├── InvalidTypeError          (TypeError)    data of a kind that cannot be used
    ├── InvalidParameterError     (ValueError)   a parameter out of its range
    │   └── UnknownNameError                     a name no component answers to
    ├── MissingSensitiveError     (ValueError)   fairness asked for, no groups given
    ├── NotFittedError            (also scikit-learn's)  a model used before fit
    ├── ComponentError            (TypeError)    a class that breaks its contract
    ├── NonFiniteError            (ArithmeticError)  training left the finite numbers
    ├── LostRankError             (RuntimeError) another process of a run is gone
    ├── MissingDependencyError    (ImportError)  an optional package is not installed
    ├── DataUnavailableError      (OSError)      a data set that cannot be had
    └── PersistenceError          (ValueError)   a file that is not a saved model
        └── UnsafeFileError                      a saved model that was changed

    FfermWarning                  (UserWarning)
    ├── ConvergenceWarning        (also scikit-learn's)  stopped before the optimum
    ├── CollapseWarning           one class is predicted for everyone, or one for no one
    ├── InfeasibleWarning         no fairness weight keeps the bound
    ├── StackingWarning           networks train one after another
    ├── ColumnHint                columns of a table that may be read wrongly
    └── DataFairnessWarning       the data limit what fairness can mean
        ├── MissingGroupWarning   rows without a group skip the penalty
        ├── SmallGroupWarning     groups too small to say anything about
        ├── WideShiftWarning      a worst case that is as bad whatever the model does
        └── EmptyStratumWarning   parts of a notion with fewer than two groups
"""

import contextlib
import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import sklearn.exceptions

_PACKAGE = str(Path(__file__).parent)
_MUTED: ContextVar[tuple[type[Warning], ...]] = ContextVar("muted", default=())


class FfermError(Exception):
    """Base of every error that fferm raises on purpose."""


class InvalidInputError(FfermError, ValueError):
    """Data that cannot be used: wrong length, NaN, one class, no rows."""


class InvalidTypeError(FfermError, TypeError):
    """Data of a kind that cannot be used, for example a sparse tensor of objects."""


class InvalidParameterError(FfermError, ValueError):
    """A parameter outside of its range, or two that contradict each other."""


class UnknownNameError(InvalidParameterError):
    """A divergence, notion, solver or data set was asked for by an unknown name."""


class MissingSensitiveError(FfermError, ValueError):
    """A fairness penalty was asked for and no sensitive features were given."""


class NotFittedError(FfermError, sklearn.exceptions.NotFittedError):
    """A model was used before it was fitted."""


class ComponentError(FfermError, TypeError):
    """A user's class misses a method or repeats a registered name."""


class NonFiniteError(FfermError, ArithmeticError):
    """Training reached a value that is not a finite number."""


class LostRankError(FfermError, RuntimeError):
    """Another rank of a distributed run died, or did not answer in time."""


class MissingDependencyError(FfermError, ImportError):
    """A feature needs an optional package that is not installed."""


class DataUnavailableError(FfermError, OSError):
    """A data set is not on this machine and could not be fetched intact."""


class PersistenceError(FfermError, ValueError):
    """A file is not a model that this version can load, or cannot be written."""


class UnsafeFileError(PersistenceError):
    """A saved model does not match its own checksums."""


class FfermWarning(UserWarning):
    """Base of every warning that fferm gives."""


class ConvergenceWarning(FfermWarning, sklearn.exceptions.ConvergenceWarning):
    """A solver stopped before it reached its tolerance."""


class CollapseWarning(FfermWarning):
    """A fitted model predicts one class for every training row, or some for none."""


class InfeasibleWarning(FfermWarning):
    """No fairness weight brings the held-out violation within ``max_violation``."""


class StackingWarning(FfermWarning):
    """Networks cannot be trained as one stack and train one after another."""


class ColumnHint(FfermWarning):
    """Columns of a table look like something else than what they are read as."""


class DataFairnessWarning(FfermWarning):
    """The data limit what a fairness statement about them can mean."""


class MissingGroupWarning(DataFairnessWarning):
    """Some rows have no sensitive value; they train the loss and skip the penalty."""


class SmallGroupWarning(DataFairnessWarning):
    """Some groups have too few members for their rates to mean anything."""


class WideShiftWarning(DataFairnessWarning):
    """A shift reaches a whole cell of the table, so the worst case hardly moves."""


class EmptyStratumWarning(DataFairnessWarning):
    """Some stratum of the notion holds fewer than two groups and is left out."""


@contextmanager
def explain(
    problem: str, advice: str, cause: type[Exception], kind: Any = PersistenceError
) -> Iterator[None]:
    """Say what a cause means and what to do; errors of fferm say so already."""
    try:
        yield
    except FfermError:
        raise
    except cause as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise kind(f"{problem} ({reason[:300]}). {advice}") from error


def install_line(extra: str) -> str:
    """Return the command that installs an extra from where fferm itself is from.

    pip records the folder, file or address that it was given (PEP 610). It records
    nothing for a package index.
    """
    record = distribution("fferm").read_text("direct_url.json")
    if record is None:
        return f'pip install "fferm[{extra}]"'
    from urllib.request import url2pathname  # slow to import

    source = json.loads(record)
    url, vcs = source["url"], source.get("vcs_info")
    if not url.startswith("file:"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
        return f'pip install "fferm[{extra}] @ {url}"'
    path = Path(url2pathname(url.removeprefix("file://")))
    if not path.exists():
        return f'pip install ".[{extra}]" (in a clone of fferm)'
    pins = path / "constraints.txt"
    options = f'-c "{pins}" ' if pins.exists() else ""
    options += "-e " if source.get("dir_info", {}).get("editable") else ""
    return f'pip install {options}"{path}[{extra}]"'


def missing_package(
    user: str, package: str, extra: str, error: Exception | None = None
) -> MissingDependencyError:
    """Return the error that says what to install, or why an import fails."""
    if error is not None and not isinstance(error, ModuleNotFoundError):
        what = f"which is installed but cannot be imported: {error}"
    else:
        what = f"which is not installed. Run: {install_line(extra)}"
    return MissingDependencyError(f"{user} needs the package {package}, {what}")


def import_extra(module: str, extra: str, user: str = "This") -> Any:
    """Return a module of an optional package, or say which extra to install."""
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        package = module.partition(".")[0]
        raise missing_package(user, package, extra, error) from error


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called into fferm."""
    if issubclass(category, _MUTED.get()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextlib.contextmanager
def muted(category: type[FfermWarning]) -> Iterator[None]:
    """Give no warning of ours of this category within a block.

    It holds for the thread that runs the block and for no other, while the filters of
    `warnings.catch_warnings` are those of the whole process.
    """
    token = _MUTED.set((*_MUTED.get(), category))
    try:
        yield
    finally:
        _MUTED.reset(token)
