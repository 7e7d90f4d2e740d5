"""The laws of baselines."""

import inspect
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from fferm._typing import FloatArray, IntArray, Table
from fferm.datasets import FairDataset, make_biased
from fferm.errors import FfermError, FfermWarning, MissingSensitiveError, muted
from fferm.lab.baselines import Baseline, PenalizedBaseline
from fferm.lab.baselines._kernels import compiled
from fferm.metrics import soft_violation
from fferm.testing._assert import Law, claim, equal, law_of, refused, strictly

N_ROWS = 800
SECTIONS = ("Notes", "References")
# Batches of penalties: how large, of how many groups, and steps along a probability.
BATCH_SIZES, N_GROUPS, STEP = (2, 40), 3, 1e-6
# Rounding over two steps is far below, a wrong formula far above.
DERIVATIVE_SLACK = 1e-5
# Probabilities and groups of batches in which something is missing.
BARE_BATCHES = (
    ((0.0, 1.0, 0.5, 1.0, 0.3), (0, 2, 0, 2, 2)),
    ((0.2, 0.9), (1, 1)),
    ((0.0, 0.0), (0, 1)),
    ((1.0, 1.0), (1, 2)),
    ((0.4,), (2,)),
)


@strictly
def check_baseline(baseline: Baseline) -> None:
    """Hold a baseline to its contract.

    Parameters
    ----------
    baseline
        An unfitted instance; it is cloned and trained on made-up data of two groups.

    Raises
    ------
    ComponentError
        If a law is broken. The message names the law and what broke it.

    Examples
    --------
    >>> from fferm.lab.baselines import CovarianceConstraint
    >>> check_baseline(CovarianceConstraint())
    """
    data = make_biased(N_ROWS, bias=0.8, random_state=0)
    baseline = clone(baseline)
    if "random_state" in baseline.get_params():
        baseline.set_params(random_state=0)
    law = partial(law_of, baseline, "baseline")
    # A model that a law drives to its ends may collapse; that breaks no law.
    with muted(FfermWarning):
        _hold_declarations(baseline, law)
        with law("no groups are refused"):
            complaint = "fit(X, y) without groups raised no MissingSensitiveError"
            with refused(MissingSensitiveError, complaint):
                clone(baseline).fit(data.X, data.y)
        with law("three classes are refused"):
            complaint = "labels of three classes raised nothing of fferm.errors"
            with refused(FfermError, complaint):
                _fitted(baseline, data, y=np.arange(len(data.y)) % 3)
        if isinstance(baseline, PenalizedBaseline):
            _hold_penalty(baseline, law)
        _hold_models(baseline, data, law)


def _hold_declarations(baseline: Baseline, law: Law) -> None:
    with law("a trade-off parameter is declared"):
        name, values = baseline.tradeoff_param, baseline.tradeoff_values
        owner = type(baseline).__name__
        complaint = f"tradeoff_param is {name!r}, which is not a parameter of {owner}"
        claim(name in baseline.get_params(), complaint)
        steps = np.diff(values)
        is_one_way = len(values) > 1 and bool(np.all(steps > 0) or np.all(steps < 0))
        claim(is_one_way, f"tradeoff_values {values!r} do not go one way")
    with law("the source and the differences are written down"):
        text = inspect.getdoc(type(baseline)) or ""
        for section in SECTIONS:
            claim(f"{section}\n---" in text, f"its docstring has no section {section}")
        what = "Differs from the original"
        claim(what in text, f"its Notes do not say what {what!r}")
    with law("groups are passed by keyword"):
        names = inspect.signature(baseline.fit).parameters
        extra = ["penalty_data"] if baseline.takes_penalty_data else []
        by_keyword = ["sensitive_features", *extra]
        is_same = list(names) == ["X", "y", *by_keyword] and all(
            names[name].kind is inspect.Parameter.KEYWORD_ONLY
            and names[name].default is None
            for name in by_keyword
        )
        claim(is_same, f"fit takes {', '.join(names)}")


