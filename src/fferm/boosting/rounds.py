"""One round of boosting: LightGBM grows the trees, fferm sets the values of leaves.

A tree is grown along the gradient of the loss plus the *multiplier* times that of the
table, and its leaves then get the values of a Newton step over leaves, tried before
taken. The multiplier is the payoff to which the last Newton step led by its linear
model: the payoff of the table itself jumps with every change of it, the more the larger
the weight, and trees would be spent on the jumps. What is left is a plain booster; the
fairness was in the training alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fferm._typing import FloatArray
from fferm.boosting._newton_kernels import regularisation_into
from fferm.boosting.descent import Descent
from fferm.boosting.leaves import LeafSums, Leaves, NewtonStep, assign, newton_step
from fferm.boosting.links import Link
from fferm.boosting.model_text import join, rewrite
from fferm.boosting.recipes import CATEGORY_REGULARISATION, Recipe
from fferm.boosting.scores import ScoreObjective
from fferm.boosting.trees import TreeData, Trees
from fferm.solvers.base import Record


@dataclass(frozen=True)
class Start:
    """Trees that there are already, and what they say.

    Attributes
    ----------
    text
        The model in LightGBM's text format.
    scores, held_out
        (n_scores, n) scores of the rows that trees are grown on, and of those that are
        held out, if any are.
    """

    text: str
    scores: FloatArray
    held_out: FloatArray | None = None

    def followed_by(self, n_rounds: int, write: Callable[[int], str]) -> str:
        """Return the text of these trees and of as many rounds more."""
        return join(self.text, write(n_rounds)) if n_rounds else self.text


class Rounds(ABC):
    """Boosting, one round after another."""

    @abstractmethod
    def advance(self) -> Record | None:
        """Add a round; return what it reached, None where nothing was to split."""

    @abstractmethod
    def scores(self) -> FloatArray:
        """Return the (n_scores, n) scores of the training rows after all rounds."""

    @abstractmethod
    def held_out_scores(self) -> FloatArray:
        """Return the (n_scores, n) scores of the held-out rows."""

    @abstractmethod
    def text(self, n_rounds: int) -> str:
        """Return the model of the first rounds in LightGBM's text format."""


class PlainRounds(Rounds):
    """Boosting of the loss alone, by LightGBM's own objective."""

    def __init__(
        self, link: Link, data: TreeData, recipe: Recipe, start: Start | None = None
    ) -> None:
        kind: dict[str, object] = {"objective": "binary", "metric": "binary_logloss"}
        if link.n_scores > 1:
            kind = {"objective": "multiclass", "metric": "multi_logloss"}
            kind["num_class"] = link.n_classes
        self.link, self.start = link, start
        if start is not None:
            data = data.begun(start.scores, start.held_out)
        self.trees = Trees({**recipe.settings, **kind}, data, link.n_scores)
        self.is_first = start is None

    def advance(self) -> Record | None:
        """Add a round; an empty one counts only as the first."""
        if not self.trees.grow_by_objective() and not self.is_first:
            return None
        self.is_first = False
        loss = self.trees.train_metric()
        return {"objective": loss, "loss": loss, "penalty": 0.0, "n_halvings": 0.0}

    def scores(self) -> FloatArray:
        """Return LightGBM's own scores."""
        # Under an objective of its own LightGBM gives probabilities for scores.
        return self.link.scores(self.trees.train_scores())

    def held_out_scores(self) -> FloatArray:
        """Return LightGBM's own scores."""
        return self.link.scores(self.trees.held_out_scores())

    def text(self, n_rounds: int) -> str:
        """Return what LightGBM writes."""
        if self.start is not None:
            return self.start.followed_by(n_rounds, self.trees.text)
        return self.trees.text(n_rounds)


