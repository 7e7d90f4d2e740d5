"""US government employees of 2018 and what they earn."""

from collections.abc import Sequence

import numpy as np

from fferm.datasets._dataset import FairDataset, Table, as_text, pick_names
from fferm.datasets._store import CATALOG, read_parquet

FILE = CATALOG["gov_census"]

# Numbers that are names of levels.
CODES = ("citizenship", "education_level", "english_level")
TARGETS = ("salary", "over_50k")
THRESHOLD = 50_000
# A sensitive feature, and the raw columns that tell it. Citizenship 1 to 3 is native,
# 4 and 5 foreign-born, in every row.
SENSITIVE = {
    "sex": ("sex",),
    "race": ("race",),
    "age": ("age",),
    "nativity": ("nativity", "citizenship"),
}


def load_gov_census(
    sensitive: str | Sequence[str] = ("sex",),
    *,
    target: str = "salary",
    drop_sensitive: bool = False,
    test_size: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> FairDataset:
    """Return 204,309 government employees; y is the salary, or 1 if above 50,000.

    In `X`, occupation enters by its SOC major group and industry by its NAICS sector
    (the first two characters); `frame` holds the full codes.

    Parameters
    ----------
    sensitive : str or sequence of str
        Any of ``"sex"``, ``"race"``, ``"nativity"`` and ``"age"`` (continuous, in
        years).
    target : {"salary", "over_50k"}
        Dollars a year as float64, or 1 for more than 50,000 dollars and 0 else.
    drop_sensitive : bool
        Leave the sensitive columns out of `X` and `frame`; for nativity also
        citizenship, which tells it.
    test_size : float
        Share of test rows; the split is stratified by group, and by label if there
        is one.
    random_state : int, Generator or None
        Seed of the split.

    Examples
    --------
    >>> from fferm.datasets import load_gov_census
    >>> data = load_gov_census(target="over_50k")  # doctest: +SKIP
    """
    names = pick_names("sensitive column", sensitive, SENSITIVE)
    (target,) = pick_names("target", target, TARGETS)
    rows = read_parquet(FILE)
    salary = rows["salary"].to_numpy(dtype=np.float64)
    y = salary if target == "salary" else (salary > THRESHOLD).astype(np.int64)
    frame = as_text(rows.drop(columns="salary"))
    short = {name: rows[name].str[:2] for name in ("occupation", "industry")}
    codes = {name: rows[name].map(str) for name in CODES}
    model = as_text(frame.assign(**short, **codes))
    groups = as_text(frame[list(names)], str)
    drop = {raw for name in names for raw in SENSITIVE[name]} if drop_sensitive else ()
    table = Table("gov_census", FILE.description, frame, y, groups, model)
    return table.split(test_size, random_state, drop)
