"""The optional packages that rivals wrap, and what to do where they are missing."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fferm.errors import MissingDependencyError
from fferm.notions import Notion

# fairlearn's moment of each notion.
MOMENTS = {
    "demographic_parity": "DemographicParity",
    "equal_opportunity": "TruePositiveRateParity",
    "equalized_odds": "EqualizedOdds",
}


def fairlearn(module: str) -> Any:
    """Return a module of fairlearn, imported when a rival needs it."""
    try:
        return importlib.import_module(f"fairlearn.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            "This rival wraps fairlearn, which is not installed. Run: "
            'pip install "fferm[rivals]"'
        ) from error


def moment(notion: Notion, difference_bound: float | None = None) -> Any:
    """Return fairlearn's moment of a notion."""
    return getattr(fairlearn("reductions"), MOMENTS[notion.name])(
        difference_bound=difference_bound
    )


@contextmanager
def their_warnings_apart() -> Iterator[None]:
    """Mute what fairlearn warns of in its own code, which its callers cannot change."""
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning, UserWarning):
            warnings.filterwarnings("ignore", category=category, module=r"fairlearn\.")
        yield
