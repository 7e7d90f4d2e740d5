"""Fair trees on Adult: decisions follow the weight, at weights as high as wanted."""

import pytest

pytest.importorskip("lightgbm")

from fferm import FairBoostingClassifier
from fferm.data.rows import FitInput
from fferm.datasets import load_adult
from fferm.metrics import violation

# Least accuracy and largest violation on test rows, by weight; 60 rounds are few.
BARS = {3: (0.857, 0.08), 10: (0.848, 0.035), 1000: (0.835, 0.02)}


def test_one_booster_is_accurate_and_fair_in_its_decisions():
    data = load_adult(sensitive=("sex",))
    model = FairBoostingClassifier(n_estimators=60, n_jobs=1, categorical=[])
    given = FitInput(data.frame, data.y, data.sensitive_features)
    gaps = []
    for fitted in model.fit_path(given, list(BARS)):
        decided = fitted.predict(data.frame_test)
        gap = violation(
            data.y_test, decided, sensitive_features=data.sensitive_features_test
        )
        least, most = BARS[fitted.fairness_weight]
        assert (decided == data.y_test).mean() >= least
        assert gap <= most
        gaps.append(gap)
    assert gaps == sorted(gaps, reverse=True)
