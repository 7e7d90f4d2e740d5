"""The private loss releases what it claims, and tells the accountant of all of it."""

import math
import runpy
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus", reason='pip install "fferm[opacus]"')

from opacus import PrivacyEngine  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from fferm.errors import InvalidInputError, InvalidParameterError  # noqa: E402
from fferm.integrations import opacus  # noqa: E402
from fferm.integrations.opacus import PrivateFairnessLoss  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "with_opacus.py"
N = 60
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Opacus


class Problem:
    """Made rows, and model, loss and optimizer for private training on them."""

    def __init__(self, batch_size=N, epochs=1, epsilon=3.0, groups="intersection"):
        rng = np.random.default_rng(0)
        self.x = torch.tensor(rng.normal(size=(N, 4)), dtype=torch.float32)
        self.y = torch.tensor(rng.integers(0, 2, N))
        values = {"sex": rng.choice(["f", "m"], N), "race": rng.choice([*"abc"], N)}
        self.values = {
            k: np.where(rng.random(N) < 0.1, None, v) for k, v in values.items()
        }
        torch.manual_seed(0)
        self.engine = PrivacyEngine()
        self.fair = PrivateFairnessLoss.from_noisy_counts(
            self.engine, self.y, self.values, groups=groups, notion="equalized_odds"
        )
        self.s = self.fair.encode(self.values)
        model = torch.nn.Linear(4, 2)
        torch.nn.init.normal_(model.weight, std=20)  # some rows have no doubt
        rows = TensorDataset(self.x, self.y, self.s)
        self.model, self.optimizer, self.loader = self.fair.make_private(
            target_epsilon=epsilon,
            target_delta=1e-5,
            epochs=epochs,
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
            data_loader=DataLoader(rows, batch_size=batch_size),
            max_grad_norm=2.0,
        )

    def backward(self, rows):
        self.optimizer.zero_grad()
        x, y, s = self.x[rows], self.y[rows], self.s[rows]
        logits = self.model(x)
        (F.cross_entropy(logits, y) + 5 * self.fair(logits, s, y)).backward()

    def step(self, rows):
        """Return what a step releases of a batch, before the noise."""
        self.backward(rows)
        table = self.fair._table.flatten()
        self.optimizer.step()
        gradients = [p.summed_grad.flatten() for p in self.model.parameters()]
        return table, torch.cat(gradients).double()


def history(problem):
    return problem.engine.accountant.history


@pytest.mark.parametrize("groups", ["intersection", "marginal"])
def test_a_row_moves_a_step_by_no_more_than_the_accountant_is_told(groups):
    problem = Problem(groups=groups)
    problem.step(torch.arange(N))
    state = {k: v.clone() for k, v in problem.fair.state_dict().items()}
    moved = []
    for i in range(N):
        others = torch.tensor([k for k in range(N) if k != i])
        released = []
        for rows in (torch.arange(N), others):
            problem.fair.load_state_dict(state)
            released.append(problem.step(rows))
        table, gradient = (
            float((one - other).norm()) for one, other in zip(*released, strict=True)
        )
        noise = problem.optimizer.noise_multiplier * problem.optimizer.max_grad_norm
        moved.append(math.hypot(table / problem.fair.noise, gradient / noise))
    sigma, _, _ = history(problem)[-1]
    assert max(moved) <= (1 + 1e-5) / sigma
    assert max(moved) >= 0.95 / sigma, "the claim is far from what rows do"


def test_a_row_moves_one_count_by_one(monkeypatch):
    seen, whole = [], Problem()
    monkeypatch.setattr(
        opacus,
        "_add_noise",
        lambda table, scale, _: seen.append((table, scale)) or table,
    )
    for kept in (np.arange(N), np.arange(1, N)):
        engine = PrivacyEngine()
        values = {name: column[kept] for name, column in whole.values.items()}
        PrivateFairnessLoss.from_noisy_counts(
            engine, whole.y[kept], values, count_noise=7.0
        )
        assert engine.accountant.history == [(7.0, 1.0, 1)]
    (all_rows, scale), (without, _) = seen
    assert scale == 7.0
    assert float(all_rows.sum()) == N
    assert float((all_rows - without).norm()) == 1


