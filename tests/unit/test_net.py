"""Fair networks: what goes in, what comes out, and what is refused."""

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

torch = pytest.importorskip("torch")

import fferm  # noqa: E402 - after torch
from fferm import (  # noqa: E402
    FairNetClassifier,
    LargeShift,
    SmallShift,
    audit,
    tradeoff_curve,
)
from fferm.data.rows import FitInput  # noqa: E402
from fferm.datasets import make_biased  # noqa: E402
from fferm.errors import (  # noqa: E402
    CollapseWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingSensitiveError,
    NonFiniteError,
    PersistenceError,
    StackingWarning,
)
from fferm.metrics import violation  # noqa: E402
from fferm.solvers import Result  # noqa: E402

FAST = {"hidden": (16,), "max_epochs": 8, "batch_size": 32, "random_state": 0}
FAST |= {"learning_rate": 0.01, "fairness_weight": 1.0}


@pytest.fixture(scope="module")
def data():
    return make_biased(600, random_state=0)


def fit(data, X=None, y=None, **options):
    model = FairNetClassifier(**{**FAST, **options})
    return model.fit(
        data.X if X is None else X,
        data.y if y is None else y,
        sensitive_features=data.sensitive_features,
    )


def gap(model, data):
    decided = model.predict(data.X_test)
    return violation(
        data.y_test, decided, sensitive_features=data.sensitive_features_test
    )


def same(one, other):
    """Whether two models have the same network, bit for bit."""
    pairs = zip(
        one.module_.state_dict().values(),
        other.module_.state_dict().values(),
        strict=True,
    )
    return all(torch.equal(a, b) for a, b in pairs)


class Small(torch.nn.Sequential):
    def __init__(self, n_features, n_classes):
        super().__init__(torch.nn.Linear(n_features, n_classes))


