"""Threads of one process share its warnings, its random numbers and its settings."""

import threading
import traceback
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GridSearchCV

import fferm
from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
)
from fferm.datasets import load_german, make_biased
from fferm.deploy import ParityController, adapt, repair
from fferm.divergences import Alpha
from fferm.errors import (
    CollapseWarning,
    ConvergenceWarning,
    FfermWarning,
    InfeasibleWarning,
    MissingGroupWarning,
    SmallGroupWarning,
    muted,
    warn_user,
)
from fferm.estimators import weight_search
from fferm.penalty.formulas import table_pointer
from fferm.tuning import CrossValidation, tune

torch = pytest.importorskip("torch")
pytest.importorskip("lightgbm")

DATA = make_biased(200, bias=0.8, random_state=0)
X, Y, S = DATA.X, np.asarray(DATA.y), DATA.sensitive_features
TARGET = X[:, 0] + Y
GROUP = S["group"].to_numpy()
GAPS = pd.DataFrame({"group": np.where(np.arange(len(Y)) % 7, GROUP, None)})
FEW = np.where(np.arange(len(Y)) < 3, "few", GROUP)
FRAME = pd.DataFrame(X, columns=[*"abcde"]).assign(
    kind=np.where(X[:, 1] > 0, "high", "low")
)
# No model keeps it, because one class for everyone is not usable.
IMPOSSIBLE = {"max_violation": 0.0, "confidence": None, "random_state": 0}
N_THREADS = 200
# Seconds that a thread waits for another: one that may have to wait for it, and one
# that must come.
MOMENT, LONG = 0.3, 120.0


def linear(s=S, **params):
    weight = None if "max_violation" in params else 3.0
    model = FairLogisticRegression(**{"fairness_weight": weight, **params})
    return model.fit(X, Y, sensitive_features=s)


def boosting(s=S, **params):
    params = {"n_estimators": 4, "n_jobs": 1, "random_state": 0, **params}
    return FairBoostingClassifier(**params).fit(X, Y, sensitive_features=s)


def net(s=S, **params):
    params = {"max_epochs": 1, "hidden": (4,), "random_state": 0, **params}
    return FairNetClassifier(**params).fit(X, Y, sensitive_features=s)


def dropping(n_features, n_classes):
    layers = torch.nn.Linear(n_features, 8), torch.nn.Linear(8, n_classes)
    return torch.nn.Sequential(layers[0], torch.nn.Dropout(0.5), layers[1])


def regressor(**params):
    model = FairRegressor(fairness_weight=1.0, random_state=0, **params)
    return model.fit(X, TARGET, sensitive_features=S)


def scores(model):
    if isinstance(model, FairRegressor):
        return model.predict(X)
    if getattr(model, "predicts_with_groups", False):
        return model.predict_proba(X, sensitive_features=S)
    return model.decision_function(X)


def curve_numbers():
    found = fferm.tradeoff_curve(
        FairLogisticRegression(), X, Y, sensitive_features=S, fairness_weights=[0, 10]
    )
    bands = found.bands().select_dtypes("number").to_numpy()
    chosen = found.choose("knee").fairness_weight
    return np.append(bands, [chosen, found.hypervolume()])


def alternatives_numbers():
    found = fferm.tradeoff_curve(
        FairLogisticRegression(),
        X,
        Y,
        sensitive_features=S,
        fairness_weights=[0, 10],
        max_violation=0.3,
    ).alternatives(max_violation=0.3)
    return found.models.select_dtypes("number").to_numpy()


def tuned_numbers():
    found = tune(
        FairLogisticRegression(),
        X,
        Y,
        sensitive_features=S,
        divergences=["kl"],
        fairness_weights=[1.0, 10.0],
        max_violation=0.0,
        validation=CrossValidation(2),
    )
    return found.records[["accuracy", "violation"]].to_numpy()


def audit_numbers(model, s):
    found = fferm.audit(model, X, Y, sensitive_features=s, n_bootstrap=20)
    return found.frame.select_dtypes("number").to_numpy()


def regression_audit_numbers(model):
    found = fferm.audit_regression(
        model, X, TARGET, sensitive_features=S, n_permutations=0, n_bootstrap=20
    )
    assert str(found)
    return found.frame.select_dtypes("number").to_numpy()


def frame_numbers():
    model = FairLogisticRegression(fairness_weight=1.0)
    return model.fit(FRAME, Y, sensitive_features=S).predict_proba(FRAME)


def repaired_numbers(confidence=0.95, **options):
    passed = {"sensitive_features": S, "max_violation": 0.1, "confidence": confidence}
    model = repair(0.2 + 0.6 * (X[:, 0] > 0), X, Y, **passed, **options)
    groups = {"sensitive_features": S} if model.predicts_with_groups else {}
    scores = 0.2 + 0.6 * (X[:, 0] > 0)
    return model.predict_proba(X, **groups, scores=scores)


def stream_numbers(model):
    controller = ParityController(model=model)
    controller.update(X, GROUP)
    return controller.certificate().to_numpy()


