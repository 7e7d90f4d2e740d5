"""A controller of parity keeps its certificate on every stream."""

import copy
import json
import math
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import fferm
from fferm.datasets import make_biased
from fferm.deploy import ParityController, adapt
from fferm.deploy._kernels import GIVEN, LEARNED, MODEL, PRIOR_ROWS, follow
from fferm.deploy.base import onto_simplex
from fferm.errors import (
    FfermError,
    InvalidInputError,
    InvalidParameterError,
    PersistenceError,
)
from fferm.notions import EqualOpportunity

# A threshold is a sum of counts: it is exact up to the rounding of a few products.
ROUNDING = 1e-12


def keeps_certificate(controller):
    table = controller.certificate()
    table = table[table["rows"] > 0]
    return bool((table["gap"] <= table["bound"] * (1 + ROUNDING) + ROUNDING).all())


def by_hand(scores, groups, step, target):
    """Return decisions and last thresholds, as the issue of one line states them."""
    bars, decisions = {}, []
    for score, group in zip(scores, groups, strict=True):
        bar = bars.get(group, 0.5)
        decisions.append(int(score > bar))
        bars[group] = bar + step * (decisions[-1] - target)
    return decisions, bars


def stream(rng, kind, n_rows, n_groups):
    """Return scores and groups of one adversarial stream."""
    group = rng.integers(n_groups, size=n_rows)
    score = rng.random(n_rows)
    if kind == "alternating":
        score = np.arange(n_rows) % 2 * 1.0
    elif kind == "sorted":
        score = np.sort(score)[:: rng.choice([-1, 1])]
    elif kind == "silent":  # one group comes at the end only
        group = np.where(np.arange(n_rows) < 0.9 * n_rows, 0, n_groups - 1)
    elif kind == "ends":
        score = rng.choice([0.0, 1.0, 0.5], size=n_rows)
    elif kind == "drift":
        score = np.clip(score + np.linspace(-1, 1, n_rows) * rng.choice([-1, 1]), 0, 1)
    elif kind == "by group":
        score = (group == 0) * 1.0
    return score, group


KINDS = ("random", "alternating", "sorted", "silent", "ends", "drift", "by group")


def test_thresholds_move_by_the_step_that_is_stated():
    rng = np.random.default_rng(0)
    scores, groups = rng.random(500), rng.choice(["a", "b"], 500)
    controller = ParityController(target_rate=0.3, step=0.1)
    decisions, bars = by_hand(scores, groups.tolist(), 0.1, 0.3)
    assert controller.update(scores, groups).tolist() == decisions
    assert controller.groups_ == tuple(dict.fromkeys(groups.tolist()))
    np.testing.assert_allclose(
        controller.thresholds, [bars[g] for g in controller.groups_], rtol=1e-12
    )


def test_the_certificate_holds_on_ten_thousand_adversarial_streams():
    rng = np.random.default_rng(1)
    for number in range(10_000):
        kind, n_groups = KINDS[number % len(KINDS)], 1 + number % 4
        score, group = stream(rng, kind, int(rng.integers(1, 300)), n_groups)
        step, rho = 10 ** rng.uniform(-3, 1), rng.choice([0.0, 1.0, rng.random()])
        counts = np.zeros((n_groups, 2), np.int64)
        expected, totals = np.zeros((n_groups, 1)), np.zeros(3, np.int64)
        code = np.zeros(len(score), np.int64)
        how = step, (GIVEN, LEARNED, MODEL)[number % 3], np.array([rho])
        follow(score[:, None], group, *how, counts, expected, totals, code, True)
        n_rows = counts[:, 0]
        off = np.abs(counts[:, 1] - expected[:, 0])  # rows times the gap
        assert np.all(off * step <= 0.5 + step + ROUNDING)
        assert n_rows.sum() == len(score)
        assert np.all(np.bincount(group, code, n_groups) == counts[:, 1])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2)), min_size=1, max_size=80),
    st.floats(1e-3, 10),
    st.one_of(st.none(), st.just("learned"), st.floats(0, 1)),
    st.data(),
)
@settings(max_examples=200)
def test_no_stream_breaks_the_certificate(rows, step, target, data):
    controller = ParityController(target_rate=target, step=step)
    while rows:  # in batches of any size
        size = data.draw(st.integers(1, len(rows)))
        scores, groups = zip(*rows[:size], strict=True)
        controller.update(list(scores), list(groups))
        rows = rows[size:]
        assert keeps_certificate(controller)


