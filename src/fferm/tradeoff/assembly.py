"""From records of single paths to a curve."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray
from fferm.auditing import Audit, RegressionAudit, read_any
from fferm.errors import PersistenceError
from fferm.estimators.base import FairEstimator
from fferm.persistence import load
from fferm.tradeoff.curve import TradeoffCurve
from fferm.tradeoff.journal import Journal, Recorded, read_folder
from fferm.tradeoff.keys import ByKey, Key, Made
from fferm.tradeoff.paths import Outcome, audit_rows
from fferm.tradeoff.splits import Rows, Split

AnyAudit = Audit | RegressionAudit | None
KEY = ["curve", "fairness_weight", "seed"]
MEASURES = ["accuracy", "violation", "soft_violation", "loss", "divergence"]
INTERVALS = ["accuracy_low", "accuracy_high", "violation_low", "violation_high"]
COLUMNS = [*KEY, "split", *MEASURES, "collapsed", "result", "seconds", *INTERVALS]
BASELINE = ["curve", "seed", "split", "thinning", "accuracy", "violation"]
NOT_NUMBERS = {"curve", "seed", "split", "collapsed", "result"}


@dataclass(frozen=True)
class Leg:
    """The records of one curve and seed, and how to get at models and audits."""

    recorded: Recorded
    model: Callable[[float], Callable[[], FairEstimator]]
    audit: Callable[[float], Callable[[], AnyAudit] | None]

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in a sweep."""
        return self.recorded.header["number"], self.recorded.header["seed"]


class MeasuredRows:
    """The test rows of a seed, held out when they are first asked for."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.rows, self.seed = rows, seed

    @cached_property
    def split(self) -> Split:
        """The rows."""
        return self.rows.for_seed(self.seed)["test"]

    def audit(self, model: FairEstimator) -> AnyAudit:
        """Return what a model does to each group of them."""
        return audit_rows(model, self.split)


def in_memory(outcome: Outcome, rows: Rows) -> Leg:
    """Return a leg whose models are at hand, and are audited when asked for."""
    test = MeasuredRows(rows, outcome.recorded.header["seed"])

    def audit(weight: float) -> Callable[[], AnyAudit]:
        return partial(test.audit, outcome.models[weight])

    return Leg(outcome.recorded, lambda weight: Made(outcome.models[weight]), audit)


def on_disk(recorded: Recorded, folder: Path) -> Leg:
    """Return a leg whose models and audits are read from a folder."""
    header = recorded.header
    journal = Journal(folder, header["curve"], header["seed"])

    def audit(weight: float) -> Callable[[], AnyAudit] | None:
        found = recorded.fits[weight].get("audit")
        return None if found is None else partial(read_any, found)

    return Leg(
        recorded,
        lambda weight: partial(load, journal.model_path(_number(header, weight))),
        audit,
    )


def load_curve(path: str | os.PathLike[str]) -> TradeoffCurve:
    """Return the curve of a folder of records."""
    folder = Path(path)
    found = read_folder(folder).values()
    legs = [on_disk(recorded, folder) for recorded in found if recorded.fits]
    if not legs:
        raise PersistenceError(
            f"{folder} holds no records of a sweep. Expected the folder that "
            "tradeoff_curve(..., records=...) wrote to."
        )
    return assemble(sorted(legs, key=lambda leg: leg.place))


def assemble(legs: Iterable[Leg]) -> TradeoffCurve:
    """Return the curve of all legs, in their order."""
    rows: list[dict[str, Any]] = []
    thinned: list[dict[str, Any]] = []
    models: dict[Key, Callable[[], FairEstimator]] = {}
    audits: dict[Key, Callable[[], AnyAudit]] = {}
    descriptions: dict[str, dict[str, str]] = {}
    for leg in legs:
        header, fits = leg.recorded.header, leg.recorded.fits
        about = {"curve": header["curve"], "seed": header["seed"]}
        descriptions[header["curve"]] = header["description"]
        for weight in sorted(fits):
            fit, key = fits[weight], Key(header["curve"], weight, header["seed"])
            here = {**about, "fairness_weight": weight}
            rows += [{**here, **row} for row in fit["measures"]]
            thinned += [{**about, **row} for row in fit.get("thinned", ())]
            models[key] = leg.model(weight)
            if (audit := leg.audit(weight)) is not None:
                audits[key] = audit
    return TradeoffCurve(
        _frame(rows, COLUMNS),
        ByKey(models),
        descriptions,
        _frame(thinned, BASELINE),
        ByKey(audits),
    )


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    further = dict.fromkeys(name for row in rows for name in row if name not in columns)
    return pd.DataFrame({name: _column(rows, name) for name in [*columns, *further]})


def _column(rows: list[dict[str, Any]], name: str) -> list[Any] | FloatArray:
    values = [row.get(name) for row in rows]
    if name in NOT_NUMBERS:
        return values
    # A file has null for an undefined number and "inf" for an infinite one.
    return np.array([np.nan if v is None else float(v) for v in values], np.float64)


def _number(header: dict[str, Any], weight: float) -> int:
    weights: list[float] = header["weights"]
    return weights.index(weight)
