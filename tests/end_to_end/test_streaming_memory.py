"""Reading shards takes as much memory for many rows as for few."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402 - after what skips

READ_ONCE = """
import sys
from pathlib import Path
import torch
from fferm.distributed import ShardDataset, summarize

def mebibytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if field in line)

idle = mebibytes("VmRSS")
summary = summarize(sys.argv[1], target="y", sensitive="s")
n_rows = sum(len(y) for _, y, _ in ShardDataset(summary, 1024, buffer=1000))
print(n_rows, mebibytes("VmHWM") - idle)
"""


def memory_of_reading(folder, n_rows):
    """Return the peak of a fresh process above what it held after its imports."""
    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.normal(size=n_rows).astype(np.float32) for j in range(25)}
    columns["s"], columns["y"] = rng.integers(0, 2, (2, n_rows))
    path = folder / f"{n_rows}.parquet"
    pq.write_table(pa.table(columns), path)  # one row group
    done = subprocess.run(
        [sys.executable, "-c", READ_ONCE, str(path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    n_read, peak = map(float, done.stdout.split())
    assert n_read == n_rows
    return peak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    few = memory_of_reading(tmp_path, 300_000)
    many = memory_of_reading(tmp_path, 900_000)
    # Encoded, the rows that are more would take 57 MiB; decoded, as much again.
    assert many < few + 30
