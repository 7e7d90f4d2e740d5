"""What models of whole frames share: an encoding, an estimator, columns by name."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from fferm._typing import Table
from fferm.data.groups import (
    BandEdges,
    assign,
    band_names,
    find_edges,
    read_numbers,
)
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairEstimator
from fferm.frames.encoder import FrameEncoder, as_pandas

LISTS = ("sensitive", "left_out", "bands")


class FrameModel(BaseEstimator):
    """A fair estimator beside the encoding of its columns; see its two kinds."""

    encoder_: FrameEncoder
    estimator_: Any

    def __init__(
        self,
        estimator: FairEstimator,
        *,
        target: str,
        sensitive: Sequence[str],
        left_out: Sequence[str] = (),
        bands: Sequence[str] = (),
    ) -> None:
        self.estimator = estimator
        self.target = target
        self.sensitive = sensitive
        self.left_out = left_out
        self.bands = bands

    @abstractmethod
    def labels(self, frame: Table) -> NDArray[Any]:
        """Return what is true of each row: labels as text, or numbers.

        Parameters
        ----------
        frame
            Data frame with the target.
        """

    def fit(self, frame: Table, y: Table = None) -> Self:
        """Learn encoding and model from the training rows.

        Parameters
        ----------
        frame
            Data frame with the target, the sensitive and all other columns.
        y
            Not used: the target is a column of the frame.

        Returns
        -------
        Self
        """
        frame = as_pandas(frame)
        labels = self.labels(frame)
        self.edges_ = self._find_edges(frame)
        self.encoder_ = self.learn_encoding(frame)
        self.estimator_ = clone(self.estimator).fit(
            self.encoder_.transform(frame),
            labels,
            sensitive_features=self.groups(frame),
        )
        return self

    def learn_encoding(self, frame: Table) -> FrameEncoder:
        """Return how the columns that the model predicts from become numbers.

        Parameters
        ----------
        frame
            The training rows.
        """
        frame = as_pandas(frame)
        _refuse_text("left_out", self.left_out)
        for name in self.left_out:  # a slip of the pen would let the column in
            self._column(frame, name, "column to leave out")
        gone = [self.target, *self.left_out]
        return FrameEncoder().fit(frame.drop(columns=gone, errors="ignore"))

    def sensitive_values(self, frame: Table) -> pd.DataFrame:
        """Return the sensitive columns as they are.

        Parameters
        ----------
        frame
            Data frame with the sensitive columns.
        """
        frame = as_pandas(frame)
        _refuse_text("sensitive", self.sensitive)
        _refuse_text("bands", self.bands)
        if not len(self.sensitive) or self.target in self.sensitive:
            raise InvalidParameterError(
                f"sensitive={list(self.sensitive)} came. Expected one column at least, "
                f"and none that is the target {self.target!r}."
            )
        strange = [name for name in self.bands if name not in self.sensitive]
        if strange:
            raise InvalidParameterError(
                f"bands names {strange[0]!r}, which is no sensitive column. Expected "
                f"columns among {', '.join(self.sensitive)}."
            )
        return pd.DataFrame(
            {
                name: self._column(frame, name, "sensitive column")
                for name in self.sensitive
            },
            index=frame.index,
        )

    def groups(self, frame: Table, train: Table = None) -> pd.DataFrame:
        """Return the sensitive columns, those of ``bands`` cut as in training.

        Parameters
        ----------
        frame
            Data frame with the sensitive columns.
        train
            Of a model that is not fitted: the rows to cut by, by default these.
        """
        found = self.sensitive_values(frame)
        edges = getattr(self, "edges_", None)
        if edges is None:
            edges = self._find_edges(frame if train is None else train)
        for name, limits in edges.items():
            names = np.array([*band_names(limits), None], dtype=object)
            found[name] = names[assign(read_numbers(found[name], name), limits)]
        return found

    @property
    def band_edges_(self) -> BandEdges:
        """Where bands of sensitive numbers met in training, by column."""
        own = {name: tuple(map(float, cut)) for name, cut in self.edges_.items()}
        return {**own, **getattr(self.estimator_, "band_edges_", {})}

    def predict(self, frame: Table) -> NDArray[Any]:
        """Return the prediction for each row; groups are not needed.

        Parameters
        ----------
        frame
            Data frame with the columns that the model predicts from.
        """
        check_is_fitted(self, "estimator_")
        found: NDArray[Any] = self.estimator_.predict(self.encoder_.transform(frame))
        return found

    def _find_edges(self, frame: Table) -> dict[str, Any]:
        found = self.sensitive_values(frame)
        return {
            name: find_edges(read_numbers(found[name], name)) for name in self.bands
        }

    def _column(self, frame: pd.DataFrame, name: str, kind: str) -> "pd.Series[Any]":
        if name in frame.columns:
            return frame[name]
        raise InvalidInputError(
            f"The data have no column {name!r}, the {kind}. Columns: "
            f"{', '.join(map(str, frame.columns))}."
        )

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters = self.get_params(deep=False)
        for name in LISTS:
            parameters[name] = list(parameters[name])
        learned = ("edges_", "encoder_", "estimator_")
        return parameters, {name: getattr(self, name) for name in learned}

    def _from_saved(self, learned: dict[str, Any]) -> None:
        for name, value in learned.items():
            setattr(self, name, value)


def _refuse_text(parameter: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise InvalidParameterError(
            f"{parameter}={names!r} came. Expected a list of columns: [{names!r}]."
        )
