"""Baselines that fairlearn implements, around scikit-learn's LogisticRegression."""

import importlib
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.linear_model import LogisticRegression

from fferm.errors import MissingDependencyError
from fferm.lab.baselines.base import Baseline, TrainingRows

MAX_ITER = 1000


class FairlearnBaseline(Baseline):
    """A model of fairlearn with the signature of a baseline."""

    model_: Any

    @abstractmethod
    def _make(self, estimator: LogisticRegression) -> Any:
        """Return fairlearn's model around an estimator."""

    def _train(self, rows: TrainingRows) -> None:
        model = self._make(LogisticRegression(max_iter=MAX_ITER))
        with mute_fairlearn():
            self.model_ = model.fit(rows.X, rows.y, sensitive_features=rows.group)


def fairlearn(module: str) -> Any:
    """Return a module of fairlearn, imported when a baseline needs it."""
    try:
        return importlib.import_module(f"fairlearn.{module}")
    except ImportError as error:
        raise MissingDependencyError(
            "This baseline wraps fairlearn, which is not installed. Run: "
            'pip install "fferm[baselines]"'
        ) from error


@contextmanager
def mute_fairlearn() -> Iterator[None]:
    """Ignore the warnings of fairlearn's own code, which its callers cannot change."""
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning, UserWarning):
            warnings.filterwarnings("ignore", category=category, module=r"fairlearn\.")
        yield
