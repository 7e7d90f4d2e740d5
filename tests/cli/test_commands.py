"""Each command does what the documentation says of it."""

import html
import json
import math
import shlex
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from unseen import GROUPS, MARKUP, make_table

import fferm
from fferm.cli.inputs import read_table
from fferm.datasets._store import CATALOG

COLUMNS = ("--target", "outcome", "--sensitive", "region")


def test_fit_saves_a_model_that_predicts_the_rows_of_a_file(folder, table):
    model = fferm.load(folder / "model.fferm")
    assert isinstance(model, fferm.FairLogisticRegression)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    predicted = model.predict(table[list(model.feature_names_in_)])
    accuracy = np.mean(predicted == table["outcome"])
    assert accuracy > 0.6
    assert model.encoder_.dropped_ == ("id", "constant")


def test_csv_and_parquet_of_one_table_give_one_model(folder, call, tmp_path):
    models = []
    for kind in ("csv", "parquet"):
        out = tmp_path / f"{kind}.fferm"
        done = call("fit", folder / f"data.{kind}", *COLUMNS, "--out", out)
        assert done.code == 0, done.err
        models.append(fferm.load(out))
    frame = make_table(seed=1)
    rows = frame[list(models[0].feature_names_in_)]
    first, second = (model.predict_proba(rows) for model in models)
    np.testing.assert_allclose(first, second, atol=1e-9)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_found_in_the_header(delimiter, table, call, tmp_path):
    path = tmp_path / "data.csv"
    table.to_csv(path, index=False, sep=delimiter)
    done = call("fit", path, *COLUMNS, "--out", tmp_path / "model.fferm")
    assert done.code == 0, done.err


def test_the_encoding_is_learned_from_training_rows_only(folder, call, tmp_path):
    # Held-out rows with an enormous age must not move the scale.
    frame = make_table()
    out = tmp_path / "model.fferm"
    call("fit", folder / "data.csv", *COLUMNS, "--out", out, "--quiet")
    ages = {c["name"]: c for c in fferm.load(out).encoder_.columns_}["age"]
    assert ages["mean"] != pytest.approx(frame["age"].fillna(ages["fill"]).mean())


def test_fit_reports_held_out_rows_in_words_and_as_json(folder, call, tmp_path):
    line = ("fit", folder / "data.csv", *COLUMNS, "--out", tmp_path / "m.fferm")
    words = call(*line)
    assert "Audit of 75 rows" in words.out
    assert all(group in words.out for group in GROUPS)
    found = json.loads(call(*line, "--json").out)
    assert found["audit"]["n_rows"] == 75
    assert found["unused_columns"] == ["id", "constant"]
    assert MARKUP in found["audit"]["groups"]


def test_quiet_says_nothing(folder, call, tmp_path):
    line = ("fit", folder / "data.csv", *COLUMNS, "--out", tmp_path / "m.fferm")
    done = call(*line, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_bound_that_cannot_be_kept_is_exit_code_1(tmp_path, call):
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], 400)
    # The group is the label: no weight separates them without collapse.
    frame = pd.DataFrame({"x": (group == "a") * 1.0, "g": group, "y": group == "a"})
    frame.to_csv(tmp_path / "data.csv", index=False)
    line = ("fit", tmp_path / "data.csv", "--target", "y", "--sensitive", "g")
    out = tmp_path / "model.fferm"
    done = call(*line, "--out", out, "--max-violation", "0.01")
    assert done.code == 1
    assert "NOT KEPT" in done.out
    assert out.exists()


