"""Features, labels, weights and parameters as users pass them, checked and encoded.

Whatever cannot be used is refused here with a named error that says what must hold,
what was passed and how to fix it. Arrays that hold one number n times stay broadcast
views, because rows may be many.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import sklearn.exceptions
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import gen_batches
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import (
    _check_y,
    check_array,
    check_consistent_length,
    validate_data,
)

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.errors import (
    FfermError,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    NotFittedError,
)
from fferm.notions import Labels

# Rows of probabilities sum to 1 up to this: single precision, and many classes.
SUM_TOLERANCE = 1e-3
# What scikit-learn says too briefly: which argument it was, and what to do.
MIXED = (
    "Unknown label type: y has missing labels, or mixes numbers and strings. Labels "
    "must be all numbers or all strings, one in every row."
)
TWO_AXES = "X must be a data frame, or an array of shape (n_samples, n_features); got "
CLEARER = {
    "Input X contains NaN": "X has missing values (Input X contains NaN). Fill them "
    "in, or pass a data frame, whose gaps are filled.",
    "Input y contains NaN": "y has missing values (Input y contains NaN). Every row "
    "needs one; drop the rows without it.",
    "Input contains NaN": "y has missing labels. Every row needs a label; drop the "
    "rows without one.",
    "contains infinity": "{}. Pass finite numbers.",
    "Unknown label type: unknown": MIXED,
    "got 1D array": f"{TWO_AXES}one axis. Reshape your data: X.reshape(-1, 1) if it is "
    "one feature, X.reshape(1, -1) if it is one row.",
    "got scalar array": f"{TWO_AXES}a single value.",
    "y should be a 1d array": "{}. Pass one label, or one number, per row.",
    "inconsistent numbers of samples": "{}. X and y must have as many rows: pass one "
    "label, or one number, per row of X.",
    "is expecting": "{}. Pass the columns of training.",
    "could not convert string to float": "{}. An array must be numeric; pass a data "
    "frame, whose text is read as categories.",
    "Complex data not supported": "Complex data not supported: X and y must hold real "
    "numbers. Pass their parts.",
}
# Up to so many distinct labels nobody asks whether they are numbers to predict.
FEW_LABELS = 20
# Products of larger features overflow on their way through a Gram matrix.
LARGEST_FEATURE = 1e100
# Rows that are worked on at once, where arrays of all rows would be large.
ROWS_AT_ONCE = 2**16
# The y of rows to predict; scikit-learn's word.
NO_Y = "no_validation"


@dataclass(frozen=True)
class Number:
    """The constraint of a numeric parameter.

    Attributes
    ----------
    low, high
        The interval; ends belong to it unless they are ``open_low``, ``open_high``.
    is_whole
        Whether it must be an integer.
    is_optional
        Whether None is allowed too.
    other
        Something else that is allowed, and how it is called.
    """

    low: float = 0.0
    high: float = np.inf
    open_low: bool = False
    open_high: bool = False
    is_whole: bool = False
    is_optional: bool = False
    other: tuple[type, str] | None = None

    def accepts(self, value: Any) -> bool:
        """Return whether a value satisfies the constraint."""
        if value is None:
            return self.is_optional
        if self.other is not None and isinstance(value, self.other[0]):
            return True
        allowed: Any = int | np.integer if self.is_whole else Real
        if not isinstance(value, allowed) or isinstance(value, bool):
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return bool(above and below and np.isfinite(value))

    def __str__(self) -> str:
        name = "an integer" if self.is_whole else "a finite number"
        low, high = f"{self.low:g}", f"{self.high:.10g}"
        if self.high < np.inf:
            name = "an integer " if self.is_whole else ""
            name += f"between {low} and {high}"
            if self.open_low or self.open_high:
                begin = "above" if self.open_low else "at least"
                end = "below" if self.open_high else "at most"
                name = f"{begin} {low} and {end} {high}"
        else:
            name += f" above {low}" if self.open_low else f" of at least {low}"
        name += f", {self.other[1]}" if self.other else ""
        return name + (", or None" if self.is_optional else "")


@dataclass(frozen=True)
class OneOf:
    """The constraint of a parameter that has a few allowed values."""

    options: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        """Return whether a value is one of the options."""
        value = bool(value) if isinstance(value, np.bool_) else value
        return any(
            value is o or (isinstance(o, str) and value == o) for o in self.options
        )

    def __str__(self) -> str:
        *first, last = map(repr, self.options)
        return f"{', '.join(first)} or {last}" if first else last


Constraint = Number | OneOf
FLAG = OneOf((True, False))
COUNT = Number(low=1, is_whole=True)
SEED = Number(
    high=2**32 - 1,
    is_whole=True,
    is_optional=True,
    other=(np.random.RandomState, "a RandomState"),
)
POSITIVE = Number(open_low=True)


def check_params(
    values: Mapping[str, Any], constraints: Mapping[str, Constraint]
) -> None:
    """Raise if a parameter breaks its constraint; others are not looked at."""
    for name, constraint in constraints.items():
        if name in values and not constraint.accepts(values[name]):
            raise InvalidParameterError(
                f"{name} must be {constraint}; got {values[name]!r}."
            )


def check_number(
    name: str, value: Any, *, low: float = 0.0, above: bool = False
) -> float:
    """Return a finite number of at least ``low`` (or above it), else raise."""
    check_params({name: value}, {name: Number(low, open_low=above)})
    return float(value)


def check_whole(name: str, value: Any) -> int:
    """Return an integer of at least 1, else raise."""
    check_params({name: value}, {name: COUNT})
    return int(value)


def check_widths(hidden: Any) -> list[int]:
    """Return the widths of hidden layers, each at least 1, else raise."""
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise InvalidParameterError(
            f"hidden must be a list of widths, such as (64, 64); got {hidden!r}."
        )
    return [check_whole("hidden", width) for width in hidden]


def encode_decisions(
    y_true: Table, y_pred: Table, known: Sequence[object] = ()
) -> tuple[Labels, IntArray]:
    """Return labels, and decisions as codes among the labels of both.

    ``known`` are classes that exist whether or not a row has them.
    """
    code, seen = factorize(y_pred, "y_pred")
    labels_true = [] if y_true is None else factorize(y_true, "y_true")[1]
    together = {*seen, *labels_true, *known}
    try:
        # One label does not tell the other, except for 0 and 1.
        classes = sorted({0, 1} if together in ({0}, {1}) else together)  # type: ignore[type-var]
    except TypeError as error:
        raise InvalidInputError(
            "Labels must be all numbers or all strings, in y_true and y_pred alike; "
            f"got {', '.join(sorted(map(repr, together)))}."
        ) from error
    labels = encode_labels(y_true, code.size, classes)
    return labels, find_codes(code, seen, labels.classes, "y_pred")


def encode_labels(
    y: Table, n_samples: int, classes: Sequence[object], name: str = "y_true"
) -> Labels:
    """Return labels as codes among known classes; None stays None."""
    classes = tuple(_plain(classes))
    if y is None:
        return Labels(n_samples, None, classes)
    code, seen = factorize(y, name)
    if code.size != n_samples:
        raise InvalidInputError(
            f"{name} has {code.size} labels for {n_samples} rows. Pass one per row."
        )
    return Labels(n_samples, find_codes(code, seen, classes, name), classes)


def find_codes(
    code: IntArray,
    labels: Sequence[object],
    classes: Sequence[object],
    name: str,
    advice: str = "",
) -> IntArray:
    """Return codes among ``labels`` as codes among ``classes``, which have them all."""
    position = {label: j for j, label in enumerate(classes)}
    unknown = [label for label in labels if label not in position]
    if unknown:
        raise InvalidInputError(
            f"{name} contains the label {unknown[0]!r}, which is not among the classes "
            f"{', '.join(map(repr, classes))}.{advice}"
        )
    return np.array([position[label] for label in labels], dtype=np.int64)[code]


def one_column(y: Table) -> Table:
    """Return labels or numbers of one column as that column, others as they are."""
    frame = nw.from_native(y, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        is_alone = len(frame.columns) == 1
        return frame[:, 0].to_native() if is_alone else y
    is_column = isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1
    return y[:, 0] if is_column else y


def plain_labels(y: Table) -> Table:
    """Return integers and booleans of other kinds as NumPy's, all else as it is."""
    native = nw.from_native(one_column(y), series_only=True, pass_through=True)
    if getattr(y, "dtype", None) == np.dtype(object):  # perhaps numbers nevertheless
        numbers = pd.Series(np.asarray(y)).infer_objects()
        return numbers.to_numpy() if numbers.dtype.kind in "biu" else y
    if not isinstance(native, nw.Series) or native.null_count():
        return y
    is_plain = native.dtype.is_integer() or native.dtype == nw.Boolean
    return native.to_numpy() if is_plain else y


