"""Run every benchmark and write the figures to ``benchmarks/results``."""

import argparse
import json
import platform
import subprocess
from pathlib import Path

from benchmarks import batch_sizes, curve, levels, net, solvers, torch_overhead

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = {
    "batch_sizes": batch_sizes.run,
    "curve": curve.run,
    "levels": levels.run,
    "net": net.run,
    "solvers": solvers.run,
    "torch_overhead": torch_overhead.run,
}


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


def main() -> None:
    """Run the named benchmarks, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", default=list(BENCHMARKS))
    RESULTS.mkdir(exist_ok=True)
    for name in parser.parse_args().names:
        print(f"== {name}")
        figures = BENCHMARKS[name]()
        record = {"commit": commit(), "python": platform.python_version(), **figures}
        (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