@pytest.mark.parametrize("measure", ["ratio", "deviation"])
def test_held_out_rows_are_judged_by_the_measure_of_the_bound(tmp_path, call, measure):
    rng = np.random.default_rng(0)
    group, x = rng.choice(["a", "b"], 2000), rng.normal(size=2000)
    frame = pd.DataFrame({"x": x + (group == "a"), "g": group})
    frame["y"] = frame["x"] + rng.normal(size=2000) > 1
    frame.to_csv(tmp_path / "data.csv", index=False)
    line = ("fit", tmp_path / "data.csv", "--target", "y", "--sensitive", "g")
    out = tmp_path / "model.fferm"
    line = (*line, "--out", out, "--measure", measure, "--confidence", "0", "--json")
    kept = {}
    for bound in ("0.3", "0.9"):
        found = json.loads(call(*line, "--max-violation", bound).out)
        model = fferm.load(out)
        assert model.measure == measure
        assert model.violation_ <= float(bound)
        groups = found["audit"]["groups"].values()
        rates = np.array([each["selection_rate_True"] for each in groups])
        sizes = np.array([each["count"] for each in groups])
        overall = rates @ sizes / sizes.sum()
        value = {
            "ratio": 1 - rates.min() / rates.max(),
            "deviation": np.abs(rates / overall - 1).max(),
        }[measure]
        assert found["kept"] == (value <= float(bound))
        words = call(*line[:-1], "--max-violation", bound).out
        assert f"on the held-out rows: violation {value:.4f}, bound {bound}" in words
        kept[bound] = found["kept"]
    assert kept["0.9"]


def test_an_export_with_decimal_commas_has_numbers_and_no_words(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text("name;height;weight;code\na;1,75;60;1,2,3\nb;;70,5;4\n", "utf-8")
    frame = read_table(path)
    assert frame["height"].tolist() == pytest.approx([1.75, math.nan], nan_ok=True)
    assert frame["weight"].tolist() == [60, 70.5]
    assert frame["code"].tolist() == ["1,2,3", "4"]


def test_labels_that_differ_in_a_space_are_named(tmp_path, call):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "g": rng.choice(["a", "b"], 90)})
    frame["y"] = rng.choice(["yes", "Yes ", "no"], 90)
    frame.to_csv(tmp_path / "data.csv", index=False)
    line = ("fit", tmp_path / "data.csv", "--target", "y", "--sensitive", "g")
    done = call(*line, "--out", tmp_path / "model.fferm")
    assert "differ only in spaces or capitals and count as two classes" in done.err


def test_a_bound_that_few_rows_cannot_show_is_not_called_broken(tmp_path, call):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "g": rng.choice(["a", "b"], 400)})
    frame["y"] = frame["x"] + rng.normal(size=400) > 0
    frame.to_csv(tmp_path / "data.csv", index=False)
    line = ("fit", tmp_path / "data.csv", "--target", "y", "--sensitive", "g")
    done = call(*line, "--out", tmp_path / "model.fferm", "--max-violation", "0.2")
    assert done.code == 1
    assert "\nNOT SHOWN TO BE KEPT with 95 % confidence" in done.out
    assert fferm.load(tmp_path / "model.fferm").violation_ < 0.2


def test_a_bound_on_the_divergence_finds_its_weight(folder, call, tmp_path):
    out = tmp_path / "model.fferm"
    line = ("fit", folder / "data.csv", *COLUMNS, "--out", out, "--max-divergence")
    for bound, code, sign in ((10, 0, "KEPT"), (0.001, 0, "KEPT"), (0, 1, "NOT KEPT")):
        done = call(*line, bound)
        model = fferm.load(out)
        assert done.code == code
        value = f"divergence {model.divergence_value_:.4g}, bound {bound:g}."
        assert f"\n{sign} on the training rows: {value}\n" in done.out
        assert (model.fairness_weight_ > 0) == (bound < 10)
    assert json.loads(call(*line, 0.001, "--json").out)["feasible"] is True


def test_groups_count_alike_in_the_penalty_if_asked(folder, call, tmp_path):
    line = (folder / "data.csv", *COLUMNS, "--group-weights", "equal")
    assert call("fit", *line, "--out", tmp_path / "model.fferm").code == 0
    assert fferm.load(tmp_path / "model.fferm").group_weights == "equal"
    assert call("curve", *line, "--out", tmp_path / "r", "--weights", "2").code == 0
    models = fferm.TradeoffCurve.load(tmp_path / "r").models.values()
    assert {model.group_weights for model in models} == {"equal"}


def test_audit_passes_and_fails_by_its_exit_code(folder, call):
    line = ("audit", folder / "model.fferm", folder / "data.csv")
    found = json.loads(call(*line, "--json").out)["audit"]["violation"]
    for bound, code, said in ((found + 0.01, 0, "PASSES"), (found - 0.01, 1, "FAILS")):
        done = call(*line, "--max-violation", bound)
        assert done.code == code
        assert said in done.out


