"""``fferm report``: records of a curve, or an audit, as one page."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from fferm.auditing import Audit
from fferm.cli import options
from fferm.cli.outputs import Output, check_writable, of_records
from fferm.curve import TradeoffCurve
from fferm.errors import InvalidInputError

ADVICE = "Name the folder of a curve, or a file that `fferm audit --json` wrote."


def report(
    context: Context,
    source: Annotated[
        Path,
        Argument(
            metavar="RECORDS",
            help="The folder of `fferm curve`, or the file of `fferm audit --json`.",
        ),
    ],
    out: Annotated[Path, Option(help="The page to write.")] = Path("report.html"),
    max_violation: Annotated[
        float | None, Option(help="A bound to mark on the page.")
    ] = None,
    title: Annotated[str | None, Option(help="What the page is called.")] = None,
    date: options.Date = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Write one self-contained page that needs nothing but a browser.

    Example: fferm report records --out report.html --max-violation 0.05
    """
    output = Output(quiet, json)
    if not source.exists():
        raise InvalidInputError(f"{source} does not exist. {ADVICE}")
    check_writable(out, str(source))
    with output.warnings_as_lines():
        read: Any = TradeoffCurve.load if source.is_dir() else _read_audit
        page: dict[str, Any] = {"title": title, "max_violation": max_violation}
        page["provenance"] = of_records(context, source, date)
        read(source).to_html(out, **page)
    output.result(f"Wrote {out}", {"report": str(out)})
    return 0


def _read_audit(path: Path) -> Audit:
    try:
        content: Any = json_format.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{path} is not JSON ({error}). {ADVICE}") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} is not an audit. {ADVICE}")
    audit = content.get("audit")
    return Audit.from_dict(audit if isinstance(audit, dict) else content)
