"""Fair regression on minibatches: a linear model or a network, bins or a critic."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fferm._typing import FloatArray, Table, is_sparse
from fferm.data.rows import Rows
from fferm.errors import FfermWarning, NonFiniteError
from fferm.regression import RegressionProblem
from fferm.solvers.base import Monitor, Result
from fferm.torch import states
from fferm.torch.critic import CriticFairnessLoss
from fferm.torch.critic_penalties import strata_as_control
from fferm.torch.losses import TORCH, DualSteps, FairnessLoss

# Share of the steps, at their end, over which parameters are averaged.
AVERAGED = 0.5
ROWS_PER_BLOCK = 65_536
# Members of a group that the dual averages over. More than for classes: there are more
# cells, each with fewer members, and training begins near its end, at the plain model.
WINDOW = 2000.0


@dataclass(frozen=True)
class RegressionRecipe:
    """How a regressor is trained on minibatches."""

    batch_size: int
    n_epochs: int
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class TrainedRegressor:
    """A trained module and how it came about."""

    module: nn.Module
    history: tuple[dict[str, float], ...]
    result: Result


class Standardised(nn.Module):
    """A network on features that it standardises first.

    Parameters
    ----------
    centre, scale
        (n_features,).
    hidden
        Width of each hidden layer; none is a linear model.
    has_intercept
        Whether the last layer has one.
    """

    def __init__(
        self,
        centre: Tensor,
        scale: Tensor,
        hidden: Sequence[int],
        has_intercept: bool = True,
    ) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        layers: list[nn.Module] = []
        width = centre.numel()
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        last = nn.Linear(width, 1, bias=has_intercept)
        self.layers = nn.Sequential(*layers, last).double()
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    centre: Tensor
    scale: Tensor

    @property
    def last(self) -> nn.Linear:
        """The last layer."""
        layer = self.layers[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, X: Tensor) -> Tensor:
        """Return (n,) predictions."""
        found: Tensor = self.layers((X - self.centre) / self.scale)
        return found[:, 0]

    def set_linear(self, theta: FloatArray) -> None:
        """Take the parameters of a linear model, (n_features + 1,)."""
        raw = torch.from_numpy(theta)
        with torch.no_grad():
            self.last.weight.copy_((raw[:-1] * self.scale)[None, :])
            if self.last.bias is not None:
                self.last.bias.copy_(raw[-1] + raw[:-1] @ self.centre)

    def linear(self) -> FloatArray:
        """Return the parameters of a linear model, (n_features + 1,)."""
        coef = self.last.weight.detach()[0] / self.scale
        intercept = -coef @ self.centre
        if self.last.bias is not None:
            intercept = intercept + self.last.bias.detach()[0]
        return torch.cat([coef, intercept[None]]).numpy()


def make_module(
    X: Table,
    share: FloatArray,
    hidden: Sequence[int],
    seed: int,
    has_intercept: bool = True,
) -> Standardised:
    """Return a new network for features like these, with shares of rows given.

    Without an intercept features are scaled about 0, for a centre would be one.
    """
    mean = np.asarray(X.T @ share).reshape(-1)
    squares = np.asarray((X.multiply(X) if is_sparse(X) else X * X).T @ share)
    variance = squares.reshape(-1) - mean**2
    deviation = np.sqrt(np.maximum(variance, 0))
    scale = np.where(deviation > 1e-9 * np.maximum(np.abs(mean), 1e-9), deviation, 1.0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        centre = mean if has_intercept else np.zeros_like(mean)
        parts = torch.from_numpy(centre), torch.from_numpy(scale)
        return Standardised(*parts, hidden, has_intercept)


def restore(packed: bytes) -> nn.Module:
    """Return the network of a file; its layers are as wide as its parameters say."""
    state = states.unpack(packed)
    # The order of layers is that of their numbers.
    keys = sorted(
        (key for key in state if key.endswith("weight")),
        key=lambda key: int(key.split(".")[1]),
    )
    hidden = [state[key].shape[0] for key in keys[:-1]]
    return states.load(state, Standardised(state["centre"], state["scale"], hidden))


def predict(module: nn.Module, X: Table) -> FloatArray:
    """Return the (n_samples,) predictions of a module."""
    parts = []
    with torch.no_grad():
        for begin in range(0, X.shape[0], ROWS_PER_BLOCK):
            parts.append(module(_tensor(X[begin : begin + ROWS_PER_BLOCK])).numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


Fairness = Callable[[Tensor, Tensor], Tensor]


def binned_fairness(problem: RegressionProblem, rows: Rows) -> Fairness:
    """Return the penalty of a batch in soft bins, of predictions and row numbers."""
    code = np.stack([a.code for a in rows.attributes], axis=1)
    notion, control = strata_as_control(rows, problem.objective.notion)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)  # said when rows were encoded
        loss = FairnessLoss.from_labels(
            None,
            code,
            divergence=problem.objective.divergence,
            notion=notion,
            sharpness=problem.objective.sharpness,
            groups="marginal",
            sample_weight=rows.weight,
            outputs="numbers",
            bins=problem.bins,
            dual_steps=DualSteps(window=WINDOW),
        )
    group, weight = loss.encode(code), torch.tensor(rows.weight)

    def penalty(u: Tensor, batch: Tensor) -> Tensor:
        value: Tensor = loss(
            u, group[batch], control=_of(control, batch), sample_weight=weight[batch]
        )
        return value

    return penalty


def critic_fairness(
    problem: RegressionProblem,
    rows: Rows,
    sensitive: dict[str, Table],
    continuous: Sequence[str] | str,
    seed: int,
) -> Fairness:
    """Return the penalty of a batch by a critic, of predictions and row numbers."""
    notion, control = strata_as_control(rows, problem.objective.notion)
    loss = CriticFairnessLoss.from_labels(
        problem.target,
        sensitive,
        divergence=problem.objective.divergence,
        notion=notion,
        sample_weight=rows.weight,
        outputs="numbers",
        continuous=continuous,
        n_ascents=2,
        random_state=seed,
    )
    values, weight = loss.encode(sensitive), torch.tensor(rows.weight)

    def penalty(u: Tensor, batch: Tensor) -> Tensor:
        value: Tensor = loss(
            u, values[batch], control=_of(control, batch), sample_weight=weight[batch]
        )
        return value

    return penalty


class _Average:
    """The mean of a module's parameters over the last steps."""

    def __init__(self, module: nn.Module, begin: int) -> None:
        self.module, self.begin, self.n_seen = module, begin, 0
        self.mean = [p.detach().clone() for p in module.parameters()]

    @torch.no_grad()
    def observe(self, step: int) -> None:
        """Take part in the mean from the first step that counts."""
        if step < self.begin:
            return
        self.n_seen += 1
        for mean, p in zip(self.mean, self.module.parameters(), strict=True):
            mean += (p - mean) / self.n_seen

    @torch.no_grad()
    def take(self) -> None:
        """Give the module its mean."""
        if self.n_seen:
            for mean, p in zip(self.mean, self.module.parameters(), strict=True):
                p.copy_(mean)


