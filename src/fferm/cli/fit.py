"""``fferm fit``: a table in, a saved model out."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from typer import Option

import fferm
from fferm.cli import options
from fferm.cli.audit import audit_model
from fferm.cli.inputs import Form, open_source
from fferm.cli.options import GroupKind, MeasureKind, ModelKind, TaskKind, WeightKind
from fferm.cli.outputs import Output, check_writable
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.estimators.regression import FairRegressor
from fferm.metrics.dependence import GROUP_MEASURES, get_measure
from fferm.metrics.tabulator import worst_violation
from fferm.notions import Measure

CLASSES = {
    ModelKind.linear: "FairLogisticRegression",
    ModelKind.net: "FairNetClassifier",
    ModelKind.boosting: "FairBoostingClassifier",
}
# Widths of the hidden layers of a regression's network.
HIDDEN = (64, 64)


def fit(
    data: options.Data,
    out: Annotated[Path, Option(help="Where to save the model.")],
    target: options.Target = None,
    sensitive: options.Sensitive = None,
    max_violation: Annotated[
        float | None,
        Option(help="The gap between groups to keep; finds the weight for it."),
    ] = None,
    measure: options.Measure = MeasureKind.difference,
    max_divergence: Annotated[
        float | None,
        Option(help="The divergence to keep on the training rows; finds the weight."),
    ] = None,
    fairness_weight: Annotated[
        float | None,
        Option(help="How much fairness counts, 10 by default; not with a bound."),
    ] = None,
    confidence: Annotated[
        float,
        Option(help="Of the test that the bound is kept; 0: its value keeps it."),
    ] = 0.95,
    refit: Annotated[
        bool,
        Option("--refit", help="Train again on all rows, which voids the confidence."),
    ] = False,
    model: options.Model = ModelKind.linear,
    task: options.Task = TaskKind.auto,
    metric: options.Metric = None,
    bands: options.Bands = None,
    notion: options.Notion = "demographic_parity",
    divergence: options.Divergence = "kl",
    groups: options.Groups = GroupKind.intersection,
    group_weights: options.GroupWeights = WeightKind.share,
    drop: options.Drop = None,
    drop_sensitive: options.DropSensitive = False,
    categorical: options.Categorical = None,
    min_group_size: options.MinGroupSize = 1,
    test_share: options.TestShare = 0.25,
    seed: options.Seed = 0,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Train a fair model on a table and save it with its encoding of the columns.

    A share of the rows is held out; the model is measured there, once. The exit code
    is 1 if no model was shown to keep --max-violation, or if the held-out rows show
    that this one does not, and if no weight keeps --max-divergence.

    Example: fferm fit loans.csv --target granted --sensitive sex --max-violation 0.05
    --out model.fferm
    """
    output = Output(quiet, json)
    check_writable(out, data)
    _refuse_two(
        {
            "--fairness-weight": fairness_weight,
            "--max-violation": max_violation,
            "--max-divergence": max_divergence,
        }
    )
    with output.warnings_as_lines():
        form = Form(sep, encoding, header)
        source = open_source(data, target, sensitive, form)
        is_regression = source.is_regression(task)
        output.note(source.describe_target(task))
        weights = (
            {} if fairness_weight is None else {"fairness_weight": fairness_weight}
        )
        estimator = make_estimator(
            model,
            is_regression,
            metric,
            divergence=divergence,
            notion=notion,
            groups=groups.value,
            group_weights=group_weights.value,
            max_violation=max_violation,
            max_divergence=max_divergence,
            confidence=confidence or None,
            measure=measure.value,
            refit=refit,
            **weights,
            continuous=list(bands or ()) or "auto",
            categorical=categorical,
            min_group_size=min_group_size,
            random_state=seed,
        )
        source = source.without(drop, drop_sensitive, bands)
        train, test = source.split(estimator, test_share, seed)
        estimator.set_params(verbose=output.verbose)
        fitted = estimator.fit(**train).set_params(verbose=0)
        audit = audit_model(fitted, test)
        fferm.save(fitted, out)
    weight = fitted.fairness_weight_
    feasible = getattr(fitted, "feasible_", None)
    dropped = list(fitted.encoder_.dropped_) if hasattr(fitted, "encoder_") else []
    words = [f"Saved {out}: fairness weight {weight:.4g}, measured on held-out rows."]
    is_kept = None
    if max_violation is not None:
        asked = max_violation, confidence, measure.value
        is_kept, lines = judge(fitted, audit, *asked)
        words += lines
    if max_divergence is not None:
        value = f"divergence {fitted.divergence_value_:.4g}, bound {max_divergence:g}."
        words.append(f"{_sign(feasible)} on the training rows: {value}")
    if dropped:
        words.append(f"Columns that say nothing and are not used: {', '.join(dropped)}")
    result = {"model": str(out), "fairness_weight": weight, "feasible": feasible}
    result["kept"] = is_kept
    measured = {"unused_columns": dropped, "audit": audit.to_dict()}
    output.result("\n".join([*words, "", str(audit)]), {**result, **measured})
    return 0 if feasible in (None, True) and is_kept in (None, True) else 1


