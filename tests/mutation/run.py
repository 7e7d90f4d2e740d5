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
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cosmic_ray import commands, modules
from cosmic_ray.config import load_config
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import TestOutcome, WorkItem
from tqdm import tqdm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIG = load_config(HERE / "core.toml")
SURVIVORS = tomllib.loads((HERE / "survivors.toml").read_text())["survivors"]


class Mutant(NamedTuple):
    """A mutation, and the lines that it takes away and writes instead."""

    item: WorkItem
    path: str
    before: str
    after: str

    @property
    def tests(self):
        known = CONFIG["tests"].items()
        return next(tests for start, tests in known if self.path.startswith(start))


def draw(sample, seed):
    """Return mutants drawn at random, and how many there are to draw from."""
    files = modules.find_modules(map(Path, CONFIG["module-path"]))
    files = modules.filter_paths(files, CONFIG["excluded-modules"])
    skipped = CONFIG.sub("filters", "operators-filter")["exclude-operators"]
    with use_db(":memory:") as everything:
        commands.init(sorted(files), everything, {})
        items = [
            item
            for item in everything.work_items
            if not re.match("|".join(skipped), item.mutations[0].operator_name)
        ]
    items.sort(key=lambda item: place(item.mutations[0]))
    random.Random(seed).shuffle(items)
    return list(islice(filter(None, map(read, items)), sample)), len(items)


def place(mutation):
    return str(mutation.module_path), mutation.operator_name, mutation.occurrence


def read(item):
    """Return a mutant, None where it is no Python or another annotation only."""
    (mutation,) = item.mutations
    code = mutation.module_path.read_text()
    operator = get_operator(mutation.operator_name)()
    mutated = mutate_code(code, operator, mutation.occurrence)
    try:
        if without_annotations(mutated) == without_annotations(code):
            return None
    except SyntaxError:
        return None
    sides = code.splitlines(), mutated.splitlines()
    lines = list(unified_diff(*sides, n=0))[3:]
    before, after = (
        " ".join(" ".join(line[1:] for line in lines if line[0] == sign).split())
        for sign in "-+"
    )
    return Mutant(item, str(mutation.module_path), before, after)


@functools.cache
def without_annotations(code):
    """Return what a file does, apart from what it says of types."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        for field in {"annotation", "returns"} & set(node._fields):
            setattr(node, field, None)
    return ast.dump(tree)


def is_explained(mutant):
    """Return whether a mutant survives for a known reason."""
    function = mutant.item.mutations[0].definition_name
    before, after = without_blanks(mutant.before), without_blanks(mutant.after)
    return any(
        after in replaced_once(before, without_blanks(old), without_blanks(new))
        for known in SURVIVORS
        if mutant.path.startswith(known["file"])
        for old, new, *within in known["mutants"]
        if within in ([], [function])
    )


def replaced_once(text, old, new):
    """Yield a text with one occurrence of a part replaced, for each there is."""
    parts = text.split(old)
    for n in range(1, len(parts)):
        yield old.join(parts[:n]) + new + old.join(parts[n:])


def without_blanks(line):
    return "".join(line.split())


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


def check_tests(pool, mutants):
    """Stop where tests fail without a mutant: they would kill every one."""
    files = sorted({name for mutant in mutants for name in mutant.tests})
    for result in pool.map(judge, [()] * len(files), [[name] for name in files]):
        if result.test_outcome != TestOutcome.SURVIVED:
            sys.exit(f"Tests fail without a mutant:\n{result.output}")


def run(mutants, n_workers, session):
    """Return the result of each mutant, also written to the session."""
    with (
        tempfile.TemporaryDirectory() as parent,
        ProcessPoolExecutor(
            n_workers, initializer=enter_copy, initargs=[parent]
        ) as pool,
        use_db(session) as database,
    ):
        check_tests(pool, mutants)
        database.clear()
        database.add_work_items(mutant.item for mutant in mutants)
        columns = [m.item.mutations for m in mutants], [m.tests for m in mutants]
        results = list(tqdm(pool.map(judge, *columns), total=len(mutants)))
        for mutant, result in zip(mutants, results, strict=True):
            database.set_result(mutant.item.job_id, result)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--session", type=Path, default=Path("mutants.sqlite"))
    options = parser.parse_args()
    session = options.session.absolute()
    os.chdir(ROOT)
    drawn, count = draw(options.sample, options.seed)
    mutants = [mutant for mutant in drawn if not is_explained(mutant)]
    n_known = len(drawn) - len(mutants)
    print(f"{len(drawn)} of {count} mutants, seed {options.seed}", flush=True)
    results = run(mutants, options.workers, session)
    survivors = [
        mutant
        for mutant, result in zip(mutants, results, strict=True)
        if result.test_outcome == TestOutcome.SURVIVED
    ]
    for mutant in survivors:
        line = mutant.item.mutations[0].start_pos[0]
        print(f"{mutant.path}:{line}\n  - {mutant.before}\n  + {mutant.after}")
    killed = len(mutants) - len(survivors)
    outputs = [result.output for result in results]
    n_broken = sum("ERROR collecting" in output for output in outputs)
    print(
        f"{killed} killed, of which {n_broken} do not import and "
        f"{outputs.count('timeout')} run out of time; {n_known} survive for a known "
        f"reason, {len(survivors)} without. Score {killed / max(len(mutants), 1):.1%}, "
        f"or {killed / len(drawn):.1%} of all."
    )
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
