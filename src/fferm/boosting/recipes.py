"""How trees are grown: rounds, the settings of LightGBM, and when to stop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fferm._typing import FloatArray
from fferm.solvers.base import Callback

# What LightGBM adds to the curvature of leaves below a split of categories.
CATEGORY_REGULARISATION = 10.0


@dataclass(frozen=True)
class Recipe:
    """How trees are grown.

    Attributes
    ----------
    n_rounds
        How many rounds, of one tree a score.
    learning_rate
        The share of a Newton step that is taken.
    settings
        Parameters of LightGBM.
    regularisation
        What is added to the curvature of a leaf.
    is_sampled
        Whether a tree sees some of the rows only.
    is_calibrated
        Whether the penalty is taken at the table of decisions.
    callbacks
        Functions of the record of a round.
    """

    n_rounds: int
    learning_rate: float
    settings: Mapping[str, Any]
    regularisation: float = 0.0
    is_sampled: bool = False
    is_calibrated: bool = True
    callbacks: tuple[Callback, ...] = ()


@dataclass
class Judge:
    """Looks at held-out rows and remembers the best round.

    Attributes
    ----------
    criterion
        A function of their (n_scores, n) scores; less is better.
    patience
        Rounds without a gain after which there is no hope.
    """

    criterion: Callable[[FloatArray], float]
    patience: int
    best: float = np.inf
    best_round: int = 0
    n_rounds: int = 0

    def see(self, scores: FloatArray) -> float:
        """Return the criterion of the scores after one more round."""
        self.n_rounds += 1
        value = self.criterion(scores)
        if value < self.best:
            self.best, self.best_round = value, self.n_rounds
        return value

    @property
    def is_over(self) -> bool:
        """Whether nothing was gained for too long."""
        return self.n_rounds - self.best_round >= self.patience
