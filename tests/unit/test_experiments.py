"""Experiments go on where they stopped, and summaries are what they say."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fferm import FairLogisticRegression
from fferm.data.rows import FitInput
from fferm.datasets import make_biased
from fferm.errors import InvalidParameterError, UnknownNameError
from fferm.lab.baselines import RobustCovariateShift
from fferm.lab.experiments import __main__ as program
from fferm.lab.experiments import known, read_spec, run, runner, summarize
from fferm.lab.experiments.results import write_experiment
from fferm.lab.experiments.runner import (
    Parts,
    fit_sweep,
    load_parts,
    make_model,
    takes_part,
    trade_offs,
)
from fferm.lab.experiments.specs import Method, Panel, Size, Spec
from fferm.uncertainty import SmallShift

SIZE = Size(seeds=2, n_values=3)
PANEL = Panel(
    "German", {"loader": "german", "sensitive": ["sex"]}, "demographic_parity", 64
)
OURS = Method("f-FERM", "FairLogisticRegression", {"divergence": "kl"})
BASELINE = Method("Rényi", "RenyiFairInference")
BOUNDS = {
    "accuracy": 0.5,
    "violation": 0.5,
    "max_violation": 0.1,
    "at_accuracy": 0.7,
    "at_higher_accuracy": 0.75,
}
SPEC = Spec("tiny", "A tiny one", "fronts", (PANEL,), (OURS, BASELINE), {}, BOUNDS)


@pytest.fixture
def tiny(monkeypatch):
    spec = replace(SPEC, sizes={"small": SIZE, "full": SIZE})
    monkeypatch.setattr(runner, "read_spec", lambda name: spec)
    return spec


def test_a_run_writes_records_figure_and_table(tiny, tmp_path):
    pytest.importorskip("matplotlib")
    records = run("tiny", out=tmp_path, progress=False)
    # Two methods, two seeds, three values, judged on two parts.
    assert len(records) == 24
    assert {"panel", "method", "seed", "part", "value"} <= set(records.columns)
    lines = (tmp_path / "tiny-small.jsonl").read_text("utf-8").splitlines()
    assert len(lines) == 4
    assert (tmp_path / "tiny-small.png").stat().st_size > 1000
    assert "| f-FERM | 0." in (tmp_path / "tiny-small.md").read_text("utf-8")


def test_a_run_goes_on_where_it_was_cut_off(tiny, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    whole = run("tiny", out=tmp_path, progress=False)
    file = tmp_path / "tiny-small.jsonl"
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:50] + "\n", encoding="utf-8")
    asked = []

    def remember(task, size):
        asked.append(task.key)
        return json.loads(lines[3])

    monkeypatch.setattr(runner, "run_task", remember)
    again = run("tiny", out=tmp_path, progress=False)
    assert len(asked) == 1
    pd.testing.assert_frame_equal(again, whole)


def test_one_method_may_be_run_alone_and_the_rest_later(tiny, tmp_path):
    pytest.importorskip("matplotlib")
    alone = run("tiny", out=tmp_path, only=["Rényi"], progress=False)
    assert set(alone["method"]) == {"Rényi"}
    assert "| Rényi | 0." in (tmp_path / "tiny-small.md").read_text("utf-8")
    both = run("tiny", out=tmp_path, only=["f-FERM"], progress=False)
    assert both["method"].value_counts().to_dict() == {"Rényi": 12, "f-FERM": 12}


def test_a_run_may_begin_at_seeds_that_nobody_has_looked_at(tiny, tmp_path):
    pytest.importorskip("matplotlib")
    fresh = run("tiny", out=tmp_path, first_seed=5, only=["f-FERM"], progress=False)
    assert set(fresh["seed"]) == {5, 6}


def test_a_seed_below_zero_is_refused(tiny, tmp_path):
    with pytest.raises(InvalidParameterError, match=r"first_seed must be .*got -1"):
        run("tiny", out=tmp_path, first_seed=-1)


def test_a_method_that_the_experiment_lacks_is_named(tiny, tmp_path):
    with pytest.raises(UnknownNameError, match=r"Unknown method 'Renyi'.*'Rényi'"):
        run("tiny", out=tmp_path, only=["Renyi"])


def test_the_program_says_in_a_line_what_it_does_not_know(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["experiments", "fig9"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "error: Unknown experiment 'fig9'" in capsys.readouterr().err


def test_the_same_seed_gives_the_same_records():
    task = runner.Task(PANEL, BASELINE, 1)
    first, second = (pd.DataFrame(runner.run_task(task, SIZE)) for _ in range(2))
    pd.testing.assert_frame_equal(
        first.drop(columns="seconds"), second.drop(columns="seconds")
    )


def test_an_unknown_experiment_or_size_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="Unknown experiment 'fig9'"):
        run("fig9", out=tmp_path)
    with pytest.raises(InvalidParameterError, match=r"size must be .*got 'huge'"):
        run("fig1", "huge", out=tmp_path)


@pytest.mark.parametrize("name", known())
def test_every_spec_names_methods_and_data_that_exist(name):
    spec = read_spec(name)
    for size in spec.sizes.values():
        assert size.seeds >= 5, "intervals need seeds"
    for panel in spec.panels:
        taking = [method for method in spec.methods if takes_part(method, panel)]
        assert taking
        for method in taking:
            method = method.at(method.among[0] if method.among else None)
            model = make_model(method, panel, seed=0)
            values = trade_offs(method, model, 5)
            assert len(values) > 1 or method.values


def test_flipped_groups_leave_everything_else_as_it_was():
    adult = {"loader": "adult", "sensitive": ["sex"]}
    size = replace(SIZE, train_rows=2000)
    clean, noisy = (
        load_parts(json.dumps({**adult, "flip": flip}), size, 0) for flip in (0.0, 0.2)
    )
    changed = (
        clean.train.sensitive_features.to_numpy()
        != noisy.train.sensitive_features.to_numpy()
    )
    assert 0.1 < changed.mean() < 0.3
    assert np.array_equal(clean.train.X, noisy.train.X)
    same = {
        name: part.sensitive_features.equals(noisy.judged[name].sensitive_features)
        for name, part in clean.judged.items()
    }
    assert same == {"train": False, "validation": False, "test": True}


def test_an_uncertainty_set_is_made_from_its_name():
    params = {"uncertainty": {"name": "small_shift", "radius": 0.02, "norm": "dual"}}
    method = Method("f-DRO", "FairLogisticRegression", params)
    model = make_model(method, PANEL, 0)
    assert model.uncertainty == SmallShift(0.02, norm="dual")
    assert model.solver == "semi_stochastic"


def rows(part, points, seed=0, choice=None):
    return [
        {
            "panel": PANEL.name,
            "method": OURS.label,
            "seed": seed,
            "choice": choice,
            "part": part,
            "value": float(value),
            "accuracy": accuracy,
            "violation": violation,
            "collapsed": False,
            "constant": 0.55,
            "floor": 0.01,
            "square": violation**2,
            "seconds": 1.0,
        }
        for value, (accuracy, violation) in enumerate(points)
    ]


def test_fronts_are_summarized_by_area_and_accuracy():
    found = []
    for seed, shift in enumerate((0.0, 0.02)):
        points = [(0.9 + shift, 0.3), (0.8 + shift, 0.05), (0.7, 0.2)]
        found += rows("test", points, seed)
    (row,) = summarize(SPEC, pd.DataFrame(found)).to_dict("records")
    # Two steps above the corner (0.5, 0.5): 0.25 x 0.3 and 0.2 x 0.4, and 0.02 higher.
    assert row["hypervolume"] == pytest.approx(0.155 + 0.01 * 0.45)
    assert row["accuracy"] == pytest.approx(0.81)
    # Student's t for two seeds, 12.706, times 0.01.
    assert row["accuracy_pm"] == pytest.approx(0.12706, rel=1e-3)


def test_accuracy_within_the_bound_is_of_the_best_step_size_or_of_one_class():
    found = rows("test", [(0.9, 0.3), (0.8, 0.05)], choice=0.3)
    found += rows("test", [(0.9, 0.3), (0.7, 0.2)], choice=3.0)  # no model within 0.1
    baseline = rows("test", [(0.9, 0.3), (0.7, 0.2)], choice=0.3)
    found += [{**row, "method": BASELINE.label} for row in baseline]
    spec = replace(SPEC, kind="batches")
    ours, other = summarize(spec, pd.DataFrame(found)).to_dict("records")
    assert (ours["within"], ours["within_lowest"]) == (0.8, 0.55)
    assert other["within"] == other["constant"] == 0.55
    # A third of the decisions of the plain model, of violation 0.3, are kept.
    assert ours["naive"] == pytest.approx(0.55 + (0.9 - 0.55) / 3)


def test_every_step_size_of_a_panel_is_run():
    panel = replace(PANEL, learning_rates=(0.1, 1.0))
    task = runner.Task(panel, OURS, 0, 0.1)
    model = make_model(task.chosen_method, panel, 0)
    assert model.learning_rate == 0.1
    assert {row["choice"] for row in runner.run_task(task, SIZE)} == {0.1}


def test_noise_is_summarized_at_one_accuracy():
    spec = replace(SPEC, kind="noise")
    points = [(0.8, 0.2), (0.6, 0.1)]
    found = pd.DataFrame(rows("test", points) + rows("validation", points))
    (row,) = summarize(spec, found).to_dict("records")
    assert row["violation"] == pytest.approx(0.15)
    assert row["violation_at_higher_accuracy"] == pytest.approx(0.175)
    # Four fifths of the decisions of the plain model are kept.
    assert row["naive_violation"] == pytest.approx(0.2 * (0.75 - 0.55) / (0.8 - 0.55))


def test_what_is_chosen_is_chosen_on_rows_that_are_not_judged():
    spec = replace(SPEC, kind="noise")
    good, bad = [(0.8, 0.1), (0.6, 0.05)], [(0.8, 0.3), (0.6, 0.2)]
    found = []
    for choice, validated, judged in ((0.01, good, bad), (0.03, bad, good)):
        found += rows("validation", validated, choice=choice)
        found += rows("test", judged, choice=choice)
    (row,) = summarize(spec, pd.DataFrame(found)).to_dict("records")
    assert row["choice"] == pytest.approx(0.01)
    assert row["violation"] == pytest.approx(0.25)


def test_a_choice_that_does_not_come_to_the_accuracy_is_the_last_resort():
    spec = replace(SPEC, kind="noise")
    found = []
    for choice, points in ((0.01, [(0.6, 0.0)]), (0.03, [(0.8, 0.2), (0.7, 0.1)])):
        found += rows("validation", points, choice=choice)
        found += rows("test", points, choice=choice)
    (row,) = summarize(spec, pd.DataFrame(found)).to_dict("records")
    assert row["choice"] == pytest.approx(0.03)


def test_methods_are_compared_with_the_first_seed_by_seed():
    found = []
    for seed, lift in enumerate((0.0, 0.1)):
        found += rows("test", [(0.6 + lift, 0.1)], seed)
        baseline = rows("test", [(0.7 + lift, 0.1)], seed)
        found += [{**row, "method": BASELINE.label} for row in baseline]
    _, row = summarize(SPEC, pd.DataFrame(found)).to_dict("records")
    # 0.1 more accuracy over 0.4 of violation, whatever the seed.
    assert row["difference"] == pytest.approx(0.04)
    assert row["difference_pm"] == pytest.approx(0, abs=1e-12)


def test_test_rows_are_drawn_alike_for_every_method_and_seed():
    task, other = runner.Task(PANEL, OURS, 0), runner.Task(PANEL, BASELINE, 0)
    first, second = (
        [row for row in runner.run_task(each, SIZE) if row["part"] == "test"]
        for each in (task, other)
    )
    # Without a weight both are a plain model, from solvers that end apart.
    apart = np.subtract(first[0]["accuracy_drawn"], second[0]["accuracy_drawn"])
    assert np.std(apart) < 0.5 * np.std(first[0]["accuracy_drawn"])
    for row in first:
        assert len(row["violation_drawn"]) == runner.ROW_DRAWS
        # A draw is the rows as they are, in the mean.
        error = np.std(row["accuracy_drawn"]) / np.sqrt(runner.ROW_DRAWS)
        assert abs(np.mean(row["accuracy_drawn"]) - row["accuracy"]) < 4 * error


def test_what_rows_say_of_a_difference_is_the_spread_of_pairs():
    found = []
    for seed in (0, 1):
        for lift in (0.0, 0.1):
            (row,) = rows("test", [(0.7 + lift, 0.1)], seed)
            # Both move alike, but for 0.02 in every second draw.
            moved = [0.7 + lift + 0.05 * n + lift / 5 * (n % 2) for n in range(4)]
            row |= {"accuracy_drawn": moved, "violation_drawn": [0.1] * 4}
            found.append({**row, "method": BASELINE.label if lift else OURS.label})
    ours, other = summarize(SPEC, pd.DataFrame(found)).to_dict("records")
    assert ours["difference_rows_pm"] == 0
    # A spread of 0.01 in accuracy, over 0.4 of violation.
    assert other["difference_rows_pm"] == pytest.approx(1.96 * 0.004, rel=1e-3)


def test_accuracy_lost_in_batches_is_counted_from_all_rows():
    whole = replace(PANEL, name="all rows", batch_size=None)
    found = [{**row, "panel": whole.name} for row in rows("test", [(0.8, 0.05)])]
    found += rows("test", [(0.7, 0.05)])
    spec = replace(SPEC, panels=(whole, PANEL))
    first, last = summarize(spec, pd.DataFrame(found)).to_dict("records")
    assert np.isnan(first["drop"])
    assert last["drop"] == pytest.approx(0.1)


def test_weights_of_a_robust_penalty_end_where_its_kink_holds():
    params = {"divergence": "kl", "uncertainty": {"name": "small_shift"}}
    method = Method(
        "f-DRO",
        "FairLogisticRegression",
        params,
        choose="radius",
        among=(0.01,),
        largest_reach=0.1,
    ).at(0.01)
    values = trade_offs(method, make_model(method, PANEL, 0), 4)
    assert values[0] == 0
    assert values[-1] == pytest.approx(10)


@pytest.mark.parametrize(("divergence", "unit"), [("chi2", 1), ("kl", 2)])
def test_weights_of_a_spec_are_in_units_of_those_of_chi_square(divergence, unit):
    params = {"divergence": divergence}
    method = Method("", "FairLogisticRegression", params, weights=(0.1, 100))
    values = trade_offs(method, make_model(method, PANEL, 0), 4)
    assert values == pytest.approx([0, 0.1 * unit, np.sqrt(10) * unit, 100 * unit])


def test_weights_of_a_baseline_are_its_own():
    method = replace(BASELINE, weights=(0.1, 1000))
    values = trade_offs(method, make_model(method, PANEL, 0), 4)
    assert values == pytest.approx([0, 0.1, 10, 1000])


def test_values_that_are_no_weights_are_as_many_too():
    method = Method("", "ThresholdPostprocessing")
    panel = replace(PANEL, batch_size=None)
    values = trade_offs(method, make_model(method, panel, 0), 11)
    # Declared are 0.3, 0.2, 0.1, 0.05, 0.02, 0; between them lies one more each.
    assert values[:5] == pytest.approx([0.3, 0.25, 0.2, 0.15, 0.1])
    assert (len(values), values[-1]) == (11, 0)


@pytest.mark.parametrize(
    ("kind", "measure"),
    [
        ("fronts", "hypervolume"),
        ("batches", "within"),
        ("noise", "violation_at_higher_accuracy"),
        ("shift", "violation"),
    ],
)
def test_every_kind_of_experiment_is_drawn_and_tabled(kind, measure, tmp_path):
    pytest.importorskip("matplotlib")
    found = []
    for seed in (0, 1):
        for part in ("train", "validation", "target", "test", "AL"):
            points = [(0.8, 0.2), (0.7, 0.1), (0.6, 0.05 + seed / 100)]
            found += rows(part, points, seed)
    write_experiment(replace(SPEC, kind=kind), pd.DataFrame(found), tmp_path / "figure")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "figure.md").read_text(encoding="utf-8")
    regime = "  |" if kind == "shift" else ""
    assert text.count("| German |") == text.count(f"| f-FERM |{regime} ") == 1
    assert "±" in text
    numbers = pd.read_csv(tmp_path / "figure.csv")
    assert numbers["method"].tolist() == ["f-FERM"]
    spread = numbers[f"{measure}_pm"][0]
    assert (f"{100 * spread:.2f}" if kind == "batches" else f"{spread:.4f}") in text


def test_an_accuracy_that_no_sweep_reaches_has_no_violation(tmp_path):
    pytest.importorskip("matplotlib")
    spec, parts = replace(SPEC, kind="noise"), ("validation", "test")
    found = [row for part in parts for row in rows(part, [(0.7, 0.3), (0.6, 0.2)])]
    write_experiment(spec, pd.DataFrame(found), tmp_path / "figure")
    assert "| none |" in (tmp_path / "figure.md").read_text(encoding="utf-8")


def test_a_baseline_that_takes_the_target_gets_it_where_the_spec_says_so():
    data = make_biased(200, random_state=0)
    train = FitInput(data.X, data.y, data.sensitive_features)
    target = FitInput(data.X_test, data.y_test, data.sensitive_features_test)
    parts = Parts(train, {}, target)
    model = RobustCovariateShift(notion="demographic_parity")
    for on_target in (True, False):
        method = Method("", "RobustCovariateShift", penalty_on_target=on_target)
        ((_, fitted, _),) = fit_sweep(method, model, parts, [1.0])
        assert (fitted.ratio_ is not None) == on_target


def test_a_shift_is_summarized_over_states():
    spec = replace(SPEC, kind="shift")
    found = rows("train", [(0.8, 0.2)]) + rows("target", [(0.8, 0.2)])
    for number, state in enumerate(("AL", "AK", "AZ")):
        found += rows(state, [(0.7 + 0.1 * number, 0.3 * number)])
    (row,) = summarize(spec, pd.DataFrame(found)).to_dict("records")
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["violation"] == pytest.approx(0.3)
    assert row["worst"] == pytest.approx(0.6)
    assert row["rms"] == pytest.approx(np.sqrt((0.3**2 + 0.6**2) / 3))


@pytest.mark.parametrize("follows", ["sample", "rows", "half", "stream"])
@pytest.mark.parametrize("recalibrates", [False, True])
def test_methods_that_follow_the_states_decide_on_the_rows_that_are_judged(
    follows, recalibrates
):
    rng = np.random.default_rng(0)

    def part(n_rows):
        sex = rng.choice(["f", "m"], n_rows)
        X = rng.normal(size=(n_rows, 1)) + 0.8 * (sex == "m")[:, None]
        y = (X[:, 0] + rng.normal(size=n_rows) > 0.4).astype(np.int64)
        return FitInput(X, y, pd.DataFrame({"sex": sex}))

    train, target = part(1000), part(600)
    states = {"AL": part(801), "AK": part(400)}
    judged = {"train": train, "target": target, **states}
    parts = Parts(train, judged, target, rng.choice(["AL", "AK"], 600))
    model = FairLogisticRegression(fairness_weight=0.0).fit(train.X, train.y)
    method = Method("", "", follows=follows, recalibrates=recalibrates)
    moved = runner._follow(method, model, parts)
    assert list(moved) == parts.states == ["AL", "AK"]
    for name, chance in moved.items():
        size = len(states[name].y)
        assert chance.shape == (size // 2 if follows == "half" else size, 2)
        assert np.all(chance.sum(axis=1) == 1)
        sex = states[name].sensitive_features["sex"].to_numpy()
        sex = sex[-len(chance) :]
        rates = [chance[sex == group, 1].mean() for group in ("f", "m")]
        assert abs(rates[0] - rates[1]) < 0.2
    assert runner._follow(Method("", ""), model, parts) == {}
