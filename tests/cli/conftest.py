"""A table in files, a model of it, and a command line in this process."""

from dataclasses import dataclass

import pytest
from unseen import make_table

from fferm.cli import main


@dataclass(frozen=True)
class Done:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def errors(self):
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


@pytest.fixture
def call(capsys):
    """Return a function that runs a command line within this process."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def table():
    """The table in memory."""
    return make_table()


@pytest.fixture(scope="session")
def folder(tmp_path_factory, table):
    """A folder with the table as CSV and Parquet, and a model of it."""
    home = tmp_path_factory.mktemp("cli")
    table.to_csv(home / "data.csv", index=False)
    table.to_parquet(home / "data.parquet")
    fit = ["fit", str(home / "data.csv"), "--target", "outcome", "--quiet"]
    fit += ["--fairness-weight", "1"]
    sensitive = ["--sensitive", "region", "--out", str(home / "model.fferm")]
    assert main([*fit, *sensitive]) == 0
    return home
