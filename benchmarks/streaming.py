"""Training from Parquet shards: memory and time a row, at 1 and at 10 million rows.

A fresh process reads shards of 250 000 rows (one row group each; 8 numbers, two
categories, a group and a label), takes the first pass and trains one epoch of a linear
model with the fairness loss at batches of 4096. Memory is the peak (VmHWM) above what
the process held after its imports.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MILLION = 1_000_000
SHARD_ROWS = 250_000
REPETITIONS = 3
BATCH_SIZE = 4096


def run() -> dict[str, Any]:
    """Return memory and microseconds a row at both sizes, and their ratio."""
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        write_shards(Path(small), MILLION)
        write_shards(Path(large), 10 * MILLION)
        found: dict[str, list[dict[str, float]]] = {"1 million": [], "10 million": []}
        for _ in range(REPETITIONS):
            for name, folder in zip(found, (small, large), strict=True):
                found[name].append(measure(folder))
                print(f"{name}: {found[name][-1]}", flush=True)
    middle = {
        name: {key: float(np.median([one[key] for one in runs])) for key in runs[0]}
        for name, runs in found.items()
    }
    ratio = {
        key: middle["10 million"][key] / middle["1 million"][key]
        for key in ("microseconds a row", "of the processor")
    }
    print(f"10 million / 1 million: {ratio}")
    return {**middle, "10 million / 1 million": ratio}


def write_shards(folder: Path, n_rows: int) -> None:
    """Write shards of made data."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    jobs = np.array(["clerk", "cook", "driver", "nurse", "teacher", "welder"])
    towns = np.array(["east", "north", "south", "west"])
    for i in range(n_rows // SHARD_ROWS):
        rng = np.random.default_rng(i)
        sex = rng.integers(0, 2, SHARD_ROWS)
        x = rng.normal(size=(SHARD_ROWS, 8))
        y = (x[:, 0] + 0.5 * sex + rng.normal(size=SHARD_ROWS) > 0.5).astype(int)
        columns = {f"x{j}": x[:, j] for j in range(8)}
        columns["job"] = jobs[rng.integers(0, len(jobs), SHARD_ROWS)]
        columns["town"] = towns[rng.integers(0, len(towns), SHARD_ROWS)]
        columns["sex"] = np.array(["f", "m"])[sex]
        pq.write_table(pa.table({**columns, "y": y}), folder / f"part-{i:04}.parquet")


def measure(folder: str) -> dict[str, float]:
    """Return what a fresh process needs."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.streaming", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def mebibytes(field: str) -> float:
    """Return a field of the status of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def train(folder: str) -> dict[str, float]:
    """Read and train once; return memory and time."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - everybody's name for it

    from fferm.distributed import ShardDataset, ShardLoader, summarize

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()  # loads the rest
    idle, began, busy = mebibytes("VmRSS"), time.perf_counter(), time.process_time()
    summary = summarize(folder, target="y", sensitive="sex")
    passed = time.perf_counter()
    fair = summary.fairness_loss()
    model = torch.nn.Linear(len(summary.feature_names), summary.n_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y, s in ShardLoader(ShardDataset(summary, BATCH_SIZE)):
        logits = model(x)
        loss = F.cross_entropy(logits, y) + fair(logits, s, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ended = time.perf_counter()
    return {
        "microseconds a row": 1e6 * (ended - began) / summary.n_rows,
        "of the processor": 1e6 * (time.process_time() - busy) / summary.n_rows,
        "in the first pass": 1e6 * (passed - began) / summary.n_rows,
        "MiB above idle": mebibytes("VmHWM") - idle,
        "MiB idle": idle,
    }


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1])))