def _hold_models(baseline: Baseline, data: FairDataset, law: Law) -> None:
    values = baseline.tradeoff_values
    groups = {"sensitive_features": data.sensitive_features_test}
    with law("data are left alone"):
        X, y = data.X.copy(), data.y.copy()
        model = clone(baseline)
        before = model.get_params()
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        is_same = np.array_equal(X, data.X) and np.array_equal(y, data.y)
        claim(is_same, "fit wrote into X, y")
        claim(model.get_params() == before, "fit changed its own parameters")
    with law("labels are kept"):
        middle = values[len(values) // 2]
        model = _fitted(baseline, data, middle, np.where(data.y == 1, "yes", "no"))
        labels = set(model.predict(data.X_test, **groups).tolist())
        claim(labels <= {"no", "yes"}, f"labels 'no' and 'yes' became {labels}")
        models = model, _fitted(baseline, data, middle)
        chance, expected = (m.predict_proba(data.X_test, **groups) for m in models)
        equal(chance, expected, 1e-9, expected, "the chance")
    with law("the same seed gives the same model"):
        twice = [_fitted(baseline, data, values[1]) for _ in range(2)]
        first, again = (model.predict_proba(data.X_test, **groups) for model in twice)
        equal(first, again, 1e-12, 0.0, "a second fit")
        first, again = (model.predict(data.X_test, **groups) for model in twice)
        is_same = np.array_equal(first, again)
        claim(is_same, "two fits with one random_state decide differently")
    with law("the parameter trades accuracy for fairness"):
        ends = (_fitted(baseline, data, end) for end in (values[0], values[-1]))
        plain, fair = (_violation(model, data) for model in ends)
        rest, name = baseline.largest_rest, baseline.tradeoff_param
        claim(
            fair < rest * plain,
            f"the violation is {plain:.3f} at {name}={values[0]:g} and {fair:.3f} at "
            f"{values[-1]:g}; at most {rest:g} of it is expected",
        )


def _fitted(
    baseline: Baseline,
    data: FairDataset,
    value: float | None = None,
    y: Table | None = None,
) -> Baseline:
    model: Baseline = clone(baseline)
    if value is not None:
        model.set_params(**{baseline.tradeoff_param: value})
    y = data.y if y is None else y
    return model.fit(data.X, y, sensitive_features=data.sensitive_features)


def _violation(model: Baseline, data: FairDataset) -> float:
    groups = {"sensitive_features": data.sensitive_features_test}
    chance = model.predict_proba(data.X_test, **groups)
    if not model.is_randomized:
        chance = np.eye(2)[(chance[:, 1] > 0.5).astype(np.int64)]
    how: dict[str, Any] = {"classes": [0, 1], "notion": model.notion, **groups}
    return soft_violation(data.y_test, chance, **how)


def _hold_penalty(baseline: PenalizedBaseline, law: Law) -> None:
    with law("a penalty takes any batch"):
        for chances, codes in BARE_BATCHES:
            batch = f"a batch of probabilities {chances} and groups {codes}"
            try:
                value, slope = _penalty(baseline, np.array(chances), np.array(codes))
            except ZeroDivisionError:
                claim(False, f"{batch} made it divide by zero")
            is_finite = bool(np.isfinite(value) and np.all(np.isfinite(slope)))
            claim(is_finite, f"{batch} gave the value {value:g} and the slopes {slope}")
    with law("a penalty writes its own derivative"):
        rng = np.random.default_rng(0)
        for size in BATCH_SIZES:
            prob = rng.uniform(0.05, 0.95, size)
            group = rng.integers(0, N_GROUPS, size)
            slope = _penalty(baseline, prob, group)[1]
            moves = STEP * np.eye(size)
            up = [_penalty(baseline, prob + move, group)[0] for move in moves]
            down = [_penalty(baseline, prob - move, group)[0] for move in moves]
            expected = (np.array(up) - np.array(down)) / (2 * STEP)
            slack = DERIVATIVE_SLACK * (1 + np.abs(expected))
            equal(slope, expected, slack, prob, "the slope at a probability")


def _penalty(
    baseline: PenalizedBaseline, prob: FloatArray, group: IntArray
) -> tuple[float, FloatArray]:
    """Return value and slopes of a batch, as compiled code has them."""
    settings = np.array(baseline._settings(), dtype=np.float64)
    slope = np.zeros(prob.size)
    penalty = compiled(type(baseline).penalty)
    return penalty(prob, group, N_GROUPS, settings, slope), slope
