"""Run experiments: ``python -m fferm.lab.experiments fig1 --size small``."""

import argparse

from fferm.errors import FfermError
from fferm.lab.experiments import known, run
from fferm.lab.experiments.specs import SIZES


def main() -> None:
    """Run the experiments that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m fferm.lab.experiments")
    figures = [name for name in known() if name.startswith("fig")]
    parser.add_argument(
        "names", nargs="*", help=f"any of {', '.join(known())}; by default the figures"
    )
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--out", default="reproduced", help="folder to write to")
    parser.add_argument("--data-home", help="folder of data files")
    parser.add_argument("--jobs", type=int, default=2, help="parallel processes")
    parser.add_argument("--first-seed", type=int, default=0, help="0 in the docs")
    parser.add_argument(
        "--only", action="append", default=[], help="label of a method; may be repeated"
    )
    options = vars(parser.parse_args())
    names, options["n_jobs"] = options.pop("names"), options.pop("jobs")
    try:
        for name in names or figures:
            run(name, **options)
    except FfermError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
