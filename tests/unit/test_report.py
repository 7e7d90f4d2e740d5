"""Reports: what they say is what the records say, and nothing from data is markup."""

import base64
import html
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import date
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from fferm import (
    FairLogisticRegression,
    SmallShift,
    TradeoffCurve,
    audit,
    tradeoff_curve,
)
from fferm.auditing import Audit
from fferm.datasets import make_biased
from fferm.divergences import Affine, Alpha, LinearTail
from fferm.divergences import get as get_divergence
from fferm.errors import (
    EmptyStratumWarning,
    InvalidParameterError,
    MissingDependencyError,
    MissingGroupWarning,
    PersistenceError,
    install_line,
)
from fferm.notions import (
    ConditionalParity,
    EqualOpportunity,
    Notion,
    PredictiveParity,
    Strata,
)
from fferm.registry import Registered
from fferm.report import pages, plot_curve, write_audit, write_curve
from fferm.report.audits import compare, compare_notions, judge_audit, rate_axis
from fferm.report.curves import points
from fferm.report.figures import average, crowd
from fferm.report.wording import NOTIONS, UNKNOWN, explain

HOSTILE = "<img src=x onerror=alert(1)>"
QUOTED = "\"sex\" & 'race' $x_1$"
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page as its tags and its text; an unbalanced tag is an error."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open, self.tags, self.texts = [], [], []
        self.feed(self.source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def rows(self):
        """Return the cells of each row of the first wide table's body."""
        body = self.source.partition('class="scroll')[2]
        body = body.partition("<tbody>")[2].partition("</tbody>")[0]
        return [
            [
                re.sub("<[^>]*>", " ", cell).strip()
                for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
            ]
            for row in body.split("</tr>")[:-1]
        ]


def record(weight, split, accuracy, violation, **others):
    usual = {
        "curve": "FairLogisticRegression",
        "fairness_weight": weight,
        "seed": 0,
        "split": split,
        "accuracy": accuracy,
        "violation": violation,
        "soft_violation": violation + 0.01,
        "loss": 0.4,
        "divergence": violation / 10,
        "collapsed": False,
        "result": "converged",
        "seconds": 0.5,
        "accuracy_low": accuracy - 0.01,
        "accuracy_high": accuracy + 0.01,
        "violation_low": max(violation - 0.01, 0),
        "violation_high": violation + 0.01,
    }
    return usual | others


def make_curve(*records, **description):
    about = {"estimator": "FairLogisticRegression", "notion": "DemographicParity()"}
    name = "FairLogisticRegression"
    return TradeoffCurve(pd.DataFrame(records), {}, {name: about | description})


@pytest.fixture
def curve():
    return make_curve(
        *(
            record(weight, split, accuracy - (split == "test") / 100, violation)
            for weight, accuracy, violation in [
                (0.0, 0.90, 0.30),
                (1.0, 0.88, 0.12),
                (5.0, 0.80, 0.20),  # beaten by the one before
                (20.0, 0.75, 0.02),
            ]
            for split in ("train", "test")
        )
    )


@pytest.fixture
def seeded():
    """Two seeds, 0.02 apart in accuracy and violation."""
    return make_curve(
        *(
            record(weight, split, 0.8 + shift, violation + shift, seed=seed)
            for weight, violation in [(0.0, 0.3), (1.0, 0.1)]
            for split in ("train", "test")
            for seed, shift in [(0, 0.0), (1, 0.02)]
        )
    )


def make_audit(names=("a", "b"), column="sex", notion="demographic_parity", **options):
    rng = np.random.default_rng(0)
    group = rng.integers(0, len(names), 400)
    X = rng.normal(size=(400, 2)) + group[:, None]
    y = (X[:, 0] + rng.normal(size=400) > 1).astype(int)
    model = LogisticRegression().fit(X, y)
    about = {column: np.array(names)[group]}
    return audit(
        model, X, y, sensitive_features=about, notion=notion, n_bootstrap=20, **options
    )


@pytest.fixture(scope="module")
def found():
    return make_audit()


def report(write, *given, folder, **options):
    path = folder / "report.html"
    write(*given, path, **options)
    return Page(path)


# Numbers in words


@pytest.mark.parametrize("value", [-0.02, -0.0, 0.0, 0.0004])
def test_a_gain_and_what_rounds_to_nothing_are_no_cost(value):
    assert pages.cost(value, "accuracy") == "no measurable cost"


def test_a_cost_is_in_points():
    assert pages.cost(0.021, "accuracy") == "2.1\N{NO-BREAK SPACE}points of accuracy"
    assert pages.cost(math.nan, "accuracy").startswith("undefined")


def test_a_guarantee_that_every_table_keeps_is_not_shown():
    assert [pages.bound(value) for value in (0.25, 1.0, None)] == [
        "25.0\N{NO-BREAK SPACE}%",
        "–",
        "not given",
    ]


# The picture


def test_the_front_of_the_picture_is_the_pareto_front(curve):
    (line,) = plot_curve(curve).get_lines()
    front = curve.pareto()
    np.testing.assert_allclose(line.get_xdata(), front["violation"])
    np.testing.assert_allclose(line.get_ydata(), front["accuracy"])


def test_the_picture_marks_the_plain_model_and_shows_both_splits(curve):
    ax = plot_curve(curve)
    drawn = {mark.get_label(): mark.get_offsets() for mark in ax.collections}
    np.testing.assert_allclose(drawn["plain model (weight 0)"], [[0.30, 0.89]])
    assert len(drawn["models, test rows"]) == len(drawn["models, train rows"]) == 4
    named = {label for label in drawn if not label.startswith("_")}
    assert named <= {text.get_text() for text in ax.get_legend().get_texts()}


def test_the_picture_of_the_training_split_has_its_plain_model(curve):
    drawn = {m.get_label(): m for m in plot_curve(curve, split="train").collections}
    plain = drawn["plain model (weight 0)"].get_offsets()
    np.testing.assert_allclose(plain, [[0.30, 0.90]])


def drawn_intervals(ax):
    """Return the (violation, accuracy) segments of the intervals of the violation."""
    (bars,) = (c for c in ax.collections if isinstance(c, LineCollection))
    return bars.get_segments()


def test_several_seeds_are_drawn_as_their_mean_and_its_interval(seeded):
    ax = plot_curve(seeded)
    bands = seeded.bands()
    (fairest, plain) = drawn_intervals(ax)
    np.testing.assert_allclose(
        plain[:, 0], bands.loc[0, ["violation_low", "violation_high"]].astype(float)
    )
    np.testing.assert_allclose(fairest[:, 1], 0.81)
    drawn = {mark.get_label(): mark.get_offsets() for mark in ax.collections}
    np.testing.assert_allclose(drawn["plain model (weight 0)"], [[0.31, 0.81]])


def test_a_point_that_one_seed_spoils_has_no_interval(seeded):
    is_spoilt = (seeded.records["seed"] == 1) & (seeded.records["fairness_weight"] == 1)
    seeded.records.loc[is_spoilt, "collapsed"] = True
    assert len(drawn_intervals(plot_curve(seeded))) == 1


def test_one_seed_has_the_intervals_of_its_rows(curve):
    fairest = drawn_intervals(plot_curve(curve))[0]
    np.testing.assert_allclose(fairest[:, 0], [0.01, 0.03])


def test_several_curves_have_a_colour_and_a_mark_each(curve):
    both = several(curve)
    drawn = {m.get_label(): m for m in plot_curve(both).collections}
    one, other = drawn["kl, test rows"], drawn["chi\\$2, test rows"]
    assert one.get_facecolor().tolist() != other.get_facecolor().tolist()
    marks = [len(found.get_paths()[0].vertices) for found in (one, other)]
    assert marks[0] != marks[1]


def several(curve):
    """Return a curve beside a copy of it that is worse, under a name with a dollar."""
    worse = curve.records.assign(
        curve="chi$2", accuracy=curve.records["accuracy"] - 0.1
    )
    about = {"estimator": "FairLogisticRegression", "notion": "DemographicParity()"}
    return TradeoffCurve(
        pd.concat([curve.records.assign(curve="kl"), worse], ignore_index=True),
        {},
        {"kl": about, "chi$2": about},
    )


def test_the_naive_baseline_is_drawn_where_it_is_known(curve):
    baseline = pd.DataFrame(
        {
            "curve": "FairLogisticRegression",
            "seed": [0, 0, 1, 1],
            "split": "test",
            "thinning": [0.0, 1.0] * 2,
            "accuracy": [0.9, 0.5, 0.8, 0.6],
            "violation": [0.3, 0.0] * 2,
        }
    )
    naive, _ = plot_curve(replace(curve, baseline=baseline)).get_lines()
    assert naive.get_label() == "naive: decisions thinned at random"
    np.testing.assert_allclose(naive.get_xydata(), [[0.3, 0.85], [0.0, 0.55]])


def test_a_collapsed_model_is_crossed_out_and_not_on_the_front():
    ax = plot_curve(
        make_curve(
            *(record(0.0, split, 0.9, 0.3) for split in ("train", "test")),
            *(
                record(9.0, split, 0.5, 0.0, collapsed=True)
                for split in ("train", "test")
            ),
        )
    )
    drawn = {mark.get_label(): mark.get_offsets() for mark in ax.collections}
    np.testing.assert_allclose(drawn["one decision for everyone"], [[0.0, 0.5]])
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), [0.3])


