"""The dossier of an audit: what the text of a rule asks to be computed, by category.

A rule is a table in ``rules.toml``: its text, the columns it needs and its measures. A
dossier counts people, so there are no weights. It states figures and no verdict.

Intervals hold at once for all categories of a table, each measure for itself, at the
confidence of the audit. Of ratios, odds ratios and differences that is by Bonferroni's
correction for every pair of categories, because the data choose the reference.
"""

import functools
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import fisher_exact
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

import fferm
from fferm._typing import FloatArray, IntArray, Table
from fferm.auditing.base import Audit, cut_name, json_ready
from fferm.data.groups import (
    Attribute,
    Binning,
    encode_sensitive,
    partition,
    quantile_edges,
    read_series,
    split_columns,
)
from fferm.data.rows import People
from fferm.errors import InvalidInputError, InvalidParameterError, UnknownNameError
from fferm.metrics.intervals import (
    auc_limits,
    exact_limits,
    ratio_limits,
    two_sided,
)
from fferm.registry import unknown_name

DISCLAIMER = (
    "This dossier is not legal advice. It computes statistics that the text named here "
    "speaks of; whether they are the right ones, and what follows from them, is for "
    "people to decide."
)
# What the columns of sex and race may be called, if they are not named.
ROLES = {
    "sex": ("sex", "gender"),
    "race": ("race", "ethnicity", "race ethnicity", "ethnic group"),
}
# Values that say that a category is unknown, as a missing value does.
UNKNOWN = (
    "unknown",
    "undisclosed",
    "not disclosed",
    "not specified",
    "not stated",
    "declined",
    "decline to state",
    "prefer not to say",
)
FOUR_FIFTHS = 0.8
# Categories with a smaller share of the rows are named, and may be left out.
SMALL_SHARE = 0.02
# Differences with a p-value below are called significant: two standard deviations.
SIGNIFICANT = 0.05
# Bins of scores whose calibration is shown.
N_BINS = 5
# What a table of the dossier shows, in words, and whether it has an interval.
MEASURES = {
    "impact_ratio": ("Impact ratio", True),
    "adverse_impact_ratio": ("Adverse impact ratio", True),
    "four_fifths": ("Four fifths", False),
    "z": ("z", False),
    "p_z": ("p of z", False),
    "p_fisher": ("p of Fisher's test", False),
    "odds_ratio": ("Odds ratio", True),
    "accuracy": ("Accuracy", True),
    "true_positive_rate": ("True positive rate", True),
    "false_positive_rate": ("False positive rate", True),
    "mean_score": ("Mean score", False),
    "standardized_mean_difference": ("Standardised mean difference", True),
    "auc": ("AUC", True),
    "calibration": ("Observed minus expected", True),
}
# Measures of scores; the others are of what is decided, or of scores above the median.
OF_SCORES = ("mean_score", "standardized_mean_difference", "auc", "calibration")
OF_DECISIONS = ("accuracy", "true_positive_rate", "false_positive_rate")
METHODS = {
    "rate, accuracy, error rates": "Clopper and Pearson",
    "ratios and odds ratios": "score intervals of Koopman, Miettinen and Nurminen",
    "standardised mean difference": "Student's t, with the delta method",
    "AUC": "Newcombe's score interval, method 5",
    "calibration": "Clopper and Pearson's interval of the observed rate",
    "z": "difference of two rates with their common variance, two-sided",
    "at once": "Bonferroni over categories, or over pairs of categories for what "
    "compares two",
}


class Rule(NamedTuple):
    """What the text of a rule asks for, and how it is computed.

    Attributes
    ----------
    name, title, citation
        How it is called, and where its text stands.
    asks, limit, state
        What the text asks for, what it says of limits, and whether it is in force, as
        read in November 2026.
    needs
        The columns that it is about: ``"sex and race"``, ``"sex or race"``, or any.
    measures
        Of `MEASURES`, beside counts and rates.
    fill_in
        What only people can state, beside name, date and signature.
    four_fifths
        Whether the text has the four-fifths rule.
    scoring_rate
        Whether the text compares the shares of scores above the median.
    may_choose_reference
        Whether the reference of a ratio may be another category than that with the
        highest rate.
    """

    name: str
    title: str
    citation: str
    asks: tuple[str, ...]
    limit: str
    state: str
    needs: str
    measures: tuple[str, ...]
    fill_in: tuple[str, ...]
    four_fifths: bool = False
    scoring_rate: bool = False
    may_choose_reference: bool = False


