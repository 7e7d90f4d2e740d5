"""Whole tables: encoders, commands, data sets and experiments know no test row."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from leakage import NUMBERS, OTHER, ROWS, SOURCE, rows_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fferm import (
    FairBoostingClassifier,
    FairLogisticRegression,
    FairNetClassifier,
    FairRegressor,
    TradeoffCurve,
    audit,
    datasets,
    load,
    tradeoff_curve,
)
from fferm.auditing import Audit
from fferm.cli import main
from fferm.cli import repair as repair_command
from fferm.data.frame import FrameEncoder
from fferm.data.groups import find_edges
from fferm.data.rows import FitInput
from fferm.datasets import FairDataset, acs_income
from fferm.lab.experiments import runner
from fferm.lab.experiments.runner import Task, make_model, run_task, trade_offs
from fferm.lab.experiments.specs import Method, Panel, Size
from fferm.metrics import violation
from fferm.registry import last_step
from fferm.tuning import CrossValidation, EvenHoldout, tune
from fferm.tuning import search as tuning_search

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.FfermWarning")


def make_frame():
    """Return the rows as a table with gaps, rare levels and far values."""
    rng, frame = np.random.default_rng(1), ROWS.sensitive_features.iloc[SOURCE].copy()
    n = len(frame)
    frame["merit"] = ROWS.X[SOURCE, 1] * 10.0 ** rng.integers(0, 2, n)
    frame["town"] = rng.choice([f"town {k}" for k in range(15)], n)
    frame["years"] = np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 9, n))
    frame["good"] = np.where(ROWS.y[SOURCE], "yes", "no")
    frame["pay"] = NUMBERS[SOURCE]
    return frame


FRAME = make_frame()
ROW_OF = {value: n for n, value in enumerate(FRAME["merit"])}
OPTIONS = {"groups": "marginal", "continuous": ["age"], "random_state": 0}
TASKS = {
    "good": FairLogisticRegression(**OPTIONS),
    "pay": FairRegressor(**OPTIONS, violation_metric="mean_gap"),
}
OTHER_TARGET = {"good": "pay", "pay": "good"}


def tables_of(target, frame):
    """Return features, target and groups of some rows."""
    return {
        "X": frame.drop(columns=["good", "pay"]),
        "y": frame[target],
        "sensitive_features": frame[["sex", "age"]],
    }


@pytest.fixture
def seen(monkeypatch):
    """Note the rows of the tables that encoders learn from, and encode."""
    rows = {"fit": [], "transform": []}

    def note(name, method):
        def noted(self, frame, **others):
            known = frame["merit"].dropna()  # load tries a row of gaps
            rows[name].append(np.array([ROW_OF[value] for value in known]))
            return method(self, frame, **others)

        monkeypatch.setattr(FrameEncoder, name, noted)

    for name in rows:
        note(name, getattr(FrameEncoder, name))
    return rows


def run_command(name, target, tmp_path, *options):
    """Run a command on the table."""
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    drop = OTHER_TARGET[target]
    arguments = ["--target", target, "--drop", drop, "--groups", "marginal"]
    arguments += ["--sensitive", "sex", "--sensitive", "age", "--bands", "age"]
    if target == "pay":
        arguments += ["--metric", "mean_gap"]
    where = ["--out", str(tmp_path / "out"), "--seed", "3", "--quiet", "--json"]
    data = str(tmp_path / "data.csv")
    assert main([name, data, *arguments, *where, *options]) == 0


def split_of(seen):
    """Return the table that the encoder learned from, and the other rows."""
    (trained,) = {frozenset(rows): rows for rows in seen["fit"]}.values()
    encoded = {frozenset(rows): rows for rows in seen["transform"]}
    assert encoded.pop(frozenset(trained)).tolist() == trained.tolist()
    (judged,) = encoded.values()
    assert sorted([*trained, *judged]) == list(range(len(FRAME)))
    assert len(judged) == pytest.approx(len(FRAME) / 4, abs=2)
    return FRAME.iloc[trained], FRAME.iloc[judged]


def check_numbers(target, predicted, judged, trained, accuracy, violation):
    """Check reported numbers against those made by hand on the rows that judged."""
    is_class, edges = target == "good", find_edges(trained["age"].to_numpy())
    values = (predicted == "yes").astype(float) if is_class else predicted
    groups = judged["sex"].to_numpy(), np.searchsorted(edges, judged["age"], "right")
    gaps = [np.ptp(pd.Series(values).groupby(group).mean()) for group in groups]
    assert violation == pytest.approx(max(gaps))
    share = np.mean(predicted == judged[target])
    if not is_class:
        share = 1 - np.mean((predicted - judged["pay"]) ** 2) / np.var(judged["pay"])
    assert accuracy == pytest.approx(share)


@pytest.mark.parametrize("target", TASKS)
def test_fit_measures_on_rows_that_neither_encoder_nor_model_know(
    target, seen, tmp_path, capsys
):
    run_command("fit", target, tmp_path)
    trained, judged = split_of(seen)
    model, byhand = load(tmp_path / "out"), clone(TASKS[target])
    byhand.set_params(random_state=3).fit(**tables_of(target, trained))
    assert model.encoder_.columns_ == byhand.encoder_.columns_
    assert model.band_edges_ == byhand.band_edges_
    assert_allclose(model.coef_, byhand.coef_)
    audit = Audit.from_dict(json.loads(capsys.readouterr().out)["audit"])
    right = audit.accuracy if target == "good" else audit.explained
    predicted = byhand.predict(tables_of(target, judged)["X"])
    check_numbers(target, predicted, judged, trained, right, audit.violation)


@pytest.mark.parametrize("target", TASKS)
def test_curve_measures_on_rows_that_neither_encoder_nor_models_know(
    target, seen, tmp_path
):
    run_command("curve", target, tmp_path, "--weights", "2", "--seeds", "2")
    trained, judged = split_of(seen)
    model, curve = TASKS[target], TradeoffCurve.load(tmp_path / "out")
    rows, weights = tables_of(target, trained), curve.records["fairness_weight"]
    for seed in (3, 4):
        again = clone(model).set_params(random_state=seed)
        for byhand in again.fit_path(FitInput(**rows), sorted(set(weights))):
            weight = byhand.fairness_weight
            assert_allclose(curve.models[weight, seed].coef_, byhand.coef_)
            found = curve.records.query(
                "fairness_weight == @weight and seed == @seed and split == 'test'"
            )
            numbers = found[["accuracy", "violation"]].to_numpy()[0]
            predicted = byhand.predict(tables_of(target, judged)["X"])
            check_numbers(target, predicted, judged, trained, *numbers)
            audit = curve.audits[weight, seed]
            right = audit.accuracy if target == "good" else audit.explained
            assert right == pytest.approx(numbers[0])


@pytest.mark.parametrize("how", [["--uses-group"], []], ids=["group", "features"])
def test_repair_measures_on_rows_that_taught_the_correction_nothing(
    how, tmp_path, capsys, monkeypatch
):
    passed, repair_scores = [], repair_command.repair_scores

    def noted(*model, **rows):
        passed.append((model, rows))
        return repair_scores(*model, **rows)

    monkeypatch.setattr(repair_command, "repair_scores", noted)
    table = FRAME.drop(columns=["pay", "years", "town"])
    table.to_csv(tmp_path / "data.csv", index=False)
    columns = ["--target", "good", "--sensitive", "sex", "--score", "merit"]
    out = ["--out", str(tmp_path / "out"), "--quiet", "--json"]
    bound = ["--max-violation", "0.9", "--confidence", "0.6"]
    main(["repair", str(tmp_path / "data.csv"), *columns, *bound, *out, *how])
    (model, rows), found = passed[0], json.loads(capsys.readouterr().out)["audit"]
    trained = np.array([ROW_OF[value] for value in rows["X"]["merit"]])
    judged = np.setdiff1d(np.arange(len(table)), trained)
    assert len(judged) == pytest.approx(len(table) / 4, abs=2)
    byhand = repair_scores(*model, **rows)
    test, decided = table.iloc[judged], load(tmp_path / "out")
    asked = {"sensitive_features": test[["sex"]]} if how else {}
    predicted = decided.predict(test[rows["X"].columns], **asked)
    assert_array_equal(predicted, byhand.predict(test[rows["X"].columns], **asked))
    audited = Audit.from_dict(found)
    assert audited.accuracy == pytest.approx(np.mean(predicted == test["good"]))
    rates = pd.Series(predicted == "yes").groupby(test["sex"].to_numpy()).mean()
    assert audited.violation == pytest.approx(np.ptp(rates))


@pytest.mark.parametrize("target", TASKS)
def test_what_a_model_says_of_a_row_does_not_depend_on_the_rows_beside_it(target):
    model = clone(TASKS[target]).fit(**tables_of(target, FRAME.iloc[:150]))
    rows = tables_of(target, FRAME.iloc[150:])["X"]
    encoded, predicted = model.encoder_.transform(rows), model.predict(rows)
    has_gap = np.flatnonzero(rows["years"].isna())
    for n in (*has_gap, *range(0, len(rows), 9)):
        alone = rows.iloc[[n]]
        assert_allclose(model.encoder_.transform(alone), encoded[[n]])
        assert model.predict(alone)[0] == pytest.approx(predicted[n])


def acs_rows():
    """Return made-up rows of three states in the form of the published file."""
    rng, n = np.random.default_rng(0), 300
    codes = {name: rng.integers(1, 5, n) for name in acs_income.COLUMNS}
    codes |= {"SEX": rng.integers(1, 3, n), "RAC1P": rng.integers(1, 3, n)}
    codes |= {"OCCP": rng.integers(10, 900, n), "POBP": rng.integers(1, 50, n)}
    place = {"STATE": np.repeat(["AL", "CA", "TX"], n // 3), "ROW": np.arange(n)}
    return pd.DataFrame({**codes, acs_income.TARGET: rng.integers(0, 2, n), **place})


LOADERS = {
    "german": (datasets.load_german, {}),
    "biased": (datasets.make_biased, {}),
    "states": (datasets.load_acs_income, {"states": ("AL", "CA")}),
    "more states": (
        datasets.load_acs_income,
        {"states": "AL", "test_states": ("AL", "TX")},
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_data_set_tests_on_rows_that_it_does_not_train_on(name, monkeypatch):
    monkeypatch.setattr(acs_income, "read_parquet", lambda *_: acs_rows())
    load_rows, options = LOADERS[name]
    data = load_rows(**options)
    assert len(data.X) == len(data.y) == len(data.frame) > 0
    assert len(data.X_test) == len(data.y_test) == len(data.frame_test) > 0
    for table in ("frame", "sensitive_features"):
        whole = getattr(data, table).index.append(getattr(data, f"{table}_test").index)
        assert whole.is_unique
    numeric = [c for c in data.frame if c in data.feature_names]
    for column in numeric[:3]:
        mean, scale = data.frame[column].mean(), data.frame[column].std(ddof=0)
        for X, frame in ((data.X, data.frame), (data.X_test, data.frame_test)):
            found = X[:, data.feature_names.index(column)]
            assert_allclose(found, (frame[column] - mean) / scale, atol=1e-9)


def named_data(index=None):
    """Return the named rows as a data set with a split of its own."""
    sensitive = ROWS.sensitive_features[["sex"]]
    return FairDataset(
        "named",
        *(ROWS.X[SOURCE], ROWS.y[SOURCE], sensitive.iloc[SOURCE]),
        *(ROWS.X[OTHER], ROWS.y[OTHER], sensitive.iloc[OTHER]),
        *(("a", "b", "c"), pd.DataFrame(index=SOURCE)),
        pd.DataFrame(index=OTHER if index is None else index),
        "",
    )


SIZE = Size(seeds=1, n_values=3, train_rows=100)


def test_an_experiment_draws_parts_that_share_no_row(monkeypatch):
    monkeypatch.setattr(datasets, "load_adult", lambda **_: named_data())
    states = pd.MultiIndex.from_arrays(
        [np.repeat(["AL", "CA", "TX"], len(OTHER) // 3), OTHER], names=["STATE", "ROW"]
    )
    monkeypatch.setattr(datasets, "load_acs_income", lambda **_: named_data(states))
    draw = runner.load_parts.__wrapped__
    noisy = draw(json.dumps({"loader": "adult", "flip": 0.2}), SIZE, 0)
    shifted = draw(json.dumps({"loader": "acs_income"}), SIZE, 0)
    for parts in (noisy, shifted):
        trained = rows_of(parts.train.X)
        assert set(trained) < set(SOURCE)
        assert rows_of(parts.judged["train"].X).tolist() == trained.tolist()
        others = {n: rows_of(p.X) for n, p in parts.judged.items() if n != "train"}
        whole = np.concatenate([trained, *others.values()])
        assert len(set(whole)) == len(whole)
        for name, rows in others.items():
            part = parts.judged[name]
            assert part.y.tolist() == ROWS.y[rows].tolist()
    assert set(rows_of(noisy.judged["test"].X)) == set(OTHER)
    # Training may take the penalty on the sample of the target, and on no state.
    assert shifted.target is shifted.judged["target"]


def test_an_experiment_measures_each_part_with_models_of_the_training_rows(monkeypatch):
    monkeypatch.setattr(datasets, "load_adult", lambda **_: named_data())
    data = {"loader": "adult", "flip": 0.0}
    panel = Panel("named", data, "demographic_parity", None)
    method = Method("ours", "FairLogisticRegression", {"divergence": "kl"})
    monkeypatch.setattr(runner, "load_parts", runner.load_parts.__wrapped__)
    records = pd.DataFrame(run_task(Task(panel, method, 0), SIZE))
    parts = runner.load_parts(json.dumps(data), SIZE, 0)
    model = make_model(method, panel, 0)
    values = trade_offs(method, model, SIZE.n_values)
    for value, byhand in zip(values, model.fit_path(parts.train, values), strict=True):
        found = records[records["value"] == value].set_index("part")
        for name, part in parts.judged.items():
            decided, rows = byhand.predict(part.X), rows_of(part.X)
            sex = ROWS.sensitive_features["sex"].to_numpy()[rows]
            rates = pd.Series(decided).groupby(sex).mean()
            assert found["violation"][name] == pytest.approx(np.ptp(rates))
            right = np.mean(decided == ROWS.y[rows])
            assert found["accuracy"][name] == pytest.approx(right)


N_MIXED = 240


def make_mixed():
    """Return a table of mixed columns, its groups, labels and numbers."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N_MIXED).astype(float),
            "pay": np.round(rng.lognormal(size=N_MIXED), 1),
            "hours": np.arange(N_MIXED) % 7 / 7.0,
            "city": rng.choice(["Rome", "Oslo", "Bonn"], N_MIXED),
            "grade": pd.Categorical(rng.choice(["a", "b"], N_MIXED)),
        }
    )
    group = pd.Series(rng.choice(["f", "m"], N_MIXED), name="sex")
    score = table["age"] / 30 + table["pay"] + (group == "m") + (table["city"] < "P")
    table.loc[::9, "age"] = np.nan
    return table, group, score + rng.normal(0, 0.3, N_MIXED)


