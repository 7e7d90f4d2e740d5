"""How a regressor is trained: the full batch, or minibatches, from the plain model."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from fferm._types import FloatArray, Table
from fferm.columns import take_rows
from fferm.errors import FfermWarning, InvalidParameterError
from fferm.estimators.base import FitInput
from fferm.estimators.regression_data import Encoded
from fferm.estimators.validation import check_number, check_whole
from fferm.regression import RegressionProblem
from fferm.soft_bins import make_bins, quantile_edges
from fferm.solvers import LBFGS, Result, Solution
from fferm.solvers.base import Callback, Monitor
from fferm.solvers.evaluation import PlainEvaluator
from fferm.solvers.linear import linear_logits

if TYPE_CHECKING:
    from fferm.estimators.regression import FairRegressor

# Steps of Adam for a linear model, whose features are standardised, and for a network.
LINEAR_RATE = 0.02
NETWORK_RATE = 0.003


@dataclass(frozen=True)
class Fitted:
    """What training found.

    Attributes
    ----------
    problem
        With the bins that were used.
    theta
        (n_features + 1,) of a linear model, else None.
    module
        A network, else None.
    result, history, n_iter
        How training went.
    """

    problem: RegressionProblem
    theta: FloatArray | None
    module: Any
    result: Result
    history: tuple[dict[str, float], ...]
    n_iter: int

    def predict(self, X: Table) -> FloatArray:
        """Return predictions in standard deviations of y."""
        if self.theta is not None:
            return linear_logits(X, self.theta[None])[:, 1]
        return _torch().predict(self.module, X)  # type: ignore[no-any-return]

    @property
    def dual(self) -> FloatArray:
        """(strata, bins, groups) the dual that is optimal for the predictions."""
        penalty = self.problem.penalty
        if penalty is None:
            return np.zeros((0, 0, 0))
        own = self.problem.penalty_X
        u = self.predict(self.problem.X if own is None else own)
        prob = self.problem.penalized_prob(np.column_stack([np.zeros(u.size), u]))
        return np.concatenate(penalty.duals(penalty.tables(prob)), axis=2)


def solver_of(model: "FairRegressor") -> str:
    """Return the solver that a model's parameters stand for."""
    if model.method not in ("bins", "critic"):
        raise InvalidParameterError(
            f"method={model.method!r} came. Expected 'bins' or 'critic'."
        )
    if model.method == "critic" and model.sharpness != 1:
        raise InvalidParameterError(
            f"sharpness={model.sharpness!r} came with method='critic', which sees the "
            "prediction itself and no bins to sharpen. Use sharpness=1, or "
            "method='bins'."
        )
    if model.solver not in ("auto", "lbfgs", "sgda"):
        raise InvalidParameterError(
            f"solver={model.solver!r} came. Expected 'auto', 'lbfgs' or 'sgda'."
        )
    is_full = model.hidden is None and model.method == "bins"
    if model.solver == "lbfgs" and not is_full:
        raise InvalidParameterError(
            "solver='lbfgs' trains linear models with soft bins. Use solver='sgda' for "
            "networks and critics."
        )
    if model.solver != "auto":
        return str(model.solver)
    return "lbfgs" if is_full else "sgda"


def train(
    model: "FairRegressor",
    encoded: Encoded,
    given: FitInput,
    weights: Sequence[float],
    start: FloatArray | None,
    callbacks: tuple[Callback, ...] = (),
) -> Iterator[Fitted]:
    """Yield what was found for each fairness weight; bins are placed once for all."""
    if solver_of(model) == "lbfgs":
        yield from _full_batch(model, encoded, weights, start, callbacks)
    else:
        yield from _minibatches(model, encoded, given, weights, callbacks)


def _full_batch(
    model: "FairRegressor",
    encoded: Encoded,
    weights: Sequence[float],
    start: FloatArray | None,
    callbacks: tuple[Callback, ...],
) -> Iterator[Fitted]:
    solver = linear_solver(model)
    plain = _plain(solver, encoded, start)
    problem = place_bins(model, encoded, _linear(encoded.problem, plain))
    if problem.penalty is None:
        for _ in weights:
            yield _linear(problem, plain)
        return
    first = plain.value if start is None else start[None]
    path = solver.solve_path(problem, weights, start=first, callbacks=callbacks)
    for weight, solution in zip(weights, path, strict=True):
        yield _linear(_weighted(problem, weight), solution)