def test_an_adversary_who_sees_the_thresholds_cannot_break_the_certificate():
    for rho in (0.1, 0.5, 0.9):
        controller = ParityController(target_rate=rho, step=0.1)
        rng, bars = np.random.default_rng(2), {"a": 0.5, "b": 0.5}
        for _ in range(2000):
            group = rng.choice(["a", "b"])
            # Just above the threshold while it rises, just below while it falls.
            score = np.clip(bars[group] + rng.choice([-1e-9, 1e-9]), 0, 1)
            controller.update([score], [group])
            bars = dict(zip(controller.groups_, controller.thresholds, strict=True))
            bars = {"a": 0.5, "b": 0.5} | bars
        assert keeps_certificate(controller)


def share_of_bound(controller, group):
    row = controller.certificate().loc[group]
    return float((row["gap"] / row["bound"]).max())


@pytest.mark.parametrize("rate", [0, 1])
def test_no_smaller_bound_would_hold_for_two_classes(rate):
    controller = ParityController(target_rate=rate, step=0.4999)
    controller.update([1.0 - rate] * 2, ["a"] * 2)
    assert 0.999 < share_of_bound(controller, "a") <= 1


def test_no_smaller_bound_would_hold_where_labels_come_late():
    controller = ParityController(
        target_rate=0, step=0.0999, notion="equal_opportunity"
    )
    for n_rows in (1, 1, 1, 1, 1, 10):  # ten wait at once, just below 1
        rows = [1.0] * n_rows, ["a"] * n_rows
        decided = controller.update(*rows)
        controller.observe(*rows, decided, [1] * n_rows)
    assert 0.999 < share_of_bound(controller, "a") <= 1


def test_no_smaller_bound_would_hold_for_three_classes():
    # Another group moves the target: first the second and third class, then the third.
    controller, corners = ParityController(step=0.01), np.eye(3)
    for flood, n_flood, lead, n_rows in (
        ([1, 2], 2_000, 0, 67),
        ([2, 2], 300_000, 1, 50),
    ):
        controller.update(corners[flood * n_flood], ["b"] * 2 * n_flood)
        controller.update(corners[[lead] * n_rows], ["a"] * n_rows)
    assert 0.97 < share_of_bound(controller, "a") <= 1


@pytest.mark.parametrize("n_classes", [3, 5, 8])
def test_the_certificate_holds_for_several_classes(n_classes):
    rng = np.random.default_rng(n_classes)
    for number in range(300):
        rho = rng.dirichlet(np.ones(n_classes) * rng.choice([0.1, 1, 10]))
        target = [None, "learned", (rho / rho.sum()).tolist()][number % 3]
        controller = ParityController(target_rate=target, step=10 ** rng.uniform(-2, 0))
        prob = rng.dirichlet(np.full(n_classes, rng.choice([0.01, 1.0])), size=200)
        if number % 2:  # whoever is lowest now is surest next: prob to the corners
            prob = np.eye(n_classes)[prob.argmin(axis=1)]
        codes = controller.update(prob, rng.integers(3, size=200))
        assert keeps_certificate(controller)
        counts = controller.counts_[:, 1:].sum(axis=0)
        assert counts.tolist() == np.bincount(codes, minlength=n_classes).tolist()


def test_two_classes_as_two_columns_are_as_one():
    rng = np.random.default_rng(3)
    scores, groups = rng.random(300), rng.choice(["a", "b"], 300)
    one, two = ParityController(), ParityController()
    decided = one.update(scores, groups)
    pairs = np.column_stack([1 - scores, scores])
    assert two.update(pairs, groups).tolist() == decided.tolist()


