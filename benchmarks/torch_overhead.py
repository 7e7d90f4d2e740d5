"""What the fairness term costs: a fair step over a plain one, in one run.

The same model, the same batches, Adam on both sides. On a GPU every side is one CUDA
graph, of its steps as they are and as `torch.compile` fuses them. A second table has a
plain loop, with AdamW and bf16 autocast, fairret's NormLoss, which waits for the GPU
and fits in no graph, and fairlearn's adversarial model, whose step trains two networks.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import spread
from fferm import FairNetClassifier
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.torch import FairnessLoss
from fferm.torch.networks import Network, Stacked
from fferm.torch.training import Run, fast_products

REPETITIONS = 15
N_GROUPS = 4


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the most that fairness may cost."""

    n_layers: int
    width: int
    batch_size: int
    bar: float
    n_steps: int


CPU = [Case(3, 512, 1024, 1.10, 10)]
GPU = [Case(3, 512, 4096, 1.03, 200), Case(4, 2048, 16384, 1.001, 30)]
EAGER = [
    Case(2, 128, 512, 1.25, 200),
    Case(3, 512, 4096, 1.20, 200),
    Case(4, 2048, 16384, 1.12, 30),
]
COLUMNS = ("step, how it runs", "plain or single", "ratio", "range", "asked")
HOW = {"cpu": ("one by one",), "cuda": ("one graph", "compiled, one graph")}
N_CURVE, CURVE_BAR = 64, 1.5

Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]


def run() -> dict[str, Any]:
    """Return medians and ranges of the ratios to a plain step."""
    torch.set_num_threads(1)
    tables = {}
    for device, cases in (("cpu", CPU), ("cuda", GPU)):
        if device == "cuda" and not torch.cuda.is_available():
            print("no GPU: its half is left out")
            continue
        lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        for case, how in itertools.product(cases, HOW[device]):
            lines += _compare(case, device, how)
        if device == "cuda":
            eager = lines[:2]
            for case in EAGER:
                eager += _compare(case, device, "plain loop")
            tables["torch_overhead_eager"] = [*eager, "", _machine(device)]
            lines += _compare_curve(device)
        tables[f"torch_overhead_{device}"] = [*lines, "", _machine(device)]
    return {"tables": tables}


def _machine(device: str) -> str:
    if device == "cuda":
        name = torch.cuda.get_device_name()
        return f"PyTorch {torch.__version__}, {name}, CUDA {torch.version.cuda}."
    return f"PyTorch {torch.__version__}, one thread."


def _compare(case: Case, device: str, how: str) -> list[str]:
    name = f"{case.n_layers} × {case.width}, batch {case.batch_size:,}"
    name += "" if how == "plain loop" else f", {how}"
    rng = np.random.default_rng(0)
    s = torch.tensor(rng.integers(0, N_GROUPS, case.batch_size), device=device)
    y = torch.tensor(rng.integers(0, 2, case.batch_size), device=device)
    sides = {"plain": _stepper(case, how, None, y, s)}
    fair = FairnessLoss.from_labels(y, s).to(device)
    sides["fferm"] = _stepper(case, how, fair, y, s)
    baseline = None if "graph" in how else _norm_loss(device)
    if baseline is not None:
        sides["fairret"] = _stepper(case, how, baseline, y, s)
    adversarial = _adversarial(case, y, s) if how == "plain loop" else None
    if adversarial is not None:
        sides["fairlearn"] = adversarial
    return _ratios(name, sides, case.n_steps, case.bar)