def read_array(values: Table, name: str) -> NDArray[Any]:
    """Return values of any library as an array in which a missing one stays None."""
    native = nw.from_native(values, series_only=True, pass_through=True)
    if isinstance(native, nw.Series):
        return native.to_numpy()
    if isinstance(values, np.ma.MaskedArray):
        array = np.array(values.data, dtype=object)
        array[np.ma.getmaskarray(values)] = None
        return array
    try:
        array = np.asarray(values)
        return np.asarray(values, dtype=object) if array.dtype.kind in "US" else array
    except ValueError as error:
        raise InvalidInputError(
            f"{name} is ragged ({error}). Give every row as many values."
        ) from error


def factorize(values: Table, name: str) -> tuple[IntArray, list[object]]:
    """Return one code per row, and the label of each code in order of appearance."""
    array = read_array(one_column(values), name)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInputError(
            f"{name} must be one-dimensional, not empty; got shape {array.shape}."
        )
    code, labels = pd.factorize(array, use_na_sentinel=True)
    if np.any(code < 0):
        raise InvalidInputError(
            f"{name} has {int(np.sum(code < 0))} missing labels. Drop those rows first."
        )
    seen = _plain(labels)
    fractions = [label for label in seen if isinstance(label, float) and label % 1]
    if fractions:
        raise InvalidInputError(
            f"{name} contains fractional numbers such as {fractions[0]} instead of "
            "labels. Pass probabilities to soft_violation."
        )
    return code.astype(np.int64), seen


