"""What an experiment is made of, read from its file."""

import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fferm.errors import UnknownNameError
from fferm.registry import unknown_name

SIZES = ("small", "full")
FOLDER = importlib.resources.files("fferm.lab.experiments") / "specs"


@dataclass(frozen=True)
class Size:
    """How much of an experiment to run.

    Attributes
    ----------
    seeds
        How many seeds.
    n_values
        How many values of a trade-off parameter, where it is spread by itself.
    train_rows
        How many training rows a seed draws; None draws four of five.
    test_rows
        How many test rows are kept of each part; None keeps all.
    """

    seeds: int
    n_values: int
    train_rows: int | None = None
    test_rows: int | None = None


@dataclass(frozen=True)
class Panel:
    """One setting in which methods are compared.

    Attributes
    ----------
    name, data, notion
        What is trained on, and for what.
    batch_size
        Rows a step; None takes all rows at every step.
    learning_rates
        Step sizes to try of every method; empty leaves each at its own.
    bounds
        Numbers that stand in place of those of the experiment.
    limits
        Violations below which the accuracy of published methods is known.
    """

    name: str
    data: Mapping[str, Any]
    notion: str
    batch_size: int | None = None
    learning_rates: Sequence[float] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    limits: Sequence[float] = ()


@dataclass(frozen=True)
class Method:
    """One method: a class of `fferm` or `fferm.lab.baselines`, and its parameters.

    Attributes
    ----------
    label
        What figures call it.
    name
        The class.
    params
        Parameters of the constructor; ``normalisation = "paper"`` beside a divergence
        takes the paper's form of it.
    values
        Values of the trade-off parameter; empty spreads the declared range.
    weights
        The least weight above 0 and the largest, between which weights are spread in
        place of the declared range. Those of a divergence are in units of chi-square's:
        what pulls alike near fairness is then swept alike.
    penalty_on_target
        Whether the penalty is taken on unlabelled rows of the target.
    panels
        The panels it is run in; empty is all that its batch sizes allow.
    regime
        What it knows of the target, as figures group methods.
    trains_on
        ``"source"``, or ``"target"``: the labelled sample of the target.
    recalibrates
        Whether intercepts by state are mended with the labelled sample.
    follows
        What moves thresholds in the states, without labels: ``"sample"`` and ``"rows"``
        adapt to the sample and to the judged rows, ``"half"`` to half of these rows,
        judged on the other half, and ``"stream"`` is a `ParityController`.
    choose, among
        A parameter, of the uncertainty set where there is one, and the values among
        which rows that are not judged on choose; empty leaves it as it is.
    largest_reach
        Where weights end: at this number over the radius. A robust penalty has a kink
        at fairness, and larger weights change nothing but the time it takes.
    """

    label: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    values: Sequence[float] = ()
    weights: Sequence[float] = ()
    penalty_on_target: bool = False
    panels: Sequence[str] = ()
    regime: str = ""
    trains_on: str = "source"
    recalibrates: bool = False
    follows: str = ""
    choose: str = ""
    among: Sequence[float] = ()
    largest_reach: float | None = None

    def at(self, choice: float | None) -> "Method":
        """Return the method with the parameter that is chosen set."""
        if choice is None:
            return self
        params = dict(self.params)
        if "uncertainty" in params:
            params["uncertainty"] = {**params["uncertainty"], self.choose: choice}
        else:
            params[self.choose] = choice
        return replace(self, params=params)


@dataclass(frozen=True)
class Spec:
    """An experiment.

    Attributes
    ----------
    name, title
        Of the experiment.
    kind
        ``"fronts"`` compares accuracy and violation on test rows; ``"batches"`` the
        accuracy within a violation by batch size; ``"noise"`` the violation at one
        accuracy; ``"shift"`` parts that were not trained on;
        ``"published"`` our models with the figures of others.
    panels, methods, sizes
        What is run.
    bounds
        Numbers that summaries speak of: ``accuracy`` and ``violation`` are the worst
        that count in a hypervolume; ``max_violation``, ``at_accuracy`` and
        ``at_higher_accuracy`` are where points are compared.
    published
        Figures of others: panel, method, and ``at``, a list of limits, each with the
        accuracy and violation there.
    source
        Where these are from.
    """

    name: str
    title: str
    kind: str
    panels: tuple[Panel, ...]
    methods: tuple[Method, ...]
    sizes: Mapping[str, Size]
    bounds: Mapping[str, float]
    published: tuple[Mapping[str, Any], ...] = ()
    source: str = ""


def known() -> tuple[str, ...]:
    """Return the names of all experiments."""
    names = [file.name for file in FOLDER.iterdir()]
    return tuple(sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml")))


def read_spec(name: str) -> Spec:
    """Return the experiment of a name."""
    if name not in known():
        raise UnknownNameError(unknown_name("experiment", name, known()))
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    data, notion = content["data"], content["notion"]
    panels = [
        Panel(**{"notion": notion, **panel, "data": {**data, **panel.get("data", {})}})
        for panel in content["panels"]
    ]
    methods = [Method(name=m.pop("class"), **m) for m in content["methods"]]
    sizes = {size: Size(**content["sizes"][size]) for size in SIZES}
    title, kind, bounds = (content[key] for key in ("title", "kind", "bounds"))
    parts = tuple(panels), tuple(methods), sizes, bounds
    figures = tuple(content.get("published", ()))
    return Spec(name, title, kind, *parts, figures, content.get("source", ""))