def counted_numbers(model):
    table = pl.DataFrame({"y": Y, "said": model.predict(X), "group": GROUP})
    columns = {"y_true": "y", "y_pred": "said", "sensitive": ["group"]}
    found = fferm.audit(frame=table, **columns)
    return found.frame.select_dtypes("number").to_numpy()


def jobs(folder):
    """Return what users do, by name: each gives numbers, and always the same."""
    fitted = {
        "linear": linear(),
        "boosting": boosting(),
        "net": net(),
        "regressor": regressor(),
        "regression net": regressor(method="critic", hidden=(3,), max_epochs=1),
    }
    found = {
        "linear": lambda: scores(linear()),
        "linear, sgda": lambda: scores(
            linear(solver="sgda", max_epochs=2, batch_size=32, random_state=0)
        ),
        "linear, without some groups": lambda: scores(linear(GAPS)),
        "linear, stopped": lambda: scores(linear(max_iter=1)),
        "linear, a chosen divergence": lambda: scores(
            linear(divergence="auto", random_state=0)
        ),
        "boosting, a small group": lambda: scores(boosting(FEW)),
        "boosting, an impossible bound": lambda: scores(boosting(max_violation=0.0)),
        "boosting that collapses": lambda: scores(boosting(learning_rate=1e-9)),
        "net": lambda: scores(net()),
        "net with dropout": lambda: scores(net(module=dropping)),
        "regressor": lambda: scores(regressor()),
        "regression net": lambda: scores(
            regressor(method="critic", hidden=(3,), max_epochs=1)
        ),
        "frame": frame_numbers,
        "audit, without some groups": lambda: audit_numbers(fitted["linear"], GAPS),
        "audit of trees, a small group": lambda: audit_numbers(fitted["boosting"], FEW),
        "audit of a regression": lambda: regression_audit_numbers(fitted["regressor"]),
        "linear, a bound on the ratio": lambda: scores(
            linear(max_violation=0.2, measure="ratio", confidence=None, random_state=0)
        ),
        "rules that pass no test": lambda: repaired_numbers(uses_group=True),
        "rules": lambda: repaired_numbers(None, uses_group=True),
        "a correction": repaired_numbers,
        "offsets": lambda: scores(adapt(fitted["linear"], X, sensitive_features=S)),
        "stream": lambda: stream_numbers(fitted["linear"]),
        "audit of counts": lambda: counted_numbers(fitted["linear"]),
        "curve": curve_numbers,
        "alternatives": alternatives_numbers,
        "a plain model": lambda: linear().to_sklearn().decision_function(X),
        "tune": tuned_numbers,
        "data": lambda: load_german().X_test[:5],
    }
    fitted["rules"] = repair(
        fitted["linear"],
        X,
        Y,
        sensitive_features=S,
        max_violation=0.2,
        confidence=None,
        uses_group=True,
    )
    fitted["offsets"] = adapt(fitted["linear"], X, sensitive_features=S)
    for name, model in fitted.items():
        path = folder / f"{name}.fferm"
        fferm.save(model, path)
        found[f"load of {name}"] = lambda path=path: scores(fferm.load(path))
    return found


@pytest.fixture
def shown(monkeypatch):
    """Categories and texts of the warnings that reach the hook of the process."""
    found = []

    def show(message, category, *_):
        found.append((category, str(message)))

    monkeypatch.setattr(warnings, "showwarning", show)
    warnings.simplefilter("always")  # pytest puts the filters back
    return found


def in_threads(*jobs):
    """Return what jobs return that begin at once, each in a thread of its own."""
    begin = threading.Barrier(len(jobs))

    def run(job):
        begin.wait(LONG)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [running.result() for running in [pool.submit(run, j) for j in jobs]]


def overlapping(enter, patience=LONG):
    """Run ``enter(wait)`` twice; the first ends while the second is inside, if it can.

    ``wait`` is to be called inside. The second waits there for so many seconds.
    """
    first_inside, both_inside, first_ended = (threading.Event() for _ in range(3))

    def first():
        enter(lambda: (first_inside.set(), both_inside.wait(MOMENT)))
        first_ended.set()

    def second():
        assert first_inside.wait(LONG)
        enter(lambda: (both_inside.set(), first_ended.wait(patience)))

    in_threads(first, second)


def categories(shown):
    return [category for category, _ in shown]


def test_two_searches_that_overlap_leave_later_warnings_on(monkeypatch, shown):
    original, waits = weight_search.default_weights, {}

    def wait(*args):
        waits[threading.get_ident()]()
        return original(*args)

    def search(wait):
        waits[threading.get_ident()] = wait
        linear(max_violation=0.3, confidence=None, random_state=0)

    with monkeypatch.context() as patched:
        patched.setattr(weight_search, "default_weights", wait)
        overlapping(search)
    filters = list(warnings.filters)
    linear(**IMPOSSIBLE)
    assert categories(shown) == [InfeasibleWarning]
    assert not [each for each in filters if issubclass(each[2], FfermWarning)]


