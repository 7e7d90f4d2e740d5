"""The loss of a critic is right on average: every batch is enumerated, none drawn."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from fferm.notions import ConditionalParity  # noqa: E402 - after torch is found
from fferm.torch import CriticFairnessLoss, FairnessLoss  # noqa: E402
from fferm.torch.critic import pair_weights  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

# Sums of tens of terms of size 1 in double precision.
EXACT = 1e-12
N = 5
U = np.array([0.3, -1.2, 0.8, 1.9, -0.4])
LOGITS = np.array([[0.1, 0.4], [1.0, -1.0], [0.3, 0.2], [-0.7, 0.9], [0.0, 0.5]])
GROUP = np.array([0, 1, 1, 0, 1])
AGE = np.array([0.2, 1.7, -0.5, 0.9, 2.4])
CONTROL = np.array([0, 0, 0, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 1.5, 1.0])
GAPPED_AGE = np.array([0.2, np.nan, -0.5, 0.9, 2.4])
GAPPED_GROUP = np.array([0, 1, 1, None, 1], dtype=object)

CASES = {
    "numbers by group": {"output": U, "sensitive": GROUP},
    "classes by age": {"output": LOGITS, "sensitive": AGE},
    "numbers by age": {"output": U, "sensitive": AGE},
    "numbers by age and group": {
        "output": U,
        "sensitive": {"age": AGE, "group": GROUP},
    },
    "numbers by age, given a control": {
        "output": U,
        "sensitive": AGE,
        "notion": ConditionalParity(CONTROL),
    },
    "numbers by age, weighted": {"output": U, "sensitive": AGE, "weight": WEIGHT},
    "numbers by group, with gaps": {"output": U, "sensitive": GAPPED_GROUP},
    "classes by age, with gaps": {"output": LOGITS, "sensitive": {"age": GAPPED_AGE}},
    "numbers by age and group, with gaps": {
        "output": U,
        "sensitive": {"age": GAPPED_AGE, "group": GAPPED_GROUP},
        "notion": ConditionalParity(CONTROL),
        "weight": WEIGHT,
    },
}


def take(sensitive, rows):
    if isinstance(sensitive, dict):
        return {name: values[rows] for name, values in sensitive.items()}
    return sensitive[rows]


class Case:
    """Five rows, a critic that is anywhere, and the loss of some of the rows."""

    def __init__(self, output, sensitive, notion="demographic_parity", weight=None,
                 divergence="kl", sampling="independent"):  # fmt: skip
        continuous = []
        if isinstance(sensitive, dict):
            continuous = ["age"]
        elif sensitive is AGE:
            continuous = ["group"]  # the name of a column without one
        numbers = output.ndim == 1
        self.fair = CriticFairnessLoss.from_labels(
            U if numbers else GROUP,
            sensitive,
            divergence=divergence,
            notion=notion,
            outputs="numbers" if numbers else "logits",
            continuous=continuous,
            sample_weight=weight,
            sampling=sampling,
            width=3,
            rank=2,
        )
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.fair.critic.parameters():
                noise = torch.randn(
                    parameter.shape, generator=generator, dtype=torch.float64
                )
                parameter.copy_(0.7 * noise)
        self.fair.eval()
        self.output, self.sensitive, self.weight = output, sensitive, weight
        self.control = CONTROL if not isinstance(notion, str) else None

    def at(self, rows):
        """Return value, gradient by the outputs, and gradient by the critic."""
        rows = list(rows)
        output = torch.tensor(self.output, requires_grad=True)
        s = self.fair.encode(take(self.sensitive, rows))
        weight = None if self.weight is None else torch.tensor(self.weight[rows])
        control = None if self.control is None else torch.tensor(self.control[rows])
        value = self.fair(output[rows], s, control=control, sample_weight=weight)
        (by_output,) = torch.autograd.grad(value, output)
        side, *rest = self.fair.reader(output[rows], s, None, control, weight)
        slopes = self.fair.critic_gradient(side.detach(), *rest)
        flat = torch.cat([slope.flatten() for slope in slopes])
        return np.concatenate([[value.item()], by_output.numpy().ravel(), flat.numpy()])


def whole(case):
    """Return the same on all rows, by the definition: all pairs count alike."""
    case.fair.sampling = "epochs"
    return case.at(range(N))


def test_on_all_rows_every_pair_counts_alike():
    assert_allclose(pair_weights(N, N, "epochs"), np.full((N, N), 1 / N**2))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("divergence", ["kl", "chi2", "total_variation"])
def test_rows_drawn_independently_are_right_on_average(name, divergence):
    case = Case(**CASES[name], divergence=divergence)
    batches = itertools.product(range(N), repeat=2)
    mean = np.mean([case.at(rows) for rows in batches], axis=0)
    assert_allclose(mean, whole(case), rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_batches_of_an_epoch_are_right_on_average(name, size):
    case = Case(**CASES[name], sampling="epochs")
    batches = itertools.combinations(range(N), size)
    mean = np.mean([case.at(rows) for rows in batches], axis=0)
    assert_allclose(mean, whole(case), rtol=0, atol=EXACT)


def test_of_groups_single_rows_are_right_on_average():
    case = Case(**CASES["numbers by group"])
    mean = np.mean([case.at([i]) for i in range(N)], axis=0)
    assert_allclose(mean, whole(case), rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", ["classes by age", "numbers by age"])
@pytest.mark.parametrize("draw", ["independent", "epochs"])
def test_all_pairs_of_a_batch_are_biased(name, draw, monkeypatch):
    case = Case(**CASES[name])
    right = whole(case)
    monkeypatch.setattr(
        "fferm.torch.critic.pair_weights",
        lambda n, *_: torch.full((n, n), 1 / n**2, dtype=torch.float64),
    )
    draws = {
        "independent": itertools.product(range(N), repeat=2),
        "epochs": itertools.combinations(range(N), 2),
    }
    mean = np.mean([case.at(rows) for rows in draws[draw]], axis=0)
    assert np.linalg.norm(mean - right) > 0.01 * np.linalg.norm(right)


@pytest.mark.parametrize(
    ("draw", "assumed"), [("independent", "epochs"), ("epochs", "independent")]
)
def test_the_weights_of_the_other_way_to_draw_are_biased(draw, assumed):
    case = Case(**CASES["numbers by age"])
    right = whole(case)
    case.fair.sampling = assumed
    draws = {
        "independent": itertools.product(range(N), repeat=2),
        "epochs": itertools.combinations(range(N), 2),
    }
    mean = np.mean([case.at(rows) for rows in draws[draw]], axis=0)
    assert np.linalg.norm(mean - right) > 0.01 * np.linalg.norm(right)


@pytest.mark.parametrize("size", [1, 2])
def test_the_loss_in_soft_bins_is_right_on_average(size):
    y = np.linspace(-2, 2, 30)
    fair = FairnessLoss.from_labels(y, GROUP.repeat(6), bins=4).eval()
    fair = FairnessLoss.from_labels(
        U, GROUP, outputs="numbers", bins=fair.reader.bins
    ).eval()
    with torch.no_grad():
        fair.dual_variable.copy_(torch.linspace(-0.5, 0.7, 8).reshape(1, 4, 2))

    def at(rows):
        output = torch.tensor(U, requires_grad=True)
        value = fair(output[list(rows)], torch.tensor(GROUP)[list(rows)])
        (slope,) = torch.autograd.grad(value, output)
        return np.concatenate([[value.item()], slope.numpy()])

    batches = itertools.product(range(N), repeat=size)
    mean = np.mean([at(rows) for rows in batches], axis=0)
    assert_allclose(mean, at(range(N)), rtol=0, atol=EXACT)


def test_rows_without_a_value_are_as_if_they_were_not_there():
    gapped = Case(U, {"age": GAPPED_AGE})
    known = ~np.isnan(GAPPED_AGE)
    alone = CriticFairnessLoss.from_labels(
        U[known],
        {"age": AGE[known]},
        outputs="numbers",
        continuous=["age"],
        width=3,
        rank=2,
    ).eval()
    # The two standardise alike but for the prediction, which all rows have.
    alone.critic.load_state_dict(gapped.fair.critic.state_dict())
    found = gapped.fair.eval()
    found.sampling = "epochs"
    whole = found(torch.tensor(U), {"age": GAPPED_AGE})
    expected = alone(torch.tensor(U[known]), {"age": AGE[known]})
    assert_allclose(whole.item(), expected.item(), rtol=EXACT)
