"""What is released: a wheel and an sdist that install, import and train without extras.

The bare environment is a fresh one that holds the wheel and, as links, those packages
that the wheel's own metadata require, so nothing is downloaded.
"""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.policy import compat32
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
for _package in ("build", "hatchling", "pip"):
    pytest.importorskip(_package, reason=f"{_package} is not installed")

from packaging.requirements import Requirement  # noqa: E402 - comes with build
from packaging.utils import canonicalize_name  # noqa: E402

if not (ROOT / "pyproject.toml").exists():
    pytest.skip("pyproject.toml is not beside the tests", allow_module_level=True)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SMOKE = """
import json, pydoc, subprocess, sys
import numpy as np, pandas as pd
import fferm
from fferm import *

assert not {"torch", "lightgbm", "typer", "matplotlib", "pyarrow"} & set(sys.modules)
assert "FairNetClassifier" in pydoc.render_doc(fferm)
rng = np.random.default_rng(0)
sex = rng.choice(["woman", "man"], 600)
job = rng.choice(["clerk", "nurse", "cook", None], 600)
age = np.where(rng.random(600) < 0.1, np.nan, rng.normal(45, 12, 600))
table = pd.DataFrame({"age": age, "job": job, "member": rng.random(600) < 0.3})
score = rng.normal(size=600) + (sex == "man") + 2 * (job == "clerk")
hired = np.where(score > 1, "yes", "no")

model = FairLogisticRegression(fairness_weight=1)
model.fit(table, hired, sensitive_features=sex)
found = audit(model, table, hired, sensitive_features=sex)
curve = tradeoff_curve(
    FairLogisticRegression(), table, hired, sensitive_features=sex,
    fairness_weights=[0, 10],
)
save(model, "model.fferm")
labels = load("model.fferm").predict(table).tolist()
assert labels == model.predict(table).tolist()

def error_of(make):
    try:
        make()
    except fferm.errors.MissingDependencyError as error:
        return str(error)

print(json.dumps({
    "file": fferm.__file__,
    "version": fferm.__version__,
    "accuracy": found.accuracy,
    "points": len(curve.records),
    "labels": sorted(set(labels)),
    "rows": len(fferm.datasets.load_adult().y),
    "errors": {
        "torch": error_of(FairNetClassifier),
        "boosting": error_of(FairBoostingClassifier),
        "report": error_of(curve.plot),
    },
}))
"""


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(folder, *options):
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *options)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the sdist, and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    return next(dist.glob("*.whl"))


def contents(wheel):
    """Return the digest of every file of a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
        }


@pytest.fixture(scope="module")
def metadata(wheel):
    name = f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info/METADATA"
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(name), policy=compat32)


def required(metadata):
    """Return the installed distributions that a plain install brings."""
    found, waiting = {}, list(metadata.get_all("Requires-Dist"))
    while waiting:
        needed = Requirement(waiting.pop())
        name = canonicalize_name(needed.name)
        if name in found or (
            needed.marker and not needed.marker.evaluate({"extra": ""})
        ):
            continue
        found[name] = importlib.metadata.distribution(name)
        waiting += found[name].requires or []
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory, wheel, metadata):
    """The folder of an environment that holds the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    bases = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", "venv", bases))
    for package in required(metadata).values():
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            try:
                (site / name).symlink_to(package.locate_file(name))
            except OSError as error:
                pytest.skip(f"links cannot be made here: {error}")
    pip = (sys.executable, "-m", "pip", "--python", folder)
    quiet = ("--no-deps", "--no-index", "--disable-pip-version-check")
    run(*pip, "install", *quiet, wheel)
    run(*pip, "check")
    return folder


def python(folder):
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


@pytest.fixture(scope="module")
def seen(bare, tmp_path_factory):
    """What a first session with fferm finds in the bare environment."""
    place = tmp_path_factory.mktemp("session")
    return json.loads(run(python(bare), "-I", "-W", "error", "-c", SMOKE, cwd=place))


def test_the_wheel_of_the_sdist_is_that_of_the_tree(wheel, tmp_path):
    assert contents(build(tmp_path, "--wheel", ROOT)) == contents(wheel)


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(wheel):
    folder = ROOT / "src" / "fferm"
    expected = {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = contents(wheel)
    assert {"fferm/py.typed", "fferm/datasets/files/adult.csv.gz"} <= expected
    assert {name for name in names if name.startswith("fferm/")} == expected
    others = {name.partition("/")[2] for name in names if not name.startswith("fferm/")}
    assert others == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
        "licenses/src/fferm/datasets/files/NOTICE.md",
    }


def test_the_sdist_holds_what_the_commands_of_a_clone_need(dist):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt"}
    wanted |= {"pyproject.toml", "src/fferm/py.typed", "examples/demo.py"}
    wanted |= {"mkdocs.yml", "docs/index.md", "tests/public_api.json"}
    assert wanted <= names
    assert [name for name in names if name.endswith((".pyc", ".nbi", ".nbc"))] == []


def test_the_version_is_written_in_one_place(metadata, seen):
    version = PROJECT["version"]
    assert metadata["Version"] == seen["version"] == version
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {version}\n" in cited


def test_the_metadata_are_those_of_a_release(metadata):
    assert metadata["License-Expression"] == PROJECT["license"]
    assert len(metadata.get_all("License-File")) == 2
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().lstrip().startswith("# fferm")
    assert set(metadata.get_all("Provides-Extra")) == {
        *PROJECT["optional-dependencies"]
    }


def test_the_constraints_pin_what_an_install_and_a_build_bring(metadata):
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {canonicalize_name(Requirement(n).name) for n in lines if n[0] != "#"}
    builders = {"build", "hatchling", "pyproject-hooks", "trove-classifiers"}
    assert {*required(metadata), *builders} - pinned == set()


def test_a_plain_install_fits_audits_sweeps_saves_and_loads(bare, seen):
    assert Path(seen["file"]).is_relative_to(bare)
    assert seen["labels"] == ["no", "yes"]
    assert seen["accuracy"] > 0.6
    assert seen["points"] > 0
    assert seen["rows"] == 32561


def test_a_plain_install_names_the_wheel_where_an_extra_is_missing(seen, wheel):
    for extra, error in seen["errors"].items():
        assert error.endswith(f'Run: pip install "{wheel}[{extra}]"')


def test_the_command_of_a_plain_install_says_what_it_needs(bare, wheel):
    command = [python(bare).with_name("fferm")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: The command line needs the package typer, which is not installed. "
        f'Run: pip install "{wheel}[cli]"\n'
    )