def test_audit_with_a_confidence_passes_only_what_the_rows_show(folder, call):
    line = ("audit", folder / "model.fferm", folder / "data.csv")
    found = json.loads(call(*line, "--json").out)["audit"]["violation"]
    for bound, code, verdict in (
        (found + 0.3, 0, "passes"),
        (found + 0.01, 1, "undecided"),
        (found / 20, 1, "refuted"),
    ):
        asked = (*line, "--max-violation", bound, "--confidence", 0.95)
        done = call(*asked)
        assert done.code == code
        assert f"{verdict.upper()} with 95 % confidence: at most" in done.out
        assert ("rows like these would decide it" in done.out) == (
            verdict == "undecided"
        )
        plain = json.loads(call(*asked, "--json").out)
        assert (plain["verdict"], plain["passes"]) == (verdict, code == 0)
        assert plain["rows_to_decide"] >= plain["audit"]["n_rows"]


def test_plan_says_what_rows_can_certify(folder, call):
    line = ("plan", folder / "data.csv", "--target", "outcome", "--sensitive", "region")
    done = call(*line)
    assert done.code == 0, done.err
    plain = json.loads(call(*line, "--json").out)
    assert 0 < plain["floor"] < plain["bound_in_reach"] < 1
    reach = plain["bound_in_reach"]
    for bound, code in ((reach + 0.01, 0), (reach - 0.01, 1)):
        asked = call(*line, "--max-violation", bound, "--json")
        assert asked.code == code
        needed = json.loads(asked.out)
        assert (needed["judged_needed"] <= needed["judged"]) == (code == 0)
    assert "judged rows of every group" in call(*line, "--max-violation", 0.01).out


def test_a_fair_model_of_a_handful_of_rows_measures_a_whole_gap_at_most(tmp_path, call):
    rows = [f"{k % 2},g{k % 6}" for k in range(12)]
    (tmp_path / "few.csv").write_text("\n".join(["outcome,region", *rows]) + "\n")
    line = ("plan", tmp_path / "few.csv", "--target", "outcome")
    done = call(*line, "--sensitive", "region", "--json")
    assert json.loads(done.out)["floor"] == 1


def test_audit_measures_what_the_library_measures(folder, table, call):
    model = fferm.load(folder / "model.fferm")
    expected = fferm.audit(
        model,
        table[list(model.feature_names_in_)],
        table["outcome"],
        sensitive_features=table[["region"]],
    )
    line = ("audit", folder / "model.fferm", folder / "data.csv", "--json")
    found = json.loads(call(*line).out)
    assert found["audit"]["violation"] == pytest.approx(expected.violation, abs=1e-12)
    assert found["passes"] is True


def test_rows_without_a_label_are_left_out_with_a_warning(table, call, tmp_path):
    frame = table.copy()
    frame.loc[:9, "outcome"] = None
    frame.to_csv(tmp_path / "data.csv", index=False)
    done = call("fit", tmp_path / "data.csv", *COLUMNS, "--out", tmp_path / "m.fferm")
    assert done.code == 0
    assert "warning: 10 of 300 rows have no label in 'outcome'" in done.err


def test_numbers_as_labels_are_the_same_in_every_file(table, call, tmp_path):
    frame = table.assign(outcome=(table["outcome"] == "low").astype(int))
    frame.to_csv(tmp_path / "train.csv", index=False)
    # A gap turns a column of integers into floats.
    frame.assign(outcome=frame["outcome"].where(frame.index > 3)).to_csv(
        tmp_path / "new.csv", index=False
    )
    out = tmp_path / "m.fferm"
    assert call("fit", tmp_path / "train.csv", *COLUMNS, "--out", out).code == 0
    assert call("audit", out, tmp_path / "new.csv").code == 0


def test_sensitive_columns_can_be_left_out_of_the_features(folder, call, tmp_path):
    out = tmp_path / "m.fferm"
    line = ("fit", folder / "data.csv", *COLUMNS, "--out", out, "--drop", "city")
    assert call(*line, "--drop-sensitive").code == 0
    used = {column["name"] for column in fferm.load(out).encoder_.columns_}
    assert used == {"age", "days", "member"}


def test_a_shipped_data_set_is_named_instead_of_a_file(call, tmp_path):
    out = tmp_path / "german.fferm"
    done = call("fit", "german", "--sensitive", "age_over_25", "--out", out)
    assert done.code == 0, done.err
    assert "Audit of 300 rows" in done.out
    assert call("audit", out, "german").code == 0


