"""From a method of a spec to fitted models, one per value of its trade-off."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from fferm import divergences
from fferm._typing import FloatArray
from fferm.data.rows import FitInput
from fferm.divergences import Divergence
from fferm.errors import UnknownNameError
from fferm.estimators.linear import FairLogisticRegression
from fferm.fairness_grid import weight_range
from fferm.lab import baselines
from fferm.lab.baselines import Baseline
from fferm.lab.experiments.parts import Part, Parts
from fferm.lab.experiments.specs import Method, Panel
from fferm.registry import unknown_name
from fferm.uncertainty import Uncertainty

Model = FairLogisticRegression | Baseline


@dataclass(frozen=True)
class Point:
    """One fitted model of a sweep."""

    value: float
    model: Model
    seconds: float

    def chances(self, part: Part) -> FloatArray:
        """Return (n_samples, 2) chances of decisions, 0 and 1 unless drawn."""
        if isinstance(self.model, Baseline):
            groups = part.sensitive_features
            prob = self.model.predict_proba(part.X, sensitive_features=groups)
            if self.model.is_randomized:
                return prob
        else:
            prob = self.model.predict_proba(part.X)
        return np.eye(2)[(prob[:, 1] > 0.5).astype(np.int64)]


def make_model(method: Method, panel: Panel, seed: int) -> Model:
    """Return the unfitted model of a method."""
    params = dict(method.params)
    if "normalisation" in params:
        form = params.pop("normalisation")
        params["divergence"] = divergences.get(params["divergence"], normalisation=form)
    if "uncertainty" in params:
        options = dict(params["uncertainty"])
        params["uncertainty"] = Uncertainty.registered(options.pop("name"))(**options)
    model: Model = _class(method.name)(**params, notion=panel.notion)
    own = model.get_params()
    if "random_state" in own:
        model.set_params(random_state=seed)
    if panel.batch_size is not None:
        model.set_params(batch_size=panel.batch_size)
        if isinstance(model, FairLogisticRegression) and model.solver == "auto":
            solver = "semi_stochastic" if model.uncertainty else "sgda"
            model.set_params(solver=solver)
    elif isinstance(model, FairLogisticRegression):
        model.set_params(solver="lbfgs")
    return model


def takes_part(method: Method, panel: Panel) -> bool:
    """Return whether a method is run in a panel."""
    if method.panels and panel.name not in method.panels:
        return False
    model = _class(method.name)
    if issubclass(model, Baseline) and panel.notion not in model.notions:
        return False
    # A method that knows no batches is shown once, where all rows are used.
    return panel.batch_size is None or "batch_size" in model().get_params()


def trade_offs(method: Method, model: Model, n_values: int) -> list[float]:
    """Return the values of the trade-off parameter to try."""
    if method.values:
        return list(method.values)
    n_values *= method.finer
    if isinstance(model, FairLogisticRegression):
        divergence = Divergence.resolve(model.divergence)
        low, high = weight_range(divergence, *method.weights)
        if method.largest_reach is not None:
            high = min(
                high, method.largest_reach / method.params["uncertainty"]["radius"]
            )
        return [0.0, *np.geomspace(low, high, n_values - 1).tolist()]
    first, *rest = (0.0, *method.weights) if method.weights else model.tradeoff_values
    if first == 0 and rest[-1] > rest[0] > 0:  # a weight, which acts by its logarithm
        return [0.0, *np.geomspace(rest[0], rest[-1], n_values - 1).tolist()]
    return [first, *rest]


def fit_sweep(
    method: Method, model: Model, parts: Parts, values: list[float]
) -> Iterator[Point]:
    """Yield a fitted model per value."""
    if isinstance(model, FairLogisticRegression):
        yield from _fit_path(method, model, parts, values)
        return
    train, target = parts.train, parts.target
    given: dict[str, Any] = {"sensitive_features": train.sensitive_features}
    if method.penalty_on_target and target is not None:
        given["penalty_data"] = (target.X, target.sensitive_features)
    for value in values:
        began = time.perf_counter()
        point: Baseline = clone(model).set_params(**{model.tradeoff_param: value})
        point.fit(train.X, train.y, **given)
        yield Point(value, point, time.perf_counter() - began)


def _fit_path(
    method: Method, model: FairLogisticRegression, parts: Parts, values: list[float]
) -> Iterator[Point]:
    train, target = parts.train, parts.target
    given = FitInput(train.X, train.y, train.sensitive_features)
    if method.penalty_on_target and target is not None:
        rows = (target.X, target.sensitive_features)
        given = FitInput(train.X, train.y, penalty_data=rows)
    began = time.perf_counter()
    for value, fitted in zip(values, model.fit_path(given, values), strict=True):
        yield Point(value, fitted, time.perf_counter() - began)
        began = time.perf_counter()


def _class(name: str) -> Any:
    if name == "FairLogisticRegression":
        return FairLogisticRegression
    if name not in baselines.__all__:
        known = ("FairLogisticRegression", *baselines.__all__)
        raise UnknownNameError(unknown_name("method", name, known))
    return getattr(baselines, name)
