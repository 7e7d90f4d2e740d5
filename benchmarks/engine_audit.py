"""An audit that DuckDB counts, beside the bare SQL group-by, on generated rows.

Rows of a label, a decision, one of 16 groups and one of 2 sites, in one Parquet file.
A fresh process with one thread and 700 MB for DuckDB takes both in turn; the figure is
the median ratio of seconds, the memory its peak.
"""

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
    print(f"peak: {found['peak MiB']:.0f} MiB")
    return found


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
