"""ProPublica's COMPAS data: who is charged again within two years."""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from fferm.datasets._dataset import FairDataset, Table, as_text, pick_names
from fferm.datasets._store import DataFile, read_external

FILE = DataFile(
    name="compas-scores-two-years.csv",
    sha256=(
        # as published
        "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
        # without names, birth dates and case numbers
        "30eb20d79ba476ec24979ea00d0e77ef74fb5adc0ee843fd0d00079465a6089d",
    ),
    source="https://github.com/propublica/compas-analysis",
    url=(
        "https://raw.githubusercontent.com/propublica/compas-analysis/"
        "bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv"
    ),
)

# fmt: off
COLUMNS = (
    "age", "sex", "race", "juv_fel_count", "juv_misd_count", "juv_other_count",
    "priors_count", "c_charge_degree",
)
RACES = (
    "African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other",
)
# fmt: on
TARGET = "two_year_recid"
FILTER_COLUMNS = ("days_b_screening_arrest", "is_recid", "score_text")
SENSITIVE = ("race", "sex", "age")

DESCRIPTION = """\
COMPAS, two-year recidivism. ProPublica (J. Larson, S. Mattu, L. Kirchner, J. Angwin,
2016), github.com/propublica/compas-analysis; the repository states no licence.
Harm: these are real people of Broward County, Florida, and the published file names
them; only the columns a model needs are read. The label is a new charge, which depends
on where the police look, not only on what people do. No model of it should decide
about anybody's freedom.
"""


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
    table = Table("compas", DESCRIPTION, frame, y, as_text(frame[list(names)], str))
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
