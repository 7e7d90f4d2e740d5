"""The boundary between users' data and fferm: every refusal gets a named error."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _check_sample_weight, validate_data

from fferm._types import FloatArray, IntArray, Table, is_sparse
from fferm.errors import (
    FfermError,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
)
from fferm.labels import distinct_numbers, encode_sorted, rescaled

# What scikit-learn says too briefly: which argument it was, and what to do.
CLEARER = {
    "Input contains NaN": "y has missing labels. Expected a label in every row; drop "
    "those rows first.",
    "Unknown label type: unknown": "Unknown label type: y has missing labels, or "
    "labels of different kinds. Expected all numbers or all strings, one in every row.",
    "Negative values in data passed to `sample_weight`": "sample_weight holds negative "
    "numbers. Expected weights of 0 and above.",
    "sample_weight.shape ==": "{} Expected one weight per row.",
}
# Up to so many labels scikit-learn does not ask whether they are numbers to predict.
FEW_LABELS = 20
# Products of larger features overflow on their way through a Gram matrix.
LARGEST_FEATURE = 1e100


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Turn scikit-learn's refusals into fferm's, with the message kept."""
    try:
        yield
    except FfermError:
        raise
    except TypeError as error:
        raise InvalidTypeError(str(error)) from error
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(_with_hint(str(error))) from error


@dataclass(frozen=True)
class TrainingData:
    """Validated training data; rows of weight 0 are gone.

    Attributes
    ----------
    X
        (n_samples, n_features) float64, dense or CSR.
    y
        (n_samples,) class codes.
    classes
        The label of each code.
    weight
        (n_samples,) positive weights, the largest between 1/2 and 1.
    kept
        (n_rows_given,) which rows are left.
    """

    X: Table
    y: IntArray
    classes: NDArray[Any]
    weight: FloatArray
    kept: NDArray[np.bool_]


def validate_training(
    estimator: BaseEstimator, X: Table, y: Table, sample_weight: Table
) -> TrainingData:
    """Return training data in the form that solvers take."""
    X, y, weight = _validate_rows(estimator, X, y, sample_weight, reset=True)
    X, y, weight, kept = _keep_weighted(X, y, weight)
    classes, codes = encode_classes(y)
    return TrainingData(X, codes, classes, weight, kept)


