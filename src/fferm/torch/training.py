"""The one training loop of torch: networks on minibatches, with a pluggable objective.

One network or many train on the same batches in the same order. An epoch is a chunk of
steps, as in the solvers of linear models: each network has a `Monitor`, which keeps its
history, calls callbacks and says when to stop.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fferm._typing import Table
from fferm.data.rows import Rows
from fferm.errors import InvalidParameterError, InvalidTypeError, NonFiniteError
from fferm.penalty.objective import Penalty, Problem
from fferm.solvers.base import Callback, EarlyStopping, Monitor, Record, Result
from fferm.torch import losses
from fferm.torch.critic import CriticPenalty
from fferm.torch.losses import Call
from fferm.torch.networks import DeviceRows, Features, Network, seeded
from fferm.torch.reader import CellReader, table_cells

# An epoch of few batches has few steps: go on until there are this many.
LEAST_STEPS = 400
# Steps before a capture of a CUDA graph, as PyTorch asks for.
REHEARSALS = 3
# Passes over the data where the user did not say how many.
EPOCHS = 10
# The default learning rate at batches of so many rows. Adam divides by the root of the
# mean square, mostly noise, which falls with the root of the batch size: with a rate
# that goes with that root, an epoch moves a network as far at any batch size.
BASE_RATE, BASE_SIZE = 1e-3, 256
# The penalty comes in over this share of the run: the dual has to find the model first.
WARM_UP = 0.02
# An epoch that lowers the objective by less than this share does not count.
MIN_GAIN = 1e-4

if TYPE_CHECKING:
    from fferm.torch.serialize import Checkpoint

MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]
Schedule = Callable[[float], float]
Batch = tuple[Tensor, Tensor | None]
# Sensitive values by column, and which columns are numbers.
Seen = tuple[Mapping[str, Table], Sequence[str] | str]
CPU = torch.device("cpu")

DTYPES = {"float32": torch.float32, "float64": torch.float64}
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
# Factor of the learning rate by the share of the run that is over.
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "linear": lambda done: 1 - done,
}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How networks are trained.

    Attributes
    ----------
    batch_size, n_epochs
        Rows a step; passes, None for `EPOCHS` and at least `LEAST_STEPS` steps.
    learning_rate, weight_decay, optimizer, schedule
        Of the optimizer; a function of (parameters) makes one of its own.
    patience
        Stop after so many epochs without improvement; None never stops early.
    averaged
        Share of the steps, at their end, over which parameters are averaged.
    device, dtype
        Where, and how precisely.
    seed
        Of parameters and the order of rows.
    callbacks
        Called after each epoch with its record; True stops.
    """

    batch_size: int
    n_epochs: int | None
    learning_rate: float
    weight_decay: float = 0.0
    optimizer: str | MakeOptimizer = "adamw"
    schedule: str | Schedule = "cosine"
    patience: int | None = None
    averaged: float = 0.0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float64
    seed: int
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        takes = "the parameters", "the share of the run that is over"
        known = {"optimizer": [*OPTIMIZERS], "schedule": [*SCHEDULES]}
        for (name, options), argument in zip(known.items(), takes, strict=True):
            value = getattr(self, name)
            if not (callable(value) or value in options):
                raise InvalidParameterError(
                    f"{name} must be {', '.join(map(repr, options))}, or a function of "
                    f"{argument}; got {value!r}."
                )

    def make_optimizer(self, parameters: list[Tensor]) -> Optimizer:
        """Return the optimizer of some parameters.

        Named ones run fused; on a GPU their learning rate is a tensor, so that a
        captured step follows the schedule.
        """
        if callable(self.optimizer):
            made = self.optimizer(parameters)
            if isinstance(made, Optimizer):
                return made
            raise InvalidTypeError(
                "optimizer(parameters) must return a torch.optim.Optimizer; it "
                f"returned a {type(made).__name__}."
            )
        options: dict[str, Any] = {"weight_decay": self.weight_decay, "fused": True}
        options["lr"] = self.learning_rate
        if self.optimizer == "sgd":
            options["momentum"] = 0.9
        elif self.device.type == "cuda":
            options["lr"] = torch.tensor(self.learning_rate, device=self.device)
            options["capturable"] = True
        return OPTIMIZERS[self.optimizer](parameters, **options)


