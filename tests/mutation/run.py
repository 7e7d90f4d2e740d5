"""Draw mutants of the core, run the tests that can see them, and print the score.

python tests/mutation/run.py --seed 1 --sample 120

Cosmic Ray makes the mutants in copies of this checkout. Its `cr-report` and `cr-html`
read the session that is written.
"""

import argparse
import ast
import functools
import os
import py_compile
import random
import re
import shutil
import sys
import tempfile
import tomllib
from compileall import compile_dir
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

from cosmic_ray import commands, modules
from cosmic_ray.config import load_config
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import TestOutcome
from tqdm import tqdm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = load_config(HERE / "core.toml")
SURVIVORS = tomllib.loads((HERE / "survivors.toml").read_text()).get("survivor", [])


@functools.cache
def without_annotations(code):
    """Return what a file does, apart from what it says of types."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for field in {"annotation", "returns"} & set(node._fields):
            setattr(node, field, None)
    return ast.dump(tree)


def mutated(mutation):
    return mutate_code(
        mutation.module_path.read_text(),
        get_operator(mutation.operator_name)(),
        mutation.occurrence,
    )


def does_something(mutation):
    try:
        after = without_annotations(mutated(mutation))
    except SyntaxError:
        return False
    return after != without_annotations(mutation.module_path.read_text())


def draw(sample, seed):
    """Return mutants drawn at random from all that the configuration allows."""
    skipped = CONFIG.sub("filters", "operators-filter")["exclude-operators"]
    files = modules.find_modules(map(Path, CONFIG["module-path"]))
    files = modules.filter_paths(files, CONFIG["excluded-modules"])
    with use_db(":memory:") as everything:
        commands.init(sorted(files), everything, {})
        items = [
            item
            for item in everything.work_items
            if not re.match("|".join(skipped), item.mutations[0].operator_name)
        ]
    items.sort(key=lambda item: place(item.mutations[0]))
    random.Random(seed).shuffle(items)
    drawn = islice((i for i in items if does_something(i.mutations[0])), sample)
    return list(drawn), len(items)


def place(mutation):
    return str(mutation.module_path), mutation.operator_name, mutation.occurrence


def tests_of(item):
    path = str(item.mutations[0].module_path)
    return next(
        tests for start, tests in CONFIG["tests"].items() if path.startswith(start)
    )


def enter_copy(parent):
    """Make a copy of what is tested, compiled so that no stale byte code is taken."""
    copy = Path(tempfile.mkdtemp(dir=parent))
    leave = shutil.ignore_patterns("__pycache__", ".hypothesis")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", copy)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compile_dir(copy / "src", quiet=1, invalidation_mode=checked)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy / "src")
    os.environ["NUMBA_CACHE_DIR"] = str(copy / "numba")


def judge(mutations, tests):
    command = f"{sys.executable} {CONFIG.test_command.removeprefix('python ')}"
    return mutate_and_test(mutations, " ".join([command, *tests]), CONFIG.timeout)


def check_tests(pool, items):
    """Stop where tests fail without a mutant: they would kill every one."""
    files = sorted({name for item in items for name in tests_of(item)})
    for result in pool.map(judge, [()] * len(files), [[name] for name in files]):
        if result.test_outcome != TestOutcome.SURVIVED:
            sys.exit(f"Tests fail without a mutant:\n{result.output}")


def change(result):
    """Return the lines that a mutant takes away and those it writes instead."""
    lines = result.diff.splitlines()[3:]
    sides = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    return tuple(" ".join(side) for side in sides)


def is_explained(item, result):
    path, (before, after) = str(item.mutations[0].module_path), change(result)
    return {"file": path, "line": before, "mutant": after} in [
        {key: known[key] for key in ("file", "line", "mutant")} for known in SURVIVORS
    ]


def report(judged):
    """Print the score and the survivors without a reason; return those."""
    survivors = [
        (item, result)
        for item, result in judged
        if result.test_outcome == TestOutcome.SURVIVED
    ]
    new = [pair for pair in survivors if not is_explained(*pair)]
    for item, result in new:
        mutation = item.mutations[0]
        print(f"survived: {mutation.module_path}:{mutation.start_pos[0]}")
        print(*map("    {} {}".format, "-+", change(result)), "", sep="\n")
    total, explained = len(judged), len(survivors) - len(new)
    killed = total - len(survivors)
    outputs = [result.output for _, result in judged]
    print(
        f"killed {killed} of {total} mutants ({killed / total:.1%}), "
        f"{killed / max(total - explained, 1):.1%} without the {explained} explained;",
        f"{sum('during collection' in output for output in outputs)} of them do not "
        f"import, {outputs.count('timeout')} ran out of time",
    )
    return new


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--session", type=Path, default=Path("mutants.sqlite"))
    options = parser.parse_args()
    session = options.session.absolute()
    os.chdir(ROOT)
    items, count = draw(options.sample, options.seed)
    print(f"{len(items)} of {count} mutants, seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as parent,
        ProcessPoolExecutor(
            options.workers, initializer=enter_copy, initargs=[parent]
        ) as pool,
        use_db(session) as database,
    ):
        check_tests(pool, items)
        database.clear()
        database.add_work_items(items)
        tests = map(tests_of, items)
        results = pool.map(judge, [item.mutations for item in items], tests)
        for item, result in zip(tqdm(items), results, strict=True):
            database.set_result(item.job_id, result)
        judged = database.completed_work_items
    sys.exit(1 if report(judged) else 0)


if __name__ == "__main__":
    main()