def validate_numbers(
    estimator: BaseEstimator, X: Table, y: Table, sample_weight: Table
) -> tuple[Table, FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return X, y as numbers, positive weights, and which rows were kept."""
    rows = _validate_rows(estimator, X, y, sample_weight, reset=True, is_number=True)
    X, y, weight, kept = _keep_weighted(*rows)
    try:
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"y holds what is no number ({error}). Expected numbers to predict; for "
            "labels use a classifier, such as FairLogisticRegression."
        ) from error
    if np.abs(y).max() > LARGEST_FEATURE:
        raise InvalidInputError(
            f"y holds values above {LARGEST_FEATURE:g}, whose squares overflow. Give y "
            "in larger units."
        )
    return X, y, weight, kept


def read_penalty_data(penalty_data: tuple[Table, ...] | None) -> tuple[Table, ...]:
    """Return penalty_data, after checking that it has two or three parts."""
    if isinstance(penalty_data, tuple | list) and len(penalty_data) in (2, 3):
        return tuple(penalty_data)
    raise InvalidParameterError(
        "penalty_data must be (X, sensitive_features) or (X, sensitive_features, y); "
        f"{type(penalty_data).__name__} came."
    )


def validate_piece(
    estimator: BaseEstimator,
    X: Table,
    y: Table,
    sample_weight: Table,
    classes: NDArray[Any],
) -> TrainingData:
    """Return a piece of training data, all of its rows, with weights as they came.

    The first piece says which features there are.
    """
    is_first = not hasattr(estimator, "classes_")
    X, y, weight = _validate_rows(estimator, X, y, sample_weight, reset=is_first)
    found, codes = encode_sorted(y)
    known = {label: code for code, label in enumerate(classes.tolist())}
    unknown = [label for label in found.tolist() if label not in known]
    if unknown:
        raise InvalidInputError(
            f"y holds the label {unknown[0]!r}, which is none of the classes "
            f"{', '.join(map(repr, known))}. Name all classes in the first call: "
            "partial_fit(X, y, classes=[...])."
        )
    place = np.array([known[label] for label in found.tolist()], dtype=np.int64)
    return TrainingData(X, place[codes], classes, weight, weight > 0)


def check_classes(known: NDArray[Any] | None, classes: Table) -> NDArray[Any]:
    """Return the sorted classes of pieces: those known before, or those given."""
    if classes is None:
        if known is None:
            raise InvalidInputError(
                "classes must be passed on the first call to partial_fit: a piece need "
                "not hold all of them. Give partial_fit(X, y, classes=[...])."
            )
        return known
    with named_errors():
        given = unique_labels(classes)
    if known is not None and not np.array_equal(known, given):
        raise InvalidInputError(
            f"The classes {given.tolist()} came, and those of the first call are "
            f"{known.tolist()}. Leave classes out, or begin anew with a clone."
        )
    if given.size < 2:
        raise InvalidInputError(
            f"classes has only {given.tolist()}. A classifier needs at least two."
        )
    return np.asarray(given)


def _keep_weighted(
    X: Table, y: NDArray[Any], weight: FloatArray
) -> tuple[Table, NDArray[Any], FloatArray, NDArray[np.bool_]]:
    if weight.strides[0] == 0:
        return X, y, rescaled(weight), np.broadcast_to(True, weight.shape)
    kept = weight > 0
    if not kept.any():
        raise InvalidInputError(
            "Every sample_weight is 0. Expected at least one positive weight."
        )
    if not kept.all():
        X, y, weight = X[kept], y[kept], weight[kept]
    return X, y, rescaled(weight), kept


def _validate_rows(
    estimator: BaseEstimator,
    X: Table,
    y: Table,
    sample_weight: Table,
    *,
    reset: bool,
    is_number: bool = False,
) -> tuple[Table, NDArray[Any], FloatArray]:
    refuse_dates(X)
    _refuse_masked(X=X, y=y, sample_weight=sample_weight)
    with named_errors():
        X, y = validate_data(
            estimator,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            order="C",
            reset=reset,
            y_numeric=is_number,
        )
        if not is_number:
            _check_labels(y)
        weight = _read_weight(sample_weight, X)
    _refuse_huge(X)
    return X, y, weight


def _check_labels(y: NDArray[Any]) -> None:
    distinct = distinct_numbers(y)
    # Few labels say all that there is to say, and scikit-learn would sort all rows.
    is_few = distinct is not None and distinct.size <= FEW_LABELS
    check_classification_targets(distinct if is_few else y)


def _read_weight(sample_weight: Table, X: Table) -> FloatArray:
    if sample_weight is None:  # one number, seen n times
        return np.broadcast_to(1.0, X.shape[0])
    weight: FloatArray = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    return weight


def validate_features(estimator: BaseEstimator, X: Table) -> Table:
    """Return features to predict on, checked against those of training."""
    _refuse_masked(X=X)
    with named_errors():
        X = validate_data(
            estimator,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            reset=False,
        )
    _refuse_huge(X)
    return X


def check_number(
    name: str, value: object, *, low: float = 0.0, above: bool = False
) -> float:
    """Return a finite number at least ``low`` (or above it), else raise."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if is_number else np.nan  # type: ignore[arg-type]
    if np.isfinite(number) and (number > low or (number == low and not above)):
        return number
    bound = "above" if above else "of at least"
    raise InvalidParameterError(
        f"{name}={value!r} came. Expected a finite number {bound} {low:g}."
    )


def check_whole(name: str, value: object) -> int:
    """Return a whole number above 0, else raise."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and value > 0:  # type: ignore[operator]
        return int(value)  # type: ignore[call-overload, no-any-return]
    raise InvalidParameterError(
        f"{name}={value!r} came. Expected a whole number above 0."
    )


def encode_classes(y: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the classes of labels, at least two, and the code of each label."""
    with named_errors():
        classes, codes = encode_sorted(y)
    if classes.size < 2:
        raise InvalidInputError(
            f"y has only one class, {classes.tolist()[0]!r} (1 class). A classifier "
            "needs at least two; check the labels and the weights."
        )
    return classes, codes


def refuse_dates(X: Table) -> None:
    """Refuse columns of dates."""
    # NumPy would take a date for its number of nanoseconds.
    frame = read_frame(X)
    if isinstance(frame, nw.DataFrame):
        dates = [name for name, kind in frame.schema.items() if kind.is_temporal()]
    else:
        kind = getattr(getattr(X, "dtype", None), "kind", "")
        dates = ["X"] if isinstance(kind, str) and kind in "mM" and kind else []
    if dates:
        raise InvalidTypeError(
            f"{', '.join(map(str, dates))} holds dates. X must be numeric; turn dates "
            "into numbers that mean something, such as an age in years."
        )


def _refuse_masked(**tables: Table) -> None:
    for name, table in tables.items():
        if np.ma.is_masked(table):
            n_masked = int(np.ma.getmaskarray(table).sum())
            raise InvalidInputError(
                f"{name} is a masked array with {n_masked} values masked, and what "
                "lies below a mask is no value. Fill them in, or leave these rows out."
            )


def read_frame(X: Table) -> Any:
    """Return a data frame of any library as narwhals has it, all else as it is."""
    try:
        return nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(
            f"Two columns of X share a name ({error}). Rename one, or leave it out."
        ) from error


def _refuse_huge(X: Table) -> None:
    if get_config()["assume_finite"]:  # who says so has looked
        return
    stored: FloatArray = X.data if is_sparse(X) else X
    if stored.size and max(stored.max(), -stored.min()) > LARGEST_FEATURE:
        raise InvalidInputError(
            f"X holds values above {LARGEST_FEATURE:g}, whose products overflow. Scale "
            "the features, for example with sklearn.preprocessing.StandardScaler."
        )


def _with_hint(message: str) -> str:
    for known, clearer in CLEARER.items():
        if message.startswith(known):
            return clearer.format(message)
    if "could not convert string to float" in message:
        return (
            f"{message}. X must be numeric; put a OneHotEncoder before this estimator "
            "in a Pipeline."
        )
    return message
