"""The semi-stochastic loss: refreshed from a pass, then a look-up."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fferm import LargeShift, SmallShift
from fferm.data.rows import encode_rows
from fferm.errors import InvalidInputError, NonFiniteError
from fferm.notions import Labels
from fferm.notions import get as get_notion
from fferm.penalty.objective import Penalty, Problem, make_objective

torch = pytest.importorskip("torch")

from fferm.torch import SemiStochasticFairnessLoss  # noqa: E402 - after torch

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

N = 60
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, 3)), np.arange(N) % 2
S = np.where(np.arange(N) == 1, -1, np.arange(N) // 2 % 3)
SETS = {
    "plain": None,
    "small": SmallShift(0.01),
    "coupled": SmallShift(0.01, coupled=True),
    "large": LargeShift(0.02),
}
NOTIONS = ("demographic_parity", "equalized_odds", "sufficiency", "predictive_parity")
CASES = [
    (notion, name)
    for notion in NOTIONS
    for name in SETS
    if not (name == "coupled" and notion in NOTIONS[2:])
]


def make_loss(notion="demographic_parity", uncertainty=None, divergence="js"):
    return SemiStochasticFairnessLoss.from_labels(
        Y, S, divergence=divergence, notion=notion, uncertainty=uncertainty
    )


def make_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    return model.double()


def batches(size=16):
    tensors = [torch.tensor(part) for part in (X, S, Y)]
    return list(zip(*(part.split(size) for part in tensors), strict=True))


@pytest.mark.parametrize(("notion", "shift"), CASES)
def test_after_a_refresh_value_and_gradient_are_those_of_the_oracle(notion, shift):
    fair, model = make_loss(notion, SETS[shift]), make_model()
    found = fair.refresh(model, batches())
    assert model.training
    objective = make_objective("js", notion, SETS[shift])
    labels = Labels(N, Y, (0, 1))
    s = np.where(S < 0, None, S.astype(object))
    rows = encode_rows(s, get_notion(notion), labels)
    penalty = Penalty(objective, rows, (0, 1))
    problem = Problem(objective, X, Y, np.full(N, 1 / N), 2, penalty)
    logits = model.eval()(torch.tensor(X)).detach().requires_grad_()
    value = fair(logits, torch.tensor(S), torch.tensor(Y))
    value.backward()
    expected, by_logits = problem.fairness(logits.detach().numpy())
    assert value.item() == pytest.approx(expected, rel=1e-10)
    assert found.divergence == pytest.approx(expected, rel=1e-10)
    assert_allclose(logits.grad, by_logits, rtol=0, atol=1e-12)


def test_a_loss_without_a_pass_says_what_to_call():
    fair = make_loss()
    with pytest.raises(InvalidInputError, match=r"Call fair.refresh\(model, loader\)"):
        fair(torch.zeros(N, 2), torch.tensor(S))
    with pytest.raises(InvalidInputError, match="had 0 rows"):
        fair.refresh_from([])


def test_a_saved_payoff_is_one():
    fair, model = make_loss(), make_model()
    fair.refresh(model, batches())
    other = make_loss()
    other.load_state_dict(copy.deepcopy(fair.state_dict()))
    logits = torch.tensor(X[:, :2])
    given = [loss(logits, torch.tensor(S)).item() for loss in (fair, other)]
    assert given[0] == given[1] != 0
    empty = make_loss()
    empty.load_state_dict(make_loss().state_dict())
    with pytest.raises(InvalidInputError, match="no payoff yet"):
        empty(logits, torch.tensor(S))


def test_an_infinite_worst_case_is_refused():
    fair = make_loss("demographic_parity", LargeShift(0.4, floor=0.0), "kl")
    with pytest.raises(NonFiniteError, match="Give LargeShift a floor"):
        fair.refresh(make_model(), batches())


def test_robust_training_by_batches_makes_a_model_fair():
    rng = np.random.default_rng(1)
    s = torch.tensor(rng.integers(0, 2, 400))
    y = torch.tensor((rng.random(400) < 0.25 + 0.5 * (s.numpy() == 0)).astype(int))
    x = torch.stack([s + 0.3 * torch.tensor(rng.normal(size=400)), 1.0 * y], dim=1)
    fair = SemiStochasticFairnessLoss.from_labels(
        y, s, divergence="kl", uncertainty=SmallShift(0.005)
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2).double()
    optimizer = torch.optim.Adam([*model.parameters(), *fair.parameters()], lr=0.03)
    gaps = []
    for _ in range(40):
        gaps.append(fair.refresh(model, [(x, s)]).violation)
        for i in torch.arange(400).split(40):
            logits = model(x[i])
            loss = torch.nn.functional.cross_entropy(logits, y[i])
            loss = loss + 10 * fair(logits, s[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert gaps[-1] < 0.1 < max(gaps)


def test_tables_stay_in_double_precision():
    fair = make_loss().half()
    assert fair.payoff.dtype == torch.float64
