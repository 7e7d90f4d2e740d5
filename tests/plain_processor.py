"""Run pytest with the instructions of a plain processor: a second kind of arithmetic.

``python tests/plain_processor.py tests/laws`` leaves out whatever NumPy, BLAS, torch
and Numba would choose for this machine beyond what every machine of its kind has.
"""

import os
import platform
import sys

import numpy as np


def plain_settings():
    """Return the environment variables that leave out this processor's extras."""
    extras = np.show_config("dicts")["SIMD Extensions"].get("found", [])
    is_intel = platform.machine().lower() in ("x86_64", "amd64")
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(extras),
        "OPENBLAS_CORETYPE": "Nehalem" if is_intel else "ARMV8",
        "ATEN_CPU_CAPABILITY": "default",
        "NUMBA_CPU_NAME": "generic",
    }


if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **plain_settings()})
