"""Tables as commands get them: CSV, Parquet, or a data set by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fferm import datasets
from fferm.cli.options import TaskKind
from fferm.data.frame import as_pandas
from fferm.data.groups import assign, encode_sensitive, find_edges
from fferm.data.rows import combine
from fferm.data.split import split_strata
from fferm.data.validate import Number, check_params
from fferm.datasets._dataset import SHARE
from fferm.datasets._store import CATALOG
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    warn_user,
)
from fferm.estimators.base import FairEstimator
from fferm.estimators.frame import (
    FrameClassifier,
    FrameModel,
    FrameRegressor,
    is_quantity,
)
from fferm.estimators.regression import FairRegressor

# What stands for a missing value in a CSV file.
GAPS = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"]
DELIMITERS = ",;\t|"
# One block of a file this large is read at once, so that types are those of all rows.
LARGEST_BLOCK = 2**31 - 1


@dataclass(frozen=True)
class Source:
    """A table to train on or to audit.

    Attributes
    ----------
    frame
        All rows, or those to train on if the data set has a split of its own.
    test
        The test rows of the data set; None if it has no split.
    target, sensitive
        The columns in question: those named, or the defaults of the data set.
    """

    frame: pd.DataFrame
    test: pd.DataFrame | None
    target: str
    sensitive: tuple[str, ...]

    def is_regression(self, task: TaskKind) -> bool:
        """Return whether the target is to be predicted as a number."""
        if task is not TaskKind.auto or self.target not in self.frame.columns:
            return task is TaskKind.regression
        return is_quantity(self.frame[self.target])

    def model(
        self,
        estimator: FairEstimator,
        drop: Sequence[str] | None,
        drop_sensitive: bool,
        bands: Sequence[str] | None,
    ) -> FrameModel:
        """Return an unfitted model of this table."""
        is_number = isinstance(estimator, FairRegressor)
        return (FrameRegressor if is_number else FrameClassifier)(
            estimator,
            target=self.target,
            sensitive=list(self.sensitive),
            drop=[*(drop or ()), *(self.sensitive if drop_sensitive else ())],
            bands=list(bands or ()),
        )

    def split(
        self, model: FrameModel, test_share: float, seed: int
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return rows to train and to test on, by the data set's own split if any."""
        if self.test is not None:
            return self.frame, self.test
        frame = drop_unlabelled(self.frame, self.target)
        labels, groups = model.labels(frame), model.groups(frame)
        distinct, label = np.unique(labels, return_inverse=True)
        if distinct.size < 2:
            what = "class" if labels.dtype.kind == "U" else "value"
            only = f"only one {what}, {str(labels[0])!r}"
            raise InvalidInputError(f"The target needs two values, but has {only}.")
        attributes = encode_sensitive(groups, len(groups), model.estimator.groups)
        for attribute in attributes:
            if len(attribute.groups) < 2:
                raise InvalidInputError(
                    f"{attribute.name} must have at least two groups; got "
                    f"{len(attribute.groups)}. Name another column."
                )
        values = {"--test-share": test_share, "--seed": seed}
        check_params(values, {"--test-share": SHARE, "--seed": Number(is_whole=True)})
        if isinstance(model, FrameRegressor):
            label = assign(labels, find_edges(labels))  # stratified by size
        stratum = combine([*(each.code for each in attributes), label])
        parts = split_strata(stratum, test_share, np.random.default_rng(seed))
        return frame.iloc[parts[0]], frame.iloc[parts[1]]


def open_source(
    data: str, target: str | None, sensitive: Sequence[str] | None
) -> Source:
    """Return the table of a name or a path."""
    if data not in CATALOG or Path(data).exists():
        target, columns = require_columns(target, sensitive)
        return Source(read_table(Path(data)), None, target, columns)
    entry = CATALOG[data]
    target = entry.targets[0] if target is None else target
    if target not in entry.targets:
        raise InvalidParameterError(
            f"--target must be {' or '.join(entry.targets)} for the data set {data}; "
            f"got {target}."
        )
    columns = tuple(dict.fromkeys(sensitive or entry.sensitive))
    # A loader with one target does not ask which.
    options = {"target": target} if len(entry.targets) > 1 else {}
    rows = getattr(datasets, f"load_{data}")(sensitive=columns, **options)
    train, test = (
        frame.drop(columns=list(columns), errors="ignore")
        .join(groups)
        .assign(**{target: y})
        .reset_index(drop=True)
        for frame, groups, y in (
            (rows.frame, rows.sensitive_features, rows.y),
            (rows.frame_test, rows.sensitive_features_test, rows.y_test),
        )
    )
    return Source(train, test, target, columns)


def require_columns(
    target: str | None, sensitive: Sequence[str] | None
) -> tuple[str, tuple[str, ...]]:
    """Return the columns that a file is read for; raise if one is not named."""
    if target is None or not sensitive:
        missing = "--target" if target is None else "--sensitive"
        raise InvalidParameterError(
            f"{missing} is missing. Name the column, for example {missing} NAME."
        )
    return target, tuple(dict.fromkeys(sensitive))


def read_table(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV or Parquet file."""
    if not path.exists():
        raise InvalidInputError(
            f"{path} does not exist. Name a CSV or Parquet file, or one of the data "
            f"sets {', '.join(CATALOG)}."
        )
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder. Name a CSV or Parquet file.")
    try:
        with path.open("rb") as stream:
            is_parquet = stream.read(4) == b"PAR1"
        table = pyarrow.parquet.read_table(path) if is_parquet else _read_csv(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"Cannot read {path} ({reason}).") from error
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as {'Parquet' if is_parquet else 'CSV'} "
            f"({error}). It needs a header, and rows with as many fields."
        ) from error
    names = pd.Series(table.column_names)
    blank, again = names[names.str.strip() == ""], names[names.duplicated()]
    problem = "" if len(table) else f"{path} has a header and no rows."
    if len(again):
        problem = f"Two columns of {path} are named {again.iloc[0]!r}. Rename one."
    if len(blank):
        problem = f"Column {blank.index[0] + 1} of {path} has no name in the header."
    if problem:
        raise InvalidInputError(problem)
    return as_pandas(table.to_pandas(ignore_metadata=True))


def drop_unlabelled(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the rows that have a label, with a warning if some have none."""
    if target not in frame.columns:
        return frame  # the model refuses it and names all columns
    is_known = frame[target].notna()
    n_missing = int((~is_known).sum())
    if n_missing == len(frame):
        raise InvalidInputError(f"The target {target!r} is missing in every row.")
    if n_missing == 0:
        return frame
    rows = f"{n_missing} of {len(frame)} rows"
    message = f"{rows} have no label in {target!r} and are left out."
    warn_user(message, DataFairnessWarning)
    return frame[is_known].reset_index(drop=True)


def _read_csv(path: Path) -> pa.Table:
    with path.open("rb") as stream:
        header = stream.readline(2**20)
    if not header.strip():
        raise ValueError("it is empty, or begins with an empty line")
    if b"\0" in header:
        raise ValueError("it is not a text file")
    text = header.decode("utf-8-sig")
    block = min(path.stat().st_size + 2, LARGEST_BLOCK)
    delimiter = max(DELIMITERS, key=text.count)
    table = pyarrow.csv.read_csv(
        path,
        pyarrow.csv.ReadOptions(block_size=block),
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pyarrow.csv.ConvertOptions(null_values=GAPS, strings_can_be_null=True),
    )
    for field in table.schema:
        if pa.types.is_binary(field.type):
            raise ValueError(f"column {field.name!r} is not encoded in UTF-8")
    return table
