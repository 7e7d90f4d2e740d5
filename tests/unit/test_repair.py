"""Frozen scores repaired: by group, by linear programming, and without the group."""

import itertools
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import fferm
from fferm.datasets import make_biased
from fferm.deploy import FeatureRepair, GroupRepair, adapt, repair
from fferm.deploy.group_rules import (
    RANDOM_GAIN,
    ROOM,
    Links,
    ThresholdCell,
    TiltCell,
    _mix,
    best_rules,
)
from fferm.errors import (
    FfermError,
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
    MissingSensitiveError,
    NotFittedError,
    PersistenceError,
)
from fferm.metrics import violation
from fferm.notions import ConditionalParity, Notion, Strata

NOTIONS = ("demographic_parity", "equal_opportunity", "equalized_odds")
STRATA = {
    "demographic_parity": lambda y: np.zeros_like(y),
    "equal_opportunity": lambda y: np.where(y == 1, 0, -1),
    "equalized_odds": lambda y: y,
}


def cells_of(p, y, group, stratum, weight):
    prob, n_strata = np.column_stack([1 - p, p]), int(stratum.max()) + 1
    share = weight / weight.sum()
    return [
        ThresholdCell(prob[at], y[at], stratum[at], share[at], n_strata)
        for k in np.unique(group)
        for at in [group == k]
    ]


def every_rule(cell):
    """Return values and (n_rules, n_strata) rates of all thresholds, one by one."""
    values, rates = [], []
    for threshold in [-1.0, *np.unique(cell.prob[:, 1])]:
        accepted = cell.prob[:, 1] > threshold
        values.append(float(cell.weight[accepted == (cell.y == 1)].sum()))
        row = []
        for r in range(cell.n_strata):
            inside = cell.stratum == r
            mass = cell.weight[inside].sum()
            row.append(cell.weight[inside & accepted].sum() / mass if mass else np.nan)
        rates.append(row)
    return np.array(values), np.array(rates)


def spread(rates):
    """Return the largest difference between groups of (groups, strata) rates."""
    gaps = np.fmax.reduce(rates) - np.fmin.reduce(rates)
    return float(np.fmax.reduce(gaps))


def best_single(cells, bound):
    """Return the best accuracy of one threshold a group, by trying all."""
    every = [every_rule(cell) for cell in cells]
    best = -np.inf
    for choice in itertools.product(*(range(len(v)) for v, _ in every)):
        rates = np.array([r[n] for (_, r), n in zip(every, choice, strict=True)])
        if spread(rates) <= bound + 1e-12:
            total = sum(v[n] for (v, _), n in zip(every, choice, strict=True))
            best = max(best, float(total))
    return best


def best_mixed(cells, bound, members):
    """Return the best accuracy of any mixture: one programme of all thresholds."""
    every = [every_rule(cell) for cell in cells]
    values = np.concatenate([v for v, _ in every])
    ends = np.cumsum([0, *(len(v) for v, _ in every)])
    above = []
    for code, r in itertools.product(members.T, range(cells[0].n_strata)):
        rows = []
        for k in np.unique(code):  # the rate of a group, as sums over its cells
            row, mass = (
                np.zeros(len(values)),
                sum(
                    c.weight[c.stratum == r].sum()
                    for c, g in zip(cells, code, strict=True)
                    if g == k
                ),
            )
            for n in np.flatnonzero(code == k) if mass else ():
                part = cells[n].weight[cells[n].stratum == r].sum() / mass
                rates = np.nan_to_num(every[n][1][:, r])
                row[ends[n] : ends[n + 1]] = part * rates
            rows += [row] if mass else []
        above += [one - other for one, other in itertools.permutations(rows, 2)]
    equal = np.zeros((len(every), len(values)))
    for n in range(len(every)):
        equal[n, ends[n] : ends[n + 1]] = 1
    high = np.full(len(above), bound)
    above = np.reshape(above, (-1, len(values)))
    return -linprog(-values, above, high, equal, np.ones(len(every))).fun


def mixed_rates(cells, mixture):
    rates = []
    for cell, rules, shares in zip(cells, mixture.rules, mixture.shares, strict=True):
        accepted = sum(
            share * (cell.prob[:, 1] > rule)
            for rule, share in zip(rules, shares, strict=True)
        )
        row = []
        for r in range(cell.n_strata):
            weight = np.where(cell.stratum == r, cell.weight, 0)
            row.append(weight @ accepted / weight.sum() if weight.sum() else np.nan)
        rates.append(row)
    return np.array(rates)


