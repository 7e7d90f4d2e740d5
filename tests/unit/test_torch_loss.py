"""The fairness loss in a training loop: what moves, what stays, what is kept."""

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fferm import SmallShift
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics import soft_violation
from fferm.penalty.objective import make_objective, table_penalty
from fferm.tables import joint

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812 - after torch

from fferm.torch import (  # noqa: E402
    CriticFairnessLoss,
    DualSteps,
    FairnessLoss,
    SemiStochasticFairnessLoss,
)

N = 400


def make_data(seed=0, n_groups=2):
    """Return features that tell the group, labels that depend on it, and groups."""
    rng = np.random.default_rng(seed)
    s = rng.integers(0, n_groups, N)
    y = (rng.random(N) < 0.25 + 0.5 * (s == 0)).astype(np.int64)
    X = np.column_stack([s + 0.3 * rng.normal(size=N), y + rng.normal(size=N)])
    return tuple(map(torch.tensor, (X, y, s)))


def make_model(seed=0, n_outputs=2):
    torch.manual_seed(seed)
    return torch.nn.Linear(2, n_outputs).double()


def train(fair, weight, *, n_epochs=15, batch=20, optimizer=None, after=None):
    X, y, s = make_data()
    model = make_model()
    parameters = [*model.parameters(), *fair.parameters()]
    optimizer = (optimizer or torch.optim.Adam)(parameters, lr=0.03)
    for epoch in range(n_epochs):
        order = torch.tensor(np.random.default_rng(epoch).permutation(N))
        for i in order.split(batch):
            logits = model(X[i])
            loss = F.cross_entropy(logits, y[i]) + weight * fair(logits, s[i], y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if after is not None:
            after(model)
    return model


def gap(model):
    X, y, s = make_data()
    return violation_of(torch.softmax(model(X), dim=1).detach().numpy(), y, s)


def violation_of(prob, y, s):
    return soft_violation(y.numpy(), prob, classes=[0, 1], sensitive_features=s.numpy())


OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "decaying": lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.1),
}


def test_without_a_weight_the_model_is_unfair():
    assert gap(train(FairnessLoss.from_labels(*make_data()[1:]), 0.0)) > 0.3


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("batch", [1, 20, N])
def test_any_optimizer_makes_the_model_fair_at_any_batch_size(batch, optimizer):
    n_epochs = {1: 1, 20: 10, N: 120}[batch]
    fair = FairnessLoss.from_labels(*make_data()[1:])
    model = train(fair, 20.0, n_epochs=n_epochs, batch=batch, optimizer=optimizer)
    assert gap(model) < 0.15


def test_a_dual_that_follows_keeps_the_model_from_swinging():
    # A steep penalty, a fast model: a dual that lags behind drives it to and fro.
    largest = {}
    for window in (DualSteps().window, math.inf):
        fair = FairnessLoss.from_labels(
            *make_data()[1:], dual_steps=DualSteps(window=window)
        )
        gaps = []
        train(
            fair,
            20.0,
            n_epochs=16,
            after=lambda model, gaps=gaps: gaps.append(gap(model)),
        )
        largest[window] = max(gaps[4:])
    assert largest[DualSteps().window] < 0.12
    assert largest[math.inf] > 0.2


def test_the_dual_moves_the_same_under_any_optimizer_that_leaves_the_model():
    tables = []
    for optimizer in OPTIMIZERS.values():
        fair = FairnessLoss.from_labels(*make_data()[1:])
        X, _, s = make_data()
        held = optimizer([*fair.parameters(), make_model().weight], lr=0.1)
        for i in torch.arange(N).split(8):
            held.zero_grad()
            (3.0 * fair(X[i].clone().requires_grad_(), s[i])).backward()
            held.step()
        tables.append(fair.dual_variable.clone())
    assert all(torch.equal(tables[0], other) for other in tables[1:])
    assert tables[0].abs().max() > 0.1


def test_the_dual_reaches_its_optimum_for_a_model_that_stays():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s, dual_steps=DualSteps(window=math.inf))
    for _ in range(20):
        for i in torch.randperm(N, generator=torch.Generator().manual_seed(0)).split(8):
            fair(X[i], s[i])
    found = fair.diagnostics()
    prob = torch.softmax(X, dim=1).numpy()
    table = joint(prob, s.numpy(), 2)
    assert found.divergence == pytest.approx(
        table_penalty(make_objective("kl"), table[None])[0]
    )
    assert found.violation == pytest.approx(violation_of(prob, y, s))
    assert found.n_samples == 20 * N
    assert found.dual_distance < 0.02
    assert 0 <= found.gap < 0.01 * found.divergence