def test_the_picture_goes_where_it_is_asked_to(curve):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plot_curve(curve, ax) is ax


def test_drawing_leaves_nothing_behind_in_matplotlib(curve, tmp_path):
    import matplotlib as mpl
    from matplotlib import pyplot

    before = dict(mpl.rcParams)
    plot_curve(curve)
    write_curve(curve, tmp_path / "report.html")
    assert pyplot.get_fignums() == []
    assert dict(mpl.rcParams) == before


def test_an_unknown_split_is_named(curve):
    with pytest.raises(InvalidParameterError, match="split must be 'train' or 'test'"):
        plot_curve(curve, split="validation")


def test_a_curve_draws_and_writes_itself(curve, tmp_path):
    assert curve.plot().get_ylabel() == "Accuracy (up is better)"
    curve.to_html(tmp_path / "curve.html")
    assert "<svg" in Page(tmp_path / "curve.html").source


def test_half_of_the_points_in_a_corner_get_a_close_up():
    spread = np.column_stack([np.linspace(0, 0.3, 8), np.linspace(0.7, 0.8, 8)])
    assert crowd(spread) is None
    crowded = np.column_stack([np.r_[np.linspace(0, 0.01, 6), 0.2, 0.3], spread[:, 1]])
    (left, right), (low, high) = crowd(crowded)
    inside = (crowded > [left, low]) & (crowded < [right, high])
    assert inside.all(axis=1).sum() >= 4
    assert right < 0.02


