"""``fferm datasets``: what can be named instead of a file."""

from fferm.cli import options
from fferm.cli.outputs import Output, table_text
from fferm.datasets._store import CATALOG, data_home


def datasets(quiet: options.Quiet = False, json: options.Json = False) -> int:
    """List the data sets that commands know by name.

    Example: fferm datasets --json
    """
    output = Output(quiet, json)
    rows = [
        {
            "name": name,
            "target": " or ".join(entry.targets),
            "sensitive": ", ".join(entry.sensitive),
            "where": f"in the {'package' if entry.is_shipped else 'data folder'}",
            "about": entry.about,
        }
        for name, entry in CATALOG.items()
    ]
    words = f"{table_text(rows[0], rows)}\n\nThe data folder is {data_home()}"
    output.result(words, {"data_home": str(data_home()), "datasets": rows})
    return 0