@st.composite
def small_problems(draw):
    n_groups = draw(st.integers(2, 3))
    n = draw(st.integers(2 * n_groups, 14))
    levels = draw(st.integers(2, 6))
    p = draw(st.lists(st.integers(0, levels), min_size=n, max_size=n))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    weight = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    group = np.arange(n) % n_groups
    bound = draw(st.sampled_from([0.0, 0.1, 0.25, 0.5]))
    notion = draw(st.sampled_from(NOTIONS))
    return np.array(p) / levels, np.array(y), group, np.array(weight), bound, notion


def problem_cells(problem):
    p, y, group, weight, bound, notion = problem
    stratum = STRATA[notion](y)
    return cells_of(p, y, group, stratum, weight), bound


def is_comparable(cells):
    return np.any(np.sum([cell.is_present for cell in cells], axis=0) > 1)


@settings(max_examples=60)
@given(small_problems())
def test_rules_are_the_best_there_are_within_the_bound(problem):
    cells, bound = problem_cells(problem)
    if not is_comparable(cells):
        return
    found = best_rules(cells, bound)
    assert spread(mixed_rates(cells, found)) <= bound + 1e-7
    alone = np.arange(len(cells))[:, None]
    mixed, single = best_mixed(cells, bound, alone), best_single(cells, bound)
    assert found.accuracy <= mixed + 1e-7
    if problem[-1] == "equalized_odds":
        assert found.accuracy >= mixed - RANDOM_GAIN - 1e-7
    else:
        assert found.accuracy >= single - 1e-7
    if found.is_random:  # only for what single thresholds cannot give
        assert found.accuracy == pytest.approx(mixed, abs=1e-6)


@settings(max_examples=60)
@given(small_problems(), st.data())
def test_rules_are_the_best_there_are_by_several_attributes(problem, data):
    p, y, group, weight, bound, notion = problem
    other = data.draw(st.lists(st.integers(0, 1), min_size=len(p), max_size=len(p)))
    stratum = STRATA[notion](y)
    names, joint = np.unique(np.stack([group, other]), axis=1, return_inverse=True)
    cells, members = cells_of(p, y, joint.reshape(-1), stratum, weight), names.T
    found = best_rules(cells, bound, members)
    rates = np.nan_to_num(mixed_rates(cells, found))
    for code, r in itertools.product(members.T, range(cells[0].n_strata)):
        mass = np.array([cell.mass[r] for cell in cells])
        groups = [k for k in np.unique(code) if mass[code == k].sum() > 0]
        by_group = [
            np.average(rates[code == k, r], weights=mass[code == k]) for k in groups
        ]
        assert not groups or np.ptp(by_group) <= bound + 1e-7
    best = best_mixed(cells, bound, members)
    mixed = _mix(cells, bound, Links.of(cells, members))
    assert mixed.accuracy == pytest.approx(best, abs=1e-7)
    least = best_mixed(cells, ROOM * bound, members)
    noise = 0.5 * np.sqrt(np.sum(weight**2)) / weight.sum()
    gain = RANDOM_GAIN if notion == "equalized_odds" else max(RANDOM_GAIN, noise)
    assert least - gain - 1e-7 <= found.accuracy <= best + 1e-7


@settings(max_examples=20)
@given(small_problems(), st.permutations(range(3)))
def test_names_of_groups_do_not_matter(problem, order):
    p, y, group, weight, bound, notion = problem
    renamed = np.array(order)[group]
    cells = [
        problem_cells((p, y, g, weight, bound, notion))[0] for g in (group, renamed)
    ]
    if is_comparable(cells[0]):
        one, other = (best_rules(each, bound).accuracy for each in cells)
        slack = 1e-7 if notion != "equalized_odds" else RANDOM_GAIN + 1e-7
        assert one == pytest.approx(other, abs=slack)


def scores_and_groups(n=3000, n_groups=3, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n)
    X = np.column_stack([rng.normal(size=n) + 0.6 * group, rng.normal(size=n)])
    p = 1 / (1 + np.exp(-(X[:, 0] + 0.5 * X[:, 1] - 0.5)))
    y = (rng.random(n) < p).astype(int)
    return X, y, group, p