@pytest.mark.parametrize("places", [[[0.1, 0.8]], [[0.0, 0.8]] * 9])
def test_a_close_up_of_one_place_has_no_empty_axis(places):
    view = crowd(np.array(places))
    assert view is None or all(low < high for low, high in view)


@pytest.mark.parametrize(
    ("bound", "is_drawn"), [(None, False), (0.2, True), (9, False)]
)
def test_a_bound_is_drawn_where_models_are(curve, tmp_path, bound, is_drawn):
    page = report(write_curve, curve, folder=tmp_path, max_violation=bound)
    assert ("whole-wide-bound" in page.source) == is_drawn
    assert ("far to the right" in page.text) == (bound == 9)


# The points


def test_a_measure_that_one_seed_lacks_stays_undefined(seeded):
    seeded.records.loc[seeded.records.index[0], "violation"] = math.nan
    means = average(seeded).records.set_index(["fairness_weight", "split"])
    assert math.isnan(means.loc[(0.0, "train"), "violation"])
    assert means.loc[(0.0, "test"), "violation"] == pytest.approx(0.31)


def test_trouble_of_one_seed_is_trouble_of_the_point(seeded):
    seeded.records.loc[seeded.records["seed"] == 1, "result"] = "max_epochs_reached"
    assert not any(point.is_converged for point in points(seeded))


# The page of a curve


def test_the_table_of_a_curve_has_the_numbers_of_its_records(curve, tmp_path):
    page = report(write_curve, curve, folder=tmp_path)
    rows = page.rows()
    assert [row[0] for row in rows] == ["0", "1", "5", "20"]
    assert rows[1] == [
        *("1", "87.00\xa0%", "12.00\xa0%", "13.00\xa0%", "0.01200"),
        *("88.00\xa0%", "12.00\xa0%", "13.00\xa0%", "0.01200", "0.50", "best"),
    ]
    assert rows[0][-1] == "plain, best"
    assert rows[2][-1] == ""


def test_the_table_of_several_seeds_has_means_and_ranges(seeded, tmp_path):
    first = report(write_curve, seeded, folder=tmp_path).rows()[0]
    mean, _, ends = first[1].partition(" ")
    assert (mean, ends.strip()) == ("81.00\xa0%", "80.00\xa0% to 82.00\xa0%")


def test_the_page_says_what_was_compared_and_what_it_cost(curve, tmp_path):
    page = report(write_curve, curve, folder=tmp_path, title="Toy data")
    assert page.source.count("Toy data") == 3  # title, heading, recipe
    assert "DemographicParity()" in page.text
    assert "2.0 points of accuracy" in page.text  # at the knee


def test_the_page_names_the_most_accurate_model_within_a_bound(curve, tmp_path):
    page = report(write_curve, curve, folder=tmp_path, max_violation=0.15)
    assert "Most accurate within violation 15.0 % 87.0 %" in page.text


