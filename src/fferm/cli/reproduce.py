"""``fferm reproduce``: a figure of the paper, run again."""

import importlib
import importlib.util
from typing import Annotated

import typer

from fferm.cli.console import Output
from fferm.cli.options import QuietOption, Size
from fferm.errors import InvalidParameterError


def reproduce(
    figure: Annotated[str, typer.Argument(metavar="FIGURE", help="fig1 to fig5.")],
    size: Annotated[Size, typer.Option(help="A quick look, or all of it.")] = (
        Size.small
    ),
    quiet: QuietOption = False,
) -> int:
    """Run an experiment of the paper and write its records and figure."""
    if importlib.util.find_spec("fferm.experiments") is None:
        raise InvalidParameterError(
            f"There is no experiment {figure!r}: this version of fferm has none."
        )
    experiments = importlib.import_module("fferm.experiments")
    output = Output(quiet)
    with output.warnings_as_lines(), output.progress(f"{figure}, {size}"):
        experiments.run(figure, size=size.value)
    return 0
