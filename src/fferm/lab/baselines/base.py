"""What every baseline shares: its data, its trade-off parameter and its predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.groups import Binning, encode_sensitive
from fferm.data.rows import check_aligned, encode_rows
from fferm.data.validate import (
    COUNT,
    POSITIVE,
    Constraint,
    Number,
    check_params,
    named_errors,
    validate_rows,
    validate_training,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    MissingSensitiveError,
    NonFiniteError,
)
from fferm.notions import Labels, Notion
from fferm.notions import get as get_notion

# Shares of the plain difference that may be left, from plain training on.
SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0)


class TrainingRows(NamedTuple):
    """Training rows as baselines, and their compiled loop, take them.

    Attributes
    ----------
    X
        (n_samples, n_features) float64, dense.
    y
        (n_samples,) 1.0 for the larger of the two labels, else 0.0.
    group
        (n_samples,) codes of the groups; several columns count jointly.
    stratum
        (n_samples,) codes of what the notion conditions on, -1 for rows that it leaves
        out.
    n_groups, n_strata
        How many groups and strata there are.
    """

    X: FloatArray
    y: FloatArray
    group: IntArray
    stratum: IntArray
    n_groups: int
    n_strata: int


class Baseline(ClassifierMixin, BaseEstimator, ABC):
    """Base of the baselines: all have ``fit(X, y, *, sensitive_features)``.

    A baseline declares which of its parameters trades accuracy for fairness and what
    its parameters may be, writes `_train` and `_chance`, and says in its docstring
    where it is from (``References``) and what differs from the original (``Notes``).
    `fferm.testing.check_baseline` holds it to that.

    Notes
    -----
    Baselines know two classes. Learned attributes: ``classes_``, ``groups_``,
    ``band_edges_`` (where the bands of sensitive numbers meet), ``n_features_in_`` and,
    for data frames, ``feature_names_in_``.
    """

    kind: ClassVar[str] = "baseline"
    #: What each parameter may be, of whichever a baseline has.
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "fairness_weight": Number(),
        "share": Number(high=1),
        "l2": Number(),
        "batch_size": Number(1, is_whole=True, is_optional=True),
        "max_epochs": COUNT,
        "learning_rate": POSITIVE,
        "noise": Number(),
        "curvature_weight": Number(),
        "reconstruction_weight": Number(),
        "n_prototypes": COUNT,
        "unfairness_share": Number(high=1),  # beyond it the problem is not convex
        "radius": Number(),
        "difference_bound": Number(),
        "constraint_weight": Number(),
        "grid_size": COUNT,
        "tolerance": Number(),
    }
    #: The parameter that trades accuracy for fairness.
    tradeoff_param: ClassVar[str] = "fairness_weight"
    #: Its values from plain training to the fairest that is worth trying.
    tradeoff_values: ClassVar[tuple[float, ...]]
    #: What the fairest of them may leave of the plain violation.
    largest_rest: ClassVar[float] = 0.5
    #: The notions that the method is made for.
    notions: ClassVar[tuple[str, ...]] = (
        "demographic_parity",
        "equal_opportunity",
        "equalized_odds",
    )
    #: Whether decisions are drawn by chance, so that only expectations are fixed.
    is_randomized: ClassVar[bool] = False
    #: Whether groups have to be known to predict.
    predicts_with_groups: ClassVar[bool] = False
    #: Whether the method is made for two groups.
    takes_two_groups: ClassVar[bool] = False
    #: Whether ``fit`` takes ``penalty_data``, unlabelled rows to be fair on.
    takes_penalty_data: ClassVar[bool] = False

    groups_: tuple[str, ...]
    notion: str | Notion = "demographic_parity"
    random_state: int | np.random.RandomState | None = None
    classes_: NDArray[Any]

    def fit(self, X: Table, y: Table, *, sensitive_features: Table = None) -> Self:
        """Train on data.

        Parameters
        ----------
        X
            (n_samples, n_features): array, CSR matrix or numeric data frame.
        y
            (n_samples,) labels of two classes.
        sensitive_features
            The group of each row: list, array (n,) or (n, a), Series, DataFrame or
            dict of arrays, without missing values.

        Returns
        -------
        Self
        """
        self._train(self._encode(X, y, sensitive_features))
        return self

    def predict(self, X: Table, *, sensitive_features: Table = None) -> NDArray[Any]:
        """Return the decision on each row.

        Parameters
        ----------
        X
            (n_samples, n_features).
        sensitive_features
            For baselines that declare ``predicts_with_groups``; no other looks at it.
        """
        chance = self.predict_proba(X, sensitive_features=sensitive_features)[:, 1]
        bar: FloatArray | float = 0.5
        if self.is_randomized:
            bar = check_random_state(self.random_state).random_sample(chance.size)
        return np.asarray(self.classes_[(chance > bar).astype(np.int64)])

    def predict_proba(
        self, X: Table, *, sensitive_features: Table = None
    ) -> FloatArray:
        """Return the (n_samples, 2) probabilities; drawn decisions follow them.

        Parameters
        ----------
        X, sensitive_features
            As in `predict`.
        """
        X = self._features(X)
        if self.predicts_with_groups and sensitive_features is None:
            raise MissingSensitiveError(
                f"{type(self).__name__} decides by group and needs sensitive_features. "
                "Pass predict(X, sensitive_features=...)."
            )
        chance = self._chance(X, sensitive_features)
        return np.column_stack([1 - chance, chance])

    @abstractmethod
    def _train(self, rows: TrainingRows) -> None:
        """Learn from encoded rows; set attributes that end in an underscore."""

    @abstractmethod
    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        """Return the (n_samples,) probability of the larger label."""

    def _features(self, X: Table) -> FloatArray:
        """Return features to predict on, dense, checked against those of training."""
        with named_errors():
            check_is_fitted(self, "classes_")
        return _dense(validate_rows(self, X)[0])

    def _encode(self, X: Table, y: Table, sensitive_features: Table) -> TrainingRows:
        name = type(self).__name__
        if sensitive_features is None:
            raise MissingSensitiveError(
                f"{name} needs sensitive_features to train. Pass fit(X, y, "
                "sensitive_features=...)."
            )
        check_params(self.get_params(deep=False), self.constraints)
        check_aligned(X=X, y=y, sensitive_features=sensitive_features)
        notion = self._notion()
        data = validate_training(self, X, y, None)
        labels = Labels(data.y.size, data.y, tuple(data.classes.tolist()))
        rows = encode_rows(sensitive_features, notion, labels)
        attribute = rows.attributes[0]
        counts = {"classes": data.classes.size}
        if self.takes_two_groups:
            counts["groups"] = len(attribute.groups)
        for what, count in counts.items():
            if count != 2:
                raise InvalidInputError(
                    f"{name} needs two {what}; got {count}. Merge {what}, or use "
                    "FairLogisticRegression, which takes any number."
                )
        n_missing = int(np.sum(attribute.code < 0))
        if n_missing:
            raise InvalidInputError(
                f"{n_missing} rows have no value of {attribute.name} and {name} needs "
                "one in each. Drop those rows first."
            )
        self.classes_ = data.classes
        self.groups_ = attribute.groups
        self.band_edges_ = rows.band_edges
        return TrainingRows(
            _dense(data.X),
            data.y.astype(np.float64),
            np.require(attribute.code, requirements=["C", "W"]),
            np.require(rows.strata.code, requirements=["C", "W"]),
            len(attribute.groups),
            len(rows.strata.names),
        )

    def _notion(self) -> Notion:
        notion = get_notion(self.notion)
        if notion.name not in self.notions:
            raise InvalidParameterError(
                f"notion of {type(self).__name__} must be one of "
                f"{', '.join(self.notions)}; got {self.notion!r}."
            )
        return notion

    def _group_codes(self, sensitive_features: Table, n_samples: int) -> IntArray:
        """Return the code of each row's group among those that were trained on."""
        binning = Binning(edges=self.band_edges_)
        (attribute,) = encode_sensitive(sensitive_features, n_samples, binning=binning)
        unknown = [name for name in attribute.groups if name not in self.groups_]
        if unknown or np.any(attribute.code < 0):
            raise InvalidInputError(
                f"{type(self).__name__} was not trained on the groups "
                f"{unknown or 'of rows without a value'}. Known groups: "
                f"{', '.join(self.groups_)}."
            )
        code = [self.groups_.index(name) for name in attribute.groups]
        return np.array(code, dtype=np.int64)[attribute.code]


class LinearBaseline(Baseline):
    """A baseline whose log-odds are linear in the features."""

    coef_: FloatArray
    intercept_: FloatArray

    def decision_function(self, X: Table) -> FloatArray:
        """Return the (n_samples,) scores of the larger label."""
        return np.asarray(self._features(X) @ self.coef_[0] + self.intercept_[0])

    def _chance(self, X: FloatArray, sensitive_features: Table) -> FloatArray:
        return np.asarray(expit(X @ self.coef_[0] + self.intercept_[0]))

    def _store(self, theta: FloatArray) -> None:
        """Keep coefficients and, last, the intercept."""
        if not np.all(np.isfinite(theta)):
            raise NonFiniteError(
                f"{type(self).__name__} reached coefficients that are not finite. "
                f"Scale the features, or change {self.tradeoff_param}."
            )
        self.coef_, self.intercept_ = theta[None, :-1], theta[-1:]


def _dense(X: Table) -> FloatArray:
    # The originals are written for dense arrays, and so are ours.
    dense = X.toarray() if is_sparse(X) else X
    return np.require(dense, dtype=np.float64, requirements=["C", "W"])