def test_the_price_is_that_of_the_curve_of_the_model(curve, tmp_path):
    both = several(curve)
    reversed_ = replace(both, records=both.records[::-1])  # the worse curve first
    page = report(write_curve, reversed_, folder=tmp_path, max_violation=0.15)
    assert (
        "The plain model has an accuracy of 89.0 % and a violation of 30.0 %."
        in page.text
    )
    assert ", for 2.0 points of accuracy." in page.text


def test_the_page_says_if_no_model_keeps_the_bound(curve, tmp_path):
    page = report(write_curve, curve, folder=tmp_path, max_violation=0.001)
    assert "No model of this curve keeps the violation within 0.1" in page.text


def test_the_page_remarks_on_models_in_trouble(curve, tmp_path):
    curve.records["result"] = "max_epochs_reached"
    curve.records.loc[curve.records["fairness_weight"] == 20, "collapsed"] = True
    rows = report(write_curve, curve, folder=tmp_path).rows()
    assert rows[3][-1] == "one decision for everyone, not converged"


def test_a_curve_that_cannot_be_judged_still_makes_a_page(tmp_path):
    curve = make_curve(
        *(record(0.0, split, 0.9, math.nan) for split in ("train", "test"))
    )
    page = report(write_curve, curve, folder=tmp_path)
    assert page.rows()[0][2] == "undefined"


def follow(page, monkeypatch, folder, **names):
    """Run the recipe of a page and return the names that it knows afterwards."""
    recipe = html.unescape(page.source.partition("<code>")[2].partition("</code>")[0])
    monkeypatch.chdir(folder)
    exec(recipe, names)
    return names


@pytest.fixture(scope="module")
def biased():
    data = make_biased(random_state=0)
    return {
        "X": data.X[:300],
        "y": data.y[:300],
        "sensitive_features": data.sensitive_features[:300],
    }


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"divergence": "chi2", "fairness_weight": 7.0}, ()),
        (
            {
                "divergence": Affine(Alpha(power=1.5), scale=2.0),
                "notion": EqualOpportunity(positive=1),
                "uncertainty": SmallShift(0.01, p="inf"),
                "groups": "marginal",
            },
            ("test", "sample_weight"),
        ),
        ({"notion": ConditionalParity(np.arange(300) % 2)}, ("test",)),
    ],
)
def test_the_recipe_on_the_page_gives_the_same_records(
    biased, settings, given, tmp_path, monkeypatch
):
    extra = {
        "test": tuple(biased.values()),
        "sample_weight": np.linspace(1, 2, 300),
    }
    extra = {name: extra[name] for name in given}
    curve = tradeoff_curve(
        FairLogisticRegression(**settings), **biased, **extra, fairness_weights=3
    )
    page = report(
        write_curve, curve, folder=tmp_path, title="Two 'moons'", max_violation=0.2
    )
    written = page.source

    control = getattr(settings.get("notion"), "control", None)
    names = follow(page, monkeypatch, tmp_path, control=control, **biased, **extra)

    pd.testing.assert_frame_equal(
        names["curve"].records.drop(columns="seconds"),
        curve.records.drop(columns="seconds"),
    )
    again = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert again.partition("<code>")[2] == written.partition("<code>")[2]


# The page of an audit


class Mine(Notion):
    """A notion of the user's own module."""

    name: ClassVar[str] = "mine_of_test_report"

    def strata(self, labels):
        return Strata(labels.y, ("y=0", "y=1"))


# Other tests list the notions by name; this one is found by import alone.
del Registered._registry["notion", Mine.name]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"notion": EqualOpportunity(positive=np.int64(0)), "groups": "marginal"},
        {"notion": "equal_opportunity", "divergence": Alpha(power=3.0)},
        {"notion": PredictiveParity(positive=1), "confidence": 0.123456789},
        {"notion": Mine(), "n_bootstrap": 0},
        {"sample_weight": np.linspace(1, 2, 300), "random_state": 5},
        {"notion": ConditionalParity(np.arange(300) % 2, weights="unit")},
        {"random_state": "generator"},
        {"divergence": Affine(LinearTail(get_divergence("kl")), scale=2.0)},
    ],
    ids=lambda options: " ".join(options) or "usual",
)
def test_the_recipe_of_an_audit_gives_the_same_audit(
    biased, options, tmp_path, monkeypatch
):
    model = LogisticRegression().fit(biased["X"], biased["y"])
    names = {"model": model, **biased, "sample_weight": options.get("sample_weight")}
    names |= {"Mine": Mine, "control": getattr(options.get("notion"), "control", None)}
    if "random_state" in options and options["random_state"] == "generator":
        options = {"random_state": np.random.default_rng(3)}
        names["random_state"] = np.random.default_rng(3)
    found = audit(model, **biased, **{"n_bootstrap": 20} | options)

    page = report(write_audit, found, folder=tmp_path, max_violation=0.1)
    again = follow(page, monkeypatch, tmp_path, **names)["result"]

    assert again.to_dict() == found.to_dict()
    assert (tmp_path / "audit.html").read_text("utf-8") == page.source


