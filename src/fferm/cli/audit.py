"""``fferm audit``: a saved model and a table in, a verdict out."""

from pathlib import Path
from typing import Annotated

import typer

import fferm
from fferm.auditing.result import Audit
from fferm.cli.catalog import CATALOG
from fferm.cli.console import Output
from fferm.cli.options import DataArgument, JsonOption, QuietOption
from fferm.cli.sources import drop_unlabelled, open_source
from fferm.cli.targets import check_writable
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.frames import FrameClassifier


def audit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Of `fferm fit`.")],
    data: DataArgument,
    max_violation: Annotated[
        float | None, typer.Option(help="The largest gap between groups that passes.")
    ] = None,
    confident: Annotated[
        bool, typer.Option("--confident", help="The interval has to keep it too.")
    ] = False,
    notion: Annotated[
        str | None, typer.Option(help="Another notion than that of training.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report there.")
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Measure what a saved model does to each group of a table.

    Exit code 0 where the bound is kept or none was given, 1 where it is not kept.
    """
    output = Output(quiet, json)
    if max_violation is not None and not 0 <= max_violation <= 1:
        raise InvalidParameterError(
            f"--max-violation {max_violation:g} came. Expected a number between 0 and "
            "1, for example 0.05."
        )
    if html is not None:
        check_writable(html, data, str(model))
    fitted = load_model(model)
    with output.warnings_as_lines():
        found = _measured(fitted, data, notion)
        if html is not None:
            found.to_html(html, max_violation=max_violation)
    passes = max_violation is None or found.passes(max_violation, confident=confident)
    words = [str(found)]
    if max_violation is not None:
        words += ["", _verdict(found, max_violation, confident, passes)]
    verdict = {"max_violation": max_violation, "confident": confident, "passes": passes}
    output.result("\n".join(words), {**verdict, "audit": found.to_dict()})
    return 0 if passes else 1


def load_model(path: Path) -> FrameClassifier:
    """Return a model that `fferm fit` saved."""
    model = fferm.load(path)
    if not isinstance(model, FrameClassifier):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__}, which does not know the columns "
            "of a table. Expected a model of `fferm fit`; audit others from Python."
        )
    return model


def _measured(model: FrameClassifier, data: str, notion: str | None) -> Audit:
    is_named = data in CATALOG and not Path(data).exists()
    target = None if is_named else model.target
    source = open_source(data, target, model.sensitive)
    rows = source.frame if source.test is None else source.test
    rows = drop_unlabelled(rows, model.target)
    return fferm.audit(
        model,
        rows,
        model.labels(rows),
        sensitive_features=model.groups(rows),
        notion=notion,
    )


def _verdict(found: Audit, max_violation: float, confident: bool, passes: bool) -> str:
    what = "the upper end of its interval" if confident else "the violation"
    value = found.interval[1] if confident else found.violation
    sign = "PASSES: at most" if passes else "FAILS: above"
    return f"{sign} {max_violation:g}; {what} is {value:.4f}."
