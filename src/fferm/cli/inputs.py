"""Tables as commands get them: CSV, Parquet, or a data set by name."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from fferm import datasets
from fferm.cli.options import TaskKind
from fferm.data.frame import as_numbers, as_pandas
from fferm.data.groups import (
    MOST_FRACTIONAL_VALUES,
    Binning,
    assign,
    column_kind,
    encode_sensitive,
    find_edges,
    group_name,
)
from fferm.data.rows import combine
from fferm.data.split import split_strata
from fferm.data.validate import SEED, Number, check_params
from fferm.datasets._dataset import SHARE
from fferm.datasets._store import CATALOG
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    warn_user,
)
from fferm.estimators.base import FairEstimator
from fferm.estimators.regression import FairRegressor
from fferm.registry import close_name, last_step

# What stands for a missing value in a CSV file.
GAPS = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?"]
DELIMITERS = ",;\t|"
DECIMAL_COMMA = r"^[+-]?\d+(,\d+)?$"
# One block of a file this large is read at once, so that types are those of all rows.
LARGEST_BLOCK = 2**31 - 1
# A target with more distinct values than this is a quantity or a name, not a class.
MOST_CLASSES = 100
ANY_SEED = Number(high=SEED.high, is_whole=True)
# With more classes than this, numbers may be meant as a quantity.
FEW_CLASSES = 10


@dataclass(frozen=True)
class Form:
    """How a file is written: what separates fields, its encoding, and its header."""

    sep: str | None = None
    encoding: str = "utf-8"
    header: bool = True

    def __post_init__(self) -> None:
        """Refuse what no CSV file can have."""
        if self.sep is not None:
            object.__setattr__(
                self, "sep", {"\\t": "\t", "tab": "\t"}.get(self.sep, self.sep)
            )
            if len(self.sep or "") != 1:
                raise InvalidParameterError(
                    f"--sep must be one character, or tab; got {self.sep!r}."
                )
        try:
            "a".encode(self.encoding)
        except (LookupError, UnicodeError) as error:
            raise InvalidParameterError(
                f"--encoding must be one that Python knows, such as utf-8 or latin-1; "
                f"got {self.encoding!r}."
            ) from error

    def read(self, path: Path) -> pa.Table:
        """Return the rows of a CSV file, which may be packed."""
        content = _unpacked(path)
        try:
            text = content.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"byte {error.start} is not {self.encoding}; spreadsheets often write "
                "latin-1"
            ) from error
        text = text.removeprefix("\ufeff")
        names = text.partition("\n")[0]
        if not names.strip():
            raise ValueError("it is empty, or begins with an empty line")
        if "\0" in names:
            raise ValueError("it is not a text file")
        content = text.encode()
        delimiter = self.sep or max(DELIMITERS, key=names.count)
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(
                block_size=min(len(content) + 2, LARGEST_BLOCK),
                autogenerate_column_names=not self.header,
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(null_values=GAPS, strings_can_be_null=True),
        )
        return _with_decimal_points(table) if delimiter == ";" else table


DEFAULT_FORM = Form()


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
    dropped
        The columns not to predict from, beside the target.
    """

    frame: pd.DataFrame
    test: pd.DataFrame | None
    target: str
    sensitive: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    def without(
        self,
        drop: Sequence[str] | None,
        drop_sensitive: bool,
        bands: Sequence[str] | None,
    ) -> "Source":
        """Return the same table, not to be predicted from some columns."""
        for name in bands or ():
            if name not in self.sensitive:
                raise InvalidParameterError(
                    f"--bands names {name!r}, which is not a sensitive column. "
                    f"Sensitive columns: {', '.join(self.sensitive)}."
                )
        for name in drop or ():  # a misspelled column would stay among the features
            column_of(self.frame, name, "column to drop")
        others = self.sensitive if drop_sensitive else ()
        return replace(self, dropped=(*(drop or ()), *others))

    def is_regression(self, task: TaskKind) -> bool:
        """Return whether the target is to be predicted as a number."""
        if task is not TaskKind.auto or self.target not in self.frame.columns:
            return task is TaskKind.regression
        return is_quantity(self.frame[self.target])

    def describe_target(self, task: TaskKind) -> str:
        """Return how a numeric target of many values is taken; empty for others."""
        if self.target not in self.frame.columns or task is not TaskKind.auto:
            return ""
        column = self.frame[self.target]
        n_values = column.nunique()
        if column_kind(column) == "label" or n_values <= FEW_CLASSES:
            return ""
        if is_quantity(column):
            taken = "a regression predicts it; for classes pass --task classification"
        else:
            taken = f"as {n_values} classes; to predict a number pass --task regression"
        return f"The target {self.target!r} has {n_values} distinct numbers: {taken}."

    def rows(self, frame: pd.DataFrame, is_regression: bool) -> dict[str, Any]:
        """Return features, target and groups of some rows, as `fit` takes them."""
        target = column_of(frame, self.target, "target")
        if self.target in self.sensitive:
            raise InvalidParameterError(
                f"--sensitive must name other columns and not the target, "
                f"{self.target!r}."
            )
        for name in self.sensitive:
            column_of(frame, name, "sensitive column")
        read = target_numbers if is_regression else target_labels
        return {
            "X": frame.drop(columns=[self.target, *self.dropped], errors="ignore"),
            "y": read(target),
            "sensitive_features": frame[list(self.sensitive)],
        }

    def split(
        self, estimator: FairEstimator, test_share: float, seed: int
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return rows to train and to test on, by the data set's own split if any."""
        is_regression = isinstance(estimator, FairRegressor)
        if self.test is not None:
            train, test = self.frame, self.test
            return self.rows(train, is_regression), self.rows(test, is_regression)
        frame = drop_unlabelled(self.frame, self.target)
        rows = self.rows(frame, is_regression)
        labels, groups = rows["y"], rows["sensitive_features"]
        label, distinct = pd.factorize(labels, sort=True)
        if len(distinct) < 2:
            what = "value" if is_regression else "class"
            only = f"only one {what}, {str(distinct[0])!r}"
            raise InvalidInputError(
                f"The target needs two values, but has {only}. Name another column."
            )
        if all(_is_constant(rows["X"][name]) for name in rows["X"].columns):
            names = ", ".join(rows["X"].columns)
            why = f"{names} each have one value" if names else "none is left"
            raise InvalidInputError(f"No column to predict from: {why}. Add one.")
        binning = Binning(estimator.continuous)
        attributes = encode_sensitive(groups, len(groups), estimator.groups, binning)
        for attribute in attributes:
            if len(attribute.groups) < 2:
                raise InvalidInputError(
                    f"{attribute.name} must have at least two groups; got "
                    f"{len(attribute.groups)}. Name another column."
                )
        values = {"--test-share": test_share, "--seed": seed}
        check_params(values, {"--test-share": SHARE, "--seed": ANY_SEED})
        if is_regression:
            numbers = labels.to_numpy()
            label = assign(numbers, find_edges(numbers))  # stratified by size
        stratum = combine([*(each.code for each in attributes), label])
        parts = split_strata(stratum, test_share, np.random.default_rng(seed))
        train, test = frame.iloc[parts[0]], frame.iloc[parts[1]]
        return self.rows(train, is_regression), self.rows(test, is_regression)


def open_source(
    data: str,
    target: str | None,
    sensitive: Sequence[str] | None,
    form: Form = DEFAULT_FORM,
) -> Source:
    """Return the table of a name or a path."""
    if data not in CATALOG or Path(data).exists():
        target, columns = require_columns(target, sensitive)
        return Source(read_table(Path(data), form), None, target, columns)
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


def read_rows(data: str, form: Form) -> pd.DataFrame:
    """Return the rows of a file, or the test rows of a data set by name."""
    if data not in CATALOG or Path(data).exists():
        return read_table(Path(data), form)
    source = open_source(data, None, None)
    return source.frame if source.test is None else source.test


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


def read_table(path: Path, form: Form = DEFAULT_FORM) -> pd.DataFrame:
    """Return the rows of a CSV file, a Parquet file or a folder of Parquet files."""
    if not path.exists():
        raise InvalidInputError(
            f"{path} does not exist. Name a CSV or Parquet file, or one of the data "
            f"sets {', '.join(CATALOG)}."
        )
    is_parquet = path.is_dir()
    if is_parquet and not any(path.glob("**/*.parquet")):
        raise InvalidInputError(
            f"{path} is a folder without Parquet files. Name a CSV or Parquet file, or "
            "a folder of Parquet files."
        )
    try:
        is_parquet = is_parquet or _begins_with(path, b"PAR1")
        read = pyarrow.parquet.read_table if is_parquet else form.read
        table = read(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInputError(f"Cannot read {path} ({reason}).") from error
    except (pa.ArrowException, ValueError, EOFError, zlib.error) as error:
        raise InvalidInputError(
            f"{path} cannot be read as {'Parquet' if is_parquet else 'CSV'} "
            f"({error}). It needs a header (or --no-header), rows with as many fields, "
            "and the right --sep and --encoding."
        ) from error
    _check_names(table, path)
    return as_pandas(table.to_pandas(ignore_metadata=True))


def _begins_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(mark)) == mark


def _check_names(table: pa.Table, path: Path) -> None:
    names = pd.Series(table.column_names)
    blank, again = names[names.str.strip() == ""], names[names.duplicated()]
    problem = "" if len(table) else f"{path} has a header and no rows. Add rows."
    if len(again):
        problem = f"Two columns of {path} are named {again.iloc[0]!r}. Rename one."
    if len(blank):
        problem = (
            f"Column {blank.index[0] + 1} of {path} has no name. Name it in the header."
        )
    if problem:
        raise InvalidInputError(problem)


def target_labels(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a target of classes as it is; raise if its values are not classes."""
    n_missing = int(column.isna().sum())
    if n_missing:
        raise InvalidInputError(
            f"Column {column.name!r} has {n_missing} gaps. Drop those rows first."
        )
    fractions = [v for v in column if isinstance(v, float) and not v.is_integer()]
    if fractions:
        raise InvalidInputError(
            f"The target {column.name!r} contains fractional numbers such as "
            f"{fractions[0]!r}, not classes. Cut it into bands, or predict a number."
        )
    if column.dtype.kind == "f":
        column = column.astype(np.int64)  # gaps, now gone, made floats of integers
    labels = {str(label).strip().casefold(): label for label in column.unique()}
    for label in column.unique():
        if (other := labels[str(label).strip().casefold()]) != label:
            warn_user(
                f"Column {column.name!r} has {str(label)!r} and {str(other)!r}, which "
                "differ only in spaces or capitals and count as two classes.",
                DataFairnessWarning,
            )
    n_classes = column.nunique()
    if n_classes > MOST_CLASSES:
        raise InvalidInputError(
            f"The target {column.name!r} must have at most {MOST_CLASSES} classes; got "
            f"{n_classes} distinct values. Name another column, or cut it into bands."
        )
    return column


def known_labels(column: "pd.Series[Any]", classes: Sequence[Any]) -> "pd.Series[Any]":
    """Return labels as the classes of training; 1, 1.0 and "1" are one label."""
    known = {group_name(label): label for label in classes}
    labels = [group_name(value) for value in target_labels(column)]
    unknown = sorted({str(label) for label in labels if label not in known})
    if unknown:
        raise InvalidInputError(
            f"The target {column.name!r} contains {unknown[0]!r}, which is not a label "
            f"of training: {', '.join(map(repr, known))}."
        )
    values = [known[label] for label in labels]
    return pd.Series(values, index=column.index, name=column.name)


def target_numbers(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a target as finite numbers; raise if it has other values."""
    numbers = as_numbers(column)
    if numbers is None:
        raise InvalidInputError(
            f"Column {column.name!r} must be numbers; got "
            f"{column.dropna().iloc[0]!r}. Name another column."
        )
    n_bad = int((~np.isfinite(numbers)).sum())
    if n_bad:
        raise InvalidInputError(
            f"Column {column.name!r} is missing or infinite in {n_bad} of "
            f"{len(numbers)} rows. Every row needs a finite number; drop those rows."
        )
    return pd.Series(numbers, index=column.index, name=column.name)


def is_quantity(column: "pd.Series[Any]") -> bool:
    """Return whether a target is a quantity: numbers, too many for classes."""
    if column_kind(column) == "label":
        return False
    values = column.dropna().to_numpy(dtype=np.float64)
    distinct = np.unique(values[np.isfinite(values)])
    has_fractions = bool(np.any(distinct % 1))
    return distinct.size > (MOST_FRACTIONAL_VALUES if has_fractions else MOST_CLASSES)


def column_of(frame: pd.DataFrame, name: str, role: str) -> "pd.Series[Any]":
    """Return a column; raise if there is none of this name."""
    if name in frame.columns:
        return frame[name]
    close = close_name(name, list(frame.columns))
    hint = f" Did you mean {close!r}?" if close else ""
    if len(frame.columns) == 1:
        hint = " There is only one column; check --sep."
    raise InvalidInputError(
        f"The data have no column {name!r}, the {role}.{hint} Columns: "
        f"{', '.join(frame.columns)}."
    )


def _is_constant(column: "pd.Series[Any]") -> bool:
    try:
        return column.nunique() < 2
    except TypeError:  # lists and the like, which training refuses by name
        return False


def features_of(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that a model predicts from; those it ignores may be absent."""
    names = list(model.feature_names_in_)
    encoder = getattr(last_step(model), "encoder_", None)
    used = {column["name"] for column in encoder.columns_} if encoder else {*names}
    for name in names:
        if name in used:
            column_of(frame, name, "column that the model predicts from")
    return frame.reindex(columns=names)


def drop_unlabelled(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return the rows that have a label, with a warning if some have none."""
    if target not in frame.columns:
        return frame  # the model refuses it and names all columns
    is_known = frame[target].notna()
    n_missing = int((~is_known).sum())
    if n_missing == len(frame):
        raise InvalidInputError(
            f"The target {target!r} is missing in every row. Name another column."
        )
    if n_missing == 0:
        return frame
    rows = f"{n_missing} of {len(frame)} rows"
    message = f"{rows} have no label in {target!r} and are left out."
    warn_user(message, DataFairnessWarning)
    return frame[is_known].reset_index(drop=True)


def _with_decimal_points(table: pa.Table) -> pa.Table:
    # Fields are separated by semicolons where numbers have a decimal comma.
    for place, (name, column) in enumerate(
        zip(table.column_names, table.columns, strict=True)
    ):
        if not pa.types.is_string(column.type):
            continue
        is_number = pc.match_substring_regex(column, DECIMAL_COMMA)
        if pc.all(is_number, min_count=1).as_py():
            numbers = pc.replace_substring(column, ",", ".").cast(pa.float64())
            table = table.set_column(place, name, numbers)
    return table


def _unpacked(path: Path) -> bytes:
    # The bytes of a text file, or of the one file in an archive.
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        return gzip.decompress(content)
    if content[:4] != b"PK\x03\x04":
        return content
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [n for n in archive.namelist() if not n.endswith("/")]
            if len(names) != 1:
                raise ValueError(f"the archive holds {len(names)} files, not one")
            return archive.read(names[0])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"the archive is damaged: {error}") from error