def test_noise_is_as_large_as_it_is_said_to_be():
    torch.manual_seed(0)
    noise = opacus._add_noise(torch.full((40_000,), 5.0), 3.0, None) - 5
    assert float(noise.mean()) == pytest.approx(0, abs=0.08)
    assert float(noise.std()) == pytest.approx(3, rel=0.02)


def test_a_gradient_is_that_of_one_row_whatever_the_batch():
    problem = Problem()
    problem.backward(torch.arange(N))
    of_all = [p.grad_sample[3] for p in problem.model.parameters()]
    problem.fair._table = None
    problem.backward(torch.tensor([3]))
    for one, p in zip(of_all, problem.model.parameters(), strict=True):
        torch.testing.assert_close(p.grad_sample[0], one, rtol=1e-4, atol=1e-5)


def test_the_accountant_is_told_of_counts_and_of_every_step():
    problem = Problem(batch_size=6, epochs=3)
    for _ in range(3):
        for x, y, s in problem.loader:
            logits = problem.model(x)
            (F.cross_entropy(logits, y) + problem.fair(logits, s, y)).backward()
            problem.optimizer.step()
            problem.optimizer.zero_grad()
    counts, steps = history(problem)
    assert counts == (30.0, 1.0, 1)
    assert steps[1:] == (0.1, 30)
    assert 1 / steps[0] ** 2 == pytest.approx(
        1 / problem.optimizer.noise_multiplier**2 + 1 / problem.fair.noise**2
    )
    assert 2.97 < problem.engine.get_epsilon(1e-5) <= 3
    assert problem.fair.diagnostics().n_samples == 180


def test_without_sampling_the_exact_delta_of_all_releases_is_below_the_target():
    problem = Problem(epochs=4)  # every row in every batch
    sigma = 1 / math.hypot(
        1 / problem.optimizer.noise_multiplier, 1 / problem.fair.noise
    )
    # Gaussian mechanisms compose to one (Dong, Roth and Su 2022, corollary 3.3).
    mu, cdf = math.sqrt(4 / sigma**2 + 1 / 30**2), NormalDist().cdf
    delta = cdf(mu / 2 - 3 / mu) - math.exp(3) * cdf(-mu / 2 - 3 / mu)
    assert 1e-7 < delta <= 1e-5


def test_empty_batches_are_released_too():
    torch.manual_seed(1)
    problem, sizes = Problem(batch_size=1), []
    for x, y, s in problem.loader:
        logits = problem.model(x)
        (F.cross_entropy(logits, y) + problem.fair(logits, s, y)).backward()
        problem.optimizer.step()
        problem.optimizer.zero_grad()
        sizes.append(len(x))
    assert 0 in sizes
    assert history(problem)[-1][2] == len(sizes)
    assert bool(problem.fair.dual_variable.isfinite().all())


def test_the_exact_table_is_in_no_state():
    problem = Problem()
    problem.backward(torch.arange(N))
    exact = problem.fair._table
    for name, tensor in problem.fair.state_dict().items():
        assert tensor.shape != exact.shape or not torch.equal(tensor, exact), name


def test_a_second_call_before_the_step_is_refused():
    problem = Problem()
    logits = problem.model(problem.x)
    problem.fair(logits, problem.s, problem.y)
    with pytest.raises(InvalidInputError, match="called once between two steps"):
        problem.fair(logits, problem.s, problem.y)


def test_weights_of_rows_are_refused():
    problem = Problem()
    with pytest.raises(InvalidInputError, match="without sample_weight"):
        problem.fair(
            problem.model(problem.x), problem.s, problem.y, sample_weight=torch.ones(N)
        )


def test_an_epsilon_that_the_counts_spend_is_refused():
    with pytest.raises(InvalidParameterError, match="is spent by the counts"):
        Problem(epsilon=0.01)


@pytest.mark.slow
def test_adult_is_fair_and_private_at_epsilon_3():
    if not EXAMPLE.exists():
        pytest.skip("examples/ is not beside the tests")
    example = runpy.run_path(str(EXAMPLE))
    for seed in range(5):
        found = example["train"](3.0, 30.0, seed)
        assert found["epsilon"] <= 3
        assert found["violation"] <= 0.03
        assert found["accuracy"] >= 0.815
