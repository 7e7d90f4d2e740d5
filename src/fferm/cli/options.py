"""The options that several commands share, and the values they may have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

# The kind of model to train.
ModelKind = StrEnum("ModelKind", ["linear", "net", "boosting"])
# What the target is.
TaskKind = StrEnum("TaskKind", ["auto", "classification", "regression"])
# How several sensitive columns are compared.
GroupKind = StrEnum("GroupKind", ["intersection", "marginal"])
# How much of an experiment is run.
Size = StrEnum("Size", ["small", "full"])

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV or Parquet file, or a data set of `fferm datasets`."
    ),
]
Target = Annotated[str | None, typer.Option("--target", help="The column to predict.")]
Sensitive = Annotated[
    list[str] | None,
    typer.Option(
        "--sensitive", help="A column whose groups are compared; may be repeated."
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="A column not to predict from; may be repeated."),
]
DropSensitive = Annotated[
    bool,
    typer.Option(
        "--drop-sensitive", help="Do not predict from the sensitive columns either."
    ),
]
Notion = Annotated[
    str, typer.Option("--notion", help="What has to be equal between groups.")
]
Divergence = Annotated[
    str, typer.Option("--divergence", help="How distance from equal is measured.")
]
TestShare = Annotated[
    float,
    typer.Option(
        "--test-share",
        help="The share of rows held out to measure on, stratified by label and group.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, warnings or words.")
]
Json = Annotated[
    bool, typer.Option("--json", help="The result as JSON on standard output.")
]
Model = Annotated[
    ModelKind, typer.Option("--model", help="The kind of model to train.")
]
Task = Annotated[
    TaskKind,
    typer.Option(
        "--task", help="Classes or numbers; auto: numbers of many values are numbers."
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="The violation of a regression, such as kolmogorov_smirnov, wasserstein, "
        "mean_gap or distance_correlation.",
    ),
]
Bands = Annotated[
    list[str] | None,
    typer.Option(
        "--bands",
        help="A sensitive column of numbers, such as ages, to cut into bands; may be "
        "repeated.",
    ),
]
Groups = Annotated[
    GroupKind,
    typer.Option("--groups", help="Several sensitive columns jointly, or one by one."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Also write a report there.")]
