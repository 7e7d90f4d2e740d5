"""``fferm reproduce``: a figure of the paper, run again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fferm.cli import options
from fferm.cli.options import Size
from fferm.cli.outputs import Output, check_writable
from fferm.data.validate import COUNT, Number, check_params
from fferm.lab import experiments

OUT = Path("reproduced")


def reproduce(
    figure: Annotated[
        str,
        Argument(
            metavar="NAME",
            help="fig1 to fig5, abcfair, aequitas, humancompatible, postprocessing.",
        ),
    ],
    size: Annotated[Size, Option(help="A quick look, or all of it.")] = Size.small,
    out: Annotated[Path, Option(help="Folder of records, figure and table.")] = OUT,
    only: Annotated[
        options.Names, Option(help="The label of a method to run; may be repeated.")
    ] = None,
    first_seed: Annotated[
        int, Option(help="Other seeds than those of the documentation.")
    ] = 0,
    jobs: Annotated[int, Option(help="Parallel processes.")] = 1,
    quiet: options.Quiet = False,
) -> int:
    """Run an experiment and write its records, figure and table.

    Example: fferm reproduce fig1 --size full --out fig1
    """
    limits = {"--first-seed": Number(is_whole=True), "--jobs": COUNT}
    check_params({"--first-seed": first_seed, "--jobs": jobs}, limits)
    check_writable(out, is_folder=True)
    with Output(quiet).warnings_as_lines():
        experiments.run(
            figure,
            size=size.value,
            out=out,
            only=only or (),
            first_seed=first_seed,
            n_jobs=jobs,
            progress=not quiet,
        )
    return 0