def encode_sorted(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct values in order, and the code of each value among them.

    Numbers are taken by parts, and values that are their own codes are not copied: rows
    may be many.
    """
    is_plain = values.dtype.kind in "biuf" and values.dtype.itemsize <= 8
    if not (is_plain and values.dtype.isnative and values.dtype != np.float16):
        distinct, code = np.unique(values, return_inverse=True)
        return distinct, code.astype(np.int64).reshape(-1)
    # By hash tables of a part each: to sort all rows would copy them.
    parts = list(gen_batches(values.size, ROWS_AT_ONCE))
    seen = [pd.unique(values[part]) for part in parts]
    distinct = np.unique(np.concatenate(seen))
    if values.dtype == np.int64 and np.array_equal(distinct, np.arange(distinct.size)):
        return distinct, values
    code = np.empty(values.size, dtype=np.int64)
    for part in parts:
        code[part] = np.searchsorted(distinct, values[part])
    return distinct, code


def _plain(labels: Iterable[Any]) -> list[Any]:
    # NumPy's scalars print as np.str_('a'); Python's own compare and hash alike.
    return [each.item() if isinstance(each, np.generic) else each for each in labels]


def encode_prob(prob: Table, n_classes: int) -> FloatArray:
    """Return probabilities as an array, after checking them."""
    array = np.asarray(prob, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_classes or len(array) == 0:
        raise InvalidInputError(
            f"prob must have shape (n_samples, {n_classes}); got {array.shape}."
        )
    is_off = np.abs(array.sum(axis=1) - 1) > SUM_TOLERANCE
    if not np.all(array >= 0) or np.any(is_off):
        raise InvalidInputError(
            "prob has rows that are negative, missing or do not sum to 1. Pass "
            "probabilities; turn scores into them with a softmax first."
        )
    return array


def encode_weight(sample_weight: Table, n_samples: int) -> FloatArray:
    """Return sample weights as an array, ones where none are given."""
    if sample_weight is None:
        return np.ones(n_samples)
    try:
        weight = np.asarray(one_column(sample_weight), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "sample_weight must be non-negative numbers, one per row "
            f"({reason_of(error)})."
        ) from error
    got = "only zeros" if weight.size and not np.any(weight) else ""
    if weight.shape != (n_samples,):
        got = f"shape {weight.shape}"
    elif not np.all(is_sound := (weight >= 0) & np.isfinite(weight)):
        got = f"{weight[~is_sound][0]:g}"
    if got:
        raise InvalidInputError(
            f"sample_weight must hold one non-negative weight per row, ({n_samples},), "
            f"finite and not only zeros; got {got}."
        )
    return weight


def rescaled(weight: FloatArray) -> FloatArray:
    """Return weights times a power of two, the largest of them between 1/2 and 1.

    Only their ratios matter. Sums and squares may neither overflow nor vanish, and a
    power of two rounds nothing.
    """
    exponent = -np.frexp(weight.max())[1]
    if weight.strides[0] == 0:  # one number, seen n times
        return np.broadcast_to(np.ldexp(weight[0], exponent), weight.shape)
    return np.asarray(np.ldexp(weight, exponent))


def are_alike(values: NDArray[Any]) -> bool:
    """Return whether all values of an array are the same."""
    if values.strides[0] == 0:  # one number, seen n times
        return True
    return values.size > 0 and bool(np.all(values == values[0]))


def shares(weight: FloatArray) -> FloatArray:
    """Return weights over their sum: one number, seen n times, where all are alike."""
    if are_alike(weight):
        return np.broadcast_to(weight[0] / weight.sum(), weight.shape)
    return np.asarray(weight / weight.sum())


def one_hot(code: IntArray, n_classes: int) -> FloatArray:
    """Return decisions as probabilities of 0 and 1."""
    return np.eye(n_classes)[code]


def reason_of(error: Exception) -> str:
    """Return what another library says, on one line and with plain text in quotes."""
    return re.sub(r"np\.str_\(('[^']*')\)", r"\1", " ".join(str(error).split()))


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Turn scikit-learn's refusals into fferm's, with the message kept."""
    try:
        yield
    except FfermError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        kind: Any = InvalidInputError
        if isinstance(error, TypeError):
            kind = InvalidTypeError
        elif isinstance(error, sklearn.exceptions.NotFittedError):
            kind = NotFittedError
        message = reason_of(error)
        if "feature names should match" in message:
            message = str(error)  # whose checks ask for its lines
        for known, clearer in CLEARER.items():
            if known in message:
                message = clearer.format(message.removesuffix("."))
                break
        raise kind(message) from error


@dataclass(frozen=True)
class TrainingData:
    """Validated training data; rows of weight 0 are dropped.

    Attributes
    ----------
    X
        (n_samples, n_features) float64, dense or CSR.
    y
        (n_samples,) class codes, or numbers to predict.
    classes
        The label of each code; empty for numbers.
    weight
        (n_samples,) positive weights, the largest between 1/2 and 1.
    kept
        (n_rows_passed,) which rows are left.
    centre, scale
        Of numbers: the unit that models are trained in.
    """

    X: Table
    y: NDArray[Any]
    classes: NDArray[Any]
    weight: FloatArray
    kept: NDArray[np.bool_]
    centre: float = 0.0
    scale: float = 1.0


def validate_training(
    estimator: BaseEstimator,
    X: Table,
    y: Table,
    sample_weight: Table,
    *,
    is_number: bool = False,
) -> TrainingData:
    """Return training data with labels as codes, or with a numeric target."""
    X, y, weight = validate_rows(estimator, X, y, sample_weight, reset=True)
    X, y, weight, kept = keep_weighted(X, y, weight)
    if not is_number:
        classes, y = encode_classes(y)
        return TrainingData(X, y, classes, rescaled(weight), kept)
    try:
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"y contains non-numeric values ({reason_of(error)}). FairRegressor needs "
            "a numeric target; for labels use a classifier, such as "
            "FairLogisticRegression."
        ) from error
    if np.abs(y).max() > LARGEST_FEATURE:
        raise InvalidInputError(
            f"y contains values above {LARGEST_FEATURE:g}. Pass y in larger units."
        )
    return TrainingData(X, y, np.array([]), rescaled(weight), kept)