def train(
    module: nn.Module,
    problem: RegressionProblem,
    fairness: Fairness | None,
    recipe: RegressionRecipe,
    monitor: Monitor,
) -> TrainedRegressor:
    """Return a module trained by Adam, averaged over the last half of its steps."""
    n = problem.target.size
    optimizer = torch.optim.Adam(module.parameters(), lr=recipe.learning_rate)
    n_batches = max(n // recipe.batch_size, 1)
    total = n_batches * recipe.n_epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: 0.51 + 0.49 * math.cos(math.pi * t / total)
    )
    average = _Average(module, round(total * (1 - AVERAGED)))
    objective_of = _batch_objective(module, problem, fairness, recipe)
    generator = torch.Generator().manual_seed(recipe.seed)
    step = 0
    for _ in range(recipe.n_epochs):
        order, objective = torch.randperm(n, generator=generator), 0.0
        for batch in torch.tensor_split(order, n_batches):
            loss = objective_of(batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            average.observe(step)
            step, objective = step + 1, objective + loss.item() / n_batches
        if not math.isfinite(objective):
            raise NonFiniteError(Result.nonfinite.value)
        if monitor.record(objective=objective):
            break
    average.take()
    result = monitor.stopped or Result.schedule_completed
    return TrainedRegressor(module.eval(), tuple(monitor.history), result)


def _batch_objective(
    module: nn.Module,
    problem: RegressionProblem,
    fairness: Fairness | None,
    recipe: RegressionRecipe,
) -> Callable[[Tensor], Tensor]:
    own = problem.penalty_X
    others = None if own is None else _rounds(own.shape[0], recipe)
    target = torch.tensor(problem.target)
    weight = torch.from_numpy(problem.share * problem.target.size)
    lam, l2 = problem.objective.fairness_weight, problem.objective.l2

    def objective(batch: Tensor) -> Tensor:
        u = module(_tensor(problem.X[batch.numpy()]))
        cost = problem.loss_of.value(target[batch] - u, TORCH)
        loss: Tensor = (weight[batch] * cost).mean()
        if l2 > 0:
            loss = loss + l2 / 2 * _squares(module)
        if fairness is not None and lam > 0:
            if others is not None and own is not None:
                batch = next(others)
                u = module(_tensor(own[batch.numpy()]))
            loss = loss + lam * fairness(u, batch)
        return loss

    return objective


def _rounds(n: int, recipe: RegressionRecipe) -> Iterator[Tensor]:
    """Yield batches of the rows that the penalty is taken on, round after round."""
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    n_batches = max(n // recipe.batch_size, 1)
    while True:
        order = torch.randperm(n, generator=generator)
        yield from torch.tensor_split(order, n_batches)


def _squares(module: nn.Module) -> Tensor:
    # Of the coefficients that meet raw features: those of a linear model exactly.
    assert isinstance(module, Standardised)
    return sum(
        (
            (layer.weight / (module.scale if k == 0 else 1.0)).square().sum()
            for k, layer in enumerate(module.layers)
            if isinstance(layer, nn.Linear)
        ),
        torch.zeros((), dtype=torch.float64),
    )


def _of(control: Tensor | None, batch: Tensor) -> Tensor | None:
    return None if control is None else control[batch]


def _tensor(X: Table) -> Tensor:
    dense = X.toarray() if is_sparse(X) else X
    return torch.from_numpy(np.array(dense, dtype=np.float64, order="C"))
