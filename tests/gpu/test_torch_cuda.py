"""The fairness loss on a GPU: it never waits for the device, and replays in a graph."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from fferm.torch import FairnessLoss  # noqa: E402 - after torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

N, BATCH = 2048, 256


def make_data():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 4, N)
    y = (rng.random(N) < 0.2 + 0.15 * s).astype(np.int64)
    x = np.column_stack([s + rng.normal(size=N), y + rng.normal(size=N)])
    return torch.tensor(x), torch.tensor(y), torch.tensor(s)


class Run:
    """A linear model, its loss, and one step on the batch that is held."""

    def __init__(self, device, *, capturable=False):
        self.data = [part.to(device) for part in make_data()]
        _, y, s = self.data
        self.fair = FairnessLoss.from_labels(y, s, notion="equalized_odds").to(device)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(2, 2).double().to(device)
        self.optimizer = torch.optim.Adam(
            [*self.model.parameters(), *self.fair.parameters()],
            lr=0.01,
            # Rounds to single precision, so not where the CPU is the measure.
            capturable=capturable,
        )
        self.held = [part[:BATCH].clone() for part in self.data]

    def step(self):
        x, y, s = self.held
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        (loss + 3 * self.fair(logits, s, y)).backward()
        self.optimizer.step()

    def captured(self):
        """Return the step as a graph, and everything as it was."""
        modules = (self.model, self.fair)
        before = [copy.deepcopy(module.state_dict()) for module in modules]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        for module, state in zip(modules, before, strict=True):
            module.load_state_dict(state)
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()
        return graph.replay

    def train(self, step, n_epochs=3):
        """Return model and dual after some epochs."""
        for begin in [*range(0, N, BATCH)] * n_epochs:
            for target, source in zip(self.held, self.data, strict=True):
                target.copy_(source[begin : begin + BATCH])
            step()
        return self.model.weight.detach().cpu(), self.fair.dual_variable.detach().cpu()


def test_a_gpu_trains_as_the_cpu_does():
    cpu, cuda = Run("cpu"), Run("cuda")
    expected, found = cpu.train(cpu.step), cuda.train(cuda.step)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_the_loss_never_waits_for_the_device():
    x, y, s = (part.to("cuda") for part in make_data())
    fair = FairnessLoss.from_labels(y, s, notion="equalized_odds").to("cuda")
    logits = x.clone().requires_grad_()
    try:
        torch.cuda.set_sync_debug_mode("error")
        fair(logits, s, y).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_step_replays_as_plain_steps():
    plain, graph = (Run("cuda", capturable=True) for _ in range(2))
    expected, found = plain.train(plain.step), graph.train(graph.captured())
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-9)


def test_half_precision_under_autocast_runs():
    x, y, s = (part.to("cuda") for part in make_data())
    fair = FairnessLoss.from_labels(y, s).to("cuda")
    model = torch.nn.Linear(2, 2).to("cuda")
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD([*model.parameters(), *fair.parameters()], lr=0.1)
    for _ in range(5):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(x.float())
            loss = torch.nn.functional.cross_entropy(logits, y) + fair(logits, s)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert fair.dual_variable.dtype == torch.float64
    assert float(fair.dual_variable.abs().max()) > 0
