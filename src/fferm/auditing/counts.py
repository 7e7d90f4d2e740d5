"""Audits where the rows are: an engine counts them, and the counts are audited.

An audit of decisions needs one pass: how many rows there are of each kind, that is of
each label, decision and group, with their weights and the moments of probabilities. The
kinds are then audited by the code that audits rows, and give the same numbers.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import narwhals as nw
import numpy as np
import pandas as pd

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.base import Audit
from fferm.auditing.classification import ClassificationAudit, audit
from fferm.auditing.predictions import (
    Decisions,
    Numbers,
    label_array,
    make_probabilities,
    sort_labels,
)
from fferm.data.validate import SUM_TOLERANCE, read_array
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    warn_user,
)
from fferm.metrics.tabulator import Tabulator
from fferm.notions import ConditionalParity
from fferm.registry import close_name

# With more kinds of rows than this, a column identifies rows, or holds quantities.
MOST_KINDS = 1_000_000
# Rows of predicted numbers that are read; of more, every so many in their order are.
MOST_NUMBERS = 2_000_000
Names = Sequence[str] | str | None


@dataclass(frozen=True, eq=False)
class AuditCounts:
    """Rows that are alike in label, decision and groups, counted.

    Counts of parts of the data, made anywhere, add up to those of all of it.

    Attributes
    ----------
    kinds
        One row per kind: its label and decision (``y_true``, ``y_pred``), the control
        and sensitive columns, the number of rows ``n``, their weight ``w`` and squared
        weight ``ww``, and weighted sums of probabilities and of their products.
    sensitive
        Names of the sensitive columns.
    control
        Name of the control column.
    n_classes
        Number of columns of probabilities; 0 without.
    is_weighted
        Whether rows have weights.

    Examples
    --------
    >>> from fferm import audit
    >>> rows = pd.DataFrame({"y": [0, 1] * 9, "d": [0, 1] * 9, "sex": [*"aabbab"] * 3})
    >>> names = {"y_true": "y", "y_pred": "d", "sensitive": ["sex"]}
    >>> counts = AuditCounts.read(rows[:9], **names)
    >>> counts = counts.merge(AuditCounts.read(rows[9:], **names))
    >>> audit(frame=counts).n_rows
    18
    """

    kinds: pd.DataFrame
    sensitive: tuple[str, ...]
    control: str | None = None
    n_classes: int = 0
    is_weighted: bool = False

    @classmethod
    def read(
        cls,
        frame: Any,
        *,
        y_true: str | None = None,
        y_pred: str | None = None,
        y_prob: Names = None,
        sensitive: Names = None,
        control: str | None = None,
        weight: str | None = None,
    ) -> "AuditCounts":
        """Return the counts of a frame, made by its engine in one pass.

        Parameters
        ----------
        frame
            Any frame that narwhals reads, lazy ones and batches alike.
        y_true, y_pred, y_prob, sensitive, control, weight
            Names of columns, as in `fferm.audit`.
        """
        names = y_true, y_pred, y_prob, sensitive, control, weight
        return _Columns.of(frame, *names).count()

    def merge(self, other: "AuditCounts") -> "AuditCounts":
        """Return the counts of both parts of the data."""
        if list(self.kinds) != list(other.kinds) or self.sensitive != other.sensitive:
            raise InvalidInputError(
                "Counts add up if they are of the same columns; got "
                f"{', '.join(map(str, self.kinds.columns))} and "
                f"{', '.join(map(str, other.kinds.columns))}."
            )
        both = pd.concat([self.kinds, other.kinds])
        keys = list(both.columns[: list(both.columns).index("n")])
        kinds = both.groupby(keys, dropna=False, sort=False).sum().reset_index()
        return replace(self, kinds=kinds)

    @property
    def n(self) -> IntArray:
        """(n_kinds,) numbers of rows."""
        return self.kinds["n"].to_numpy(np.int64)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.n.sum())

    @property
    def rows(self) -> tuple[Any, Table, Table, Table, FloatArray]:
        """A model of the kinds, their features, labels, groups and weights."""
        kinds = self.kinds
        X = kinds[[] if self.control is None else ["control"]]
        y, decided = kinds.get("y_true"), kinds["y_pred"]
        model = Decisions(read_array(decided, "y_pred"), (), counts=self)
        if self.n_classes:
            is_coded = "is_coded" in kinds
            classes = sort_labels(y, None if is_coded else decided)
            total = kinds["w"].to_numpy()[:, None]
            sums = kinds[[f"p{j}" for j in range(self.n_classes)]].to_numpy()
            even = np.full_like(sums, 1 / self.n_classes)
            prob = np.divide(sums, total, where=total > 0, out=even)
            prob = make_probabilities(prob, classes)
            if is_coded:
                code = kinds["y_pred"].to_numpy(np.int64)
                model.decided = label_array(classes)[code]
            model.classes_, model.prob = classes, prob
        groups = {name: kinds[f"s{a}"] for a, name in enumerate(self.sensitive)}
        X = X.rename(columns={"control": self.control})
        return model, X, y, groups, kinds["w"].to_numpy()

    def add_squares(self, tabulator: Tabulator) -> Tabulator:
        """Return a tabulator of the kinds that knows their squared weights."""
        rows, total = tabulator.rows, self.kinds["w"].to_numpy()
        scale = float(rows.weight.max() / total.max()) ** 2  # a power of two
        soft = None
        if self.n_classes:
            c = range(self.n_classes)
            names = [f"pp{min(i, j)}_{max(i, j)}" for i in c for j in c]
            shape = len(total), self.n_classes, self.n_classes
            soft = self.kinds[names].to_numpy().reshape(shape) * scale
        square = self.kinds["ww"].to_numpy() * scale
        return replace(tabulator, rows=replace(rows, square=square, soft_square=soft))


def audit_frame(
    frame: Any,
    names: tuple[Any, ...],
    passed: tuple[Table, ...],
    options: dict[str, Any],
) -> Audit:
    """Return the audit of a frame by its engine, or of `AuditCounts`.

    ``names`` are those of columns, and ``passed`` what belongs to an audit of rows.
    """
    is_counted = isinstance(frame, AuditCounts)
    extra = (*passed, *names) if is_counted else passed
    if any(each is not None for each in extra):
        raise InvalidParameterError(
            "audit(frame=...) takes names of columns (y_true, y_pred, y_prob, "
            "sensitive, control, weight), and none with AuditCounts; got other rows or "
            "names too. Leave them out."
        )
    control = frame.control if is_counted else names[4]
    if control is not None and options["notion"] is None:
        options["notion"] = ConditionalParity(control)
    if not is_counted:
        columns = _Columns.of(frame, *names)
        if columns.is_numeric():
            model, X, y, groups, weight = columns.numbers()
            kept = {"sensitive_features": groups, "sample_weight": weight}
            return audit(model, X, y, **kept, **options)
        frame = columns.count()
    model, X, y, groups, weight = frame.rows
    kept = {"sensitive_features": groups, "sample_weight": weight}
    result = cast(ClassificationAudit, audit(model, X, y, **kept, **options))
    return replace(
        result,
        n_rows=frame.n_rows,
        spec=replace(result.spec, is_weighted=frame.is_weighted),
        source=(frame, options),
        people=None,  # those behind the result are kinds of rows
    )


@dataclass(frozen=True)
class _Columns:
    # The columns of a frame that an audit reads, by their part in it.
    frame: Any
    keys: dict[str, str]
    prob: tuple[str, ...]
    weight: str | None
    sensitive: tuple[str, ...]

    @classmethod
    def of(
        cls,
        frame: Any,
        y_true: str | None,
        y_pred: str | None,
        y_prob: Names,
        sensitive: Names,
        control: str | None,
        weight: str | None,
    ) -> "_Columns":
        try:
            lazy = nw.from_native(frame).lazy()
        except TypeError as error:
            raise InvalidInputError(
                "frame must be a lazy frame that narwhals reads, such as a relation of "
                f"DuckDB, or AuditCounts; got {type(frame).__name__}."
            ) from error
        groups = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive or ())
        prob = (y_prob,) if isinstance(y_prob, str) else tuple(y_prob or ())
        if not groups or (y_pred is None and not prob):
            raise InvalidInputError(
                "audit(frame=...) needs the names of columns: sensitive=[...], and "
                "y_pred='...' or y_prob='...'."
            )
        named = {"y_true": y_true, "y_pred": y_pred, "control": control}
        keys = {part: name for part, name in named.items() if name is not None}
        keys |= {f"s{a}": name for a, name in enumerate(groups)}
        known = lazy.collect_schema().names()
        for name in (*keys.values(), *prob, *([] if weight is None else [weight])):
            if name not in known:
                close = close_name(str(name), known)
                hint = f" Did you mean {close!r}?" if close else ""
                raise InvalidInputError(
                    f"The frame has no column {name!r}.{hint} Columns: "
                    f"{', '.join(known)}."
                )
        return cls(lazy, keys, prob, weight, groups)

    def is_numeric(self) -> bool:
        """Return whether labels or predictions are numbers with fractions."""
        schema = self.frame.collect_schema()
        names = [self.keys[part] for part in ("y_true", "y_pred") if part in self.keys]
        names = [n for n in names if schema[n].is_float() or schema[n].is_decimal()]
        if self.prob or not names:
            return False
        fractions = {f"x{i}": nw.col(n) % 1 for i, n in enumerate(names)}
        most = self.frame.select(**fractions).select(nw.all().max())
        return bool(np.any(most.collect().to_pandas().to_numpy(np.float64) > 0))

    def numbers(self) -> tuple[Any, ...]:
        """Return predicted numbers, as a model of their rows.

        Of many rows the engine sorts those of each group by prediction and keeps every
        so many. A group's distribution function is then right to within that many rows.
        """
        frame, keys = self.select(), list(self.keys)
        n = int(frame.select(n=nw.len()).collect().to_pandas()["n"].iloc[0])
        step = -(-n // MOST_NUMBERS)
        if step > 1:
            cell = [key for key in keys if key not in ("y_true", "y_pred")]
            rank = nw.col("y_pred").cum_count().over(*cell, order_by="y_pred")
            try:
                frame = frame.filter(rank % step == (step + 1) // 2)
            except NotImplementedError as error:
                raise InvalidInputError(
                    f"The frame has {n} rows of predicted numbers, and its engine does "
                    f"not sort within groups ({error}). Pass at most {MOST_NUMBERS} "
                    "rows, or a frame of DuckDB or Polars."
                ) from error
            warn_user(
                f"The frame has {n} rows. In every group each {step}th in the order of "
                "the prediction is audited; intervals are those of so many rows.",
                DataFairnessWarning,
            )
        rows = frame.collect().to_pandas()
        groups = {name: rows[f"s{a}"] for a, name in enumerate(self.sensitive)}
        model = Numbers(rows["y_pred"].to_numpy(np.float64))
        X = rows.filter(["control"]).rename(
            columns={"control": self.keys.get("control")}
        )
        return model, X, rows.get("y_true"), groups, rows.get("w")

    def select(self) -> Any:
        """Return a frame of the columns by their part."""
        parts = {part: nw.col(name) for part, name in self.keys.items()}
        numbers = {f"p{j}": name for j, name in enumerate(self.prob)}
        if self.weight is not None:
            numbers["w"] = self.weight
        parts |= {part: nw.col(n).cast(nw.Float64) for part, n in numbers.items()}
        return self.frame.select(**parts)

    def count(self) -> AuditCounts:
        """Return the counts of each kind."""
        frame, keys = self.select(), list(self.keys)
        if len(self.prob) == 1:
            frame = frame.with_columns(p1=nw.col("p0")).with_columns(
                p0=1 - nw.col("p1")
            )
        n_classes = len(self.prob) + (len(self.prob) == 1)
        prob = [nw.col(f"p{j}") for j in range(n_classes)]
        weight = nw.col("w") if self.weight else nw.lit(1.0)
        is_good = (weight >= 0) & (weight <= np.finfo(float).max)
        made: dict[str, Any] = {}
        if self.weight:
            made |= {"is_counted": weight > 0, "ww": weight * weight}
            keys.append("is_counted")
        if prob and "y_pred" not in keys:
            # The first of the most probable classes, as argmax has it.
            decision: Any = n_classes - 1
            for j in reversed(range(n_classes - 1)):
                is_most = functools.reduce(
                    operator.and_, [prob[j] >= other for other in prob[j + 1 :]]
                )
                decision = nw.when(is_most).then(j).otherwise(decision)
            made |= {"y_pred": decision, "is_coded": nw.lit(value=True)}
            keys += ["y_pred", "is_coded"]
        for i, p in enumerate(prob):
            is_good = is_good & (p >= 0)
            made[f"q{i}"] = weight * p
            pairs = range(i, n_classes)
            made |= {f"pp{i}_{j}": weight * weight * p * prob[j] for j in pairs}
        if prob:
            off = sum(prob[1:], prob[0]) - 1
            is_good = is_good & (off <= SUM_TOLERANCE) & (off >= -SUM_TOLERANCE)
        if made:
            # Of what is missing, neither is known.
            made["bad"] = nw.when(is_good).then(0).otherwise(1)
            frame = frame.with_columns(**made)
        sums = [name for name in made if name not in keys] + ["w"] * bool(self.weight)
        totals = [nw.col(*sums).sum()] if sums else []
        grouped = frame.group_by(keys).agg(nw.len().alias("n"), *totals)
        kinds = grouped.head(MOST_KINDS + 1).collect().to_pandas()
        return AuditCounts(
            self._check(kinds, keys),
            self.sensitive,
            self.keys.get("control"),
            n_classes,
            self.weight is not None,
        )

    def _check(self, kinds: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
        if len(kinds) > MOST_KINDS or not len(kinds):
            raise InvalidInputError(
                f"The frame must have rows, of at most {MOST_KINDS} kinds; got "
                f"{'more' if len(kinds) else 'none'}. Leave out columns that identify "
                "rows, and cut quantities into bands."
            )
        if "bad" in kinds and kinds.pop("bad").any():
            raise InvalidInputError(
                "Weights must be finite and at least 0, and probabilities at least 0 "
                "with a sum of 1, in every row."
            )
        if "w" not in kinds:
            kinds = kinds.assign(w=kinds["n"], ww=kinds["n"])
        if not kinds["w"].any():
            raise InvalidInputError("All weights are 0. Some row must count.")
        others = [name for name in kinds if name not in (*keys, "n", "w", "ww")]
        # Not astype, which hides warnings of other threads.
        numbers = {
            str(name).replace("q", "p"): kinds[name].to_numpy(np.float64)
            for name in ("w", "ww", *others)
        }
        return kinds[[*keys, "n"]].assign(**numbers)
