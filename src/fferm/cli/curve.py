"""``fferm curve``: a table in, the trade-off of accuracy and fairness out."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fferm.cli.console import Output
from fferm.cli.models import is_regression, make_estimator
from fferm.cli.options import (
    BandsOption,
    DataArgument,
    DropOption,
    DropSensitiveOption,
    GroupKind,
    GroupsOption,
    JsonOption,
    MetricOption,
    ModelKind,
    ModelOption,
    NotionOption,
    QuietOption,
    SeedOption,
    SensitiveOption,
    TargetOption,
    TaskKind,
    TaskOption,
    TestShareOption,
)
from fferm.cli.sources import open_source, split
from fferm.cli.targets import check_folder, check_writable
from fferm.curve import TradeoffCurve, tradeoff_curve
from fferm.errors import InvalidParameterError
from fferm.estimators.frame import FrameModel

SHOWN = ("curve", "fairness_weight", "accuracy", "violation", "soft_violation")
OF_NUMBERS = ("curve", "fairness_weight", "accuracy", "loss", "violation", "mean_gap")


def curve(
    data: DataArgument,
    out: Annotated[
        Path, typer.Option("--out", help="A folder for the records; resumes there.")
    ],
    target: TargetOption = None,
    sensitive: SensitiveOption = None,
    weights: Annotated[int, typer.Option(help="How many fairness weights.")] = 20,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 1,
    divergence: Annotated[
        list[str] | None, typer.Option(help="May be repeated; kl by default.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write a report there.")
    ] = None,
    model: ModelOption = ModelKind.linear,
    task: TaskOption = TaskKind.auto,
    metric: MetricOption = None,
    bands: BandsOption = None,
    notion: NotionOption = "demographic_parity",
    groups: GroupsOption = GroupKind.intersection,
    drop: DropOption = None,
    drop_sensitive: DropSensitiveOption = False,
    test_share: TestShareOption = 0.25,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 1,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Train models from unfair to fair and record what each costs in accuracy.

    A sweep that was stopped goes on where it was with the same command.
    """
    output = Output(quiet, json)
    divergences = divergence or ["kl"]
    _check_counts(weights=weights, seeds=seeds, jobs=jobs)
    check_folder(out)
    if html is not None:
        check_writable(html, data)
    with output.warnings_as_lines():
        source = open_source(data, target, sensitive)
        make = partial(make_estimator, model, is_regression(source, task), metric)
        for name in divergences:
            make(divergence=name, notion=notion)
        estimator = make(notion=notion, groups=groups.value, divergence=divergences[0])
        dropped = (*(drop or ()), *(source.sensitive if drop_sensitive else ()))
        columns = source.model(estimator, dropped, bands)
        rows = encoded(columns, *split(source, columns, test_share, seed))
        total = weights * seeds * len(divergences)
        with output.progress("models", total, lambda: n_trained(out)):
            found = tradeoff_curve(
                estimator,
                **rows,
                fairness_weights=weights,
                seeds=[seed + number for number in range(seeds)],
                divergences=divergences,
                n_jobs=jobs,
                records=out,
            )
        if html is not None:
            found.to_html(html)
    output.result(*_summary(found, out, output))
    return 0


def encoded(
    columns: FrameModel, train: pd.DataFrame, test: pd.DataFrame
) -> dict[str, Any]:
    """Return the data of a sweep, encoded as the training rows say."""
    encoder = columns.learn_encoding(train)
    return {
        "X": encoder.transform(train),
        "y": columns.labels(train),
        "sensitive_features": columns.groups(train),
        "test": (
            encoder.transform(test),
            columns.labels(test),
            columns.groups(test, train),
        ),
    }


def n_trained(records: Path) -> int:
    """Return how many models a folder of records holds."""
    return sum(1 for _ in (records / "models").glob("*.fferm"))


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        fewest = 2 if name == "weights" else 1
        if count < fewest:
            raise InvalidParameterError(
                f"--{name} {count} came. Expected a whole number of at least {fewest}."
            )


def _summary(
    found: TradeoffCurve, out: Path, output: Output
) -> tuple[str, dict[str, Any]]:
    front = found.pareto()
    metric = found.description.get("metric")
    columns = SHOWN if metric is None else OF_NUMBERS
    shown = [name for name in columns if name in front.columns]
    rows = front[shown].to_dict("records")
    table = output.table(shown, [list(row.values()) for row in rows])
    words = f"The models that no other beats, on held-out rows:\n\n{table}\n\n"
    if metric is not None:
        words += (
            "accuracy is the share of variance that is explained, loss the mean "
            f"squared error, violation the {metric}.\n"
        )
    # Of numbers, a violation may have the unit of the target: there is no worst one.
    area = found.hypervolume() if metric is None else None
    data = {"records": str(out), "hypervolume": area, "front": rows, "metric": metric}
    return f"{words}Records: {out}; a page of them: fferm report {out}", data
