"""A table that nothing was made for: mixed types, gaps, markup in names of groups."""

import numpy as np
import pandas as pd

MARKUP = "<img src=x onerror=alert(1)>"
GROUPS = (MARKUP, "Zoë & Søren", "日本語")


def make_table(n_rows=300, seed=0):
    """Return mixed types, gaps, three classes, and markup in names of groups."""
    rng = np.random.default_rng(seed)
    region = rng.choice(GROUPS, n_rows, p=[0.4, 0.35, 0.25])
    age = rng.integers(18, 80, n_rows).astype(float)
    score = age / 20 + (region == MARKUP) + rng.normal(0, 0.8, n_rows)
    age[rng.random(n_rows) < 0.1] = np.nan
    days = rng.integers(0, 900, n_rows)
    return pd.DataFrame(
        {
            "id": [f"person {i}" for i in range(n_rows)],
            "age": age,
            "city": rng.choice(["Ålesund", "Łódź", None], n_rows),
            "days": days,
            "member": rng.choice([True, False], n_rows),
            "constant": 7,
            "region": region,
            "outcome": np.select([score > 4, score > 2.5], ["high", "middle"], "low"),
        }
    )
