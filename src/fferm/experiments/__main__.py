"""Run experiments: ``python -m fferm.experiments fig1 --size small``."""

import argparse

from fferm.experiments import known, run
from fferm.experiments.specs import SIZES


def main() -> None:
    """Run the experiments that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m fferm.experiments")
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(known())}")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--out", default="reproduced", help="folder to write to")
    parser.add_argument("--data-home", help="folder of data files")
    parser.add_argument("--jobs", type=int, default=2, help="parallel processes")
    given = parser.parse_args()
    for name in given.names or known():
        run(name, given.size, given.out, given.data_home, n_jobs=given.jobs)


if __name__ == "__main__":
    main()
