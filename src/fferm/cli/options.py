"""The options that several commands share, and what they stand for."""

from enum import StrEnum
from typing import Annotated

import typer

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A CSV or Parquet file, or a data set of `fferm datasets`."
    ),
]
TargetOption = Annotated[
    str | None, typer.Option("--target", help="The column to predict.")
]
SensitiveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sensitive", help="A column whose groups are compared; may be repeated."
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", help="A column not to predict from; may be repeated."),
]
DropSensitiveOption = Annotated[
    bool,
    typer.Option(
        "--drop-sensitive", help="Do not predict from the sensitive columns either."
    ),
]
NotionOption = Annotated[
    str,
    typer.Option("--notion", help="What has to be equal between groups."),
]
DivergenceOption = Annotated[
    str, typer.Option("--divergence", help="How distance from equal is measured.")
]
TestShareOption = Annotated[
    float,
    typer.Option(
        "--test-share",
        help="The share of rows held out to measure on, of every label and group.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, warnings or words.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="The result as JSON on standard output.")
]


class ModelKind(StrEnum):
    """What is trained."""

    linear = "linear"
    net = "net"
    boosting = "boosting"


class TaskKind(StrEnum):
    """What the target is."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class GroupKind(StrEnum):
    """How several sensitive columns are compared."""

    intersection = "intersection"
    marginal = "marginal"


class Size(StrEnum):
    """How much of an experiment is run."""

    small = "small"
    full = "full"


ModelOption = Annotated[
    ModelKind, typer.Option("--model", help="The kind of model to train.")
]
TaskOption = Annotated[
    TaskKind,
    typer.Option(
        "--task", help="Classes or numbers; auto: numbers of many values are numbers."
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Of a regression: the violation, such as kolmogorov_smirnov, wasserstein, "
        "mean_gap or distance_correlation.",
    ),
]
BandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bands",
        help="A sensitive column of numbers, such as ages, to cut into bands; may be "
        "repeated.",
    ),
]
GroupsOption = Annotated[
    GroupKind,
    typer.Option("--groups", help="Several sensitive columns jointly, or one by one."),
]
