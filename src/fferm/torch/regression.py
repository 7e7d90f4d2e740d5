"""Fair regression on minibatches: a linear model or a network, bins or a critic."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from fferm._typing import FloatArray, Table, is_sparse
from fferm.data.rows import Rows
from fferm.penalty.objective import Problem
from fferm.solvers.lbfgs import ROWS_PER_BLOCK, WIDEST_GRAM
from fferm.torch import networks, serialize
from fferm.torch.critic import Standardised
from fferm.torch.losses import TORCH
from fferm.torch.networks import DeviceRows, Features
from fferm.torch.training import (
    Batch,
    BatchObjective,
    Run,
    Seen,
    Trained,
    TrainingConfig,
)

# Share of the steps, at their end, over which parameters are averaged.
AVERAGED = 0.5
# Members of a group that the dual averages over. More than for classes: there are more
# cells, each with fewer members, and training begins near its end, at the plain model.
WINDOW = 2000.0
# Directions in which features hardly vary count as if they varied by this share.
RIDGE = 1e-6


class RegressionNet(Standardised):
    """A network on features that it standardises first.

    Parameters
    ----------
    centre, scale
        (n_features,).
    hidden
        Width of each hidden layer; none is a linear model.
    has_intercept
        Whether the last layer has one.
    turn
        (n_features, n_features) of a linear model: features have unit variance and no
        correlation once they are multiplied by its transpose. A step then moves
        predictions as far, whether features are collinear or not.
    """

    draws = False  # no random numbers while it trains

    def __init__(
        self,
        centre: Tensor,
        scale: Tensor,
        hidden: Sequence[int],
        has_intercept: bool = True,
        turn: Tensor | None = None,
    ) -> None:
        widths = [centre.numel(), *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        last = nn.Linear(widths[-1], 1, bias=has_intercept)
        super().__init__(centre, scale, *layers, last)
        self.register_buffer("turn", turn)
        for parameter in last.parameters():
            nn.init.zeros_(parameter)

    turn: Tensor | None

    @property
    def last(self) -> Any:
        """The last layer."""
        return self.layers[-1]

    @property
    def slopes(self) -> Tensor:
        """(1, n_features) coefficients of a linear model, of standardised features."""
        weight: Tensor = self.last.weight
        return weight if self.turn is None else weight @ self.turn

    def forward(self, X: Tensor) -> Tensor:
        """Return (n,) predictions."""
        if self.turn is None:
            return super().forward(X)[:, 0]
        standard = (X.double() - self.centre) / self.scale
        return nn.functional.linear(standard, self.slopes, self.last.bias)[:, 0]

    def set_linear(self, theta: FloatArray) -> None:
        """Take the parameters of a linear model, (n_features + 1,)."""
        raw = torch.from_numpy(theta)
        slopes = (raw[:-1] * self.scale)[None, :]
        with torch.no_grad():
            if self.turn is not None:
                slopes = torch.linalg.solve(self.turn.T, slopes.T).T
            self.last.weight.copy_(slopes)
            if self.last.bias is not None:
                self.last.bias.copy_(raw[-1] + raw[:-1] @ self.centre)

    def linear(self) -> FloatArray:
        """Return the parameters of a linear model, (n_features + 1,)."""
        coef = self.slopes.detach()[0] / self.scale
        intercept = -coef @ self.centre
        if self.last.bias is not None:
            intercept = intercept + self.last.bias.detach()[0]
        return torch.cat([coef, intercept[None]]).numpy()


def make_module(
    X: Table, share: FloatArray, hidden: Sequence[int], seed: int, has_intercept: bool
) -> RegressionNet:
    """Return a new network for features like these, whose rows have these shares.

    Without an intercept features are scaled about 0, because a centre would be one.
    A linear model is turned so that its features are not correlated.
    """
    scaler = StandardScaler(with_mean=not is_sparse(X)).fit(X, sample_weight=share)
    centre = scaler.mean_ if has_intercept else np.zeros_like(scaler.mean_)
    with networks.seeded(seed):
        parts = torch.from_numpy(centre), torch.from_numpy(scaler.scale_)
        turn = None if hidden else _uncorrelate(X, share, centre, scaler.scale_)
        return RegressionNet(*parts, hidden, has_intercept, turn)


def _uncorrelate(
    X: Table, share: FloatArray, centre: FloatArray, scale: FloatArray
) -> Tensor | None:
    n_columns = scale.size
    if n_columns > WIDEST_GRAM:
        return None
    gram = np.eye(n_columns) * RIDGE
    for begin in range(0, X.shape[0], ROWS_PER_BLOCK):
        block = X[begin : begin + ROWS_PER_BLOCK]
        dense = block.toarray() if is_sparse(block) else block
        standard = (dense - centre) / scale
        weight = share[begin : begin + ROWS_PER_BLOCK, None]
        gram += standard.T @ (weight * standard)
    factor = scipy.linalg.cholesky(gram, lower=True)
    inverse = scipy.linalg.solve_triangular(factor, np.eye(n_columns), lower=True)
    return torch.from_numpy(inverse)


def restore(packed: bytes, n_features: int) -> nn.Module:
    """Return the network of a file; its layers are as wide as its parameters say."""
    state = serialize.unpack(packed)
    with torch.device("meta"):
        unit, hidden = torch.empty(n_features), serialize.widths(state)
        module = RegressionNet(unit, unit, hidden)
    return serialize.load(state, module)


def predict(module: nn.Module, X: Table) -> FloatArray:
    """Return the (n_samples,) predictions of a module."""
    return networks.predict(module, X, nn.Identity())


def make_config(learning_rate: float, **options: Any) -> TrainingConfig:
    """Return how a regressor is trained: by Adam, averaged over the last steps."""
    return TrainingConfig(
        learning_rate=learning_rate,
        optimizer=functools.partial(torch.optim.Adam, lr=learning_rate),
        schedule=lambda done: 0.51 + 0.49 * math.cos(math.pi * done),
        averaged=AVERAGED,
        **options,
    )


class NumberObjective(BatchObjective):
    """The loss of residuals, a ridge, and the weighted penalty of one model.

    Parameters
    ----------
    problem, config
        The data and what is minimised, batch size and seed.
    rows, critic
        Of the penalty, as in `BatchObjective`.
    """

    window = WINDOW

    def __init__(
        self,
        problem: Problem,
        config: TrainingConfig,
        rows: Rows | None,
        critic: Seen | None,
    ) -> None:
        n, features = problem.y.size, Features(problem.X, config)
        trained = DeviceRows(features, problem.y, problem.share)
        weights = [problem.objective.fairness_weight]
        super().__init__(trained, weights, config, problem, rows, critic)
        self.problem = problem
        self.n_batches = max(n // config.batch_size, 1)
        others: Iterator[Tensor | None] = itertools.repeat(None)
        judged = self.penalty_rows
        if judged is not None and judged.X is not features:
            others = _rounds(judged.X.n_rows, config.batch_size, config.seed + 1)
        first = _rounds(n, config.batch_size, config.seed)
        self._rounds = zip(first, others, strict=False)

    def prepare(self, call: Any, step: int, n_steps: int) -> None:
        """Do nothing: the penalty begins at once, and its dual moves by itself."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the (1, b) costs of residuals."""
        cost: Tensor = self.problem.loss_of.value(target - output, TORCH)
        return cost

    def ridge(self, nets: Any) -> Tensor | float:
        """Return the ridge on coefficients that meet raw features."""
        l2, module = self.problem.objective.l2, nets.module
        if l2 == 0:
            return 0.0
        if module.turn is not None:
            squares = [(module.slopes / module.scale).square().sum()]
        else:
            squares = [
                (layer.weight / (module.scale if k == 0 else 1.0)).square().sum()
                for k, layer in enumerate(module.layers)
                if isinstance(layer, nn.Linear)
            ]
        return l2 / 2 * torch.stack(squares).sum()

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Return the positions of each batch, and of its penalty if they differ."""
        return itertools.islice(self._rounds, self.n_batches)

    def records(self) -> list[dict[str, float]]:
        """Return the mean objective of the epoch's batches."""
        return [{"objective": float(self.totals) / self.n_batches}]


def train(
    module: nn.Module,
    problem: Problem,
    rows: Rows | None,
    config: TrainingConfig,
    critic: Seen | None = None,
) -> Trained:
    """Return a module trained by Adam, averaged over the last half of its steps."""
    objective = NumberObjective(problem, config, rows, critic)
    (trained,) = Run(networks.Network(module, nn.Identity()), objective, config).train()
    return trained


def _rounds(n: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of rows, round after round."""
    generator = torch.Generator().manual_seed(seed)
    n_batches = max(n // batch_size, 1)
    while True:
        order = torch.randperm(n, generator=generator)
        yield from torch.tensor_split(order, n_batches)