MIXED, SEX, NUMBER = make_mixed()
IS_HIGH = NUMBER.rank() > N_MIXED / 2


def spoil(rows):
    """Return the table with what no other row has in some rows.

    A category, an extreme value, another scale, gaps in a column that has none, and a
    new level of a declared category.
    """
    table = MIXED.copy()
    table.loc[rows, "city"] = "Atlantis"
    table.loc[rows, "age"] = 1e9
    table.loc[rows, "pay"] *= -1e6
    table.loc[rows, "hours"] = np.nan
    table["grade"] = table["grade"].astype(object)
    table.loc[rows, "grade"] = "A"
    return table.assign(grade=table["grade"].astype("category"))


STEPS = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay", "hours"]),
    (OneHotEncoder(handle_unknown="ignore"), ["city", "grade"]),
)
TREES = FairBoostingClassifier(n_estimators=4, n_jobs=1, random_state=0)
LEARNERS = {
    "linear": FairLogisticRegression(random_state=0),
    "minibatches": FairLogisticRegression(solver="sgda", random_state=0),
    "trees": TREES,
    "network": FairNetClassifier(
        hidden=(4,), max_epochs=2, random_state=0, device="cpu"
    ),
    "regressor": FairRegressor(random_state=0),
    "linear in a pipeline": make_pipeline(STEPS, FairLogisticRegression()),
    "trees in a pipeline": make_pipeline(STEPS, TREES),
}
IN_PIPELINES = [name for name in LEARNERS if "pipeline" in name]
ALONE = [name for name in LEARNERS if name not in IN_PIPELINES]