def test_the_recipe_of_an_audit_behind_a_pipeline_finds_the_same_control(
    biased, tmp_path, monkeypatch
):
    turned = FunctionTransformer(lambda X: np.column_stack([np.arange(len(X)) % 2, X]))
    fair = FairLogisticRegression(notion=ConditionalParity(0))
    model = make_pipeline(turned, fair).fit(
        biased["X"],
        biased["y"],
        fairlogisticregression__sensitive_features=biased["sensitive_features"],
    )
    found = audit(model, **biased, n_bootstrap=20)

    page = report(write_audit, found, folder=tmp_path)
    again = follow(page, monkeypatch, tmp_path, model=model, **biased)["result"]

    assert again.to_dict() == found.to_dict()
    assert {gap.stratum for gap in found.gaps} == {"0", "1"}
    assert "notion=" not in page.source


def test_a_class_that_cannot_be_imported_is_left_to_the_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(Registered, "_registry", dict(Registered._registry))

    class Local(Mine):
        name: ClassVar[str] = "local_of_test_report"

    page = report(write_audit, make_audit(notion=Local()), folder=tmp_path)
    assert "# Local: your own class. result = audit(" in page.text


def test_rows_without_a_group_are_counted_on_the_page(tmp_path):
    X, y = np.zeros((80, 1)), [0, 1] * 40
    model = LogisticRegression().fit(X, y)
    with pytest.warns(MissingGroupWarning, match="4 of 80 rows"):
        found = audit(
            model, X, y, sensitive_features={"sex": [None] * 4 + ["a", "b"] * 38}
        )
    text = report(write_audit, found, folder=tmp_path).text
    assert "4 of 80 rows have no value of sex and are in no group" in text
    assert "Every group had rows to be judged by" not in text


def test_the_page_of_an_audit_has_its_groups_with_counts_and_intervals(found, tmp_path):
    rows = report(write_audit, found, folder=tmp_path).rows()
    for name, cells in zip(found.groups, rows, strict=True):
        group = found.groups[name]
        assert cells[:2] == [name, str(int(group["count"]))]
        assert cells[3] == f"{100 * group['selection_rate_1']:.1f}\N{NO-BREAK SPACE}%"
        assert cells[4].startswith(f"{100 * group['selection_low_1']:.1f}")


def test_the_page_of_an_audit_has_divergences_and_certificates(found, tmp_path):
    text = report(write_audit, found, folder=tmp_path).text
    for name, bound in found.certificates.items():
        value = found.divergences[name].hard
        assert f"{name.replace('_', ' ')} {value:.3g}" in text
        assert f"{100 * bound:.1f} %" in text


def test_an_audit_states_the_ratio_and_what_chance_makes(found, tmp_path):
    text = report(write_audit, found, folder=tmp_path).text
    assert f"Ratio of rates {found.ratio:.2f} lowest over highest" in text
    assert f"By chance alone {100 * found.floor:.1f} %" in text
    assert f"Without noise {100 * found.corrected:.1f} %" in text
    assert ("four-fifths rule (at least 0.80) is met" in text) == (found.ratio >= 0.8)


def test_an_audit_shows_other_notions_side_by_side(found, tmp_path):
    text = report(write_audit, found, folder=tmp_path).text
    frame = found.frame
    for notion, column in [
        ("Demographic parity", "selection_rate_1"),
        ("Equal opportunity", "true_positive_rate"),
        ("False positive rate parity", "false_positive_rate"),
        ("Predictive parity", "precision"),
        ("Equal accuracy", "accuracy"),
    ]:
        low, high = frame[column].min(), frame[column].max()
        shown = rf"{notion} [\w ]+ {100 * (high - low):.1f} points {low / high:.2f} "
        assert re.search(shown, text)


def test_attributes_one_by_one_are_not_compared_with_each_other():
    group = {"selection_rate_1": 0.2, "accuracy": 0.5}
    other = {"selection_rate_1": 0.3, "accuracy": 0.5}
    far = {"selection_rate_1": 0.9, "accuracy": 0.5}
    both = make_audit(groups="marginal")
    groups = {"sex=a": group, "sex=b": other, "age=c": far}
    (first, _) = compare_notions(replace(both, groups=groups))
    assert (first.lowest, first.highest) == (("sex=a", 0.2), ("sex=b", 0.3))


