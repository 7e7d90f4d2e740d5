"""``fferm audit``: a saved model and a table in, a verdict out."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import narwhals as nw
import pandas as pd
from typer import Argument, Context, Option

import fferm
from fferm.auditing import Audit, RegressionAudit, audit_regression
from fferm.auditing.dossier import rules
from fferm.cli import options
from fferm.cli.inputs import (
    Form,
    column_of,
    drop_unlabelled,
    features_of,
    is_quantity,
    known_labels,
    open_source,
    read_table,
    require_columns,
    target_labels,
    target_numbers,
)
from fferm.cli.options import TaskKind
from fferm.cli.outputs import Output, check_writable, provenance
from fferm.data.groups import group_name
from fferm.data.validate import Number, check_params
from fferm.datasets._store import CATALOG
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    UnknownNameError,
    import_extra,
)
from fferm.estimators.regression import FairRegressor
from fferm.metrics.intervals import CONFIDENCE
from fferm.registry import last_step, unknown_name

# A notion, the metric of a regression, the least size of a group, the confidence.
How = tuple[str | None, str | None, int, float]
# Measures of a regression that have no upper limit.
UNBOUNDED = ("wasserstein", "mean_gap", "f_information")


def audit(
    context: Context,
    model: Annotated[
        str,
        Argument(
            metavar="MODEL",
            help="A model of `fferm fit`; with --prediction, the table itself, or a "
            "quoted pattern of files such as 'lake/*.parquet'.",
        ),
    ],
    data: Annotated[
        str | None,
        Argument(metavar="DATA", help="A CSV or Parquet file, or a data set by name."),
    ] = None,
    prediction: Annotated[
        str | None, Option(help="Audit this column of the table, without a model.")
    ] = None,
    probability: Annotated[
        str | None,
        Option(help="The column with the probability of the larger of two classes."),
    ] = None,
    target: options.Target = None,
    sensitive: options.Sensitive = None,
    max_violation: Annotated[
        float | None, Option(help="The largest violation that passes.")
    ] = None,
    confidence: Annotated[
        float | None,
        Option(help="Test the bound with this confidence, such as 0.95."),
    ] = None,
    notion: Annotated[
        str | None,
        Option(help=f"Another notion than that of training: {options.NOTIONS}."),
    ] = None,
    metric: options.Metric = None,
    rule: Annotated[
        str | None,
        Option("--for", help="Write the dossier of ll144, eeoc, ecoa or eu-ai-act."),
    ] = None,
    sex: Annotated[str | None, Option(help="With --for: the column of sex.")] = None,
    race: Annotated[
        str | None, Option(help="With --for: the column of race or ethnicity.")
    ] = None,
    favorable: Annotated[
        str | None, Option(help="With --for: the outcome that counts as selected.")
    ] = None,
    reference: Annotated[
        list[str] | None,
        Option(help="With --for: COLUMN=CATEGORY to compare with; may be repeated."),
    ] = None,
    exclude_small: Annotated[
        bool, Option("--exclude-small", help="With --for: no ratios under 2 % of rows.")
    ] = False,
    min_group_size: options.MinGroupSize = 1,
    task: options.Task = TaskKind.auto,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    html: options.Html = None,
    date: options.Date = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Measure what a saved model does to each group of a table.

    With --prediction or --probability, --target and --sensitive the predictions are
    columns of the table. The exit code is 0 if the bound is kept or there is none, 1 if
    it is not kept. With --confidence it is 0 only where a test shows that the bound is
    kept, and 1 where it is refuted or undecided. With --for the page and the text are
    the dossier of a rule, and with a model --sensitive names its columns.

    Example: fferm audit model.fferm new.csv --max-violation 0.05
    """
    output, form = Output(quiet, json), Form(sep, encoding, header)
    _check_confidence(confidence, max_violation)
    chosen: dict[str, Any] = {"sex": sex, "race": race, "favorable": favorable}
    chosen |= {"reference": reference, "exclude_small": exclude_small}
    _check_rule(rule, chosen)
    how = notion, metric, min_group_size, confidence or 0.95
    if html is not None:
        check_writable(html, model, *([] if data is None else [data]))
    with output.warnings_as_lines():
        if prediction is None and probability is None:
            _refuse(
                "cannot be used with a model, which knows its columns and its task. "
                "Leave it out, or name the column of predictions: --prediction NAME.",
                **{"--target": target, "--sensitive": None if rule else sensitive},
                **{"--task": None if task is TaskKind.auto else task},
            )
            asked = data, form, max_violation, how
            audited, columns, frame = _measure_model(Path(model), *asked)
            if sensitive:
                chosen["sensitive_features"] = pd.DataFrame(
                    {
                        name: column_of(frame, name, "sensitive column")
                        for name in sensitive
                    }
                )
        else:
            _refuse(
                f"cannot be a second file, because --prediction audits {model}. Leave "
                "out the model, or --prediction.",
                DATA=data,
            )
            columns = require_columns(target, sensitive)
            made = prediction, probability
            if any(sign in model for sign in "*?[") and not Path(model).exists():
                audited = _measure_lake(model, made, *columns, task, how)
            else:
                rows = read_table(Path(model), form)
                audited = _measure_columns(rows, made, *columns, task, how)
            _check_bound(max_violation, getattr(audited, "metric", None))
        words, result = _judge(audited, max_violation, confidence)
        text, result["audit"] = str(audited), audited.to_dict()
        files = (data, model) if data else (model, "predictions in the table")
        state = partial(provenance, context, files[0], *columns, model=files[1])
        if rule is not None:
            known = state(date=date)
            dossier = audited.dossier(rule, **chosen, provenance=known)
            text, result["dossier"] = str(dossier), dossier.to_dict()
        if html is not None and rule is not None:
            dossier.to_html(html)
        elif html is not None:
            known = state(date=date)
            audited.to_html(html, max_violation=max_violation, provenance=known)
    output.result("\n\n".join([text, *words]), result)
    return 0 if result["passes"] else 1