def rows_for(model, table):
    """Return a table as the arguments of `fit`."""
    y = NUMBER if isinstance(model, FairRegressor) else IS_HIGH
    return {"X": table, "y": y, "sensitive_features": SEX}


def sweep(model, rows):
    tradeoff_curve(model, **rows, fairness_weights=[0.0, 1.0])


def search(validation, model, rows):
    tune(
        model,
        **rows,
        max_violation=0.5,
        divergences=["kl"],
        fairness_weights=[0.0, 1.0],
        validation=validation,
    )


def fit_with(model, rows, **params):
    clone(model).set_params(**params).fit(**rows)


JOBS = {
    "curve": sweep,
    "folds": partial(search, CrossValidation(2)),
    "even groups": partial(search, EvenHoldout(0.3)),
    "bound": partial(fit_with, max_violation=0.3),
    "divergence": partial(fit_with, divergence="auto", fairness_weight=1.0),
    "divergence under a bound": partial(fit_with, divergence="auto", max_violation=0.3),
}
CASES = [
    *((job, name) for job in ("curve", "bound") for name in ALONE),
    *(
        (job, name)
        for job in ("folds", "even groups")
        for name in ALONE
        if name != "regressor"
    ),
    *((job, "linear") for job in ("divergence", "divergence under a bound")),
    *(
        (job, name)
        for job in ("curve", "folds", "even groups")
        for name in IN_PIPELINES
    ),
]


