"""``fferm audit``: a saved model and a table in, a verdict out."""

from pathlib import Path
from typing import Annotated

import typer

import fferm
from fferm.auditing import Audit, RegressionAudit
from fferm.cli.catalog import CATALOG
from fferm.cli.console import Output
from fferm.cli.measuring import Given, measure, measure_given
from fferm.cli.options import (
    JsonOption,
    MetricOption,
    QuietOption,
    SensitiveOption,
    TargetOption,
    TaskKind,
    TaskOption,
)
from fferm.cli.sources import drop_unlabelled, open_source
from fferm.cli.targets import check_writable
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.frame import FrameModel


def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Of `fferm fit`; with --prediction, the table itself."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA", help="A CSV or Parquet file, or a data set by name."
        ),
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            "--prediction", help="Audit this column of the table, without a model."
        ),
    ] = None,
    target: TargetOption = None,
    sensitive: SensitiveOption = None,
    max_violation: Annotated[
        float | None, typer.Option(help="The largest violation that passes.")
    ] = None,
    confident: Annotated[
        bool, typer.Option("--confident", help="The interval has to keep it too.")
    ] = False,
    notion: Annotated[
        str | None, typer.Option(help="Another notion than that of training.")
    ] = None,
    metric: MetricOption = None,
    task: TaskOption = TaskKind.auto,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report there.")
    ] = None,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Measure what a saved model does to each group of a table.

    With --prediction, --target and --sensitive the predictions are a column of the
    table. Exit code 0 where the bound is kept or none was given, 1 where it is not
    kept.
    """
    output = Output(quiet, json)
    if max_violation is not None and not max_violation >= 0:
        raise InvalidParameterError(
            f"--max-violation {max_violation:g} came. Expected a number from 0 on, for "
            "example 0.05."
        )
    if html is not None:
        check_writable(html, model, *([] if data is None else [data]))
    with output.warnings_as_lines():
        if prediction is None:
            _refuse_columns(target, sensitive, task)
            fitted = load_model(Path(model))
            own = getattr(fitted, "violation_metric", None)
            _check_bound(max_violation, metric or own)
            found = _measured(fitted, data, notion, metric)
        else:
            given = Given(_only(model, data), prediction, target, sensitive)
            found = measure_given(given, task, notion, metric)
            _check_bound(max_violation, getattr(found, "metric", None))
        passes = max_violation is None or found.passes(
            max_violation, confident=confident
        )
        if html is not None:
            found.to_html(html, max_violation=max_violation)
    words = [str(found)]
    if max_violation is not None:
        words += ["", _verdict(found, max_violation, confident, passes)]
    verdict = {"max_violation": max_violation, "confident": confident, "passes": passes}
    output.result("\n".join(words), {**verdict, "audit": found.to_dict()})
    return 0 if passes else 1


def load_model(path: Path) -> FrameModel:
    """Return a model that `fferm fit` saved."""
    model = fferm.load(path)
    if not isinstance(model, FrameModel):
        raise InvalidInputError(
            f"{path} holds a {type(model).__name__}, which does not know the columns "
            "of a table. Expected a model of `fferm fit`; audit others from Python."
        )
    return model


def _measured(
    model: FrameModel, data: str | None, notion: str | None, metric: str | None
) -> Audit:
    if data is None:
        raise InvalidParameterError(
            "Missing argument DATA. Give a table to judge by: fferm audit MODEL DATA; "
            "or name the column of predictions in a table: --prediction NAME."
        )
    is_named = data in CATALOG and not Path(data).exists()
    # A data set has a target of its own where the model's is not among its targets.
    is_own = is_named and model.target not in CATALOG[data].targets
    source = open_source(data, None if is_own else model.target, model.sensitive)
    rows = source.frame if source.test is None else source.test
    return measure(model, drop_unlabelled(rows, model.target), notion, metric)


def _only(model: str, data: str | None) -> str:
    if data is not None:
        raise InvalidParameterError(
            f"--prediction came with two files, {model} and {data}. Give the table "
            "alone: fferm audit DATA --prediction NAME; or leave --prediction out."
        )
    return model


def _refuse_columns(
    target: str | None, sensitive: list[str] | None, task: TaskKind
) -> None:
    for name, value in (("--target", target), ("--sensitive", sensitive)):
        if value:
            raise InvalidParameterError(
                f"{name} came, and the model knows its columns. Leave it out, or name "
                "the column of predictions: --prediction NAME."
            )
    if task is not TaskKind.auto:
        raise InvalidParameterError(
            f"--task {task} came, and the model knows its task. Leave it out."
        )


def _check_bound(max_violation: float | None, metric: str | None) -> None:
    # Of numbers, only these have the unit of the prediction.
    if max_violation is None or metric in ("wasserstein", "mean_gap", "f_information"):
        return
    if max_violation > 1:
        raise InvalidParameterError(
            f"--max-violation {max_violation:g} came. Expected a number between 0 and "
            "1, for example 0.05."
        )


def _verdict(found: Audit, max_violation: float, confident: bool, passes: bool) -> str:
    what = "the upper end of its interval" if confident else "the violation"
    if isinstance(found, RegressionAudit):
        what += f" ({found.metric})"
    value = found.interval[1] if confident else found.violation
    sign = "PASSES: at most" if passes else "FAILS: above"
    return f"{sign} {max_violation:g}; {what} is {found.format_number(value)}."