class Unstackable(torch.nn.Module):
    """Looks at the value of a number, which vmap cannot."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.linear = torch.nn.Linear(n_features, n_classes)

    def forward(self, x):
        logits = self.linear(x)
        return logits if logits.sum().item() < 1e9 else -logits


def test_a_larger_weight_is_fairer():
    data = make_biased(1500, random_state=0)
    plain, fair = (fit(data, fairness_weight=w, max_epochs=20) for w in (0, 20))
    assert gap(fair, data) < gap(plain, data) - 0.1
    assert plain.score(data.X_test, data.y_test) > 0.65
    assert fair.dual_.shape == (1, 2, 2)
    assert fair.groups_.tolist() == plain_groups(data)
    assert fair.result_ is Result.schedule_completed
    assert fair.n_iter_ == len(fair.history_) == 20
    assert fair.fairness_weight_ == 20


def plain_groups(data):
    return sorted(data.sensitive_features.iloc[:, 0].astype(str).unique())


def test_the_same_seed_gives_the_same_network_and_leaves_torchs_own_alone(data):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, other = fit(data), fit(data)
    assert same(one, other)
    assert torch.equal(torch.rand(3), expected)
    assert not same(one, fit(data, random_state=1))


FORMS = {
    "pandas": pd.DataFrame,
    "polars": lambda X: pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])]),
    "csr": sp.csr_array,
    "float32": lambda X: X.astype(np.float32).astype(np.float64),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_features_of_any_form_give_the_same_network(form, data):
    X = np.round(data.X * 4) / 4  # exact in any precision
    reference = fit(data, X, module=Small)
    model = fit(data, FORMS[form](X), module=Small)
    assert same(model, reference)
    assert_allclose(model.predict_proba(FORMS[form](X)), reference.predict_proba(X))


def test_three_classes_and_text_labels_come_out_as_they_went_in():
    data = make_biased(300, n_classes=3, random_state=0)
    y = np.array(["a", "b", "c"])[data.y]
    model = fit(data, y=y)
    assert model.predict_proba(data.X).shape == (len(y), 3)
    assert set(model.predict(data.X)) <= {"a", "b", "c"}


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_one_logit_stands_for_two_classes(n_outputs, data):
    model = fit(data, module=torch.nn.Linear(data.X.shape[1], n_outputs))
    assert model.decision_function(data.X).shape == (len(data.X),)
    assert_allclose(model.predict_proba(data.X).sum(axis=1), 1)


def test_a_module_that_came_as_an_instance_stays_as_it_was(data):
    module = torch.nn.Linear(data.X.shape[1], 2)
    before = module.weight.detach().clone()
    model = fit(data, module=module)
    assert torch.equal(module.weight, before)
    assert not torch.equal(model.module_.weight, before.double())


def test_each_network_of_a_stack_trains_as_it_would_alone(data):
    weights = [0.0, 1.0, 10.0]
    given = FitInput(data.X, data.y, data.sensitive_features)
    path = list(FairNetClassifier(**FAST, dtype="float64").fit_path(given, weights))
    for weight, model in zip(weights, path, strict=True):
        alone = fit(data, fairness_weight=weight, dtype="float64")
        assert model.fairness_weight == weight
        assert_allclose(
            model.decision_function(data.X), alone.decision_function(data.X), atol=1e-7
        )


def test_dropout_draws_alike_in_a_stack_and_alone(data):
    module = torch.nn.Sequential(
        torch.nn.Linear(data.X.shape[1], 8),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(8, 2),
    )
    given = FitInput(data.X, data.y, data.sensitive_features)
    options = {**FAST, "module": module, "dtype": "float64"}
    path = list(FairNetClassifier(**options).fit_path(given, [0.5, 1.0]))
    alone = fit(data, module=module, dtype="float64", fairness_weight=1.0)
    assert_allclose(
        path[1].decision_function(data.X), alone.decision_function(data.X), atol=1e-7
    )


def test_a_module_that_vmap_refuses_trains_one_after_another_and_says_so(data):
    given = FitInput(data.X, data.y, data.sensitive_features)
    model = FairNetClassifier(**FAST, module=Unstackable)
    with pytest.warns(StackingWarning, match=r"not support Unstackable .* one after"):
        path = list(model.fit_path(given, [0.0, 1.0]))
    assert same(path[1], fit(data, module=Unstackable, fairness_weight=1.0))


def test_a_curve_trains_and_measures_every_weight(data):
    curve = tradeoff_curve(
        FairNetClassifier(**FAST),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 3, 30],
    )
    train = curve.records.query("split == 'train'")
    assert train["soft_violation"].is_monotonic_decreasing
    assert audit(
        curve.select(max_violation=1.0),
        data.X_test,
        data.y_test,
        sensitive_features=data.sensitive_features_test,
    ).frame.shape[0]


def test_a_bound_on_the_violation_is_kept_on_held_out_rows():
    data = make_biased(1500, random_state=0)
    options = {"max_violation": 0.35, "fairness_weight": None, "max_epochs": 5}
    model = fit(data, confidence=None, **options)
    assert model.feasible_
    assert model.violation_ <= 0.35
    assert model.fairness_weight_ > 0
    tested = fit(data, confidence=0.8, **options)
    assert tested.feasible_
    assert tested.fairness_weight_ > model.fairness_weight_


ROBUST = {
    "small shift": {"uncertainty": SmallShift(0.01)},
    "large shift": {"uncertainty": LargeShift(0.01), "divergence": "jensen_shannon"},
    "sufficiency": {"notion": "sufficiency"},
}


@pytest.mark.parametrize("name", ROBUST)
def test_penalties_without_a_linear_dual_train_and_sgda_refuses_them(name, data):
    plain = fit(data, **ROBUST[name], fairness_weight=0.01)
    fair = fit(data, **ROBUST[name], fairness_weight=10.0)
    assert fair.history_[-1]["penalty"] < 0.7 * plain.history_[-1]["penalty"]
    with pytest.raises(InvalidParameterError, match="solver='sgda' needs a penal"):
        fit(data, **ROBUST[name], solver="sgda")


def test_both_solvers_come_to_the_same_penalty(data):
    plain, *models = (
        fit(data, solver=solver, fairness_weight=weight, max_epochs=20)
        for solver, weight in (("sgda", 0.01), ("sgda", 3.0), ("semi_stochastic", 3.0))
    )
    found = [model.history_[-1] for model in models]
    assert not same(*models)
    assert found[0]["objective"] == pytest.approx(found[1]["objective"], rel=0.02)
    last = plain.history_[-1]
    assert last["loss"] + 3 * last["penalty"] > 1.1 * found[0]["objective"]


def test_passes_may_be_set(data):
    first, again, other = (
        fit(data, solver="semi_stochastic", refresh_every=n, max_epochs=2)
        for n in (1, 1, 20)
    )
    assert same(first, again)
    assert not same(first, other)


def test_the_penalty_can_be_taken_on_other_rows(data):
    options = {**FAST, "fairness_weight": 20.0, "max_epochs": 20}
    other = (data.X_test, data.sensitive_features_test)
    model = FairNetClassifier(**options).fit(data.X, data.y, penalty_data=other)
    assert gap(model, data) < gap(fit(data, fairness_weight=0), data) - 0.1
    with pytest.raises(InvalidParameterError, match="Use early_stopping='training'"):
        FairNetClassifier(**options, early_stopping="validation").fit(
            data.X, data.y, penalty_data=other
        )


@pytest.mark.parametrize("batch_size", [1, 7, 10_000])
def test_batches_of_any_size_train(batch_size, data):
    model = fit(data, batch_size=batch_size, max_epochs=1)
    assert np.isfinite(model.predict_proba(data.X)).all()


def test_rows_without_a_group_train_the_loss_only(data):
    known = np.arange(len(data.y)) % 3 > 0
    sensitive = data.sensitive_features.iloc[:, 0].astype(object).to_numpy().copy()
    sensitive[~known] = None
    # A feature that tells the label of these rows and is 0 in all others.
    X = data.X.copy()
    X[:, 0] = np.where(known, 0, 6 * data.y - 3)
    plain, fair = (
        FairNetClassifier(**{**FAST, "fairness_weight": weight, "max_epochs": 20})
        for weight in (0, 20)
    )
    plain.fit(X, data.y)
    with pytest.warns(fferm.errors.MissingGroupWarning, match="left out of the penal"):
        fair.fit(X, data.y, sensitive_features=sensitive)
    assert fair.groups_.size == 2
    assert fair.score(X[~known], data.y[~known]) > 0.95
    gaps = [
        violation(None, model.predict(X[known]), sensitive_features=sensitive[known])
        for model in (plain, fair)
    ]
    assert gaps[1] < gaps[0] - 0.1


@pytest.mark.parametrize(
    ("solver", "atol"),
    # The dual counts members of groups, so it does not move quite alike.
    [("sgda", 0.02), ("semi_stochastic", 1e-9)],
)
def test_integer_weights_are_repetitions(solver, atol, data):
    X, y, s = data.X[:60], data.y[:60], data.sensitive_features.iloc[:60, 0].to_numpy()
    times = 1 + np.arange(60) % 3
    options = {**FAST, "batch_size": 1000, "max_epochs": 30, "solver": solver}
    weighted = FairNetClassifier(**options).fit(
        X, y, sensitive_features=s, sample_weight=times
    )
    repeated = FairNetClassifier(**options).fit(
        np.repeat(X, times, axis=0),
        np.repeat(y, times),
        sensitive_features=np.repeat(s, times),
    )
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=atol)


def objective_on_held_out(model, data):
    """Return loss and penalty of a network on the rows that stop its training."""
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = model._prepare(given).watched.problem
    score = model.decision_function(problem.X)
    logits = np.column_stack([np.zeros_like(score), score])
    return problem.loss(logits)[0] + problem.fairness(logits)[0]


def test_early_stopping_keeps_the_best_network(data):
    model = fit(
        data, early_stopping="validation", patience=2, max_epochs=100, learning_rate=0.1
    )
    judged = [record["validation_objective"] for record in model.history_]
    assert model.result_ is Result.nothing_gained
    assert model.n_iter_ < 100
    assert int(np.argmin(judged)) < len(judged) - 1
    assert objective_on_held_out(model, data) == pytest.approx(min(judged))
    objective = fit(data, early_stopping="training", patience=1, max_epochs=200)
    assert objective.result_ is Result.nothing_gained
    assert "validation_objective" not in objective.history_[0]


@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")
def test_class_weights_move_decisions_as_asked():
    data = make_biased(600, random_state=1)
    rare = np.flatnonzero(data.y == 1)[::6]
    kept = np.sort(np.concatenate([np.flatnonzero(data.y == 0), rare]))
    X, y = data.X[kept], data.y[kept]
    options = {**FAST, "fairness_weight": 0}
    rates = [
        FairNetClassifier(**options, class_weight=weight).fit(X, y).predict(X).mean()
        for weight in (None, "balanced", {1: 12.0})
    ]
    assert rates[0] < rates[1] < rates[2]


def test_the_schedule_sets_the_learning_rate(data):
    rates = {
        name: [r["learning_rate"] for r in fit(data, schedule=name).history_]
        for name in ("constant", "linear", "cosine")
    }
    assert set(rates["constant"]) == {0.01}
    assert rates["linear"][-1] < 0.001
    assert np.all(np.diff(rates["cosine"]) < 0)
    own = fit(data, schedule=lambda done: 2.0).history_
    assert own[0]["learning_rate"] == pytest.approx(0.02)


def test_callbacks_see_each_epoch_and_may_stop(data):
    seen = []

    def stop(record):
        seen.append(record["iteration"])
        return record["iteration"] >= 2

    with pytest.warns(fferm.errors.ConvergenceWarning, match="A callback asked"):
        model = fit(data, callbacks=[stop])
    assert seen == [0, 1, 2]
    assert model.n_iter_ == 3
    assert model.result_ is Result.stopped_by_callback


def test_optimizers_by_name_and_of_the_users_own(data):
    def momentum(parameters):
        return torch.optim.SGD(parameters, lr=0.05)

    kinds = ("adamw", "adam", "sgd", momentum)
    models = [fit(data, optimizer=kind, schedule="constant") for kind in kinds]
    for model in models:
        assert model.score(data.X, data.y) > 0.6
    assert not any(same(*pair) for pair in itertools.combinations(models, 2))
    rates = [model.history_[0]["learning_rate"] for model in models]
    assert rates == [0.01, 0.01, 0.01, 0.05]  # one's own has its own
    assert not same(models[0], fit(data, schedule="constant", weight_decay=0.5))
    with pytest.raises(InvalidTypeError, match="returned a NoneType"):
        fit(data, optimizer=lambda parameters: None)


def test_warm_start_goes_on_where_the_last_fit_ended(data):
    model = fit(data, warm_start=True, max_epochs=3)
    first = model.history_[0]["loss"]
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert model.history_[0]["loss"] < first
    with pytest.raises(InvalidInputError, match="warm_start needs"):
        model.fit(data.X[:, :2], data.y, sensitive_features=data.sensitive_features)


def test_cloning_and_pickling_keep_everything(data):
    model = fit(data, module=Small)
    assert clone(model).get_params()["module"] is Small
    back = pickle.loads(pickle.dumps(model))
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))


def test_a_progress_bar_is_shown_where_asked_for(data, capsys):
    fit(data, verbose=1, max_epochs=2)
    assert "2/2" in capsys.readouterr().err


class KilledError(Exception):
    pass


def kill_after(n_epochs):
    def callback(record):
        if record["iteration"] + 1 >= n_epochs:
            raise KilledError

    return callback


RESUMED = {
    "default": {},
    "robust": {"uncertainty": SmallShift(0.01)},
    "early stopping": {"early_stopping": "validation"},
    "dropout": {"module": "dropout"},
    "any seed": {"random_state": None},
    "single precision": {"dtype": "float32"},
}


def dropout_net(n_features, n_classes):
    return torch.nn.Sequential(
        torch.nn.Linear(n_features, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(8, n_classes),
    )


@pytest.mark.parametrize("name", RESUMED)
def test_a_killed_run_resumes_to_the_same_network_bit_for_bit(name, data, tmp_path):
    options = dict(RESUMED[name])
    if "module" in options:
        options["module"] = dropout_net
    with pytest.raises(KilledError):
        fit(data, **options, checkpoint=tmp_path, callbacks=[kill_after(4)])
    resumed = fit(data, **options, checkpoint=tmp_path)
    assert len(resumed.history_) == resumed.n_iter_
    if name == "any seed":  # known by the file alone
        assert same(resumed, fit(data, **options, checkpoint=tmp_path))
        return
    whole = fit(data, **options)
    assert same(resumed, whole)
    assert [r["objective"] for r in resumed.history_] == [
        r["objective"] for r in whole.history_
    ]


def test_a_process_that_is_killed_resumes_in_another(tmp_path):
    code = """
