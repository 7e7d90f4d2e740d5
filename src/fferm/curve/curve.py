"""The result of a sweep: records, fitted models, their front and the choice of one."""

import os
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
from scipy.stats import t as student

from fferm._typing import Table
from fferm.auditing import Audit, audit
from fferm.data.validate import OneOf, check_number, check_params
from fferm.errors import InvalidInputError, InvalidParameterError, PersistenceError
from fferm.metrics.intervals import CONFIDENCE as CERTIFIED
from fferm.metrics.intervals import two_sided, wilson_limits
from fferm.notions import MEASURES, Measure
from fferm.registry import kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fferm.curve.alternatives import Alternatives

T = TypeVar("T")
# The level of every interval of a curve.
CONFIDENCE = 0.95
# The share of rows that is held out if no test rows are passed.
TEST_SHARE = 0.25
POINT = ["curve", "fairness_weight"]
# By goal: the measure with a bound, 1 if it is an upper one, and what is best within.
GOALS = {
    "max_violation": ("violation", 1, "accuracy"),
    "min_accuracy": ("accuracy", -1, "violation"),
    "min_rate": ("lowest_rate", -1, "accuracy"),
    "min_group_accuracy": ("lowest_accuracy", -1, "violation"),
}


class Key(NamedTuple):
    """Which model of a sweep is meant."""

    curve: str
    fairness_weight: float
    seed: int


class LazyValues(UserDict[Key, T]):
    """Values by key; a `functools.partial` is called when it is first looked up.

    If there is one curve, ``(fairness_weight, seed)`` is enough of a key.
    """

    def __getitem__(self, key: tuple[object, ...]) -> T:
        """Return the value of a key, the same one every time."""
        complete = self._complete(key)
        value = self.data[complete]
        if isinstance(value, partial):
            value = self.data[complete] = value()
        return value

    def __contains__(self, key: object) -> bool:
        """Return whether there is a value, without computing it."""
        return isinstance(key, tuple) and self._complete(key) in self.data

    def _complete(self, key: tuple[object, ...]) -> Key:
        if len(key) == 2:
            curves = {known.curve for known in self.data}
            key = (*curves, *key) if len(curves) == 1 else key
        return Key(*key) if len(key) == 3 else key  # type: ignore[arg-type,return-value]


