"""The loss of a batch is right on average: every batch is enumerated, none drawn.

At any fixed dual, its value, its gradient by the model and the gradient of the dual
average to those of all rows, which are those of the definition.
"""

import itertools

import numpy as np
import pytest
from instances import REGISTERED
from numpy.testing import assert_allclose
from scipy.special import softmax

from fferm.divergences import KL, Affine, strip
from fferm.notions import ConditionalParity, EqualizedOdds, EqualOpportunity
from fferm.notions import get as get_notion
from fferm.penalty.objective import make_objective, table_penalty

torch = pytest.importorskip("torch")

from fferm.torch import (  # noqa: E402 - after torch is known to be there
    FairnessLoss,
    SemiStochasticFairnessLoss,
)

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

# Sums of tens of terms of size 1 in double precision.
EXACT = 1e-12
N = 6
Y = np.array([0, 1, 0, 1, 1, 0])
S = {"a": np.array([0, 0, 1, 0, 1, 1]), "b": np.array([0, 1, 1, 0, 0, 1])}
CONTROL = np.array([0, 0, 0, 1, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 1.5, 1.0, 3.0])

DIVERGENCES = {**REGISTERED, "tilted": Affine(KL(), scale=2.0, slope=0.5)}
NOTIONS = {
    "demographic_parity": get_notion("demographic_parity"),
    "equal_opportunity": EqualOpportunity(positive=1),
    "equalized_odds": EqualizedOdds(),
    "equalized_odds_frequency": EqualizedOdds("frequency"),
    "conditional_parity": ConditionalParity(CONTROL),
}
CASES = {
    "one_column": {"columns": ["a"]},
    "three_classes": {"columns": ["a"], "n_classes": 3, "sharpness": 2.0},
    "marginal_with_gaps": {"columns": ["a", "b"], "groups": "marginal", "gaps": True},
    "weighted": {"columns": ["a"], "weighted": True},
}


class Case:
    """Six rows, a linear model, and the loss of some of the rows."""

    def __init__(self, divergence, notion, *, columns, make=FairnessLoss, **options):
        self.sensitive = np.stack([S[name] for name in columns], axis=1)
        if options.pop("gaps", False):
            self.sensitive[1, 0] = -1
        self.n_classes = options.pop("n_classes", 2)
        self.weight = WEIGHT if options.pop("weighted", False) else np.ones(N)
        self.fair = make.from_labels(
            Y,
            self.sensitive,
            divergence=divergence,
            notion=notion,
            classes=list(range(self.n_classes)),
            sample_weight=self.weight,
            **options,
        )
        rng = np.random.default_rng(3)
        self.X = torch.tensor(rng.normal(size=(N, 2)))
        theta = 0.5 * rng.normal(size=(2, self.n_classes))
        self.theta = torch.tensor(theta, requires_grad=True)
        self.has_control = notion.control_feature() is not None

    def arguments(self, rows):
        control = torch.tensor(CONTROL)[rows] if self.has_control else None
        weight = torch.tensor(self.weight)[rows]
        sensitive = torch.tensor(self.sensitive)[rows]
        return sensitive, torch.tensor(Y)[rows], control, weight

    def value_and_gradient(self, rows):
        s, y, control, weight = self.arguments(rows)
        options = {} if (self.weight == 1).all() else {"sample_weight": weight}
        value = self.fair(self.X[rows] @ self.theta, s, y, control=control, **options)
        (gradient,) = torch.autograd.grad(value, self.theta)
        return value.item(), gradient.numpy()

    def slope(self, rows):
        placed = self.fair.reader(self.X[rows] @ self.theta, *self.arguments(rows))
        mass = placed.mass(self.fair.reader.shape) / len(rows)
        return self.fair.dual.slope(mass).numpy()

    @property
    def prob(self):
        logits = (self.X @ self.theta).detach().numpy()
        return softmax(self.fair.reader.sharpness * logits, axis=1)

    def tables(self):
        """Return the table of each attribute, over the rows with a known group."""
        places = self.fair.reader(self.X @ self.theta, *self.arguments(range(N)))
        found = []
        for cell in places.cell.numpy().T:
            table = np.zeros(self.fair.reader.shape)
            for i, place in enumerate(cell):
                if place < table.shape[0] * table.shape[2]:
                    r, k = divmod(place, table.shape[2])
                    table[r, :, k] += self.weight[i] * self.prob[i]
            found.append(table)
        return found


def dual_value(case, notion, divergence):
    """Return the dual objective on all rows, by its definition."""
    scale, value = strip(divergence)[1], 0.0
    variable = case.fair.dual_variable.detach().numpy()
    A, C = case.fair.dual.kind.dual_and_conjugate(variable, np)
    for table in case.tables():
        for r, stratum in enumerate(table):
            if stratum.sum() == 0:
                continue
            p = stratum / stratum.sum()
            q = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
            share = stratum.sum() / table.sum()
            weight = share if notion.weighting == "frequency" else 1.0
            value += scale * weight * np.sum(p * A[r] - q * C[r])
    return value