import os, sys, numpy as np
from fferm import FairNetClassifier
from fferm.datasets import make_biased
data = make_biased(600, random_state=0)
def stop(record):
    if sys.argv[2] == "kill" and record["iteration"] >= 3:
        os._exit(9)
model = FairNetClassifier(
    hidden=(16,), max_epochs=8, batch_size=32, learning_rate=0.01, random_state=0,
    fairness_weight=1, checkpoint=sys.argv[1], callbacks=[stop],
)
model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
np.save(sys.argv[1] + "/out.npy", model.predict_proba(data.X_test))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run([*command, "kill"], check=False).returncode == 9
    assert list(tmp_path.glob("*.pt"))
    subprocess.run([*command, "on"], check=True)
    data = make_biased(600, random_state=0)
    whole = fit(data).predict_proba(data.X_test)
    assert np.load(tmp_path / "out.npy").tobytes() == whole.tobytes()


def test_a_curve_that_was_killed_goes_on_and_other_data_begin_anew(data, tmp_path):
    given = FitInput(data.X, data.y, data.sensitive_features)
    options = {**FAST, "checkpoint": tmp_path}
    with pytest.raises(KilledError):
        list(
            FairNetClassifier(**options, callbacks=[kill_after(3)]).fit_path(
                given, [0.0, 1.0]
            )
        )
    resumed = list(FairNetClassifier(**options).fit_path(given, [0.0, 1.0]))
    whole = list(FairNetClassifier(**FAST).fit_path(given, [0.0, 1.0]))
    assert all(same(*pair) for pair in zip(resumed, whole, strict=True))
    fit(data, X=data.X + 1, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_a_damaged_checkpoint_is_named(data, tmp_path):
    fit(data, checkpoint=tmp_path, max_epochs=1)
    (path,) = tmp_path.glob("*.pt")
    whole = torch.load(path, weights_only=True)
    less = {name: part for name, part in whole.items() if name != "optimizer"}
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PersistenceError, match="Delete it to train from the beginning"):
        fit(data, checkpoint=tmp_path, max_epochs=1)
    for content in (less, [1, 2]):
        torch.save(content, path)
        with pytest.raises(PersistenceError, match="Delete it to train from the begin"):
            fit(data, checkpoint=tmp_path, max_epochs=1)