def _ratios(
    name: str, sides: dict[str, Callable[[], None]], n_steps: int, bar: float
) -> list[str]:
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(REPETITIONS):
        for side, step in sides.items():
            seconds[side].append(_seconds(step, n_steps))
    first, *others = sides
    plain = np.array(seconds[first])
    lines = []
    for side in others:
        median, least, largest = spread(np.array(seconds[side]) / plain)
        asked = "" if side in ("fairret", "fairlearn") else f"≤ {bar:g}"
        cells = (
            name,
            f"{1e3 * np.median(plain):.2f} ms",
            f"{side} {median:.3f}",
            f"{least:.3f}–{largest:.3f}",
            asked,
        )
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def _seconds(step: Callable[[], None], n_steps: int) -> float:
    _wait()
    began = time.perf_counter()
    for _ in range(n_steps):
        step()
    _wait()
    return (time.perf_counter() - began) / n_steps


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _stepper(
    case: Case, how: str, penalty: Penalty | None, y: Tensor, s: Tensor
) -> Callable[[], None]:
    device, is_plain = y.device.type, how == "plain loop"
    model = _network(case, 2).to(device)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters())
    if not is_plain:
        optimizer = torch.optim.Adam(
            model.parameters(), fused=True, capturable=device == "cuda"
        )
    x = torch.randn(case.batch_size, case.width, device=device)

    def objective() -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=is_plain):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            return loss if penalty is None else loss + penalty(logits, s, y)

    if how.startswith("compiled"):
        objective = torch.compile(objective)

    def step() -> None:
        loss = objective()
        optimizer.zero_grad(set_to_none=is_plain)
        loss.backward()
        optimizer.step()

    return _captured(step) if "graph" in how else step


def _network(case: Case, n_outputs: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(case.n_layers):
        layers += [nn.Linear(case.width, case.width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(case.width, n_outputs))


def _adversarial(case: Case, y: Tensor, s: Tensor) -> Callable[[], None] | None:
    """Return a step of fairlearn's adversarial model, if it is installed."""
    try:
        from fairlearn.adversarial import AdversarialFairnessClassifier
    except ImportError:
        return None
    first = np.random.default_rng(0).normal(size=(8, case.width)).astype(np.float32)
    model = AdversarialFairnessClassifier(
        backend="torch",
        predictor_model=_HalfPrecision(_network(case, 1)),
        adversary_model=nn.Sequential(
            nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, N_GROUPS)
        ),
        predictor_optimizer=lambda part: torch.optim.AdamW(part.parameters(), lr=1e-6),
        adversary_optimizer=lambda part: torch.optim.AdamW(part.parameters(), lr=1e-6),
        cuda="cuda:0",
        epochs=1,
        batch_size=8,
    )
    model.fit(first, np.arange(8) % 2, sensitive_features=np.arange(8) % N_GROUPS)
    x = torch.randn(case.batch_size, case.width, device=y.device)
    label, group = y[:, None].float(), nn.functional.one_hot(s, N_GROUPS).float()

    return lambda: model.backendEngine_.train_step(x, label, group)


class _HalfPrecision(nn.Module):
    """Probabilities of a network under autocast, for a loss that takes no logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, 1) probabilities."""
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.network(x)
        return torch.sigmoid(logits.float())


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(_held: Callable[[], None] = step) -> None:
        graph.replay()  # on memory that belongs to what the step holds

    return replay


def _norm_loss(device: str) -> Penalty | None:
    try:
        from fairret.loss import NormLoss
        from fairret.statistic import PositiveRate
    except ImportError:
        return None
    norm = NormLoss(PositiveRate())
    eye = torch.eye(N_GROUPS, device=device)

    def penalty(logits: Tensor, s: Tensor, y: Tensor) -> Tensor:
        return norm(logits[:, 1:] - logits[:, :1], eye[s])  # type: ignore[no-any-return]

    return penalty


def _compare_curve(device: str) -> list[str]:
    """Return the cost of a step of many small networks over a step of one."""
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    lines = []
    for how in ("one by one", "one graph"):
        sides = {str(n): _curve_stepper(given, n, device, how) for n in (1, N_CURVE)}
        name = f"curve of default networks, batch 4,096, {how}"
        with fast_products():
            lines += _ratios(name, sides, 100, CURVE_BAR)
    return lines


def _curve_stepper(
    given: FitInput, n_models: int, device: str, how: str
) -> Callable[[], None]:
    model = FairNetClassifier(
        batch_size=4096, device=device, dtype="float32", random_state=0
    )
    encoded = model._encode(given)
    config = model._config(encoded.problem)
    module = model._module_maker(encoded.problem, None, config)(config.seed)
    weights = list(np.geomspace(0.1, 100, n_models))
    objective = model._batch_objective(encoded, None, config, weights)
    network = Stacked(module, n_models) if n_models > 1 else Network(module)
    trained = Run(network, objective, config, None)
    trained.networks.module.train(True)
    index = next(iter(trained.objective.batches(0)))[0]
    trained.prepare(0)
    with fast_products():
        steps = trained._steps() if how == "one graph" else trained.step
        steps(index, None)
    return lambda: steps(index, None)