def keep_weighted(
    X: Table, y: NDArray[Any], weight: FloatArray
) -> tuple[Table, NDArray[Any], FloatArray, NDArray[np.bool_]]:
    """Return the rows of positive weight, and which these are."""
    kept = weight > 0 if weight.strides[0] else np.broadcast_to(True, weight.shape)
    if not kept.any():
        raise InvalidInputError("Every sample_weight is 0. One must be positive.")
    if kept.all():
        return X, y, weight, kept
    return X[kept], y[kept], weight[kept], kept


def read_penalty_data(penalty_data: tuple[Table, ...] | None) -> tuple[Table, ...]:
    """Return penalty_data, after checking that it has two or three parts."""
    if isinstance(penalty_data, tuple | list) and len(penalty_data) in (2, 3):
        return tuple(penalty_data)
    size = f" of {len(penalty_data)}" if isinstance(penalty_data, tuple | list) else ""
    raise InvalidParameterError(
        "penalty_data must be (X, sensitive_features) or (X, sensitive_features, y); "
        f"got {type(penalty_data).__name__}{size}."
    )


def validate_batch(
    estimator: BaseEstimator,
    X: Table,
    y: Table,
    sample_weight: Table,
    classes: NDArray[Any],
) -> TrainingData:
    """Return one batch of `partial_fit`, with all its rows and weights as passed.

    The first batch defines the features.
    """
    is_first = not hasattr(estimator, "classes_")
    if is_first:
        advice = "Call fit on the first piece: it learns how to read the table."
        check_numeric(X, "partial_fit", advice)
    X, y, weight = validate_rows(estimator, X, y, sample_weight, reset=is_first)
    distinct, code = encode_classes(y, fewest=1)
    advice = " Name all classes in the first call: partial_fit(X, y, classes=[...])."
    y = find_codes(code, distinct.tolist(), classes.tolist(), "y", advice)
    return TrainingData(X, y, classes, weight, weight > 0)


