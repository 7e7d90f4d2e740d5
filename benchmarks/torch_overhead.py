"""What the fairness term costs: a fair step over a plain one, in one run.

The same model, the same batches, Adam on both sides. On a GPU every side is one CUDA
graph; without graphs one measures how fast Python launches. fairret's NormLoss stands
in the same table where it is installed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fferm import FairNetClassifier
from fferm.datasets import make_biased
from fferm.estimators import net_modules, net_settings
from fferm.estimators.base import FitInput
from fferm.torch import FairnessLoss, fitting
from fferm.torch.graphs import make_steps
from fferm.torch.networks import Alone, Networks, Stacked
from fferm.torch.training import Run

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


CPU = [Case(3, 512, 1024, 1.15, 10)]
GPU = [Case(3, 512, 4096, 1.10, 200), Case(4, 2048, 16384, 1.01, 30)]
N_CURVE, CURVE_BAR = 64, 1.5

Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]


def run() -> dict[str, Any]:
    """Return medians and ranges of the ratios to a plain step."""
    torch.set_num_threads(1)
    found = {}
    for device, cases in (("cpu", CPU), ("cuda", GPU)):
        if device == "cuda" and not torch.cuda.is_available():
            print("no GPU: its half is left out")
            continue
        for case in cases:
            name = f"{device}, {case.n_layers} x {case.width}, batch {case.batch_size}"
            found[name] = _compare(name, case, device)
    if torch.cuda.is_available():
        found["cuda, curve"] = _compare_curve("cuda")
    return found


def _compare(name: str, case: Case, device: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    s = torch.tensor(rng.integers(0, N_GROUPS, case.batch_size), device=device)
    y = torch.tensor(rng.integers(0, 2, case.batch_size), device=device)
    sides = {"plain": _stepper(case, device, None, y, s)}
    fair = FairnessLoss.from_labels(y, s).to(device)
    sides["fferm"] = _stepper(case, device, fair, y, s)
    rival = _norm_loss(device)
    if rival is not None:
        sides["fairret"] = _stepper(case, device, rival, y, s)
    return _ratios(name, sides, case.n_steps, case.bar)


def _ratios(
    name: str, sides: dict[str, Callable[[], None]], n_steps: int, bar: float
) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(REPETITIONS):
        for side, step in sides.items():
            seconds[side].append(_seconds(step, n_steps))
    first, *others = sides
    plain = np.array(seconds[first])
    found: dict[str, Any] = {f"{first}, ms": 1e3 * float(np.median(plain))}
    print(f"{name}: {first} {found[f'{first}, ms']:.3f} ms a step, bar {bar}")
    for side in others:
        ratio = np.array(seconds[side]) / plain
        found[side] = [float(np.median(ratio)), float(ratio.min()), float(ratio.max())]
        print(
            f"  {side}: {found[side][0]:.3f} x ({ratio.min():.3f} to {ratio.max():.3f})"
        )
    return found


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
    case: Case, device: str, penalty: Penalty | None, y: Tensor, s: Tensor
) -> Callable[[], None]:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(case.n_layers):
        layers += [nn.Linear(case.width, case.width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(case.width, 2)).to(device)
    optimizer = torch.optim.Adam(
        model.parameters(), fused=True, capturable=device == "cuda"
    )
    x = torch.randn(case.batch_size, case.width, device=device)

    def step() -> None:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        if penalty is not None:
            loss = loss + penalty(logits, s, y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()

    return _captured(step) if device == "cuda" else step


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


def _compare_curve(device: str) -> dict[str, Any]:
    """Return the cost of a step of many small networks over a step of one."""
    data = make_biased(40_000, n_features=64, random_state=0)
    given = FitInput(data.X, data.y, data.sensitive_features)
    sides = {
        "one network": _curve_stepper(given, 1, device),
        f"{N_CURVE} networks": _curve_stepper(given, N_CURVE, device),
    }
    return _ratios(f"{device}, curve", sides, 100, CURVE_BAR)


def _curve_stepper(given: FitInput, n_models: int, device: str) -> Callable[[], None]:
    model = FairNetClassifier(batch_size=4096, device=device, random_state=0)
    data, problem, rows = model._encode(given)
    recipe = net_settings.make_recipe(model, problem)
    recipe = replace(recipe, dtype=torch.float32)
    make = net_modules.maker(model, problem, None)
    plan = fitting.Plan(
        problem, rows, data.classes.tolist(), data.weight, None, make, True
    )
    weights = list(np.geomspace(0.1, 100, n_models))
    module = make(0).to(device, torch.float32)
    networks: Networks = (
        Alone(module) if n_models == 1 else Stacked([module] * n_models)
    )
    trained = Run(networks, fitting._make_task(plan, weights, recipe), recipe)
    networks.train(True)
    steps = make_steps(trained)
    index = next(iter(trained.batches()))[0]
    trained.prepare(0)
    steps(index, None)
    return lambda: steps(index, None)


if __name__ == "__main__":
    run()