def judge(
    fitted: Any,
    audit: Any,
    bound: float,
    confidence: float,
    measure: str = "difference",
) -> tuple[bool, list[str]]:
    """Return whether held-out rows do not refute the bound, and two lines on it."""
    how = f" with {100 * confidence:g} % confidence" if confidence else ""
    value = audit.format_number(fitted.violation_)
    sign = _sign(fitted.feasible_)
    if confidence and not fitted.feasible_ and fitted.violation_ <= bound:
        sign = "NOT SHOWN TO BE KEPT"  # on so few rows
    searched = (
        f"{sign}{how} on the validation rows of the search: "
        f"violation {value}, bound {bound:g}."
    )
    violation = audit.violation
    if measure != "difference":
        masses = []
        for part in audit.rates:
            rate, size = np.array(part.rates), np.array(part.sizes)
            masses.append(np.nan_to_num(np.stack([1 - rate, rate], 1) * size[:, None]))
        violation = worst_violation(masses, cast(Measure, measure))
    is_kept = violation <= bound
    sign = _sign(is_kept)
    if confidence and not is_kept and measure == "difference":
        # A value above the bound may be chance: a test says whether.
        is_kept = audit.verdict(bound, audit.confidence) != "refuted"
        sign = "NOT REFUTED" if is_kept else "REFUTED"
    value = audit.format_number(violation)
    if confidence and sign == "KEPT":
        sign = "KEPT, by the value alone,"
    held_out = f"{sign} on the held-out rows: violation {value}, bound {bound:g}."
    return is_kept, [searched, held_out]


def _sign(is_kept: bool | None) -> str:
    return "KEPT" if is_kept else "NOT KEPT"


def _refuse_two(options: dict[str, float | None]) -> None:
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidParameterError(
            f"{' and '.join(given)} contradict each other: a bound finds its own "
            "weight. Leave one of them out."
        )


def _refuse_confidence(metric: str, confidence: float | None) -> None:
    if confidence is not None:
        raise InvalidParameterError(
            f"--metric {metric} has no test that keeps its level. Pass --confidence 0, "
            f"or one of {', '.join(GROUP_MEASURES)}."
        )


def make_estimator(
    model: ModelKind, is_regression: bool, metric: str | None, **params: Any
) -> FairEstimator:
    """Return the unfitted estimator of ``--model`` and the target, checked."""
    measure = params.get("measure", "difference")
    classes, numeric = "needs a target of classes", "but this one is numeric"
    wrong = {
        f"--metric {metric} needs a numeric target, but this one has classes": (
            not is_regression and metric is not None
        ),
        f"--model boosting {classes}, {numeric}": (
            is_regression and model is ModelKind.boosting
        ),
        f"--measure {measure} {classes}, {numeric}": (
            is_regression and measure != "difference"
        ),
    }
    for problem in filter(wrong.get, wrong):
        raise InvalidParameterError(f"{problem}. Leave it out, or change --task.")
    estimator: FairEstimator
    if is_regression:
        params.pop("measure", None)
        if metric is not None:
            get_measure(metric)  # an unknown name is refused before any work
            params["violation_metric"] = metric
            if metric not in GROUP_MEASURES and params.get("max_violation") is not None:
                _refuse_confidence(metric, params["confidence"])
        hidden = HIDDEN if model is ModelKind.net else None
        estimator = FairRegressor(hidden=hidden, **params)
    else:
        estimator = getattr(fferm, CLASSES[model])(**params)
    estimator._objective()  # names, before any work
    bounds = ("max_violation", "max_divergence", "confidence")
    for name in ("fairness_weight", *bounds, "min_group_size"):
        _check_range(estimator, name)
    return estimator


def _check_range(estimator: FairEstimator, name: str) -> None:
    value, limits = getattr(estimator, name), estimator.constraints[name]
    if value is not None and isinstance(limits, Number):
        option = f"--{name.replace('_', '-')}"
        check_params({option: value}, {option: replace(limits, is_optional=False)})