def find_device(device: Any) -> torch.device:
    """Return the device that is meant, after checking that it exists."""
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise InvalidParameterError(
            "device must be 'auto', 'cpu' or 'cuda', because the dual needs double "
            f"precision; got {device!r}."
        )
    n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if chosen.type == "cuda" and (chosen.index or 0) >= n_devices:
        raise InvalidParameterError(
            f"device={device!r} needs a GPU, and PyTorch finds {n_devices} CUDA "
            "devices. Use device='auto' or 'cpu', or install a build for your GPU."
        )
    return chosen


# The rate of a network falls to 0, so its dual may average over more members than in a
# loop that keeps its pace; with 30, weight 100 ended 0.7 % higher on Adult.
WINDOW = 100.0


class BatchObjective:
    """What networks are trained on: rows, how they are batched, and the objective.

    Cross-entropy plus the weighted penalty, for one network or several; a subclass may
    have another loss.

    Parameters
    ----------
    rows
        The training rows on the device.
    weights
        The fairness weight of each network.
    config
        Batch size, seed and precision.
    problem, penalized
        What is minimised, and the rows of the penalty; None where there is none.
    critic
        What critics look at; None where the dual is a table.
    every
        Steps between two passes of a semi-stochastic penalty; 0: duals ascend.
    held_out
        Rows that networks are not trained on and the penalty on them, for early
        stopping; or None.
    """

    def __init__(
        self,
        rows: DeviceRows,
        weights: Sequence[float],
        config: TrainingConfig,
        problem: Problem,
        penalized: Rows | None = None,
        critic: Seen | None = None,
        *,
        every: int = 0,
        held_out: tuple[DeviceRows, Penalty | None] | None = None,
    ) -> None:
        self.rows, self.held_out = rows, held_out
        self.n_batches = count_batches(rows.X.n_rows, config.batch_size)
        self.weights, self.config = weights, config
        self.penalty: losses.BatchPenalty | None = None
        self.penalty_rows: DeviceRows | None = None
        if penalized is not None:
            self._penalize(problem, penalized, critic, every)
        self.lam = torch.tensor(weights, dtype=config.dtype, device=config.device)
        self.warmth = torch.ones_like(self.lam[0])
        # Sums over the batches of an epoch.
        self.losses = torch.zeros_like(self.lam, dtype=torch.float64)
        self.totals = torch.zeros_like(self.losses)

    window = WINDOW

    def _penalize(
        self, problem: Problem, rows: Rows, critic: Seen | None, every: int
    ) -> None:
        assert problem.penalty is not None
        objective, bins, X = problem.objective, problem.bins, self.rows.X
        config, many, cells = self.config, len(self.weights), table_cells(rows)
        classes = problem.penalty.classes if bins is None else range(bins.n_bins)
        reader = CellReader(rows, classes, objective.sharpness, bins)
        n_classes = problem.n_classes if bins is None else 0
        penalty: losses.BatchPenalty
        if critic is not None:
            cells = np.arange(len(cells))[:, None]
            parts = *critic, objective, rows, many, config.seed
            target = None if bins is None else problem.y
            penalty = CriticPenalty(*parts, n_classes=n_classes, target=target)
            if config.batch_size < 2 and not penalty.is_discrete:
                raise InvalidParameterError(
                    "batch_size must be at least 2 with critics of numbers; got 1."
                )
        elif every:
            penalty = losses.SemiStochasticFairnessLoss(reader, objective, many, every)
        else:
            steps = losses.DualSteps(window=self.window)
            dual = losses.Dual(objective, rows, len(classes), steps, many)
            penalty = losses.FairnessLoss(reader, dual, objective)
        if problem.penalty_X is not None:
            X = Features(problem.penalty_X, config)
        self.penalty = penalty.to(config.device)
        self.penalty_rows = DeviceRows(X, cells, rows.weight)

    def __call__(self, networks: Network, batch: Batch) -> Tensor:
        """Return the (n_models,) objectives of a batch, without waiting for a GPU."""
        index, penalty_index = batch
        rows, judged = self.rows, self.penalty_rows
        output = networks(rows.X.take(index))  # (L, b, m), or (L, b) for numbers
        loss = self.loss(output, rows.target[index])
        if rows.weight is not None:
            loss = loss * rows.weight[index].to(loss.dtype)
        means = loss.mean(dim=1)
        self.losses += len(index) * means.detach()
        total = means + self.ridge(networks)
        if self.penalty is not None and judged is not None:
            if penalty_index is not None:
                index, output = penalty_index, networks(judged.X.take(penalty_index))
            weight = None if judged.weight is None else judged.weight[index]
            cell = judged.target[index]
            penalty = self.penalty(output, cell, sample_weight=weight)
            total = total + self.warmth * self.lam * penalty.to(total.dtype)
        self.totals += total.detach()
        return total

    def ridge(self, networks: Network) -> Tensor | float:
        """Return what is added for the size of parameters."""
        return 0.0

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the (n_models, b) cross-entropies of a batch."""
        n_models, n_rows, _ = output.shape
        repeated = target.expand(n_models, n_rows).reshape(-1)
        logits = output.flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, repeated, reduction="none")
        return loss.view(n_models, n_rows)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Return the positions of each batch, and of its penalty if they differ."""
        size, seed = self.config.batch_size, self.config.seed
        # A function of seed and epoch alone, so that a resumed run goes on the same.
        rows, other = self.rows, self.penalty_rows
        order = np.random.default_rng([seed, epoch]).permutation(rows.X.n_rows)
        parts = batches_of(torch.from_numpy(order).to(rows.X.device), size)
        if other is None or other.X is rows.X:
            return ((part, None) for part in parts)
        # Rows of the penalty's own go round as often as there are batches.
        order = np.random.default_rng([seed + 1, epoch]).permutation(other.X.n_rows)
        others = batches_of(torch.from_numpy(order).to(rows.X.device), size)
        return zip(parts, itertools.cycle(others), strict=False)

    def prepare(self, call: Call, step: int, n_steps: int) -> None:
        """Set what changes from step to step: warmth and payoffs."""
        self.warmth.fill_(min(1.0, (step + 1) / (WARM_UP * n_steps)))
        if self.penalty is not None and self.penalty_rows is not None:
            self.penalty.begin_step(call, self.penalty_rows, step)

    def records(self) -> list[dict[str, float]]:
        """Return objective, loss and penalty of each network's epoch."""
        losses = (self.losses / self.rows.X.n_rows).tolist()
        penalties = [0.0] * len(losses)
        if self.penalty is not None:
            penalties = self.penalty.of_epoch()
        records = []
        for weight, loss, penalty in zip(self.weights, losses, penalties, strict=True):
            record = {"objective": loss + weight * penalty, "loss": loss}
            records.append({**record, "penalty": penalty, "fairness_weight": weight})
        return records

    @torch.no_grad()
    def validate(self, call: Call) -> list[float] | None:
        """Return the objective of each network on held-out rows, None without any."""
        if self.held_out is None:
            return None
        rows, penalty = self.held_out
        logits = torch.cat([call(x) for x in rows.X.blocks()], dim=1).double()
        losses = self.loss(logits, rows.target)
        if rows.weight is not None:
            losses = losses * rows.weight
        values: list[float] = losses.mean(dim=1).tolist()
        for lane, weight in enumerate(self.weights):
            if penalty is not None and weight > 0:
                sharp = penalty.objective.sharpness * logits[lane]
                prob = torch.softmax(sharp, dim=1).cpu().numpy()
                values[lane] += weight * penalty.on_tables(penalty.tables(prob))[0]
        return values


