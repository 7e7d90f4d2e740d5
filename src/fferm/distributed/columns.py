"""Columns of Parquet as the numbers that a model and a fairness loss see."""

from collections.abc import Callable, Hashable, Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import group_name
from fferm.errors import InvalidInputError
from fferm.torch.encoding import UNKNOWN

Kind = Literal["numeric", "text"]
Key = Callable[[object], Hashable]

# A column with more values than this names rows: it is neither a set of groups or of
# classes, nor a category, and its vocabulary would not stay small.
MOST_VALUES = 10_000
# What stands for a value that is missing, and for one that a vocabulary lacks.
MISSING, UNSEEN = -1, -2


def kind_of(type_: pa.DataType) -> Kind | None:
    """Return how a column is read, None where its type cannot be."""
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    tests = pa.types
    if any(
        is_such(type_)
        for is_such in (tests.is_string, tests.is_large_string, tests.is_string_view)
    ):
        return "text"
    if any(
        is_such(type_)
        for is_such in (
            tests.is_integer,
            tests.is_floating,
            tests.is_boolean,
            tests.is_decimal,
        )
    ):
        return "numeric"
    return None


def numbers(column: pa.ChunkedArray | pa.Array) -> FloatArray:
    """Return a numeric column in double precision, NaN where a value is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_class(value: object) -> Hashable:
    """Return a label as a class: whole numbers are the same as float or as int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def as_group(value: object) -> Hashable:
    """Return the name of a group, None where it is unknown."""
    name = group_name(value)
    return None if name == UNKNOWN else name


def codes(
    column: pa.ChunkedArray | pa.Array, position_of: Mapping[Hashable, int], key: Key
) -> IntArray:
    """Return the position of each value, `MISSING` or `UNSEEN` where it has none."""
    values, place = _distinct(column)
    found = [_position(value, position_of, key) for value in values]
    return np.array([*found, MISSING], dtype=np.int64)[place]


class Vocabulary:
    """The values of one column, numbered as they come.

    Parameters
    ----------
    name
        The column.
    key
        What a value counts as.
    """

    def __init__(self, name: str, key: Key) -> None:
        self.name = name
        self.key = key
        self.position_of: dict[Hashable, int] = {}

    def encode(self, column: pa.ChunkedArray | pa.Array) -> IntArray:
        """Return the number of each value, after taking in those that are new."""
        for value in _distinct(column)[0]:
            known = None if _is_missing(value) else self.key(value)
            if known is not None:
                self.position_of.setdefault(known, len(self.position_of))
        if len(self.position_of) > MOST_VALUES:
            raise InvalidInputError(
                f"The column {self.name!r} holds more than {MOST_VALUES} different "
                "values, so it names rows. Expected one whose values many rows share; "
                "leave it out with features=, or cut it into bands."
            )
        return codes(column, self.position_of, self.key)


def _distinct(column: pa.ChunkedArray | pa.Array) -> tuple[list[object], IntArray]:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # an older pyarrow keeps empty ones so
        column = pa.array([], column.type)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = column.dictionary.to_pylist()
    place = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return values, place.astype(np.int64)


def _position(value: object, position_of: Mapping[Hashable, int], key: Key) -> int:
    known = None if _is_missing(value) else key(value)
    return MISSING if known is None else position_of.get(known, UNSEEN)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)
