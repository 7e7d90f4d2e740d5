"""An audit is the same wherever its rows are counted."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fferm import audit
from fferm.auditing import AuditCounts
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingGroupWarning,
)
from fferm.notions import ConditionalParity

NAMES = {"y_true": "label", "y_pred": "decision", "sensitive": ["sex", "race"]}
pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.MissingGroupWarning")


@pytest.fixture(scope="module")
def rows():
    """Decisions about people, with gaps, probabilities, weights and a control."""
    rng, n = np.random.default_rng(0), 6000
    sex = rng.choice(["f", "m"], n)
    score = np.clip(0.45 + 0.1 * (sex == "m") + 0.25 * rng.normal(size=n), 0, 1)
    return pd.DataFrame(
        {
            "label": rng.integers(0, 2, n),
            "decision": (score > 0.5).astype(int),
            "score": score,
            "sex": sex,
            "race": rng.choice(
                np.array(["a", "b", "c", None]), n, p=[0.5, 0.3, 0.1, 0.1]
            ),
            "site": rng.integers(0, 3, n),
            "income": np.round(rng.normal(40, 9, n), 1),
            "weight": rng.uniform(0.5, 2.0, n) * (rng.random(n) > 0.1),
        }
    )


def duckdb_frame(rows):
    return pytest.importorskip("duckdb").connect().from_df(rows)


def polars_frame(rows):
    return pl.from_pandas(rows).lazy()


def dask_frame(rows):
    return pytest.importorskip("dask.dataframe").from_pandas(rows, npartitions=3)


def ibis_frame(rows):
    ibis = pytest.importorskip("ibis")
    return ibis.memtable(pa.Table.from_pandas(rows, preserve_index=False))


def spark_frame(rows):
    reason = "pyspark is not installed: pip install pyspark (and a Java runtime)"
    sql = pytest.importorskip("pyspark.sql", reason=reason)
    session = sql.SparkSession.builder.master("local[1]").appName("fferm")
    spark = session.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    known = rows.astype(object).where(rows.notna(), None)
    return spark.createDataFrame(known.to_dict("records"))


ENGINES = [duckdb_frame, polars_frame, dask_frame, ibis_frame, spark_frame]


@pytest.fixture(params=ENGINES, ids=lambda make: make.__name__)
def frame(request, rows):
    return request.param(rows)


def assert_same(found, expected, rel=0.0):
    """Compare all that two audits say; bootstraps draw other numbers under weights."""
    found, expected = found.to_dict(), expected.to_dict()
    for name in ("spec", *(("bootstrap_interval", "soft_interval") if rel else ())):
        found.pop(name), expected.pop(name)
    if rel:
        assert_close(found, expected, rel)
    else:
        assert found == expected


def assert_close(found, expected, rel):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(found[name], value, rel)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, rel)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, abs=rel)
    else:
        assert found == expected


def arrays(rows, **options):
    return audit(
        y_true=rows["label"],
        y_pred=rows["decision"],
        sensitive_features=rows[["sex", "race"]],
        **options,
    )


def test_an_audit_in_an_engine_is_that_of_the_arrays_digit_by_digit(frame, rows):
    assert_same(audit(frame=frame, **NAMES), arrays(rows))


def test_an_audit_in_an_engine_knows_a_control_column(frame, rows):
    expected = arrays(rows, notion=ConditionalParity(rows["site"]))
    assert_same(audit(frame=frame, control="site", **NAMES), expected)


@pytest.mark.parametrize("notion", ["equalized_odds", "sufficiency"])
def test_any_notion_is_audited_from_counts(rows, notion):
    options = {"notion": notion, "groups": "marginal", "min_group_size": 500}
    found = audit(frame=polars_frame(rows), **NAMES, **options)
    assert_same(found, arrays(rows, **options))
    assert found.small_groups == arrays(rows, **options).small_groups


def test_weights_and_probabilities_are_summed_in_the_engine(frame, rows):
    found = audit(frame=frame, y_prob="score", weight="weight", **NAMES)
    expected = arrays(rows, y_prob=rows["score"], sample_weight=rows["weight"])
    assert_same(found, expected, rel=1e-9)
    # Drawn from moments instead of rows, so equal but for the noise of 1000 draws.
    for name in ("bootstrap_interval", "soft_interval"):
        ends, others = getattr(found, name), getattr(expected, name)
        assert ends == pytest.approx(others, abs=0.15 * (others[1] - others[0]))
    assert found.spec.is_weighted


def test_the_most_probable_class_is_the_decision(frame, rows):
    found = audit(frame=frame, y_true="label", y_prob="score", sensitive="sex")
    decision = (rows["score"] > 0.5).astype(int)
    expected = audit(
        y_true=rows["label"],
        y_pred=decision,
        y_prob=rows["score"],
        sensitive_features=rows[["sex"]],
    )
    assert_same(found, expected, rel=1e-9)


def test_three_classes_have_a_column_of_probabilities_each(rows):
    prob = np.random.default_rng(1).dirichlet([1, 2, 3], len(rows))
    table = rows.assign(p=prob[:, 0], q=prob[:, 1], r=prob[:, 2], label=rows["site"])
    found = audit(
        frame=polars_frame(table), y_true="label", y_prob=["p", "q", "r"],
        sensitive=["sex"],
    )  # fmt: skip
    expected = audit(y_true=rows["site"], y_prob=prob, sensitive_features=rows[["sex"]])
    assert_same(found, expected, rel=1e-9)


def test_a_column_of_quantities_is_cut_into_the_bands_of_its_rows(rows):
    names = NAMES | {"sensitive": ["income"]}
    found = audit(frame=duckdb_frame(rows), **names)
    expected = audit(
        y_true=rows["label"],
        y_pred=rows["decision"],
        sensitive_features=rows[["income"]],
    )
    assert found.bands == {"income": 8}
    assert_same(found, expected)


def test_predicted_numbers_are_audited_as_a_regression(frame, rows):
    names = {"y_true": "income", "y_pred": "score", "sensitive": ["sex"]}
    found = audit(frame=frame, **names)
    expected = audit(
        y_true=rows["income"], y_pred=rows["score"], sensitive_features=rows[["sex"]]
    )
    assert found.value("kolmogorov_smirnov") == expected.value("kolmogorov_smirnov")
    assert found.value("wasserstein") == pytest.approx(expected.value("wasserstein"))
    assert found.mse == pytest.approx(expected.mse)


@pytest.mark.parametrize("make", [duckdb_frame, polars_frame])
def test_many_predicted_numbers_are_read_off_in_their_order(make, rows, monkeypatch):
    monkeypatch.setattr("fferm.auditing.counts.MOST_NUMBERS", 1500)
    names = {"y_true": "income", "y_pred": "score", "sensitive": ["sex"]}
    with pytest.warns(DataFairnessWarning, match="each 4th in the order"):
        found = audit(frame=make(rows), **names)
    expected = audit(
        y_true=rows["income"], y_pred=rows["score"], sensitive_features=rows[["sex"]]
    )
    assert found.n_rows == pytest.approx(1500, abs=2)
    # Four rows of about 3000 in either group.
    for measure in ("kolmogorov_smirnov", "wasserstein", "mean_gap"):
        assert found.value(measure) == pytest.approx(expected.value(measure), abs=4e-3)


def test_an_engine_that_cannot_sort_within_groups_says_so(rows, monkeypatch):
    monkeypatch.setattr("fferm.auditing.counts.MOST_NUMBERS", 1500)
    names = {"y_true": "income", "y_pred": "score", "sensitive": ["sex"]}
    with pytest.raises(InvalidInputError, match="does not sort within groups"):
        audit(frame=dask_frame(rows), **names)


def test_audits_of_predicted_numbers_do_not_merge(rows):
    names = {"y_true": "income", "y_pred": "score", "sensitive": ["sex"]}
    found = audit(frame=polars_frame(rows), **names)
    with pytest.raises(InvalidInputError, match="counts of decisions"):
        found.merge(found)


def test_audits_of_parts_merge_into_that_of_all(rows):
    parts = [
        audit(frame=pl.from_pandas(part), **NAMES)
        for part in (rows[:2000], rows[2000:])
    ]
    assert_same(parts[0].merge(parts[1]), arrays(rows))


def test_batches_are_counted_one_by_one(rows):
    counts = AuditCounts.read(rows[:1000], **NAMES)
    for start in range(1000, len(rows), 1000):
        counts = counts.merge(AuditCounts.read(rows[start : start + 1000], **NAMES))
    assert len(counts.kinds) < 50
    assert_same(audit(frame=counts), arrays(rows))


def test_an_audit_of_counts_passes_bounds_and_becomes_json_and_pages(rows, tmp_path):
    found = audit(frame=polars_frame(rows), **NAMES)
    assert found.passes(0.5, confidence=0.95)
    assert found.verdict(0.01) == "refuted"
    assert type(found).from_dict(json.loads(json.dumps(found.to_dict()))) == found
    found.to_html(tmp_path / "page.html")


def test_a_dossier_of_counts_is_refused_because_it_counts_people(rows):
    found = audit(frame=polars_frame(rows), **NAMES)
    with pytest.raises(InvalidInputError, match="counted piece by piece, in an"):
        found.dossier("ll144")


def test_an_audit_of_rows_cannot_be_merged(rows):
    with pytest.raises(InvalidInputError, match="only audits made by audit"):
        arrays(rows).merge(arrays(rows))


def test_counts_of_other_columns_do_not_add_up(rows):
    one = AuditCounts.read(rows, **NAMES)
    with pytest.raises(InvalidInputError, match="add up if they are of the same"):
        one.merge(AuditCounts.read(rows, **NAMES | {"sensitive": ["sex"]}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sensitive": ["sxe"]}, "Did you mean 'sex'"),
        ({"sensitive": []}, "needs the names of columns"),
        ({"weight": "income_"}, "no column 'income_'"),
    ],
)
def test_names_of_columns_are_checked(rows, options, said):
    with pytest.raises(InvalidInputError, match=said):
        audit(frame=polars_frame(rows), **NAMES | options)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("make", [duckdb_frame, polars_frame, dask_frame])
def test_a_weight_that_is_no_weight_is_refused_in_the_engine(make, rows, value):
    bad = rows.assign(weight=np.where(rows.index == 3, value, rows["weight"]))
    with pytest.raises(InvalidInputError, match="Weights must be finite"):
        audit(frame=make(bad), weight="weight", **NAMES)


def test_rows_and_a_frame_are_not_mixed(rows):
    with pytest.raises(InvalidParameterError, match="takes names of columns"):
        audit(frame=polars_frame(rows), sensitive_features=rows["sex"], **NAMES)


def test_a_column_that_identifies_rows_is_refused(rows, monkeypatch):
    monkeypatch.setattr("fferm.auditing.counts.MOST_KINDS", 100)
    with pytest.raises(InvalidInputError, match="identify rows"):
        audit(frame=duckdb_frame(rows), **NAMES | {"sensitive": ["income"]})


def test_missing_groups_are_counted_in_rows(rows):
    with pytest.warns(MissingGroupWarning, match=f"of {len(rows)} rows"):
        found = audit(frame=polars_frame(rows), **NAMES)
    assert sum(found.unjudged.values()) == rows["race"].isna().sum()


def test_the_command_audits_a_pattern_of_files_in_duckdb(rows, tmp_path):
    pytest.importorskip("duckdb")
    for part in range(3):
        rows[part::3].to_parquet(tmp_path / f"part{part}.parquet")
    line = ["--prediction", "decision", "--target", "label", "--sensitive", "sex"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fferm",
            "audit",
            f"{tmp_path}/*.parquet",
            *line,
            "--json",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = audit(
        y_true=rows["label"], y_pred=rows["decision"], sensitive_features=rows["sex"]
    )
    assert json.loads(done.stdout)["audit"]["violation"] == expected.violation
