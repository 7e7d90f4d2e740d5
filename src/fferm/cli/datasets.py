"""``fferm datasets``: what can be named instead of a file."""

from fferm.cli import options
from fferm.cli.outputs import Output, table_text
from fferm.datasets._store import CATALOG, data_home


def datasets(quiet: options.Quiet = False, json: options.Json = False) -> int:
    """List the data sets that commands know by name."""
    output = Output(quiet, json)
    rows = [
        (
            name,
            " or ".join(entry.targets),
            ", ".join(entry.sensitive),
            "in the package" if entry.is_shipped else "in the data folder",
            entry.about,
        )
        for name, entry in CATALOG.items()
    ]
    columns = ("name", "target", "sensitive", "where", "about")
    data = {
        "data_home": str(data_home()),
        "datasets": [dict(zip(columns, row, strict=True)) for row in rows],
    }
    words = f"{table_text(columns, rows)}\n\nThe data folder is {data_home()}"
    output.result(words, data)
    return 0