def check_kept(model, X, y, group, notion, bound, **kwargs):
    passed = {"sensitive_features": group} if model.predicts_with_groups else {}
    decided = model.predict(X, **passed, **kwargs)
    measured = violation(y, decided, sensitive_features=group, notion=notion)
    assert measured == pytest.approx(model.violation_, abs=1e-12)
    assert measured <= bound + 1e-9
    return decided


@pytest.mark.parametrize("notion", NOTIONS)
def test_the_bound_is_kept_on_the_rows_that_were_passed(notion):
    X, y, group, _p = scores_and_groups()
    frozen = LogisticRegression().fit(X, y)
    model = repair(
        frozen,
        X,
        y,
        sensitive_features=group,
        max_violation=0.05,
        confidence=None,
        uses_group=True,
        notion=notion,
    )
    decided = check_kept(model, X, y, group, notion, 0.05)
    assert model.feasible_
    assert (decided == y).mean() > (frozen.predict(X) == y).mean() - 0.05
    prob = model.predict_proba(X, sensitive_features=group)
    assert np.array_equal(prob.argmax(axis=1), decided)
    np.testing.assert_allclose(prob.sum(axis=1), 1)


def two_attributes(n=12_000):
    rng = np.random.default_rng(2)
    sex, age = rng.choice(["f", "m"], n), rng.choice(["old", "young", "mid"], n)
    logits = rng.normal(size=n) + (sex == "m") + 0.8 * (age == "old") - 0.8
    p = 1 / (1 + np.exp(-logits))
    y = (rng.random(n) < p).astype(int)
    return p, y, pd.DataFrame({"sex": sex, "age": age})


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_attributes_that_are_compared_one_by_one_cost_less(notion, tmp_path):
    p, y, groups = two_attributes()
    groups.iloc[:5, 0] = None
    rows = {"sensitive_features": groups, "notion": notion}
    made = {
        how: GroupRepair(groups=how, max_violation=0.03, confidence=None).set_params(
            notion=notion
        )
        for how in ("intersection", "marginal")
    }
    right = {}
    for how, model in made.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FfermWarning)
            model.fit(None, y, sensitive_features=groups, scores=p)
            decided = model.predict(p, sensitive_features=groups)
            gap = violation(y, decided, groups=how, **rows)
        right[how] = (decided == y).mean()
        assert gap == pytest.approx(model.violation_, abs=1e-12)
        assert gap < 0.04
        assert np.array_equal(decided[:5], p[:5] > 0.5)  # without a group
    assert right["marginal"] > right["intersection"]
    model = made["marginal"]
    assert model.groups_[:2] == ("f × mid", "f × old")
    fferm.save(model, tmp_path / "model.fferm")
    loaded = fferm.load(tmp_path / "model.fferm")
    assert np.array_equal(loaded.predict(p, sensitive_features=groups), decided)
    with pytest.raises(InvalidInputError, match="never seen the groups"):
        model.predict([0.7], sensitive_features={"sex": ["x"], "age": ["mid"]})


def test_a_combination_without_rows_keeps_the_frozen_decision():
    p, y, groups = two_attributes()
    seen = ~((groups["sex"] == "f") & (groups["age"] == "mid"))
    rows = {"sensitive_features": groups[seen], "groups": "marginal"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)
        model = repair(
            p[seen], None, y[seen], max_violation=0.02, uses_group=True, **rows
        )
    new = {"sex": ["f", "f"], "age": ["mid", "mid"]}
    assert model.predict([0.51, 0.49], sensitive_features=new).tolist() == [1, 0]


def test_probabilities_scores_and_logits_meet_the_same_thresholds():
    _X, y, group, p = scores_and_groups()
    rows = {"sensitive_features": group, "max_violation": 0.03, "confidence": None}
    decided = [
        repair(scores, None, y, uses_group=True, **rows).predict(
            scores, sensitive_features=group
        )
        for scores in (
            p,
            np.log(p / (1 - p)),
            300 + 550 * p,
            np.column_stack([1 - p, p]),
        )
    ]
    for other in decided[1:]:
        assert np.mean(decided[0] != other) < 1e-3