def test_diagnostics_start_anew_unless_they_are_told_not_to():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    assert math.isnan(fair.diagnostics().divergence)
    fair(X, s)
    assert fair.diagnostics(reset=False).n_samples == N
    assert fair.diagnostics().n_samples == N
    assert fair.diagnostics().n_samples == 0


def test_looking_at_the_loss_moves_nothing():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    before = copy.deepcopy(fair.state_dict())
    with torch.no_grad():
        fair(X, s)
    fair.eval()
    fair(X.requires_grad_(), s)
    after = fair.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_accumulated_batches_train_as_the_batch_that_they_make():
    X, y, s = make_data()
    found = []
    for size in (40, 10):
        steps = DualSteps(accumulate=40 // size)
        fair, model = FairnessLoss.from_labels(y, s, dual_steps=steps), make_model()
        optimizer = torch.optim.SGD([*model.parameters(), *fair.parameters()], lr=0.5)
        for begin in range(0, N, 40):
            optimizer.zero_grad()
            for i in torch.arange(begin, begin + 40).split(size):
                logits = model(X[i])
                loss = F.cross_entropy(logits, y[i]) + 3 * fair(logits, s[i])
                (loss * size / 40).backward()
            optimizer.step()
        found.append((model.weight.detach(), fair.dual_variable.detach()))
    for whole, parts in zip(*found, strict=True):
        assert_allclose(parts, whole, rtol=0, atol=1e-12)


def test_a_state_dict_goes_on_where_it_was_saved(tmp_path):
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s, divergence="js")
    fair(X[:50], s[:50])
    torch.save(fair.state_dict(), tmp_path / "fair.pt")
    other = FairnessLoss.from_labels(y, s, divergence="js")
    other.load_state_dict(torch.load(tmp_path / "fair.pt", weights_only=True))
    for loss in (fair, other):
        loss(X[50:90], s[50:90])
    assert torch.equal(fair.dual_variable, other.dual_variable)
    assert fair(X, s).item() == other(X, s).item()


def frame(name, values):
    return {name: np.array(values)[make_data()[2].numpy()]}


LOSSES = [FairnessLoss, SemiStochasticFairnessLoss, CriticFairnessLoss]
# Made from other labels or with other options, of the same shape.
OTHERS = {
    "groups": (frame("sex", ["f", "x"]), {}, r"\('f', 'm'\).*\('f', 'x'\)"),
    "columns": (frame("race", ["f", "m"]), {}, "sex.*race"),
    "classes": (None, {"classes": ["no", "yes"]}, r"\['0', '1'\].*\['no', 'yes'\]"),
    "divergence": (None, {"divergence": "js"}, r"KL\(\).*JensenShannon\(\)"),
    "notion": (None, {"notion": "equal_opportunity"}, "everyone.*y=1"),
}


@pytest.mark.parametrize("kind", LOSSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("other", OTHERS)
def test_the_state_of_another_loss_is_refused_before_it_is_loaded(kind, other):
    y = make_data()[1]
    groups, options, both = OTHERS[other]
    sex = frame("sex", ["f", "m"])
    if "classes" in options:
        y = np.array(["no", "yes"])[y]
    one = kind.from_labels(make_data()[1], sex)
    another = kind.from_labels(y, groups or sex, **options)
    before = copy.deepcopy(another.state_dict())
    with torch.no_grad():
        for number in one.state_dict().values():
            if isinstance(number, torch.Tensor) and number.is_floating_point():
                number += 0.125
    holder = torch.nn.ModuleDict({"fair": another})  # also as a part of a model
    state = torch.nn.ModuleDict({"fair": one}).state_dict()
    match = f"state is of a loss for .*{both}.* Make the loss as the other was made"
    for load in (
        lambda: another.load_state_dict(one.state_dict()),
        lambda: another.load_state_dict(one.state_dict(), strict=False),
        lambda: holder.load_state_dict(state),
    ):
        with pytest.raises(InvalidInputError, match=match):
            load()
    for name, value in another.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, before[name])
    another.load_state_dict(before)


