"""Labels, decisions, probabilities and weights as users hold them, as arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._parts import parts_of
from fferm._types import FloatArray, IntArray, Table, unmasked
from fferm.errors import InvalidInputError
from fferm.notions import Labels

# Rows of probabilities sum to 1 up to this: single precision, and many classes.
SUM_TOLERANCE = 1e-3


def encode_decisions(
    y_true: Table, y_pred: Table, known: Sequence[object] = ()
) -> tuple[Labels, IntArray]:
    """Return labels, and decisions as codes among the labels of both.

    ``known`` are classes that exist whether or not a row has them.
    """
    code, seen = factorize(y_pred, "y_pred")
    labels_true = [] if y_true is None else factorize(y_true, "y_true")[1]
    together = {*seen, *labels_true, *_plain(known)}
    # One label says nothing of the other; of 0 and 1 everyone knows it.
    classes = _sorted({0, 1} if together in ({0}, {1}) else together)
    labels = encode_labels(y_true, code.size, classes)
    return labels, np.array([classes.index(label) for label in seen])[code]


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
            f"{name} has {code.size} labels and there are {n_samples} rows. Expected "
            "one label per row."
        )
    unknown = [label for label in seen if label not in classes]
    if unknown:
        raise InvalidInputError(
            f"{name} holds the label {unknown[0]!r}. Expected one of the classes "
            f"{', '.join(map(repr, classes))}."
        )
    return Labels(
        n_samples, np.array([classes.index(label) for label in seen])[code], classes
    )


def one_column(y: Table) -> Table:
    """Return labels or numbers of one column as that column, others as they are."""
    frame = nw.from_native(y, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        is_alone = len(frame.columns) == 1
        return frame[:, 0].to_native() if is_alone else y
    is_column = isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1
    return y[:, 0] if is_column else y


def factorize(values: Table, name: str) -> tuple[IntArray, list[object]]:
    """Return one code per row, and the label of each code as it first came."""
    values = unmasked(one_column(values))
    native = nw.from_native(values, series_only=True, pass_through=True)
    array = native.to_numpy() if isinstance(native, nw.Series) else np.asarray(values)
    if array.dtype.kind in "US":  # a list with None in it must keep its None
        array = np.asarray(values, dtype=object)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInputError(
            f"{name} has shape {array.shape}. Expected one label per row, in one "
            "dimension, and at least one row."
        )
    code, labels = pd.factorize(array, use_na_sentinel=True)
    if np.any(code < 0):
        raise InvalidInputError(
            f"{name} has {int(np.sum(code < 0))} missing labels. Expected a label in "
            "every row; drop those rows first."
        )
    seen = _plain(labels)
    fractions = [label for label in seen if isinstance(label, float) and label % 1]
    if fractions:
        raise InvalidInputError(
            f"{name} holds fractional numbers such as {fractions[0]}. Expected labels; "
            "probabilities go to soft_violation."
        )
    return code.astype(np.int64), seen


def encode_sorted(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Return the distinct values in order, and the code of each value among them.

    Numbers are taken by parts, and values that are their own codes are not copied: rows
    may be many.
    """
    distinct = distinct_numbers(values)
    if distinct is None:
        found, code = np.unique(values, return_inverse=True)
        return found, code.astype(np.int64).reshape(-1)
    if values.dtype == np.int64 and np.array_equal(distinct, np.arange(distinct.size)):
        return distinct, values
    code = np.empty(values.size, dtype=np.int64)
    for part in parts_of(values.size):
        code[part] = np.searchsorted(distinct, values[part])
    return distinct, code


def distinct_numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    """Return the distinct values in order, None where they are no plain numbers."""
    is_plain = values.dtype.kind in "biuf" and values.dtype.itemsize <= 8
    if not (is_plain and values.dtype.isnative and values.dtype != np.float16):
        return None
    # By hash tables of a part each: to sort all rows would copy them.
    seen = [pd.unique(values[part]) for part in parts_of(values.size)]
    return np.unique(np.concatenate(seen))


def _plain(labels: Iterable[object]) -> list[object]:
    # NumPy's scalars print as np.str_('a'); Python's own compare and hash alike.
    return [
        label.item() if isinstance(label, np.generic) else label for label in labels
    ]


def _sorted(labels: set[object]) -> list[object]:
    try:
        return sorted(labels)  # type: ignore[type-var]
    except TypeError as error:
        raise InvalidInputError(
            f"Labels of different kinds came ({error}): "
            f"{', '.join(sorted(map(repr, labels)))}. Expected all numbers or all "
            "strings, in y_true and y_pred alike."
        ) from error


def encode_prob(prob: Table, n_classes: int) -> FloatArray:
    """Return probabilities as an array, after checking that they are some."""
    array = np.asarray(prob, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_classes or len(array) == 0:
        raise InvalidInputError(
            f"prob has shape {array.shape} and there are {n_classes} classes. Expected "
            "(n_samples, n_classes), as predict_proba gives."
        )
    is_sound = np.all(array >= 0) and np.allclose(
        array.sum(axis=1), 1, rtol=0, atol=SUM_TOLERANCE
    )
    if not is_sound:
        raise InvalidInputError(
            "prob holds rows that are negative, missing or do not sum to 1. Expected "
            "probabilities; pass scores through a softmax first."
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
            f"sample_weight holds what is no number ({error}). Expected one "
            "non-negative weight per row."
        ) from error
    if weight.shape != (n_samples,) or not np.all(np.isfinite(weight) & (weight >= 0)):
        raise InvalidInputError(
            f"sample_weight has shape {weight.shape}, or holds negative or missing "
            f"numbers. Expected one non-negative weight per row, ({n_samples},)."
        )
    if not np.any(weight > 0):
        raise InvalidInputError(
            "sample_weight is 0 in every row. Expected some positive weight; leave it "
            "out to weigh rows alike."
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
    total = weight.sum()
    if are_alike(weight):
        return np.broadcast_to(weight[0] / total, weight.shape)
    return np.asarray(weight / total)


def one_hot(code: IntArray, n_classes: int) -> FloatArray:
    """Return decisions as probabilities of 0 and 1."""
    return np.eye(n_classes)[code]
