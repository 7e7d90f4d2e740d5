"""Measurements that need a process of their own: its import, its peak memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def ask(module: str, *arguments: object) -> Any:
    """Return what ``python -m module arguments`` writes as JSON to its last line."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def memory(name: str) -> int:
    """Return VmRSS, resident bytes now, or VmHWM, the most since the last reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}.")


def reset_peak() -> None:
    """Let VmHWM begin anew at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