@functools.cache
def rules() -> dict[str, Rule]:
    """Return the rules that a dossier can be made for, by name."""
    text = files("fferm.auditing").joinpath("rules.toml").read_text("utf-8")
    listed = {}
    for name, entry in tomllib.loads(text).items():
        fields: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()
        }
        listed[name] = Rule(name, **fields)
    return listed


@dataclass(frozen=True)
class Disparity:
    """How one outcome differs between the categories of one or two columns.

    Attributes
    ----------
    columns
        The column, or those that are crossed.
    basis
        ``"selection"``: decisions. ``"score"``: scores above the median.
    outcome
        The decision that counts as being selected, or that the score is for.
    median
        The median score of all rows, also of those whose category is unknown; None
        where nothing is compared with it.
    n_rows, n_unknown
        Rows with a category, and without.
    unknown
        The values that were read as unknown, with their rows.
    reference
        The category that others are compared with.
    categories
        By name: ``rows``, ``share``, ``is_small``, ``selected``, ``rate`` with the ends
        of its interval ``rate_low`` and ``rate_high``, and in the same way each measure
        of the rule. NaN is undefined.
    bins
        By category, for bins of the score: ``rows``, ``mean_score`` and the observed
        ``rate`` with its interval. Empty without labels.
    """

    columns: tuple[str, ...]
    basis: str
    outcome: str
    median: float | None
    n_rows: int
    n_unknown: int
    unknown: dict[str, int]
    reference: str
    categories: dict[str, dict[str, Any]]
    bins: dict[str, list[dict[str, float]]]

    @property
    def name(self) -> str:
        """The columns in words."""
        return " × ".join(self.columns)


