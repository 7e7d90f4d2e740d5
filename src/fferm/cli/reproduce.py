"""``fferm reproduce``: a figure of the paper, run again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fferm.cli import options
from fferm.cli.options import Size
from fferm.cli.outputs import Output
from fferm.lab import experiments

OUT = Path("reproduced")


def reproduce(
    figure: Annotated[str, Argument(metavar="FIGURE", help="fig1 to fig5.")],
    size: Annotated[Size, Option(help="A quick look, or all of it.")] = Size.small,
    out: Annotated[Path, Option(help="Folder of records, figure and table.")] = OUT,
    only: Annotated[
        options.Names, Option(help="The label of a method to run; may be repeated.")
    ] = None,
    first_seed: Annotated[
        int, Option(help="Other seeds than those of the documentation.", min=0)
    ] = 0,
    jobs: Annotated[int, Option(help="Parallel processes.", min=1)] = 1,
    quiet: options.Quiet = False,
) -> int:
    """Run an experiment of the paper and write its records, figure and table."""
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
