"""Names are there whatever is installed; what is missing is named with its cure."""

import importlib
import importlib.util
import inspect
import json
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

import fferm
import fferm.errors
from fferm.errors import MissingDependencyError, import_extra, install_line

# The packages of each extra. Those of one line are only imported by functions.
EXTRAS = {
    "boosting": {"lightgbm"},
    "report": {"jinja2", "matplotlib"},
    "tune": {"optuna"},
    "baselines": {"fairlearn", "fairret"},
    "cli": {"typer", "rich", "pyarrow"},
    "torch": {"torch", "safetensors", "pyarrow"},
}
# What is installed beside the core; torch is last, because it cannot be unloaded.
INSTALLS = {
    "core": set(),
    "report, tune, baselines": EXTRAS["report"] | EXTRAS["tune"] | EXTRAS["baselines"],
    "boosting": EXTRAS["boosting"],
    "cli": EXTRAS["cli"],
    "torch": EXTRAS["torch"],
}
LOOK = """
import inspect, json, pydoc, sys

extras, installs, saved = json.loads(sys.argv[1])
hidden = set()


class Hidden:
    def find_spec(name, path=None, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def caught(code, names):
    try:
        exec(code, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def look():
    import fferm

    names, star = {"fferm": fferm, "saved": saved}, {}
    groups = ["a", "a", "b", "b"]
    measured = fferm.metrics.violation(
        [0, 1, 0, 1], [0, 1, 0, 0], sensitive_features=groups
    )
    exec("from fferm import *", star)
    members = [name for name, _ in inspect.getmembers(fferm)]
    codes = [f"repr(fferm.{name}())" for name in star if name.startswith("Fair")]
    codes += [f"fferm.{name}" for name in dir(fferm)]
    codes += ["import fferm.torch", "from fferm import torch"]
    codes += ["from fferm.torch import FairnessLoss", "import fferm.distributed"]
    codes += ["fferm.load(saved)"] if saved else []
    return {
        "violation": measured,
        "star": list(star),
        "members": members,
        "absent": [name for name in dir(fferm) if not hasattr(fferm, name)],
        "help": pydoc.render_doc(fferm),
        "parameters": list(inspect.signature(fferm.FairNetClassifier).parameters),
        "errors": {code: error for code in codes if (error := caught(code, names))},
    }


sys.meta_path.insert(0, Hidden)
seen = {}
for name, installed in installs.items():
    hidden = set(extras) - set(installed)
    for module in list(sys.modules):
        if module.partition(".")[0] in hidden | {"fferm"}:
            del sys.modules[module]
    seen[name] = look()
print(json.dumps(seen))
"""
NO_TORCH = "needs the package torch, which is not installed. Run: "
NO_PYARROW = "needs the package pyarrow, which is not installed. Run: "
NO_TREES = "FairBoostingClassifier needs the package lightgbm, which is not installed."


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What a process finds in fferm after each install, as if it were the only one."""
    path = tmp_path_factory.mktemp("models") / "trees.fferm"
    if importlib.util.find_spec("lightgbm") is not None:
        model = fferm.FairBoostingClassifier(n_estimators=1, fairness_weight=0)
        fferm.save(model.fit([[0.0], [1.0]] * 20, [0, 1] * 20), path)
    packages = set().union(*EXTRAS.values())
    installs = {
        name: sorted(installed)
        for name, installed in INSTALLS.items()
        if all(map(importlib.util.find_spec, installed))
    }
    told = json.dumps([sorted(packages), installs, path.exists() and str(path)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOK, told],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=INSTALLS)
def install(request, seen):
    """The name of an install, and what is found in it."""
    if request.param not in seen:
        pytest.skip(f"not all of {request.param} is installed here")
    return request.param, seen[request.param]


def test_every_public_name_can_be_imported_and_read_about(install):
    _, found = install
    assert set(fferm.__all__) <= set(found["star"])
    assert set(fferm.__all__) <= set(found["members"])
    assert [name for name in fferm.__all__ if name not in found["help"]] == []
    expected = inspect.signature(fferm.FairNetClassifier).parameters
    assert found["parameters"] == list(expected)


def test_a_function_of_a_submodule_needs_no_second_import(install):
    assert install[1]["violation"] == 0.5


def test_only_what_cannot_be_used_is_absent_and_says_what_to_install(install):
    name, found = install
    expected = {}
    if name != "torch":
        error = f"fferm.torch {NO_TORCH}{install_line('torch')}"
        missing = f"MissingDependencyError: {error}"
        expected |= {"fferm.torch": f"AttributeError: {error}"}
        expected |= {"repr(fferm.FairNetClassifier())": missing}
        expected |= {"import fferm.torch": missing, "from fferm import torch": missing}
        expected |= {"from fferm.torch import FairnessLoss": missing}
        if name != "cli":
            error = f"fferm.distributed {NO_PYARROW}{install_line('torch')}"
        missing = f"MissingDependencyError: {error}"
        expected |= {"import fferm.distributed": missing}
        expected |= {"fferm.distributed": f"AttributeError: {error}"}
    if name != "boosting":
        missing = f"MissingDependencyError: {NO_TREES} Run: {install_line('boosting')}"
        expected |= {"repr(fferm.FairBoostingClassifier())": missing}
        if importlib.util.find_spec("lightgbm") is not None:
            expected |= {"fferm.load(saved)": missing}
    assert found["errors"] == expected
    assert found["absent"] == ([] if name == "torch" else ["distributed", "torch"])


@pytest.mark.parametrize(
    "name",
    [
        *("divergences", "notions", "uncertainty", "tables", "metrics", "auditing"),
        *("estimators", "solvers", "datasets", "tuning", "testing", "lab", "errors"),
        *("curve", "persistence", "report", "cli", "boosting"),
        *("lab.baselines", "lab.experiments", "metrics.dependence", "data.groups"),
        *("metrics.intervals", "metrics.certificates", "penalty.objective"),
        *("data.group_counts", "estimators.net", "estimators.boosting"),
    ],
)
def test_a_documented_module_is_an_attribute_of_its_package(name):
    package, _, last = f"fferm.{name}".rpartition(".")
    module = importlib.import_module(package)
    assert module.__getattr__(last) is importlib.import_module(f"fferm.{name}")
    assert last in dir(module)


def test_a_private_module_and_a_misspelt_one_are_not_attributes():
    for name in ("_jit", "metric", "__main__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            fferm.__getattr__(name)


def test_each_name_is_listed_once():
    _ = fferm.load, fferm.metrics
    assert len(dir(fferm)) == len(set(dir(fferm)))


class Installed:
    """fferm as pip has recorded it."""

    def __init__(self, **record):
        self.record = json.dumps(record) if record else None

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.record


@pytest.fixture
def line(monkeypatch):
    """Return a function that gives the line to install trees, by pip's record."""

    def get(**record):
        monkeypatch.setattr(fferm.errors, "distribution", lambda _: Installed(**record))
        return install_line("boosting")

    return get


