"""Execute the scripts in docs/tutorials and write them beside it as notebooks.

Run it after a change of a script: ``python tests/docs/tutorials.py``.
"""

import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"


def read_script(path):
    """Return a percent script as a notebook without outputs."""
    return jupytext.read(path, fmt="py:percent")


def main():
    for path in sorted(FOLDER.glob("*.py")):
        notebook = read_script(path)
        with tempfile.TemporaryDirectory() as folder:
            client = NotebookClient(
                notebook,
                timeout=120,
                kernel_name="python3",
                record_timing=False,
                coalesce_streams=True,
                resources={"metadata": {"path": folder}},
            )
            client.execute()
        for number, cell in enumerate(notebook.cells):
            cell["id"] = str(number)
        notebook.metadata = {
            "kernelspec": {"name": "python3", "display_name": "Python"}
        }
        nbformat.write(notebook, path.with_suffix(".ipynb"))
        print("wrote", path.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main()