def test_a_saved_network_predicts_the_same(data, tmp_path):
    model = fit(data, class_weight={0: 1.0, 1: 2.0})
    fferm.save(model, tmp_path / "net.fferm")
    back = fferm.load(tmp_path / "net.fferm")
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))
    assert back.get_params() == model.get_params()
    assert back.history_ == model.history_


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("own", [None, Small], ids=["default", "own"])
def test_a_saved_network_that_is_not_finite_is_named(number, own, data, tmp_path):
    model = fit(data, module=own, max_epochs=1)
    with torch.no_grad():
        next(model.module_.parameters())[0, 0] = number
    fferm.save(model, tmp_path / "net")
    with pytest.raises(PersistenceError, match="module_ must hold finite numbers"):
        fferm.load(tmp_path / "net", module=own)


def test_a_saved_edge_of_bins_that_is_not_finite_is_named(data, tmp_path):
    model = fit(data, max_epochs=1)
    model.module_[0].low[0, 0] = float("-inf")
    fferm.save(model, tmp_path / "net")
    with pytest.raises(PersistenceError, match="module_ must hold finite numbers"):
        fferm.load(tmp_path / "net")


def test_a_network_that_returns_nan_for_a_row_is_named(data):
    model = fit(data, max_epochs=1)
    with torch.no_grad():
        model.module_[1].weight[:] = torch.finfo(model.module_[1].weight.dtype).max
    with pytest.raises(InvalidInputError, match="returns NaN or infinity for some"):
        model.predict(data.X)