def test_any_model_is_repaired():
    X, y, group, _ = scores_and_groups()
    frozen = LogisticRegression().fit(X, y)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        score=frozen.predict_proba(X)[:, 1]
    )
    rows = {"sensitive_features": group, "max_violation": 0.05, "confidence": None}
    rows["uses_group"] = True
    expected = repair(frozen, X, y, **rows).predict(X, sensitive_features=group)

    class Scorer:
        predict_proba = staticmethod(frozen.predict_proba)

    for model, table in (
        (Scorer(), X),
        (frozen.predict_proba, X),
        (lambda X: frozen.predict_proba(X)[:, 1], X),
        ("score", frame),
        ("score", pl.from_pandas(frame)),
    ):
        made = repair(model, table, y, **rows)
        assert np.array_equal(made.predict(table, sensitive_features=group), expected)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_booster_is_repaired_both_ways(library):
    module = pytest.importorskip(library)
    X, y, group, _ = scores_and_groups()
    if library == "lightgbm":
        params = {"objective": "binary", "verbose": -1, "num_threads": 1}
        booster = module.train(params, module.Dataset(X, y), 10)
    else:
        params = {"objective": "binary:logistic", "nthread": 1}
        booster = module.train(params, module.DMatrix(X, y), 10)
    for uses_group in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FfermWarning)
            model = repair(
                booster,
                X,
                y,
                sensitive_features=group,
                max_violation=0.1,
                confidence=None,
                uses_group=uses_group,
            )
        passed = {"sensitive_features": group} if uses_group else {}
        decided = model.predict(X, **passed)
        assert violation(y, decided, sensitive_features=group) < 0.13


def test_coarse_scores_are_drawn_by_chance_and_said_to_be():
    rng = np.random.default_rng(0)
    n = 8000
    group, label = rng.integers(0, 2, n), rng.integers(0, 2, n)
    decision = np.where(rng.random(n) < 0.7 + 0.2 * group, label, 1 - label)
    rows = {"sensitive_features": group, "max_violation": 0.01, "confidence": None}
    with pytest.warns(FfermWarning, match="drawn by chance"):
        model = repair(
            decision, None, label, uses_group=True, notion="equalized_odds", **rows
        )
    assert model.is_random_
    decided = model.predict(decision, sensitive_features=group)
    again = model.predict(decision, sensitive_features=group)
    assert np.array_equal(decided, again)
    odds = violation(label, decided, sensitive_features=group, notion="equalized_odds")
    assert odds < 0.01 + 4 * np.sqrt(0.5 / n)
    assert (decided == label).mean() > 0.65
    chances = model.frame.groupby("group")["chance"].sum()
    np.testing.assert_allclose(chances, 1)


def test_a_drawn_decision_depends_on_the_row_and_not_on_its_neighbours():
    X, y, group, _ = scores_and_groups(n_groups=2)
    model = GroupRepair(
        model=lambda X: (X[:, 0] > 0.5).astype(float),
        max_violation=0.0,
        confidence=None,
        notion="equalized_odds",
    )
    with pytest.warns(FfermWarning, match="drawn by chance"):
        model.fit(X, y, sensitive_features=group)
    assert model.is_random_
    whole = model.predict(X, sensitive_features=group)
    order = np.random.default_rng(0).permutation(len(y))[:500]
    part = model.predict(X[order], sensitive_features=group[order])
    assert np.array_equal(part, whole[order])


def several_classes(n=6000, n_classes=5, n_groups=5):
    rng = np.random.default_rng(1)
    group = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, n_classes)) + 0.7 * np.eye(n_classes)[group % n_classes]
    logits = 1.5 * X
    prob = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = (prob.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
    return X, np.array(list("abcde"))[y], group, prob


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds"])
def test_five_classes_and_five_groups_are_repaired(notion):
    X, y, group, prob = several_classes()
    frozen = LogisticRegression().fit(X, y)
    plain = (frozen.predict(X) == y).mean()
    bound = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)
        model = repair(
            frozen,
            X,
            y,
            sensitive_features=group,
            max_violation=bound,
            confidence=None,
            uses_group=True,
            notion=notion,
        )
    decided = model.predict(X, sensitive_features=group)
    before = violation(y, frozen.predict(X), sensitive_features=group, notion=notion)
    after = violation(y, decided, sensitive_features=group, notion=notion)
    noise = 0.0 if not model.is_random_ else 0.05
    assert after <= bound + noise + 1e-9 < before
    assert (decided == y).mean() > plain - 0.06
    prob = model.predict_proba(X, sensitive_features=group)
    assert np.array_equal(model.classes_[prob.argmax(axis=1)], decided)
    np.testing.assert_allclose(prob.sum(axis=1), 1)