def check_numeric(X: Table, who: str, advice: str) -> None:
    """Raise if a table has columns that hold no numbers."""
    frame = read_frame(X)
    if not isinstance(frame, nw.DataFrame):
        return
    refuse_unusable(X)
    is_number = [d.is_numeric() or d == nw.Boolean for d in frame.schema.values()]
    text = [n for n, ok in zip(frame.columns, is_number, strict=True) if not ok]
    if text:
        raise InvalidInputError(
            f"{who} needs numbers, and {', '.join(map(str, text))} holds none. {advice}"
        )


def check_classes(known: NDArray[Any] | None, classes: Table) -> NDArray[Any]:
    """Return the sorted classes of `partial_fit`, known before or passed now."""
    if classes is None:
        if known is None:
            raise InvalidInputError(
                "classes must be passed on the first call to partial_fit, because a "
                "batch need not hold all of them: partial_fit(X, y, classes=[...])."
            )
        return known
    with named_errors():
        labels = np.asarray(unique_labels(classes))
    if known is not None and not np.array_equal(known, labels):
        raise InvalidInputError(
            f"classes must stay those of the first call, {known.tolist()}; got "
            f"{labels.tolist()}. Leave classes out, or start over with a clone."
        )
    if labels.size < 2:
        raise InvalidInputError(
            f"classes has only {labels.tolist()}. A classifier needs at least two."
        )
    return labels


def validate_rows(
    estimator: BaseEstimator,
    X: Table,
    y: Table = NO_Y,
    sample_weight: Table = None,
    *,
    reset: bool = False,
) -> tuple[Table, NDArray[Any], FloatArray]:
    """Return features, target and weights after scikit-learn's checks and ours.

    Rows to predict have features only, which must be those of training. What the
    estimator learned about the columns of a table, its ``encoder_``, encodes them.
    """
    refuse_unusable(X=X, y=y, sample_weight=sample_weight)
    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}
    if y is not NO_Y:
        is_plain = isinstance(y, np.ndarray) and y.dtype != object
        y = y if is_plain else plain_labels(y)
        if isinstance(y, list | tuple) and len({isinstance(v, str) for v in y}) > 1:
            raise InvalidInputError(MIXED)  # NumPy would make strings of all
        options |= {"y": y, "order": "C"}
    with named_errors():
        if not hasattr(estimator, "encoder_"):
            checked = validate_data(estimator, X, reset=reset, **options)
            X, y = (checked, y) if y is NO_Y else checked
        else:
            X = _encode_table(estimator, X, reset=reset)
            if y is not NO_Y:
                y = _check_y(y, estimator=estimator)
                check_consistent_length(X, y)
        weight: FloatArray = np.broadcast_to(1.0, X.shape[0])
        if sample_weight is not None:
            weight = encode_weight(sample_weight, X.shape[0])
    stored: FloatArray = X.data if is_sparse(X) else X
    if get_config()["assume_finite"] or not stored.size:  # the caller has checked
        return X, y, weight
    if max(stored.max(), -stored.min()) > LARGEST_FEATURE:
        raise InvalidInputError(
            f"X contains values above {LARGEST_FEATURE:g}. Scale it (StandardScaler)."
        )
    return X, y, weight