class Masked(Small):
    """Has a buffer of infinity, as masks of attention do."""

    def __init__(self, n_features, n_classes):
        super().__init__(n_features, n_classes)
        self.register_buffer("mask", torch.tensor([float("-inf")]))


def test_a_users_module_may_have_infinite_buffers(data, tmp_path):
    model = fit(data, module=Masked, max_epochs=1)
    fferm.save(model, tmp_path / "net")
    back = fferm.load(tmp_path / "net", module=Masked)
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))


@pytest.mark.parametrize("hidden", [(10**6, 10**6), (), 5], ids=str)
def test_the_widths_of_a_saved_network_are_those_of_its_parameters(
    hidden, data, tmp_path
):
    model = fit(data, max_epochs=1).set_params(hidden=hidden)
    fferm.save(model, tmp_path / "net")
    back = fferm.load(tmp_path / "net")
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))


def test_a_saved_network_for_other_features_is_refused(data, tmp_path):
    model = fit(data, max_epochs=1)
    model.n_features_in_ = 10**9
    fferm.save(model, tmp_path / "net")
    with pytest.raises(PersistenceError, match="does not take 1000000000 features"):
        fferm.load(tmp_path / "net")


def test_a_saved_network_of_very_many_layers_is_refused(data, tmp_path):
    model = fit(data, max_epochs=1)
    layers = [torch.nn.Linear(1, 1) for _ in range(1001)]
    model.module_ = torch.nn.Sequential(model.module_[0], *layers)
    fferm.save(model, tmp_path / "net")
    with pytest.raises(PersistenceError, match="1001 layers are more than 1000"):
        fferm.load(tmp_path / "net")