def test_dots_stand_on_an_axis_that_fits_them(found, tmp_path):
    left, right = rate_axis([found, None])
    rates = found.frame[["selection_low_1", "selection_high_1"]]
    assert left <= rates.min(axis=None) < rates.max(axis=None) <= right
    assert right - left <= rates.max(axis=None) - rates.min(axis=None) + 0.1
    alone = report(write_audit, found, folder=tmp_path).source
    pair = report(write_audit, found, folder=tmp_path, before=found).source
    assert (alone.count('class="before"'), pair.count('class="before"')) == (0, 2)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (None, "i A violation of 12.0\N{NO-BREAK SPACE}% instead of 30.0"),
        (0.3, "i The bound can be kept on these rows"),
        (0.15, "✓ The bound can be kept"),
        (0.001, "✗ The bound is not kept"),
    ],
)
def test_a_curve_begins_with_a_verdict_and_three_sentences(
    curve, tmp_path, bound, words
):
    page = report(write_curve, curve, folder=tmp_path, max_violation=bound)
    box = page.source.partition('<div class="verdict')[2].partition("</div>")[0]
    assert words in re.sub("<[^>]*>", "", box)
    sentence = re.search(r"<p><bdi>(.*)</bdi></p>", box)[1]
    assert len(re.findall(r"\.(?: |$)", sentence)) == 3


@pytest.mark.parametrize("what", ["curve", "audit"])
def test_a_page_says_where_it_comes_from(curve, found, tmp_path, what):
    write, result = {"curve": (write_curve, curve), "audit": (write_audit, found)}[what]
    about = {"Data": HOSTILE, QUOTED: 2024}
    page = report(write, result, folder=tmp_path, provenance=about)
    assert f"Data {HOSTILE} {QUOTED} 2024" in page.text
    assert "provenance=provenance" in page.text
    assert ("Counts as positive 1" in page.text) == (what == "audit")
    assert "img" not in {tag for tag, _ in page.tags}


def test_provenance_that_is_no_mapping_is_named(found, tmp_path):
    with pytest.raises(InvalidParameterError, match="provenance must be a mapping"):
        write_audit(found, tmp_path / "report.html", provenance="loans.csv")
    assert list(tmp_path.iterdir()) == []


def test_groups_of_few_rows_are_flagged(found, tmp_path):
    assert "few rows" not in report(write_audit, found, folder=tmp_path).text
    few = found.groups["a"] | {"count": 29.0}
    small = replace(found, groups=found.groups | {"a": few})
    assert "29 few rows" in report(write_audit, small, folder=tmp_path).text


@pytest.mark.parametrize(("bound", "sign"), [(0.0, "✗"), (1.0, "✓"), (None, "i")])
def test_a_verdict_has_a_sign_beside_its_words(found, tmp_path, bound, sign):
    text = report(write_audit, found, folder=tmp_path, max_violation=bound).text
    words = " ".join(judge_audit(found, bound).words.split())  # as in Page.text
    assert f"{sign} {words}" in text


def test_more_than_two_classes_have_a_table_each(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["low", "mid", "high"])[rng.integers(0, 3, 300)]
    s = rng.choice(["a", "b"], 300)
    model = LogisticRegression().fit(X, y)
    found = audit(model, X, y, sensitive_features=s, n_bootstrap=0)
    text = report(write_audit, found, folder=tmp_path).text
    for label in ("low", "mid", "high"):
        assert f"gets the decision {label} ." in text
    assert "0 draws of the bootstrap" in text
    assert "bootstrap interval" not in text


def test_groups_that_could_not_be_judged_are_named(tmp_path):
    X, s = np.zeros((80, 1)), ["a"] * 30 + ["b"] * 30 + ["lonely"] * 20
    y = [0, 1] * 30 + [0] * 20
    model = LogisticRegression().fit(X, y)
    with pytest.warns(EmptyStratumWarning, match="lonely"):
        found = audit(model, X, y, sensitive_features=s, notion="equalized_odds")
    text = report(write_audit, found, folder=tmp_path).text
    assert "y=1 : lonely (no rows with a positive weight)" in text


def test_an_audit_without_a_bound_judges_nothing(found):
    verdict = judge_audit(found, None)
    assert verdict.words.startswith("Largest gap")
    assert verdict.is_good is None


@pytest.mark.parametrize(
    ("bound", "words", "is_good"),
    [
        (0.0, "Does not keep the bound", False),
        (1.0, "Keeps the bound", True),
        (None, "Keeps the bound on these rows", None),
    ],
)
def test_the_verdict_heeds_the_interval(found, bound, words, is_good):
    between = (found.violation + found.interval[1]) / 2
    verdict = judge_audit(found, between if bound is None else bound)
    assert (verdict.words, verdict.is_good) == (words, is_good)