def learned(model):
    """Return what a model knows: numbers, trees, layers, columns and levels."""
    parts = model._to_saved()[1]
    names = ("coef_", "intercept_", "booster_", "module_", "dual_")
    known = {name: parts[name] for name in names if name in parts}
    if hasattr(model, "encoder_"):
        known["columns"] = model.encoder_.columns_
    return known


@pytest.fixture
def paths(monkeypatch):
    """Note the rows that each path trains on, and what its models learn."""
    noted = []

    def watch(kind):
        fit_path = kind.fit_path

        def followed(model, passed, weights, start=None):
            index = passed.sensitive_features.index
            if passed.sample_weight is not None:
                index = index[np.asarray(passed.sample_weight) > 0]
            models = []
            noted.append((index, models))
            for fitted in fit_path(model, passed, weights, start):
                models.append(learned(fitted))
                yield fitted

        monkeypatch.setattr(kind, "fit_path", followed)

    for kind in {type(last_step(model)) for model in LEARNERS.values()}:
        watch(kind)
    return noted


@pytest.mark.parametrize(("job", "name"), CASES, ids=lambda case: case)
def test_what_only_held_out_rows_have_changes_nothing_that_is_learned(job, name, paths):
    model = LEARNERS[name]
    JOBS[job](model, rows_for(model, MIXED))
    trained, expected = paths[0]
    held = MIXED.index.difference(trained)
    assert 0.1 * N_MIXED < len(held) < 0.6 * N_MIXED
    paths.clear()
    JOBS[job](model, rows_for(model, spoil(held[::2])))
    again, found = paths[0]
    assert list(again) == list(trained)
    # Which weights a bound tries depends on the rows that judge.
    for one, other in zip(expected, found, strict=job in ("curve", "folds")):
        for part, value in one.items():
            assert_array_equal(other[part], value, err_msg=part)


