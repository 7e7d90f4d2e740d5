"""ACSIncome 2018, by state: who earns more than 50,000 dollars a year."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fferm.data.split import split_strata
from fferm.data.validate import check_params
from fferm.datasets._dataset import SHARE, FairDataset, Table, make_rng, pick_names
from fferm.datasets._store import CATALOG, read_parquet

FILE = CATALOG["acs_income"]

# fmt: off
STATES = (
    "AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DE", "FL", "GA", "HI", "ID", "IL",
    "IN", "IA", "KS", "KY", "LA", "ME", "MD", "MA", "MI", "MN", "MS", "MO", "MT",
    "NE", "NV", "NH", "NJ", "NM", "NY", "NC", "ND", "OH", "OK", "OR", "PA", "RI",
    "SC", "SD", "TN", "TX", "UT", "VT", "VA", "WA", "WV", "WI", "WY",
)
# fmt: on
COLUMNS = ("AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P")
TARGET = "PINCP_GT50K"
# A sensitive feature, and the raw column that tells it.
SENSITIVE = {"sex": "SEX", "race": "RAC1P"}

# Codes, bands and three-letter groups are those of the PUMS data dictionary 2018 of
# the US Census Bureau; the names are shortened.
SEX = {1: "Male", 2: "Female"}
RACE = {
    1: "White",
    2: "Black",
    3: "American Indian",
    4: "Alaska Native",
    5: "American Indian or Alaska Native, tribe not specified",
    6: "Asian",
    7: "Pacific Islander",
    8: "Other",
    9: "Two or more",
}
# First code of each group of occupations (OCCP).
OCCUPATION = {
    10: "MGR",
    500: "BUS",
    800: "FIN",
    1005: "CMM",
    1305: "ENG",
    1600: "SCI",
    2001: "CMS",
    2100: "LGL",
    2205: "EDU",
    2600: "ENT",
    3000: "MED",
    3601: "HLS",
    3700: "PRT",
    4000: "EAT",
    4200: "CLN",
    4330: "PRS",
    4700: "SAL",
    5000: "OFF",
    6005: "FFF",
    6200: "CON",
    6800: "EXT",
    7000: "RPR",
    7700: "PRD",
    9005: "TRN",
    9800: "MIL",
}
# First code of each region of birth (POBP); 300 and 301 are Bermuda and Canada, 303
# is Mexico, 360 Argentina.
BIRTHPLACE = {
    1: "US state",
    60: "US territory",
    100: "Europe",
    200: "Asia",
    300: "Northern America",
    303: "Mexico, Central America, Caribbean",
    360: "South America",
    399: "Americas, not specified",
    400: "Africa",
    500: "Oceania",
}


def load_acs_income(
    states: str | Sequence[str] = ("CA",),
    *,
    sensitive: str | Sequence[str] = ("sex",),
    test_states: str | Sequence[str] | None = None,
    drop_sensitive: bool = False,
    test_size: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> FairDataset:
    """Return ACSIncome data of some states; y = 1 means more than 50,000 dollars.

    In `X`, AGEP and WKHP are numeric and the other columns one-hot. Two of them have
    hundreds of codes and enter by group: OCCP by the 25 groups of occupations of the
    data dictionary, POBP by region of birth. `frame` holds the raw codes; its index
    gives the state and the row in the full ACSIncome table. All 50 states need about
    2 GB of memory.

    Parameters
    ----------
    states : str or sequence of str
        States to train on, by postal code, or ``"all"`` for the 50 states. Puerto
        Rico (``"PR"``) comes only when named.
    sensitive : str or sequence of str
        Any of ``"sex"`` and ``"race"``.
    test_states : str or sequence of str, optional
        States to test on, written as `states`. A state that is also trained on gives
        its held-out share, any other all its rows. None tests on `states`.
    drop_sensitive : bool
        Leave SEX or RAC1P, if sensitive, out of `X` and `frame`.
    test_size : float
        Share of test rows in states both trained and tested on, stratified by label
        and group.
    random_state : int, Generator or None
        Seed of the split and of the order of rows (the file is sorted by state).

    Examples
    --------
    >>> from fferm.datasets import load_acs_income
    >>> data = load_acs_income("TX", test_states="all")  # doctest: +SKIP
    >>> data.frame_test.groupby("STATE").size()  # doctest: +SKIP
    """
    names = pick_names("sensitive column", sensitive, SENSITIVE)
    check_params({"test_size": test_size}, {"test_size": SHARE})
    train_on = _pick_states(states)
    test_on = train_on if test_states is None else _pick_states(test_states)
    rows = read_parquet(FILE, [*COLUMNS, TARGET, "STATE", "ROW"])
    rows = rows[rows["STATE"].isin({*train_on, *test_on})].set_index(["STATE", "ROW"])
    table = _table(rows, names)
    state = rows.index.get_level_values("STATE")
    rng = make_rng(random_state)
    is_train, is_test = state.isin(train_on), state.isin(test_on)
    shared = np.flatnonzero(is_train & is_test)
    if len(shared):
        train, test = split_strata(table.strata()[shared], test_size, rng)
        is_train[shared[test]] = False
        is_test[shared[train]] = False
    train = rng.permutation(np.flatnonzero(is_train))
    test = rng.permutation(np.flatnonzero(is_test))
    drop = [SENSITIVE[name] for name in names] if drop_sensitive else ()
    return table.assemble(train, test, drop)


def _pick_states(states: str | Sequence[str]) -> tuple[str, ...]:
    return STATES if states == "all" else pick_names("state", states, (*STATES, "PR"))


def _table(rows: pd.DataFrame, names: tuple[str, ...]) -> Table:
    frame = rows[list(COLUMNS)]
    groups = {"sex": frame["SEX"].map(SEX), "race": frame["RAC1P"].map(RACE)}
    model = {
        **frame[["AGEP", "WKHP"]],
        **frame[["COW", "SCHL", "MAR", "RELP"]].astype(pd.CategoricalDtype()),
        "OCCP": _band(frame["OCCP"], OCCUPATION),
        "POBP": _band(frame["POBP"], BIRTHPLACE),
        "SEX": groups["sex"].astype(pd.CategoricalDtype()),
        "RAC1P": groups["race"].astype(pd.CategoricalDtype()),
    }
    sensitive = pd.DataFrame({name: groups[name] for name in names})
    y = rows[TARGET].to_numpy(dtype=np.int64)
    columns = pd.DataFrame(model)
    return Table("acs_income", FILE.description, frame, y, sensitive, columns)


def _band(code: pd.Series, bands: Mapping[int, str]) -> pd.Series:
    edges = [*bands, np.inf]
    return pd.cut(code, edges, right=False, labels=list(bands.values()), ordered=False)
