"""Write golden.json, or say how far this checkout and machine are from it.

python tests/golden/write.py                 write every job
python tests/golden/write.py sgda "curve of" write jobs whose names hold a word
python tests/golden/write.py --compare       largest deviation of every job
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.compare import largest
from golden.jobs import JOBS, TOLERANCE, run

FILE = Path(__file__).with_name("golden.json")


def main(arguments):
    words = [word for word in arguments if not word.startswith("--")]
    names = [name for name in JOBS if not words or any(word in name for word in words)]
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if "--compare" in arguments:
        return compare(names, known)
    known.update({name: run(name) for name in names})
    write({name: known[name] for name in JOBS if name in known})
    return 0


def compare(names, known):
    """Print each job's largest deviation; return 1 where one is above its tolerance."""
    is_bad = False
    for name in names:
        begin = time.perf_counter()
        found = json.loads(json.dumps(run(name)))
        seconds = time.perf_counter() - begin
        place, deviation = largest(known[name], found)
        is_far = deviation > TOLERANCE[name]
        is_bad |= is_far
        mark = f"ABOVE {TOLERANCE[name]:.0e}" if is_far else ""
        line = f"{deviation:8.1e} {seconds:6.2f} s  {name:52} {mark} "
        sys.stdout.write(f"{line}{place if deviation else ''}\n")
        sys.stdout.flush()
    return int(is_bad)


def write(known):
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
        for name, value in known.items()
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
