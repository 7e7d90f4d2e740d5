"""``fferm adapt``: a saved model and rows of a new place in, a corrected model out."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import fferm
from fferm.cli import options
from fferm.cli.inputs import Form, column_of, features_of, known_labels, read_rows
from fferm.cli.outputs import Output, check_writable
from fferm.deploy import adapt as adapt_model
from fferm.deploy import recalibrate as recalibrate_model
from fferm.errors import InvalidInputError
from fferm.metrics import violation
from fferm.registry import last_step


def adapt(
    model: Annotated[
        Path, Argument(metavar="MODEL", help="A model of `fferm fit` or `fferm.save`.")
    ],
    data: options.Data,
    out: Annotated[Path, Option(help="The file to write the corrected model to.")],
    sensitive: Annotated[
        options.Names,
        Option(help="A column whose groups are made level; those of training."),
    ] = None,
    domain: Annotated[
        str | None, Option(help="The column that holds the place of each row.")
    ] = None,
    recalibrate: Annotated[
        bool,
        Option("--recalibrate", help="First mend the intercepts with the labels."),
    ] = False,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Level the rates of groups where data have moved, without training again.

    No labels are needed, unless for --recalibrate. The corrected model decides by
    group, which is lawful in some places and uses and not in others.

    Example: fferm adapt model.fferm new.csv --domain state --out adapted.fferm
    """
    output = Output(quiet, json)
    check_writable(out, data, str(model))
    with output.warnings_as_lines():
        fitted = fferm.load(model)
        last = last_step(fitted)
        names = tuple(sensitive or last.sensitive_names_)
        if not names or not hasattr(fitted, "feature_names_in_"):
            raise InvalidInputError(
                f"{model} was trained on arrays without names, so it does not know the "
                "columns of a table. Train it on a table, or adapt it from Python."
            )
        frame = read_rows(data, Form(sep, encoding, header))
        features = features_of(fitted, frame)
        if domain is not None:
            features = features.assign(
                **{domain: column_of(frame, domain, "domain of rows")}
            )
        groups = {
            "sensitive_features": frame[
                [column_of(frame, name, "sensitive column").name for name in names]
            ]
        }
        if recalibrate:
            column = column_of(frame, last.target_name_, "target")
            known = column.notna()
            labels = known_labels(column[known], last.classes_)
            part = {"sensitive_features": groups["sensitive_features"][known]}
            fitted = recalibrate_model(
                fitted, features[known], labels, **part, domain=domain
            )
        adapted = adapt_model(fitted, features, **groups, domain=domain)
        fferm.save(adapted, out)
        seen = groups if getattr(fitted, "predicts_with_groups", False) else {}
        shown = groups["sensitive_features"]
        decisions = (
            fitted.predict(features, **seen),
            adapted.predict(features, **groups),
        )
        before, after = (
            violation(None, each, sensitive_features=shown) for each in decisions
        )
    result = {"model": str(out), "rows": len(frame), "groups": list(adapted.groups_)}
    result |= {"domains": len(adapted.domains_), "before": before, "after": after}
    places = f" in {len(adapted.domains_)} places" if adapted.domains_ else ""
    words = [
        f"Wrote {out}: adapted to {len(frame)} rows{places}.",
        f"On these rows the violation was {before:.4f} and is {after:.4f}.",
    ]
    output.result("\n".join(words), result)
    return 0