@dataclass(frozen=True)
class Trained:
    """A network that was trained, in evaluation mode."""

    module: nn.Module
    result: Result
    history: tuple[Record, ...]


class Run:
    """One run of one or several networks.

    Parameters
    ----------
    networks
        What is trained; changed in place.
    objective
        The data, and what is minimised on them.
    config
        How.
    checkpoint
        Where the run is kept, or None.
    """

    def __init__(
        self,
        networks: Network,
        objective: BatchObjective,
        config: TrainingConfig,
        checkpoint: "Checkpoint | None" = None,
    ) -> None:
        self.networks, self.objective, self.config = networks, objective, config
        self.checkpoint = checkpoint
        least = math.ceil(LEAST_STEPS / objective.n_batches)
        self.n_epochs = config.n_epochs or max(EPOCHS, least)
        self.n_steps = self.n_epochs * objective.n_batches
        self.optimizer = config.make_optimizer(networks.parameters())
        self.base_rates = [float(g["lr"]) for g in self.optimizer.param_groups]
        self.monitors = [Monitor(callbacks=config.callbacks) for _ in objective.weights]
        self.stopping = EarlyStopping(config.patience, MIN_GAIN)
        self.best_state: dict[str, Tensor] = {}
        self.mean: list[Tensor] = []
        if config.averaged:
            self.mean = [p.detach().clone() for p in networks.parameters()]
        self.n_averaged = 0
        self.epoch = 0
        self.result: Result | None = None

    def train(self) -> list[Trained]:
        """Return the trained networks."""
        config, draws = self.config, getattr(self.networks.module, "draws", True)
        with ExitStack() as turn:
            if draws or self.checkpoint is not None or config.device.type != "cpu":
                turn.enter_context(seeded(config.seed, config.device))
                turn.enter_context(fast_products())
            if self.checkpoint is not None:
                self.checkpoint.restore(self)
            steps = self._steps()
            while self.result is None:
                self._run_epoch(steps)
                if self.checkpoint is not None:
                    self.checkpoint.write(self)
        if self.n_averaged:
            with torch.no_grad():
                for mean, p in zip(self.mean, self.networks.parameters(), strict=True):
                    p.copy_(mean)
        modules = self.networks.modules(self.best_state or self.networks.state())
        return [
            Trained(module, self.result, tuple(monitor.history))
            for module, monitor in zip(modules, self.monitors, strict=True)
        ]

    def step(self, index: Tensor, penalty_index: Tensor | None) -> None:
        """Take one step on the rows at some positions, without waiting for a GPU."""
        total = self.objective(self.networks, (index, penalty_index))
        self.optimizer.zero_grad(set_to_none=False)
        total.sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def prepare(self, step: int) -> None:
        """Set what changes from step to step: the rate, and parts of the objective."""
        schedule = self.config.schedule
        schedule = schedule if callable(schedule) else SCHEDULES[schedule]
        factor = float(schedule(step / self.n_steps))
        groups = self.optimizer.param_groups
        for group, rate in zip(groups, self.base_rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor
        self.objective.prepare(self.predict, step, self.n_steps)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return outputs in evaluation mode."""
        self.networks.module.train(False)
        output = self.networks(x)
        self.networks.module.train(True)
        return output

    def _steps(self) -> Callable[[Tensor, Tensor | None], None]:
        # What takes a step: on a GPU one CUDA graph, if it can be captured.
        config, objective = self.config, self.objective
        rows = [r for r in (objective.rows, objective.penalty_rows) if r is not None]
        is_dense = not any(part.X.is_sparse for part in rows)
        # The ascent of a critic looks at its own gradient.
        is_table = not isinstance(objective.penalty, CriticPenalty)
        is_named = config.optimizer in ("adam", "adamw")
        if not (config.device.type == "cuda" and is_named and is_dense and is_table):
            return self.step
        return CapturedSteps(self)

    def _run_epoch(self, steps: Callable[[Tensor, Tensor | None], None]) -> None:
        parameters = self.networks.parameters()
        self.networks.module.train(True)
        self.objective.losses.zero_()
        self.objective.totals.zero_()
        begin = self.epoch * self.objective.n_batches
        for step, batch in enumerate(self.objective.batches(self.epoch), begin):
            self.prepare(step)
            steps(*batch)
            if step >= round(self.n_steps * (1 - self.config.averaged)):
                self.n_averaged += 1
                with torch.no_grad():
                    for mean, p in zip(self.mean, parameters, strict=True):
                        mean += (p - mean) / self.n_averaged
        self.epoch += 1
        self._record()
        if self.result is None and self.epoch >= self.n_epochs:
            self.result = Result.schedule_completed

    def _record(self) -> None:
        records = self.objective.records()
        objectives = [record["objective"] for record in records]
        if not all(map(math.isfinite, objectives)):
            raise NonFiniteError(
                "The objective is not a finite number. Lower learning_rate, scale the "
                "features, or lower fairness_weight or sharpness."
            )
        self.networks.module.train(False)
        judged = self.objective.validate(self.predict)
        rate = float(self.optimizer.param_groups[0]["lr"])
        for lane, record in enumerate(records):
            record["learning_rate"] = rate
            if judged is not None:
                record["validation_objective"] = judged[lane]
            if self.monitors[lane].record(**record):
                self.result = self.monitors[lane].stopped
        if self.config.patience is not None:
            self._keep_best(objectives if judged is None else judged)

    def _keep_best(self, values: list[float]) -> None:
        is_lower, state = self.stopping.update(values), self.networks.state()
        if not self.best_state:
            self.best_state = {name: t.clone() for name, t in state.items()}
        for lane in np.flatnonzero(is_lower):
            for name, tensor in state.items():
                self.best_state[name][lane] = tensor[lane]
        if self.stopping.is_over and self.result is None:
            self.result = Result.nothing_gained


@contextmanager
def fast_products() -> Iterator[None]:
    """Let a GPU round the factors of float32 products to 10 bits (TF32), for speed."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def batches_of(order: Tensor, size: int) -> tuple[Tensor, ...]:
    """Return batches of ``size`` rows, the last with what is left.

    A row that would be left alone joins the batch before it: a batch norm, which
    compares the rows of a batch, has nothing to do with one.
    """
    batches: tuple[Tensor, ...] = torch.split(order, size)
    if len(batches) > count_batches(len(order), size):
        return *batches[:-2], torch.cat(batches[-2:])
    return batches


def count_batches(n_rows: int, size: int) -> int:
    """Return the number of batches of `batches_of`."""
    count = math.ceil(n_rows / size)
    return count - 1 if size > 1 and count > 1 and n_rows % size == 1 else count


class CapturedSteps:
    """A step on batches of full size as a CUDA graph; other sizes run as they are.

    Parameters
    ----------
    run
        The run whose step is captured; it is left as it was.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.graph: torch.cuda.CUDAGraph | None = None
        self.index = torch.zeros(0, dtype=torch.int64)
        self.penalty_index: Tensor | None = None

    def __call__(self, index: Tensor, penalty_index: Tensor | None) -> None:
        """Take a step."""
        if len(index) != self.run.config.batch_size:
            self.run.step(index, penalty_index)
            return
        if self.graph is None:
            self._capture(index, penalty_index)
        self.index.copy_(index)
        if penalty_index is not None and self.penalty_index is not None:
            if len(penalty_index) != len(self.penalty_index):
                self.run.step(index, penalty_index)
                return
            self.penalty_index.copy_(penalty_index)
        assert self.graph is not None
        self.graph.replay()

    def _capture(self, index: Tensor, penalty_index: Tensor | None) -> None:
        run = self.run
        self.index = index.clone()
        self.penalty_index = None if penalty_index is None else penalty_index.clone()
        before = [tensor.clone() for tensor in _tensors(run)]
        # Adam's state comes into being with its first step and must be there before.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(REHEARSALS):
                run.step(self.index, self.penalty_index)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            run.step(self.index, self.penalty_index)
        tensors = _tensors(run)
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=False):
                tensor.copy_(old)
            for tensor in tensors[len(before) :]:  # the optimizer had no state yet
                tensor.zero_()


def _tensors(run: Run) -> list[Tensor]:
    tensors = [*run.networks.state().values()]
    tensors += [run.objective.losses, run.objective.totals]
    if run.objective.penalty is not None:
        tensors += list(run.objective.penalty.state_dict().values())
    for state in run.optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return tensors
