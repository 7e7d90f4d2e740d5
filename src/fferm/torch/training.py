"""The training loop of networks: one or many, on the same batches in the same order.

An epoch is a chunk of steps, as in the solvers of linear models: each network has a
`Monitor`, which keeps its history, calls callbacks and says when to stop.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fferm.data.rows import Rows
from fferm.errors import NonFiniteError
from fferm.penalty.objective import Objective
from fferm.solvers.base import Monitor, Record, Result
from fferm.torch.checkpoints import Checkpoint
from fferm.torch.critic_penalties import CriticPenalty, CriticPlan
from fferm.torch.graphs import Steps, make_steps
from fferm.torch.judging import Judge
from fferm.torch.networks import Networks
from fferm.torch.recipes import WARM_UP, Recipe, make_optimizer, set_rate
from fferm.torch.table_penalties import TablePenalty, make_penalty
from fferm.torch.table_rows import LossRows, PenaltyRows, batch_order, batches_of

# An epoch that lowers the objective by less than this share has gained nothing.
LEAST_GAIN = 1e-4
# Passes for semi-stochastic payoffs in an epoch, where the user did not say.
PASSES = 8


@dataclass(frozen=True)
class Task:
    """What is trained on.

    Attributes
    ----------
    loss_rows, penalty_rows
        Rows on the device; no penalty where there is none.
    objective, fair_rows, classes
        The penalty, its rows as encoded, and the labels.
    weights
        The fairness weight of each network.
    judge
        Measures the objective on rows of their own for early stopping, or None.
    critic
        What critics look at; None where the dual is a table.
    """

    loss_rows: LossRows
    penalty_rows: PenaltyRows | None
    objective: Objective
    fair_rows: Rows | None
    classes: Sequence[object]
    weights: Sequence[float]
    judge: Judge | None = None
    critic: CriticPlan | None = None


@dataclass(frozen=True)
class Trained:
    """A network that was trained, in evaluation mode."""

    module: nn.Module
    result: Result
    history: tuple[Record, ...]
    n_epochs: int


@dataclass
class Progress:
    """Where a run stands; all of it goes into a checkpoint."""

    epoch: int = 0
    n_idle: int = 0
    best: list[float] = field(default_factory=list)
    best_state: dict[str, Tensor] = field(default_factory=dict)
    result: Result | None = None


class Run:
    """One run of one or several networks.

    Parameters
    ----------
    networks
        What is trained; changed in place.
    task
        The data.
    recipe
        How.
    checkpoint
        Where the run is kept, or None.
    """

    def __init__(
        self,
        networks: Networks,
        task: Task,
        recipe: Recipe,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.networks, self.task, self.recipe = networks, task, recipe
        self.checkpoint = checkpoint
        rows = torch.arange(task.loss_rows.X.n_rows)
        self.n_batches = len(batches_of(rows, recipe.batch_size))
        self.n_epochs = recipe.epochs(self.n_batches)
        self.optimizer = make_optimizer(recipe, networks.parameters())
        self.base_rates = [float(g["lr"]) for g in self.optimizer.param_groups]
        self.penalty = self._make_penalty()
        device = recipe.device
        self.lam = torch.tensor(task.weights, dtype=recipe.dtype, device=device)
        self.warmth = torch.zeros((), dtype=recipe.dtype, device=device)
        self.losses = torch.zeros(len(task.weights), device=device).double()
        self.monitors = [Monitor(callbacks=recipe.callbacks) for _ in task.weights]
        self.progress = Progress()

    def train(self) -> list[Trained]:
        """Return the trained networks."""
        with own_randomness(self.recipe), fast_products():
            if self.checkpoint is not None:
                self.checkpoint.restore(self)
            steps = make_steps(self)
            while self.progress.result is None:
                self._run_epoch(steps)
                if self.checkpoint is not None:
                    self.checkpoint.write(self)
        state = self.progress.best_state or self.networks.state()
        return [
            Trained(module, self.progress.result, tuple(m.history), self.progress.epoch)
            for module, m in zip(
                self.networks.modules(state), self.monitors, strict=True
            )
        ]

    def step(self, index: Tensor, penalty_index: Tensor | None) -> None:
        """Take one step on the rows at some positions, without waiting for a GPU."""
        task = self.task
        rows = task.loss_rows
        logits = self.networks(rows.X.take(index))  # (L, b, m)
        loss = _cross_entropy(logits, rows.y[index])  # (L, b)
        if rows.weight is not None:
            loss = loss * rows.weight[index]
        by_network = loss.mean(dim=1)
        total = by_network
        if self.penalty is not None and task.penalty_rows is not None:
            judged = task.penalty_rows
            if penalty_index is not None:
                logits = self.networks(judged.X.take(penalty_index))
            place = index if penalty_index is None else penalty_index
            weight = None if judged.weight is None else judged.weight[place]
            penalty = self.penalty(logits, judged.cell[place], weight)
            total = total + self.warmth * self.lam * penalty.to(total.dtype)
        self.optimizer.zero_grad(set_to_none=False)
        total.sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.losses += len(index) * by_network.detach()

    def prepare(self, step: int) -> None:
        """Set what changes from step to step: rate, warmth and payoffs."""
        n_steps = self.n_epochs * self.n_batches
        set_rate(self.optimizer, self.base_rates, self.recipe.factor(step / n_steps))
        self.warmth.fill_(min(1.0, (step + 1) / (WARM_UP * n_steps)))
        if self.penalty is not None and self.task.penalty_rows is not None:
            self.penalty.refresh(self._look, self.task.penalty_rows, step)

    def batches(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the positions of each batch of the epoch, and those of its penalty."""
        n, size = self.task.loss_rows.X.n_rows, self.recipe.batch_size
        epoch, seed = self.progress.epoch, self.recipe.seed
        index = self._on_device(batch_order(seed, epoch, n))
        rows = self.task.penalty_rows
        if rows is None or rows.X is self.task.loss_rows.X:
            yield from ((part, None) for part in batches_of(index, size))
            return
        # Rows of the penalty's own go round as often as there are batches.
        other = self._on_device(batch_order(seed + 1, epoch, rows.X.n_rows))
        parts = batches_of(other, size)
        for i, part in enumerate(batches_of(index, size)):
            yield part, parts[i % len(parts)]

    def _run_epoch(self, steps: Steps) -> None:
        self.networks.train(True)
        self.losses.zero_()
        begin = self.progress.epoch * self.n_batches
        for i, (index, penalty_index) in enumerate(self.batches()):
            self.prepare(begin + i)
            steps(index, penalty_index)
        self.progress.epoch += 1
        self._record()
        if self.progress.result is None and self.progress.epoch >= self.n_epochs:
            self.progress.result = Result.schedule_completed

    def _record(self) -> None:
        weights = self.task.weights
        losses = (self.losses / self.task.loss_rows.X.n_rows).tolist()
        penalties = [0.0] * len(weights)
        if self.penalty is not None:
            penalties = self.penalty.of_epoch()
        objectives = []
        for weight, loss, penalty in zip(weights, losses, penalties, strict=True):
            objectives.append(loss + weight * penalty)
        _check_finite(objectives)
        self.networks.train(False)
        judged = objectives
        if self.task.judge is not None:
            judged = self.task.judge(self._look, weights)
        rate = float(self.optimizer.param_groups[0]["lr"])
        for i, monitor in enumerate(self.monitors):
            record = {"objective": objectives[i], "loss": losses[i]}
            record |= {"penalty": penalties[i], "fairness_weight": weights[i]}
            record["learning_rate"] = rate
            if self.task.judge is not None:
                record["validation_objective"] = judged[i]
            if monitor.record(**record):
                self.progress.result = monitor.stopped
        if self.recipe.is_stopped_early:
            self._note_gains(judged)

    def _note_gains(self, judged: list[float]) -> None:
        progress = self.progress
        if not progress.best:
            progress.best = list(judged)
            progress.best_state = {n: t.clone() for n, t in self._state().items()}
            return
        has_gained = False
        for lane, (new, old) in enumerate(zip(judged, progress.best, strict=True)):
            has_gained |= old - new > LEAST_GAIN * abs(old)
            if new < old:
                progress.best[lane] = new
                for name, tensor in self._state().items():
                    progress.best_state[name][lane] = tensor[lane]
        progress.n_idle = 0 if has_gained else progress.n_idle + 1
        if progress.n_idle >= self.recipe.patience and progress.result is None:
            progress.result = Result.nothing_gained

    def _state(self) -> dict[str, Tensor]:
        return self.networks.state()

    def _look(self, x: Tensor) -> Tensor:
        """Return logits in evaluation mode, without gradients."""
        self.networks.train(False)
        with torch.no_grad():
            logits = self.networks(x)
        self.networks.train(True)
        return logits

    def _make_penalty(self) -> TablePenalty | None:
        task = self.task
        if task.fair_rows is None:
            return None
        if task.critic is not None:
            critic = CriticPenalty(
                task.critic,
                task.objective,
                task.fair_rows,
                len(task.classes),
                len(task.weights),
                self.recipe.seed,
            )
            return critic.to(self.recipe.device)
        every = self.recipe.refresh_every or max(1, self.n_batches // PASSES)
        made = make_penalty(
            self.recipe.solver,
            task.objective,
            task.fair_rows,
            task.classes,
            len(task.weights),
            every,
        )
        return made.to(self.recipe.device)

    def _on_device(self, order: Any) -> Tensor:
        return torch.from_numpy(order).to(self.recipe.device)


@contextmanager
def own_randomness(recipe: Recipe) -> Iterator[None]:
    """Give a run random numbers of its own, and leave the user's as they were."""
    devices = [recipe.device] if recipe.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(recipe.seed)
        yield


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU round the factors of float32 products to 10 bits (TF32), for speed."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    n_models, n_rows, _ = logits.shape
    repeated = y.expand(n_models, n_rows).reshape(-1)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), repeated, reduction="none")
    return loss.view(n_models, n_rows)


def _check_finite(objectives: list[float]) -> None:
    if not all(map(math.isfinite, objectives)):
        raise NonFiniteError(
            "The objective is not a finite number. Lower learning_rate, scale the "
            "features, or lower fairness_weight or sharpness."
        )