def test_an_undefined_violation_is_no_pass(tmp_path):
    X, y = np.zeros((40, 1)), [0, 1] * 20
    model = LogisticRegression().fit(X, y)
    with pytest.warns(EmptyStratumWarning, match="no other group"):
        found = audit(model, X, y, sensitive_features=["only"] * 40)
    text = report(write_audit, found, folder=tmp_path, max_violation=0.5).text
    assert "Cannot be judged" in text
    assert "Keeps the bound" not in text


def test_an_audit_writes_itself(found, tmp_path):
    found.to_html(tmp_path / "audit.html")
    assert "Fairness audit" in Page(tmp_path / "audit.html").text


def test_an_audit_beside_the_one_before_says_what_changed(found, tmp_path):
    before = make_audit(names=("a", "b"), random_state=3)
    before.groups["a"]["selection_rate_1"] = 0.9
    before.groups["b"]["selection_rate_1"] = found.groups["b"]["selection_rate_1"]
    path = tmp_path / "audit.html"
    found.to_html(path, title="After <all>", before=before, max_violation=0.05)
    text = Page(path).text
    assert text.startswith("After <all>")
    assert "What changed for whom" in text
    assert "Decision 1 – Levelling down: no group's rate rose." in text
    assert "equality was reached by giving it to fewer" in text
    assert "90.0 %" in text


def test_a_page_names_groups_that_are_too_small_to_be_judged(found, tmp_path):
    few = replace(found, small_groups={"race": {"x": 3}})
    assert "race: x (3 rows), smaller than min_group_size" in few.left_out[0]
    for audited, folder in ((found, tmp_path / "all"), (few, tmp_path / "few")):
        folder.mkdir()
        text = report(write_audit, audited, folder=folder).text
        assert ("No group was left out." in text) == (audited is found)
        assert ("race: x (3 rows)" in text) == (audited is few)


def test_a_group_between_the_others_that_gains_is_not_levelled_down():
    before = make_audit(names=("a", "b", "c"), groups="marginal")
    after = make_audit(names=("a", "b", "c"), groups="marginal")
    rates = {"a": (0.1, 0.1), "b": (0.2, 0.4), "c": (0.9, 0.5)}
    for group, (was, now) in rates.items():
        before.groups[group]["selection_rate_1"] = was
        after.groups[group]["selection_rate_1"] = now
    (cost,) = (c for c in compare(before, after) if c.name == "Decision 1")
    assert cost.levelling.words == "Levelling down: the lowest rate did not rise"


