"""What both kinds of audits share: what is compared, and what becomes of the result.

By default an audit compares what the model was trained for. A search holds its winner
and a pipeline its steps, so the fair classifier whose parameters count may stand behind
transformers. A control feature that such a classifier knows by name or position is a
column of what the transformers return, not of the raw table that is passed to an audit.
"""

import dataclasses
import inspect
import math
import os
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeAlias,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from fferm._typing import Table
from fferm.data.groups import Binning, GroupMode
from fferm.data.rows import People, add_control
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidInputError, InvalidParameterError, PersistenceError
from fferm.metrics.intervals import CONFIDENCE, Interval
from fferm.notions import Labels, Notion
from fferm.registry import code_of

if TYPE_CHECKING:
    from fferm.auditing.dossier import Dossier

# Columns of a printed audit, and the longest name and the most groups that it shows.
WIDTH, LONGEST_NAME, MOST_GROUPS_SHOWN = 80, 28, 20
Verdict: TypeAlias = Literal["passes", "refuted", "undecided"]


@dataclass(frozen=True)
class AuditSpec:
    """What an audit compared, and how: enough to repeat it.

    Attributes
    ----------
    notion, divergence
        As Python code; regressors have no divergence.
    groups, n_bootstrap, n_permutations, min_group_size, continuous
        As passed, or found in the estimator.
    random_state
        The seed; None if a generator was passed.
    is_weighted
        Whether there were sample weights.
    is_behind_pipeline
        Whether the control feature is a column of what a pipeline's transformers
        return; then only the model's own notion finds it.
    """

    notion: str
    groups: str
    n_bootstrap: int
    random_state: int | None
    is_weighted: bool = False
    is_behind_pipeline: bool = False
    divergence: str | None = None
    n_permutations: int | None = None
    min_group_size: int = 1
    continuous: tuple[str, ...] | str = "auto"


def resolve(
    estimator: Any,
    X: Table,
    n_samples: int,
    sample_weight: Table,
    notion: str | Notion | None,
    groups: GroupMode | None,
    **options: Any,
) -> tuple[Notion, Table, Binning, AuditSpec]:
    """Return what the caller asks for, else what the estimator was trained with.

    The notion, the table that its control feature is looked up in, the bands and small
    groups of training, and all of it with further options as a specification.
    """
    compared = resolve_component(estimator, Notion, notion, "demographic_parity")
    mode = parameter_of(estimator, "groups") if groups is None else groups
    if groups is None and mode not in ("intersection", "marginal"):
        mode = "intersection"
    last, steps = getattr(estimator, "best_estimator_", estimator), []
    while isinstance(last, Pipeline):
        # One by one: a slice of a pipeline asks a transformer that learns nothing
        # whether it is fitted. Steps that only draw rows have no transform.
        steps += [step for _, step in last.steps[:-1] if hasattr(step, "transform")]
        last = getattr(last[-1], "best_estimator_", last[-1])
    control = compared.control_feature()
    is_looked_up = notion is None and isinstance(control, str | int | np.integer)
    if is_looked_up:
        passed = f"{type(compared).__name__}(values)"
        advice = f"Pass its values, one per row: audit(..., notion={passed})."
        if any(isinstance(part, Pipeline) for part in _parameters(last).values()):
            raise InvalidParameterError(
                f"The control feature {control!r} belongs to a pipeline inside of a "
                f"{type(last).__name__}, so it is unknown which table it is a column "
                f"of. {advice}"
            )
        for step in steps:
            X = step.transform(X)
        try:
            if steps:
                add_control(Labels(n_samples), compared, X)
        except (InvalidInputError, InvalidParameterError) as error:
            raise InvalidParameterError(
                f"The control feature {control!r} was looked up in X after the "
                f"pipeline's transformers, as in training. {error} {advice}"
            ) from error
    seed = options.pop("random_state")  # a generator cannot be repeated
    spec = AuditSpec(
        notion=code_of(compared, "notion"),
        groups=mode,
        random_state=int(seed) if isinstance(seed, int | np.integer) else None,
        is_weighted=sample_weight is not None,
        is_behind_pipeline=is_looked_up and bool(steps),
        **options,
    )
    binning = Binning(
        edges=getattr(last, "band_edges_", {}),
        min_group_size=spec.min_group_size,
        small=getattr(last, "small_groups_", {}),
        count=getattr(getattr(last, "counts", None), "n", 1),
    )
    return compared, X, binning, spec


def _parameters(estimator: Any) -> Mapping[str, Any]:
    with suppress(AttributeError, RuntimeError, TypeError):
        return cast(Mapping[str, Any], estimator.get_params())
    return {}


