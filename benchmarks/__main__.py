"""Run every benchmark and write the figures to ``benchmarks/results``.

``python -m benchmarks.write`` then puts them into the documentation.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = (
    "steps",
    "machine",
    "curve",
    "sweep",
    "bound",
    "levels",
    "batch_sizes",
    "convergence",
    "solvers",
    "auto",
    "floors",
    "bound_kept",
    "repair",
    "growth",
    "raw_table",
    "latency",
    "streaming",
    "engine_audit",
    "cluster",
    "net",
    "torch_overhead",
    "batch_bias",
    "tuning",
    "boosting",
    "boosting_sets",
    "regression_census",
)
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "torch",
    "lightgbm",
    "fairlearn",
    "error-parity",
)


def commit() -> str:
    """Return the commit that is measured, or "unknown" outside a checkout."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "unknown"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are compared."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found}


def main() -> None:
    """Run the named benchmarks, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(BENCHMARKS))
    names = parser.parse_args().names
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    RESULTS.mkdir(exist_ok=True)
    record = {"commit": commit(), "versions": versions(), "cores": os.cpu_count()}
    for name in names:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        figures = importlib.import_module(f"benchmarks.{name}").run()
        whole = {**record, "took": time.perf_counter() - began, **figures}
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
