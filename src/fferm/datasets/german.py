"""Statlog German Credit: which applicants of a bank are good risks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fferm.datasets._dataset import FairDataset, Table, as_text, pick_names
from fferm.datasets._store import CATALOG, read_shipped

FILE = CATALOG["german"]

FEMALE_STATUS = ("A92", "A95")
# A sensitive feature, and the raw column that tells it.
SENSITIVE = {
    "sex": "personal_status",
    "age_over_25": "age",
    "foreign_worker": "foreign_worker",
}


def load_german(
    sensitive: str | Sequence[str] = ("sex",),
    *,
    drop_sensitive: bool = False,
    test_size: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> FairDataset:
    """Return the German Credit data; y = 1 means a good credit risk.

    1,000 rows, 7 numeric columns and 13 of codes, which ``german.doc`` of the Statlog
    collection explains (A11, A12, ...).

    Parameters
    ----------
    sensitive : str or sequence of str
        Any of ``"sex"`` (female, male), ``"age_over_25"`` (<=25, >25) and
        ``"foreign_worker"`` (no, yes).
    drop_sensitive : bool
        Leave the columns that tell the sensitive features out of `X` and `frame`:
        personal_status for sex, age for age_over_25, foreign_worker.
    test_size : float
        Share of test rows; the split is stratified by label and group.
    random_state : int, Generator or None
        Seed of the split.

    Examples
    --------
    >>> from fferm.datasets import load_german
    >>> data = load_german("age_over_25", drop_sensitive=True)
    >>> "age" in data.frame
    False
    """
    names = pick_names("sensitive column", sensitive, SENSITIVE)
    rows = read_shipped(FILE)
    is_female = rows["personal_status"].isin(FEMALE_STATUS)
    columns = {
        "sex": np.where(is_female, "female", "male"),
        "age_over_25": np.where(rows["age"] > 25, ">25", "<=25"),
        "foreign_worker": np.where(rows["foreign_worker"] == "A201", "yes", "no"),
    }
    groups = pd.DataFrame({name: columns[name] for name in names}, index=rows.index)
    frame = as_text(rows.drop(columns="class"))
    y = (rows["class"] == 1).to_numpy().astype(np.int64)
    drop = {SENSITIVE[name] for name in names} if drop_sensitive else ()
    table = Table("german", FILE.description, frame, y, groups)
    return table.split(test_size, random_state, drop)
