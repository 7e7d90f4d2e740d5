"""Tables as commands get them: CSV, Parquet, or a data set by name."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from fferm._typing import IntArray
from fferm.cli.catalog import CATALOG
from fferm.data.frame import as_pandas
from fferm.data.groups import Attribute, GroupMode, assign, encode_sensitive, find_edges
from fferm.data.split import combine, split_strata
from fferm.errors import DataFairnessWarning, InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.estimators.frame import FrameClassifier, FrameModel, FrameRegressor
from fferm.estimators.regression import FairRegressor

# What stands for a missing value in a CSV file.
GAPS = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"]
DELIMITERS = ",;\t|"
# One block of a file this large is read at once, so that types are those of all rows.
LARGEST_BLOCK = 2**31 - 1


@dataclass(frozen=True)
class Source:
    """A table to train on or to judge by.

    Attributes
    ----------
    frame
        All rows, or those to train on where the data set has a split of its own.
    test
        The rows that the data set tests on; None where it has no split.
    target, sensitive
        The columns in question: those asked for, or the data set's own.
    """

    frame: pd.DataFrame
    test: pd.DataFrame | None
    target: str
    sensitive: tuple[str, ...]

    def model(
        self,
        estimator: FairEstimator,
        drop: Sequence[str],
        bands: Sequence[str] | None = None,
    ) -> FrameModel:
        """Return an unfitted model of this table."""
        is_number = isinstance(estimator, FairRegressor)
        kind = FrameRegressor if is_number else FrameClassifier
        return kind(
            estimator,
            target=self.target,
            sensitive=list(self.sensitive),
            drop=list(drop),
            bands=list(bands or ()),
        )


def open_source(
    data: str, target: str | None, sensitive: Sequence[str] | None
) -> Source:
    """Return the table that a name or a path stands for."""
    if data in CATALOG and not Path(data).exists():
        return _shipped(data, target, sensitive)
    if target is None or not sensitive:
        missing = "--target" if target is None else "--sensitive"
        raise InvalidParameterError(
            f"{missing} is missing. Name the column, for example {missing} NAME."
        )
    return Source(read_table(Path(data)), None, target, _distinct(sensitive))


def read_table(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV or Parquet file."""
    if not path.exists():
        known = ", ".join(CATALOG)
        raise InvalidInputError(
            f"{path} does not exist. Expected a CSV or Parquet file, or one of the "
            f"data sets {known}."
        )
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Expected a CSV or Parquet file.")
    try:
        with path.open("rb") as stream:
            is_parquet = stream.read(4) == b"PAR1"
        table = _read_parquet(path) if is_parquet else _read_csv(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"Cannot read {path} ({reason}).") from error
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as {'Parquet' if is_parquet else 'CSV'} "
            f"({error}). Expected a header and rows of as many fields."
        ) from error
    frame = as_pandas(_to_pandas(table, path))
    if len(frame) == 0:
        raise InvalidInputError(f"{path} has a header and no rows. Expected some rows.")
    return frame


def drop_unlabelled(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the rows that have a label, after a warning where some have none."""
    if target not in frame.columns:
        return frame  # refused with all its columns named by who needs it
    is_known = frame[target].notna()
    n_missing = int((~is_known).sum())
    if n_missing == len(frame):
        raise InvalidInputError(
            f"The target {target!r} is missing in every row. Expected labels."
        )
    if n_missing:
        warnings.warn(
            f"{n_missing} of {len(frame)} rows have no label in {target!r} and are "
            "left out.",
            DataFairnessWarning,
            stacklevel=2,
        )
    return frame[is_known].reset_index(drop=True) if n_missing else frame


def split(
    source: Source, model: FrameModel, test_share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows to train and to measure on, by the data set's own split if any."""
    if source.test is not None:
        return source.frame, source.test
    frame = drop_unlabelled(source.frame, source.target)
    labels, groups = model.labels(frame), model.groups(frame)
    how = cast(GroupMode, str(cast(Any, model.estimator).groups))
    attributes = encode_sensitive(groups, len(groups), how)
    check_contrast(labels, attributes)
    if isinstance(model, FrameRegressor):
        labels = assign(labels, find_edges(labels))  # of every size its share
    train, test = part(labels, attributes, test_share, seed)
    return frame.iloc[train], frame.iloc[test]


def check_contrast(labels: NDArray[Any], attributes: Sequence[Attribute]) -> None:
    """Refuse tables with one label, or with nobody to compare with."""
    if np.unique(labels).size < 2:
        kind = "class" if labels.dtype.kind == "U" else "value"
        raise InvalidInputError(
            f"The target has only one {kind}, {str(labels[0])!r}. Expected at least "
            "two."
        )
    for attribute in attributes:
        if len(attribute.groups) < 2:
            raise InvalidInputError(
                f"{attribute.name} has {len(attribute.groups)} group. Expected at "
                "least two to compare; name another column."
            )


def part(
    labels: NDArray[Any], attributes: Sequence[Attribute], test_share: float, seed: int
) -> tuple[IntArray, IntArray]:
    """Return training and test rows; every label and group gives its share."""
    if not 0 < test_share < 1:
        raise InvalidParameterError(
            f"--test-share {test_share:g} came. Expected a share above 0 and below 1."
        )
    if seed < 0:
        raise InvalidParameterError(f"--seed {seed} came. Expected 0 or above.")
    label = np.unique(labels, return_inverse=True)[1]
    stratum = combine([*(attribute.code for attribute in attributes), label])
    return split_strata(stratum, test_share, np.random.default_rng(seed))


def _shipped(name: str, target: str | None, sensitive: Sequence[str] | None) -> Source:
    entry = CATALOG[name]
    target = entry.target if target is None else target
    if target not in entry.targets:
        raise InvalidParameterError(
            f"--target {target} came. Of {name} the target is "
            f"{' or '.join(entry.targets)}."
        )
    columns = _distinct(sensitive) if sensitive else entry.sensitive
    data = entry.load(columns, target)
    parts = [
        frame.drop(columns=list(columns), errors="ignore")
        .join(groups)
        .assign(**{target: y})
        .reset_index(drop=True)
        for frame, groups, y in (
            (data.frame, data.sensitive_features, data.y),
            (data.frame_test, data.sensitive_features_test, data.y_test),
        )
    ]
    return Source(parts[0], parts[1], target, columns)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _read_parquet(path: Path) -> pa.Table:
    return pyarrow.parquet.read_table(path)


def _read_csv(path: Path) -> pa.Table:
    with path.open("rb") as stream:
        header = stream.readline(2**20)
    if not header.strip():
        raise ValueError("it is empty, or begins with an empty line")
    if b"\0" in header:
        raise ValueError("it is no text")
    text = header.decode("utf-8-sig")
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(
            block_size=min(path.stat().st_size + 2, LARGEST_BLOCK)
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=max(DELIMITERS, key=text.count), newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            null_values=GAPS, strings_can_be_null=True
        ),
    )
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise ValueError(f"column {field.name!r} is not encoded in UTF-8")
    return table


def _to_pandas(table: pa.Table, path: Path) -> pd.DataFrame:
    names = table.column_names
    if not all(name.strip() for name in names):
        raise InvalidInputError(
            f"Column {names.index('') + 1 if '' in names else 1} of {path} has no "
            "name. Expected a header that names every column."
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"Two columns of {path} are called {twice!r}. Expected different names."
        )
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame
