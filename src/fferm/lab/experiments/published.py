"""Benchmarks that others have published, run again with our models.

A spec of the kind ``"published"`` names the rows, the features and the measure of a
benchmark, and holds the figures that its authors publish. Each model is judged on
validation and on test rows, and read in two ways: as the authors read theirs, and
chosen on validation rows alone.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from fferm._typing import FloatArray, IntArray
from fferm.data.groups import GroupMode
from fferm.data.rows import FitInput
from fferm.data.split import take_rows
from fferm.datasets import load_adult
from fferm.datasets._store import CATALOG, read_parquet
from fferm.deploy import repair
from fferm.errors import import_extra
from fferm.estimators.boosting import FairBoostingClassifier
from fferm.lab.experiments.specs import Spec
from fferm.metrics import violation

CONFIDENCE = 0.95
TARGET = "PINCP_GT50K"
PARTS = ("train", "validation", "test")
# Shares of the rows to train and to choose on; the rest is judged.
SHARES = (0.64, 0.16)
# Of the files that Aequitas Flow ships only a sample of the training rows is to be had:
# the share of its validation rows that is trained on too.
TRAINED_SHARE = 0.25
FEATURES = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX"]
NOMINAL = ["COW", "MAR", "RELP", "SEX"]
# Validation rows that a group needs for decisions of its own.
LEAST_ROWS = 15
# Of the trees without a penalty, chosen on validation rows.
NUM_LEAVES = (15, 31, 63)
# White, Black, Asian and "some other race"; and how many of their rows are drawn.
LARGEST_RACES = (1, 2, 6, 8)
ACS_ROWS = 400_000
# Ends of the bands of age in which a penalty sees it.
AGES = (0, 25, 35, 45, 55, 65, np.inf)

Judge = Callable[[IntArray, IntArray], float]  # rows and decisions -> violation


class Rows(NamedTuple):
    """The rows of a benchmark: all of them, which are which, and the measure."""

    all: FitInput
    parts: Mapping[str, IntArray]
    violation: Judge


def relative_deviation(
    decided: IntArray, y: IntArray, members: FloatArray, notion: str
) -> float:
    """Return the largest ``|rate of a column / overall rate - 1|``.

    Rates are of decisions, under equal opportunity those of rows with ``y = 1``.
    ``members`` is (n_samples, n_columns), 0/1 for groups and a number in [0, 1] for an
    attribute like age, whose rate is the weighted one. This is how ABCFair measures.
    """
    if notion == "equal_opportunity":
        decided, members = decided[y == 1], members[y == 1]
    overall = decided.mean()
    if overall == 0:
        return 0.0
    weight = members.sum(axis=0)
    rate = (decided @ members)[weight > 0] / weight[weight > 0]
    return float(np.abs(rate / overall - 1).max())


def abcfair(options: Mapping[str, Any], notion: str, seed: int) -> Rows:
    """Return ACSIncome of all states as ABCFair has it."""
    table = _acs().sample(frac=1, random_state=seed, ignore_index=True)
    y = table[TARGET].to_numpy(np.int64)
    race = table["RAC1P"].replace({3: 8, 4: 8, 5: 8, 7: 8})
    age = (table["AGEP"] - table["AGEP"].min()) / np.ptp(table["AGEP"])
    columns = {
        "SEX": pd.get_dummies(table["SEX"]),
        "AGEP": age.to_frame(),
        "MAR": pd.get_dummies(table["MAR"]),
        "RAC1P": pd.get_dummies(race),
    }
    groups = pd.DataFrame(
        {
            "SEX": table["SEX"].astype(str),
            "AGEP": pd.cut(table["AGEP"], AGES, right=False).astype(str),
            "MAR": table["MAR"].astype(str),
            "RAC1P": race.astype(str),
        }
    )
    names = list(options["sensitive"])
    members = np.hstack([columns[name].to_numpy(np.float64) for name in names])
    X = table[["SCHL", "OCCP", "COW", "WKHP"]].astype({"COW": "category"})
    if options["group_is_feature"]:
        X = X.join(groups[names].astype("category"))
    parts = _parts(len(y))
    parts["train"] = parts["train"][: options["train_rows"]]
    return Rows(
        FitInput(X, y, groups[names]),
        parts,
        lambda rows, decided: relative_deviation(
            decided, y[rows], members[rows], notion
        ),
    )


def aequitas(options: Mapping[str, Any], notion: str, seed: int) -> Rows:
    """Return ACSIncome in the files of Aequitas Flow, by nine races."""
    table = _acs()
    y, race = table[TARGET].to_numpy(np.int64), table[["RAC1P"]].astype(str)
    X = table[FEATURES].astype(dict.fromkeys(NOMINAL, "category"))
    parts = {
        name: np.flatnonzero(table["SPLIT"] == file)
        for name, file in zip(
            PARTS, ("train_sample", "validation", "test"), strict=True
        )
    }
    rng = np.random.default_rng(seed)
    seen = rng.permutation(parts["validation"])
    trained, parts["validation"] = np.split(seen, [int(TRAINED_SHARE * len(seen))])
    parts["train"] = rng.permutation(np.concatenate([parts["train"], trained]))
    return Rows(FitInput(X, y, race), parts, _gap(y, race, notion))


def humancompatible(options: Mapping[str, Any], notion: str, seed: int) -> Rows:
    """Return ACSIncome of Oklahoma, white people against all others."""
    table = _acs()
    table = table[table["STATE"] == "OK"].sample(frac=1, random_state=seed)
    y = table[TARGET].to_numpy(np.int64)
    white = pd.DataFrame({"white": (table["RAC1P"] == 1).astype(str).to_numpy()})
    X = table[FEATURES].astype(dict.fromkeys(NOMINAL, "category"))
    X = X.reset_index(drop=True)
    return Rows(FitInput(X, y, white), _parts(len(y)), _gap(y, white, notion))


def postprocessing(options: Mapping[str, Any], notion: str, seed: int) -> Rows:
    """Return Adult by sex or ACSIncome by race, with or without the group in X."""
    is_feature = options["group_is_feature"]
    if options["data"] == "adult":
        data = load_adult(drop_sensitive=not is_feature)
        X = pd.concat([data.frame, data.frame_test], ignore_index=True)
        X = X.astype(dict.fromkeys(X.select_dtypes(exclude="number"), "category"))
        y = np.concatenate([data.y, data.y_test]).astype(np.int64)
        groups = [data.sensitive_features, data.sensitive_features_test]
        group = pd.concat(groups, ignore_index=True).astype(str)
        parts = _parts(len(data.y), np.random.default_rng(seed), (0.8, 0.2))
        parts["test"] = np.arange(len(data.y), len(y))
        return Rows(FitInput(X, y, group), parts, _gap(y, group, notion))
    table = _acs()
    table = table[table["RAC1P"].isin(LARGEST_RACES)]
    table = table.sample(ACS_ROWS, random_state=seed, ignore_index=True)
    y, group = table[TARGET].to_numpy(np.int64), table[["RAC1P"]].astype(str)
    names = [*FEATURES, *["RAC1P"] * is_feature]
    nominal = dict.fromkeys([n for n in (*NOMINAL, "RAC1P") if n in names], "category")
    X = table[names].astype(nominal)
    return Rows(FitInput(X, y, group), _parts(len(y)), _gap(y, group, notion))


def _parts(
    n: int,
    rng: np.random.Generator | None = None,
    shares: tuple[float, float] = SHARES,
) -> dict[str, IntArray]:
    # Rows to train and to choose on, and the rest; without ``rng`` in their order.
    order = np.arange(n) if rng is None else rng.permutation(n)
    cuts = [int(share * n) for share in np.cumsum(shares)]
    return dict(zip(PARTS, np.split(order, cuts), strict=True))


def _gap(y: IntArray, groups: pd.DataFrame, notion: str) -> Judge:
    def gap(rows: IntArray, decided: IntArray) -> float:
        sensitive = groups.iloc[rows]
        return violation(y[rows], decided, sensitive_features=sensitive, notion=notion)

    return gap


def _acs() -> pd.DataFrame:
    columns = [*FEATURES, "RAC1P", TARGET, "STATE", "SPLIT"]
    return read_parquet(CATALOG["acs_income"], columns)


LOADERS = {
    "abcfair": abcfair,
    "aequitas": aequitas,
    "humancompatible": humancompatible,
    "postprocessing": postprocessing,
}


@dataclass
class PlainLoop(BaseEstimator):
    """A network that is trained in a loop of PyTorch's with `FairnessLoss` added."""

    notion: str = "demographic_parity"
    hidden: Sequence[int] = (64, 32)
    dropout: float = 0.0
    batch_size: int = 8
    max_epochs: int = 10
    learning_rate: float = 1e-3
    sharpness: float = 2.0
    device: str = "cpu"
    random_state: int = 0

    def fit_path(
        self, passed: FitInput, fairness_weights: Sequence[float]
    ) -> Iterator["PlainLoop"]:
        """Yield the model of each weight."""
        for weight in fairness_weights:
            model = PlainLoop(**self.get_params())
            model.fit(passed, weight)
            yield model

    def fit(self, passed: FitInput, weight: float) -> None:
        """Train for one weight."""
        import torch
        from torch import nn

        from fferm.torch import FairnessLoss

        torch.manual_seed(self.random_state)
        table = pd.get_dummies(passed.X)
        self.columns_ = table.columns
        self.scaler_ = StandardScaler().fit(table.to_numpy(np.float64))
        X = self._tensor(passed.X)
        y = torch.tensor(np.asarray(passed.y), device=self.device)
        names = np.asarray(passed.sensitive_features).ravel()
        codes = np.unique(names, return_inverse=True)[1]
        group = torch.tensor(codes, device=self.device)
        widths = [X.shape[1], *self.hidden]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(widths):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(), nn.Dropout(self.dropout)]
        network = nn.Sequential(*layers, nn.Linear(widths[-1], 2)).to(self.device)
        fair = FairnessLoss.from_labels(
            y, group, notion=self.notion, sharpness=self.sharpness
        ).to(self.device)
        learned = [*network.parameters(), *fair.parameters()]
        optimizer = torch.optim.AdamW(learned, lr=self.learning_rate)
        n_steps = self.max_epochs * -(-len(y) // self.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_steps)
        for _ in range(self.max_epochs):
            order = torch.randperm(len(y), device=self.device)
            for rows in torch.split(order, self.batch_size):
                optimizer.zero_grad()
                logits = network(X[rows])
                loss = nn.functional.cross_entropy(logits, y[rows])
                if weight > 0:
                    loss = loss + weight * fair(logits, group[rows], y[rows])
                torch.autograd.backward(loss)
                optimizer.step()
                schedule.step()
        self.module_ = network.eval()

    def predict(self, X: Any) -> IntArray:
        """Return the most probable class of each row."""
        import torch

        with torch.no_grad():
            logits = self.module_(self._tensor(X))
        return np.asarray(logits.argmax(dim=1).cpu().numpy())

    def _tensor(self, X: pd.DataFrame) -> Any:
        import torch

        table = pd.get_dummies(X).reindex(columns=self.columns_, fill_value=0)
        scaled = self.scaler_.transform(table.to_numpy(np.float64))
        return torch.tensor(scaled, dtype=torch.float32, device=self.device)


@dataclass
class PostProcessed(BaseEstimator):
    """Decisions by group on top of trees: LightGBM's or, with a weight, fair ones.

    Both the number of leaves and the decisions are fitted on the validation rows, which
    favours them there: other methods only choose their weight on these.
    """

    how: str = "error_parity"
    notion: str = "demographic_parity"
    infers_group: bool = False
    groups: GroupMode = "intersection"
    fairness_weight: float | None = None
    random_state: int = 0
    validation: FitInput | None = None
    predicts_with_groups = True

    def fit_path(
        self, passed: FitInput, bounds: Sequence[float]
    ) -> Iterator["PostProcessed"]:
        """Yield the decisions of each bound."""
        lgb = import_extra("lightgbm", "boosting", "PostProcessed")
        assert self.validation is not None
        options = {"n_estimators": 200, "n_jobs": 1, "verbose": -1}
        options["random_state"] = self.random_state
        X, y, group = self._read(self.validation)
        if self.fairness_weight is None:
            models = [
                lgb.LGBMClassifier(num_leaves=leaves, **options).fit(passed.X, passed.y)
                for leaves in NUM_LEAVES
            ]
            score = _scorer(max(models, key=lambda model: model.score(X, y)))
        else:
            names = "notion", "fairness_weight", "random_state"
            fair = FairBoostingClassifier(n_jobs=1, **{n: vars(self)[n] for n in names})
            groups = passed.sensitive_features
            score = _scorer(fair.fit(passed.X, passed.y, sensitive_features=groups))
        guess: Any = False
        if self.infers_group:
            options["n_estimators"] = 50
            guesser = lgb.LGBMClassifier(**options)
            guess = _scorer(guesser.fit(passed.X, self._read(passed)[2]))
        for bound in bounds:
            model = PostProcessed(**self.get_params())
            fit = getattr(model, f"_{self.how}")
            model.decide_ = fit(score, guess, (X, y, group), bound)
            yield model

    def predict(self, X: Any, *, sensitive_features: pd.DataFrame) -> IntArray:
        """Return the decision on each row."""
        _, _, group = self._read(FitInput(X, None, sensitive_features))
        return np.asarray(self.decide_(X, group), dtype=np.int64)

    def _read(self, rows: FitInput) -> tuple[pd.DataFrame, IntArray, Any]:
        # Groups of few validation rows are one.
        if self.groups == "marginal":
            return rows.X, rows.y, rows.sensitive_features
        names = _joined(rows.sensitive_features)
        if not hasattr(self, "groups_"):
            assert self.validation is not None
            known = _joined(self.validation.sensitive_features)
            found, counts = np.unique(known, return_counts=True)
            large = found[counts >= LEAST_ROWS]
            others = [] if len(large) == len(counts) else [""]
            self.groups_ = np.sort(np.array([*large, *others], dtype=str))
        names = np.where(np.isin(names, self.groups_), names, self.groups_[0])
        return rows.X, rows.y, np.searchsorted(self.groups_, names)

    def _error_parity(self, score: Any, guess: Any, rows: Any, bound: float) -> Any:
        package = import_extra("error_parity", "dev", "error-parity")
        fair = package.RelaxedThresholdOptimizer(
            predictor=lambda X: score(X)[:, 1],
            constraint=self.notion,
            tolerance=bound,
        )
        X, y, group = rows
        fair.fit(X=X, y=y, group=group)
        return lambda X, group: fair(X, group=group)

    def _oxonfair(self, score: Any, guess: Any, rows: Any, bound: float) -> Any:
        package = import_extra("oxonfair", "dev", "OxonFair")
        X, y, group = rows
        known = {"data": X, "target": y, "groups": group}
        fair = package.FairPredictor(score, known, inferred_groups=guess)
        metrics = package.group_metrics
        name = {"equalized_odds": "equalized_odds_max"}.get(self.notion, self.notion)
        fair.fit(metrics.accuracy, getattr(metrics, name), bound)
        return lambda X, group: fair.predict(
            {"data": X, "target": np.zeros(len(X)), "groups": group}
        )

    def _repair(self, score: Any, guess: Any, rows: Any, bound: float) -> Any:
        X, y, group = rows
        fair = repair(
            score,
            X,
            y,
            sensitive_features=group,
            max_violation=bound,
            confidence=None,
            uses_group=True,
            notion=self.notion,
            groups=self.groups,
        )
        return lambda X, group: fair.predict(X, sensitive_features=group)


def _joined(groups: pd.DataFrame) -> NDArray[np.str_]:
    # The values of each row as one word.
    first, *rest = (groups[name].astype(str) for name in groups)
    return sum((" " + each for each in rest), first).to_numpy(str)


def _scorer(model: Any) -> Callable[[pd.DataFrame], FloatArray]:
    # The probabilities of a model, computed once for each table.
    known: dict[int, tuple[pd.DataFrame, FloatArray]] = {}

    def score(X: pd.DataFrame) -> FloatArray:
        if id(X) not in known:
            known[id(X)] = X, np.asarray(model.predict_proba(X))
        return known[id(X)][1].copy()  # OxonFair writes into it

    return score


def measure_sweep(
    rows: Rows, models: Iterator[tuple[float, Any, float]]
) -> list[dict[str, Any]]:
    """Return one record per value and part."""
    records = []
    parts = {p: take_rows(rows.all, rows.parts[p]) for p in ("validation", "test")}
    for value, fitted, seconds in models:
        for part, judged in parts.items():
            known = {"sensitive_features": judged.sensitive_features}
            knows = getattr(fitted, "predicts_with_groups", False)
            decided = np.asarray(fitted.predict(judged.X, **(known if knows else {})))
            records.append(
                {
                    "part": part,
                    "value": value,
                    "accuracy": float(np.mean(decided == judged.y)),
                    "violation": rows.violation(rows.parts[part], decided),
                    "positives": float(np.mean(decided)),
                    "seconds": seconds,
                }
            )
    return records


def summarize(spec: Spec, records: pd.DataFrame) -> pd.DataFrame:
    """Return, for each panel with records and limit, what is published and reached.

    ``as_published`` is the best mean test accuracy among values whose mean test
    violation is below the limit; ``chosen`` that of the values that do best on the
    validation rows of each seed among those below the limit there, with half the width
    of its 95 % interval over seeds.
    """
    table = []
    for panel in spec.panels:
        here = records[records["panel"] == panel.name]
        for limit in panel.limits if len(here) else ():
            table += [
                {"panel": panel.name, "limit": limit, "method": entry["method"]}
                | {"accuracy": accuracy, "violation": violated}
                | {"seconds": entry.get("seconds", np.nan)}
                for entry in spec.published
                for known, accuracy, violated in entry["at"]
                if entry["panel"] == panel.name and known == limit
            ]
            for method in spec.methods:
                sweep = here[here["method"] == method.label]
                if not sweep.empty:
                    row = {"panel": panel.name, "limit": limit, "method": method.label}
                    table.append(row | _read(sweep, limit))
    return pd.DataFrame(table)


def markdown(summary: pd.DataFrame) -> str:
    """Return the summary as a Markdown table, one line per panel and method."""
    lines = [
        "| panel: violation below | method | accuracy, % @ violation | chosen on "
        "validation rows | training, s |",
        "|---|---|---|---|--:|",
    ]
    for panel, rows in summary.groupby("panel", sort=False):
        limits = rows["limit"].unique()
        head = f"{panel}: {' / '.join(f'{limit:g}' for limit in limits)}"
        for method, own in rows.groupby("method", sort=False):
            at = own.set_index("limit").reindex(limits)
            cells = [_cells(at, ""), "", ""]
            if "chosen_accuracy" in at and at["chosen_seeds"].notna().any():
                cells[1] = _cells(at, "chosen_")
            if (seconds := at["seconds"].max()) > 0:
                cells[2] = f"{seconds:.{1 if seconds < 100 else 0}f}"
            lines.append(f"| {head} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cells(at: pd.DataFrame, start: str) -> str:
    names = [f"{start}{name}" for name in ("accuracy", "accuracy_pm", "violation")]
    cells = []
    for accuracy, half, violated in at.reindex(columns=names).to_numpy(float):
        gap = "" if np.isnan(violated) else f" @{violated:.3f}".replace("@0", "@")
        spread = "" if np.isnan(half) else f"±{100 * half:.2f}"
        known = f"{100 * accuracy:.2f}{spread}{gap}"
        cells.append("–" if np.isnan(accuracy) else known)
    return " / ".join(cells)


def _read(sweep: pd.DataFrame, limit: float) -> dict[str, float]:
    numbers = ["accuracy", "violation", "positives", "seconds"]
    test = sweep[sweep["part"] == "test"].groupby("value")[numbers].mean()
    within = test[test["violation"] < limit]
    best = within.sort_values("accuracy").tail(1).reindex(columns=numbers).mean()
    keys = ["seed", "value"]
    parts = {name: part.set_index(keys) for name, part in sweep.groupby("part")}
    seen = parts["validation"]
    seen = seen[seen["violation"] < limit].sort_values("accuracy")
    chosen = seen.groupby("seed").tail(1).index
    means = parts["test"].loc[chosen, numbers]
    half = means.sem() * student.ppf((1 + CONFIDENCE) / 2, max(len(means) - 1, 1))
    return {
        **{name: float(best[name]) for name in numbers},
        "chosen_accuracy": means["accuracy"].mean(),
        "chosen_accuracy_pm": half["accuracy"],
        "chosen_violation": means["violation"].mean(),
        "chosen_violation_pm": half["violation"],
        "chosen_seeds": float(len(means)),
    }
