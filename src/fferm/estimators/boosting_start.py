"""``warm_start`` of trees: the trees there are, and whether more can follow them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, Table
from fferm.boosting.predictor import Predictor
from fferm.boosting.recipes import Recipe
from fferm.boosting.rounds import Start
from fferm.boosting.training import Grown
from fferm.data.validate import TrainingData
from fferm.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from fferm.estimators.boosting import FairBoostingClassifier


@dataclass(frozen=True)
class Last:
    """What the last fit left.

    Attributes
    ----------
    booster
        Its trees.
    classes, n_features, categorical
        What they were grown for.
    n_rounds, history
        How many rounds, and the record of each that was tried.
    """

    booster: Any
    classes: NDArray[Any]
    n_features: int
    categorical: tuple[int, ...]
    n_rounds: int
    history: tuple[Any, ...]

    def checked(self, model: "FairBoostingClassifier", data: TrainingData) -> "Last":
        """Return it, after refusing data or settings that its trees do not fit."""
        if not np.array_equal(self.classes, data.classes):
            raise InvalidInputError(
                f"warm_start found the classes {self.classes.tolist()}, the data have "
                f"{data.classes.tolist()}. Fit with warm_start=False."
            )
        if self.n_features != model.n_features_in_:
            raise InvalidInputError(
                f"warm_start found {self.n_features} features, the data have "
                f"{model.n_features_in_}. Fit with warm_start=False."
            )
        levels = _levels(data.X)
        if self.categorical != model.categorical_ or (
            levels is not None and levels != (self.booster.pandas_categorical or [])
        ):
            raise InvalidInputError(
                "warm_start found other columns of categories, or other categories in "
                "them, than the data have. Give columns of the same pandas.Categorical "
                "levels, or fit with warm_start=False."
            )
        if model.n_estimators < self.n_rounds:
            raise InvalidParameterError(
                f"n_estimators={model.n_estimators} came with warm_start, and there "
                f"are {self.n_rounds} rounds already. Expected as many or more: it "
                "counts all rounds; or fit with warm_start=False."
            )
        return self

    def start(self, X: Table, held_out: Table, n_threads: int) -> Start:
        """Return where to go on on some rows."""
        predictor = Predictor(self.booster)

        def scores(rows: Table) -> FloatArray:
            raw = predictor.raw_scores(rows, n_threads)
            return np.ascontiguousarray(np.atleast_2d(raw.T))

        return Start(
            self.booster.model_to_string(num_iteration=-1),
            scores(X),
            None if held_out is None else scores(held_out),
        )

    def rest(self, recipe: Recipe) -> Recipe:
        """Return a recipe of the rounds that are left."""
        return replace(recipe, n_rounds=recipe.n_rounds - self.n_rounds)

    def joined(self, grown: Grown) -> Grown:
        """Return what came of it, as of one run."""
        return replace(
            grown,
            history=(*self.history, *grown.history),
            n_rounds=self.n_rounds + grown.n_rounds,
        )


def last_of(model: "FairBoostingClassifier") -> Last | None:
    """Return what the last fit left, None where there was none."""
    if not hasattr(model, "booster_"):
        return None
    return Last(
        model.booster_,
        model.classes_,
        model.n_features_in_,
        model.categorical_,
        model.n_iter_,
        model.history_,
    )


def _levels(X: Table) -> list[list[Any]] | None:
    if not isinstance(X, pd.DataFrame):
        return None
    columns = X.select_dtypes("category")
    return [column.cat.categories.tolist() for _, column in columns.items()]