@pytest.mark.parametrize(
    ("model", "package", "kind"),
    [
        ("net", "torch", "FairNetClassifier"),
        ("boosting", "lightgbm", "FairBoostingClassifier"),
    ],
)
def test_other_models_are_trained_saved_and_audited(
    model, package, kind, folder, call, tmp_path
):
    pytest.importorskip(package)
    out = tmp_path / "model.fferm"
    line = ("fit", folder / "data.csv", *COLUMNS, "--out", out, "--model", model)
    done = call(*line, "--quiet")
    assert done.code == 0, done.err
    assert type(fferm.load(out)).__name__ == kind
    assert call("audit", out, folder / "data.csv", "--quiet").code == 0


@pytest.fixture
def small(tmp_path):
    """A table of two classes and two sensitive columns, quick to train on."""
    rng = np.random.default_rng(0)
    g, h = rng.choice(["a", "b"], (2, 200))
    x = rng.normal(size=200) + (g == "a")
    y = np.where(x + rng.normal(size=200) > 0.5, "yes", "no")
    frame = pd.DataFrame({"x": x, "g": g, "h": h, "y": y})
    frame.to_csv(tmp_path / "small.csv", index=False)
    columns = ("--target", "y", "--sensitive", "g", "--sensitive", "h")
    return (tmp_path / "small.csv", *columns)


def test_every_option_of_fit_reaches_the_model(small, call, tmp_path):
    options = (
        "--notion equalized_odds --divergence chi2 --groups marginal --confidence 0.9 "
        "--max-violation 1 --test-share 0.4 --min-group-size 2 --json --out"
    )
    line = ("fit", *small, *options.split(), tmp_path / "m.fferm")
    audits = [json.loads(call(*line, "--seed", seed).out)["audit"] for seed in (0, 1)]
    model = fferm.load(tmp_path / "m.fferm")
    asked = {
        "notion": "equalized_odds",
        "divergence": "chi2",
        "groups": "marginal",
        "confidence": 0.9,
        "min_group_size": 2,
        "max_violation": 1,
        "random_state": 1,
    }
    assert asked.items() <= model.get_params().items()
    assert model.sensitive_names_ == ("g", "h")
    assert audits[0]["n_rows"] == audits[1]["n_rows"] == 80
    assert audits[0]["accuracy"] != audits[1]["accuracy"]  # on other rows


def test_every_option_of_curve_and_audit_is_heeded(small, call, tmp_path):
    options = (
        "--notion equalized_odds --groups marginal --divergence kl --divergence chi2 "
        "--weights 2 --seeds 2 --seed 3 --test-share 0.4 --quiet --out"
    )
    done = call("curve", *small, *options.split(), tmp_path / "records")
    assert done.code == 0, done.err
    found = fferm.TradeoffCurve.load(tmp_path / "records")
    assert set(found.records["seed"]) == {3, 4}
    assert len(found.models) == 2 * 2 * 2
    for name, about in found.descriptions.items():
        assert about["notion"].startswith("EqualizedOdds(")
        assert about["groups"] == "marginal"
        assert about["divergence"] == {"kl": "KL()", "chi2": "Chi2()"}[name]
        assert about["rows"] == "120"
    assert call("fit", *small, "--out", tmp_path / "m.fferm", "--quiet").code == 0
    line = ("audit", tmp_path / "m.fferm", small[0], "--json")
    audited = json.loads(call(*line, "--notion", "equalized_odds").out)["audit"]
    assert audited["notion"] == "equalized_odds"


def test_datasets_lists_every_loader(call):
    listed = json.loads(call("datasets", "--json").out)["datasets"]
    assert [row["name"] for row in listed] == list(CATALOG)
    assert "adult" in call("datasets").out
    loaders = {name for name in fferm.datasets.__all__ if name.startswith("load_")}
    assert {f"load_{name}" for name in CATALOG} == loaders


def test_help_lists_the_commands_and_the_exit_codes(call):
    done = call("--help")
    assert done.code == 0
    names = ("fit", "audit", "curve", "report", "reproduce", "datasets")
    assert all(name in done.out for name in names)
    assert "2 bad input" in done.out
    assert call() == done
    for name in names:
        assert f"Example: fferm {name}" in call(name, "--help").out
    assert call("--version").out == f"fferm {fferm.__version__}\n"


