"""The tutorials run, and their notebooks hold the scripts and what these print."""

import sys
import types
import warnings

import pytest
import sklearn

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
from test_code_blocks import agrees  # noqa: E402
from tutorials import FOLDER, read_script  # noqa: E402

SCRIPTS = sorted(FOLDER.glob("*.py"))
NEEDS = {"pytorch_loop": "torch"}


def cells_of(notebook):
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def printed_in(cell):
    return "".join(out.text for out in cell.outputs if out.output_type == "stream")


def test_there_are_four_tutorials():
    assert len(SCRIPTS) == 4


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_prints_what_its_notebook_shows(
    path, monkeypatch, tmp_path, capsys
):
    pytest.importorskip(NEEDS.get(path.stem, "numpy"))
    pytest.importorskip("matplotlib")
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert cells_of(notebook) == cells_of(read_script(path)), (
        "run python tests/docs/tutorials.py"
    )
    module = types.ModuleType(f"tutorial_{path.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    with sklearn.config_context():
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                exec(compile(cell.source, str(path), "exec"), vars(module))
            printed = capsys.readouterr().out
            assert agrees(printed, printed_in(cell)), f"printed\n{printed}"
