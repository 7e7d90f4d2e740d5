"""``fferm curve``: a table in, the trade-off of accuracy and fairness out."""

from pathlib import Path
from typing import Annotated

from typer import Context, Option

from fferm.cli import options
from fferm.cli.fit import make_estimator
from fferm.cli.inputs import Form, open_source
from fferm.cli.options import GroupKind, ModelKind, TaskKind, WeightKind
from fferm.cli.outputs import Output, check_writable, provenance, table_text
from fferm.curve import tradeoff_curve
from fferm.data.validate import COUNT, Number, check_params

SHOWN = ["curve", "fairness_weight", "accuracy", "violation", "soft_violation"]
LIMITS = {"--weights": Number(2, is_whole=True), "--seeds": COUNT, "--jobs": COUNT}
SHOWN_OF_REGRESSION = [*SHOWN[:3], "loss", "violation", "mean_gap"]


def curve(
    context: Context,
    data: options.Data,
    out: Annotated[Path, Option(help="A folder for the records; resumes there.")],
    target: options.Target = None,
    sensitive: options.Sensitive = None,
    weights: Annotated[int, Option(help="How many fairness weights.")] = 20,
    seeds: Annotated[int, Option(help="How many seeds.")] = 1,
    divergence: Annotated[
        options.Names,
        Option(help=f"May be repeated: {options.DIVERGENCES}; kl by default."),
    ] = None,
    html: options.Html = None,
    date: options.Date = None,
    model: Annotated[
        list[ModelKind] | None,
        Option(help="The kind of model; may be repeated. linear by default."),
    ] = None,
    task: options.Task = TaskKind.auto,
    metric: options.Metric = None,
    bands: options.Bands = None,
    notion: options.Notion = "demographic_parity",
    groups: options.Groups = GroupKind.intersection,
    group_weights: options.GroupWeights = WeightKind.share,
    drop: options.Drop = None,
    drop_sensitive: options.DropSensitive = False,
    categorical: options.Categorical = None,
    min_group_size: options.MinGroupSize = 1,
    test_share: options.TestShare = 0.25,
    jobs: Annotated[int, Option(help="Processes at a time.")] = 1,
    seed: options.Seed = 0,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Train models from unfair to fair and record what each costs in accuracy.

    Repeat the same command to resume a sweep that was stopped.

    Example: fferm curve loans.csv --target granted --sensitive sex --out records
    """
    output = Output(quiet, json)
    divergences, kinds = divergence or ["kl"], model or [ModelKind.linear]
    check_params({"--weights": weights, "--seeds": seeds, "--jobs": jobs}, LIMITS)
    check_writable(out, is_folder=True)
    if html is not None:
        check_writable(html, data)
    with output.warnings_as_lines():
        source = open_source(data, target, sensitive, Form(sep, encoding, header))
        output.note(source.describe_target(task))
        estimators = {
            kind.value: make_estimator(
                kind,
                source.is_regression(task),
                metric,
                notion=notion,
                groups=groups.value,
                group_weights=group_weights.value,
                divergence=divergences[0],
                continuous=list(bands or ()) or "auto",
                categorical=categorical,
                min_group_size=min_group_size,
            )
            for kind in kinds
        }
        estimator = estimators[kinds[0].value]
        source = source.without(drop, drop_sensitive, bands)
        train, test = source.split(estimator, test_share, seed)
        curve = tradeoff_curve(
            estimators if len(estimators) > 1 else estimator,
            **train,
            test=test,
            fairness_weights=weights,
            seeds=[seed + number for number in range(seeds)],
            divergences=divergences,
            n_jobs=jobs,
            records=out,
            verbose=output.verbose,
        )
        if html is not None:
            trained = ", ".join(map(repr, estimators.values()))
            columns = source.target, source.sensitive
            known = provenance(context, data, *columns, model=trained, date=date)
            curve.to_html(html, provenance=known)
    chosen = curve.description.get("metric")
    front, shown = curve.pareto(), SHOWN if chosen is None else SHOWN_OF_REGRESSION
    names = [name for name in shown if name in front.columns]
    rows = front[names].to_dict("records")
    table = table_text(names, rows)
    words = f"The models that no other beats, on held-out rows:\n\n{table}\n\n"
    if chosen is not None:
        words += (
            "accuracy is the share of variance that is explained, loss the mean "
            f"squared error, violation the {chosen}.\n"
        )
    words += f"Records: {out}; a page of them: fferm report {out}"
    # The violation of a regression may have the unit of y, so there is no worst one.
    area = curve.hypervolume() if chosen is None else None
    result = {"records": str(out), "hypervolume": area, "front": rows}
    output.result(words, {**result, "metric": chosen})
    return 0