def _judge(
    audited: Audit, max_violation: float | None, confidence: float | None
) -> tuple[list[str], dict[str, Any]]:
    # What is said of a bound, in words and for JSON.
    result: dict[str, Any] = {"max_violation": max_violation, "confidence": confidence}
    result |= {"passes": True, "verdict": None, "rows_to_decide": None}
    if max_violation is None:
        return [], result
    passes = audited.passes(max_violation, confidence=confidence)
    what = "the violation"
    if isinstance(audited, RegressionAudit):
        what += f" ({audited.metric})"
    value = audited.format_number(audited.violation)
    sign = "PASSES: at most" if passes else "FAILS: above"
    needed = ""
    if confidence is not None:
        verdict = audited.verdict(max_violation, confidence)
        n_rows = audited.rows_to_decide(max_violation, confidence)
        result |= {"verdict": verdict, "rows_to_decide": n_rows}
        sign = f"{verdict.upper()} with {100 * confidence:g} % confidence: at most"
        if verdict == "undecided":
            needed = f" About {n_rows} rows like these would decide it."
            if n_rows is None:
                needed = " It is at the bound, which no number of rows would decide."
    words = f"{sign} {max_violation:g}; {what} is {value}.{needed}"
    return [words], {**result, "passes": passes}


def _check_rule(rule: str | None, chosen: dict[str, Any]) -> None:
    # Raise if a dossier cannot be made of what is chosen; read the references.
    if rule is None:
        dashed = {f"--{name.replace('_', '-')}": v for name, v in chosen.items()}
        _refuse("needs --for, such as --for ll144.", **dashed)
    elif rule not in rules():
        raise UnknownNameError(unknown_name("rule", rule, rules()))
    pairs = [each.partition("=") for each in chosen["reference"] or ()]
    if not all(sign for _, sign, _ in pairs):
        raise InvalidParameterError(
            "--reference must be COLUMN=CATEGORY, such as sex=man; got "
            f"{', '.join(chosen['reference'])}."
        )
    chosen["reference"] = {column: category for column, _, category in pairs}


def _refuse(why: str, **options: object) -> None:
    for name, value in options.items():
        if value:
            raise InvalidParameterError(f"{name} {why}")


def _check_confidence(confidence: float | None, max_violation: float | None) -> None:
    if confidence is None:
        return
    check_params({"--confidence": confidence}, {"--confidence": CONFIDENCE})
    if max_violation is None:
        raise InvalidParameterError("--confidence needs --max-violation.")


def _check_bound(max_violation: float | None, metric: str | None) -> None:
    if max_violation is not None:
        limits = Number() if metric in UNBOUNDED else Number(0, 1)
        check_params({"--max-violation": max_violation}, {"--max-violation": limits})