def select_tested(model, rows, sensitive):
    curve = tradeoff_curve(
        model, **{**rows, "sensitive_features": sensitive}, fairness_weights=[0.0, 1.0]
    )
    return curve.select(max_violation=0.7, confidence=0.9)


def tune_tested(model, rows, sensitive):
    return tune(
        model,
        **{**rows, "sensitive_features": sensitive},
        max_violation=0.7,
        confidence=0.9,
        divergences=["kl"],
        fairness_weights=[0.0, 1.0],
        validation=EvenHoldout(0.3),
    ).estimator


@pytest.mark.parametrize("choose", [select_tested, tune_tested])
@pytest.mark.parametrize("name", ["linear", *IN_PIPELINES])
def test_rows_that_test_a_bound_taught_no_step_of_the_model(name, choose, paths):
    model, rows = LEARNERS[name], rows_for(LEARNERS[name], MIXED)
    chosen = choose(model, rows, SEX)
    ((trained, _),) = paths
    held = MIXED.index.difference(trained)
    assert 0.2 * N_MIXED < len(held) < 0.4 * N_MIXED
    # A model and steps that were never shown the other rows are the same.
    fair, part = last_step(chosen), {n: rows[n].loc[trained] for n in rows}
    byhand = clone(model)
    last_step(byhand).set_params(fairness_weight=fair.fairness_weight_)
    group = part.pop("sensitive_features")
    prefix = "" if name == "linear" else f"{byhand.steps[-1][0]}__"
    byhand.fit(**part, **{f"{prefix}sensitive_features": group})
    assert_allclose(chosen.predict_proba(MIXED), byhand.predict_proba(MIXED), atol=1e-6)
    held_rows = {n: rows[n].loc[held] for n in rows}
    assert audit(chosen, **held_rows).passes(0.7, confidence=0.9)


