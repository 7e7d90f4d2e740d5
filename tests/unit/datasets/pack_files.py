"""Make the data files that ship with the package out of the published ones.

Usage: python pack_files.py PUBLISHED_FOLDER TARGET_FOLDER

The published folder holds adult.data, adult.test and german.data as the UCI Machine
Learning Repository distributes them. The same rows always give the same bytes (for
one version of zlib).
"""

import gzip
import importlib.resources
import io
import sys
from pathlib import Path

import pandas as pd

from fferm.datasets import adult, german

# The published columns; of Adult all but fnlwgt, the survey's weight of a row.
ADULT = (
    "age",
    "workclass",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
GERMAN = (
    "checking_status",
    "duration",
    "credit_history",
    "purpose",
    "credit_amount",
    "savings",
    "employment",
    "installment_rate",
    "personal_status",
    "other_debtors",
    "residence_since",
    "property",
    "age",
    "other_plans",
    "housing",
    "existing_credits",
    "job",
    "dependents",
    "telephone",
    "foreign_worker",
)


def pack_adult(published: Path) -> bytes:
    parts = {"train": ("adult.data", 0), "test": ("adult.test", 1)}
    rows = []
    for part, (name, n_junk_lines) in parts.items():
        for line in (published / name).read_text().splitlines()[n_junk_lines:]:
            if line:
                fields = line.rstrip(".").split(", ")
                del fields[2]  # fnlwgt
                rows.append([part, *fields])
    return _pack(["part", *ADULT, "income"], rows)


def pack_german(published: Path) -> bytes:
    lines = (published / "german.data").read_text().splitlines()
    rows = [line.split() for line in lines if line]
    return _pack([*GERMAN, "class"], rows)


def shipped(name: str) -> bytes:
    return (importlib.resources.files("fferm.datasets") / "files" / name).read_bytes()


def _pack(header: list[str], rows: list[list[str]]) -> bytes:
    table = pd.DataFrame(rows, columns=header, dtype=object)
    text = table.to_csv(index=False, lineterminator="\n").encode()
    packed = io.BytesIO()
    # Unlike gzip.compress, this writes the same header under every Python.
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
        file.write(text)
    return packed.getvalue()


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    (target / adult.FILE.name).write_bytes(pack_adult(source))
    (target / german.FILE.name).write_bytes(pack_german(source))
