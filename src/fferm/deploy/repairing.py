"""Repair frozen scores: decisions by group, or a correction that needs no group."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax
from sklearn.base import clone

from fferm._typing import FloatArray, IntArray, Table, is_sparse
from fferm.data.groups import SAME, Binning, GroupMode, split_columns
from fferm.data.rows import FitInput, Rows, add_control, check_aligned, encode_rows
from fferm.data.split import hold_out_evenly
from fferm.data.validate import (
    FLAG,
    Constraint,
    Number,
    OneOf,
    check_params,
    encode_weight,
    factorize,
    is_table,
    read_array,
    reason_of,
    rescaled,
)
from fferm.deploy.base import (
    CorrectedClassifier,
    known_labels,
    logits_of,
    onto_simplex,
    read_prob,
)
from fferm.deploy.group_rules import (
    NONE,
    Cell,
    Mixture,
    ThresholdCell,
    TiltCell,
    best_rules,
)
from fferm.errors import (
    FfermWarning,
    InfeasibleWarning,
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingSensitiveError,
    PersistenceError,
    muted,
    warn_user,
)
from fferm.estimators.base import FairClassifier
from fferm.estimators.weight_search import HeldOutDecisions
from fferm.metrics.intervals import certify, compared_of
from fferm.metrics.tabulator import Tabulator, worst_violation
from fferm.notions import Labels, Notion
from fferm.registry import Saved, kind_of
from fferm.solvers import Result

# Under a confidence, bounds on the fitting rows as shares of the bound that is tested.
BOUNDS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 1.0)
# Scores this far from 0 are not logits: they are standardised first.
LARGEST_LOGIT = 30.0
# The logarithm of the odds of a threshold that accepts all, or none.
CERTAIN = 700.0
# Combinations of groups that may have rules of their own.
MOST_GROUPS = 100_000
# The smallest share that counts as more than a half.
MORE_THAN_HALF = float(np.nextafter(0.5, 1))
# Corrections that are known by name.
CORRECTIONS = {
    "linear": "FairLogisticRegression",
    "trees": "FairBoostingClassifier",
}


def repair(  # noqa: PLR0913 - one call states all that a repair depends on
    model_or_scores: Any,
    X: Table,
    y: Table,
    *,
    sensitive_features: Table,
    max_violation: float,
    confidence: float | None = 0.95,
    uses_group: bool = False,
    notion: str | Notion = "demographic_parity",
    groups: GroupMode = "intersection",
    correction: "str | FairClassifier" = "linear",
    sample_weight: Table = None,
    validation_fraction: float = 0.2,
    random_state: int = 0,
) -> "RepairedClassifier":
    """Return a model around frozen scores whose decisions are fair.

    Pass rows that the frozen model was not trained on: it is too sure of its own.

    Parameters
    ----------
    model_or_scores
        A fitted classifier, a booster, a function of X that returns probabilities, the
        name of the column of X that holds the scores, or the scores themselves:
        (n_samples,) of the second of two classes, or (n_samples, n_classes). Scores
        outside of [0, 1] are logits, or any numbers that grow with the chance of the
        second class.
    X
        (n_samples, n_features) what the model reads; None if there are scores and
        ``uses_group``.
    y
        (n_samples,) labels.
    sensitive_features
        The group of each row. Rows with missing values keep the frozen decision in
        `GroupRepair`, and train the loss only in `FeatureRepair`.
    max_violation
        The largest violation allowed, as in `FairLogisticRegression`.
    confidence
        With this probability the violation of the returned model is at most
        ``max_violation``, or ``feasible_`` is False: rows are held out, and models are
        tested on them from the fairest on. None: without a promise. With
        ``uses_group`` the bound is then kept on the rows passed, all of which are used.
    uses_group
        True: the rules of `GroupRepair`, which need the group to predict. False:
        `FeatureRepair`, which does not.
    notion
        As in `FairLogisticRegression`. ``uses_group`` needs a notion that compares
        predictions, so not ``"sufficiency"``.
    groups
        Several sensitive columns are compared jointly, or with ``"marginal"`` one by
        one. With ``uses_group`` each combination of values has rules of its own either
        way; one that no row has keeps the frozen decision.
    correction
        Without the group: ``"linear"``, ``"trees"`` or an unfitted fair classifier.
    sample_weight
        (n_samples,) weights of the rows.
    validation_fraction
        The share of rows held out.
    random_state
        Seed of the rows held out, and of decisions that are drawn.

    Returns
    -------
    GroupRepair or FeatureRepair

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fferm.datasets import make_biased
    >>> from fferm.deploy import repair
    >>> data = make_biased(random_state=0)
    >>> frozen = LogisticRegression().fit(data.X, data.y)
    >>> s = data.sensitive_features
    >>> fair = repair(frozen, data.X_test, data.y_test, uses_group=True,
    ...               sensitive_features=data.sensitive_features_test,
    ...               max_violation=0.05, confidence=None)
    >>> decisions = fair.predict(data.X, sensitive_features=s)
    """
    how: dict[str, Any] = {
        "notion": notion,
        "groups": groups,
        "max_violation": max_violation,
        "confidence": confidence,
        "validation_fraction": validation_fraction,
        "random_state": random_state,
    }
    check_params({"uses_group": uses_group}, {"uses_group": FLAG})
    model, scores = model_or_scores, None
    if _is_scores(model_or_scores):
        model, scores = None, model_or_scores
    made: RepairedClassifier
    if uses_group:
        made = GroupRepair(model=model, **how)
    else:
        made = FeatureRepair(model=model, correction=correction, **how)
    rows = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
    return made.fit(X, y, **rows, scores=scores)


@dataclass(kw_only=True, eq=False, repr=False)
class RepairedClassifier(CorrectedClassifier):
    """What both ways to repair frozen scores share; see `repair` for the parameters.

    Attributes
    ----------
    feasible_ : bool
        Under ``confidence``, whether a test showed that the bound is kept; else whether
        its value keeps it.
    violation_ : float
        The violation of decisions on the held-out rows, or on all without a confidence.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "max_violation": Number(0, 1),
        "confidence": Number(0.5, 1, open_high=True, is_optional=True),
        "validation_fraction": Number(0, 1, open_low=True, open_high=True),
        "random_state": Number(0, 2**32 - 1, is_whole=True),
        "groups": OneOf(("intersection", "marginal")),
    }

    max_violation: float = 0.05
    confidence: float | None = 0.95
    validation_fraction: float = 0.2
    random_state: int = 0
    groups: GroupMode = "intersection"
    feasible_: bool = field(init=False)
    violation_: float = field(init=False)
    result_: Result = field(init=False, default=Result.converged)
    # Scores that are not probabilities: what is taken off them, and their unit.
    score_unit_: tuple[float, ...] = field(init=False, default=())
    columns_: tuple[str, ...] = field(init=False, default=())

    def fit(
        self,
        X: Table,
        y: Table,
        *,
        sensitive_features: Table,
        sample_weight: Table = None,
        scores: Table = None,
    ) -> Self:
        """Learn the correction.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight
            As in `repair`.
        scores
            (n_samples,) or (n_samples, n_classes) scores, in place of a model.

        Returns
        -------
        Self
        """
        check_params(vars(self), self.constraints)
        name = type(self).__name__
        if sensitive_features is None:
            raise MissingSensitiveError(
                f"{name} needs sensitive_features to fit. Pass the group of each row."
            )
        rows = {"sensitive_features": sensitive_features, "y": y, "scores": scores}
        check_aligned(**rows, X=X, sample_weight=sample_weight)
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        is_frame = isinstance(frame, nw.DataFrame)
        self.columns_ = tuple(map(str, frame.columns)) if is_frame else ()
        raw = self._raw(X, scores)
        if raw is None:
            values = read_prob(self.model, X, sensitive_features)
        else:
            values = _numbers(raw)
        n_classes = 2 if values.ndim == 1 else values.shape[1]
        self.classes_ = _classes_of(self.model, y, n_classes)
        labels = known_labels(y, len(values), self.classes_)
        self.target_name_ = str(getattr(y, "name", None) or "")
        weight = rescaled(encode_weight(sample_weight, len(values)))
        y = self.classes_[np.asarray(labels.y)]
        passed = FitInput(X, y, sensitive_features, weight)
        if raw is not None:
            self._learn_unit(values, labels, passed)
            values = self._to_prob(raw)
        self._fit(labels, passed, values)
        return self

    def _read_prob(
        self, X: Table, sensitive_features: Table, domain: Table, scores: Table
    ) -> FloatArray:
        raw = self._raw(X, scores)
        if raw is None:
            return super()._read_prob(X, sensitive_features, domain, None)
        return self._to_prob(raw)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns of X, where it is a table."""
        if not self.columns_:
            raise AttributeError("feature_names_in_")
        return np.array(self.columns_, dtype=object)

    def _to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if isinstance(self.model, str):
            return Saved._to_saved(self)
        return super()._to_saved()

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        unit = self.score_unit_
        if unit and not (len(unit) == 2 and float(unit[0]) < np.inf > unit[1] > 0):
            raise PersistenceError(f"score_unit_ must be two numbers; got {unit!r}.")

    @abstractmethod
    def _trained(self, labels: Labels, passed: FitInput) -> NDArray[np.bool_]:
        """Return which rows are not held out to judge the correction."""

    @abstractmethod
    def _fit(self, labels: Labels, passed: FitInput, prob: FloatArray) -> None:
        """Learn from checked rows."""

    def _learn_unit(self, values: FloatArray, labels: Labels, passed: FitInput) -> None:
        self.score_unit_ = ()
        if values.min() < 0 or values.max() > 1:
            self.score_unit_ = (0.0, 1.0)
            values = values[self._trained(labels, passed)]
            if np.abs(values).max() > LARGEST_LOGIT:
                self.score_unit_ = (float(values.mean()), float(values.std()) or 1.0)

    def _raw(self, X: Table, scores: Table) -> Table:
        # The scores as they were passed, None where a model makes them.
        if scores is not None:
            return scores
        if isinstance(self.model, str):
            return _column(X, self.model)
        return X if self.model is None else None

    def _to_prob(self, raw: Table) -> FloatArray:
        values = _numbers(raw)
        if self.score_unit_:
            centre, unit = self.score_unit_
            values = (values - centre) / unit
            values = expit(values) if values.ndim == 1 else softmax(values, axis=1)
        return read_prob(None, values)


@dataclass(kw_only=True, eq=False, repr=False)
class GroupRepair(RepairedClassifier):
    """Frozen scores under rules by group: the most accurate within a bound.

    For two classes a rule is a threshold, for more a tilt of the probabilities; see
    `fferm.deploy.group_rules`. Where no single rule of a group does nearly as well, its
    decisions are drawn from two or more, in a way that depends on the row alone: the
    same row gets the same decision again.

    It decides by group. That is lawful in some places and uses and not in others,
    equal scores of two groups may get different decisions, and the notion is equalized
    whether or not the labels are just.

    Attributes
    ----------
    rules_ : ndarray, (n_cells, n_rules) thresholds or (n_cells, n_rules, m, m) tilts
        A cell is a group or, under a control feature, a group within a stratum.
    chances_ : ndarray of shape (n_cells, n_rules)
        With which chance each of them decides.
    is_random_ : bool, whether some decisions are drawn
    """

    rules_: FloatArray = field(init=False)
    chances_: FloatArray = field(init=False)
    control_names_: tuple[str, ...] = field(init=False, default=())

    @property
    def is_random_(self) -> bool:
        """Whether some decisions are drawn by chance."""
        return bool(np.any((self.chances_ > 0).sum(axis=1) > 1))

    @property
    def frame(self) -> pd.DataFrame:
        """Who meets which threshold, with which chance; for two classes."""
        if len(self.classes_) > 2:
            raise InvalidParameterError(
                "frame lists thresholds, which two classes have. Of more classes see "
                "rules_ and chances_."
            )
        n_groups = len(self.groups_)
        cells, rules = np.nonzero(self.chances_ > 0)
        columns = {"group": [self.groups_[c % n_groups] for c in cells]}
        if self.control_names_:
            columns["stratum"] = [self.control_names_[c // n_groups] for c in cells]
        table = pd.DataFrame(columns)
        table["threshold"] = np.clip(self.rules_[cells, rules], 0, 1)
        table["chance"] = self.chances_[cells, rules]
        return table

    def _trained(self, labels: Labels, passed: FitInput) -> NDArray[np.bool_]:
        notion = Notion.resolve(self.notion)
        self._check_notion(notion)
        everyone = np.ones(labels.n_samples, dtype=bool)
        if self.confidence is None:
            return everyone
        with muted(FfermWarning):  # they are encoded again
            columns = passed.sensitive_features, notion, labels, passed.X
            rows = encode_rows(*columns, how=self.groups)
        y, seed = np.asarray(labels.y), self.random_state
        return ~hold_out_evenly(rows, y, self.validation_fraction, seed)

    def _fit(self, labels: Labels, passed: FitInput, prob: FloatArray) -> None:
        notion, X = Notion.resolve(self.notion), passed.X
        kept = self._trained(labels, passed)
        labels = add_control(labels, notion, X)
        self.control_names_ = labels.control_names
        rows = encode_rows(
            passed.sensitive_features,
            notion,
            labels,
            X,
            how=self.groups,
            sample_weight=passed.sample_weight,
            binning=Binning(kept=kept),
        )
        if (n_groups := math.prod(_shape(rows))) > MOST_GROUPS:
            raise InvalidInputError(
                f"The sensitive columns have {n_groups} combinations of values, and "
                f"at most {MOST_GROUPS} can have rules. Merge values."
            )
        names = itertools.product(*(attribute.groups for attribute in rows.attributes))
        self.groups_ = tuple(map(" × ".join, names))
        self.band_edges_ = rows.band_edges
        self.sensitive_names_ = tuple(dict(split_columns(passed.sensitive_features)))
        y = np.asarray(labels.y)
        tabulator = Tabulator(rows, notion, labels)
        if not any(table.is_judged.any() for table in tabulator.tables(y)):
            raise InvalidInputError(
                "No part of the data holds two groups, so there is nothing to be fair "
                "between. Check sensitive_features."
            )
        judged = kept if self.confidence is None else ~kept
        self._choose(
            self._cells(prob[kept], y[kept], rows.take(kept)),
            replace(tabulator, rows=rows.take(judged)),
            prob[judged],
            self._draws(X, prob)[judged],
        )
        if self.is_random_:
            random = (self.chances_ > 0).sum(axis=1) > 1
            whose = [
                self.groups_[c % len(self.groups_)] for c in np.flatnonzero(random)
            ]
            warn_user(
                "Some decisions are drawn by chance, because single thresholds cost "
                f"more accuracy: those of {', '.join(dict.fromkeys(whose))}. The same "
                "row always gets the same decision. See rules_ and chances_.",
                FfermWarning,
            )

    def _check_notion(self, notion: Notion) -> None:
        if not notion.compares_predictions:
            raise InvalidParameterError(
                f"uses_group=True needs a notion that compares predictions; got "
                f"{notion.name!r}, which compares labels given the prediction, so that "
                "rules by group move who is compared. Use uses_group=False."
            )
        control = notion.control_feature()
        if control is None:
            return
        if not isinstance(control, str | int | np.integer):
            raise InvalidParameterError(
                "uses_group=True needs the control feature to predict. Name a column "
                "of X, such as ConditionalParity('department')."
            )
        if notion.needs_labels and len(self.classes_) > 2:
            raise InvalidParameterError(
                f"{notion.name!r} conditions on labels and on a control feature, which "
                "uses_group=True supports for two classes only. Use uses_group=False."
            )

    def _cell_numbers(self, group: IntArray, stratum: IntArray) -> IntArray:
        # Of a group or, where the stratum is known, of a group within it; -1 for none.
        if Notion.resolve(self.notion).needs_labels:
            return group
        number = stratum * len(self.groups_) + group
        return np.where((group >= 0) & (stratum >= 0), number, -1)

    def _cells(self, prob: FloatArray, y: IntArray, rows: Rows) -> dict[int, Cell]:
        # The cells that hold rows, by their number.
        stratum = np.asarray(rows.strata.code)
        notion, n_strata = Notion.resolve(self.notion), len(rows.strata.names)
        n_classes, stratum_of = prob.shape[1], None
        if notion.needs_labels and n_classes > 2:
            classes = tuple(self.classes_.tolist())
            known = Labels(n_classes, np.arange(n_classes), classes)
            stratum_of = notion.strata(known).code
        number = self._cell_numbers(_joint(rows), stratum)
        chosen = (number >= 0) & (rows.weight > 0)
        weight = rows.weight / rows.weight[chosen].sum()
        cells: dict[int, Cell] = {}
        for code in np.unique(number[chosen]).tolist():
            part = np.flatnonzero(chosen & (number == code))
            columns = prob[part], y[part], stratum[part], weight[part], n_strata
            if n_classes == 2:
                cells[code] = ThresholdCell(*columns)
            else:
                cells[code] = TiltCell(*columns, stratum_of)
        return cells

    def _keep(self, mixture: Mixture, cells: dict[int, Cell], n_strata: int) -> None:
        # Cells without rows decide as the frozen model does.
        m, n_rules = len(self.classes_), max(map(len, mixture.rules))
        n_cells = len(self.groups_)
        if not Notion.resolve(self.notion).needs_labels:
            n_cells *= n_strata
        self.rules_ = np.full((n_cells, n_rules), 0.5)
        if m > 2:
            self.rules_ = np.zeros((n_cells, n_rules, m, m))
        self.chances_ = np.eye(n_rules)[np.zeros(n_cells, dtype=int)]
        for n, code in enumerate(cells):
            rules, share = mixture.rules[n], mixture.shares[n]
            self.rules_[code, : len(rules)] = rules
            self.chances_[code] = np.pad(share, (0, n_rules - len(rules)))

    def _choose(
        self,
        cells: dict[int, Cell],
        judge: Tabulator,
        prob: FloatArray,
        drawn: FloatArray,
    ) -> None:
        # Under a confidence the order of the tests was fixed without the judged rows,
        # so the first that is wrong is passed with probability 1 - confidence at most.
        strata, shape = judge.rows.strata, _shape(judge.rows)
        combination = np.array([*cells]) % len(self.groups_)
        members = np.stack(np.unravel_index(combination, shape), axis=1)
        where = _joint(judge.rows), np.asarray(strata.code)
        self.feasible_, passed = False, None
        for share in (1.0,) if self.confidence is None else BOUNDS:
            bound = share * self.max_violation
            mixture = best_rules([*cells.values()], bound, members)
            self._keep(mixture, cells, len(strata.names))
            decided = self._apply(prob, *where, drawn).argmax(axis=1)
            tables = judge.tables(decided)
            violation = worst_violation(table.mass for table in tables)
            is_kept = violation <= self.max_violation + SAME
            if self.confidence is not None:
                is_kept = all(table.is_judged.all() for table in tables) and (
                    certify(*compared_of(tables), self.max_violation)
                    <= 1 - self.confidence
                )
            if is_kept or passed is None:
                passed = self.rules_, self.chances_, violation
            self.feasible_ = self.feasible_ or is_kept
            if not is_kept:
                break
        assert passed is not None
        self.rules_, self.chances_, self.violation_ = passed
        if self.confidence is not None and not self.feasible_:
            warn_user(
                f"No rules pass the test of max_violation={self.max_violation:g} at "
                f"confidence={self.confidence:g} on {len(prob)} held-out rows, so "
                "feasible_ is False. The fairest are kept, with a violation of "
                f"{self.violation_:.4f} there. Pass more rows, leave out small groups, "
                "or raise max_violation.",
                InfeasibleWarning,
            )

    def _correct(
        self, prob: FloatArray, X: Table, group: IntArray, domain: IntArray
    ) -> FloatArray:
        notion = Notion.resolve(self.notion)
        n_samples, stratum = len(prob), np.zeros(len(prob), dtype=np.int64)
        if not notion.needs_labels:
            labels = Labels(n_samples, None, tuple(self.classes_.tolist()))
            if notion.control_feature() is not None:
                seen = add_control(labels, notion, X)
                assert seen.control is not None
                position = {name: c for c, name in enumerate(self.control_names_)}
                names = [position.get(name, -1) for name in seen.control_names]
                code = np.array([*names, -1], dtype=np.int64)[seen.control]
                labels = replace(
                    labels, control=code, control_names=self.control_names_
                )
            stratum = np.asarray(notion.strata(labels).code)
        return self._apply(prob, group, stratum, self._draws(X, prob))

    def _apply(
        self, prob: FloatArray, group: IntArray, stratum: IntArray, drawn: FloatArray
    ) -> FloatArray:
        cell = self._cell_numbers(group, stratum)
        known = cell >= 0
        edges = np.cumsum(self.chances_, axis=1)[:, :-1]
        choice = (drawn[:, None] >= edges[cell]).sum(axis=1)
        if len(self.classes_) == 2:
            threshold = np.where(known, self.rules_[cell, choice], 0.5)
            p = prob[:, 1]
            level = np.where(threshold <= 0, -CERTAIN, CERTAIN)
            inside = (threshold > 0) & (threshold < NONE)
            level[inside] = logit(threshold[inside])
            with np.errstate(divide="ignore"):
                q = expit(np.clip(logit(p), -CERTAIN, CERTAIN) - level)
            is_above = p > threshold
            q = np.where(is_above, np.maximum(q, MORE_THAN_HALF), np.minimum(q, 0.5))
            return np.column_stack([1 - q, q])
        tilted = prob.copy()
        for n in range(len(self.rules_)):
            for r in range(self.rules_.shape[1]):
                at = np.flatnonzero(known & (cell == n) & (choice == r))
                tilted[at] += prob[at] @ self.rules_[n, r]
        return onto_simplex(tilted)

    def _draws(self, X: Table, prob: FloatArray) -> FloatArray:
        """Return (n_samples,) numbers in [0, 1) that depend on a row and the seed.

        Rows of which only the scores are known differ by how many rows with the same
        scores come before.
        """
        columns: dict[str, Any] = {f"p{j}": column for j, column in enumerate(prob.T)}
        if X is None or self.model is None or is_sparse(X):
            columns["n"] = pd.DataFrame(columns).groupby([*columns]).cumcount()
        else:
            columns |= _plain_columns(X)
        key = f"{self.random_state:016d}"[-16:]
        hashed = pd.util.hash_pandas_object(
            pd.DataFrame(columns), index=False, hash_key=key
        )
        return np.asarray(hashed.to_numpy() >> np.uint64(11)) * 2.0**-53

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        m, notion = len(self.classes_), Notion.resolve(self.notion)
        n_strata = 1 if notion.needs_labels else max(len(self.control_names_), 1)
        shape = len(self.groups_) * n_strata, np.shape(self.rules_)[1]
        self._check_numbers("chances_", shape)
        self._check_numbers("rules_", shape if m == 2 else (*shape, m, m))


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureRepair(RepairedClassifier):
    """Frozen scores under a small correction that needs no group to predict.

    A fair model of the frozen logits and the features, trained with the penalty and
    the solvers of `FairLogisticRegression` or `FairBoostingClassifier`. Without a
    penalty it is the frozen model, recalibrated.

    Parameters
    ----------
    correction
        ``"linear"``, ``"trees"`` or an unfitted fair classifier, whose ``notion``,
        ``max_violation``, ``confidence``, ``validation_fraction``, ``random_state`` and
        ``groups`` are those of this model.

    Attributes
    ----------
    correction_ : the fitted correction
    """

    correction: "str | FairClassifier" = "linear"
    correction_: FairClassifier = field(init=False)

    def _trained(self, labels: Labels, passed: FitInput) -> NDArray[np.bool_]:
        model = self._unfitted(passed)
        if model.divergence == "auto":
            model.set_params(divergence="kl")  # rows are held out before it is chosen
        with muted(FfermWarning):  # fit encodes them again
            held_out = HeldOutDecisions(model, passed, model._encode(passed))
        kept = np.ones(labels.n_samples, dtype=bool)
        kept[held_out.position] = False
        return kept

    def _fit(self, labels: Labels, passed: FitInput, prob: FloatArray) -> None:
        model = self._unfitted(passed)
        seen = replace(passed, X=_with_logits(passed.X, prob))
        self.correction_ = model.fit(**seen.tables)
        if not np.array_equal(self.correction_.classes_, self.classes_):
            raise InvalidInputError(
                f"y must have every class of the model, {self.classes_.tolist()}; got "
                f"{self.correction_.classes_.tolist()}. Pass rows of each class."
            )
        self.sensitive_names_ = self.correction_.sensitive_names_
        self.band_edges_ = dict(self.correction_.band_edges_)
        self.feasible_ = self.correction_.feasible_
        self.violation_ = self.correction_.violation_

    def _unfitted(self, passed: FitInput) -> FairClassifier:
        # The correction to fit.
        if passed.X is None:
            raise InvalidInputError(
                "uses_group=False corrects scores by features and needs X. Pass it, or "
                "uses_group=True."
            )
        model: FairClassifier
        if isinstance(self.correction, FairClassifier):
            model = clone(self.correction)
        elif self.correction in CORRECTIONS:
            import fferm

            model = getattr(fferm, CORRECTIONS[self.correction])()
        else:
            raise InvalidParameterError(
                "correction must be 'linear', 'trees' or a fair classifier such as "
                f"FairLogisticRegression(); got {self.correction!r}."
            )
        shared = ("notion", *RepairedClassifier.constraints)
        model.set_params(**{name: getattr(self, name) for name in shared})
        return model

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        if not isinstance(self.correction_, FairClassifier):
            raise PersistenceError(
                "correction_ must be a fair classifier; got "
                f"{kind_of(self.correction_)}."
            )

    def _correct(
        self, prob: FloatArray, X: Table, group: IntArray, domain: IntArray
    ) -> FloatArray:
        return self.correction_.predict_proba(_with_logits(X, prob))


def _shape(rows: Rows) -> tuple[int, ...]:
    return tuple(len(attribute.groups) for attribute in rows.attributes)


def _joint(rows: Rows) -> IntArray:
    # The number of each row's combination of groups, -1 if one of them is missing.
    codes = np.stack([attribute.code for attribute in rows.attributes])
    known: NDArray[np.bool_] = np.all(codes >= 0, axis=0)
    number = np.full(known.size, -1)
    number[known] = np.ravel_multi_index(tuple(codes[:, known]), _shape(rows))
    return number


def _is_scores(value: Any) -> bool:
    is_model = hasattr(value, "predict") or hasattr(value, "predict_proba")
    return not (value is None or is_model or isinstance(value, str) or callable(value))


def _numbers(scores: Table) -> FloatArray:
    # Finite scores, (n,) or (n, m).
    frame = nw.from_native(scores, eager_only=True, pass_through=True)
    table = frame.to_numpy() if isinstance(frame, nw.DataFrame) else scores
    try:
        values = np.asarray(read_array(table, "scores"), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(
            f"scores must be numbers ({reason_of(error)}). Pass a fitted classifier, a "
            "booster, a function, or its scores."
        ) from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2) or values.size == 0:
        raise InvalidInputError(
            "scores must have shape (n_samples,) or (n_samples, n_classes), with rows; "
            f"got {values.shape}."
        )
    n_bad = int(np.sum(~np.isfinite(values)))
    if n_bad:
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InvalidInputError(
            f"scores must be finite; got {n_bad} that are missing or infinite, the "
            f"first in row {row}. Drop those rows, or score them."
        )
    return values


def _column(X: Table, name: str) -> Table:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or name not in frame.columns:
        raise InvalidInputError(
            f"The scores are the column {name!r} of X; got {kind_of(X)} without it."
        )
    return frame[name]


def _classes_of(model: Any, y: Table, n_classes: int) -> NDArray[Any]:
    known = getattr(model, "classes_", None)
    if known is not None:
        return np.asarray(known)
    labels = set(factorize(y, "y")[1])
    classes = [0, 1] if labels in ({0}, {1}) else sorted(labels)  # type: ignore[type-var,arg-type]
    if len(classes) != n_classes:
        raise InvalidInputError(
            f"scores must have one column per class, {classes}; got {n_classes}."
        )
    values = np.asarray(classes)
    return values if values.dtype.kind != "U" else np.array(classes, dtype=object)


def _plain_columns(X: Table) -> dict[str, Any]:
    # Numbers as floats and all else as text, whatever library holds them.
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        table = frame.to_pandas()
    else:
        array = np.asarray(X)
        table = pd.DataFrame(array.reshape(len(array), -1))
    columns = {}
    for name, column in table.items():
        # Not astype, which hides warnings of other threads.
        if pd.api.types.is_numeric_dtype(column.dtype):
            columns[f"x {name}"] = column.to_numpy(np.float64, na_value=np.nan)
        else:
            texts = zip(column, column.isna(), strict=True)
            text = ["" if is_missing else str(value) for value, is_missing in texts]
            columns[f"x {name}"] = np.array(text, dtype=object)
    return columns


def _with_logits(X: Table, prob: FloatArray) -> Table:
    # X and the frozen logits, of the second class and those after it.
    logits = np.clip(logits_of(prob)[:, 1:], -LARGEST_LOGIT, LARGEST_LOGIT)
    if is_sparse(X):
        return sp.hstack([X, sp.csr_matrix(logits)], format="csr")
    if not is_table(X):
        array = np.asarray(X)
        return np.hstack([array.reshape(len(array), -1), logits])
    frame = nw.from_native(X, eager_only=True)
    columns = []
    for n, values in enumerate(logits.T):
        name = f"frozen logit {n + 1}"
        while name in frame.columns:
            name += "_"
        columns.append(nw.new_series(name, values, backend=frame.implementation))
    return frame.with_columns(*columns).to_native()