def test_a_grid_search_in_threads_gives_every_warning_of_its_fits(shown):
    grid = {"max_violation": [0.0, 0.001, 0.3]}
    model = FairLogisticRegression(random_state=0)
    search = GridSearchCV(model, grid, cv=2, refit=False)
    search.fit(X, Y, sensitive_features=GROUP)
    alone = Counter(shown)
    assert InfeasibleWarning in categories(shown)
    shown.clear()
    with joblib.parallel_config(backend="threading"):
        search.set_params(n_jobs=4).fit(X, Y, sensitive_features=GROUP)
    assert Counter(shown) == alone


def test_a_block_without_warnings_is_that_of_its_thread_alone(shown):
    is_muted, has_warned = threading.Event(), threading.Event()

    def mute():
        with muted(CollapseWarning):
            is_muted.set()
            assert has_warned.wait(LONG)
            warn_user("not shown", CollapseWarning)
            with muted(MissingGroupWarning):
                warn_user("not shown", CollapseWarning)
                warn_user("not shown", MissingGroupWarning)
            warn_user("second", MissingGroupWarning)
        warn_user("third", CollapseWarning)

    def warn():
        assert is_muted.wait(LONG)
        warn_user("first", CollapseWarning)
        has_warned.set()

    in_threads(mute, warn)
    assert [text for _, text in shown] == ["first", "second", "third"]


def test_many_threads_give_every_warning_and_the_numbers_of_one(shown, tmp_path):
    each = jobs(tmp_path)
    numbers, given = {}, {}
    for name, job in each.items():
        shown.clear()
        numbers[name], given[name] = job(), Counter(shown)
    shown.clear()
    asked = [list(each)[k % len(each)] for k in range(N_THREADS)]
    found = in_threads(*(each[name] for name in asked))
    expected = sum((given[name] for name in asked), Counter())
    assert Counter(shown) == expected
    assert {category for category, _ in expected} == {
        CollapseWarning,
        ConvergenceWarning,
        FfermWarning,
        InfeasibleWarning,
        MissingGroupWarning,
        SmallGroupWarning,
    }
    for name, values in zip(asked, found, strict=True):
        # Networks are trained in float32.
        rtol = 1e-4 if "net" in name else 1e-9
        assert_allclose(values, numbers[name], rtol, rtol, err_msg=name)


@pytest.mark.usefixtures("shown")
def test_nothing_that_a_job_runs_hides_our_warnings_meanwhile(monkeypatch, tmp_path):
    # Two such blocks of other libraries that overlap in threads hide them for good.
    hiding = set()

    class Watched(warnings.catch_warnings):
        def __init__(self, *, record=False, **options):
            super().__init__(record=record, **options)
            self.records = record

        def __exit__(self, *error):
            if self.records or any(
                action == "ignore" and message is None and issubclass(FfermWarning, of)
                for action, message, of, *_ in warnings.filters
            ):
                hiding.add("".join(traceback.format_stack(limit=12)[:-1]))
            super().__exit__(*error)

    every_job = jobs(tmp_path)
    monkeypatch.setattr(warnings, "catch_warnings", Watched)
    for job in every_job.values():
        job()
    table_pointer(Alpha(power=1.375), "log_ratio")  # not on disk, so it is compiled
    assert not hiding, "\n\n".join(hiding)


def test_networks_that_are_made_at_once_are_those_of_their_seeds():
    alone = scores(net(module=dropping))
    found = []

    def fit(wait):
        def make(n_features, n_classes):
            first = torch.nn.Linear(n_features, 8)
            wait()
            last = torch.nn.Linear(8, n_classes)
            return torch.nn.Sequential(first, torch.nn.Dropout(0.5), last)

        found.append(scores(net(module=make)))

    overlapping(fit, MOMENT)
    for values in found:
        assert_allclose(values, alone, rtol=1e-4)


def test_a_loaded_network_leaves_the_random_numbers_of_the_user(tmp_path):
    models = net(), regressor(method="critic", hidden=(3,), max_epochs=1)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    for model in models:
        fferm.save(model, tmp_path / "model.fferm")
        fferm.load(tmp_path / "model.fferm")
    assert torch.equal(torch.rand(3), expected)


def test_pages_that_are_drawn_at_once_leave_the_style_of_the_user():
    matplotlib = pytest.importorskip("matplotlib")
    from fferm.report.figures import draw_svg

    before = dict(matplotlib.rcParams)
    overlapping(lambda wait: draw_svg(lambda ax: wait()))
    assert dict(matplotlib.rcParams) == before


def test_searches_at_once_leave_the_level_of_the_log_of_optuna():
    optuna = pytest.importorskip("optuna")
    from fferm.tuning import search

    def run(wait):
        score = lambda _: wait() and 0.0  # noqa: E731
        list(search._search_with_optuna(lambda *_: [{}], score, 1, 1, None))

    before = optuna.logging.get_verbosity()
    overlapping(run)
    assert optuna.logging.get_verbosity() == before


def test_threads_that_compile_a_formula_at_once_get_the_same_pointer():
    job = lambda: table_pointer(Alpha(power=1.625), "log_ratio")  # noqa: E731
    assert len({id(pointer) for pointer in in_threads(*[job] * 8)}) == 1
