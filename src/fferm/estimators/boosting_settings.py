"""What the parameters of a `FairBoostingClassifier` mean, checked against the data."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from fferm._typing import FloatArray
from fferm.boosting.links import make_link
from fferm.boosting.recipes import Judge, Recipe
from fferm.boosting.scores import ScoreObjective
from fferm.boosting.trees import aliases
from fferm.data.rows import FitInput, Rows
from fferm.data.split import hold_out, kinds, weigh
from fferm.data.validate import TrainingData, check_number, check_whole
from fferm.errors import FfermWarning, InvalidInputError, InvalidParameterError
from fferm.estimators.weight_search import read_fraction
from fferm.metrics.tabulator import Tabulator
from fferm.notions import Labels
from fferm.penalty.objective import Problem
from fferm.solvers.base import Callback

if TYPE_CHECKING:
    from fferm.estimators.boosting import FairBoostingClassifier

CRITERIA = (None, "loss", "violation", "objective")
# Settings of LightGBM that have a parameter here, or that leaves set by a Newton step
# over all of them would not keep.
OWN = {
    "objective": "it is the objective of fferm",
    "num_class": "y says how many classes there are",
    "metric": "use early_stopping",
    "boosting": "leaves are set by Newton steps, which only 'gbdt' keeps",
    "data_sample_strategy": "use subsample",
    "linear_tree": "leaves hold one number",
    "monotone_constraints": "Newton steps over leaves do not keep them",
    "num_iterations": "use n_estimators",
    "learning_rate": "use learning_rate of the estimator",
    "num_leaves": "use num_leaves of the estimator",
    "max_depth": "use max_depth of the estimator",
    "min_data_in_leaf": "use min_child_samples",
    "lambda_l1": "use reg_lambda",
    "lambda_l2": "use reg_lambda",
    "bagging_fraction": "use subsample",
    "feature_fraction": "use colsample_bytree",
    "num_threads": "use n_jobs",
    "seed": "use random_state",
}


def make_recipe(
    model: "FairBoostingClassifier", callbacks: tuple[Callback, ...] = ()
) -> Recipe:
    """Return how a model wants its trees to grow."""
    subsample = _share("subsample", model.subsample)
    rate = check_number("learning_rate", model.learning_rate, above=True)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    settings: dict[str, Any] = {
        "learning_rate": rate,
        "num_leaves": _at_least_two(model.num_leaves),
        "max_depth": -1
        if model.max_depth is None
        else check_whole("max_depth", model.max_depth),
        "min_data_in_leaf": check_whole("min_child_samples", model.min_child_samples),
        "lambda_l2": check_number("reg_lambda", model.reg_lambda),
        "feature_fraction": _share("colsample_bytree", model.colsample_bytree),
        "num_threads": n_threads(model),
        "seed": seed,
        "deterministic": True,
        # Left to itself LightGBM measures which is faster, and sums differ by it. By
        # rows, it copies the columns of every tree that does not see all of them.
        "force_row_wise": model.colsample_bytree == 1,
        "force_col_wise": model.colsample_bytree != 1,
        # Bins are shared by all fits, whatever the least rows of a leaf.
        "feature_pre_filter": False,
        "metric": "none",
        "verbose": -1,
        **_extra(model.lightgbm_params),
    }
    if subsample < 1:
        settings |= {"bagging_fraction": subsample, "bagging_freq": 1}
    return Recipe(
        n_rounds=check_whole("n_estimators", model.n_estimators),
        learning_rate=rate,
        settings=settings,
        regularisation=float(settings["lambda_l2"]),
        is_sampled=subsample < 1,
        is_calibrated=bool(model.calibrated),
        callbacks=callbacks,
    )


def n_threads(model: "FairBoostingClassifier") -> int:
    """Return the number of threads; 0 leaves it to LightGBM."""
    return 0 if model.n_jobs is None else check_whole("n_jobs", model.n_jobs)


@dataclass(frozen=True)
class HeldOut:
    """Rows that early stopping judges by."""

    data: TrainingData
    problem: Problem
    rows: Rows | None

    def judge(self, model: "FairBoostingClassifier", weight: float) -> Judge:
        """Return what judges rounds under a fairness weight."""
        patience = check_whole("patience", model.patience)
        return Judge(self._criterion(model, weight), patience)

    def _criterion(
        self, model: "FairBoostingClassifier", weight: float
    ) -> Callable[[FloatArray], float]:
        link, data = make_link(self.problem.n_classes), self.data
        penalty = self.problem.penalty
        if model.early_stopping == "violation":
            return self._violation()
        if model.early_stopping == "loss" or penalty is None or weight == 0:
            return lambda scores: float(
                np.average(link.losses(scores, data.y)[0], weights=data.weight)
            )
        problem = self.problem.with_weight(weight)
        whole = ScoreObjective(
            problem.objective, data.y, data.weight, link.n_classes, penalty
        )
        return lambda scores: whole.value(whole.at(scores))

    def _violation(self) -> Callable[[FloatArray], float]:
        if self.rows is None:
            raise InvalidParameterError(
                "early_stopping='violation' came with fairness_weight=0, which looks "
                "at no groups. Use early_stopping='loss'."
            )
        link, classes = make_link(self.problem.n_classes), self.data.classes
        labels = Labels(self.data.y.size, None, tuple(classes.tolist()))
        setting = Tabulator(self.rows, self.problem.objective.notion, labels)

        def worst(scores: FloatArray) -> float:
            decided = link.decide(scores)
            if np.unique(decided).size == 1:  # fair and useless
                return np.inf
            found = setting.violations(decided).worst
            return found if np.isfinite(found) else np.inf

        return worst


def split(
    model: "FairBoostingClassifier",
    given: FitInput,
    data: TrainingData,
    rows: Rows | None,
) -> tuple[tuple[TrainingData, Problem, Rows | None], HeldOut]:
    """Return rows to train on, and rows that early stopping judges by."""
    if given.penalty_data is not None:
        raise InvalidParameterError(
            f"early_stopping={model.early_stopping!r} holds out training rows, and the "
            "penalty is taken on penalty_data. Use early_stopping=None."
        )
    kind = data.y if rows is None else kinds(rows, data.y)
    held = hold_out(kind, read_fraction(model), model.random_state)
    with warnings.catch_warnings():
        # All rows together have said what there is to say.
        warnings.simplefilter("ignore", FfermWarning)
        if set(data.y[held]) != set(data.y) or set(data.y[~held]) != set(data.y):
            raise InvalidInputError(
                f"early_stopping={model.early_stopping!r} can hold out "
                f"{int(held.sum())} of {held.size} rows, and not every class is on "
                "both sides. Use early_stopping=None, or more rows of each class."
            )
        judged = HeldOut(*model._encode(weigh(given, data, held)))
        return model._encode(weigh(given, data, ~held)), judged


def check_stopping(model: "FairBoostingClassifier") -> bool:
    """Return whether rows are held out to stop early."""
    if model.early_stopping not in CRITERIA:
        raise InvalidParameterError(
            f"early_stopping={model.early_stopping!r} came. Expected None, 'loss', "
            "'violation' or 'objective'."
        )
    return model.early_stopping is not None


def _extra(given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise InvalidParameterError(
            f"lightgbm_params={given!r} came. Expected a dict of settings of LightGBM "
            "by name, such as {'max_bin': 63}, or None."
        )
    found = dict(given or {})
    for setting, reason in OWN.items() if found else ():
        for name in sorted(aliases(setting) & set(found)):
            raise InvalidParameterError(
                f"lightgbm_params holds {name!r}: {reason}. Leave it out."
            )
    return found


def _share(name: str, value: object) -> float:
    share = check_number(name, value, above=True)
    if share > 1:
        raise InvalidParameterError(
            f"{name}={value!r} came. Expected a share above 0, at most 1."
        )
    return share


def _at_least_two(num_leaves: object) -> int:
    found = check_whole("num_leaves", num_leaves)
    if found < 2:
        raise InvalidParameterError(
            f"num_leaves={num_leaves!r} came. Expected at least 2: one leaf is no tree."
        )
    return found
