r"""Parity on a stream: f-FERM's dual does not stop where training stops.

For every group a threshold moves by the step of Algorithm 1 after each of its rows,

.. math:: T_k \leftarrow T_k + \eta \, (d_i - \rho_i),

where ``d`` is the decision and ``rho`` the target rate. Summed over the rows of a group
this says how far its rate is from the target, whatever the rows were: ``T`` cannot
leave ``[-eta, 1 + eta]``, because nobody is accepted above 1 and everybody below 0.
"""

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import SAME, group_name, read_series, split_columns
from fferm.data.rows import check_aligned
from fferm.data.validate import (
    POSITIVE,
    Constraint,
    check_params,
    encode_labels,
    reason_of,
)
from fferm.deploy._kernels import GIVEN, LEARNED, MODEL, are_probabilities, follow
from fferm.deploy.base import (
    CorrectedClassifier,
    classes_of,
    onto_simplex,
    read_prob,
)
from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    PersistenceError,
    explain,
)
from fferm.notions import (
    DemographicParity,
    EqualOpportunity,
    FalsePositiveRateParity,
    Notion,
)
from fferm.registry import code_of

# Notions that level one rate of each group and class.
ONE_STRATUM = DemographicParity, EqualOpportunity, FalsePositiveRateParity
# The rows of a state, by name; all else follows from the parameters.
STATE = ("counts", "expected", "totals", "pending")