def _measure_model(
    path: Path, data: str | None, form: Form, max_violation: float | None, how: How
) -> tuple[Audit, tuple[str, tuple[str, ...]], pd.DataFrame]:
    model = fferm.load(path)
    last = last_step(model)
    target, sensitive = last.target_name_, last.sensitive_names_
    if not target or not sensitive or not hasattr(model, "feature_names_in_"):
        raise InvalidInputError(
            f"{path} was trained on arrays without names, so it does not know the "
            "columns of a table. Train it on a table, or audit it from Python."
        )
    _check_bound(max_violation, how[1] or getattr(last, "violation_metric", None))
    if data is None:
        raise InvalidParameterError(
            "Missing argument DATA. Name a table: fferm audit MODEL DATA; or the "
            "column of predictions in a table: fferm audit DATA --prediction NAME."
        )
    # The target of a data set by name counts if the model's is not among its targets.
    is_named = data in CATALOG and not Path(data).exists()
    is_default = is_named and target not in CATALOG[data].targets
    source = open_source(data, None if is_default else target, sensitive, form)
    frame = drop_unlabelled(
        source.frame if source.test is None else source.test, source.target
    )
    column = column_of(frame, source.target, "target")
    is_number = isinstance(last, FairRegressor)
    y = target_numbers(column) if is_number else known_labels(column, last.classes_)
    for name in sensitive:
        column_of(frame, name, "sensitive column")
    rows = {"X": features_of(model, frame), "y": y}
    rows["sensitive_features"] = frame[list(sensitive)]
    return audit_model(model, rows, how), (source.target, sensitive), frame


def audit_model(
    model: Any, rows: dict[str, Any], how: How = (None, None, 1, 0.95)
) -> Audit:
    """Return the audit of a model on some rows, by a notion and a metric if named."""
    is_number = isinstance(last_step(model), FairRegressor)
    _check_kind(is_number, *how[:2])
    options: dict[str, Any] = {"min_group_size": how[2], "confidence": how[3]}
    if is_number:
        return audit_regression(model, **rows, metric=how[1], **options)
    return fferm.audit(model, **rows, notion=how[0], **options)


def _measure_lake(
    pattern: str,
    made: tuple[str | None, str | None],
    target: str,
    sensitive: tuple[str, ...],
    task: TaskKind,
    how: How,
) -> Audit:
    """Return the audit of the files of a pattern, which DuckDB counts."""
    _refuse(
        "cannot be used with a pattern of files. Name one file.",
        **{"--metric": how[1], "--task": None if task is TaskKind.auto else task},
    )
    duckdb = import_extra("duckdb", "engines", "A pattern of files")
    is_parquet = pattern.removesuffix("*").rpartition(".")[2] in ("parquet", "pq", "")
    read = duckdb.read_parquet if is_parquet else duckdb.read_csv
    try:
        frame = nw.from_native(read(pattern))
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"Cannot read {pattern} ({reason}).") from error
    known = frame.collect_schema().names()
    if target in known:
        frame = frame.filter(~nw.col(target).is_null())
    return fferm.audit(
        frame=frame,
        y_true=target,
        y_pred=made[0],
        y_prob=made[1],
        sensitive=sensitive,
        notion=how[0],
        min_group_size=how[2],
        confidence=how[3],
    )


def _measure_columns(
    frame: pd.DataFrame,
    made: tuple[str | None, str | None],
    target: str,
    sensitive: tuple[str, ...],
    task: TaskKind,
    how: How,
) -> Audit:
    for name in (*made, target, *sensitive):
        if name is not None:
            column_of(frame, name, "column to audit")
    frame = drop_unlabelled(frame, target)
    truth, groups = frame[target], frame[list(sensitive)]
    predicted = None if made[0] is None else frame[made[0]]
    prob = None if made[1] is None else target_numbers(frame[made[1]])
    is_number = task is TaskKind.regression
    if task is TaskKind.auto and prob is None:
        is_number = is_quantity(truth) or (
            predicted is not None and is_quantity(predicted)
        )
    _check_kind(is_number, *how[:2])
    options: dict[str, Any] = {"min_group_size": how[2], "sensitive_features": groups}
    options["confidence"] = how[3]
    if is_number:
        if predicted is None:
            raise InvalidParameterError("--probability needs a target of classes.")
        numbers = target_numbers(predicted), target_numbers(truth)
        return audit_regression(None, *numbers, metric=how[1], **options)
    # 1, 1.0 and "1" are one label, whichever file they are in.
    labels = [
        None if column is None else [str(group_name(v)) for v in target_labels(column)]
        for column in (truth, predicted)
    ]
    options |= {"y_true": labels[0], "y_pred": labels[1], "y_prob": prob}
    return fferm.audit(notion=how[0], **options)


def _check_kind(is_number: bool, notion: str | None, metric: str | None) -> None:
    if is_number:
        why = "needs predictions of classes, but these are numbers. Use --metric."
        _refuse(why, **{"--notion": notion})
    else:
        why = "needs predictions of numbers, but these are classes. Use --notion."
        _refuse(why, **{"--metric": metric})
