"""Put the tables of ``benchmarks/results`` into ``docs/benchmarks.md``.

A table goes between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; all else
stays as it is, and a table without such marks stays in the results. The table of ratios
gathers those of every benchmark.
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.__main__ import BENCHMARKS, RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Rewrite the tables of the page for which there are results."""
    found = {
        name: json.loads((RESULTS / f"{name}.json").read_text())
        for name in BENCHMARKS
        if (RESULTS / f"{name}.json").exists()
    }
    text = replaced(PAGE.read_text(), "ratios", ratio_table(found))
    for figures in found.values():
        for name, lines in figures.get("tables", {}).items():
            text = replaced(text, name, lines)
    PAGE.write_text(text)


def replaced(text: str, name: str, lines: list[str]) -> str:
    """Return the text with other lines between the two marks of a name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    block = "\n".join([begin, "", *lines, "", end])
    return between.sub(lambda _: block, text, count=1)


def ratio_table(found: dict[str, Any]) -> list[str]:
    """Return the ratios of all benchmarks, with versions and commits below."""
    lines = ["| ratio of seconds | median | range | asked |", "|---|---|---|---|"]
    for figures in found.values():
        for name, row in figures.get("ratios", {}).items():
            least, most = number(row["least"]), number(row["largest"])
            cells = (name, number(row["median"]), f"{least}–{most}", row["asked"])
            lines.append(f"| {' | '.join(cells)} |")
    first = next(iter(found.values()))
    names = ", ".join(f"{name} {v}" for name, v in first["versions"].items())
    commits = sorted({figures["commit"] for figures in found.values()})
    said = f"commit {', '.join(commits)}; {names}; {first['cores']} cores"
    return [*lines, "", f"Measured at {said}, one thread for each side."]


def number(value: float) -> str:
    """Return a ratio with two digits or more."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
