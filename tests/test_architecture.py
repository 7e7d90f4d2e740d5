"""The shape of the package: imports go one way, heavy ones stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fferm
from fferm._jit import COMPILED_FILES

PACKAGE = Path(fferm.__file__).parent

# From the ground up; a module may import what stands before it, or its own package.
ORDER = [
    "_lazy",
    "errors",
    "_typing",
    "_files",
    "_locks",
    "registry",
    "_jit",
    "divergences",
    "notions",
    "uncertainty",
    "data",
    "fairness_grid",
    "penalty",
    "tables",
    "metrics",
    "auditing",
    "solvers",
    "torch",
    "distributed",
    "boosting",
    "estimators",
    "persistence",
    "export",
    "integrations",
    "deploy",
    "curve",
    "datasets",
    "tuning",
    "report",
    "lab",
    "testing",
    "cli",
    "__main__",
]

# Results know how to draw themselves; report is imported when they are asked to.
LAZY = {("auditing", "report"), ("curve", "report")}

# Optional or slow packages, and the only places that may import them.
HEAVY = {
    "numba": [
        "_jit.py",
        "penalty/formulas.py",
        "solvers/_",
        "solvers/full_batch.py",
        "boosting/_",
        "deploy/_",
        "lab/baselines/_",
    ],
    "torch": [
        "torch/",
        "distributed/",
        "estimators/net.py",
        "lab/experiments/published.py",
    ],
    "lightgbm": ["boosting/rounds.py"],
    "matplotlib": ["report/", "lab/experiments/"],
    "jinja2": ["report/"],
    "optuna": ["tuning/"],
    "typer": ["cli/"],
    "fairlearn": ["lab/baselines/fairlearn.py"],
}

FILES = sorted(PACKAGE.rglob("*.py"))


def parts(path):
    return path.relative_to(PACKAGE).as_posix()


def home(path):
    """Return the top-level module that a file belongs to."""
    return parts(path).split("/")[0].removesuffix(".py")


def is_for_types(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(node, is_lazy=False):
    """Yield (module name, whether it is imported only when a function runs)."""
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            continue
        yield from ((name, is_lazy) for name in imported_names(child))
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from imports(child, is_lazy or is_function)


def imported_names(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    if node.module == "fferm":
        return [f"fferm.{alias.name}" for alias in node.names]
    return [node.module]


def imported_homes(path):
    for name, is_lazy in imports(ast.parse(path.read_text(encoding="utf-8"))):
        if name.startswith("fferm."):
            yield name.split(".")[1], is_lazy


@pytest.mark.parametrize("path", FILES, ids=parts)
def test_imports_go_one_way(path):
    if parts(path) == "__init__.py":
        found = [there for there, _ in imported_homes(path)]
        assert found == ["_lazy"], "the top level must import nothing else"
        return
    here = home(path)
    assert here in ORDER, f"{here} has no place in the order yet"
    for there, is_lazy in imported_homes(path):
        if is_lazy and (here, there) in LAZY:
            continue
        assert there == here or ORDER.index(there) < ORDER.index(here), (
            f"{parts(path)} imports fferm.{there}, which stands above it"
        )


@pytest.mark.parametrize("path", FILES, ids=parts)
def test_heavy_packages_are_imported_only_where_they_belong(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, _ in imports(tree):
        allowed = HEAVY.get(name.split(".")[0])
        assert allowed is None or any(map(parts(path).startswith, allowed)), (
            f"{parts(path)} imports {name}"
        )


def test_importing_fferm_and_training_loads_nothing_heavy():
    code = (
        "import sys, fferm; fferm.FairLogisticRegression; fferm.tradeoff_curve;"
        "fferm.audit; fferm.load;"
        f"print([name for name in {sorted(HEAVY)!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", FILES, ids=parts)
def test_options_are_passed_by_name(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.args.posonlyargs:
            assert not node.args.args, f"{node.name} takes them by position too"


@pytest.mark.parametrize("path", FILES, ids=parts)
def test_compiled_files_are_in_the_key_of_the_cache(path):
    # A kernel is compiled together with those it calls, but its cache is told apart by
    # its own file: without the key, an upgrade would go on running their old code.
    text = path.read_text(encoding="utf-8")
    if "njit" in text or "@kernel" in text or "@overload" in text:
        assert path in COMPILED_FILES


def test_public_names_are_sorted_and_importable():
    assert fferm.__all__ == sorted(fferm.__all__)
    homes = fferm._HOMES.values()
    assert sorted(name for names in homes for name in names) == fferm.__all__
    for name in fferm.__all__:
        assert getattr(fferm, name) is not None


def test_an_unknown_public_name_raises():
    with pytest.raises(AttributeError, match="no attribute 'FairForest'"):
        _ = fferm.FairForest


def test_the_version_is_the_newest_of_the_changelog():
    changelog = Path(__file__).parents[1] / "CHANGELOG.md"
    if not changelog.exists():
        pytest.skip("CHANGELOG.md is not beside the tests")
    assert f"## {fferm.__version__}" in changelog.read_text(encoding="utf-8")