def resolve_component(estimator: Any, base: Any, passed: object, default: str) -> Any:
    """Return the notion or divergence that is passed, else the estimator's."""
    if passed is not None:
        return base.resolve(passed)
    winner = getattr(estimator, "best_estimator_", estimator)
    learned = getattr(winner, f"{base.kind}_", None)
    if learned is None:
        learned = parameter_of(estimator, base.kind)
    with suppress(InvalidParameterError):  # another library's parameter of that name
        return base.resolve(learned)
    return base.resolve(default)


def parameter_of(estimator: Any, name: str) -> Any:
    """Return a parameter of an estimator, or of one inside of it, else None."""
    parameters = _parameters(getattr(estimator, "best_estimator_", estimator))
    keys = [key for key in parameters if f"__{key}".endswith(f"__{name}")]
    # If several have the name, the outermost counts.
    return parameters[min(keys, key=len)] if keys else None


class Audit(ABC):
    """What a model does to each group; see the two kinds of audits for their fields."""

    # What the plain values of an audit begin with; None for classifiers.
    kind: ClassVar[str | None] = None
    # How numbers are printed, and a cell of a table that has none.
    digits: ClassVar[str] = ".4f"
    no_value: ClassVar[str] = "undefined"

    n_rows: int
    notion: str
    confidence: float
    spec: AuditSpec
    violation: float
    interval: Interval
    people: People | None

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The audit as a data frame."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences on who is compared with whom, and who is left out."""

    def passes(
        self, max_violation: float, /, *, confidence: float | None = None
    ) -> bool:
        """Return whether a bound is kept.

        Parameters
        ----------
        max_violation
            The bound.
        confidence
            Whether a test at this confidence has to show it: only then are few rows no
            excuse. None: the value on these rows keeps it.

        Returns
        -------
        bool
            False if the violation is undefined.
        """
        self.check_bound(max_violation)
        if confidence is None:
            return bool(self.violation <= max_violation)
        return self.verdict(max_violation, confidence) == "passes"

    def verdict(self, max_violation: float, confidence: float = 0.95) -> Verdict:
        """Return what a test of a bound says.

        Parameters
        ----------
        max_violation
            The bound.
        confidence
            Of the test that it is kept, and of the test that it is not.

        Returns
        -------
        str
            ``"passes"``: the rows show that it is kept. ``"refuted"``: they show that
            it is not. ``"undecided"``: they show neither.
        """
        self.check_bound(max_violation)
        check_params({"confidence": confidence}, {"confidence": CONFIDENCE})
        kept, broken = self._p_values(max_violation, confidence)
        if kept <= 1 - confidence:
            return "passes"
        return "refuted" if broken <= 1 - confidence else "undecided"

    def rows_to_decide(
        self, max_violation: float, confidence: float = 0.95
    ) -> int | None:
        """Return about how many rows like these a verdict on a bound takes.

        None where no number is enough, because the violation is at the bound.
        """
        self.check_bound(max_violation)
        distance = abs(max_violation - self.violation)
        if not distance > 0:
            return None
        # The error falls with the root of the rows. For a verdict in four of five draws
        # the distance has to be 1.3 times as large.
        reach = (self.interval[1] - self.interval[0]) / 2
        return math.ceil(self.n_rows * max((1.3 * reach / distance) ** 2, 1.0))

    def merge(self, other: Any) -> "Audit":
        """Return the audit of the rows of two audits that hold counts."""
        raise InvalidInputError(
            "merge adds up counts of decisions, which an audit of predicted numbers "
            "does not have. Audit all rows in one frame."
        )

    def check_bound(self, max_violation: float) -> None:
        """Raise if a bound is not a number that a violation could have."""
        check_params({"max_violation": max_violation}, {"max_violation": Number()})

    @abstractmethod
    def _p_values(self, bound: float, confidence: float) -> tuple[float, float]:
        """Return those of "the bound is broken" and of "the bound is kept"."""

    @abstractmethod
    def _summary(self) -> tuple[str, list[pd.DataFrame]]:
        """Return a line and the tables that a notebook shows."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the people for JSON, as `from_dict` takes it.

        Undefined is None, infinite is ``"inf"``.
        """
        plain: dict[str, Any] = {} if self.kind is None else {"kind": self.kind}
        hidden = ("people", "source")
        kept = {name: value for name, value in vars(self).items() if name not in hidden}
        return {**plain, **json_ready(kept)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the audit that `to_dict` turned into plain values.

        Parameters
        ----------
        plain
            What `to_dict` returned, as it is or back from JSON.
        """
        try:
            chosen: Any = cls
            if cls is Audit:
                # Late, because both kinds of audits stand above this file.
                from fferm import auditing

                names = {None: "ClassificationAudit", "regression": "RegressionAudit"}
                chosen = getattr(auditing, names[plain.get("kind")])
            return chosen._restore(plain)  # type: ignore[no-any-return]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PersistenceError(
                "These values are not an audit. Pass what "
                f"{cls.__name__}.to_dict() or `fferm audit --json` returns."
            ) from error

    @classmethod
    def _restore(cls, plain: Mapping[str, Any]) -> Self:
        return cast(Self, _from_plain(cls, plain))

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        max_violation: float | None = None,
        before: "Audit | None" = None,
        provenance: Mapping[str, object] | None = None,
    ) -> None:
        """Write a report that needs nothing but a browser.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page; name the model and the data here.
        max_violation
            The bound to hold the violation against.
        before
            The audit, on the same rows, of the classifier that this one replaces; the
            page then says what changed for whom.
        provenance
            Where the rows and the model come from, by what it is called.
        """
        # Late, because the report stands above audits and needs an extra.
        from fferm.report import write_audit

        write_audit(
            self,
            path,
            title=title,
            max_violation=max_violation,
            before=before,
            provenance=provenance,
        )

    def dossier(  # noqa: PLR0913 - one call states all that a dossier depends on
        self,
        rule: str,
        *,
        sensitive_features: Table = None,
        sex: str | None = None,
        race: str | None = None,
        favorable: str | None = None,
        reference: Mapping[str, str] | None = None,
        exclude_small: bool = False,
        provenance: Mapping[str, object] | None = None,
    ) -> "Dossier":
        """Return what the text of a rule asks to be computed; not legal advice.

        Parameters
        ----------
        rule
            ``"ll144"`` (New York City Local Law 144), ``"eeoc"`` (Uniform Guidelines),
            ``"ecoa"`` (Regulation B) or ``"eu-ai-act"``.
        sensitive_features
            Columns of the same rows, in place of those that were audited.
        sex, race
            Which columns hold sex, and race or ethnicity, if their names do not say so.
        favorable
            The outcome that counts as being selected; by default the second of two
            classes, or each of several.
        reference
            By column, the category that others are compared with, where the rule
            leaves it open; by default that of the highest rate.
        exclude_small
            Whether categories under 2 % of the rows have no ratios.
        provenance
            Where the rows and the model come from, by what it is called.

        Returns
        -------
        Dossier
            With ``to_dict``, ``to_html`` and ``frame``. Values such as "unknown" or
            "prefer not to say" count as missing.
        """
        # Late, because a dossier stands above audits.
        from fferm.auditing.dossier import make_dossier

        return make_dossier(
            self,
            rule,
            sensitive_features=sensitive_features,
            sex=sex,
            race=race,
            favorable=favorable,
            reference=reference,
            exclude_small=exclude_small,
            provenance=provenance,
        )

    def _repr_html_(self) -> str:
        """Return compact tables, for notebooks."""
        line, tables = self._summary()
        lines = [f"<p>{escape(text)}</p>" for text in (line, *self.notes)]
        for table in tables:
            options: Any = {"float_format": self.format_number, "border": 0}
            options["index"] = not isinstance(table.index, pd.RangeIndex)
            lines.append(table.to_html(na_rep=self.no_value, **options))
        return "".join(lines)

    @classmethod
    def format_number(cls, value: float | None) -> str:
        """Return a number with as many digits as make sense."""
        if value is None:
            return "-"
        return "undefined" if math.isnan(value) else f"{value:{cls.digits}}"


def cut_name(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name, which users may make of any length, as a short text shows it."""
    return name if len(name) <= longest else name[: longest - 3] + "..."


def json_ready(value: Any) -> Any:
    """Return a value for JSON: undefined is None, infinite is ``"inf"``."""
    if dataclasses.is_dataclass(value):
        value = vars(value)
    elif hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): json_ready(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [json_ready(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _from_plain(hint: Any, plain: Any) -> Any:
    """Return the value of a type hint that `json_ready` turned into plain values."""
    if get_origin(hint) is types.UnionType:
        if type(plain) in get_args(hint):  # a text, or None
            return plain
        hint = next(o for o in get_args(hint) if o not in (str, types.NoneType))
    if hint is float:
        return math.nan if plain is None else float(plain)
    options = get_args(hint)
    if get_origin(hint) is dict:
        return {key: _from_plain(options[1], part) for key, part in plain.items()}
    if get_origin(hint) is tuple:
        parts = [options[0]] * len(plain) if options[-1] is ... else options
        return tuple(map(_from_plain, parts, plain))
    if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
        hints = get_type_hints(hint)
        known = [name for name in inspect.signature(hint).parameters if name in plain]
        return hint(**{name: _from_plain(hints[name], plain[name]) for name in known})
    return hint(plain)