def _minibatches(
    model: "FairRegressor",
    encoded: Encoded,
    given: FitInput,
    weights: Sequence[float],
    callbacks: tuple[Callback, ...],
) -> Iterator[Fitted]:
    if encoded.problem.objective.uncertainty is not None:
        raise InvalidParameterError(
            "uncertainty needs exact tables, of the full batch. Use solver='lbfgs' "
            "with hidden=None and method='bins'."
        )
    if model.hidden is not None and not model.fit_intercept:
        raise InvalidParameterError(
            "fit_intercept=False is of linear models: hidden layers have intercepts of "
            "their own. Use hidden=None, or fit_intercept=True."
        )
    torch = _torch()
    recipe = _recipe(model, encoded)
    widths = () if model.hidden is None else model.hidden
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise InvalidParameterError(
            f"hidden={widths!r} came. Expected a list of widths, such as (64, 64), or "
            "None for a linear model."
        )
    hidden = [check_whole("hidden", width) for width in widths]

    def new_module() -> Any:
        share = encoded.problem.share
        has_intercept = bool(model.fit_intercept)
        return torch.make_module(
            encoded.data.X, share, hidden, recipe.seed, has_intercept
        )

    module = new_module()
    if model.hidden is None:
        plain = _linear(encoded.problem, _plain(linear_solver(model), encoded, None))
        module.set_linear(plain.theta)
    else:
        trained = torch.train(module, encoded.problem, None, recipe, Monitor())
        plain = Fitted(encoded.problem, None, module, trained.result, (), 0)
    problem = place_bins(model, encoded, plain)
    state = {k: v.clone() for k, v in module.state_dict().items()}
    for weight in weights:
        own = new_module()
        own.load_state_dict(state)
        weighted = _weighted(problem, weight)
        fairness = _fairness(model, encoded, given, problem, recipe.seed)
        monitor = Monitor(callbacks=callbacks)
        trained = torch.train(own, weighted, fairness, recipe, monitor)
        theta = own.linear() if model.hidden is None else None
        n_iter = len(trained.history)
        yield Fitted(weighted, theta, own, trained.result, trained.history, n_iter)


def _fairness(
    model: "FairRegressor",
    encoded: Encoded,
    given: FitInput,
    problem: RegressionProblem,
    seed: int,
) -> Any:
    if encoded.rows is None:
        return None
    torch = _torch()
    if model.method == "bins":
        return torch.binned_fairness(problem, encoded.rows)
    kept, sensitive = np.flatnonzero(encoded.data.kept), given.sensitive_features
    if given.penalty_data is not None:
        _, sensitive, *_ = given.penalty_data
        kept = np.arange(encoded.penalty_X.shape[0])
    columns = take_rows(sensitive, kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)
        return torch.critic_fairness(
            problem, encoded.rows, columns, model.continuous, seed
        )


def place_bins(
    model: "FairRegressor", encoded: Encoded, plain: Fitted
) -> RegressionProblem:
    """Return the problem with bins between quantiles of the plain predictions."""
    problem, rows = encoded.problem, encoded.rows
    n_bins = check_whole("n_bins", model.n_bins)
    if n_bins < 2:
        raise InvalidParameterError(
            "n_bins=1 came, and every prediction is in one bin: nothing would be asked "
            "of the model. Expected 2 bins or more."
        )
    if rows is None:
        return problem
    edges = quantile_edges(plain.predict(encoded.penalty_X), n_bins, rows.weight)
    steepness = check_number("steepness", model.steepness, above=True)
    if edges.size == 0:
        # Nothing is predicted, so nothing depends on the group: any bins do.
        return problem
    return replace(problem, bins=make_bins(edges, steepness))


def _weighted(problem: RegressionProblem, weight: float) -> RegressionProblem:
    objective = replace(problem.objective, fairness_weight=weight)
    return replace(problem, objective=objective)


def linear_solver(model: "FairRegressor") -> LBFGS:
    """Return the solver of the full batch."""
    return LBFGS(
        tol=check_number("tol", model.tol, above=True),
        max_iter=check_whole("max_iter", model.max_iter),
        fit_intercept=bool(model.fit_intercept),
        evaluator=PlainEvaluator(),
    )


def _plain(solver: LBFGS, encoded: Encoded, start: FloatArray | None) -> Solution:
    problem = replace(encoded.problem, penalty=None, penalty_X=None)
    return solver.solve(problem, start=None if start is None else start[None])


def _linear(problem: RegressionProblem, solution: Solution) -> Fitted:
    n_iter = int(solution.stats["n_iter"])
    theta = solution.value[0]
    return Fitted(problem, theta, None, solution.result, solution.history, n_iter)


def _recipe(model: "FairRegressor", encoded: Encoded) -> Any:
    rate = LINEAR_RATE if model.hidden is None else NETWORK_RATE
    if model.learning_rate is not None:
        rate = check_number("learning_rate", model.learning_rate, above=True)
    size = check_whole("batch_size", model.batch_size)
    generator = check_random_state(model.random_state)
    return _torch().RegressionRecipe(
        min(size, encoded.data.y.size),
        check_whole("max_epochs", model.max_epochs),
        rate,
        int(generator.randint(2**31 - 1)),
    )


def _torch() -> Any:
    # Imported when it is needed: the full batch does without.
    import fferm.torch.regression

    return fferm.torch.regression
