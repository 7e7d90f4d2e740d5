"""The search for less discriminatory alternatives that a curve documents.

What was tried, what each model costs against the one without a fairness term, which one
was taken, and why the others were not.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import fferm
from fferm.auditing.base import json_ready
from fferm.curve.curve import GOALS, POINT, Key, TradeoffCurve, goals_asked
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidInputError, InvalidParameterError

DISCLAIMER = (
    "This page is not legal advice. It documents one search, over these models and on "
    "these rows; other data, features and methods may give other alternatives."
)
# What a bound is called in a sentence.
WORDS = {
    "max_violation": "the most accurate model with a violation of at most",
    "min_accuracy": "the fairest model with an accuracy of at least",
    "min_rate": "the most accurate model with a selection rate in every group of at "
    "least",
    "min_group_accuracy": "the fairest model with an accuracy in every group of at "
    "least",
}
# What a model is called whose other measure is the worse one.
WORSE = {"accuracy": "less accurate", "violation": "less fair"}


@dataclass(frozen=True)
class Alternatives:
    """A documented search.

    Attributes
    ----------
    curve
        The models that were tried.
    goal
        What was asked for, by name.
    models
        One row per curve and fairness weight, means over seeds on test rows:
        ``accuracy`` and ``violation`` with the ends of their intervals, ``ratio`` (the
        lowest selection rate over the highest), ``accuracy_lost`` and
        ``violation_reduced`` against the model that all are compared with, and
        ``standing``: why it was taken or not.
    compared_with, taken
        The keys of two models; nothing is taken if none keeps the goal.
    reason
        Why, in words.
    provenance
        Where the rows and the models come from, by what it is called.
    """

    curve: TradeoffCurve
    goal: dict[str, float]
    models: pd.DataFrame
    compared_with: Key
    taken: Key | None
    reason: str
    provenance: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON: undefined is None."""
        plain = {
            "format": "fferm alternatives 1",
            "disclaimer": DISCLAIMER,
            "goal": self.goal,
            "tried": {k: dict(v) for k, v in self.curve.descriptions.items()},
            "compared_with": self.compared_with,
            "taken": self.taken,
            "reason": self.reason,
            "models": self.models.to_dict("records"),
            "provenance": self.provenance,
            "fferm": fferm.__version__,
        }
        return json_ready(plain)  # type: ignore[no-any-return]

    def to_html(
        self, path: str | os.PathLike[str], *, title: str | None = None
    ) -> None:
        """Write the search as one page.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page.
        """
        from fferm.report import write_alternatives

        write_alternatives(self, path, title=title)


def find_alternatives(
    curve: TradeoffCurve,
    bounds: tuple[float | None, ...],
    max_loss: float | None,
    confidence: float | None,
    provenance: Mapping[str, object] | None,
) -> Alternatives:
    """Return the search of a curve; the parameters are those of the method."""
    models = _measures(curve)
    plain = models[models["fairness_weight"] == 0]
    base = (plain if len(plain) else models).sort_values("accuracy").iloc[-1]
    goal = goals_asked(bounds)
    if max_loss is not None:
        check_params({"max_loss": max_loss}, {"max_loss": Number()})
        if goal:
            raise InvalidParameterError(
                f"Ask for max_loss or for {next(iter(goal))}; got both."
            )
        goal = {"min_accuracy": float(base["accuracy"]) - max_loss}
    models["accuracy_lost"] = base["accuracy"] - models["accuracy"]
    models["violation_reduced"] = base["violation"] - models["violation"]
    taken, options = None, {**goal, "confidence": confidence}
    try:
        taken = curve.choose(**options)  # type: ignore[arg-type]
    except InvalidInputError as error:
        reason = f"None was taken. {error}"
    ((name, bound),) = goal.items()  # choose refuses none and several
    models = curve._measured(models, name, "test", "difference")
    if taken is not None:
        reason = _reason(models, taken, name, bound)
    front = set(curve.pareto()[POINT].itertuples(index=False, name=None))
    is_base = _is_point(models, *base[POINT])
    models["standing"] = [
        _standing(row, is_first, taken, front, name, bound, confidence is not None)
        for is_first, (_, row) in zip(is_base, models.iterrows(), strict=True)
    ]
    return Alternatives(
        curve=curve,
        goal=goal | ({} if max_loss is None else {"max_loss": max_loss}),
        models=models,
        compared_with=Key(
            base["curve"], float(base["fairness_weight"]), int(base["seed"])
        ),
        taken=taken,
        reason=reason,
        provenance={str(k): str(v) for k, v in (provenance or {}).items()},
    )


def _measures(curve: TradeoffCurve) -> pd.DataFrame:
    test = curve.records[curve.records["split"] == "test"]
    models = (
        test.groupby(POINT, sort=False)
        .agg(
            seed=("seed", "first"),
            n_seeds=("seed", "size"),
            accuracy=("accuracy", "mean"),
            violation=("violation", "mean"),
            collapsed=("collapsed", "any"),
        )
        .reset_index()
    )
    ends = [
        f"{name}_{end}" for name in ("accuracy", "violation") for end in ("low", "high")
    ]
    models = models.merge(curve.bands()[[*POINT, *ends]], how="left", on=POINT)
    keys = [Key(*row) for row in models[[*POINT, "seed"]].itertuples(index=False)]
    audits = [curve.audits.get(key) for key in keys]
    models["ratio"] = [getattr(audit, "ratio", math.nan) for audit in audits]
    return models


def _standing(
    row: "pd.Series[Any]",
    is_base: bool,
    taken: Key | None,
    front: set[tuple[Any, ...]],
    name: str,
    bound: float,
    is_tested: bool,
) -> str:
    # Why a model was taken, or not.
    place = row["curve"], row["fairness_weight"]
    measure, sign, other = GOALS[name]
    words = ["all are compared with it"] if is_base else []
    if taken is not None and place == taken[:2]:
        words.append("taken")
    elif row["collapsed"]:
        words.append("not usable: one prediction for everyone")
    elif np.isnan(row["violation"]):
        words.append("cannot be judged")
    elif sign * row[measure] > sign * bound:
        words.append(f"beyond the goal: {measure} {row[measure]:.4f}")
    elif place not in front:
        words.append("another model is at least as accurate and fairer")
    elif taken is not None and is_tested:
        words.append("keeps the goal by its value; not the one that passed the test")
    elif taken is not None:
        words.append(f"keeps the goal; {WORSE[other]} than the model taken")
    return "; ".join(words) or "not taken"


def _is_point(models: pd.DataFrame, curve: str, weight: float) -> "pd.Series[bool]":
    # Column by column: pandas hides warnings of other threads where it aligns tables.
    return (models["curve"] == curve) & (models["fairness_weight"] == weight)


def _reason(models: pd.DataFrame, taken: Key, name: str, bound: float) -> str:
    row = models[_is_point(models, *taken[:2])].iloc[0]
    return (
        f"Of {len(models)} models, {row['curve']} with fairness weight "
        f"{row['fairness_weight']:g} is {WORDS[name]} {bound:.4g} on test rows. "
        f"Against the model that all are compared with, accuracy changes by "
        f"{-row['accuracy_lost']:+.4f} to {row['accuracy']:.4f}, and the violation by "
        f"{-row['violation_reduced']:+.4g} to {row['violation']:.4g}."
    )
