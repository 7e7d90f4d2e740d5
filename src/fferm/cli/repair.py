"""``fferm repair``: a frozen model, or its scores in a table, made fair and saved."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import fferm
from fferm.cli import options
from fferm.cli.audit import audit_model
from fferm.cli.fit import judge
from fferm.cli.inputs import Form, column_of, features_of, known_labels, open_source
from fferm.cli.options import GroupKind
from fferm.cli.outputs import Output, check_writable
from fferm.data.validate import check_params
from fferm.deploy import RepairedClassifier
from fferm.deploy import repair as repair_scores
from fferm.errors import InvalidParameterError
from fferm.estimators import FairLogisticRegression
from fferm.registry import last_step

CorrectionKind = StrEnum("CorrectionKind", ["linear", "trees"])


def repair(
    data: options.Data,
    out: Annotated[Path, Option(help="The file to write the repaired model to.")],
    max_violation: Annotated[float, Option(help="The largest violation allowed.")],
    model: Annotated[
        Path | None, Option(help="The frozen model, saved by fferm.")
    ] = None,
    score: Annotated[
        str | None, Option(help="The column with the scores, in place of a model.")
    ] = None,
    uses_group: Annotated[
        bool,
        Option(
            "--uses-group",
            help="Decide by group, which is not lawful everywhere; else no group is "
            "needed to predict.",
        ),
    ] = False,
    correction: Annotated[
        CorrectionKind, Option(help="What corrects scores without the group.")
    ] = CorrectionKind.linear,
    target: options.Target = None,
    sensitive: options.Sensitive = None,
    confidence: Annotated[
        float, Option(help="Of the test that the bound is kept; 0: without a test.")
    ] = 0.95,
    notion: options.Notion = "demographic_parity",
    groups: options.Groups = GroupKind.intersection,
    test_share: options.TestShare = 0.25,
    seed: options.Seed = 0,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Repair a model that stays as it is, on rows that it was not trained on.

    A share of the rows is held out; the repaired model is measured there, once. The
    exit code is 1 if the bound was not shown to be kept, or if these rows refute it.

    Example: fferm repair loans.csv --score score --target granted --sensitive sex
    --max-violation 0.05 --out repaired.fferm
    """
    output = Output(quiet, json)
    check_writable(out, data, *([] if model is None else [str(model)]))
    if (model is None) == (score is None):
        raise InvalidParameterError(
            "repair needs one of --model MODEL and --score COLUMN. Name what is frozen."
        )
    bounds: dict[str, Any] = {"max_violation": max_violation}
    bounds |= {"confidence": confidence or None, "groups": groups.value}
    limits = RepairedClassifier.constraints
    for name, value in bounds.items():
        option = f"--{name.replace('_', '-')}"
        check_params({option: value}, {option: limits[name]})
    with output.warnings_as_lines():
        frozen: Any = score if model is None else fferm.load(model)
        if model is not None:
            target = target or last_step(frozen).target_name_
            sensitive = sensitive or list(last_step(frozen).sensitive_names_)
        source = open_source(data, target, sensitive, Form(sep, encoding, header))
        parts = []
        for rows in source.split(FairLogisticRegression(), test_share, seed):
            if model is not None:
                rows["X"] = features_of(frozen, rows["X"])
                rows["y"] = known_labels(rows["y"], last_step(frozen).classes_)
            else:
                column_of(rows["X"], str(score), "column of scores")
                if uses_group:
                    rows["X"] = rows["X"][[score]]
            parts.append(rows)
        train, test = parts
        repaired = repair_scores(
            frozen,
            **train,
            **bounds,
            uses_group=uses_group,
            notion=notion,
            correction=correction.value,
            random_state=seed,
        )
        audit = audit_model(repaired, test)
        fferm.save(repaired, out)
    is_kept, lines = judge(repaired, audit, max_violation, confidence)
    how = "decides by group" if uses_group else "needs no group to predict"
    words = [f"Saved {out}, which {how}: measured on held-out rows.", *lines]
    result = {
        "model": str(out),
        "uses_group": uses_group,
        "feasible": repaired.feasible_,
        "kept": is_kept,
        "audit": audit.to_dict(),
    }
    output.result("\n".join([*words, "", str(audit)]), result)
    return 0 if repaired.feasible_ and is_kept else 1
