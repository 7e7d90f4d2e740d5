"""Certificates and gaps against values computed with fifty digits."""

import json
from pathlib import Path

import numpy as np
import pytest

from fferm.divergences import Alpha, get
from fferm.metrics import soft_violation, violations
from fferm.metrics.certificates import curvature_constant, violation_bound

PATH = Path(__file__).with_name("vectors.json")
VECTORS = json.loads(PATH.read_text(encoding="utf-8"))
CASES = [
    (table, name) for table, results in VECTORS["results"].items() for name in results
]


def divergence_of(name):
    if name.startswith("alpha="):
        return Alpha(power=float(name.removeprefix("alpha=")))
    if name.endswith("_paper"):
        return get(name.removesuffix("_paper"), normalisation="paper")
    return get(name)


@pytest.mark.parametrize(("table", "name"), CASES, ids="-".join)
def test_the_bound_on_the_violation_is_reproduced(table, name):
    expected = VECTORS["results"][table][name]

    bound = violation_bound(
        float(expected["D"]),
        VECTORS["tables"][table]["pi"],
        divergence_of(name),
        capped=False,
    )

    assert bound == pytest.approx(float(expected["dpv_bound"]), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("table", "name"), CASES, ids="-".join)
def test_the_largest_divergence_is_reproduced(table, name):
    expected = float(VECTORS["results"][table][name]["D_max_given_pi"])

    largest = divergence_of(name).largest(VECTORS["tables"][table]["pi"])

    assert largest == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", VECTORS["divergences"])
def test_the_curvature_constant_is_reproduced(name):
    expected = VECTORS["divergences"][name]["kappa_universal"]
    if expected is None:
        pytest.skip("total variation is linear and has no such constant")

    assert curvature_constant(divergence_of(name)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", VECTORS["tables"])
def test_gaps_of_a_table_are_reproduced(name):
    # One row for each cell, weighted by its probability, is the table itself.
    table = VECTORS["tables"][name]
    joint = np.array(table["P"])
    decision, group = (axis.ravel() for axis in np.indices(joint.shape))

    found = violations(
        None, decision, sensitive_features=group, sample_weight=joint.ravel()
    )

    gaps = [gap.gap for gap in found.gaps]
    np.testing.assert_allclose(gaps, table["gap_per_class"], rtol=1e-12, atol=1e-15)
    assert found.worst == pytest.approx(table["dpv"], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", VECTORS["tables"])
def test_the_soft_violation_of_group_rates_is_that_of_the_table(name):
    # One row for each group, its rates as probabilities, is the same table again.
    table = VECTORS["tables"][name]
    rates = np.array(table["rates"]).T

    found = soft_violation(
        None,
        rates,
        classes=range(rates.shape[1]),
        sensitive_features=range(len(rates)),
        sample_weight=table["pi"],
    )

    assert found == pytest.approx(table["dpv"], rel=1e-12, abs=1e-15)
