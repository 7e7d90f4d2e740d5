"""What a pass over logits adds up, against the same sums in plain NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax

from fferm.data.groups import encode_sensitive
from fferm.data.rows import Rows
from fferm.metrics.tabulator import Tabulator, worst_violation
from fferm.notions import Labels
from fferm.notions import get as get_notion
from fferm.solvers._passes import add_up, no_sums, workspace

MOST = 20.0


def make_case(n, n_classes, notion="equalized_odds"):
    """Return a setting of two attributes, one with gaps, and logits of its rows."""
    rng = np.random.default_rng(n)
    columns = {
        "a": rng.choice(["x", "y", "z"], n),
        "b": np.where(rng.random(n) < 0.2, None, rng.choice(["u", "v"], n)),
    }
    attributes = encode_sensitive(columns, n, "marginal")
    labels = Labels(n, rng.integers(0, n_classes, n), tuple(range(n_classes)))
    notion = get_notion(notion)
    rows = Rows(attributes, notion.strata(labels), rng.random(n))
    logits = 9 * rng.normal(size=(n_classes if n_classes > 2 else 1, n))
    return Tabulator(rows, notion, labels), logits


def sums_of(setting, logits):
    n_classes = len(setting.labels.classes)
    cells = np.stack([each.by_row(logits.shape[1]) for each in setting.rows.cells])
    n_strata = len(setting.rows.strata.names)
    n_cells = n_strata * max(len(each.groups) for each in setting.rows.attributes)
    sums = no_sums(logits.shape[1], len(cells), n_cells, n_classes)
    work = workspace(len(logits), n_classes)
    y, weight = setting.labels.y, setting.rows.weight
    add_up(logits, y, weight, cells, MOST, work, sums)
    return sums


def by_attribute(setting, sums):
    n_strata = len(setting.rows.strata.names)
    for part, attribute in zip(sums, setting.rows.attributes, strict=True):
        table = part[: n_strata * len(attribute.groups)]
        yield table.reshape(n_strata, -1, table.shape[1]).transpose(0, 2, 1)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("n", [1, 63, 64, 200])
def test_loss_decisions_and_tables_are_those_of_numpy(n, n_classes):
    setting, logits = make_case(n, n_classes)
    sums = sums_of(setting, logits)
    full = np.vstack([np.zeros(n), logits]) if n_classes == 2 else logits
    decided, y = full.argmax(axis=0), setting.labels.y
    weight = setting.rows.weight
    surprise = np.minimum(-log_softmax(full, axis=0)[y, np.arange(n)], MOST)
    assert sums.loss[0] == pytest.approx(weight @ surprise, rel=1e-12)
    assert sums.right[0] == pytest.approx(weight @ (decided == y), rel=1e-12)
    np.testing.assert_array_equal(sums.decided, decided)
    pairs = [(sums.hard, decided), (sums.soft, softmax(full, axis=0).T)]
    for found, predicted in pairs:
        expected = setting.masses(predicted)
        for one, other in zip(by_attribute(setting, found), expected, strict=True):
            assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("notion", ["equalized_odds", "sufficiency"])
@pytest.mark.parametrize("n", [2, 5, 20, 300])
def test_the_worst_violation_is_that_of_the_gaps_by_name(n, notion):
    setting, _ = make_case(n, 3, notion)
    decided = np.random.default_rng(7).integers(0, 3, n)
    masses = [table.mass for table in setting.tables(decided)]
    assert worst_violation(masses) == pytest.approx(
        setting.violations(decided).worst, abs=0, nan_ok=True
    )