@dataclass(eq=False, repr=False)
class ParityController(CorrectedClassifier):
    r"""Thresholds by group that move with a stream, certified for every stream.

    Scores and groups go in, decisions come out, and each row moves the threshold of its
    group. A batch is its rows one after another, in their order: how a stream is cut
    changes nothing. For probabilities of several classes there is one offset per group
    and class, and the class with the largest probability less its offset is decided.

    After ``n`` rows of a group, the rate of a decision in it differs from the mean of
    the target over these rows by at most ``(1/2 + step) / (step * n)``, for every
    sequence of scores and groups and every shift; see `certificate`.

    Under ``notion="equal_opportunity"`` or ``"false_positive_rate_parity"``, `update`
    decides and `observe` moves the thresholds, once labels are known.

    `predict` and audits of the model apply the thresholds as they stand, which is one
    moment of a stream. The certificate is about what `update` decided: audit that.

    **Said plainly.** This decides by group, which is lawful in some places and uses and
    not in others. Thresholds move, so that equal people may meet different ones on
    different days. Rates are equalized whether or not the labels are just, and the
    controller levels the sums over time: a group that was accepted too often is
    accepted less often until they are level.

    Parameters
    ----------
    target_rate
        The rate of the second class, or one for each of several classes. None: that of
        the model's own decisions so far, in all groups together. ``"learned"``: that of
        the controller's decisions so far, at first mixed with the former.
    step
        How far a threshold moves. Small steps cost less accuracy and certify less.
    groups
        The names of groups; another is refused. None: a new group begins at the
        threshold of the model, which is 1/2.
    model
        The frozen scorer. None: scores are passed.
    notion
        Whose rates are level: of all rows, or of rows with one label.

    Attributes
    ----------
    counts_ : ndarray of shape (n_groups, 1 + n_columns)
        Rows of each group, and how many of them were given each class. Of two classes
        the second has the only column.
    expected_ : ndarray of shape (n_groups, n_columns)
        The sums of the target rates over these rows.

    Examples
    --------
    >>> controller = ParityController(target_rate=0.5)
    >>> controller.update([0.9, 0.6, 0.2], ["a", "b", "b"])
    array([1, 1, 0])
    >>> controller.certificate().loc["b", ["rows", "rate", "gap"]].tolist()
    [2.0, 0.5, 0.0]
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {"step": POSITIVE}

    target_rate: float | Sequence[float] | str | None = None
    step: float = 0.05
    _: KW_ONLY
    groups: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Begin without rows."""
        names = () if self.groups is None else map(group_name, self.groups)
        self.groups_ = tuple(dict.fromkeys(map(str, names)))
        self._codes: dict[Any, int] = {name: k for k, name in enumerate(self.groups_)}
        self._how: tuple[bool, float, int, FloatArray] | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return a copy of everything but the lock, which cannot be copied."""
        with self._lock:
            state = {key: v for key, v in vars(self).items() if key != "_lock"}
            return {
                key: v.copy() if isinstance(v, np.ndarray | dict) else v
                for key, v in state.items()
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copied state, with a lock of its own."""
        self.__dict__.update(state, _lock=threading.Lock())

    def set_params(self, **params: Any) -> Self:
        """Set parameters, before the first row: the certificate is for one step."""
        if hasattr(self, "counts_"):
            raise InvalidParameterError(
                "Parameters must stay as they are once a stream runs; got "
                f"{', '.join(params)}. Start a new controller: clone(controller)."
            )
        self._how = None
        super().set_params(**params)
        return self

    @property
    def predicts_with_groups(self) -> bool:
        """Groups are always needed."""
        return True

    @property
    def thresholds(self) -> FloatArray:
        """The threshold of each group; offsets by group and class if these are many."""
        with self._lock:
            self._check_started()
            return self._thresholds()

    def _thresholds(self) -> FloatArray:
        moved = self.step * (self.counts_[:, 1:] - self.expected_)
        return moved if moved.shape[1] > 1 else 0.5 + moved[:, 0]

    def update(self, scores: Table, groups: Table) -> NDArray[Any]:
        """Decide on rows, one after another, and move the thresholds after each.

        Rows that cannot be used raise, and then none of them has moved anything.

        Parameters
        ----------
        scores
            (n_rows,) probabilities of the second class or (n_rows, n_classes); with a
            model, the rows that it scores. No rows change nothing.
        groups
            (n_rows,) the group of each row, or one column per sensitive feature.

        Returns
        -------
        ndarray
            (n_rows,) labels.
        """
        score, keys = self._read(scores, groups)
        code = np.zeros(len(score), dtype=np.int64)
        if not code.size:
            return self._classes(score.shape[1])[code]
        with self._lock:
            waits, *how = self._params(score.shape[1])
            self.groups_, self._codes, cell = self._named(keys)
            self._grow(score.shape[1])
            if waits:
                bar = self._thresholds()[cell]
                is_binary = score.shape[1] == 1
                code[:] = score[:, 0] > bar if is_binary else (score - bar).argmax(1)
                np.add.at(self.pending_, (cell, 1 + code), 1)
                most, waiting = self.pending_[:, 0], self.pending_[:, 1:].sum(axis=1)
                np.maximum(most, waiting, out=most)
            else:
                follow(score, cell, *how, *self._state(), code, True)
        return np.asarray(self.classes_[code])

    def observe(
        self, scores: Table, groups: Table, decisions: Table, labels: Table
    ) -> None:
        """Move the thresholds by rows whose labels have become known.

        Rows may come in any order and number, each once: rows that `update` has not
        decided so, or that were observed before, raise and change nothing.

        Parameters
        ----------
        scores, groups
            As they were passed to `update`.
        decisions
            (n_rows,) what `update` returned for them.
        labels
            (n_rows,) what has become known.
        """
        notion = self._notion()
        if not notion.needs_labels:
            raise InvalidParameterError(
                "observe needs a notion about labels, such as 'equal_opportunity'; got "
                f"{self.notion!r}, under which update moves the thresholds."
            )
        self._check_started()
        check_aligned(groups=groups, decisions=decisions, labels=labels)
        score, keys = self._read(scores, groups)
        if not len(score):
            return
        classes = tuple(self.classes_.tolist())
        made = encode_labels(decisions, len(score), classes, "decisions").y
        is_kept = notion.strata(encode_labels(labels, len(score), classes)).code == 0
        with self._lock:
            _, *how = self._params(score.shape[1])
            names, codes, cell = self._named(keys)
            waiting = self.pending_.copy()
            waiting.resize(len(names), waiting.shape[1])
            np.subtract.at(waiting, (cell, 1 + np.asarray(made)), 1)
            if waiting.min() < 0:
                k, j = np.argwhere(waiting < 0)[0]
                raise InvalidInputError(
                    "observe takes each row once, with the decision of update; got "
                    f"{-waiting[k, j]} more of group {names[k]!r} decided "
                    f"{classes[j - 1]!r} than wait for labels."
                )
            self.pending_[:], self._codes = waiting, codes
            rows, code = (score[is_kept], cell[is_kept]), np.asarray(made)[is_kept]
            follow(*rows, *how, *self._state(), code, False)

    def certificate(self) -> pd.DataFrame:
        r"""Return by group, and class if there are several, how far it is from level.

        Columns: ``rows``; ``rate`` of the decision; ``target``, the mean target rate
        over these rows; ``gap``, the distance of the two, which is that of the
        threshold from its start over ``step * rows``; and ``bound``, what no sequence
        of rows can exceed: ``(a + step * b * delay) / (step * rows)``. Here ``a = 1/2``
        and ``b = 1`` for two classes, ``a = H_m - 1`` and ``b = H_{m-1}`` for ``m``
        classes, with harmonic numbers. ``delay`` is the largest number of decisions in
        the group that have waited for labels at once, and 1 without labels. Under a
        constant target, the rates of two groups differ by at most the sum of their
        bounds.
        """
        with self._lock:
            self._check_started()
            rows = self.counts_[:, [0]].astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                rate, target = self.counts_[:, 1:] / rows, self.expected_ / rows
                bound = self._reach(self.pending_) / (self.step * rows)
        n_columns = rate.shape[1]
        shape, index = rate.shape, pd.Index(self.groups_, name="group")
        if n_columns > 1:
            names = ("group", "class")
            index = pd.MultiIndex.from_product(
                [self.groups_, self.classes_.tolist()], names=names
            )
        columns = {"rows": rows, "rate": rate, "target": target}
        columns |= {"gap": np.abs(rate - target), "bound": bound}
        return pd.DataFrame(
            {name: np.broadcast_to(v, shape).ravel() for name, v in columns.items()},
            index=index,
        )

    @property
    def promises(self) -> tuple[str, ...]:
        """What the certificate says, as a sentence for audits."""
        table = self.certificate()
        table = table[table["rows"] > 0]
        if table.empty:
            return ()
        worst = table["bound"].idxmax()
        return (
            f"On its stream of {self.totals_[0]} rows, every group's rate is within "
            f"{table['gap'].max():.4f} of the target; no stream could exceed "
            f"{min(table['bound'].max(), 1.0):.4f} ({worst}).",
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all that the stream has changed, as numbers and text."""
        with self._lock:
            state: dict[str, Any] = {"made_with": self._made_with()}
            state["groups"] = list(self.groups_)
            for name in STATE if hasattr(self, "counts_") else ():
                state[name] = getattr(self, f"{name}_").tolist()
            return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the controller of ``state`` stopped.

        Parameters
        ----------
        state
            What `state_dict` returned, of a controller with the same parameters.
        """
        made_with = state.get("made_with") if isinstance(state, Mapping) else state
        if made_with != self._made_with():
            raise InvalidParameterError(
                "The state must be of a controller with the same parameters, "
                f"{self._made_with()}; got {made_with!r:.200}."
            )
        learned = {f"{name}_": state[name] for name in STATE if name in state}
        problem, advice = "The state was changed", "Pass what state_dict returned."
        with explain(problem, advice, Exception, InvalidParameterError), self._lock:
            self._take(tuple(state["groups"]), learned)

    def _from_saved(self, learned: dict[str, Any]) -> None:
        super()._from_saved(learned)
        self._take(learned["groups_"], {f"{n}_": learned[f"{n}_"] for n in STATE})

    def _take(self, groups: Sequence[str], learned: dict[str, Any]) -> None:
        # Arrays of a state, checked: kernels trust their shapes.
        if learned:
            n_groups, n_columns = len(groups), np.shape(learned["expected_"])[-1]
            shapes = {
                "counts_": (n_groups, 1 + n_columns),
                "expected_": (n_groups, n_columns),
                "totals_": (1 + 2 * n_columns,),
                "pending_": (n_groups, 1 + max(n_columns, 2)),
            }
            for name, shape in shapes.items():
                given = np.asarray(learned[name])
                with np.errstate(invalid="ignore"):  # of NaN
                    learned[name] = given.astype(float if name == "expected_" else int)
                is_fit = given.shape == shape and np.array_equal(learned[name], given)
                if not is_fit or np.any(given < 0) or np.any(np.isinf(given)):
                    raise PersistenceError(
                        f"{name} must hold {shape} numbers of at least 0; got "
                        f"{given.tolist()!r:.200}."
                    )
            counts = learned["counts_"]
            if len(set(groups)) < n_groups or np.any(counts[:, 1:] > counts[:, :1]):
                raise PersistenceError(
                    "Groups must differ, and none has more decisions than rows; got "
                    f"{groups} with {counts.tolist()!r:.200}."
                )
            moved = self.step * np.abs(counts[:, 1:] - learned["expected_"])
            if np.any(moved > self._reach(learned["pending_"]) * (1 + SAME)):
                raise PersistenceError("No stream leads to this state.")
            self.__dict__.update(learned, classes_=self._classes(n_columns))
        self.groups_ = tuple(groups)
        self._codes = {name: k for k, name in enumerate(groups)}

    def _made_with(self) -> dict[str, Any]:
        rate = self.target_rate
        return {
            "target_rate": rate
            if isinstance(rate, str | None)
            else np.ravel(rate).tolist(),
            "step": float(self.step),
            "groups": None if self.groups is None else [*self.groups_],
            "notion": code_of(self._notion(), "notion"),
        }

    def _notion(self) -> Notion:
        notion = Notion.resolve(self.notion)
        if not isinstance(notion, ONE_STRATUM):
            raise InvalidParameterError(
                "notion must compare one rate that a threshold by group can level: "
                "demographic_parity, equal_opportunity or false_positive_rate_parity; "
                f"got {self.notion!r}."
            )
        return notion

    def _check_started(self) -> None:
        if not hasattr(self, "counts_"):
            raise InvalidInputError(
                "The controller has seen no rows. Call update(scores, groups) first."
            )

    def _reach(self, pending: IntArray) -> FloatArray:
        # How far a threshold can be from its start; see docs/mathematics.md.
        *_, before, harmonic = np.cumsum(1 / np.arange(1, pending.shape[1]))
        delay = np.maximum(pending[:, [0]], 1)
        return np.asarray(harmonic - 1 + self.step * before * delay)

    def _classes(self, n_columns: int) -> NDArray[Any]:
        known = vars(self).get("classes_")
        return classes_of(self.model, max(n_columns, 2)) if known is None else known

    def _correct(
        self, prob: FloatArray, X: Table, group: IntArray, domain: IntArray
    ) -> FloatArray:
        # Probabilities less the offsets, put back where they sum to 1: the order of
        # classes stays, so that the largest is decided.
        with self._lock:
            moved = self.step * (self.counts_[:, 1:] - self.expected_)
        moved = np.vstack([moved, np.zeros_like(moved[:1])])  # the last for -1
        if moved.shape[1] == 1:
            moved = np.column_stack([-moved, moved])
        return onto_simplex(prob - moved[group])

    def _read(self, scores: Table, groups: Table) -> tuple[FloatArray, list[Any]]:
        # Probabilities and the groups' values, checked, of a batch.
        if isinstance(groups, pd.Series | pd.DataFrame):
            check_aligned(scores=scores, groups=groups)
        if self.model is not None:
            n_rows = scores.shape[0] if hasattr(scores, "shape") else len(scores)
            scores = read_prob(self.model, scores, groups) if n_rows else []
        score = read_scores(scores)
        return score, read_groups(groups, len(score))

    def _params(self, n_columns: int) -> tuple[bool, float, int, FloatArray]:
        # Whether labels are waited for, the step and the target, checked once.
        if self._how is None:
            check_params({"step": self.step}, self.constraints)
            waits = self._notion().needs_labels
            self._how = waits, float(self.step), *self._target(n_columns)
        if hasattr(self, "expected_") and n_columns != self.expected_.shape[1]:
            raise InvalidInputError(
                f"scores must have {self.expected_.shape[1]} columns, as before; got "
                f"{n_columns}."
            )
        return self._how

    def _state(self) -> tuple[IntArray, FloatArray, IntArray]:
        return self.counts_, self.expected_, self.totals_

    def _named(
        self, keys: list[Any]
    ) -> tuple[tuple[str, ...], dict[Any, int], IntArray]:
        # The names of groups with those that are new, the code of each value, and that
        # of each row.
        names, codes = self.groups_, self._codes
        try:
            return names, codes, np.array([codes[key] for key in keys], dtype=np.int64)
        except (KeyError, TypeError):
            codes = dict(codes)
        for key in keys:
            parts = key if isinstance(key, tuple) else (key,)
            if not all(isinstance(part, Hashable) for part in parts):
                raise InvalidInputError(
                    f"groups must hold one value per row; got {key!r}."
                )
            if key in codes:
                continue
            words = [group_name(part) for part in parts]
            name = " × ".join(map(str, words))
            if None in words:
                raise InvalidInputError(
                    "groups has rows without a value, which have no threshold. Name "
                    "them a group, such as 'unknown', or decide on them with predict."
                )
            if name not in names:
                if self.groups is not None:
                    raise InvalidInputError(
                        f"groups contains {name!r}, which is not among "
                        f"{', '.join(names)}."
                    )
                names = (*names, name)
            codes[key] = names.index(name)
        return names, codes, np.array([codes[key] for key in keys], dtype=np.int64)

    def _grow(self, n_columns: int) -> None:
        # Room for new groups.
        if not hasattr(self, "counts_"):
            self.classes_ = self._classes(n_columns)
            self.counts_ = np.zeros((0, 1 + n_columns), dtype=np.int64)
            self.expected_ = np.zeros((0, n_columns))
            self.totals_ = np.zeros(1 + 2 * n_columns, dtype=np.int64)
            shape = 0, 1 + len(self.classes_)
            self.pending_ = np.zeros(shape, dtype=np.int64)
        if len(self.counts_) < len(self.groups_):
            more = (0, len(self.groups_) - len(self.counts_)), (0, 0)
            for name in ("counts_", "expected_", "pending_"):
                setattr(self, name, np.pad(getattr(self, name), more))

    def _target(self, n_columns: int) -> tuple[int, FloatArray]:
        rate = self.target_rate
        if rate is None or isinstance(rate, str):
            if rate not in (None, "learned"):
                raise InvalidParameterError(
                    "target_rate must be None, 'learned', a number, or one number per "
                    f"class; got {rate!r}."
                )
            return MODEL if rate is None else LEARNED, np.zeros(n_columns)
        target = np.ravel(rate)
        is_rate = target.size == n_columns and target.dtype.kind in "biuf"
        is_rate = is_rate and bool(np.all((target >= 0) & (target <= 1)))
        if not is_rate or (n_columns > 1 and abs(target.sum() - 1) > SAME):
            raise InvalidParameterError(
                "target_rate must be between 0 and 1, of several classes one number "
                f"for each with the sum 1; got {rate!r} for {n_columns} columns."
            )
        return GIVEN, target / target.sum() if n_columns > 1 else target * 1.0


def read_scores(scores: Table) -> FloatArray:
    """Return scores as (n_rows, n_columns) probabilities; one column of two classes."""
    try:
        score = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"scores must be numbers between 0 and 1 ({reason_of(error)})."
        ) from error
    score = np.ascontiguousarray(score[:, None] if score.ndim == 1 else score)
    if score.ndim != 2 or not score.shape[1] or not are_probabilities(score):
        raise InvalidInputError(
            "scores must be probabilities, (n_rows,) of the second class or (n_rows, "
            "n_classes) with rows that sum to 1, and none missing; got "
            f"{np.asarray(scores)!r:.200}."
        )
    return score[:, 1:].copy() if score.shape[1] == 2 else score


def read_groups(groups: Table, n_rows: int) -> list[Any]:
    """Return one value per row, of several columns a tuple."""
    if isinstance(groups, list) and not (groups and isinstance(groups[0], list)):
        keys = groups
    elif isinstance(groups, np.ndarray | pd.Series) and groups.ndim == 1:
        keys = groups.tolist()
    else:
        columns = [
            read_series(values, name).tolist() for name, values in split_columns(groups)
        ]
        keys = columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)]
    if len(keys) != n_rows:
        raise InvalidInputError(
            f"groups must have one value per row; got {len(keys)} for {n_rows} rows."
        )
    return keys