class FairRounds(Rounds):
    """Boosting of loss and penalty."""

    def __init__(
        self,
        objective: ScoreObjective,
        data: TreeData,
        recipe: Recipe,
        start: Start | None = None,
    ) -> None:
        link, y = objective.link, objective.y
        mass = np.bincount(y, weights=objective.weight, minlength=link.n_classes)
        # What the first trees take in: nothing where others came before them.
        self.first = (
            link.start(mass / mass.sum()) if start is None else np.zeros(link.n_scores)
        )
        self.start = start
        # A number of scores is the number of trees a round, whatever it is called.
        settings = {**recipe.settings, "objective": "none"}
        if link.n_scores > 1:
            settings["num_class"] = link.n_scores
        self.trees = Trees(settings, data, link.n_scores)
        self.recipe = recipe
        scores = np.repeat(self.first[:, None], y.size, axis=1)
        if start is not None:
            scores = start.scores.copy()
        self.descent = Descent(objective, scores, recipe.is_calibrated)
        self.payoff: FloatArray | None = None
        # Of each tree, the outputs that LightGBM gave its leaves, and our values.
        self.rounds: list[tuple[list[FloatArray], list[FloatArray]]] = []
        # LightGBM keeps scores of its own, of leaves as it set them.
        self._grown = np.zeros_like(scores)
        self._grown_held_out: FloatArray | None = None
        self._held_out: FloatArray | None = None

    def advance(self) -> Record | None:
        """Add a round; an empty one counts only as the first."""
        descent = self.descent
        is_first = self.start is None and not self.rounds
        if not self.trees.grow(*descent.aim(self.payoff)) and not is_first:
            return None
        leaves, sums = descent.gather(self._grown, self.trees.train_scores())
        step = self._step(leaves, sums)
        values, n_halvings = descent.take(leaves, step)
        self.payoff = step.payoff
        self.rounds.append(([tree.output for tree in leaves], values))
        return {
            "objective": descent.value,
            "loss": descent.loss,
            "penalty": descent.penalty,
            "n_halvings": float(n_halvings),
        }

    def scores(self) -> FloatArray:
        """Return the scores of the values that rounds gave their leaves."""
        return self.descent.scores

    def held_out_scores(self) -> FloatArray:
        """Return the scores with the values that the last round gave its leaves."""
        grown = self.trees.held_out_scores().copy()
        if self._held_out is None or self._grown_held_out is None:
            self._grown_held_out = np.zeros_like(grown)
            self._held_out = np.zeros_like(grown) + self.first[:, None]
            if self.start is not None and self.start.held_out is not None:
                self._held_out += self.start.held_out
        moved = grown - self._grown_held_out
        for score, (output, values) in enumerate(zip(*self.rounds[-1], strict=True)):
            self._held_out[score] += values[assign(output, moved[score])]
        self._grown_held_out = grown
        return self._held_out

    def text(self, n_rounds: int) -> str:
        """Return what LightGBM writes, with our values in the leaves."""
        if self.start is not None:
            return self.start.followed_by(n_rounds, self._own_text)
        return self._own_text(n_rounds)

    def _own_text(self, n_rounds: int) -> str:
        return rewrite(self.trees.text(n_rounds), self.rounds, self.first)

    def _step(self, leaves: Sequence[Leaves], sums: LeafSums) -> NewtonStep:
        bowl = self.descent.bowl()
        aimed_at = bowl.payoff if self.payoff is None else self.payoff
        pulled = (bowl.weight * bowl.total) * aimed_at.ravel()
        output = np.concatenate([tree.output for tree in leaves])
        added = _regularisation(self.recipe, sums, pulled, output)
        return newton_step(sums, bowl, self.recipe.learning_rate, added)


def _regularisation(
    recipe: Recipe, sums: LeafSums, pulled: FloatArray, output: FloatArray
) -> FloatArray | float:
    # LightGBM adds to the curvature of a leaf what its settings say, and more below
    # splits of categories. Its own output of a leaf says how much it was.
    least = recipe.regularisation
    if recipe.is_sampled:
        return least
    most, added = least + CATEGORY_REGULARISATION, np.empty_like(output)
    rate = recipe.learning_rate
    regularisation_into(sums, pulled, output, rate, least, most, added)
    return added