@pytest.mark.parametrize("n_classes", [0, 1, 3])
def test_a_module_for_other_classes_is_named(n_classes, data, tmp_path):
    model = fit(data, module=Small, max_epochs=1)
    own = torch.nn.Sequential(*model.module_)
    model.classes_ = np.arange(n_classes)
    fferm.save(model, tmp_path / "net")
    loaded = fferm.load(tmp_path / "net", module=own)
    with pytest.raises(InvalidInputError, match=f"module must have {n_classes} output"):
        loaded.predict(data.X)


def test_a_module_of_the_users_own_is_passed_when_loading(data, tmp_path):
    path = tmp_path / "net.fferm"
    model = fit(data, module=Small)
    fferm.save(model, path)
    with pytest.raises(PersistenceError, match=r"your own, Small, and a file holds no"):
        fferm.load(path)
    with pytest.raises(PersistenceError, match="do not fit Unstackable"):
        fferm.load(path, module=Unstackable)
    back = fferm.load(path, module=Small)
    assert_array_equal(back.predict_proba(data.X), model.predict_proba(data.X))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"module": 3}, InvalidTypeError, "module must be None, a torch"),
        ({"module": lambda n, m: 3}, InvalidTypeError, "returned an? int"),
        ({"module": torch.nn.Linear(99, 2)}, InvalidInputError, "cannot be called on"),
        (
            {"module": lambda n, m: torch.nn.Linear(n, 5)},
            InvalidInputError,
            r"there are 2 classes; got \(2, 5\)",
        ),
        ({"module": torch.nn.ReLU()}, InvalidParameterError, "nothing to train"),
        ({"hidden": 64}, InvalidParameterError, "hidden must be a list of widths"),
        (
            {"hidden": (0,)},
            InvalidParameterError,
            "hidden must be an integer of at least 1; got 0",
        ),
        ({"solver": "lbfgs"}, InvalidParameterError, "solver must be 'auto'"),
        ({"batch_size": 0}, InvalidParameterError, "batch_size must be"),
        ({"max_epochs": 0}, InvalidParameterError, "max_epochs must be"),
        ({"learning_rate": 0}, InvalidParameterError, "learning_rate must be"),
        ({"weight_decay": -1}, InvalidParameterError, "weight_decay must be"),
        ({"optimizer": "newton"}, InvalidParameterError, "'adam', 'adamw', 'sgd'"),
        (
            {"schedule": "steps"},
            InvalidParameterError,
            "'constant', 'cosine', 'linear'",
        ),
        ({"early_stopping": True}, InvalidParameterError, "'training' or 'validation"),
        ({"patience": 0}, InvalidParameterError, "patience must be"),
        ({"class_weight": "even"}, InvalidParameterError, "must be None, 'balanced'"),
        ({"class_weight": {7: 1}}, InvalidParameterError, "from labels of y"),
        ({"callbacks": [3]}, InvalidTypeError, "functions of a record"),
        ({"callbacks": 3}, InvalidTypeError, "must be a list of functions"),
        ({"device": "tpu"}, InvalidParameterError, "device must be .* got 'tpu'"),
        ({"device": "meta"}, InvalidParameterError, "dual needs double"),
        ({"dtype": "half"}, InvalidParameterError, "dtype must be"),
        ({"learning_rate": 1e30, "optimizer": "sgd"}, NonFiniteError, "Lower learning"),
    ],
    # The address of a function would be another in every process.
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_bad_parameters_are_refused_with_advice(options, error, words, data):
    with pytest.raises(error, match=words):
        fit(data, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused(data):
    with pytest.raises(InvalidParameterError, match="PyTorch finds 0 CUDA devices"):
        fit(data, device="cuda")


def test_fairness_without_groups_is_refused(data):
    with pytest.raises(MissingSensitiveError, match="set fairness_weight=0"):
        FairNetClassifier(**FAST).fit(data.X, data.y)


def test_a_collapsed_network_warns(data):
    with pytest.warns(CollapseWarning, match="for every training row"):
        fit(data, fairness_weight=0, class_weight={0: 1e6, 1: 1e-6})


@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")
def test_the_default_learning_rate_goes_with_the_root_of_the_batch_size(data):
    rates = [
        fit(
            data, learning_rate=None, schedule="constant", batch_size=size, max_epochs=1
        ).history_[0]["learning_rate"]
        for size in (4, 256)
    ]
    assert rates == pytest.approx([1e-3 / 8, 1e-3])


def test_features_beyond_single_precision_are_refused():
    data = make_biased(200, random_state=0)
    model = FairNetClassifier(**FAST | {"max_epochs": 1, "dtype": "float32"})
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    X = np.array(data.X[:3])
    X[0, 0] = -1e39
    with pytest.raises(
        InvalidInputError, match=r"values above 3\.4e\+38, which single"
    ):
        model.predict_proba(X)
    with pytest.raises(
        InvalidInputError, match=r"values above 3\.4e\+38, which single"
    ):
        model.predict_proba(sp.csr_matrix(X))


@pytest.mark.filterwarnings("ignore::fferm.errors.CollapseWarning")  # two epochs
def test_a_batch_norm_is_never_given_a_row_that_is_left_over():
    data = make_biased(200, random_state=0)
    n_rows = len(data.y)
    size = next(b for b in range(8, n_rows) if n_rows % b == 1)
    module = torch.nn.Sequential(
        torch.nn.Linear(data.X.shape[1], 4),
        torch.nn.BatchNorm1d(4),
        torch.nn.Linear(4, 2),
    )
    options = {"batch_size": size, "max_epochs": 2, "random_state": 0}
    model = FairNetClassifier(module=module, **options)
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert model.result_ is Result.schedule_completed
    count = model.module_[1].num_batches_tracked
    assert count == 2 * (n_rows // size)
