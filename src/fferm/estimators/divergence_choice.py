"""``divergence="auto"``: the divergence that does best on held-out rows.

Each candidate is trained on the same rows and judged on the same held-out ones. Under a
bound, each finds its own smallest weight and the most accurate that keeps the bound is
taken. With a fixed weight, each is trained at the same strength and the largest
accuracy minus violation is taken.
"""

import warnings
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from fferm.divergences import get as get_divergence
from fferm.errors import FfermWarning, InvalidParameterError
from fferm.estimators.base import FairClassifier, FitInput
from fferm.estimators.bounds import Bound, choose_weight, make_trial, read_bound
from fferm.estimators.validation import check_number
from fferm.weights import default_weights

M = TypeVar("M", bound=FairClassifier)

AUTO = "auto"
# In this order where they do equally well.
CANDIDATES = (
    "kl",
    "jensen_shannon",
    "chi2",
    "squared_hellinger",
    "reverse_kl",
    "total_variation",
)


def choose_divergence(model: M, given: FitInput) -> M:
    """Return the model with the divergence, and its weight, that do best; unfitted.

    ``fairness_weight`` is read as that of ``kl``; of another divergence it is the
    weight at the same place of its default range.
    """
    if given.penalty_data is not None:
        raise InvalidParameterError(
            "divergence='auto' came with penalty_data, whose rows it cannot judge by. "
            "Name a divergence, or choose with fferm.tuning.tune and a TargetSample."
        )
    seed = model.random_state
    if not isinstance(seed, int | np.integer):  # one draw for all candidates
        seed = int(check_random_state(seed).randint(2**31 - 1))
    plain = clone(model).set_params(random_state=seed)
    with warnings.catch_warnings():
        # The last fit, on all rows, says what there is to say.
        warnings.simplefilter("ignore", FfermWarning)
        judged = [_judge(_with(plain, name), given) for name in CANDIDATES]
    best: _Judged[M] = max(judged, key=lambda one: one.score)
    return best.model


@dataclass(frozen=True)
class _Judged(Generic[M]):
    # An unfitted model, and how it did on the held-out rows.
    model: M
    score: float


def _with(model: M, name: str) -> M:
    largest = [default_weights(get_divergence(n), 3)[-1] for n in (name, "kl")]
    weight = check_number("fairness_weight", model.fairness_weight)
    scaled = float(weight * largest[0] / largest[1])
    chosen: M = clone(model).set_params(divergence=name, fairness_weight=scaled)
    return chosen


def _judge(model: M, given: FitInput) -> _Judged[M]:
    bound = read_bound(model)
    data, _, rows = model._encode(given)
    if rows is None:  # without a penalty all divergences are alike
        return _Judged(model, 0.0)
    is_bound = bound is not None
    if bound is None:
        bound = Bound(1.0, model.validation_fraction, False)
    trial = make_trial(model, bound, given, data, rows)
    if is_bound:
        fitted = choose_weight(model, bound, given, data, rows)[1]
    else:
        fitted = next(trial.model.fit_path(trial.given, [model.fairness_weight]))
    found = trial.judge(fitted)
    row = np.cumsum(data.kept)[trial.held_out] - 1  # among those of positive weight
    is_right = fitted.predict(trial.X) == data.classes[data.y[row]]
    accuracy = float(np.average(is_right, weights=data.weight[row]))
    if not found.is_usable:
        return _Judged(model, -2.0)
    if is_bound:
        return _Judged(model, 1 + accuracy if found.is_within else -found.value)
    return _Judged(model, accuracy - found.violation)
