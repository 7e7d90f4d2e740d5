"""An audit that DuckDB counts, beside the bare SQL group-by, on generated rows.

Rows of a label, a decision, one of 16 groups and one of 2 sites, in one Parquet file.
A fresh process with one thread and 700 MB for DuckDB takes both in turn; the figure is
the median ratio of seconds, the memory its peak. The audits of a tenth of the rows, and
those of other engines of a hundredth, must be the ones of arrays to the last digit.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.children import ask, memory
from benchmarks.timing import Timed, in_words, interleaved, ratio

ROWS, ROUNDS = 100_000_000, 5
NAMES = {"y_true": "label", "y_pred": "decision", "sensitive": ["part"]}
# Bits of a hash are drawn independently of each other.
MAKE = """
    COPY (SELECT (h >> 8 & 1)::int8 AS label,
                 ((h >> 16 & 1023) < 300 + 10 * (h & 15) + 100 * (h >> 8 & 1))::int8
                     AS decision,
                 'part ' || (h & 15) AS part, (h >> 32 & 1)::int8 AS site
          FROM (SELECT hash(i) AS h FROM range({n_rows}) t(i)))
    TO '{path}' (FORMAT parquet)
"""
COUNT = "SELECT label, decision, part, site, count(*) FROM '{path}' GROUP BY ALL"


def run() -> dict[str, Any]:
    """Return the ratio of the audit to the bare group-by, and the peak memory."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        duckdb.connect().execute(MAKE.format(n_rows=ROWS, path=path))
        found: dict[str, Any] = ask("benchmarks.engine_audit", path)
        print(f"audit / group-by: {in_words(found['audit / group-by'])}")
        print(f"peak: {found['peak MiB']:.0f} MiB", flush=True)
        found["rows of equal audits"] = compare(duckdb.read_parquet(str(path)))
    return found


def compare(rows: Any) -> dict[str, int]:
    """Return on how many rows each engine's audit is that of arrays."""
    import dask.dataframe as dd

    from fferm import audit
    from fferm.notions import ConditionalParity

    few = rows.limit(ROWS // 100).df()
    frames = {"DuckDB": rows.limit(ROWS // 10), "Polars": rows.limit(len(few)).pl()}
    frames["Dask"] = dd.from_pandas(few, npartitions=8)
    if importlib.util.find_spec("pyspark"):
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").getOrCreate()
        frames["PySpark"] = spark.createDataFrame(few)
    equal = {}
    for name, frame in frames.items():
        table = rows.limit(ROWS // 10).df() if name == "DuckDB" else few
        found = audit(frame=frame, control="site", **NAMES).to_dict()
        expected = audit(
            y_true=table["label"],
            y_pred=table["decision"],
            sensitive_features=table[["part"]],
            notion=ConditionalParity(table["site"]),
        ).to_dict()
        expected["spec"] = found["spec"]  # names of columns
        assert found == expected, name
        equal[name] = len(table)
        print(f"equal in {name}: {len(table)} rows", flush=True)
    return equal


def measure(path: str) -> dict[str, Any]:
    """Return what one process needs."""
    import duckdb

    from fferm import audit

    engine = duckdb.connect(config={"threads": 1, "memory_limit": "700MB"})
    count = COUNT.format(path=path)
    sides = {
        "audit": Timed(
            lambda: audit(frame=engine.read_parquet(path), control="site", **NAMES)
        ),
        "group-by": Timed(lambda: engine.sql(count).fetchall()),
    }
    seconds = interleaved(sides, rounds=ROUNDS)
    return {
        "audit / group-by": ratio(seconds["audit"], seconds["group-by"], "≤ 2"),
        "peak MiB": memory("VmHWM") / 2**20,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