@dataclass(frozen=True, repr=False)
class Dossier:
    """What an auditor hands in: figures, what they are, and what they are not.

    Attributes
    ----------
    rule
        Whose text asks for it.
    confidence
        The level of all intervals.
    n_rows
        Rows of the audit.
    tables
        One per column, or crossing, outcome and basis.
    findings
        What stands out, in sentences.
    not_computed
        What the rule asks for and these rows cannot give, and why.
    provenance
        Where the rows and the model come from, by what it is called.
    excludes_small
        Whether small categories have no ratio.
    """

    rule: Rule
    confidence: float
    n_rows: int
    tables: tuple[Disparity, ...]
    findings: tuple[str, ...]
    not_computed: tuple[str, ...]
    provenance: dict[str, str]
    excludes_small: bool = False

    @property
    def frame(self) -> pd.DataFrame:
        """One row per table and category."""
        return pd.DataFrame(
            {"columns": table.name, "basis": table.basis, "outcome": table.outcome}
            | {"category": category, **row}
            for table in self.tables
            for category, row in table.categories.items()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON, as ``dossier.schema.json`` describes it."""
        plain = {
            "format": "fferm dossier 1",
            "disclaimer": DISCLAIMER,
            "rule": self.rule._asdict(),
            "confidence": self.confidence,
            "n_rows": self.n_rows,
            "excludes_small": self.excludes_small,
            "findings": self.findings,
            "not_computed": self.not_computed,
            "tables": [asdict(table) for table in self.tables],
            "methods": METHODS,
            "provenance": self.provenance,
            "to_sign": dict.fromkeys([*self.rule.fill_in, *SIGNED]),
            "fferm": fferm.__version__,
        }
        return json_ready(plain)  # type: ignore[no-any-return]

    def to_html(
        self, path: str | os.PathLike[str], *, title: str | None = None
    ) -> None:
        """Write the dossier as one page to print and to sign.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced.
        title
            The heading of the page.
        """
        # Late, because the report stands above audits and needs an extra.
        from fferm.report import write_dossier

        write_dossier(self, path, title=title)

    def __repr__(self) -> str:
        """Return one line."""
        return (
            f"Dossier({self.rule.name}, {self.n_rows} rows, {len(self.tables)} tables)"
        )

    def __str__(self) -> str:
        lines = [self.rule.title, self.rule.citation, "", *self.findings]
        for table in self.tables:
            lines += ["", describe(table)]
            rows = table.categories
            shown = ("rows", "rate", *self.rule.measures)
            known = {key for row in rows.values() for key in row}
            frame = pd.DataFrame.from_dict(rows, orient="index")
            frame = frame[[name for name in shown if name in known]]
            frame.index = pd.Index([cut_name(str(name)) for name in frame.index])
            lines.append(frame.to_string(float_format="{:.4f}".format, na_rep="-"))
        lines += ["", *self.not_computed, self.rule.limit, self.rule.state, DISCLAIMER]
        return "\n".join(lines)


# What everybody signs with.
SIGNED = ("Name", "Date", "Signature")


def describe(table: Disparity) -> str:
    """Return what a table is about, in one line."""
    unknown = f"{table.n_unknown} rows of unknown category are left out"
    return f"By {table.name}: {_what(table)}; {unknown}."


def _what(table: Disparity) -> str:
    what = f"decision {table.outcome!r}"
    if table.basis == "score":
        what = f"scores for {table.outcome!r}" if table.outcome else "scores"
    if table.median is not None:
        what += f" above the median, {table.median:.4g}"
    return what


def make_dossier(  # noqa: PLR0913 - as the method of an audit
    audit: Audit,
    name: str,
    *,
    sensitive_features: Table = None,
    sex: str | None = None,
    race: str | None = None,
    favorable: str | None = None,
    reference: Mapping[str, str] | None = None,
    exclude_small: bool = False,
    provenance: Mapping[str, object] | None = None,
) -> Dossier:
    """Return what a rule asks of an audit; the parameters are those of the method."""
    if name not in rules():
        raise UnknownNameError(unknown_name("rule", name, rules()))
    rule, people = rules()[name], _people_of(audit)
    features = people.sensitive_features
    if sensitive_features is not None:
        features = sensitive_features
    columns = dict(split_columns(features))
    asked = _columns_of(rule, list(columns), {"sex": sex, "race": race})
    attributes, unknown = _categories(people, {each: columns[each] for each in asked})
    among: list[tuple[Attribute, tuple[str, ...]]] = [
        (attribute, (attribute.name,)) for attribute in attributes
    ]
    if len(attributes) > 1:
        (crossed,) = partition(attributes, "intersection")
        among.append((crossed, tuple(asked)))
    chosen = _references(rule, reference, [attribute for attribute, _ in among])
    maker = _Maker(rule, people, audit.confidence, exclude_small)
    tables = tuple(
        maker.table(
            attribute,
            basis,
            outcome,
            names,
            {value: n for each in names for value, n in unknown[each].items()},
            chosen.get(attribute.name),
        )
        for attribute, names in among
        for outcome in _outcomes(people, favorable)
        for basis in maker.bases()
    )
    results = [sentence for table in tables for sentence in _find(rule, table)]
    if favorable is None and len(people.classes) == 2 and people.classes[1] != "1":
        results.insert(
            0,
            f"Selected means {people.classes[1]!r}, the outcome that sorts last. If "
            "that is not the favourable one, name it: favorable=, or --favorable.",
        )
    return Dossier(
        rule=rule,
        confidence=audit.confidence,
        n_rows=audit.n_rows,
        tables=tables,
        findings=tuple(dict.fromkeys(results)),
        not_computed=tuple(maker.missing()),
        provenance={str(k): str(v) for k, v in (provenance or {}).items()},
        excludes_small=exclude_small,
    )


def _people_of(audit: Audit) -> People:
    if audit.people is None:
        raise InvalidInputError(
            "This audit has no rows, because it was read from a file, counted piece by "
            "piece, in an engine or for a curve. Audit rows in memory for a dossier."
        )
    if audit.spec.is_weighted:
        raise InvalidParameterError(
            "A dossier counts people, and this audit has sample weights. Audit without "
            "sample_weight."
        )
    return audit.people


def _columns_of(
    rule: Rule, names: Sequence[str], named: Mapping[str, str | None]
) -> list[str]:
    # The columns that a rule is about, in its order.
    results = {}
    for role, column in named.items():
        if column is not None and column not in names:
            raise InvalidParameterError(unknown_name(f"column {role}=", column, names))
        plain = {
            n: n.lower().replace("_", " ").replace("/", " ").replace("-", " ")
            for n in names
        }
        known = [n for n in names if plain[n] in ROLES[role]]
        if column is not None or known:
            results[role] = column or known[0]
    if not rule.needs:
        return list(names)
    if len(results) < (2 if "and" in rule.needs else 1):
        lacking = [role for role in named if role not in results]
        raise InvalidInputError(
            f"{rule.name} needs a column of {rule.needs}; got "
            f"{', '.join(names)}. Name the column of {lacking[0]}: "
            f'{lacking[0]}="{names[0]}" in Python, --{lacking[0]} on the command line.'
        )
    return list(dict.fromkeys(results.values()))


def _categories(
    people: People, columns: Mapping[str, Table]
) -> tuple[list[Attribute], dict[str, dict[str, int]]]:
    # The categories of each column, and the values that say that there is none.
    attributes, unknown = [], {}
    binning = Binning(edges=people.edges, warns=False)
    for name, values in columns.items():
        series = read_series(values, name, people.n_rows)
        texts = series.astype(str).str.strip().str.lower()
        is_unknown = series.notna() & texts.isin(UNKNOWN)
        counted = series[is_unknown].astype(str).value_counts()
        unknown[name] = {str(k): int(v) for k, v in counted.items()}
        known = series.where(~is_unknown)
        # The bands of one column are not those of another that has lost its name.
        (attribute,) = encode_sensitive({name: known}, len(series), "marginal", binning)
        attributes.append(attribute)
    return attributes, unknown


def _references(
    rule: Rule, reference: Mapping[str, str] | None, attributes: Sequence[Attribute]
) -> Mapping[str, str]:
    groups = {attribute.name: attribute.groups for attribute in attributes}
    if reference and not rule.may_choose_reference:
        raise InvalidParameterError(
            f"{rule.name} compares with the category of the highest rate. Leave out "
            "reference."
        )
    for column, category in (reference or {}).items():
        if column not in groups:
            raise InvalidParameterError(
                unknown_name("column of reference", column, groups)
            )
        if category not in groups[column]:
            raise InvalidParameterError(
                unknown_name(f"category of {column}", category, groups[column])
            )
    return reference or {}


def _outcomes(people: People, favorable: str | None) -> list[int]:
    # The codes of the outcomes that are compared.
    classes = people.classes
    if favorable is not None:
        if str(favorable) not in classes:
            raise InvalidParameterError(
                unknown_name("outcome favorable=", str(favorable), classes)
            )
        return [classes.index(str(favorable))]
    return [1] if len(classes) == 2 else list(range(max(len(classes), 1)))


def _find(rule: Rule, table: Disparity) -> Iterator[str]:
    # What stands out in a table.
    rows = table.categories
    small = [name for name, row in rows.items() if row["is_small"]]
    if small:
        share = f"{100 * SMALL_SHARE:g} %"
        yield f"By {table.name}: under {share} of the rows are {', '.join(small)}."
    ratio = next(name for name in rule.measures if name.endswith("impact_ratio"))
    shown = {n: row for n, row in rows.items() if not math.isnan(row.get(ratio, 0.0))}
    where = f"By {table.name}, {_what(table)}"
    if len(shown) < 2:
        yield f"{where}: no two categories can be compared."
    if len(shown) < 2 or any(ratio not in row for row in rows.values()):
        return
    worst = min(shown, key=lambda name: shown[name][ratio])
    row = shown[worst]
    yield (
        f"{where}: the lowest {MEASURES[ratio][0].lower()} is {row[ratio]:.3f}, for "
        f"{worst} compared with {table.reference} ({row['rows']} rows; interval "
        f"{row[f'{ratio}_low']:.3f} to {row[f'{ratio}_high']:.3f})."
    )
    for name, row in shown.items() if rule.four_fifths else ():
        below, p = row[ratio] < FOUR_FIFTHS, row["p_fisher"]
        if below or p < SIGNIFICANT:
            words = "below four fifths" if below else "not below four fifths"
            sure = "significant" if p < SIGNIFICANT else "not significant"
            yield (
                f"{where}, {name}: {words}; the difference of rates is statistically "
                f"{sure} (z {row['z']:.2f}, Fisher's p {p:.3g})."
            )


@dataclass(frozen=True)
class _Maker:
    rule: Rule
    people: People
    confidence: float
    excludes_small: bool

    def bases(self) -> list[str]:
        """Return what rates are of; raise if the rule is about neither."""
        people, rule = self.people, self.rule
        listed = [] if people.decision is None else ["selection"]
        of_scores = rule.scoring_rate or set(OF_SCORES) & {*rule.measures}
        if people.scores is not None and of_scores:
            listed.append("score")
        if not listed:
            raise InvalidInputError(
                f"{rule.name} compares how often people are selected, and this audit "
                "has predicted numbers. Audit decisions, as y_pred."
            )
        return listed

    def missing(self) -> Iterator[str]:
        """Yield what cannot be computed, and why."""
        people, asked = self.people, self.rule.measures

        def titles(names: Sequence[str]) -> str:
            return ", ".join(MEASURES[name][0] for name in asked if name in names)

        of_scores = titles(OF_SCORES) or "scoring rates" * self.rule.scoring_rate
        if people.scores is None and of_scores:
            yield f"There are no scores, so not computed: {of_scores}."
        if people.decision is None:
            yield "There are scores and no decisions: selection rates are not computed."
        of_truth = titles(("auc", "calibration", *OF_DECISIONS))
        if people.truth is None and of_truth:
            yield f"There are no labels, so not computed: {of_truth}."

    def table(
        self,
        attribute: Attribute,
        basis: str,
        outcome: int,
        columns: tuple[str, ...],
        unknown: dict[str, int],
        reference: str | None,
    ) -> Disparity:
        people = self.people
        known = attribute.code >= 0
        code, n_groups = attribute.code[known], len(attribute.groups)
        truth = None if people.truth is None else people.truth[known] == outcome
        kept = {"rows", "share", "is_small"}
        scores: FloatArray | None = None
        median: float | None = None
        # Decisions choose the reference, unless the rule compares rates of scores.
        is_of_scores = basis == "score" and (
            self.rule.scoring_rate or people.decision is None
        )
        if people.scores is not None and basis == "score":
            scores = people.scores[known, outcome]
        if is_of_scores and scores is not None:
            # Of all people, also of those whose category is unknown.
            median = float(np.median(people.scores[:, outcome]))  # type: ignore[index]
            selected = scores > median
        else:
            selected = people.decision[known] == outcome  # type: ignore[index]
        if is_of_scores or basis == "selection":
            kept |= {"selected", "rate", *self.rule.measures}
        kept |= {*OF_SCORES} & {*self.rule.measures}
        counts = np.bincount(code, selected, n_groups)
        n_rows = np.bincount(code, minlength=n_groups).astype(np.float64)
        share = n_rows / max(code.size, 1)
        is_counted = (n_rows > 0) & ~(self.excludes_small & (share < SMALL_SHARE))
        place = None if reference is None else attribute.groups.index(reference)
        rows, r = _compare(counts, n_rows, is_counted, place, self.confidence)
        rows |= {"share": share, "is_small": share < SMALL_SHARE}
        bins: dict[str, list[dict[str, float]]] = {}
        if scores is not None:
            pair = _n_pairs(is_counted, place)
            rows |= self._scores(scores, code, truth, r, is_counted, pair)
            if truth is not None and "calibration" in self.rule.measures:
                cells = self._bins(scores, code, truth, n_groups)
                bins = dict(zip(attribute.groups, cells, strict=True))
        elif truth is not None and len(people.classes) == 2:
            rows |= self._errors(selected, truth, code, n_groups)
        lists = {
            name: values.tolist()
            for name, values in rows.items()
            if name.removesuffix("_low").removesuffix("_high") in kept
        }
        categories = {
            group: {name: values[k] for name, values in lists.items()}
            for k, group in enumerate(attribute.groups)
        }
        return Disparity(
            columns=columns,
            basis=basis,
            outcome=people.classes[outcome] if people.classes else "",
            median=median,
            n_rows=code.size,
            n_unknown=int(np.sum(~known)),
            unknown=unknown,
            reference=attribute.groups[r] if n_groups else "",
            categories=categories,
            bins=bins,
        )

    def _errors(
        self,
        selected: NDArray[np.bool_],
        truth: NDArray[np.bool_],
        code: IntArray,
        n_groups: int,
    ) -> dict[str, NDArray[Any]]:
        # Accuracy and error rates, of those for whom they are defined.
        results: dict[str, NDArray[Any]] = {}
        parts = {
            "accuracy": (selected == truth, np.ones_like(truth)),
            "true_positive_rate": (selected, truth),
            "false_positive_rate": (selected, ~truth),
        }
        for name, (is_hit, is_among) in parts.items():
            n = np.bincount(code, is_among, n_groups)
            x = np.bincount(code, is_hit & is_among, n_groups)
            results |= _rates(name, x, n, self.confidence)
        return results

    def _scores(
        self,
        scores: FloatArray,
        code: IntArray,
        truth: NDArray[np.bool_] | None,
        r: int,
        is_counted: NDArray[np.bool_],
        n_pairs: int,
    ) -> dict[str, NDArray[Any]]:
        n_groups = is_counted.size
        n = np.bincount(code, minlength=n_groups)
        with np.errstate(invalid="ignore"):
            mean = np.bincount(code, scores, n_groups) / n
        results: dict[str, NDArray[Any]] = {"mean_score": mean}
        risk = (1 - self.confidence) / n_pairs
        gaps = [
            _standardized_gap(scores, code, k, r, risk)
            if is_counted[k]
            else (math.nan,) * 3
            for k in range(n_groups)
        ]
        results |= _columns("standardized_mean_difference", gaps)
        if truth is None:
            return results
        quantile = two_sided(1 - (1 - self.confidence) / max(n_groups, 1))
        areas = []
        for k in range(n_groups):
            y, s = truth[code == k], scores[code == k]
            n_positive = int(y.sum())
            area = math.nan
            if 0 < n_positive < y.size:
                area = float(roc_auc_score(y, s))
            limits = auc_limits(area, n_positive, y.size - n_positive, quantile)
            areas.append((area, *limits))
        results |= _columns("auc", areas)
        observed = _rates(
            "calibration", np.bincount(code, truth, n_groups), n, self.confidence
        )
        return results | {name: values - mean for name, values in observed.items()}

    def _bins(
        self,
        scores: FloatArray,
        code: IntArray,
        truth: NDArray[np.bool_],
        n_groups: int,
    ) -> list[list[dict[str, float]]]:
        # The same bins for all categories, with equal shares of all rows.
        edges = quantile_edges(scores, N_BINS, np.ones(scores.size))
        cell = code * (edges.size + 1) + np.searchsorted(edges, scores, "right")
        n_cells = n_groups * (edges.size + 1)
        n = np.bincount(cell, minlength=n_cells)
        rates = _rates("rate", np.bincount(cell, truth, n_cells), n, self.confidence)
        with np.errstate(invalid="ignore"):
            rates["mean_score"] = np.bincount(cell, scores, n_cells) / n
        rates["rows"] = n
        lists = {name: values.tolist() for name, values in rates.items()}
        by_cell = [{name: v[i] for name, v in lists.items()} for i in range(n_cells)]
        width = edges.size + 1
        return [
            [row for row in by_cell[k * width : (k + 1) * width] if row["rows"]]
            for k in range(n_groups)
        ]


def _columns(name: str, rows: Sequence[tuple[float, ...]]) -> dict[str, NDArray[Any]]:
    values = np.array(rows, dtype=np.float64).reshape(-1, 3)
    ends = (name, f"{name}_low", f"{name}_high")
    return dict(zip(ends, values.T, strict=True))


def _rates(
    name: str, counts: NDArray[Any], n_rows: NDArray[Any], confidence: float
) -> dict[str, NDArray[Any]]:
    # Rates of several categories, whose exact intervals hold at once.
    n = np.where(n_rows > 0, n_rows, np.nan)
    risk = (1 - confidence) / max(int(np.sum(n_rows > 0)), 1)
    low, high = exact_limits(counts, np.maximum(n_rows, 1), risk)
    known = ~np.isnan(n)
    ends = np.where(known, low, np.nan), np.where(known, high, np.nan)
    return {name: counts / n, f"{name}_low": ends[0], f"{name}_high": ends[1]}


def _n_pairs(is_counted: NDArray[np.bool_], reference: int | None) -> int:
    # Pairs of categories whose intervals hold at once.
    n = int(np.sum(is_counted))
    return max(n * (n - 1) // 2 if reference is None else n - 1, 1)


def _compare(
    counts: NDArray[Any],
    n_rows: FloatArray,
    is_counted: NDArray[np.bool_],
    reference: int | None,
    confidence: float,
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return rates, ratios and tests by category, and the reference.

    Parameters
    ----------
    counts, n_rows
        (n_categories,) people who are selected, and all.
    is_counted
        (n_categories,) whether a category has ratios.
    reference
        A category to compare with, None for that of the highest rate.
    confidence
        The level.
    """
    results = _rates("rate", counts, n_rows, confidence)
    rate = np.where(is_counted, results["rate"], np.nan)
    n_groups = rate.size
    highest = int(np.nanargmax(rate)) if np.any(is_counted) else 0
    r = highest if reference is None else reference
    results |= {"rows": n_rows.astype(np.int64), "selected": counts.astype(np.int64)}
    inside = np.flatnonzero(is_counted)
    # Ratios of every ordered pair of categories, and of one with itself, 1.
    low, high = (np.full((n_groups, n_groups), np.nan) for _ in range(2))
    a, b = (inside[i.ravel()] for i in np.indices((inside.size, inside.size)))
    pairs = np.stack([counts[a], counts[b]]), np.stack([n_rows[a], n_rows[b]])
    every = two_sided(1 - (1 - confidence) / _n_pairs(is_counted, None))
    low[a, b], high[a, b] = ratio_limits(*pairs, every)
    low[inside, inside] = high[inside, inside] = 1.0
    # The rate over the highest is the least of the ratios to all.
    with np.errstate(invalid="ignore", divide="ignore"):
        impact = rate / rate[highest]
        ends = [np.fmin.reduce(limit, axis=1) for limit in (low, high)]
        adverse = rate / rate[r]
        pair_level = two_sided(1 - (1 - confidence) / _n_pairs(is_counted, reference))
        to = np.stack([counts, np.full(n_groups, counts[r])])
        of = np.stack([n_rows, np.full(n_groups, n_rows[r])])
        of = np.maximum(of, 1.0)
        air = ratio_limits(to, of, pair_level)
        odds = counts * (n_rows[r] - counts[r]) / ((n_rows - counts) * counts[r])
        odds_ends = ratio_limits(to, of, pair_level, is_odds=True)
        common = to.sum(axis=0) / of.sum(axis=0)
        z = (rate - rate[r]) / np.sqrt(common * (1 - common) * (1 / of).sum(axis=0))
    is_other = is_counted & (np.arange(n_groups) != r)
    fisher = [
        fisher_exact(np.array([[x, n - x], [counts[r], n_rows[r] - counts[r]]]))[1]
        if other
        else math.nan
        for x, n, other in zip(counts, n_rows, is_other, strict=True)
    ]
    z = np.where(is_other, z, np.nan)

    def only(values: FloatArray) -> FloatArray:
        return np.where(is_other, values, np.nan)

    results |= _columns("impact_ratio", list(zip(impact, *ends, strict=True)))
    adverse_ends = [np.where(is_other, each, adverse) for each in air]
    results |= _columns(
        "adverse_impact_ratio", list(zip(adverse, *adverse_ends, strict=True))
    )
    is_above: Any = np.where(np.isnan(impact), None, impact >= FOUR_FIFTHS)
    results["four_fifths"] = is_above
    results |= {"z": z, "p_z": 2 * ndtr(-np.abs(z)), "p_fisher": np.array(fisher)}
    results |= _columns(
        "odds_ratio", list(zip(*map(only, (odds, *odds_ends)), strict=True))
    )
    return results, r


def _standardized_gap(
    scores: FloatArray, code: IntArray, k: int, r: int, risk: float
) -> tuple[float, float, float]:
    # The difference of two mean scores in standard deviations of all scores, and its
    # interval by the delta method.
    n = scores.size
    centred = scores - scores.mean()
    variance = float(np.sum(centred**2)) / max(n - 1, 1)
    inside = [code == k, code == r]
    sizes = [int(np.sum(each)) for each in inside]
    if k == r or variance == 0 or min(sizes) == 0:
        return math.nan, math.nan, math.nan
    deviation = math.sqrt(variance)
    means = [float(centred[each].mean()) for each in inside]
    value = (means[0] - means[1]) / deviation
    if min(sizes) < 2:
        return value, -math.inf, math.inf
    influence = -value * (centred**2 - variance) / (2 * variance)
    for each, size, mean, sign in zip(inside, sizes, means, (1, -1), strict=True):
        influence[each] += sign * n / (size - 1) * (centred[each] - mean) / deviation
    error = math.sqrt(float(np.sum(influence**2))) / n
    half = float(student.ppf(1 - risk / 2, min(sizes) - 1)) * error
    return value, value - half, value + half
