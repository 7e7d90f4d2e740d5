"""The documentation does what it says: its code runs, its output is real, it builds.

The python blocks of a page share one namespace and run in order, in a folder of their
own, with warnings as errors. Where a block is followed by one titled "Output", what it
prints is compared with it. A block is left out only by a comment that says why::

    <!-- no-run: needs fairlearn, which is not a dependency -->
"""

import html
import math
import os
import re
import subprocess
import sys
import types
import warnings
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import sklearn

from fferm.registry import Registered

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("docs/ is not beside the tests", allow_module_level=True)

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.S | re.M
)
NO_RUN = re.compile(r"<!-- no-run: (?P<reason>[^>]{10,}) -->\s*\Z")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Printed digits may differ this much between machines, in units of the last one.
LAST_DIGITS = 2


@dataclass(frozen=True)
class Block:
    """A python block of a page, and what it has to print (None: anything)."""

    code: str
    line: int
    reason_not_to_run: str | None = None
    output: str | None = None


def read_blocks(text):
    found, blocks, end = list(FENCE.finditer(text)), [], 0
    for fence, following in zip_longest(found, found[1:]):
        before, end = text[end : fence.start()], fence.end()
        if fence["info"].split()[:1] != ["python"]:
            continue
        marker = NO_RUN.search(before)
        output = None
        if following is not None and 'title="Output"' in following["info"]:
            output = following["body"]
        blocks.append(
            Block(
                fence["body"],
                text[: fence.start("body")].count("\n"),
                marker and marker["reason"],
                output,
            )
        )
    return blocks


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def agrees(printed, promised):
    """Return whether two texts agree up to spaces and the last printed digits."""
    words = [NUMBER.sub("#", text).split() for text in (printed, promised)]
    if words[0] != words[1]:
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(promised), strict=True)
    return all(_close(one, other) for one, other in pairs)


def _close(one, other):
    digits = other.partition("e")[0].partition(".")[2]
    exponent = int(other.partition("e")[2] or 0)
    slack = LAST_DIGITS * 10.0 ** (exponent - len(digits)) if digits else 0
    return math.isclose(float(one), float(other), rel_tol=0, abs_tol=slack * 1.001)


