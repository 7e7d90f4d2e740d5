"""The options that several commands share, and the values they may have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

# The kind of model to train.
ModelKind = StrEnum("ModelKind", ["linear", "net", "boosting"])
# What the target is.
TaskKind = StrEnum("TaskKind", ["auto", "classification", "regression"])
# How several sensitive columns are compared.
GroupKind = StrEnum("GroupKind", ["intersection", "marginal"])
# How much each group counts in the penalty.
WeightKind = StrEnum("WeightKind", ["share", "equal"])
# How rates of groups are compared.
MeasureKind = StrEnum("MeasureKind", ["difference", "ratio", "deviation"])
# How much of an experiment is run.
Size = StrEnum("Size", ["small", "full"])

Names = list[str] | None
Categorical = Annotated[
    Names, Option(help="A column of codes that are categories; may be repeated.")
]
Bands = Annotated[
    Names,
    Option(help="A sensitive column of numbers to cut into bands; may be repeated."),
]
Data = Annotated[
    str,
    Argument(
        metavar="DATA", help="A CSV or Parquet file, or a data set of `fferm datasets`."
    ),
]
DIVERGENCES = "kl, reverse_kl, chi2, total_variation, jensen_shannon, squared_hellinger"
Divergence = Annotated[
    str, Option(help=f"How distance from equal is measured: {DIVERGENCES} or alpha.")
]
Drop = Annotated[Names, Option(help="A column not to predict from; may be repeated.")]
DropSensitive = Annotated[
    bool,
    Option(
        "--drop-sensitive", help="Do not predict from the sensitive columns either."
    ),
]
Encoding = Annotated[
    str, Option(help="How the text of a CSV file is encoded, such as latin-1.")
]
Groups = Annotated[
    GroupKind, Option(help="Several sensitive columns jointly, or one by one.")
]
GroupWeights = Annotated[
    WeightKind, Option(help="A group counts in the penalty by its rows, or as others.")
]
Html = Annotated[Path | None, Option(help="Also write a report there.")]
Date = Annotated[str | None, Option(help="The date that the report states.")]
Json = Annotated[bool, Option("--json", help="The result as JSON on standard output.")]
Header = Annotated[
    bool,
    Option(
        "--header/--no-header",
        help="Whether a CSV file begins with names; else they are f0, f1, ...",
    ),
]
Measure = Annotated[
    MeasureKind,
    Option(help="How rates are compared: 0.2 by ratio is the four-fifths rule."),
]
Metric = Annotated[
    str | None,
    Option(
        help="The violation of a regression, such as kolmogorov_smirnov, wasserstein, "
        "mean_gap or distance_correlation."
    ),
]
MinGroupSize = Annotated[
    int, Option(help="Smaller groups are not compared, and are listed.")
]
Model = Annotated[ModelKind, Option(help="The kind of model to train.")]
NOTIONS = (
    "demographic_parity, equal_opportunity, equalized_odds, "
    "false_positive_rate_parity, sufficiency or predictive_parity"
)
Notion = Annotated[str, Option(help=f"What has to be equal between groups: {NOTIONS}.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No progress, warnings or words.")]
Seed = Annotated[int, Option(help="Seed of everything random.")]
Sep = Annotated[
    str | None, Option(help="What separates the fields of a CSV file; found by itself.")
]
Sensitive = Annotated[
    Names, Option(help="A column whose groups are compared; may be repeated.")
]
Target = Annotated[str | None, Option(help="The column to predict.")]
Task = Annotated[
    TaskKind, Option(help="Classes or numbers; auto: many values are numbers.")
]
TestShare = Annotated[
    float, Option(help="The share of rows held out to measure on, by label and group.")
]
