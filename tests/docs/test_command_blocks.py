"""The command lines of the documentation run, in order, where their page says."""

import re
import shlex
from pathlib import Path

import pytest

from fferm.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip("docs/ is not beside the tests", allow_module_level=True)

FENCE = re.compile(r"^```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^```$", re.S | re.M)
# A command in a block of shell, or in a step of a workflow.
COMMAND = re.compile(r"^\s*(?:- run: )?fferm (?P<line>[^#\n]*)", re.M)


def blocks(page):
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(body):
    return [found["line"].strip() for found in COMMAND.finditer(body)]


def has_commands(page):
    return any(kind in ("sh", "yaml") and commands(body) for kind, body in blocks(page))


PAGES = [
    page for page in (ROOT / "README.md", *DOCS.rglob("*.md")) if has_commands(page)
]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_command_lines_of_a_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FFERM_DATA_HOME", str(tmp_path / "data"))
    names = {}
    for kind, body in blocks(page):
        if kind == "python" and "to_csv(" in body:  # the table that commands read
            exec(compile(body, str(page), "exec"), names)
        elif kind in ("sh", "yaml"):
            for line in commands(body):
                run(line, capsys)


def run(line, capsys):
    command, _, target = line.partition(" > ")
    capsys.readouterr()
    code = main(shlex.split(command))
    printed = capsys.readouterr()
    assert code == 0, f"fferm {line}\n{printed.err}"
    if target:
        Path(target.strip()).write_text(printed.out, encoding="utf-8")


def test_no_command_line_hides_from_the_tests():
    assert {"README.md", "docs/how-to/command-line.md"} <= set(map(name_of, PAGES))
    for page in (ROOT / "README.md", *DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        inside = re.findall(r"^ *([`~]{3,})(.*?)\n(.*?)^ *\1 *$", text, re.S | re.M)
        written = sum(len(commands(body)) for *_, body in inside)
        read = sum(
            len(commands(body)) for kind, body in blocks(page) if kind in ("sh", "yaml")
        )
        assert written == read, f"{name_of(page)}: call the block ```sh, indent none"