def test_tilts_and_thresholds_agree_on_two_classes():
    _X, y, group, p = scores_and_groups(20000)
    prob, n = np.column_stack([1 - p, p]), len(y)
    found = []
    for kind in (ThresholdCell, TiltCell):
        cells = [
            kind(prob[at], y[at], np.zeros(at.sum(), int), np.full(at.sum(), 1 / n), 1)
            for at in (group == k for k in range(3))
        ]
        found.append(best_rules(cells, 0.05).accuracy)
    assert found[0] == pytest.approx(found[1], abs=0.004)
    assert found[0] >= found[1] - RANDOM_GAIN


def test_a_control_feature_has_thresholds_of_its_own():
    X, y, group, p = scores_and_groups(6000)
    frame = pd.DataFrame({"score": p, "dept": np.where(X[:, 1] > 0, "x", "y")})
    notion = ConditionalParity("dept")
    model = repair(
        "score",
        frame,
        y,
        sensitive_features=group,
        max_violation=0.05,
        confidence=None,
        uses_group=True,
        notion=notion,
    )
    decided = model.predict(frame, sensitive_features=group)
    after = violation(
        y, decided, sensitive_features=group, notion=ConditionalParity(frame["dept"])
    )
    assert after <= 0.05 + 1e-9
    assert set(model.frame["stratum"]) == {"x", "y"}
    # A department of no training row keeps the frozen decision.
    other = frame.assign(dept="z")
    kept = model.predict(other, sensitive_features=group)
    assert np.array_equal(kept, (p > 0.5).astype(int))


def test_a_promise_that_few_rows_cannot_keep_is_not_given():
    _X, y, group, p = scores_and_groups(300)
    with pytest.warns(InfeasibleWarning, match="feasible_ is False"):
        model = repair(
            p, None, y, sensitive_features=group, max_violation=0.02, uses_group=True
        )
    assert not model.feasible_


def test_the_promise_holds_on_other_rows():
    _X, y, group, p = scores_and_groups(20000)
    _X2, y2, group2, p2 = scores_and_groups(200000, seed=1)
    model = repair(
        p, None, y, sensitive_features=group, max_violation=0.06, uses_group=True
    )
    assert model.feasible_
    decided = model.predict(p2, sensitive_features=group2)
    assert violation(y2, decided, sensitive_features=group2) <= 0.06


def test_without_the_group_a_correction_is_trained():
    X, y, group, _p = scores_and_groups(6000, n_groups=2)
    frozen = LogisticRegression().fit(X, y)
    model = repair(frozen, X, y, sensitive_features=group, max_violation=0.08)
    assert isinstance(model, FeatureRepair)
    assert not model.predicts_with_groups
    assert model.feasible_
    decided = model.predict(X)
    assert violation(y, decided, sensitive_features=group) < 0.08
    before = violation(y, frozen.predict(X), sensitive_features=group)
    assert before > 0.1
    by_scores = repair(
        frozen.predict_proba(X)[:, 1],
        X,
        y,
        sensitive_features=group,
        max_violation=0.08,
    )
    again = by_scores.predict(X, scores=frozen.predict_proba(X)[:, 1])
    assert np.mean(again != decided) < 1e-3


def test_trees_correct_as_well_and_sufficiency_needs_no_group():
    data = make_biased(2000, random_state=0)
    frozen = RandomForestClassifier(20, max_depth=3, random_state=0)
    frozen.fit(data.X, data.y)
    rows = {"sensitive_features": data.sensitive_features_test, "confidence": None}
    tested = data.X_test, data.y_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FfermWarning)
        trees = repair(frozen, *tested, correction="trees", max_violation=0.1, **rows)
        sufficient = repair(
            frozen, *tested, notion="sufficiency", max_violation=0.2, **rows
        )
    assert type(trees.correction_).__name__ == "FairBoostingClassifier"
    for model in (trees, sufficient):
        assert set(model.predict(data.X)) <= set(frozen.classes_)
    with pytest.raises(InvalidParameterError, match="compares labels given the pred"):
        repair(
            frozen,
            *tested,
            notion="sufficiency",
            max_violation=0.2,
            uses_group=True,
            **rows,
        )