def _encode_table(estimator: Any, X: Table, *, reset: bool) -> Table:
    # What the estimator predicts from, as its encoder learned it.
    if not isinstance(read_frame(X), nw.DataFrame):
        X = check_array(X, dtype=None, ensure_all_finite=False)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if isinstance(X, np.ndarray):
        X = pd.DataFrame(X, columns=estimator.encoder_.feature_names_in_)
    encoder = estimator.encoder_
    rows = encoder.to_rows(X) if estimator.reads_sparse else encoder.transform(X)
    return rows if is_sparse(rows) else np.asarray(rows)


def encode_classes(y: NDArray[Any], fewest: int = 2) -> tuple[NDArray[Any], IntArray]:
    """Return the classes of labels, at least so many, and the code of each label."""
    with named_errors():
        is_number = y.dtype.kind in "biuf"
        if not is_number:
            check_classification_targets(y)
        classes, codes = encode_sorted(y)
    if y.dtype.kind == "f" and np.any(classes % 1):
        raise InvalidInputError(
            f"Unknown label type: y holds {classes.size} numbers such as "
            f"{classes[classes % 1 != 0][0]:g}. To predict numbers use FairRegressor."
        )
    if fewest > 1 and classes.size > max(FEW_LABELS, y.size / 2):
        raise InvalidInputError(
            f"y has {classes.size} classes in {y.size} rows. To predict numbers use "
            "FairRegressor; drop identifiers, and merge rare classes."
        )
    if classes.size < fewest:
        raise InvalidInputError(
            f"y has only one class, {classes.tolist()[0]!r} (1 class). A classifier "
            "needs at least two; check the labels and the weights."
        )
    return classes, codes


def refuse_unusable(X: Table, **others: Table) -> None:
    """Raise for masked values and dates: NumPy would ignore one, count the other."""
    for name, table in {"X": X, **others}.items():
        if np.ma.is_masked(table):
            n_masked = int(np.ma.getmaskarray(table).sum())
            raise InvalidInputError(
                f"{name} has {n_masked} masked values. Fill them in, or drop the rows."
            )
    frame = X if isinstance(X, np.ndarray) else read_frame(X)
    if isinstance(frame, nw.DataFrame):
        dates = [name for name, dtype in frame.schema.items() if dtype.is_temporal()]
    else:
        kind = getattr(getattr(X, "dtype", None), "kind", "")
        dates = ["X"] if isinstance(kind, str) and kind in "mM" and kind else []
    for name, table in others.items():
        kind = getattr(getattr(table, "dtype", None), "kind", "")
        dates += [name] if kind in ("m", "M") else []
    if dates:
        raise InvalidTypeError(refused_dates(dates))


def refused_dates(columns: Sequence[str]) -> str:
    """Return the message for columns of dates."""
    return (
        f"{', '.join(map(str, columns))} contains dates. Turn them into numbers that "
        "mean something, such as an age in years, or drop the column."
    )


def is_table(X: Table) -> bool:
    """Return whether X is a data frame; one of sparse columns counts as a matrix."""
    if isinstance(X, pd.DataFrame) and len(X.columns):
        return not all(isinstance(dtype, pd.SparseDtype) for dtype in X.dtypes)
    return isinstance(read_frame(X), nw.DataFrame)


def read_frame(X: Table) -> Any:
    """Return a data frame of any library as a narwhals frame, all else unchanged."""
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise repeated_name("X", X) from error
    if isinstance(frame, nw.LazyFrame):
        raise InvalidTypeError(
            "X must be a table in memory; got a lazy one. Pass X.collect()."
        )
    return frame


def repeated_name(what: str, table: Table) -> InvalidInputError:
    """Return the error that names the column that a table has twice."""
    names = pd.Index(getattr(table, "column_names", None) or list(table.columns))
    return InvalidInputError(
        f"Two columns of {what} share a name, {names[names.duplicated()][0]!r}. Rename "
        "one, or leave it out."
    )