@dataclass(frozen=True)
class TradeoffCurve:
    """A sweep over fairness weights: records, and the model behind each.

    Attributes
    ----------
    records
        One row per model and split: ``curve`` (its name), ``fairness_weight``,
        ``seed``, ``split`` (``"train"`` or ``"test"``), ``accuracy``, ``violation``
        (of decisions), ``soft_violation`` (of probabilities), ``loss``
        (cross-entropy), ``divergence`` (of probabilities, as trained), ``collapsed``
        (one class for everyone), ``result``, the ends of 95 % intervals
        (``accuracy_low``, ``accuracy_high``, ``violation_low``, ``violation_high``),
        ``floor`` (what a perfectly fair model measures by chance),
        ``corrected_violation`` (without the part that noise adds), ``ratio`` (the
        lowest rate over the highest), ``deviation`` and ``seconds``; ``refined`` is 1
        where ``max_violation`` of `tradeoff_curve` added the weight. For a regressor
        ``accuracy`` is the share of variance explained, ``loss`` the mean squared
        error, and ``mean_gap`` and ``wasserstein`` stand in place of rates.
    models
        The fitted estimator of each ``(curve, fairness_weight, seed)``; if there is one
        curve, ``(fairness_weight, seed)`` is enough.
    descriptions
        What was compared, by the name of the curve: estimator, divergence, notion.
    baseline
        The random baseline: decisions of the model without a penalty are replaced by
        the most frequent class at random. Columns ``curve``, ``seed``, ``split``,
        ``thinning`` (the share replaced), expected ``accuracy`` and ``violation``.
    audits
        The audit of each model on the test rows, by the keys of ``models``.
    """

    records: pd.DataFrame
    models: Mapping[Key, Any]
    descriptions: Mapping[str, Mapping[str, str]]
    baseline: pd.DataFrame = field(default_factory=pd.DataFrame)
    audits: Mapping[Key, Audit | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Name the curve of records that were made by hand, without a name."""
        if "curve" not in self.records:
            columns = ["curve", *self.records.columns]
            named = self.records.assign(curve="")[columns]
            object.__setattr__(self, "records", named)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TradeoffCurve":
        """Return the curve of a folder of records, finished or not.

        Models are read from the folder when they are asked for.

        Parameters
        ----------
        path
            What was passed to `tradeoff_curve` as ``records``.
        """
        from fferm.curve.records import assemble, read_folder

        recorded = [each for each in read_folder(Path(path)) if each.fits]
        if not recorded:
            raise PersistenceError(
                f"{path} does not contain records of a sweep. Pass the folder that "
                "tradeoff_curve(..., records=...) wrote to."
            )
        recorded.sort(key=lambda each: (each.header["number"], each.header["seed"]))
        return assemble(recorded)

    @property
    def description(self) -> dict[str, str]:
        """What was compared; with several curves, every distinct value."""
        abouts = self.descriptions.values()
        return {
            name: "; ".join(dict.fromkeys(about.get(name, "") for about in abouts))
            for name in dict.fromkeys(name for about in abouts for name in about)
        }

    @property
    def curves(self) -> dict[str, Self]:
        """Each curve alone, by its name."""
        return {
            name: replace(
                self,
                records=_rows_of(self.records, name),
                models=_values_of(self.models, name),
                descriptions={name: self.descriptions.get(name, {})},
                baseline=_rows_of(self.baseline, name),
                audits=_values_of(self.audits, name),
            )
            for name in self.records["curve"].unique()
        }

    def with_models(
        self,
        models: Mapping[str, Any],
        X: Table,
        y: Table,
        *,
        sensitive_features: Table,
        sample_weight: Table = None,
    ) -> Self:
        """Return the same curve with other classifiers beside it, one point each.

        Parameters
        ----------
        models
            Fitted classifiers of any kind, such as `fferm.deploy.repair` returns, by
            the names of their points. Their fairness weight, which they need not have,
            is recorded as 1.
        X, y, sensitive_features, sample_weight
            The test rows of the curve.
        """
        rows, audits = [], {}
        passed = {"sensitive_features": sensitive_features}
        for name, model in models.items():
            if name in set(self.records["curve"]):
                raise InvalidParameterError(
                    f"{name!r} is a curve already. Give the model another name."
                )
            measured: Any = audit(
                model, X, y, **passed, sample_weight=sample_weight, n_bootstrap=0
            )
            audits[Key(name, 1.0, 0)] = measured
            rows.append(
                {
                    "curve": name,
                    "fairness_weight": 1.0,
                    "seed": 0,
                    "split": "test",
                    **_measures_of(measured),
                }
            )
        records = pd.concat([self.records, pd.DataFrame(rows)], ignore_index=True)
        kept: Any = {key: partial(self.models.__getitem__, key) for key in self.models}
        known: Any = {key: partial(self.audits.__getitem__, key) for key in self.audits}
        keys = dict(zip(audits, models.values(), strict=True))
        about = {name: {"estimator": kind_of(model)} for name, model in models.items()}
        return replace(
            self,
            records=records.astype({"collapsed": np.dtype(bool)}),
            models=LazyValues({**kept, **keys}),
            descriptions={**self.descriptions, **about},
            audits=LazyValues({**known, **audits}),
        )

    def pareto(self, split: str = "test") -> pd.DataFrame:
        """Return the records that no other beats in accuracy and violation both.

        Several seeds of one weight count as one record, their mean; several curves
        compete with each other.

        Parameters
        ----------
        split
            ``"train"`` or ``"test"``.
        """
        return pareto_front(usable_points(self.records, split))

    def bands(self) -> pd.DataFrame:
        r"""Return accuracy and violation of each point on test rows, with intervals.

        With one seed, ``*_low`` and ``*_high`` are the 95 % interval of its record, the
        sampling error of the test rows. With ``S`` seeds of standard deviation ``s``
        about their mean, an end is away from the mean by

        .. math:: \sqrt{t_{S-1}^2 \, s^2 / S + c \, h^2},

        where ``t`` is Student's quantile and ``h`` the largest distance from a record
        to that end of its own interval. The share ``c`` of the sampling variance of one
        test set stays, however many seeds there are: all of it if the test rows were
        given, the same for all seeds; a quarter, the share held out, if each seed held
        out its own part of the same rows. The low end of the violation takes all of it,
        because a violation is biased upwards on few rows, whatever their seed.

        Collapsed points are left out.
        """
        bands = usable_points(self.records, "test").set_index(POINT)
        test = self.records[self.records["split"] == "test"]
        rows = test.groupby(POINT)
        bands["n_seeds"] = rows.size().reindex(bands.index)
        quantile = student.ppf((1 + CONFIDENCE) / 2, bands["n_seeds"] - 1)
        about = [self.descriptions.get(curve, {}) for curve, _ in bands.index]
        is_held_out = np.array([each.get("test") == "held out" for each in about])
        share = np.where(is_held_out, TEST_SHARE, 1.0)
        # The explained variance may be below 0, and a gap of means has the unit of y.
        is_rate = "mean_gap" not in bands
        limits = {
            "accuracy": (0.0 if is_rate else -np.inf, 1.0),
            "violation": (0.0, 1.0 if is_rate else np.inf),
        }
        shown = [*POINT, "n_seeds", *limits]
        for name, (least, most) in limits.items():
            between = quantile * rows[name].sem().reindex(bands.index)  # NaN of one
            for end, sign in (("low", -1), ("high", 1)):
                shown.append(column := f"{name}_{end}")
                kept = 1.0 if column == "violation_low" else share
                distance = test.assign(distance=sign * (test[column] - test[name]))
                within = distance.groupby(POINT)["distance"].max().reindex(bands.index)
                half = np.sqrt(between**2 + kept * within**2)
                limit = np.clip((bands[name] + sign * half).to_numpy(), least, most)
                bands[column] = np.where(np.isnan(limit), bands[column], limit)
        return bands.reset_index()[shown]

    def choose(
        self,
        how: Literal["knee"] | None = None,
        *,
        max_violation: float | None = None,
        min_accuracy: float | None = None,
        min_rate: float | None = None,
        min_group_accuracy: float | None = None,
        measure: Measure = "difference",
        confidence: float | None = None,
        split: str = "test",
    ) -> Key:
        """Return the key of the best model within a bound; see `select`."""
        bounds = max_violation, min_accuracy, min_rate, min_group_accuracy
        asked = goals_asked(bounds)
        check_params({"measure": measure}, {"measure": OneOf(MEASURES)})
        if len(asked) + (how is not None) != 1 or how not in (None, "knee"):
            raise InvalidParameterError(
                f"select needs exactly one of 'knee', {', '.join(GOALS)}; got "
                f"{', '.join(map(repr, (how, *bounds)))}."
            )
        rows = usable_points(self.records, split)
        if rows.empty:
            raise InvalidInputError(
                "Every model of the curve predicts one class for everyone or cannot be "
                "judged. Lower the fairness weights, or check the groups."
            )
        if how is not None:
            front = pareto_front(rows)
            points = front[["accuracy", "violation"]].to_numpy()
            span = np.ptp(points, axis=0)
            scaled = (points - points.min(axis=0)) / np.where(span > 0, span, np.inf)
            # The fairest of equals.
            best = front.iloc[int((scaled[:, 0] - scaled[:, 1]).argmax())]
        elif max_violation is not None and confidence is not None:
            if measure != "difference":
                raise InvalidParameterError(
                    f"measure={measure!r} needs confidence=None in select. Fit a model "
                    "with this measure and max_violation to have it tested."
                )
            return self._best_certified(rows, max_violation, confidence, split)
        else:
            ((goal, bound),) = asked.items()
            rows = self._measured(rows, goal, split, measure)
            best = _best_within(rows, goal, bound)
        return Key(best["curve"], float(best["fairness_weight"]), int(best["seed"]))

    def select(
        self,
        how: Literal["knee"] | None = None,
        *,
        max_violation: float | None = None,
        min_accuracy: float | None = None,
        min_rate: float | None = None,
        min_group_accuracy: float | None = None,
        measure: Measure = "difference",
        confidence: float | None = None,
        split: str = "test",
    ) -> Any:
        """Return the best fitted model within a bound.

        A model looks better on the split it was chosen on than it is; audit it on other
        rows for an unbiased figure. With several seeds the weight is chosen by the
        means over them, and the model is that of the first seed.

        Parameters
        ----------
        how
            ``"knee"``: the point of the front farthest above the line between its
            ends, with both measures scaled to the range of the front. Beyond it more
            fairness costs more than it gains.
        max_violation
            Return the most accurate model with at most this violation.
        min_accuracy
            Return the fairest model with at least this accuracy.
        min_rate
            Return the most accurate model of which the lowest selection rate of a
            group, in the larger of two classes, is at least this.
        min_group_accuracy
            Return the fairest model with at least this accuracy in every group.
        measure
            With ``max_violation``: ``"ratio"`` bounds one minus the lowest rate of a
            group over the highest, so that 0.2 is the four-fifths rule, and
            ``"deviation"`` the largest distance from the overall rate, relative to it.
        confidence
            With ``max_violation``: the test rows have to show that the model keeps it.
            Models of the first seed are tested from the fairest on, as it is on the
            training rows, until one fails, and several curves share the risk. With this
            probability the model keeps the bound on rows like these, provided that it
            was chosen before anybody looked at them; so None is the default.
        split
            ``"train"`` or ``"test"``.
        """
        bounds = max_violation, min_accuracy, min_rate, min_group_accuracy
        options: Any = dict(zip(GOALS, bounds, strict=True))
        options |= {"measure": measure, "confidence": confidence}
        key = self.choose(how, **options, split=split)
        return self.models[key]

    def alternatives(
        self,
        *,
        max_violation: float | None = None,
        min_accuracy: float | None = None,
        min_rate: float | None = None,
        min_group_accuracy: float | None = None,
        max_loss: float | None = None,
        confidence: float | None = None,
        provenance: Mapping[str, object] | None = None,
    ) -> "Alternatives":
        """Return the curve as a documented search for less discriminatory models.

        What was tried, what each model costs, and why one was taken; not legal advice.

        Parameters
        ----------
        max_violation, min_accuracy, min_rate, min_group_accuracy, confidence
            The goal, as in `select`.
        max_loss
            In place of a goal: take the fairest model whose accuracy is at most this
            much below that of the model without a fairness term.
        provenance
            Where the rows and the models come from, by what it is called.
        """
        from fferm.curve.alternatives import find_alternatives

        bounds = max_violation, min_accuracy, min_rate, min_group_accuracy
        return find_alternatives(self, bounds, max_loss, confidence, provenance)

    def _measured(
        self, rows: pd.DataFrame, goal: str, split: str, measure: Measure
    ) -> pd.DataFrame:
        # Points with the measure of a goal; that of the worst group is in the audits.
        name = GOALS[goal][0]
        if name in rows and measure == "difference":
            return rows
        if name in rows:
            if measure not in rows:
                raise InvalidParameterError(
                    f"measure={measure!r} needs a curve of classifiers, whose records "
                    f"have a column {measure!r}."
                )
            value = rows[measure]
            return rows.assign(violation=1 - value if measure == "ratio" else value)
        keys = [
            Key(curve, float(weight), int(seed))
            for curve, weight, seed in rows[[*POINT, "seed"]].to_numpy().tolist()
        ]
        audits: list[Any] = [self.audits.get(key) for key in keys]
        if split != "test" or not all(hasattr(each, "classes") for each in audits):
            raise InvalidParameterError(
                f"{goal} needs split='test' and the audits of classifiers on a curve "
                "that was computed or loaded."
            )
        values = [lowest_of(goal, each.frame, each.classes) for each in audits]
        return rows.assign(**{name: values})

    def _best_certified(
        self, points: pd.DataFrame, bound: float, confidence: float, split: str
    ) -> Key:
        # The most accurate model that passes a test on the test rows.
        check_params({"confidence": confidence}, {"confidence": CERTIFIED})
        check_number("max_violation", bound)
        if split != "test" or not self.audits:
            raise InvalidParameterError(
                "confidence needs split='test' and the audits of a curve that was "
                "computed or loaded; training rows cannot test their own model."
            )
        records = self.records
        if "refined" in records:  # the test rows had a say in these weights
            records = records[records["refined"].isna()]
        curves, passed = list(records["curve"].unique()), []
        level = 1 - (1 - confidence) / len(curves)
        for curve in curves:
            rows = records[records["curve"] == curve]
            train = rows[
                (rows["split"] == "train") & (rows["seed"] == rows["seed"].iloc[0])
            ]
            if train.empty:  # a point of one model needs no order
                train = rows[rows["split"] == "test"]
            train = train[~train["collapsed"] & train["violation"].notna()]
            train = train.sort_values("fairness_weight", ascending=False, kind="stable")
            # From the fairest model to the most accurate one.
            for row in train.iloc[int(train["violation"].argmin()) :].itertuples():
                key = Key(curve, float(row.fairness_weight), int(row.seed))
                audit = self.audits[key]
                if audit is None or not audit.passes(bound, confidence=level):
                    break
                passed.append(key)
        accuracy = {
            (curve, weight): value
            for curve, weight, value in points[[*POINT, "accuracy"]].to_numpy().tolist()
        }
        passed = [key for key in passed if key[:2] in accuracy]
        if not passed:
            raise InvalidInputError(
                f"No model of the curve passes the test of max_violation={bound:g} at "
                f"confidence={confidence:g}. Loosen the bound, or test on more rows."
            )
        return max(passed, key=lambda key: accuracy[key[:2]])

    def hypervolume(
        self, split: str = "test", reference: tuple[float, float] = (0.0, 1.0)
    ) -> float:
        """Return the area that the curve dominates in accuracy x (1 - violation).

        Parameters
        ----------
        split
            ``"train"`` or ``"test"``.
        reference
            The worst accuracy and the worst violation that count.
        """
        if np.shape(reference) != (2,):
            raise InvalidParameterError(
                "reference must be the worst accuracy and the worst violation that "
                f"count, such as (0.0, 1.0); got {reference!r}."
            )
        least, most = reference
        front = self.pareto(split)
        front = front[(front["accuracy"] > least) & (front["violation"] < most)]
        edges = np.append(front["violation"], most)
        return float(np.sum((front["accuracy"] - least) * np.diff(edges)))

    def plot(self, ax: "Axes | None" = None, *, split: str = "test") -> "Axes":
        """Draw accuracy against violation and return the axes (needs matplotlib).

        Parameters
        ----------
        ax
            Where to draw; a new figure by default.
        split
            ``"train"`` or ``"test"``.
        """
        from fferm.report import plot_curve

        return plot_curve(self, ax, split=split)

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
        provenance: Mapping[str, object] | None = None,
    ) -> None:
        """Write the curve as one self-contained page on which points can be picked.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the data here.
        max_violation
            The page shows the most accurate model within this bound first; without a
            bound, the knee.
        provenance
            Where the rows and the models come from, by what it is called.
        """
        from fferm.report import write_curve

        write_curve(
            self,
            path,
            title=title,
            max_violation=max_violation,
            provenance=provenance,
        )

    def __repr__(self) -> str:
        """Return one line: how many models of what, and the range they span."""
        rows = self.records[self.records["split"] == "test"]
        low, high = rows[["violation", "accuracy"]].agg(["min", "max"]).to_numpy()
        named = self.description.get("estimator")
        return (
            f"TradeoffCurve({len(self.models)} models"
            f"{f' of {named}' if named else ''}, test violation {low[0]:.4f} to "
            f"{high[0]:.4f}, accuracy {low[1]:.4f} to {high[1]:.4f})"
        )

    def _repr_html_(self) -> str:
        """Return the test records as a table, for notebooks."""
        rows = self.records[self.records["split"] == "test"]
        shown = ["fairness_weight", "seed", "accuracy", "violation", "soft_violation"]
        if rows["curve"].nunique() > 1:
            shown = ["curve", *shown]
        return rows[shown].to_html(index=False, float_format=lambda x: f"{x:.4g}")


def usable_points(records: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the means over seeds of a split, without collapsed or undefined points.

    Parameters
    ----------
    records
        The records of a curve.
    split
        ``"train"`` or ``"test"``.
    """
    if split not in ("train", "test"):
        raise InvalidParameterError(f"split must be 'train' or 'test'; got {split!r}.")
    rows = records[records["split"] == split]
    # One class for everyone is fair and useless, so it is never chosen.
    is_usable = ~rows["collapsed"] & rows["violation"].notna()
    by_point = is_usable.groupby([rows[name] for name in POINT]).transform("all")
    numbers = rows.select_dtypes("number").columns.difference([*POINT, "seed"])
    columns = rows.columns.drop(POINT)
    how = dict.fromkeys(columns, "first") | dict.fromkeys(numbers, "mean")
    points = rows[by_point].groupby(POINT, as_index=False, sort=False).agg(how)
    return points[rows.columns]


def pareto_front(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that no other beats, from the fairest to the most accurate."""
    order = ["violation", "accuracy"]
    rows = points.sort_values(order, ascending=[True, False], kind="stable")
    best_before = rows["accuracy"].cummax().shift(fill_value=-np.inf)
    return rows[rows["accuracy"] > best_before].reset_index(drop=True)


def _measures_of(measured: Any) -> dict[str, Any]:
    # The audit of a classifier as a record.
    shares = measured.frame.filter(regex="^selection_rate_")
    size = measured.frame["size"].sum()
    accuracy = np.array(measured.accuracy), np.array(size)
    ends = wilson_limits(*accuracy, two_sided(measured.confidence))
    divergence = measured.divergences[measured.divergence]
    return {
        "accuracy": measured.accuracy,
        "violation": measured.violation,
        "soft_violation": measured.soft_violation,
        "divergence": divergence.soft,
        "collapsed": bool((shares == 1).all().any()),
        "accuracy_low": float(ends[0]),
        "accuracy_high": float(ends[1]),
        "violation_low": measured.interval[0],
        "violation_high": measured.interval[1],
        "floor": measured.floor,
        "corrected_violation": measured.corrected,
        "ratio": measured.ratio,
    }


def _rows_of(frame: pd.DataFrame, curve: str) -> pd.DataFrame:
    rows = frame if frame.empty else frame[frame["curve"] == curve]
    return rows.reset_index(drop=True)


def _values_of(values: Mapping[Key, T], curve: str) -> Mapping[Key, T]:
    keys = [key for key in values if key.curve == curve]
    lazy: Any = {key: partial(values.__getitem__, key) for key in keys}
    return LazyValues(lazy)


def goals_asked(bounds: Sequence[float | None]) -> dict[str, float]:
    """Return the bounds that are asked for, by their goals."""
    pairs = zip(GOALS, bounds, strict=True)
    return {goal: bound for goal, bound in pairs if bound is not None}


def lowest_of(goal: str, groups: pd.DataFrame, classes: Sequence[object]) -> float:
    """Return the lowest rate or accuracy of a group, of what is known by group."""
    if goal == "min_rate" and len(classes) != 2:
        raise InvalidParameterError(
            f"min_rate needs two classes, of which the larger is selected; got "
            f"{len(classes)}."
        )
    column = f"selection_rate_{classes[-1]}" if goal == "min_rate" else "accuracy"
    return float(groups[column].min())


def _best_within(rows: pd.DataFrame, name: str, bound: float | None) -> Any:
    # The best point within a bound, by the measure that is not bounded.
    bound = check_number(name, bound)
    bounded, sign, other = GOALS[name]
    within = rows[sign * rows[bounded] <= sign * bound]
    if within.empty:
        closest = rows.iloc[int((sign * rows[bounded]).argmin())]
        raise InvalidInputError(
            f"No model of the curve reaches {bounded} {bound:g}; the closest has "
            f"{closest[bounded]:.4f} at fairness_weight="
            f"{closest['fairness_weight']:g}. Add weights, or loosen the bound."
        )
    order = [other == "violation", sign > 0]
    return within.sort_values([other, bounded], ascending=order, kind="stable").iloc[0]
