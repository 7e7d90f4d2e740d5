"""``fferm predict``: a saved model and a table in, predictions out."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from typer import Argument, Option

import fferm
from fferm._files import replacing
from fferm.cli import options
from fferm.cli.inputs import Form, column_of, features_of, read_rows
from fferm.cli.outputs import Output, check_writable
from fferm.errors import InvalidInputError
from fferm.registry import last_step

PREDICTION = "prediction"


def predict(
    model: Annotated[
        Path, Argument(metavar="MODEL", help="A model of `fferm fit` or `fferm.save`.")
    ],
    data: options.Data,
    out: Annotated[Path, Option(help="The CSV or Parquet file to write.")],
    keep: Annotated[
        options.Names,
        Option(
            help="A column to write beside the predictions, such as an id; may be "
            "repeated. By default those that the model does not predict from."
        ),
    ] = None,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Predict the rows of a table: labels and probabilities, or numbers.

    Example: fferm predict model.fferm new.csv --out predictions.csv --keep id
    """
    output = Output(quiet, json)
    check_writable(out, data, str(model))
    if out.suffix not in (".csv", ".parquet"):
        raise InvalidInputError(f"{out} must end in .csv or .parquet.")
    with output.warnings_as_lines():
        fitted = fferm.load(model)
        if getattr(fitted, "feature_names_in_", None) is None:
            raise InvalidInputError(
                f"{model} was trained on arrays without names, so it does not know the "
                "columns of a table. Train it on a table, or predict from Python."
            )
        frame = read_rows(data, Form(sep, encoding, header))
        features = features_of(fitted, frame)
        if keep is None:
            encoder = getattr(last_step(fitted), "encoder_", None)
            used = set(features.columns) - set(encoder.dropped_ if encoder else ())
            keep = [name for name in frame.columns if name not in used]
        kept = {name: column_of(frame, name, "column to keep") for name in keep}
        columns = dict(kept)
        for name, column in _predictions(fitted, features, frame).items():
            columns[name if name not in kept else f"{name}_"] = column
        predicted = pd.DataFrame(columns, index=frame.index)
        with replacing(out, "Choose a folder that is writable.") as temporary:
            if out.suffix == ".csv":
                predicted.to_csv(temporary, index=False)
            else:
                predicted.to_parquet(temporary, index=False)
    counts: dict[str, int] = {}
    if hasattr(fitted, "classes_"):
        for label, count in predicted.iloc[:, len(kept)].value_counts().items():
            counts[str(label)] = int(count)
    words = [f"Wrote {out}: {len(predicted)} rows."]
    words += [f"  {label}: {count}" for label, count in counts.items()]
    result = {"predictions": str(out), "rows": len(predicted), "counts": counts}
    output.result("\n".join(words), result)
    return 0


def _predictions(
    model: Any, features: pd.DataFrame, frame: pd.DataFrame
) -> dict[str, Any]:
    groups = {}
    if getattr(model, "predicts_with_groups", False):
        for name in model.sensitive_names_:
            column_of(frame, name, "sensitive column")
        groups["sensitive_features"] = frame[list(model.sensitive_names_)]
    predicted: dict[str, Any] = {PREDICTION: model.predict(features, **groups)}
    if hasattr(model, "predict_proba"):
        names = [f"probability_{label}" for label in model.classes_]
        prob = model.predict_proba(features, **groups).T
        predicted |= dict(zip(names, prob, strict=True))
    return predicted
