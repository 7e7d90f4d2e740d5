"""The torch loss against the NumPy oracle and against the fused linear kernel."""

from dataclasses import replace

import numpy as np
import pytest
from instances import REGISTERED
from numpy.testing import assert_allclose

from fferm.data.rows import encode_rows
from fferm.notions import EqualizedOdds, Labels
from fferm.notions import get as get_notion
from fferm.penalty.objective import Penalty, Problem, make_objective
from fferm.solvers import _kernels
from fferm.solvers.stochastic import LEAST_SQUARES, SGDA

torch = pytest.importorskip("torch")

from fferm.torch import DualSteps, FairnessLoss  # noqa: E402 - after torch

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

N, BATCH, N_EPOCHS, LAMBDA = 40, 2, 10, 1.5
NOTIONS = {
    "demographic_parity": get_notion("demographic_parity"),
    "equalized_odds": EqualizedOdds(),
    "equalized_odds_frequency": EqualizedOdds("frequency"),
}


def make_problem(divergence, notion, how="intersection", is_even=False):
    """Return a problem with weights and rows without a group, and its columns."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 3)).round(2), np.arange(N) % 2
    a = np.arange(N) // 2 % 2
    s = {"a": np.where(np.arange(N) == 1, None, a.astype(object))}
    if how == "marginal":
        s["b"] = np.arange(N) % 3
    weight = rng.uniform(0.5, 2, N)
    objective = make_objective(divergence, notion, fairness_weight=LAMBDA)
    rows = encode_rows(s, notion, Labels(N, y, (0, 1)), how=how, sample_weight=weight)
    rows = rows.balanced(within_strata=True) if is_even else rows
    penalty = Penalty(objective, rows)
    return Problem(objective, X, y, weight / weight.sum(), 2, penalty), s, weight


def make_loss(problem, s, weight, how="intersection", **options):
    return FairnessLoss.from_labels(
        problem.y,
        s,
        divergence=problem.objective.divergence,
        notion=problem.objective.notion,
        sample_weight=weight,
        groups=how,
        **options,
    )


@pytest.mark.parametrize(
    ("how", "group_weights"),
    [("intersection", "share"), ("marginal", "share"), ("intersection", "equal")],
)
@pytest.mark.parametrize("notion", NOTIONS.values(), ids=NOTIONS)
@pytest.mark.parametrize("divergence", REGISTERED)
def test_at_the_best_dual_value_and_gradient_are_those_of_numpy(
    divergence, notion, how, group_weights
):
    is_even = group_weights == "equal"
    problem, s, weight = make_problem(REGISTERED[divergence], notion, how, is_even)
    fair = make_loss(problem, s, weight, how, group_weights=group_weights).eval()
    logits = torch.tensor(
        np.random.default_rng(1).normal(size=(N, 2)), requires_grad=True
    )
    rows = fair.reader(
        logits, fair.encode(s), torch.tensor(problem.y), None, torch.tensor(weight)
    )
    table = rows.mass(fair.reader.shape)
    block = fair.dual.block
    total = table.sum(dim=1, keepdim=True) @ block @ block.T  # of stratum, attribute
    product = (table @ block @ block.T) * table.sum(dim=1, keepdim=True) / total
    best = fair.dual.kind.best((table / product).numpy())
    fair.dual_variable.copy_(torch.tensor(best))
    value = fair(
        logits,
        fair.encode(s),
        torch.tensor(problem.y),
        sample_weight=torch.tensor(weight),
    )
    (gradient,) = torch.autograd.grad(value, logits)
    expected, by_logits = problem.fairness(logits.detach().numpy())
    assert value.item() == pytest.approx(expected / LAMBDA, rel=1e-9, abs=1e-12)
    assert_allclose(gradient.numpy(), by_logits / LAMBDA, rtol=1e-8, atol=1e-12)


class LazyAdagrad(torch.optim.Optimizer):
    """Adagrad as the kernel has it: roots are renewed once squares have grown."""

    def __init__(self, parameters, lr=0.4):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        (group,) = self.param_groups
        lr = group["lr"]
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["squares"] = torch.full_like(parameter, LEAST_SQUARES)
                state["pace"] = lr / state["squares"].sqrt()
            state["squares"] += parameter.grad**2
            grown = state["squares"] * state["pace"] ** 2 > _kernels.RENEWAL * lr**2
            renewed = lr / state["squares"].sqrt()
            state["pace"] = torch.where(grown, renewed, state["pace"])
            parameter -= state["pace"] * parameter.grad


def torch_steps(problem, fair, s, weight, orders):
    X, y = torch.tensor(problem.X), torch.tensor(problem.y)
    codes, weight = fair.encode(s), torch.tensor(weight)
    model = torch.nn.Linear(3, 1).double()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = LazyAdagrad([*model.parameters(), *fair.parameters()])
    for order in orders:
        for batch in torch.tensor(order).split(BATCH):
            logits = model(X[batch])[:, 0]
            losses = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, y[batch].double(), reduction="none"
            )
            loss = (losses * weight[batch]).mean() / weight.mean() + LAMBDA * fair(
                logits, codes[batch], y[batch], sample_weight=weight[batch]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return torch.cat([model.weight[0], model.bias]).detach().numpy()


STEPS = [(name, "demographic_parity", "intersection") for name in REGISTERED]
STEPS += [("kl", notion, "marginal") for notion in NOTIONS]
STEPS += [("chi2", "equalized_odds", "intersection")]


@pytest.mark.parametrize(("divergence", "notion", "how"), STEPS)
def test_two_hundred_steps_are_those_of_the_fused_kernel(divergence, notion, how):
    notion = NOTIONS[notion]
    problem, s, weight = make_problem(REGISTERED[divergence], notion, how)
    state = SGDA(batch_size=BATCH, lr=0.4).begin(problem, None, [LAMBDA])
    state = replace(state, steps=state.steps._replace(warm_up=1))
    rng = np.random.default_rng(3)
    orders = [rng.permutation(N) for _ in range(N_EPOCHS)]
    t = 0
    for order in orders:
        t = _kernels.run_batches(
            state.rows,
            order,
            BATCH,
            state.model,
            state.dual,
            state.steps,
            state.scratch,
            t,
        )
    assert t == 200
    fair = make_loss(problem, s, weight, how, dual_steps=DualSteps(window=float("inf")))
    theta = torch_steps(problem, fair, s, weight, orders)
    assert_allclose(theta, state.model.theta[:, 0], rtol=0, atol=1e-8)
    assert_allclose(fair.dual_variable, state.dual.z[..., 0], rtol=0, atol=1e-8)
