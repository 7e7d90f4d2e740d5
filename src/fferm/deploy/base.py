"""What all corrections share: a frozen scorer, cells of rows, and decisions."""

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.predictions import ask_booster
from fferm.data.groups import (
    BandEdges,
    Binning,
    encode_column,
    encode_sensitive,
    split_columns,
)
from fferm.data.rows import check_aligned
from fferm.data.validate import (
    Constraint,
    check_params,
    encode_labels,
    encode_prob,
    named_errors,
    read_array,
)
from fferm.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingSensitiveError,
    NotFittedError,
    PersistenceError,
)
from fferm.notions import Labels, Notion
from fferm.registry import Saved, kind_of

# The logarithm of a probability of 0, as far as offsets are concerned.
LEAST = 1e-300


@dataclass(kw_only=True, eq=False, repr=False)
class CorrectedClassifier(ClassifierMixin, Saved, BaseEstimator, ABC):
    """A frozen scorer and a correction of its scores, as one model.

    A subclass says how probabilities are corrected; `predict` returns the class whose
    corrected probability is largest.

    Parameters
    ----------
    model
        The frozen scorer: a fitted classifier with ``predict_proba``, a booster, a
        function of X that returns probabilities, or None if X holds the probabilities
        themselves, (n_samples,) of the second of two classes or (n_samples, n_classes).
    notion
        The notion of fairness that the correction is for, which audits use.

    Attributes
    ----------
    classes_ : ndarray
    groups_ : tuple of the names of groups that are told apart; empty if none are
    domains_ : tuple of the names of domains that are told apart; empty if none are
    """

    model: Any = None
    notion: str | Notion = "demographic_parity"
    constraints: ClassVar[Mapping[str, Constraint]] = {}
    classes_: NDArray[Any] = field(init=False)
    groups_: tuple[str, ...] = field(init=False, default=())
    domains_: tuple[str, ...] = field(init=False, default=())
    band_edges_: BandEdges = field(init=False, default_factory=dict)
    sensitive_names_: tuple[str, ...] = field(init=False, default=())
    target_name_: str = field(init=False, default="")
    # The column of X that holds the domain, if it is one.
    domain_name_: str = field(init=False, default="")
    # A file cannot hold every scorer: whether one has to be passed to `fferm.load`.
    lacks_model_: bool = field(init=False, default=False)

    @abstractmethod
    def _correct(
        self, prob: FloatArray, X: Table, group: IntArray, domain: IntArray
    ) -> FloatArray:
        """Return corrected (n_samples, n_classes) probabilities.

        Parameters
        ----------
        prob
            (n_samples, n_classes) probabilities of the scorer.
        X
            What the scorer saw.
        group, domain
            (n_samples,) positions in ``groups_`` and ``domains_``, -1 for none.
        """

    @property
    def predicts_with_groups(self) -> bool:
        """Whether groups have to be known to predict."""
        inside = getattr(self.model, "predicts_with_groups", False)
        return bool(self.groups_) or bool(inside)

    def predict(
        self,
        X: Table = None,
        *,
        sensitive_features: Table = None,
        domain: Table = None,
        scores: Table = None,
    ) -> NDArray[Any]:
        """Return the decision on each row.

        Parameters
        ----------
        X
            (n_samples, n_features) what the model reads; the scores, if there is no
            model and ``scores`` are not passed.
        sensitive_features
            The group of each row, where ``predicts_with_groups``. Rows without a value
            keep what their domain has in common, or the frozen decision.
        domain
            The domain of each row, or one for all, unless the correction knows which
            column of X it is. A domain that is not among ``domains_`` gets what all
            domains have in common.
        scores
            Scores of these rows, in place of the model's.
        """
        prob = self.predict_proba(
            X, sensitive_features=sensitive_features, domain=domain, scores=scores
        )
        return np.asarray(self.classes_[prob.argmax(axis=1)])

    def predict_proba(
        self,
        X: Table = None,
        *,
        sensitive_features: Table = None,
        domain: Table = None,
        scores: Table = None,
    ) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities, which agree with `predict`.

        Parameters
        ----------
        X, sensitive_features, domain, scores
            As in `predict`.
        """
        self._check_started()
        if self.lacks_model_ and self.model is None and scores is None:
            raise PersistenceError(
                "The file of this correction does not hold the model that it corrects. "
                "Pass it: fferm.load(path, model=...)."
            )
        if self.predicts_with_groups and sensitive_features is None:
            raise MissingSensitiveError(
                f"{type(self).__name__} decides by group and needs sensitive_features. "
                "Pass predict(X, sensitive_features=...)."
            )
        if domain is None:
            domain = getattr(self, "_domain", None)
        rows = {"X": X, "sensitive_features": sensitive_features, "scores": scores}
        check_aligned(**rows, domain=domain)
        if self.domain_name_:
            domain, X = take_domain(X, self.domain_name_, self.model, domain)
        prob = self._read_prob(X, sensitive_features, domain, scores)
        n_samples, n_classes = prob.shape
        if n_classes != len(self.classes_):
            raise InvalidInputError(
                f"The model must give {len(self.classes_)} probabilities a row, one "
                f"for each of {self.classes_.tolist()}; got {n_classes}."
            )
        group, place = np.full((2, n_samples), -1)
        if self.groups_:
            group = self._group_codes(sensitive_features, n_samples)
        if self.domains_ and domain is not None:
            names, code = read_domain(domain, n_samples)
            known = {name: c for c, name in enumerate(self.domains_)}
            place = np.array([*(known.get(name, -1) for name in names), -1])[code]
        return self._correct(prob, X, group, place)

    def _check_started(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted. Call fit before predict."
            )

    def _read_prob(
        self, X: Table, sensitive_features: Table, domain: Table, scores: Table
    ) -> FloatArray:
        """Return the (n_samples, n_classes) probabilities of the frozen scorer."""
        if scores is not None:
            return read_prob(None, scores)
        return read_prob(self.model, X, sensitive_features, domain)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns of X: those of the model, and that of the domain."""
        names = list(self.model.feature_names_in_)
        if self.domain_name_ and self.domain_name_ not in names:
            names.append(self.domain_name_)
        return np.array(names, dtype=object)

    def at(self, domain: object) -> Self:
        """Return the same model for rows of one domain, which is then not passed."""
        model = copy.copy(self)
        model._domain = str(domain)
        return model

    def _learn_groups(self, sensitive_features: Table, n_samples: int) -> IntArray:
        """Keep the names of groups; return the code of each row, -1 if missing."""
        (attribute,) = encode_sensitive(sensitive_features, n_samples)
        self.groups_, self.band_edges_ = attribute.groups, dict(attribute.edges)
        self.sensitive_names_ = tuple(dict(split_columns(sensitive_features)))
        return attribute.code

    def _group_codes(self, sensitive_features: Table, n_samples: int) -> IntArray:
        binning = Binning(edges=self.band_edges_, warns=False)
        (attribute,) = encode_sensitive(sensitive_features, n_samples, binning=binning)
        unknown = [name for name in attribute.groups if name not in self.groups_]
        if unknown:
            raise InvalidInputError(
                f"{type(self).__name__} has never seen the groups {unknown}. Known: "
                f"{', '.join(self.groups_)}. Correct the model on rows of them."
            )
        code = [*map(self.groups_.index, attribute.groups), -1]
        return np.array(code, dtype=np.int64)[attribute.code]

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from fferm.persistence import can_hold

        params, learned = super()._to_saved()
        if self.model is not None and not can_hold(self.model):
            params["model"], learned["lacks_model_"] = None, True
        return params, learned

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        check_params(vars(self), self.constraints)
        names = [self.groups_, self.domains_, self.sensitive_names_, self.band_edges_]
        words = [self.domain_name_, *itertools.chain(*names)]
        numbers = itertools.chain(*dict(self.band_edges_).values())
        kinds = type(self.band_edges_), type(self.classes_)
        is_fit = kinds == (dict, np.ndarray)
        is_fit = is_fit and all(isinstance(word, str) for word in words)
        is_fit = is_fit and all(isinstance(number, float) for number in numbers)
        if not is_fit or np.ndim(self.classes_) != 1:
            raise PersistenceError(
                "A correction must have a row of classes, names of groups and domains, "
                f"and numbers between bands; got {self.classes_!r:.99}, {names!r:.200}."
            )

    def _check_numbers(self, name: str, shape: tuple[int, ...]) -> None:
        array = getattr(self, name)
        if np.shape(array) != shape or np.asarray(array).dtype.kind not in "fiu":
            raise PersistenceError(
                f"{name} must have shape {shape} and hold numbers; got {array!r:.200}."
            )