def test_an_audit_survives_json_to_the_last_word_of_its_page(found, tmp_path):
    again = Audit.from_dict(json.loads(json.dumps(found.to_dict())))
    for name, audited in (("one", found), ("two", again)):
        audited.to_html(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_picked_model_has_groups_certificate_and_costs(biased, tmp_path):
    curve = tradeoff_curve(FairLogisticRegression(), **biased, fairness_weights=[0, 5])
    page = report(write_curve, curve, folder=tmp_path)
    found = curve.audits[5.0, 0]
    assert len(re.findall('<table class="groups">', page.source)) == 2
    bound = found.certificates["kl"]
    assert f"that allows no violation above {100 * bound:.1f} %." in page.text
    assert "What the penalty cost whom" in page.text
    # One model is shown, the other waits to be picked.
    assert len(re.findall(r"data-point=\"\d\" hidden", page.source)) == 2


def test_the_audit_of_the_chosen_model_stands_beside_its_curve(curve, found, tmp_path):
    text = report(write_curve, curve, folder=tmp_path, audit=found).text
    assert "Audit of the chosen model" in text
    assert "No group was left out." in text


@pytest.mark.parametrize("name", ["EqualizedOdds()", "equalized_odds"])
def test_a_notion_is_explained_by_name_and_by_repr(name):
    assert explain(name) == NOTIONS["equalizedodds"]


def test_a_notion_of_the_users_own_is_not_explained_wrongly():
    assert explain("MyNotion(level=2)") == UNKNOWN


# Every page


@pytest.fixture(params=["curve", "audit", "both", "several"])
def page(request, curve, found, tmp_path):
    if request.param == "several":
        return report(write_curve, several(curve), folder=tmp_path)
    if request.param == "audit":
        return report(write_audit, found, folder=tmp_path, max_violation=0.05)
    beside = found if request.param == "both" else None
    return report(write_curve, curve, folder=tmp_path, audit=beside)


def test_a_page_loads_nothing_and_runs_only_what_it_names(page):
    assert not {"link", "iframe", "img", "object"} & {t for t, _ in page.tags}
    (policy,) = (m["content"] for m in page.named("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    scripts = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    digests = [base64.b64encode(sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
    style = page.source.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_a_page_is_readable_without_sight(page):
    assert page.named("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert len(page.named("caption")) == len(page.named("table")) > 0
    assert all("scope" in cell for cell in page.named("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        assert attributes.get("aria-labelledby", ids[0]) in ids


def test_a_page_says_what_its_numbers_do_not(page):
    assert "A small violation is not fairness." in page.text
    assert "Rates of small groups are uncertain" in page.text
    assert "All of it was measured on these rows." in page.text


def test_a_page_is_the_same_whenever_it_is_written(curve, found, tmp_path):
    for name in ("one.html", "two.html"):
        write_curve(curve, tmp_path / name, audit=found)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.html", "two.html"))
    assert one == two
    # Nor does it say when that was.
    year = date.today().year
    assert not re.search(rf"(?<![\d.]){year}(?!\d)", Page(tmp_path / "one.html").text)


def test_names_from_data_stay_text(curve, tmp_path):
    hostile = make_audit(names=(HOSTILE, "</style></title><script>1</script>"))
    description = {"notion": "DemographicParity()", "estimator": HOSTILE, QUOTED: "x"}
    risky = TradeoffCurve(
        curve.records.assign(curve=HOSTILE), {}, {HOSTILE: description}
    )
    page = report(write_curve, risky, folder=tmp_path, audit=hostile, title=HOSTILE)
    assert "img" not in {tag for tag, _ in page.tags}
    assert len(page.named("script")) == 2
    assert page.text.count(HOSTILE) >= 5
    assert "<img src=x" not in page.source


def test_names_with_quotes_and_half_characters_stay_text(tmp_path):
    odd = make_audit(names=("a", "日本 \u202e"), column=QUOTED)
    page = report(write_audit, odd, folder=tmp_path, title="half \ud800")
    assert QUOTED in page.text
    assert "日本" in page.text


def test_a_curve_may_be_named_in_any_script(curve, tmp_path):
    both = several(curve)
    names = {"kl": "日本 --> <b>", "chi$2": "naïve ♣"}
    named = TradeoffCurve(
        both.records.assign(curve=both.records["curve"].map(names)),
        {},
        {names[name]: about for name, about in both.descriptions.items()},
    )
    page = report(write_curve, named, folder=tmp_path)
    picture = html.unescape(page.source.partition("<svg")[2].partition("</svg>")[0])
    assert all(f"{name}, test rows" in picture for name in names.values())
    assert "<b>" not in page.source.partition("<svg")[2].partition("</svg>")[0]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def contrast(first, second):
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_contrast_enough_in_light_and_dark(scheme):
    style = files("fferm.report").joinpath("templates/style.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6})", block))
        for block in style.partition("* {")[0].split("@media", maxsplit=1)
    )
    colors = {"light": light, "dark": dark}[scheme]
    assert set(light) == set(dark)
    # The Web Content Accessibility Guidelines ask for 4.5 in text, 3 in graphics.
    for name in ("ink", "muted", "good", "bad"):
        assert contrast(colors[name], colors["paper"]) >= 4.5
        assert contrast(colors[name], colors["panel"]) >= 4.5
    for name in ("front", "plain", "faint"):
        assert contrast(colors[name], colors["paper"]) >= 3


# Writing


@pytest.mark.parametrize("place", ["missing/report.html", "file/report.html", "folder"])
def test_a_path_that_cannot_be_written_is_named_and_left_alone(found, tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PersistenceError, match=r"Cannot write .* folder that\s+exists"):
        write_audit(found, tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_a_report_that_fails_half_way_leaves_the_old_one(found, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PersistenceError, match="No space left on device"):
        write_audit(found, path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"


def test_an_existing_report_is_replaced(found, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    write_audit(found, str(path))
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("blocked", "package"),
    [("jinja2", "jinja2"), ("matplotlib", "matplotlib")],
)
def test_a_missing_package_says_what_to_install(
    curve, tmp_path, monkeypatch, blocked, package
):
    for name in [name for name in sys.modules if name.partition(".")[0] == blocked]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, blocked, None)
    advice = rf"package {package}, .* Run: {re.escape(install_line('report'))}"
    with pytest.raises(MissingDependencyError, match=advice):
        write_curve(curve, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_plotting_without_matplotlib_says_what_to_install(curve, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match="package matplotlib, "):
        plot_curve(curve)


def test_the_report_package_can_be_imported_without_its_extra():
    code = (
        "import sys; sys.modules.update(matplotlib=None, jinja2=None);"
        "import fferm.report; print(fferm.report.__all__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    names = "alternatives", "audit", "curve", "dossier"
    assert all(f"'write_{name}'" in done.stdout for name in names)
    assert "'plot_curve'" in done.stdout
