"""``fferm alternatives``: records of a curve in, a documented search out."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from fferm.cli import options
from fferm.cli.outputs import Output, check_writable, of_records, table_text
from fferm.curve import TradeoffCurve
from fferm.errors import InvalidInputError

SHOWN = ["curve", "fairness_weight", "accuracy", "violation", "ratio", "standing"]


def alternatives(
    context: Context,
    source: Annotated[
        Path, Argument(metavar="RECORDS", help="The folder of `fferm curve`.")
    ],
    max_loss: Annotated[
        float | None,
        Option(help="Take the fairest model that loses at most so much accuracy."),
    ] = None,
    max_violation: Annotated[
        float | None, Option(help="Take the most accurate model within this bound.")
    ] = None,
    min_accuracy: Annotated[
        float | None, Option(help="Take the fairest model with this accuracy.")
    ] = None,
    confidence: Annotated[
        float | None, Option(help="With --max-violation: test the bound.")
    ] = None,
    html: options.Html = None,
    date: options.Date = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Document the search for less discriminatory models: what was tried, and costs.

    The exit code is 1 if no model keeps what is asked for. Not legal advice.

    Example: fferm alternatives records --max-loss 0.01 --html alternatives.html
    """
    output = Output(quiet, json)
    if not source.is_dir():
        raise InvalidInputError(
            f"{source} is not a folder. Name the folder of records of a curve."
        )
    if html is not None:
        check_writable(html)
    with output.warnings_as_lines():
        search = TradeoffCurve.load(source).alternatives(
            max_loss=max_loss,
            max_violation=max_violation,
            min_accuracy=min_accuracy,
            confidence=confidence,
            provenance=of_records(context, source, date),
        )
        if html is not None:
            search.to_html(html)
    table = table_text(SHOWN, search.models[SHOWN].to_dict("records"))
    output.result(f"{search.reason}\n\n{table}", search.to_dict())
    return 0 if search.taken is not None else 1
