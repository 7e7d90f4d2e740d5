"""UCI Adult: who earned more than 50,000 dollars in the US census of 1994."""

from collections.abc import Sequence

import numpy as np

from fferm.datasets._dataset import FairDataset, Table, as_text, pick_names
from fferm.datasets._store import CATALOG, read_shipped

FILE = CATALOG["adult"]

RACES = ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White")
SENSITIVE = ("sex", "race", "age")


def load_adult(
    sensitive: str | Sequence[str] = ("sex",),
    *,
    drop_sensitive: bool = False,
    races: Sequence[str] | None = None,
) -> FairDataset:
    """Return the Adult data in their published split; y = 1 means more than 50K.

    32,561 rows train and 16,281 test. `X` has 99 columns: 5 numeric, 94 of the 8 text
    columns. The survey weight fnlwgt, which is not a property of the person, is in
    neither `X` nor `frame`.

    Parameters
    ----------
    sensitive : str or sequence of str
        Any of ``"sex"``, ``"race"`` and ``"age"`` (continuous, in years).
    drop_sensitive : bool
        Leave the sensitive columns out of `X` and `frame`. Others still hint at them:
        relationship has the levels Husband and Wife.
    races : sequence of str, optional
        Keep the rows of these races only; ``("Black", "White")`` with
        ``sensitive=("sex", "race")`` makes four groups.

    Examples
    --------
    >>> from fferm.datasets import load_adult
    >>> data = load_adult(("sex", "race"), races=("Black", "White"))
    >>> data.sensitive_features.value_counts().loc[("Female", "Black")].item()
    1555
    """
    names = pick_names("sensitive column", sensitive, SENSITIVE)
    rows = read_shipped(FILE)
    if races is not None:
        rows = rows[rows["race"].isin(pick_names("race", races, RACES))]
    frame = as_text(rows.drop(columns=["part", "income"]))
    y = (rows["income"] == ">50K").to_numpy().astype(np.int64)
    table = Table("adult", FILE.description, frame, y, as_text(frame[list(names)], str))
    is_train = (rows["part"] == "train").to_numpy()
    train, test = np.flatnonzero(is_train), np.flatnonzero(~is_train)
    return table.assemble(train, test, names if drop_sensitive else ())