def test_weights_count_as_repeated_rows():
    _X, y, group, p = scores_and_groups(600)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    rows = {"max_violation": 0.05, "confidence": None, "uses_group": True}
    weighted = repair(
        p, None, y, sensitive_features=group, sample_weight=weight, **rows
    )
    again = np.repeat(np.arange(len(y)), weight)
    repeated = repair(p[again], None, y[again], sensitive_features=group[again], **rows)
    np.testing.assert_allclose(weighted.rules_, repeated.rules_)


def test_rows_without_a_group_keep_the_frozen_decision():
    _X, y, group, p = scores_and_groups()
    names = np.array(["u", "v", "w"], dtype=object)[group]
    names[:50] = None
    with pytest.warns(MissingGroupWarning):
        model = repair(
            p,
            None,
            y,
            sensitive_features=names,
            max_violation=0.02,
            confidence=None,
            uses_group=True,
        )
    decided = model.predict(p, sensitive_features=names)
    assert np.array_equal(decided[:50], (p[:50] > 0.5).astype(int))
    known = names != None  # noqa: E711 - an array of objects
    after = violation(y[known], decided[known], sensitive_features=names[known])
    assert after <= 0.02 + 1e-9


@pytest.mark.parametrize("uses_group", [True, False])
def test_a_model_that_decides_by_group_is_repaired(uses_group):
    X, y, group, _p = scores_and_groups()
    adapted = adapt(LogisticRegression().fit(X, y), X, sensitive_features=group)
    model = repair(
        adapted,
        X,
        y,
        sensitive_features=group,
        max_violation=0.1,
        confidence=None,
        uses_group=uses_group,
        notion="equal_opportunity",
    )
    assert model.predicts_with_groups
    assert model.feasible_
    assert set(model.predict(X, sensitive_features=group)) == {0, 1}


MISTAKES = {
    "must be between 0 and 1": {"max_violation": 1.5},
    "at least 0.5 and below 1": {"confidence": 0.3},
    "uses_group must be": {"uses_group": "yes"},
    "groups must be": {"groups": "one by one"},
    "same index in another order": {
        "y": pd.Series(np.arange(3000) % 2, index=np.arange(3000)[::-1]),
        "sensitive_features": pd.Series(["u", "v"] * 1500),
    },
    "sensitive_features": {"sensitive_features": None},
    "Did you mean 'demographic_parity'": {"notion": "demografic_parity"},
    "scores must be finite; got 1": {"scores": [np.nan, *np.full(2999, 0.5)]},
    "labels for 3000 rows": {"y": [0, 1]},
    "one column per class": {"scores": np.full((3000, 3), 1 / 3)},
    "scores must be numbers": {"scores": ["a"] * 3000},
    "never seen the groups": {"predict_for": ["u"] * 3000},
    "decides by group": {"predict_for": None},
    "nothing to be fair": {"sensitive_features": ["u"] * 3000},
    "needs the control feature to predict": {
        "notion": ConditionalParity(["x", "y"] * 1500)
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    _X, y, group, p = scores_and_groups()
    how = {
        "scores": p,
        "y": y,
        "sensitive_features": group,
        "max_violation": 0.05,
        "confidence": None,
        "uses_group": True,
        **MISTAKES[message],
    }
    is_asked_later = "predict_for" in how
    seen = how.pop("predict_for", group)
    asked = partial(repair, how.pop("scores"), None, how.pop("y"), **how)
    if is_asked_later:
        asked = partial(asked().predict, p, sensitive_features=seen)
    with pytest.raises(FfermError, match=message) as raised:
        asked()
    assert "\n" not in str(raised.value)


def test_a_repair_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match="GroupRepair is not fitted"):
        GroupRepair().predict([0.5], sensitive_features=["a"])
    X, y, group, _p = scores_and_groups(300)
    with pytest.raises(InvalidInputError, match="needs y"):
        repair(
            LogisticRegression().fit(X, y),
            X,
            None,
            sensitive_features=group,
            max_violation=0.1,
        )


def test_features_are_needed_without_the_group():
    X, y, group, p = scores_and_groups()
    with pytest.raises(InvalidInputError, match="needs X"):
        repair(p, None, y, sensitive_features=group, max_violation=0.05)
    with pytest.raises(InvalidParameterError, match="'linear', 'trees'"):
        repair(p, X, y, sensitive_features=group, max_violation=0.05, correction="net")
    with pytest.raises(MissingSensitiveError):
        repair(p, X, y, sensitive_features=None, max_violation=0.05)


@pytest.mark.parametrize("uses_group", [True, False])
def test_a_repaired_model_is_saved_without_pickle(tmp_path, uses_group):
    X, y, group, p = scores_and_groups(2000)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(score=p)
    rows = {"sensitive_features": group, "max_violation": 0.2, "confidence": None}
    rows["uses_group"] = uses_group
    passed = {"sensitive_features": group} if uses_group else {}
    fair = fferm.FairLogisticRegression(fairness_weight=0).fit(X, y)
    other = LogisticRegression().fit(X, y)
    for model, table in (("score", frame), (fair, X), (other, X)):
        made = repair(model, table, y, **rows)
        path = tmp_path / "repaired.fferm"
        fferm.save(made, path)
        loaded = fferm.load(path)
        expected = made.predict_proba(table, **passed)
        if model is other:
            with pytest.raises(PersistenceError, match="does not hold the model"):
                loaded.predict(table, **passed)
            scores = other.predict_proba(X)
            again = loaded.predict_proba(table, **passed, scores=scores)
            np.testing.assert_array_equal(again, expected)
            loaded = fferm.load(path, model=other)
        np.testing.assert_array_equal(loaded.predict_proba(table, **passed), expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("score_unit_", (1.0,)),
        ("score_unit_", (0.0, -1.0)),
        ("rules_", np.full((3, 1), "0.5")),
        ("chances_", np.ones((2, 1))),
        ("random_state", None),
    ],
)
def test_a_changed_file_of_rules_is_refused(name, value):
    _X, y, group, p = scores_and_groups(300)
    rows = {"sensitive_features": group, "scores": p}
    model = GroupRepair(max_violation=0.3, confidence=None).fit(None, y, **rows)
    _, learned = model._to_saved()
    model._from_saved(learned)
    with pytest.raises(FfermError, match=f"{name} must"):
        model._from_saved({**learned, name: value})