def take_domain(
    X: Table, name: str, model: Any, domain: Table = None
) -> tuple[Table, Table]:
    """Return the domain of each row, and X as the model knows it.

    Parameters
    ----------
    X
        A data frame with a column of this name, which is taken from it unless the model
        was trained on it; it may lack it if the domain is passed.
    name
        The column that holds the domain.
    model
        What X is for.
    domain
        As passed; None looks it up.
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or name not in frame.columns:
        if domain is not None:
            return domain, X
        raise InvalidInputError(
            f"X must be a data frame with the column {name!r}, which holds the domain; "
            f"got {kind_of(X)}. Pass one domain per row instead: domain=[...]."
        )
    while isinstance(model, CorrectedClassifier):
        model = model.model
    used = getattr(model, "feature_names_in_", frame.columns)
    X = X if name in used else frame.drop(name).to_native()
    return frame[name] if domain is None else domain, X


def read_domain(domain: Table, n_samples: int) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of domains and the code of each row, -1 where it is missing."""
    if isinstance(domain, str):
        domain = np.full(n_samples, domain)
    attribute = encode_column(domain, "domain", n_samples, is_batch=True)
    return attribute.groups, attribute.code


def read_prob(
    model: Any, X: Table, sensitive_features: Table = None, domain: Table = None
) -> FloatArray:
    """Return the (n_samples, n_classes) probabilities of any scorer.

    Parameters
    ----------
    model
        A classifier with ``predict_proba``, a booster, a function, or None if X holds
        the probabilities.
    X
        Its rows.
    sensitive_features, domain
        Passed on to a model that is a correction itself.
    """
    module, kind = type(model).__module__.partition(".")[0], type(model).__name__
    if X is None:
        raise InvalidInputError("X is None. Pass the rows, or their scores.")
    if model is None:
        prob = X
    elif module in ("lightgbm", "xgboost") and kind == "Booster":
        prob = ask_booster(model, X, module)
    elif hasattr(model, "predict_proba") and not isinstance(model, type):
        by_group = getattr(model, "predicts_with_groups", False)
        passed = {"sensitive_features": sensitive_features} if by_group else {}
        passed |= {"domain": domain} if isinstance(model, CorrectedClassifier) else {}
        with named_errors():
            prob = model.predict_proba(X, **passed)
    elif callable(model) and not isinstance(model, type):
        prob = model(X)
    else:
        raise InvalidTypeError(
            "model must be a fitted classifier with predict_proba, a booster, a "
            f"function of X that returns probabilities, or None; got {kind_of(model)}."
        )
    values = read_array(prob, "prob")
    if values.ndim == 1 or values.shape[1:] == (1,):
        second = values.reshape(-1).astype(np.float64)
        values = np.column_stack([1.0 - second, second])
    return encode_prob(values, values.shape[-1])


def classes_of(model: Any, n_classes: int) -> NDArray[Any]:
    """Return the classes of a scorer, 0, 1, ... if it does not say."""
    return np.asarray(getattr(model, "classes_", np.arange(n_classes)))


def known_labels(y: Table, n_samples: int, classes: NDArray[Any]) -> Labels:
    """Return labels as codes among the classes of a scorer; raise without labels."""
    labels = encode_labels(y, n_samples, classes.tolist(), "y")
    if labels.y is None:
        raise InvalidInputError("A fit needs y, the label of each row; got None.")
    return labels


def logits_of(prob: FloatArray) -> FloatArray:
    """Return logits with the first class's at 0, finite for probabilities of 0."""
    logits = np.log(np.maximum(prob, LEAST))
    return np.asarray(logits - logits[:, :1])


def onto_simplex(points: FloatArray) -> FloatArray:
    """Return the nearest (n, m) probabilities to points; the order of classes stays.

    A constant is taken from each row and what is below 0 becomes 0.
    """
    ordered = -np.sort(-points, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, points.shape[1] + 1)
    last = np.sum(ordered > excess, axis=1) - 1
    return np.maximum(points - np.take_along_axis(excess, last[:, None], axis=1), 0.0)