def test_a_state_of_another_shift_is_refused():
    _, y, s = make_data()
    one, other = (
        SemiStochasticFairnessLoss.from_labels(y, s, uncertainty=SmallShift(radius))
        for radius in (0.01, 0.02)
    )
    with pytest.raises(InvalidInputError, match=r"radius=0.01.*radius=0.02"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("kind", LOSSES[:2], ids=lambda kind: kind.__name__)
def test_a_state_of_other_group_weights_is_refused(kind):
    _, y, s = make_data()
    share, equal, again = (
        kind.from_labels(y, s, group_weights=name)
        for name in ("share", "equal", "equal")
    )
    again.load_state_dict(equal.state_dict())
    words = r"this loss is .*group_weights='equal'"
    with pytest.raises(InvalidInputError, match=words):
        equal.load_state_dict(share.state_dict())
    with pytest.raises(InvalidInputError, match=r"loss for .*group_weights='equal'.*;"):
        share.load_state_dict(equal.state_dict())


@pytest.mark.parametrize("combinations", [[0, 1, 2], [0, 1, 3]])
def test_a_critic_of_other_combinations_is_refused(combinations):
    def make(present):
        pair = np.resize(present, N)
        sex, race = np.array(["f", "m"])[pair // 2], np.array(["a", "b"])[pair % 2]
        return CriticFairnessLoss.from_labels(y, {"sex": sex, "race": race})

    y = make_data()[1]
    state = make([0, 1, 2]).state_dict()
    if combinations == [0, 1, 2]:
        make(combinations).load_state_dict(state)
        return
    with pytest.raises(InvalidInputError, match=r"\[0, 1, 2\].*\[0, 1, 3\]"):
        make(combinations).load_state_dict(state)


def test_a_state_is_taken_however_it_was_kept(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    fair(X, s)
    torch.save(fair.state_dict(), tmp_path / "fair.pt")
    safetensors.save_file(fair.state_dict(), tmp_path / "fair.safetensors")
    for other, state in (
        # Labels as numbers of another type are the same labels.
        (y.double(), torch.load(tmp_path / "fair.pt", weights_only=True)),
        (y.to(torch.int8), safetensors.load_file(tmp_path / "fair.safetensors")),
        (y, copy.deepcopy(fair.state_dict())),
        (y, pickle.loads(pickle.dumps(fair)).state_dict()),
        (y, torch.compile(fair, backend="aot_eager").state_dict()),
    ):
        again = FairnessLoss.from_labels(other, s)
        unwrapped = {name.removeprefix("_orig_mod."): t for name, t in state.items()}
        again.load_state_dict(unwrapped)
        assert torch.equal(again.dual_variable, fair.dual_variable)


def test_a_state_that_does_not_say_what_it_is_of_needs_leave():
    X, y, s = make_data()
    fair, other = (FairnessLoss.from_labels(y, s) for _ in range(2))
    fair(X, s)
    state = fair.state_dict()
    del state["_extra_state"]
    with pytest.raises(RuntimeError, match="_extra_state"):
        other.load_state_dict(state)
    other.load_state_dict(state, strict=False)
    assert torch.equal(other.dual_variable, fair.dual_variable)


def test_a_copy_moves_by_itself():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    other = copy.deepcopy(fair)
    other(X, s)
    assert fair.dual_variable.abs().max() == 0
    assert other.dual_variable.abs().max() > 0


@pytest.mark.parametrize("convert", ["half", "float", "bfloat16"])
def test_tables_stay_in_double_precision(convert):
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    fair(X, s)
    before = fair.dual_variable.clone()
    holder = torch.nn.ModuleList([fair])
    getattr(holder, convert)()
    assert torch.equal(fair.dual_variable, before)
    assert fair.seen.dtype == fair.dual.prior.dtype == torch.float64
    fair.to("meta")
    assert fair.dual_variable.device.type == "meta"


def test_half_precision_under_autocast_is_close_to_double():
    X, y, s = make_data()
    values = []
    for is_half in (False, True):
        fair, model = FairnessLoss.from_labels(y, s), make_model().float()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_half):
            for i in torch.arange(N).split(20):
                logits = model(X[i].float())
                value = fair(logits, s[i])
        assert logits.dtype == (torch.bfloat16 if is_half else torch.float32)
        assert value.dtype == torch.float32
        value.backward()
        values.append((fair.dual_variable.detach(), model.weight.grad))
    for whole, half in zip(*values, strict=True):
        # bfloat16 keeps 8 bits of a logit.
        assert_allclose(half, whole, rtol=0.05, atol=0.01)


def test_a_scaled_loss_moves_the_dual_no_further():
    X, y, s = make_data()
    tables = []
    for scale in (1.0, 2.0**16):
        fair = FairnessLoss.from_labels(y, s)
        logits = X.clone().requires_grad_()
        (scale * fair(logits, s)).backward()
        tables.append(fair.dual_variable.clone())
    assert torch.equal(*tables)


def test_a_batch_that_is_not_finite_leaves_the_dual_alone():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    fair(X[:20], s[:20])
    before = copy.deepcopy(fair.state_dict())
    broken = X[:20].clone()
    broken[3] = math.nan
    assert math.isnan(fair(broken, s[:20]).item())
    after = fair.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_compiled_loss_is_the_same_in_one_graph():
    X, y, s = make_data()
    found = []
    for is_compiled in (False, True):
        torch._dynamo.reset()
        fair = FairnessLoss.from_labels(y, s, notion="equalized_odds")

        def step(logits, group, label, fair=fair):
            return fair(logits, group, label)

        if is_compiled:
            step = torch.compile(step, backend="aot_eager", fullgraph=True)
        gradients = []
        for i in torch.arange(N).split(100):
            logits = X[i].clone().requires_grad_()
            step(logits, s[i], y[i]).backward()
            gradients.append(logits.grad)
        found.append((torch.cat(gradients), fair.dual_variable.detach()))
    for plain, compiled in zip(*found, strict=True):
        assert_allclose(compiled, plain, rtol=0, atol=1e-12)


def test_many_losses_run_as_one():
    X, y, s = make_data()
    alone = [FairnessLoss.from_labels(y, s) for _ in range(3)]
    together = [FairnessLoss.from_labels(y, s, check=False) for _ in range(3)]
    outputs = [X * scale for scale in (1.0, 2.0, -1.0)]
    pairs = list(zip(alone, outputs, strict=True))
    expected = [fair(out, s).item() for _ in "12" for fair, out in pairs]
    parameters, buffers = torch.func.stack_module_state(together)

    def call(parameters, buffers, output):
        state = (parameters, buffers)
        return torch.func.functional_call(together[0], state, (output, s))

    run = torch.func.vmap(call)
    found = [run(parameters, buffers, torch.stack(outputs)) for _ in range(2)]
    assert_allclose(torch.cat(found), expected, rtol=0, atol=1e-12)
    duals = torch.stack([fair.dual_variable for fair in alone])
    assert_allclose(parameters["dual.variable"], duals, rtol=0, atol=1e-12)


DEGENERATE = {
    "one_group": lambda y, s: s == 0,
    "no_positives": lambda y, s: y == 0,
    "one_row": lambda y, s: torch.arange(N) == 7,
    "nobody": lambda y, s: torch.arange(N) < 0,
}


@pytest.mark.parametrize("notion", ["demographic_parity", "equal_opportunity"])
@pytest.mark.parametrize("kept", DEGENERATE.values(), ids=DEGENERATE)
def test_batches_that_lack_something_are_no_trouble(kept, notion):
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s, notion=notion)
    fair(X, s, y)
    rows = kept(y, s)
    for _ in range(50):
        logits = X[rows].clone().requires_grad_()
        value = fair(logits, s[rows], y[rows])
        value.backward()
        assert math.isfinite(value.item())
        assert bool(torch.isfinite(logits.grad).all())
    assert bool(torch.isfinite(fair.dual_variable).all())
    low, high = fair.dual.lower, fair.dual.upper
    assert bool(((fair.dual_variable >= low) & (fair.dual_variable <= high)).all())


def test_extreme_logits_keep_the_dual_in_its_box():
    _, y, s = make_data()
    for divergence in ("kl", "reverse_kl", "chi2", "tv", "js", "hellinger", "alpha"):
        fair = FairnessLoss.from_labels(y, s, divergence=divergence)
        logits = (1e4 * (2.0 * s - 1)).double().requires_grad_()
        for _ in range(30):
            value = fair(logits, s)
        value.backward()
        assert math.isfinite(value.item())
        assert bool(torch.isfinite(logits.grad).all())
        found, low, high = fair.dual_variable, fair.dual.lower, fair.dual.upper
        assert bool(((found >= low) & (found <= high)).all())
        assert bool((found == high).any())  # where the box holds it


def test_rows_of_unknown_group_add_nothing():
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    fair(X, s)
    fair.eval()
    nobody = torch.full((N,), -1)
    logits = X.clone().requires_grad_()
    value = fair(logits, nobody)
    value.backward()
    assert value.item() == 0
    assert logits.grad.abs().max() == 0
    half = torch.where(torch.arange(N) < N // 2, s, -1)
    expected = fair(X[: N // 2], s[: N // 2]).item() / 2
    assert fair(X, half).item() == pytest.approx(expected)
    training = FairnessLoss.from_labels(y, s)
    training(X, nobody)
    assert training.dual_variable.abs().max() == 0


@pytest.mark.parametrize("sharpness", [1.0, 2.5])
def test_one_logit_two_logits_and_probabilities_say_the_same(sharpness):
    X, y, s = make_data()
    logit = X[:, 1] - X[:, 0]
    prob = torch.softmax(X, dim=1)
    forms = {
        "two": (X, "logits"),
        "one": (logit, "logits"),
        "column": (logit[:, None], "logits"),
        "probabilities": (prob, "probabilities"),
        "probability": (prob[:, 1], "probabilities"),
        "single precision": (X.float(), "logits"),
    }
    values = []
    for output, kind in forms.values():
        fair = FairnessLoss.from_labels(y, s, sharpness=sharpness, outputs=kind)
        fair(output[:99], s[:99])
        values.append(fair(output[99:], s[99:]).item())
    assert_allclose(values, values[0], rtol=2e-5)


def test_sufficiency_is_refused_with_the_name_of_what_can_do_it():
    _, y, s = make_data()
    with pytest.raises(InvalidParameterError, match="Use SemiStochasticFairnessLoss"):
        FairnessLoss.from_labels(y, s, notion="sufficiency")


def test_a_loss_says_what_it_is():
    _, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s, divergence="chi2", notion="equalized_odds")
    assert "Chi2(), equalized_odds, n_groups=2" in repr(fair)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "kind", [FairnessLoss, CriticFairnessLoss, SemiStochasticFairnessLoss]
)
def test_weights_of_a_batch_that_are_none_are_refused(kind, bad):
    X, y, s = make_data()
    weight = torch.ones(N)
    weight[3] = bad
    fair = kind.from_labels(y, s)
    if kind is SemiStochasticFairnessLoss:
        fair.refresh(torch.nn.Identity(), [(X, s)])
    with pytest.raises(
        InvalidInputError, match=r"sample_weight contains .* in 1 of 400"
    ):
        fair(X, s, sample_weight=weight)
    with pytest.raises(InvalidInputError, match="sample_weight must have shape"):
        fair(X, s, sample_weight=weight[:5])
    weight[3] = 0.0
    values = [fair.eval()(X, s, sample_weight=w) for w in (weight, weight.numpy())]
    assert values[0] == values[1]


def test_steps_that_make_no_sense_are_refused():
    for bad in ({"lr": 0.0}, {"window": -1.0}, {"accumulate": 0}):
        with pytest.raises(InvalidParameterError, match="must be positive"):
            DualSteps(**bad)


def test_every_gradient_comes_from_a_look_up():
    # Formulas are not differentiated, so a second derivative by the dual is nowhere.
    X, y, s = make_data()
    fair = FairnessLoss.from_labels(y, s)
    value = fair(X.clone().requires_grad_(), s)
    nodes, seen = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        seen.add(type(node).__name__)
        nodes += [child for child, _ in node.next_functions if child is not None]
    assert not any("Exp" in name or "Log" in name for name in seen)


@pytest.mark.filterwarnings("ignore::fferm.errors.SmallGroupWarning")
def test_many_groups_and_classes_fit_in():
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, 5, N), rng.integers(0, 4, (N, 2))
    for groups, count in (("intersection", 16), ("marginal", 8)):
        fair = FairnessLoss.from_labels(y, s, notion="equalized_odds", groups=groups)
        assert fair.dual_variable.shape == (5, 5, count)
        assert len(fair.groups) == count
        for i in ([0], list(range(N))):
            logits = torch.tensor(rng.normal(size=(len(i), 5)))
            assert math.isfinite(fair(logits, torch.tensor(s[i]), torch.tensor(y[i])))


def test_batches_of_one_group_have_no_violation():
    y, s = torch.tensor([0, 1] * 40), torch.tensor([0, 0, 1, 1] * 20)
    fair = FairnessLoss.from_labels(y, s)
    fair(torch.zeros(4, 2, requires_grad=True), torch.zeros(4, dtype=torch.int64))
    assert math.isnan(fair.diagnostics().violation)