@pytest.fixture
def module(request, monkeypatch, tmp_path):
    """A module for the blocks of one page; what they register goes with it."""
    page = request.param
    module = types.ModuleType("page_" + re.sub(r"\W", "_", name_of(page)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # No page may depend on files of the reader, nor find any.
    monkeypatch.setenv("FFERM_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    config = sklearn.get_config()
    yield module
    sklearn.set_config(**config)
    registry = Registered._registry
    for key in [k for k, c in registry.items() if c.__module__ == module.__name__]:
        del registry[key]


def runs(page):
    return any(
        not block.reason_not_to_run for block in read_blocks(page.read_text("utf-8"))
    )


@pytest.mark.parametrize(
    "module", [page for page in PAGES if runs(page)], indirect=True, ids=name_of
)
def test_the_code_of_a_page_runs_and_prints_what_it_says(module, request, capsys):
    page = request.node.callspec.params["module"]
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.reason_not_to_run:
            continue
        # Empty lines above put the line of the page into a traceback.
        code = compile("\n" * block.line + block.code, str(page), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(code, vars(module))
        printed = capsys.readouterr().out
        if block.output is not None:
            assert agrees(printed, block.output), (
                f"{name_of(page)}, line {block.line}: printed\n{printed}\n"
                f"and promises\n{block.output}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_of_python_hides_from_the_tests(page):
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^[ \t]*[`~]{3,}[ \t]*\{?\.?(?:python|py|pycon)\b", text, re.M)
    assert len(fences) == len(read_blocks(text)), "indent no block; call it ```python"
    assert text.count("<!-- no-run") == sum(
        block.reason_not_to_run is not None for block in read_blocks(text)
    ), "a no-run comment gives its reason and stands right above its block"


def test_the_readme_has_code_that_runs():
    assert runs(ROOT / "README.md")


@pytest.mark.parametrize(
    ("printed", "promised", "expected"),
    [
        ("gap 0.031", "gap 0.032", True),
        ("gap 0.031", "gap 0.035", False),
        ("a  1", "a 1", True),
        ("a 1", "a 2", False),
        ("a 1", "b 1", False),
        ("1.2e-05", "1.3e-05", True),
        ("1.2e-05", "1.2e-04", False),
    ],
)
def test_outputs_are_compared_to_their_last_digits(printed, promised, expected):
    assert agrees(printed, promised) is expected


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(target)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists()


def test_the_navigation_stays_small():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    entries = re.findall(r"^ +- .*: ([\w/-]+)\.\w+$", text, re.M)
    assert "index" in entries
    assert len(entries) <= 40


def test_the_site_loads_nothing_from_outside(site):
    loads = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(https?:)?//")
    styles = re.compile(r"<link\b[^>]*\bhref=[\"']?(https?:)?//")
    pages = list(site.rglob("*.html"))
    written = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    written = [page for page in written if "results" not in page.parts]
    assert len(pages) == len(written) + 1  # and 404.html
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not loads.search(text), page
        assert not styles.search(text), page


def test_no_link_of_the_site_is_dead(site):
    value = r"""=(?:"([^"]*)"|'([^']*)'|([^\s>]+))"""
    link = re.compile(rf"<(?:a|link|img|script)\b[^>]*?\s(?:href|src){value}")
    anchor = re.compile(rf"\s(?:id|name){value}")
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    del pages[site / "404.html"]  # its links are those of the home page, from the root
    anchors = {p: {"", *map("".join, anchor.findall(t))} for p, t in pages.items()}
    dead = []
    for page, text in pages.items():
        for found in map("".join, link.findall(text)):
            address = urlsplit(html.unescape(found))
            if address.scheme or address.netloc:
                continue
            path = unquote(address.path)
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            known = anchors.get(target, {address.fragment})
            if not target.exists() or address.fragment not in known:
                dead.append((page.relative_to(site).as_posix(), found))
    assert not dead


@pytest.mark.parametrize("page", ["mathematics", "guide/bounds", "guide/divergences"])
def test_formulas_are_drawn_in_a_browser_without_network(site, browser, page):
    context = browser.new_context(offline=True)
    tab, asked = context.new_page(), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((site / page / "index.html").as_uri(), timeout=120_000)
    formulas = tab.locator(".arithmatex").all()
    assert len(formulas) > 5
    for formula in formulas:
        assert formula.locator(".katex-html").count() == 1
        box = formula.locator(".katex-html").bounding_box()
        assert min(box["width"], box["height"]) > 3
    assert tab.locator(".katex-error").count() == 0
    tab.evaluate("document.fonts.ready.then(() => true)")
    fonts = tab.evaluate("[...document.fonts].map(f => [f.family, f.status])")
    states = [state for family, state in fonts if family.startswith("KaTeX")]
    assert "loaded" in states
    assert "error" not in states
    assert all(url.startswith("file:") for url in asked)
    context.close()


@pytest.mark.parametrize(
    "home", ["divergences/classical", "notions", "solvers/lbfgs", "lab/baselines"]
)
def test_the_page_on_extending_shows_a_class_of_ours(home, site):
    text = (site / "how-to" / "extend" / "index.html").read_text(encoding="utf-8")
    assert re.search(rf"Source code in\s*<code>[^<]*fferm/{home}", text)


def test_no_markup_of_docstrings_is_left_on_the_site(site):
    leftover = re.compile(r"\.\. math|:(?:func|class|meth|math):|\\(?:frac|sum|text)\b")
    pages = list((site / "api").rglob("*.html"))
    assert len(pages) == len(list((DOCS / "api").glob("*.md")))
    for page in pages:
        assert not leftover.search(page.read_text(encoding="utf-8")), page
