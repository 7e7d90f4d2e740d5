"""From the plain values of a file back to the fields of an audit."""

import math
from collections.abc import Mapping
from typing import Any

from fferm.auditing.result import Asked, DivergenceValue
from fferm.errors import PersistenceError
from fferm.metrics import Absence, Gap

# Fields that are what they are.
PLAIN = ("n_rows", "notion", "divergence", "confidence", "unjudged")


def read_audit(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the audit that `Audit.to_dict` turned into plain values."""
    try:
        return _read(plain)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PersistenceError(
            f"These values make no audit ({type(error).__name__}: {error}). Expected "
            "what Audit.to_dict() returns."
        ) from error


def _read(plain: Mapping[str, Any]) -> dict[str, Any]:
    groups = {name: read_numbers(row) for name, row in plain["groups"].items()}
    # A file has null for undefined as for not measured; the groups tell which.
    is_soft = any(
        key.startswith("soft_rate_") for row in groups.values() for key in row
    )
    return {
        **{name: plain[name] for name in PLAIN},
        "accuracy": read_number(plain["accuracy"]),
        "classes": tuple(plain["classes"]),
        "violation": read_number(plain["violation"]),
        "interval": _interval(plain["interval"]),
        "bootstrap_interval": _interval(plain["bootstrap_interval"]),
        "soft_violation": read_number(plain["soft_violation"]) if is_soft else None,
        "soft_interval": _interval(plain["soft_interval"]),
        "gaps": tuple(
            Gap(**{**g, "gap": read_number(g["gap"])}) for g in plain["gaps"]
        ),
        "groups": groups,
        "absent": tuple(
            Absence(**{**absence, "groups": tuple(absence["groups"])})
            for absence in plain["absent"]
        ),
        "divergences": {
            name: DivergenceValue(
                read_number(value["hard"]),
                read_number(value["soft"]) if is_soft else None,
                read_number(value["share_of_largest"]),
            )
            for name, value in plain["divergences"].items()
        },
        "certificates": read_numbers(plain["certificates"]),
        "soft_certificates": read_numbers(plain["soft_certificates"]),
        "asked": _asked(plain["asked"]),
        "bands": {name: int(n) for name, n in plain.get("bands", {}).items()},
        "trained_bands": tuple(plain.get("trained_bands", ())),
    }


def _asked(plain: Mapping[str, Any]) -> Asked:
    lists = {name: tuple(plain[name]) for name in ("imports", "notes")}
    return Asked(**{**plain, **lists})


def read_number(value: Any) -> float:
    """Return a number of a file, where undefined is null."""
    return math.nan if value is None else float(value)


def read_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a file by their names."""
    return {name: read_number(value) for name, value in values.items()}


def _interval(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    low, high = value
    return read_number(low), read_number(high)