def test_a_hint_at_codes_names_the_option(call, folder, table):
    coded = table.assign(code=[n % 7 + 1 for n in range(len(table))])
    coded.to_csv(folder / "codes.csv", index=False)
    line = ["fit", folder / "codes.csv", "--target", "outcome", "--sensitive", "region"]
    done = call(*line, "--out", folder / "codes.fferm")
    assert "numbers: code. If they are categories, name each with --cate" in done.err
    again = call(*line, "--out", folder / "again.fferm", "--categorical", "code")
    assert "look like codes" not in again.err


def test_a_hint_at_identifiers_names_the_option(call, folder, table):
    table.assign(row_id=range(len(table))).to_csv(folder / "rows.csv", index=False)
    line = ["fit", folder / "rows.csv", "--target", "outcome", "--sensitive", "region"]
    done = call(*line, "--out", folder / "rows.fferm")
    assert "read as numbers: row_id. Name each with --drop." in done.err


def test_python_m_fferm_is_the_same_program(folder):
    command = [sys.executable, "-m", "fferm"]
    model, data = folder / "model.fferm", folder / "data.csv"
    for arguments, code in (
        (["audit", model, data, "--max-violation", "0.001", "--quiet"], 1),
        (["audit", model, folder / "none.csv"], 2),
    ):
        done = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


