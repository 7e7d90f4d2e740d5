"""ProPublica's COMPAS data: who is charged again within two years."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fferm.datasets._dataset import FairDataset, Table, as_text, pick_names
from fferm.datasets._store import CATALOG, read_external

FILE = CATALOG["compas"]

COLUMNS = (
    "age",
    "sex",
    "race",
    "juv_fel_count",
    "juv_misd_count",
    "juv_other_count",
    "priors_count",
    "c_charge_degree",
)
RACES = (
    "African-American",
    "Asian",
    "Caucasian",
    "Hispanic",
    "Native American",
    "Other",
)
TARGET = "two_year_recid"
FILTER_COLUMNS = ("days_b_screening_arrest", "is_recid", "score_text")
SENSITIVE = ("race", "sex", "age")


def load_compas(
    sensitive: str | Sequence[str] = ("race",),
    *,
    races: Sequence[str] | None = ("African-American", "Caucasian"),
    drop_sensitive: bool = False,
    test_size: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> FairDataset:
    """Return the COMPAS data; y = 1 means a new charge within two years.

    ProPublica's filter leaves 6,172 of 7,214 rows, 5,278 of them of the two largest
    groups. COMPAS's own scores are not features. Where the data folder lacks the file,
    it is downloaded; the published form holds names, which are never read from it.

    Parameters
    ----------
    sensitive : str or sequence of str
        Any of ``"race"``, ``"sex"`` and ``"age"`` (continuous, in years).
    races : sequence of str or None
        Keep the rows of these races only; None keeps all six.
    drop_sensitive : bool
        Leave the sensitive columns out of `X` and `frame`.
    test_size : float
        Share of test rows; the split is stratified by label and group.
    random_state : int, Generator or None
        Seed of the split.

    Examples
    --------
    >>> from fferm.datasets import load_compas
    >>> load_compas()  # doctest: +SKIP
    FairDataset('compas': 3694 train + 1584 test rows, 8 features, sensitive: race)
    """
    names = pick_names("sensitive column", sensitive, SENSITIVE)
    kept_races = RACES if races is None else pick_names("race", races, RACES)
    rows = _read()
    rows = rows[rows["race"].isin(kept_races)]
    frame = as_text(rows[list(COLUMNS)])
    y = rows[TARGET].to_numpy(dtype=np.int64)
    groups = as_text(frame[list(names)], str)
    table = Table("compas", FILE.description, frame, y, groups)
    return table.split(test_size, random_state, names if drop_sensitive else ())


def _read() -> pd.DataFrame:
    # priors_count stands in the file twice; asked for by name, the first one is read.
    columns = [*COLUMNS, *FILTER_COLUMNS, TARGET]
    rows = pd.read_csv(io.BytesIO(read_external(FILE)), usecols=columns)
    # The filter of "Compas Analysis.ipynb" in ProPublica's repository. pandas reads
    # the score "N/A" as missing, so the scores that count are named.
    is_kept = (
        rows["days_b_screening_arrest"].between(-30, 30)
        & (rows["is_recid"] != -1)
        & (rows["c_charge_degree"] != "O")
        & rows["score_text"].isin(["Low", "Medium", "High"])
    )
    return rows[is_kept]