def test_how_a_stream_is_cut_changes_nothing():
    rng = np.random.default_rng(4)
    scores, groups = rng.random(1000), rng.choice(["a", "b", "c"], 1000)
    for target in (None, "learned", 0.4):
        whole = ParityController(target_rate=target)
        decided = whole.update(scores, groups)
        cut = ParityController(target_rate=target)
        parts = [
            cut.update(scores[part], groups[part])
            for part in np.split(np.arange(1000), np.sort(rng.integers(1000, size=40)))
        ]
        assert np.concatenate(parts).tolist() == decided.tolist()
        assert cut.state_dict() == whole.state_dict()


@pytest.mark.parametrize("way", ["state", "pickle", "copy", "file"])
def test_a_stream_that_was_killed_goes_on_with_the_same_decisions(way, tmp_path):
    rng = np.random.default_rng(5)
    scores, groups = rng.random(2000), rng.choice(["a", "b"], 2000)
    controller = ParityController(target_rate="learned", step=0.03)
    controller.update(scores[:1000], groups[:1000])
    if way == "state":
        resumed = ParityController(target_rate="learned", step=0.03)
        resumed.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    elif way == "pickle":
        resumed = pickle.loads(pickle.dumps(controller))
    elif way == "copy":
        resumed = copy.copy(controller)
    else:
        fferm.save(controller, tmp_path / "controller.fferm")
        resumed = fferm.load(tmp_path / "controller.fferm")
    rest = resumed.update(scores[1000:], groups[1000:])
    assert resumed.groups_ == controller.groups_
    assert controller.counts_[:, 0].sum() == 1000  # a copy is on its own
    assert controller.update(scores[1000:], groups[1000:]).tolist() == rest.tolist()


STREAMED = """
import sys
from pathlib import Path
import numpy as np
import fferm
from fferm.deploy import ParityController

path, rng = Path(sys.argv[1]), np.random.default_rng(5)
scores, groups = rng.random(5000), rng.choice(["a", "b"], 5000)
controller = ParityController(target_rate="learned", step=0.03)
if path.exists():
    controller = fferm.load(path)
begin = int(controller.totals_[0]) if controller.groups_ else 0
for begin in range(begin, 5000, 10):
    rows = slice(begin, begin + 10)
    decided = controller.update(scores[rows], groups[rows])
    print(begin, *decided, flush=True)
    fferm.save(controller, path)
"""