def mean(found):
    return [np.mean(part, axis=0) for part in zip(*found, strict=True)]


ONE_COLUMN, *OTHERS = CASES
# Every divergence with one column, two of them with all else.
PAIRS = [*itertools.product(DIVERGENCES, [ONE_COLUMN])]
PAIRS += itertools.product(["kl", "tilted"], OTHERS)


@pytest.mark.parametrize("notion", NOTIONS.values(), ids=NOTIONS)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_batches_of_one_and_two_average_to_all_rows(name, kind, notion):
    divergence = DIVERGENCES[name]
    case = Case(divergence, notion, **CASES[kind])
    rng = np.random.default_rng(4)
    variable = 0.1 * rng.normal(size=case.fair.seen.shape)
    case.fair.dual_variable.copy_(torch.tensor(variable))
    case.fair.eval()
    whole = [*case.value_and_gradient(range(N)), case.slope(range(N))]
    assert whole[0] == pytest.approx(dual_value(case, notion, divergence), abs=EXACT)
    for size in (1, 2):
        batches = [list(b) for b in itertools.product(range(N), repeat=size)]
        found = mean([(*case.value_and_gradient(b), case.slope(b)) for b in batches])
        for part, expected in zip(found, whole, strict=True):
            assert_allclose(part, expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
def test_the_slope_is_the_derivative_of_the_loss_by_the_dual(divergence):
    notion = NOTIONS["equalized_odds_frequency"]
    case = Case(divergence, notion, columns=["a"])
    base, scale, _ = strip(divergence)
    is_projected = case.fair.dual.kind.is_projected
    rng = np.random.default_rng(5)
    z = (0.1 if is_projected else 0.4) * rng.normal(size=case.fair.seen.shape)
    step, slopes = 1e-6, np.empty(z.shape)
    for cell in np.ndindex(z.shape):
        values = []
        for sign in (1, -1):
            moved = z.copy()
            moved[cell] += sign * step
            case.fair.dual_variable.copy_(torch.tensor(moved))
            values.append(dual_value(case, notion, divergence))
        slopes[cell] = (values[0] - values[1]) / (2 * step)
    case.fair.dual_variable.copy_(torch.tensor(z))
    by_dual = np.array([0.5, 0.5])[:, None, None] * case.slope(range(N))
    steepness = 1.0 if is_projected else np.exp(z) * base.f_second(np.exp(z), np)
    assert_allclose(slopes, scale * steepness * by_dual, rtol=1e-6, atol=1e-8)


SEMI = {**NOTIONS, "sufficiency": get_notion("sufficiency")}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("notion", SEMI.values(), ids=SEMI)
def test_after_a_refresh_batches_average_to_the_penalty(notion, options):
    case = Case("kl", notion, make=SemiStochasticFairnessLoss, **options)
    case.fair.refresh_from([(case.X @ case.theta, *case.arguments(range(N)))])
    expected = exact_penalty(case, notion)
    found = mean([case.value_and_gradient([i]) for i in range(N)])
    assert found[0] == pytest.approx(expected, abs=EXACT)
    assert_allclose(found[1], slopes_of(case, notion), rtol=1e-5, atol=1e-8)


def exact_penalty(case, notion):
    """Return the penalty of the table of all rows."""
    objective, fair = make_objective("kl", notion), case.fair
    comparison = objective.notion.comparison(fair.strata, fair.classes)
    return sum(
        table_penalty(objective, table / table.sum(), comparison)[0]
        for table in case.tables()
    )


def slopes_of(case, notion, step=1e-6):
    """Return central differences of the penalty by the model."""
    theta = case.theta
    slopes = np.empty(theta.shape)
    for cell in np.ndindex(*theta.shape):
        values = []
        for sign in (1, -1):
            case.theta = theta.detach().clone()
            case.theta[cell] += sign * step
            values.append(exact_penalty(case, notion))
        slopes[cell] = (values[0] - values[1]) / (2 * step)
    case.theta = theta
    return slopes


def test_the_mean_over_batches_of_a_fair_predictor_is_the_value_of_all_rows():
    # A loss computed on the batch itself would see unfairness in every small batch.
    rng = np.random.default_rng(0)
    n = 64 * 16
    y, s = rng.integers(0, 2, n), np.arange(n) % 4
    logits = torch.tensor(np.repeat(rng.normal(size=n // 4), 4))  # the same by group
    fair = FairnessLoss.from_labels(y, s).eval()
    codes = fair.encode(s)
    order = torch.tensor(rng.permutation(n))
    for dual in (0.0, 0.3):
        fair.dual_variable.copy_(dual * torch.tensor(rng.normal(size=(1, 2, 4))))
        whole = fair(logits, codes).item()
        for size in (2, 8, 64):
            batches = order.reshape(-1, size)
            value = np.mean([fair(logits[b], codes[b]).item() for b in batches])
            assert value == pytest.approx(whole, abs=EXACT)
    fair.dual_variable.zero_()
    assert fair(logits[:2], codes[:2]).item() == 0