def test_a_terminal_without_unicode_is_no_failure(folder):
    line = ["audit", str(folder / "model.fferm"), str(folder / "data.csv")]
    done = subprocess.run(
        [sys.executable, "-m", "fferm", *line],
        capture_output=True,
        text=True,
        check=False,
        env={**__import__("os").environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert "\\u65e5" in done.stdout


def curve(folder, out):
    line = ("curve", folder / "data.csv", *COLUMNS, "--weights", "4", "--out", out)
    return (*line, "--drop", "city", "--divergence", "kl", "--divergence", "chi2")


def test_curve_records_a_front_and_goes_on_where_it_was(folder, call, tmp_path):
    line = curve(folder, tmp_path / "records")
    first = call(*line, "--json")
    assert first.code == 0, first.err
    found = json.loads(first.out)
    curves = {row["curve"] for row in found["front"]}
    assert curves
    assert curves <= {"kl", "chi2"}
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.fferm")}
    assert len(kept) == 8
    assert call(*line, "--json").out == first.out
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.fferm")}
    other = call(*line, "--seed", "3")
    assert other.code == 2
    assert "another sweep" in other.err


def test_a_curve_of_several_models_has_them_all(folder, call, tmp_path):
    line = ("curve", folder / "data.csv", *COLUMNS, "--weights", "2", "--drop", "city")
    models = ("--model", "linear", "--model", "boosting")
    done = call(*line, *models, "--out", tmp_path / "records")
    assert done.code == 0, done.err
    curve = fferm.TradeoffCurve.load(tmp_path / "records")
    assert set(curve.records["curve"]) == {"linear, kl", "boosting, kl"}


def test_report_makes_a_page_of_records_and_of_an_audit(folder, call, tmp_path):
    records, page = tmp_path / "records", tmp_path / "page.html"
    direct = tmp_path / "direct.html"
    assert call(*curve(folder, records), "--html", direct, "--quiet").code == 0
    assert direct.exists()
    line = ["report", records, "--title", "<b>mine</b>", "--date", "2026-11-18"]
    assert call(*line, "--out", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "SHA-256" in text
    assert "<bdi>2026-11-18</bdi>" in text
    assert MARKUP not in text
    assert "<b>mine</b>" not in text
    audited = call("audit", folder / "model.fferm", folder / "data.csv", "--json")
    (tmp_path / "audit.json").write_text(audited.out, encoding="utf-8")
    done = call("report", tmp_path / "audit.json", "--out", page, "--json")
    assert json.loads(done.out) == {"report": str(page)}
    text = page.read_text(encoding="utf-8")
    assert MARKUP not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_what_is_no_record_is_refused(tmp_path, call):
    (tmp_path / "audit.json").write_text("{}")
    for source in (tmp_path, tmp_path / "audit.json"):
        done = call("report", source, "--out", tmp_path / "page.html")
        assert done.code == 2
        assert len(done.errors) == 1
    assert not (tmp_path / "page.html").exists()


def test_progress_is_shown_on_a_terminal(folder, call, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    options = ["--sensitive", "region", "--target", "outcome", "--out"]
    done = call("curve", folder / "data.csv", *options, tmp_path / "c", "--weights", 3)
    assert "models: 100%" in done.err
    assert "violation " in done.err
    bound = ["--max-violation", "0.9"]
    done = call("fit", folder / "data.csv", *options, tmp_path / "m.fferm", *bound)
    assert "max_violation=0.9: 100%" in done.err
    assert fferm.load(tmp_path / "m.fferm").verbose == 0


def test_the_page_of_an_audit_holds_it_against_the_bound(folder, call, tmp_path):
    page = tmp_path / "page.html"
    model, data = folder / "model.fferm", folder / "data.csv"
    done = call("audit", model, data, "--max-violation", "0", "--html", page, "-q")
    assert done.code == 1
    assert "Does not keep the bound" in page.read_text(encoding="utf-8")


def test_a_page_states_data_model_command_and_date(folder, call, tmp_path):
    page = tmp_path / "page.html"
    model, data = folder / "model.fferm", folder / "data.csv"
    line = ["audit", model, data, "--html", page, "--date", "1 May"]
    assert call(*line).code == 0
    text = page.read_text(encoding="utf-8")
    for path in (model, data):
        assert f"{path}, SHA-256 {sha256(path.read_bytes()).hexdigest()}" in text
    assert "<bdi>1 May</bdi>" in text
    assert shlex.join(map(str, ["fferm", *line])) in html.unescape(text)


def test_predictions_keep_the_columns_that_the_model_does_not_use(
    folder, call, tmp_path
):
    out = tmp_path / "predictions.csv"
    done = call("predict", folder / "model.fferm", folder / "data.csv", "--out", out)
    assert done.code == 0, done.err
    assert list(pd.read_csv(out))[:4] == ["id", "constant", "outcome", "prediction"]


@pytest.mark.parametrize("how", [["--uses-group"], []])
def test_repair_makes_a_frozen_model_fair(folder, call, tmp_path, how):
    out = tmp_path / "repaired.fferm"
    frozen = ["--model", folder / "model.fferm", "--out", out, "--confidence", "0"]
    done = call(
        "repair", folder / "data.csv", *frozen, "--max-violation", "0.2", *how, "--json"
    )
    result = json.loads(done.out)
    assert done.code == (0 if result["feasible"] and result["kept"] else 1)
    assert result["uses_group"] is bool(how)
    again = call("audit", out, folder / "data.csv", "--json")
    assert again.code == 0
    predictions = tmp_path / "predictions.csv"
    done = call("predict", out, folder / "data.csv", "--out", predictions)
    assert done.code == 0
    assert "prediction" in pd.read_csv(predictions)


def test_repair_takes_a_column_of_scores(tmp_path, call):
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], 8000)
    score = rng.random(8000) * 0.6 + 0.4 * (group == "a")
    granted = np.where(rng.random(8000) < score, "yes", "no")
    table = pd.DataFrame({"score": score, "group": group, "granted": granted})
    path, out = tmp_path / "loans.csv", tmp_path / "repaired.fferm"
    table.to_csv(path, index=False)
    names = ["--target", "granted", "--sensitive", "group", "--uses-group"]
    bound = ["--max-violation", "0.15", "--out", out]
    done = call("repair", path, "--score", "score", *names, *bound)
    assert done.code == 0, done.err
    assert "decides by group" in done.out
    assert call("audit", out, path, "--max-violation", "0.2").code == 0
    done = call("repair", path, *names, *bound)
    assert done.code == 2
    assert "one of --model MODEL and --score COLUMN" in done.errors[0]
    table.assign(age=rng.choice(["old", "young"], 8000)).to_csv(path, index=False)
    one_by_one = ["--sensitive", "age", "--groups", "marginal"]
    done = call("repair", path, "--score", "score", *names, *one_by_one, *bound)
    assert done.code == 0, done.err
    assert "×" not in done.out
    done = call("repair", path, "--score", "scores", *names, *bound)
    assert done.code == 2
    assert "Did you mean 'score'" in done.errors[0]
