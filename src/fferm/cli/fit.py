"""``fferm fit``: a table in, a saved model out."""

from pathlib import Path
from typing import Annotated, Any

import typer

import fferm
from fferm.auditing import Audit
from fferm.cli.console import Output
from fferm.cli.measuring import measure
from fferm.cli.models import is_regression, make_estimator
from fferm.cli.options import (
    BandsOption,
    DataArgument,
    DivergenceOption,
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
from fferm.cli.targets import check_writable
from fferm.estimators.frame import FrameModel


def fit(
    data: DataArgument,
    out: Annotated[Path, typer.Option("--out", help="Where to save the model.")],
    target: TargetOption = None,
    sensitive: SensitiveOption = None,
    max_violation: Annotated[
        float | None,
        typer.Option(help="The gap between groups to keep; finds the weight for it."),
    ] = None,
    fairness_weight: Annotated[
        float, typer.Option(help="How much fairness counts; not with a bound.")
    ] = 1.0,
    confident: Annotated[
        bool, typer.Option("--confident", help="The interval has to keep the bound.")
    ] = False,
    model: ModelOption = ModelKind.linear,
    task: TaskOption = TaskKind.auto,
    metric: MetricOption = None,
    bands: BandsOption = None,
    notion: NotionOption = "demographic_parity",
    divergence: DivergenceOption = "kl",
    groups: GroupsOption = GroupKind.intersection,
    drop: DropOption = None,
    drop_sensitive: DropSensitiveOption = False,
    test_share: TestShareOption = 0.25,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Train a fair model on a table and save it with its encoding of the columns.

    A share of the rows is held out; the model is measured there, once. Exit code 1
    where --max-violation could not be kept in training.
    """
    output = Output(quiet, json)
    check_writable(out, data)
    with output.warnings_as_lines():
        source = open_source(data, target, sensitive)
        estimator = make_estimator(
            model,
            is_regression(source, task),
            metric,
            divergence=divergence,
            notion=notion,
            groups=groups.value,
            max_violation=max_violation,
            confident=confident,
            fairness_weight=fairness_weight,
            random_state=seed,
        )
        dropped = (*(drop or ()), *(source.sensitive if drop_sensitive else ()))
        unfitted = source.model(estimator, dropped, bands)
        train, test = split(source, unfitted, test_share, seed)
        with output.progress(f"training on {len(train)} rows"):
            fitted = unfitted.fit(train)
        found = measure(fitted, test)
        fferm.save(fitted, out)
    output.result(*_summary(fitted, found, out))
    return 0 if getattr(fitted.estimator_, "feasible_", True) else 1


def _summary(model: FrameModel, found: Audit, out: Path) -> tuple[str, dict[str, Any]]:
    weight = model.estimator_.fairness_weight_
    dropped = list(model.encoder_.dropped_)
    is_kept = getattr(model.estimator_, "feasible_", True)
    words = [f"Saved {out}: fairness weight {weight:.4g}, measured on held-out rows."]
    if not is_kept:
        words.append("NOT KEPT: no fairness weight keeps the bound.")
    if dropped:
        words.append(f"Columns that say nothing and are not used: {', '.join(dropped)}")
    data = {
        "model": str(out),
        "fairness_weight": weight,
        "feasible": getattr(model.estimator_, "feasible_", None),
        "unused_columns": dropped,
        "audit": found.to_dict(),
    }
    return "\n".join([*words, "", str(found)]), data
