"""The report in a real browser: it draws, it is picked from, it asks for nothing."""

from importlib.resources import files

import numpy as np
import pytest

from fferm import (
    FairLogisticRegression,
    FairRegressor,
    audit,
    audit_regression,
    tradeoff_curve,
)
from fferm.datasets import make_biased
from fferm.deploy import ParityController
from fferm.report.curves import points

HOSTILE = "<img src=x onerror=alert(1)>"
BOUND = 0.4
PAGES = (
    *("curve", "bound", "audit", "number_curve", "number_audit"),
    *("dossier", "alternatives", "deployment"),
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
# What margins of 1.5 cm leave of the width of A4, in pixels.
PAPER = {"width": 680, "height": 1000}


@pytest.fixture(scope="module")
def curve():
    data = make_biased(600, random_state=0)
    group = np.where(data.sensitive_features["group"] == "1", HOSTILE, "Œuvre & Söhne")
    return tradeoff_curve(
        {HOSTILE: FairLogisticRegression(), "b$<i>": FairLogisticRegression(l2=0.3)},
        data.X,
        data.y,
        sensitive_features={"<script>alert(2)</script>": group},
        fairness_weights=[0, 1, 5, 20],
        seeds=2,
    )


@pytest.fixture(scope="module")
def pages(curve, tmp_path_factory):
    """The files of a curve and of an audit, by name."""
    folder = tmp_path_factory.mktemp("pages")
    curve.to_html(folder / "curve.html", title=HOSTILE)
    curve.to_html(folder / "bound.html", max_violation=BOUND)
    alone = curve.curves[HOSTILE]
    alone.audits[20.0, 0].to_html(folder / "audit.html", before=alone.audits[0.0, 0])
    alone.alternatives(max_violation=BOUND).to_html(folder / "alternatives.html")
    _write_numbers(folder)
    _write_dossier(folder)
    _write_deployment(folder)
    return {name: folder / f"{name}.html" for name in PAGES}


def _write_numbers(folder):
    """Write the pages of a regressor: its curve, and an audit by group and number."""
    rng = np.random.default_rng(0)
    age, group = rng.normal(40, 9, 500), rng.integers(2, size=500)
    X = np.column_stack([age / 9 + rng.normal(size=500), group + rng.normal(size=500)])
    y = 1000 * (X.sum(axis=1) + rng.normal(size=500))
    names = np.where(group, HOSTILE, "Œuvre & Söhne")
    sensitive = {"<script>alert(2)</script>": names, "age": age}
    found = tradeoff_curve(
        FairRegressor(groups="marginal", violation_metric="wasserstein"),
        X,
        y,
        sensitive_features=sensitive,
        fairness_weights=[0, 1, 20],
    )
    found.to_html(folder / "number_curve.html", title=HOSTILE)
    numbers = audit_regression(
        found.select("knee"), X, y, sensitive_features=sensitive, n_permutations=9
    )
    numbers.to_html(folder / "number_audit.html", max_violation=900)


def _write_dossier(folder):
    """Write the page of a dossier whose table is the widest."""
    rng = np.random.default_rng(0)
    people = {
        "sex": rng.choice([HOSTILE, "Œuvre & Söhne", "unknown"], 4000),
        "race": rng.choice(["a", "b", "c"], 4000, p=[0.6, 0.385, 0.015]),
    }
    score = rng.random(4000)
    is_repaid, is_granted = rng.random(4000) < score, score > 0.4
    found = audit(
        y_true=is_repaid.astype(int),
        y_pred=is_granted.astype(int),
        y_prob=score,
        sensitive_features=people,
    )
    found.dossier("ecoa").to_html(folder / "dossier.html")


def _write_deployment(folder):
    """Write the audit of a frozen model whose thresholds follow a stream."""
    data = make_biased(600, random_state=0)
    sets = data.sensitive_features, data.sensitive_features_test
    seen, new = (
        np.where(groups["group"] == "1", HOSTILE, "Œuvre & Söhne") for groups in sets
    )
    frozen = FairLogisticRegression(fairness_weight=0)
    frozen.fit(data.X, data.y, sensitive_features=seen)
    controller = ParityController(model=frozen, step=0.05)
    controller.update(data.X, seen)
    before, after = (
        audit(model, data.X_test, data.y_test, sensitive_features=new, n_bootstrap=50)
        for model in (frozen, controller)
    )
    after.to_html(folder / "deployment.html", before=before)


class Visit:
    """A page that is open, and all that went wrong on it."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.trouble = []
        self.tab.on("console", lambda message: self.trouble.append(message.text))
        self.tab.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.tab.on("dialog", self._dismiss)
        self.tab.on("request", self._asked)
        self.address = path.as_uri()
        self.tab.goto(self.address, timeout=120_000)  # a busy machine starts late

    def _dismiss(self, dialog):
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request):
        if request.url != self.address:
            self.trouble.append(f"request: {request.url}")

    def shown_groups(self):
        tables = self.tab.locator(".detail:visible table.groups").all()
        return [table.inner_text() for table in tables]

    def place_of(self, number):
        """Return where on the screen a point is drawn."""
        mark = self.tab.locator(f"#front [id$=-pick{number}] use").locator(
            "visible=true"
        )
        mark.first.scroll_into_view_if_needed()
        box = mark.first.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def click_point(self, number):
        """Click a point as a hand does: the pointer arrives, then the button."""
        self.tab.mouse.move(0, 0)
        assert self.tab.locator("#tip").is_hidden()
        self.tab.mouse.move(*self.place_of(number))
        self.tab.locator("#tip").wait_for(timeout=120_000)
        self.tab.mouse.click(*self.place_of(number))
        self.wait_for(number)

    def wait_for(self, number):
        """Wait until the groups of a point are shown."""
        self.tab.locator(f".detail[data-point='{number}']").wait_for(timeout=120_000)


@pytest.fixture
def visit(browser, request):
    """Open a page; whatever happened on it, nothing may have gone wrong."""
    visits = []

    def open_page(path, **options):
        visits.append(Visit(browser, path, viewport=DESKTOP, **options))
        return visits[-1]

    yield open_page
    for done in visits:
        done.context.close()
        assert done.trouble == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_opens_without_errors_and_asks_for_nothing(visit, pages, name, scheme):
    page = visit(pages[name], color_scheme=scheme).tab
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.mouse.wheel(0, 2000)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(visit, pages, name, scheme):
    pytest.importorskip(
        "axe_playwright_python", reason="axe is not installed: pip install -e .[dev]"
    )
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    page = visit(pages[name], color_scheme=scheme).tab
    page.evaluate(axe)
    broken = page.evaluate("axe.run().then(found => found.violations)")
    assert [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in broken
    ] == []


def test_clicking_a_point_changes_the_table_of_groups(visit, pages):
    page = visit(pages["curve"])
    page.tab.locator("#sharper").click()
    seen = [page.shown_groups()]
    for number in (1, 3):
        page.click_point(number)
        seen.append(page.shown_groups())
    assert len({tuple(tables) for tables in seen}) == 3
    assert all(len(tables) == 1 for tables in seen)
    assert page.tab.locator("input[name=point]:checked").get_attribute("value") == "3"


def test_what_is_shown_after_a_click_is_what_the_audit_says(visit, pages, curve):
    page = visit(pages["curve"])
    page.click_point(3)
    found = curve.audits[HOSTILE, 20.0, 0]
    lines = page.tab.locator(".detail:visible table.groups tbody tr").all()
    cells = [line.locator("th, td").all_inner_texts() for line in lines]
    for group, row in found.groups.items():
        rate = f"{100 * row['selection_rate_1']:.1f}\N{NO-BREAK SPACE}%"
        (line,) = [line for line in cells if line[0] == group]
        assert line[3] == rate


def test_points_can_be_picked_with_the_keyboard_alone(visit, pages):
    page = visit(pages["curve"])
    before = page.shown_groups()
    page.tab.locator("input[name=point]:checked").focus()
    page.tab.keyboard.press("ArrowDown")
    after = page.shown_groups()
    assert before != after
    page.tab.locator(".steps button:enabled").first.focus()
    page.tab.keyboard.press("Enter")
    assert page.shown_groups() != after


def test_the_keyboard_reaches_the_buttons_and_the_models(visit, pages):
    page = visit(pages["curve"]).tab
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.id || document.activeElement.name")
        )
    assert {"fairer", "sharper", "point"} <= reached


def test_the_page_of_a_deployment_states_its_certificate_and_what_changed(visit, pages):
    page = visit(pages["deployment"]).tab
    summary = page.locator(".verdict").inner_text()
    assert "Before, the violation was" in summary
    assert page.locator("p.note", has_text="no stream could exceed").count() == 1
    assert page.locator(".bar .before").count() == 2


def test_the_picked_point_has_a_ring(visit, pages):
    page = visit(pages["curve"])
    page.click_point(3)
    box = page.tab.locator("#front .wide .ring").first.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert middle == pytest.approx(page.place_of(3), abs=1)


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_the_bound_is_a_line_between_those_who_keep_it_and_the_others(
    visit, pages, curve, width
):
    size = DESKTOP if width == "wide" else PHONE
    page = visit(pages["bound"])
    page.tab.set_viewport_size(size)
    line = page.tab.locator(f"#front .{width} [id$=-bound]").first.bounding_box()
    at = line["x"] + line["width"] / 2
    seen = set()
    for number, point in enumerate(points(curve)):
        is_kept = point.test["violation"].mean <= BOUND
        assert (page.place_of(number)[0] < at) == is_kept
        seen.add(is_kept)
    assert seen == {True, False}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(pages, name):
    size = pages[name].stat().st_size
    print(f"{name}: {size / 1e6:.2f} MB")  # noqa: T201 - shown by pytest -rP
    assert size < 1_500_000


def test_names_from_data_are_shown_as_text(visit, pages):
    page = visit(pages["curve"])
    (table,) = page.shown_groups()
    assert HOSTILE in table
    assert "Œuvre & Söhne" in table
    assert page.tab.locator("h1").inner_text() == HOSTILE
    assert page.tab.locator("img").count() == 0
    drawn = page.tab.locator("#front svg text").all_text_contents()
    assert {f"{HOSTILE}, test rows", "b$<i>, test rows"} <= set(drawn)
    page.tab.mouse.move(*page.place_of(1))
    assert HOSTILE in page.tab.locator("#tip").inner_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(browser, pages, name):
    page = Visit(browser, pages[name], viewport=PHONE, has_touch=True, is_mobile=True)
    assert page.tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.context.close()
    assert page.trouble == []


def test_a_tap_on_a_phone_picks_a_point(browser, pages):
    page = Visit(browser, pages["curve"], viewport=PHONE, has_touch=True)
    before = page.shown_groups()
    page.tab.touchscreen.tap(*page.place_of(1))
    page.wait_for(1)
    assert page.shown_groups() != before
    page.context.close()
    assert page.trouble == []


def test_on_paper_the_picture_stays_and_the_buttons_go(visit, pages):
    page = visit(pages["curve"]).tab
    assert page.locator("#fairer").is_visible()
    page.emulate_media(media="print")
    assert page.locator("#front .wide svg").first.is_visible()
    assert page.locator("#front .narrow svg").first.is_hidden()
    assert page.locator("#fairer").is_hidden()
    assert page.locator(".detail:visible").count() == 1


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_on_paper(visit, pages, name):
    page = visit(pages[name]).tab
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print")
    ends = page.evaluate(
        "[...document.querySelectorAll('table, svg, pre, p')]"
        ".map(part => part.getBoundingClientRect().right)"
    )
    assert max(ends) <= PAPER["width"]


def test_without_scripts_the_picture_and_one_model_are_there(visit, pages):
    page = visit(pages["curve"], java_script_enabled=False).tab
    assert page.locator("#front .wide svg").first.is_visible()
    assert page.locator(".detail:visible").count() == 1
    assert page.locator("#fairer").is_hidden()


def test_a_report_from_records_alone_is_the_same_page(tmp_path):
    data = make_biased(200, random_state=0)
    made = tradeoff_curve(
        FairLogisticRegression(),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=[0, 5],
        records=tmp_path / "records",
    )
    made.to_html(tmp_path / "made.html")
    type(made).load(tmp_path / "records").to_html(tmp_path / "read.html")
    pages = [(tmp_path / name).read_bytes() for name in ("made.html", "read.html")]
    assert pages[0] == pages[1]


def test_picking_a_regressor_shows_its_groups_and_pictures(visit, pages):
    page = visit(pages["number_curve"])
    seen = []
    for number in (0, 2):
        page.click_point(number)
        seen.append(page.shown_groups())
        # Densities by group and by band, and the fan of the number.
        assert page.tab.locator(".detail:visible figure svg").count() == 3
    assert seen[0] != seen[1]
    assert all(len(tables) == 2 for tables in seen)
    texts = page.tab.locator("#front svg text").all_text_contents()
    assert "Violation: Wasserstein distance (left is fairer)" in texts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_numbers_follow_light_and_dark(visit, pages, scheme):
    page = visit(pages["number_audit"], color_scheme=scheme).tab
    picture = page.locator("figure svg text").first
    color = picture.evaluate("element => getComputedStyle(element).fill")
    assert (color == "rgb(29, 29, 33)") == (scheme == "light")
