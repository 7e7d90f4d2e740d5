"""Networks on real data and on pictures: what the defaults reach."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from fferm import FairNetClassifier, tradeoff_curve
from fferm.datasets import load_adult

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [8, 256])
def test_the_default_curve_on_adult_is_accurate_at_each_level(batch_size):
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    test = data.X_test, data.y_test, data.sensitive_features_test
    curve = tradeoff_curve(
        FairNetClassifier(batch_size=batch_size),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        test=test,
        fairness_weights=np.geomspace(2, 32, 17),
    )
    rows = curve.records.query("split == 'test'")
    for bound, least in ((0.03, 0.838), (0.06, 0.845)):
        assert rows[rows["violation"] <= bound]["accuracy"].max() >= least


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="examples/ is not beside the tests")
def test_equalized_odds_makes_a_network_look_at_the_shape():
    example = runpy.run_path(str(EXAMPLES / "coloured_shapes.py"))
    accuracy = example["main"](n_train=3000)
    assert accuracy["fair"] >= accuracy["plain"] + 0.12
