"""The laws of baselines."""

import inspect
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fferm._typing import FloatArray, IntArray
from fferm.datasets import FairDataset, make_biased
from fferm.errors import FfermError, FfermWarning, MissingSensitiveError
from fferm.lab.baselines import Baseline, PenalizedBaseline
from fferm.lab.baselines._kernels import compiled
from fferm.metrics import soft_violation
from fferm.testing._assert import claim, equal, hold, refused

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
    with warnings.catch_warnings():
        # A model that a law drives to its ends may collapse; that breaks no law.
        warnings.simplefilter("ignore", FfermWarning)
        hold(baseline, BASELINE_LAWS, data)


def _fitted(baseline: Baseline, data: FairDataset, value: float) -> Baseline:
    model: Baseline = clone(baseline).set_params(**{baseline.tradeoff_param: value})
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    return model


def _chances(model: Baseline, data: FairDataset) -> FloatArray:
    return model.predict_proba(
        data.X_test, sensitive_features=data.sensitive_features_test
    )


def _decisions(model: Baseline, data: FairDataset) -> NDArray[np.object_]:
    return model.predict(data.X_test, sensitive_features=data.sensitive_features_test)


def _declares_its_tradeoff(baseline: Baseline, data: FairDataset) -> None:
    name, values = baseline.tradeoff_param, baseline.tradeoff_values
    claim(
        name in baseline.get_params(),
        f"tradeoff_param is {name!r}, which is not a parameter of "
        f"{type(baseline).__name__}",
    )
    steps = np.diff(values)
    claim(
        len(values) > 1 and bool(np.all(steps > 0) or np.all(steps < 0)),
        f"tradeoff_values {values!r} do not go one way",
    )


def _says_where_it_is_from(baseline: Baseline, data: FairDataset) -> None:
    text = inspect.getdoc(type(baseline)) or ""
    for section in SECTIONS:
        claim(f"{section}\n---" in text, f"its docstring has no section {section}")
    claim(
        "Differs from the original" in text,
        "its Notes do not say what 'Differs from the original'",
    )


def _takes_groups_by_keyword(baseline: Baseline, data: FairDataset) -> None:
    names = inspect.signature(baseline.fit).parameters
    by_keyword = ["sensitive_features"]
    if baseline.takes_penalty_data:
        by_keyword.append("penalty_data")
    is_same = list(names) == ["X", "y", *by_keyword] and all(
        names[name].kind is inspect.Parameter.KEYWORD_ONLY
        and names[name].default is None
        for name in by_keyword
    )
    claim(is_same, f"fit takes {', '.join(names)}")


def _refuses_to_train_without_groups(baseline: Baseline, data: FairDataset) -> None:
    complaint = "fit(X, y) without groups raised no MissingSensitiveError"
    with refused(MissingSensitiveError, complaint):
        clone(baseline).fit(data.X, data.y)


def _refuses_three_classes(baseline: Baseline, data: FairDataset) -> None:
    y, groups = np.arange(len(data.y)) % 3, data.sensitive_features
    with refused(FfermError, "labels of three classes raised nothing of fferm.errors"):
        clone(baseline).fit(data.X, y, sensitive_features=groups)


def _keeps_labels(baseline: Baseline, data: FairDataset) -> None:
    y = np.where(data.y == 1, "yes", "no")
    middle = baseline.tradeoff_values[len(baseline.tradeoff_values) // 2]
    model = clone(baseline).set_params(**{baseline.tradeoff_param: middle})
    model.fit(data.X, y, sensitive_features=data.sensitive_features)
    labels = set(_decisions(model, data).tolist())
    claim(labels <= {"no", "yes"}, f"labels 'no' and 'yes' became {labels}")
    expected = _chances(_fitted(baseline, data, middle), data)
    equal(_chances(model, data), expected, 1e-9, expected, "the chance")


def _repeats_itself(baseline: Baseline, data: FairDataset) -> None:
    value = baseline.tradeoff_values[1]
    first, again = (_fitted(baseline, data, value) for _ in range(2))
    equal(_chances(first, data), _chances(again, data), 1e-12, 0.0, "a second fit")
    is_same = np.array_equal(_decisions(first, data), _decisions(again, data))
    claim(is_same, "two fits with one random_state decide differently")


def _leaves_data_alone(baseline: Baseline, data: FairDataset) -> None:
    X, y = data.X.copy(), data.y.copy()
    model = clone(baseline)
    before = model.get_params()
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    claim(
        np.array_equal(X, data.X) and np.array_equal(y, data.y), "fit wrote into X, y"
    )
    claim(model.get_params() == before, "fit changed its own parameters")


def _takes_any_batch(baseline: Baseline, data: FairDataset) -> None:
    if not isinstance(baseline, PenalizedBaseline):
        return
    for chances, codes in BARE_BATCHES:
        batch = f"a batch of probabilities {chances} and groups {codes}"
        try:
            value, slope = _penalty(baseline, np.array(chances), np.array(codes))
        except ZeroDivisionError:
            claim(False, f"{batch} made it divide by zero")
        claim(
            bool(np.isfinite(value) and np.all(np.isfinite(slope))),
            f"{batch} gave the value {value:g} and the slopes {slope}",
        )


def _differentiates_its_penalty(baseline: Baseline, data: FairDataset) -> None:
    if not isinstance(baseline, PenalizedBaseline):
        return
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


def _trades_accuracy_for_fairness(baseline: Baseline, data: FairDataset) -> None:
    ends = baseline.tradeoff_values[0], baseline.tradeoff_values[-1]
    plain, fair = (_violation(_fitted(baseline, data, end), data) for end in ends)
    rest = baseline.largest_rest
    claim(
        fair < rest * plain,
        f"the violation is {plain:.3f} at {baseline.tradeoff_param}={ends[0]:g} and "
        f"{fair:.3f} at {ends[1]:g}; at most {rest:g} of it is expected",
    )


def _violation(model: Baseline, data: FairDataset) -> float:
    chance = _chances(model, data)
    if not model.is_randomized:
        chance = np.eye(2)[(chance[:, 1] > 0.5).astype(np.int64)]
    return soft_violation(
        data.y_test,
        chance,
        classes=[0, 1],
        notion=model.notion,
        sensitive_features=data.sensitive_features_test,
    )


BASELINE_LAWS: dict[str, Callable[[Baseline, FairDataset], None]] = {
    "a trade-off parameter is declared": _declares_its_tradeoff,
    "the source and the differences are written down": _says_where_it_is_from,
    "groups are passed by keyword": _takes_groups_by_keyword,
    "no groups are refused": _refuses_to_train_without_groups,
    "three classes are refused": _refuses_three_classes,
    "a penalty takes any batch": _takes_any_batch,
    "a penalty writes its own derivative": _differentiates_its_penalty,
    "data are left alone": _leaves_data_alone,
    "labels are kept": _keeps_labels,
    "the same seed gives the same model": _repeats_itself,
    "the parameter trades accuracy for fairness": _trades_accuracy_for_fairness,
}