def test_a_process_that_is_killed_twice_decides_as_one_that_is_not(tmp_path):
    decided, n_kept = {}, []
    for n_lines in (20, 45, 500):
        with subprocess.Popen(
            [sys.executable, "-c", STREAMED, str(tmp_path / "stream.fferm")],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(n_lines):
                line = process.stdout.readline()
                if line.endswith("\n"):
                    begin, *made = map(int, line.split())
                    assert decided.setdefault(begin, made) == made
            process.kill()
        n_kept.append(len(decided))
    assert n_kept[0] == 20 < n_kept[1] < n_kept[2] == 500
    rng = np.random.default_rng(5)
    rows = rng.random(5000), rng.choice(["a", "b"], 5000)
    whole = ParityController(target_rate="learned", step=0.03).update(*rows)
    assert [each for begin in sorted(decided) for each in decided[begin]] == [*whole]


@pytest.mark.parametrize("way", ["state", "file"])
def test_a_stream_that_goes_on_keeps_the_labels_of_its_model(way, tmp_path):
    data = make_biased(random_state=0)
    names = np.where(np.asarray(data.y) == 1, "yes", "no")
    scorer = LogisticRegression().fit(data.X, names)
    rows = data.X_test, data.sensitive_features_test
    controller = ParityController(model=scorer)
    controller.update(*rows)
    if way == "state":
        resumed = ParityController(model=scorer)
        resumed.load_state_dict(controller.state_dict())
    else:
        fferm.save(controller, tmp_path / "c.fferm")
        resumed = fferm.load(tmp_path / "c.fferm", model=scorer)
    decided = controller.update(*rows)
    assert set(decided) == {"yes", "no"}
    assert resumed.update(*rows).tolist() == decided.tolist()


def test_a_model_that_decides_by_group_is_told_the_groups():
    data = make_biased(random_state=0)
    groups = {"sensitive_features": data.sensitive_features_test}
    scorer = LogisticRegression().fit(data.X, data.y)
    adapted = adapt(scorer, data.X_test, **groups)
    controller = ParityController(model=adapted)
    decided = controller.update(data.X_test, groups["sensitive_features"])
    assert np.mean(decided != adapted.predict(data.X_test, **groups)) < 0.1
    assert keeps_certificate(controller)


def test_threads_lose_no_row():
    controller = ParityController()
    rng = np.random.default_rng(6)
    scores, groups = rng.random(50), rng.choice(["a", "b"], 50)

    def work():
        for _ in range(100):
            controller.update(scores, groups)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert controller.counts_[:, 0].sum() == controller.totals_[0] == 4 * 100 * 50
    assert keeps_certificate(controller)


@pytest.mark.parametrize(
    ("scores", "groups", "message"),
    [
        ([0.5, np.nan], ["a", "b"], "scores must be probabilities"),
        ([0.5, 1.5], ["a", "b"], "scores must be probabilities"),
        ([0.5, None], ["a", "b"], "scores must be probabilities"),
        (["high", "low"], ["a", "b"], "scores must be numbers"),
        ([[0.5, 0.4]], ["a"], "rows that sum to 1"),
        ([0.5], ["a", "b"], "one value per row; got 2 for 1"),
        ([0.5, 0.5], ["a", None], "rows without a value"),
        ([0.5, 0.5], ["new", np.nan], "rows without a value"),
        ([0.5, 0.5], ["new", {}], "groups must hold one value per row"),
        ([0.5, 0.5], "ab", "sensitive_features must hold one value per row"),
        ([[0.2, 0.3, 0.5]], ["a"], "must have 1 columns, as before; got 3"),
    ],
)
def test_rows_that_cannot_be_used_change_nothing(scores, groups, message):
    controller = ParityController()
    controller.update([0.9, 0.1, 0.7], ["a", "a", "b"])
    before = controller.state_dict()
    with pytest.raises(FfermError, match=message):
        controller.update(scores, groups)
    assert controller.state_dict() == before


def test_no_rows_change_nothing():
    controller = ParityController()
    controller.update([0.9], ["a"])
    before = controller.state_dict()
    assert controller.update([], []).tolist() == []
    assert controller.state_dict() == before
    fresh = ParityController(model=LogisticRegression().fit([[0], [1]], ["n", "y"]))
    for scores in ([], np.zeros((0, 1)), pd.DataFrame({"x": []})):
        assert fresh.update(scores, []).tolist() == []
    assert ParityController().update([], []).tolist() == []
    assert fresh.update([[5.0]], ["a"]).tolist() == ["y"]


def test_a_group_never_seen_begins_at_the_threshold_of_the_model():
    controller = ParityController(target_rate=0.5)
    controller.update([0.9] * 5, ["a"] * 5)
    assert controller.update([0.51, 0.49], ["b", "c"]).tolist() == [1, 0]
    strict = ParityController(groups=["a", 1])
    strict.update([0.9, 0.2], ["a", "1"])
    with pytest.raises(InvalidInputError, match="'b', which is not among a, 1"):
        strict.update([0.5], ["b"])
    assert strict.certificate()["rows"].tolist() == [1.0, 1.0]


def test_groups_are_read_from_any_column():
    scores = [0.9, 0.2, 0.7]
    frame = pd.DataFrame({"sex": ["f", "m", "f"], "old": [True, False, True]})
    made = [
        ParityController().update(scores, groups).tolist()
        for groups in (frame["sex"], frame["sex"].to_numpy(), frame[["sex"]], [1, 2, 1])
    ]
    assert made == [made[0]] * 4
    controller = ParityController()
    controller.update(scores, frame)
    assert controller.groups_ == ("f × True", "m × False")
    controller.update([0.4], [["f", True]])
    assert controller.counts_[:, 0].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_rate": 1.2}, "target_rate must be between 0 and 1"),
        ({"target_rate": [0.5, 0.5]}, "target_rate must be between 0 and 1"),
        ({"target_rate": "given"}, "target_rate must be None, 'learned'"),
        ({"target_rate": ["half"]}, "target_rate must be between 0 and 1"),
        ({"step": 0.0}, "step must be a finite number above 0"),
        ({"notion": "equalized_odds"}, "notion must compare one rate"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(InvalidParameterError, match=message):
        ParityController(**options).update([0.5], ["a"])


def test_parameters_stay_as_they_are_once_a_stream_runs():
    controller = ParityController(target_rate=[0.2, 0.3, 0.5])
    with pytest.raises(InvalidInputError, match="rows without a value"):
        controller.update([[0.2, 0.3, 0.5]], [None])
    controller.set_params(target_rate=0.5)  # nothing has been learned yet
    assert controller.update([0.9], ["a"]).tolist() == [1]
    with pytest.raises(InvalidParameterError, match=r"stay as they are .* got step"):
        controller.set_params(step=0.1)
    assert clone(controller).set_params(step=0.1).step == 0.1


def test_a_state_of_another_controller_is_refused():
    state = ParityController(step=0.1).state_dict()
    with pytest.raises(InvalidParameterError, match="same parameters"):
        ParityController(step=0.2).load_state_dict(state)
    with pytest.raises(InvalidInputError, match="seen no rows"):
        ParityController().certificate()


CHANGED = {
    "no groups": {"groups": None},
    "a group twice": {"groups": ["a", "a"]},
    "a group too many": {"groups": ["a", "b", "c"]},
    "half a row": {"counts": [[1.5, 0], [2, 1]]},
    "more decisions than rows": {"counts": [[2, 3], [2, 1]]},
    "fewer rows than none": {"counts": [[-1, 0], [2, 1]]},
    "text": {"counts": "x"},
    "rows of other lengths": {"counts": [[1], [2, 1]]},
    "NaN": {"expected": [[math.nan], [0.6]]},
    "infinity": {"expected": [[math.inf], [0.6]]},
    "one number": {"expected": 0.6},
    "where no stream leads": {"expected": [[40.0], [0.6]]},
    "no totals": {"totals": None},
    "no text": {"groups": [["a"], ["b"]]},
}


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
def test_a_state_that_was_changed_is_refused_and_changes_nothing(changed):
    controller = ParityController(0.3, 0.1)
    controller.update([0.2, 0.9, 0.4, 0.7], ["a", "b", "a", "b"])
    before = controller.state_dict()
    wrong = {k: v for k, v in (before | changed).items() if v is not None}
    with pytest.raises((InvalidParameterError, PersistenceError)):
        controller.load_state_dict(wrong)
    assert controller.state_dict() == before


@pytest.mark.parametrize("state", [None, "state", [], {}])
def test_what_is_not_a_state_is_refused(state):
    with pytest.raises(InvalidParameterError, match="same parameters"):
        ParityController().load_state_dict(state)


def test_a_state_of_other_groups_is_refused():
    state = ParityController(groups=np.array(["a", "b"])).state_dict()
    with pytest.raises(InvalidParameterError, match="same parameters"):
        ParityController(groups=["a"]).load_state_dict(state)


def test_rows_in_another_order_are_refused():
    controller = ParityController(notion="equal_opportunity")
    scores, groups = pd.Series([0.9, 0.2]), pd.Series(["a", "b"])
    with pytest.raises(InvalidInputError, match="same index in another order"):
        controller.update(scores, groups[::-1])
    decided = pd.Series(controller.update(scores, groups))
    with pytest.raises(InvalidInputError, match="same index in another order"):
        controller.observe(scores, groups, decided, decided[::-1])
    controller.observe(scores, groups, decided, [1, 0])


def labelled_stream(rng, n_rows):
    groups = rng.choice(["a", "b"], n_rows, p=[0.8, 0.2])
    scores = np.clip(rng.beta(2, 2, n_rows) - 0.25 * (groups == "b"), 0, 1)
    return scores, groups, (rng.random(n_rows) < scores).astype(int)


def test_equal_opportunity_is_level_once_labels_arrive():
    rng = np.random.default_rng(7)
    scores, groups, labels = labelled_stream(rng, 20_000)
    controller = ParityController(notion="equal_opportunity", step=0.05)
    decided = np.empty(20_000, dtype=int)
    for begin in range(0, 20_000, 100):
        part = slice(begin, begin + 100)
        decided[part] = controller.update(scores[part], groups[part])
        late = slice(max(begin - 300, 0), max(begin - 200, 0))  # labels come late
        rows = scores[late], groups[late], decided[late], labels[late]
        controller.observe(*rows)
        assert keeps_certificate(controller)

    def gap(made):
        rates = [made[(labels == 1) & (groups == g)].mean() for g in ("a", "b")]
        return abs(rates[0] - rates[1])

    assert gap(scores > 0.5) > 0.2
    assert gap(decided) < 0.03
    table = controller.certificate()
    positives = labels[:19_700] == 1
    for group, row in table.iterrows():
        kept = positives & (groups[:19_700] == group)
        assert row["rows"] == kept.sum()
        assert row["rate"] == pytest.approx(decided[:19_700][kept].mean())


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.data())
@settings(max_examples=100)
def test_no_order_of_labels_breaks_the_certificate(rows, data):
    step, target = data.draw(st.floats(1e-3, 1)), data.draw(st.floats(0, 1))
    controller = ParityController(target, step, notion="equal_opportunity")
    waiting = []
    for score, label in rows:
        (decided,) = controller.update([score], ["a"])
        waiting.append((score, decided, int(label)))
        n_known = data.draw(st.integers(0, len(waiting)))
        known = [
            waiting.pop(data.draw(st.integers(0, 99)) % len(waiting))
            for _ in range(n_known)
        ]
        scores, made, labels = zip(*known, strict=True) if known else ((), (), ())
        controller.observe(scores, ["a"] * n_known, made, labels)
        assert keeps_certificate(controller)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_late_labels_of_several_classes_keep_the_certificate(n_classes):
    rng, corners = np.random.default_rng(n_classes), np.eye(n_classes)
    notion = EqualOpportunity(positive=1)
    for number in range(15):
        step, most = 10 ** rng.uniform(-2, 0), int(rng.integers(1, 40))
        target = [None, "learned", rng.dirichlet(np.ones(n_classes)).tolist()]
        controller = ParityController(target[number % 3], step, notion=notion)
        moved, waiting = np.zeros(n_classes), []
        for _ in range(20):
            # What is lowest now comes many times at once, before labels are known.
            rows = corners[[int(np.argmin(moved))] * most]
            waiting += [*zip(rows, controller.update(rows, ["a"] * most), strict=True)]
            rng.shuffle(waiting)
            n_known = int(rng.integers(1, len(waiting) + 1))
            known, waiting = waiting[:n_known], waiting[n_known:]
            rows, decided = zip(*known, strict=True)
            controller.observe(rows, ["a"] * n_known, decided, [1] * n_known)
            (moved,) = controller.thresholds
            assert keeps_certificate(controller)


@pytest.mark.parametrize("groups", [["a", "a"], ["b", "a"], ["new", "a"]])
@pytest.mark.parametrize("decisions", [[1, 1], [0, 0]])
def test_rows_that_do_not_wait_for_labels_are_refused(groups, decisions):
    controller = ParityController(notion="equal_opportunity")
    decided = controller.update([0.9, 0.1, 0.6], ["a", "a", "b"])
    assert decided.tolist() == [1, 0, 1]
    controller.observe([0.6], ["b"], [1], [1])
    before = controller.state_dict()
    with pytest.raises(InvalidInputError, match="each row once, with the decision of"):
        controller.observe([0.9, 0.1], groups, decisions, [1, 1])
    assert controller.state_dict() == before
    controller.observe([0.1, 0.9], ["a", "a"], [0, 1], [1, 0])


def test_observe_needs_labels_that_are_known_and_a_notion_about_them():
    controller = ParityController(notion="equal_opportunity")
    with pytest.raises(InvalidInputError, match="seen no rows"):
        controller.observe([0.5], ["a"], [1], [1])
    controller.update([0.5], ["a"])
    before = controller.state_dict()
    with pytest.raises(InvalidInputError, match="label 7"):
        controller.observe([0.5], ["new"], [1], [7])
    assert controller.state_dict() == before
    with pytest.raises(InvalidParameterError, match="needs a notion about labels"):
        ParityController().observe([0.5], ["a"], [1], [1])


def test_a_controller_is_a_model_that_audits_and_files_take(tmp_path):
    data = make_biased(random_state=0)
    X, s = np.asarray(data.X_test), data.sensitive_features_test
    scorer = LogisticRegression().fit(data.X, data.y)
    controller = ParityController(model=scorer, step=0.3)
    decided = controller.update(X, s)
    groups = {"sensitive_features": s}
    level = fferm.metrics.violation(data.y_test, decided, **groups)
    plain = fferm.metrics.violation(data.y_test, scorer.predict(X), **groups)
    assert level < 0.02 < plain
    fixed = controller.predict(X, **groups)
    assert np.array_equal(fixed, controller.predict(X, **groups))  # nothing moves
    prob = controller.predict_proba(X, **groups)
    np.testing.assert_allclose(prob.sum(axis=1), 1.0)
    audit = fferm.audit(controller, X, data.y_test, **groups)
    assert audit.violation == fferm.metrics.violation(data.y_test, fixed, **groups)
    assert "no stream could exceed" in str(audit)
    fferm.save(controller, tmp_path / "c.fferm")
    loaded = fferm.load(tmp_path / "c.fferm", model=scorer)
    assert np.array_equal(loaded.predict(X, **groups), fixed)
    with pytest.raises(FfermError, match=r"Pass it: fferm.load\(path, model"):
        fferm.load(tmp_path / "c.fferm").predict(X, **groups)


def test_probabilities_of_a_controller_agree_with_its_thresholds():
    rng = np.random.default_rng(8)
    scores, groups = rng.random(400), rng.choice(["a", "b"], 400)
    controller = ParityController(target_rate=0.3)
    controller.update(scores, groups)
    bars = dict(zip(controller.groups_, controller.thresholds, strict=True))
    by_row = np.array([bars[g] for g in groups])
    fixed = controller.predict(scores, sensitive_features=groups)
    assert np.array_equal(fixed, (scores > by_row).astype(int))


def test_the_simplex_is_met_at_its_nearest_point():
    rng = np.random.default_rng(9)
    points = rng.normal(size=(200, 4))
    nearest = onto_simplex(points)
    np.testing.assert_allclose(nearest.sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(nearest >= 0)
    others = rng.dirichlet(np.ones(4), size=500)
    distance = np.sum((points - nearest) ** 2, axis=1)
    away = np.sum((points[:, None] - others[None]) ** 2, axis=2)
    assert np.all(distance[:, None] <= away + ROUNDING)


def test_learned_targets_begin_at_the_model():
    controller = ParityController(target_rate="learned")
    controller.update([0.9], ["a"])
    share = (PRIOR_ROWS * 1.0 + 1) / (PRIOR_ROWS + 1)
    assert controller.expected_[0, 0] == pytest.approx(share)
