"""Features as trees take them: numbers with gaps, categories as they are."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from fferm._typing import FloatArray, Table, is_sparse
from fferm.boosting.trees import Columns
from fferm.data.rows import FitInput
from fferm.data.validate import TrainingData, encode_classes, named_errors, refuse_dates
from fferm.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from fferm.estimators.boosting import FairBoostingClassifier

# Mean weights within this range are LightGBM's as they come; others are scaled, for
# its gradients are single precision.
PLAIN_WEIGHTS = (1e-6, 1e6)


def read_training(model: "FairBoostingClassifier", given: FitInput) -> TrainingData:
    """Return training data; rows of weight 0 are gone."""
    X = read_features(model, given.X, reset=True)
    with named_errors():
        y = _check_y(given.y, estimator=model)
        check_consistent_length(X, y)
        check_classification_targets(y)
        weight = _check_sample_weight(
            given.sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
    kept = weight > 0
    if not kept.any():
        raise InvalidInputError(
            "Every sample_weight is 0. Expected at least one positive weight."
        )
    if not kept.all():
        X, y, weight = X[kept], y[kept], weight[kept]
    classes, codes = encode_classes(y)
    return TrainingData(X, codes, classes, _plain(weight), kept)


def read_features(
    model: "FairBoostingClassifier", X: Table, *, reset: bool = False
) -> Table:
    """Return features: a float64 array, a CSR matrix, or a frame with categories."""
    refuse_dates(X)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        with named_errors():
            validate_data(model, X, skip_check_array=True, reset=reset)
        if reset:
            model.categorical_ = _find_categories(model.categorical_features, frame)
        if model.categorical_:
            return _read_frame(frame, model.categorical_)
    with named_errors():
        found = validate_data(
            model,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            order="C",
            reset=reset,
            ensure_all_finite="allow-nan",
        )
    if reset and not isinstance(frame, nw.DataFrame):
        model.categorical_ = _positions(model.categorical_features, found.shape[1])
    _check_codes(found, model.categorical_)
    return sp.csr_matrix(found) if is_sparse(found) else found  # all LightGBM knows


def describe(model: "FairBoostingClassifier", X: Table) -> Columns:
    """Return names that LightGBM takes, and the columns that hold categories."""
    given = getattr(model, "feature_names_in_", None)
    if given is None:
        given = [f"Column_{n}" for n in range(X.shape[1])]
    names: list[str] = []
    for name in given:
        # LightGBM refuses the signs of JSON, and cuts names at spaces.
        plain = re.sub(r"[^\w.+-]", "_", str(name)) or "_"
        while plain in names:
            plain += "_"
        names.append(plain)
    return Columns(names, list(model.categorical_))


def stack(X: Table, more: Table) -> Table:
    """Return the rows of two feature tables, one below the other."""
    if isinstance(X, pd.DataFrame):
        both = pd.concat([X, more], ignore_index=True)
        for name in X.select_dtypes("category"):  # concat forgets unequal levels
            both[name] = both[name].astype("category")
        return both
    if is_sparse(X) or is_sparse(more):
        return sp.vstack([sp.csr_matrix(X), sp.csr_matrix(more)], format="csr")
    return np.vstack([X, more])


def _find_categories(
    asked: Sequence[Any] | None, frame: "nw.DataFrame[Any]"
) -> tuple[int, ...]:
    own = [
        n
        for n, kind in enumerate(frame.schema.values())
        if not (kind.is_numeric() or kind == nw.Boolean)
    ]
    named = _positions(asked, len(frame.columns), frame.columns)
    return tuple(sorted({*own, *named}))


def _positions(
    asked: Sequence[Any] | None, n_columns: int, names: Sequence[str] = ()
) -> tuple[int, ...]:
    found = []
    for column in () if asked is None else asked:
        is_position = isinstance(column, int | np.integer)
        if not is_position and column in names:
            found.append(list(names).index(column))
        elif is_position and 0 <= column < n_columns:
            found.append(int(column))
        else:
            raise InvalidParameterError(
                f"categorical_features names {column!r}, which is no column of X. "
                f"Expected positions below {n_columns}"
                + (f" or names: {', '.join(map(str, names))}." if names else ".")
            )
    return tuple(sorted(set(found)))


def _read_frame(frame: "nw.DataFrame[Any]", categories: Sequence[int]) -> pd.DataFrame:
    data: pd.DataFrame = frame.to_pandas().reset_index(drop=True)
    columns = []
    for n, name in enumerate(frame.columns):
        column = data.iloc[:, n]
        if n in categories:
            is_category = isinstance(column.dtype, pd.CategoricalDtype)
            columns.append(column if is_category else column.astype("category"))
            continue
        with named_errors():
            number = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(number).any():
            raise InvalidInputError(
                f"X has infinity in {name!r}. Expected numbers; a gap may be NaN."
            )
        columns.append(pd.Series(number, name=name))
    return pd.concat(columns, axis=1)


def _check_codes(X: Table, categories: Sequence[int]) -> None:
    for n in categories:
        column = X[:, [n]].toarray()[:, 0] if is_sparse(X) else X[:, n]
        known = column[~np.isnan(column)]
        if np.any(known < 0) or np.any(known % 1):
            raise InvalidInputError(
                f"Column {n} is among categorical_features and holds numbers that are "
                "no codes. Expected whole numbers from 0 on, or NaN; a data frame may "
                "hold text."
            )


def _plain(weight: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        mean = float(np.mean(weight))
    if PLAIN_WEIGHTS[0] <= mean <= PLAIN_WEIGHTS[1]:
        return weight
    scaled: NDArray[np.float64] = np.ldexp(weight, -np.frexp(weight.max())[1])
    return scaled