def test_bands_in_which_a_bound_is_tested_are_those_of_training_rows(monkeypatch):
    ages = MIXED["hours"].to_numpy() + np.arange(N_MIXED)
    sensitive, used = pd.DataFrame({"age": ages, "sex": SEX}), []
    tabulate = tuning_search._Judge._tabulate

    def noted(judge, rows):
        used.append((dict(judge.binning.edges), rows.sensitive_features["age"]))
        return tabulate(judge, rows)

    monkeypatch.setattr(tuning_search._Judge, "_tabulate", noted)
    tune_tested(LEARNERS["linear"], rows_for(LEARNERS["linear"], MIXED), sensitive)
    edges, trained = used[-1]
    assert len(trained) < N_MIXED
    assert_allclose(edges["age"], find_edges(trained.to_numpy()))


def test_the_model_of_a_pipeline_trains_without_the_rows_that_test_it(paths):
    # Its steps are fitted on all rows, because a pipeline knows of none held out.
    fair = FairLogisticRegression(max_violation=0.7, confidence=0.9, random_state=0)
    pipeline = make_pipeline(STEPS, fair)
    pipeline.fit(MIXED, IS_HIGH, fairlogisticregression__sensitive_features=SEX)
    assert pipeline[-1].feasible_
    trained = paths[0][0]
    held = MIXED.index.difference(trained)
    assert len(held) == pytest.approx(0.2 * N_MIXED, abs=5)
    X = clone(STEPS).fit_transform(MIXED)
    weight = pipeline[-1].fairness_weight_
    byhand = FairLogisticRegression(fairness_weight=weight).fit(
        X[trained], IS_HIGH[trained], sensitive_features=SEX[trained]
    )
    assert_allclose(pipeline[-1].coef_, byhand.coef_, atol=1e-5)
    measured = violation(
        IS_HIGH[held], byhand.predict(X[held]), sensitive_features=SEX[held]
    )
    assert pipeline[-1].violation_ == pytest.approx(measured)


STOPPED = {
    "minibatches": LEARNERS["minibatches"],
    "trees": TREES,
    "network": LEARNERS["network"],
}


@pytest.mark.parametrize("name", STOPPED)
def test_rows_that_early_stopping_watches_teach_the_columns_nothing(name):
    model = clone(STOPPED[name]).set_params(early_stopping="validation", patience=999)
    rows = rows_for(model, MIXED)
    watched = clone(model)._prepare(FitInput(**rows)).watched.data.kept
    assert watched.sum() == pytest.approx(0.2 * N_MIXED, abs=5)
    plain, spoiled = (
        clone(model).fit(**rows_for(model, table)) for table in (MIXED, spoil(watched))
    )
    if name != "trees":
        assert spoiled.encoder_.columns_ == plain.encoder_.columns_
    if name != "minibatches":  # whose history is that of the watched rows
        steps = [pd.DataFrame(m.history_)["objective"] for m in (spoiled, plain)]
        assert_array_equal(*steps)