def test_a_repaired_model_is_audited():
    X, y, group, _p = scores_and_groups()
    model = repair(
        LogisticRegression().fit(X, y),
        X,
        y,
        sensitive_features=group,
        max_violation=0.05,
        confidence=None,
        uses_group=True,
        notion="equal_opportunity",
    )
    audit = fferm.audit(model, X, y, sensitive_features=group)
    assert audit.notion == "equal_opportunity"
    assert audit.passes(0.05)
    assert audit.violation == pytest.approx(model.violation_)


def test_a_notion_of_ones_own_is_repaired_through_its_strata():
    class NegativesAndOld(Notion):
        name = "negatives_in_test"

        def strata(self, labels):
            return Strata(np.where(labels.y == 0, 0, -1), ("negatives",))

    _X, y, group, p = scores_and_groups()
    model = repair(
        p,
        None,
        y,
        sensitive_features=group,
        max_violation=0.03,
        confidence=None,
        uses_group=True,
        notion=NegativesAndOld(),
    )
    decided = model.predict(p, sensitive_features=group)
    rates = [decided[(group == k) & (y == 0)].mean() for k in range(3)]
    assert max(rates) - min(rates) <= 0.03 + 1e-9


def test_a_file_whose_correction_is_no_model_is_refused():
    X, y, group, p = scores_and_groups(300)
    rows = {"sensitive_features": group, "max_violation": 0.5, "confidence": None}
    model = repair(p, X, y, **rows)
    _, learned = model._to_saved()
    with pytest.raises(PersistenceError, match="must be a fair classifier; got"):
        model._from_saved({**learned, "correction_": ()})


def test_a_threshold_below_every_score_accepts_all():
    _, y, group, p = scores_and_groups(300)
    how = {"max_violation": 0.3, "confidence": None}
    model = GroupRepair(**how).fit(None, y, sensitive_features=group, scores=p)
    model.rules_ = np.full_like(model.rules_, -0.5)
    prob = model.predict_proba(scores=p, sensitive_features=group)
    assert np.all(prob[:, 1] > 0.5)