def test_from_an_index_an_extra_is_installed_by_name(line):
    assert line() == 'pip install "fferm[boosting]"'


def test_from_a_clone_an_extra_is_installed_from_there_with_its_constraints(
    line, tmp_path
):
    clone = tmp_path / "my clone"
    clone.mkdir()
    assert line(url=clone.as_uri(), dir_info={}) == f'pip install "{clone}[boosting]"'
    pins = clone / "constraints.txt"
    pins.touch()
    assert (
        line(url=clone.as_uri(), dir_info={"editable": True})
        == f'pip install -c "{pins}" -e "{clone}[boosting]"'
    )


def test_a_folder_that_is_gone_is_not_named(line, tmp_path):
    gone = line(url=(tmp_path / "gone").as_uri(), dir_info={})
    assert gone == 'pip install ".[boosting]" (in a clone of fferm)'


def test_from_a_wheel_an_extra_is_installed_from_the_wheel(line, tmp_path):
    wheel = tmp_path / "fferm-0.1.0-py3-none-any.whl"
    wheel.touch()
    found = line(url=wheel.as_uri(), archive_info={"hash": "sha256=0"})
    assert found == f'pip install "{wheel}[boosting]"'


def test_from_an_address_an_extra_is_installed_from_there(line):
    url = "https://example.org/fferm"
    assert line(url=url, vcs_info={"vcs": "git", "commit_id": "abc"}) == (
        'pip install "fferm[boosting] @ git+https://example.org/fferm@abc"'
    )
    assert line(url=f"{url}.zip", archive_info={}) == (
        'pip install "fferm[boosting] @ https://example.org/fferm.zip"'
    )


def test_a_package_that_fails_to_load_is_not_called_missing(tmp_path, monkeypatch):
    # LightGBM does this on a system without the library of OpenMP.
    text = "raise OSError('libgomp.so.1: cannot open shared object file')"
    (tmp_path / "broken_trees.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError) as caught:
        import_extra("broken_trees", "boosting", "A tree")
    assert str(caught.value) == (
        "A tree needs the package broken_trees, which is installed but cannot be "
        "imported: libgomp.so.1: cannot open shared object file"
    )


def test_messages_name_extras_that_exist_and_the_line_is_written_once():
    assert set(EXTRAS) <= set(metadata("fferm").get_all("Provides-Extra"))
    folder = Path(fferm.__file__).parent
    writers = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "pip install" in path.read_text(encoding="utf-8")
    ]
    assert sorted(writers) == ["datasets/_store.py", "errors.py"]
