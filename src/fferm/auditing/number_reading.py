"""From the plain values of a file back to the fields of a regressor's audit."""

from collections.abc import Mapping
from typing import Any

from fferm.auditing.number_parts import (
    AskedOfNumbers,
    ColumnAudit,
    Densities,
    Fan,
    Measured,
)
from fferm.auditing.number_result import KIND, RegressionAudit
from fferm.auditing.reading import read_number, read_numbers
from fferm.auditing.result import Audit


def read_any(plain: Mapping[str, Any]) -> Audit | RegressionAudit:
    """Return the audit, of a classifier or a regressor, of plain values."""
    kind = RegressionAudit if plain.get("kind") == KIND else Audit
    return kind.from_dict(plain)


def read_regression_audit(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that `RegressionAudit.to_dict` turned into plain values."""
    asked = dict(plain["asked"])
    if not isinstance(asked["continuous"], str):
        asked["continuous"] = tuple(asked["continuous"])
    for name in ("imports", "notes"):
        asked[name] = tuple(asked.get(name, ()))
    return {
        "n_rows": int(plain["n_rows"]),
        "mse": read_number(plain["mse"]),
        "explained": read_number(plain["explained"]),
        "metric": str(plain["metric"]),
        "confidence": float(plain["confidence"]),
        "columns": {name: _column(part) for name, part in plain["columns"].items()},
        "asked": AskedOfNumbers(**asked),
        "notion": str(plain.get("notion", "demographic_parity")),
        "n_uncontrolled": int(plain.get("n_uncontrolled", 0)),
    }


def _column(plain: Mapping[str, Any]) -> ColumnAudit:
    densities, fan = plain["densities"], plain["fan"]
    return ColumnAudit(
        groups={name: read_numbers(row) for name, row in plain["groups"].items()},
        measures={
            name: Measured(**{**found, "value": read_number(found["value"])})
            for name, found in plain["measures"].items()
        },
        densities=Densities(
            tuple(map(float, densities["at"])),
            {
                name: tuple(map(read_number, values))
                for name, values in densities["by_group"].items()
            },
        ),
        fan=None
        if fan is None
        else Fan(**{name: tuple(map(read_number, fan[name])) for name in fan}),
        information_bias=plain["information_bias"],
        n_missing=int(plain["n_missing"]),
        is_joint=bool(plain["is_joint"]),
        has_trained_bands=bool(plain.get("has_trained_bands", False)),
        strata={
            name: read_numbers(row) for name, row in plain.get("strata", {}).items()
        },
        absent=tuple(plain.get("absent", ())),
    )
