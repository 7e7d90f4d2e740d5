"""An MLflow flavour: models with signature and audit, and metrics of every group.

`log_model` writes into the active run: the model, its parameters, the audit as JSON and
as text, and the rates of every group as metrics. MLflow serves it like any other model.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fferm._typing import Table
from fferm.auditing import Audit, ClassificationAudit, RegressionAudit
from fferm.data.frame import as_pandas
from fferm.errors import import_extra
from fferm.persistence import load, save

# The file of a model within MLflow's folder, and the name of the flavour.
FILE, FLAVOR = "model.fferm", "fferm"
# What MLflow allows in the name of a metric.
UNUSUAL = re.compile(r"[^\w./ -]")


def save_model(
    model: Any,
    path: str | Path,
    *,
    example: Table = None,
    mlflow_model: Any = None,
) -> None:
    """Save a model as a folder that MLflow loads and serves.

    Parameters
    ----------
    model
        What `fferm.save` takes.
    path
        A folder that does not exist yet.
    example
        Some rows of a table to predict on; the signature is made of them.
    mlflow_model
        MLflow's own description, where it makes one.
    """
    models, pyfunc = _mlflow("models"), _mlflow("pyfunc")
    described = models.Model() if mlflow_model is None else mlflow_model
    folder = Path(path)
    folder.mkdir(parents=True)
    save(model, folder / FILE)
    if example is not None:
        frame = as_pandas(example)
        described.signature = models.infer_signature(frame, _predict(model, frame))
    described.add_flavor(FLAVOR, model=FILE)
    pyfunc.add_to_model(described, loader_module=__name__, data=FILE)
    described.save(folder / "MLmodel")


def log_model(
    model: Any,
    name: str = "model",
    *,
    example: Table = None,
    audit: Audit | None = None,
) -> Any:
    """Log a model to the active run of MLflow; return MLflow's description of it.

    Parameters
    ----------
    model, example
        As in `save_model`.
    name
        What the model is called.
    audit
        Of the model, on rows that it has not seen: logged by `log_audit`.
    """
    mlflow, models = _mlflow(), _mlflow("models")
    last = getattr(model, "steps", [(None, model)])[-1][1]
    mlflow.log_params({key: str(v)[:500] for key, v in last.get_params().items()})
    if audit is not None:
        log_audit(audit)
    flavor = import_extra(__name__, "mlflow")
    return models.Model.log(
        artifact_path=None, name=name, flavor=flavor, model=model, example=example
    )


def log_audit(audit: Audit) -> None:
    """Log an audit: its violation and every group's rates as metrics, and all of it."""
    mlflow = _mlflow()
    mlflow.log_metrics(audit_metrics(audit))
    mlflow.log_dict(audit.to_dict(), "audit.json")
    mlflow.log_text(str(audit), "audit.txt")


def audit_metrics(audit: Audit) -> dict[str, float]:
    """Return the violation and every group's rates by the names of their metrics."""
    low, high = audit.interval
    metrics = {"violation": audit.violation}
    metrics |= {"violation_low": low, "violation_high": high}
    rows: Mapping[str, Mapping[str, float]] = {}
    if isinstance(audit, ClassificationAudit):
        metrics |= {"accuracy": audit.accuracy, "violation_floor": audit.floor}
        rows = audit.groups
    elif isinstance(audit, RegressionAudit):
        metrics |= {"mse": audit.mse, "explained": audit.explained}
        rows = {
            f"{name}={group}": values
            for name, column in audit.columns.items()
            for group, values in column.groups.items()
        }
    for group, values in rows.items():
        metrics |= {f"{key}/{group}": value for key, value in values.items()}
    return {
        UNUSUAL.sub("_", name): float(value)
        for name, value in metrics.items()
        if math.isfinite(value)
    }


def load_model(uri: str) -> Any:
    """Return the estimator of a model that `log_model` or `save_model` wrote."""
    artifacts = _mlflow("artifacts")
    return load(Path(artifacts.download_artifacts(artifact_uri=uri)) / FILE)


def _load_pyfunc(path: str) -> "_Served":
    # MLflow calls it by this name, with the path of the data.
    return _Served(load(Path(path)))


class _Served:
    # What MLflow asks for predictions: probabilities by class, or numbers.
    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, model_input: Table, params: Any = None) -> Any:
        return _predict(self.model, model_input)


def _predict(model: Any, X: Table) -> Any:
    if not hasattr(model, "predict_proba"):
        return pd.DataFrame({"prediction": model.predict(X)})
    prob = model.predict_proba(X)
    names = [f"probability_{label}" for label in model.classes_]
    return pd.DataFrame(prob, columns=names).assign(prediction=model.predict(X))


def _mlflow(module: str | None = None) -> Any:
    name = "mlflow" if module is None else f"mlflow.{module}"
    return import_extra(name, "mlflow", "fferm.integrations.mlflow")
