"""Print the seconds of imports and fits in a process that has imported nothing yet.

Seconds are the processor's, as everywhere here; waiting for a disk is not counted.
"""

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "lbfgs": ("FairLogisticRegression", {"solver": "lbfgs"}),
    "sgda": ("FairLogisticRegression", {"solver": "sgda"}),
    "trees": ("FairBoostingClassifier", {"n_estimators": 20}),
    "regression": ("FairRegressor", {}),
    "net": ("FairNetClassifier", {"max_epochs": 1}),
}


def main(what: str) -> list[float]:
    """Return the seconds of import, estimator, first fit and second fit.

    With "sklearn", return those of importing scikit-learn's logistic regression.
    """
    if what == "sklearn":
        return [_seconds(lambda: importlib.import_module("sklearn.linear_model"))]
    seconds = [_seconds(lambda: importlib.import_module("fferm"))]
    import fferm

    name, params = ESTIMATORS[what]
    seconds.append(_seconds(lambda: getattr(fferm, name)))
    from fferm.datasets import load_adult

    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    for _ in range(2):
        model = getattr(fferm, name)(**params, random_state=0)
        began = time.process_time()
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        seconds.append(time.process_time() - began)
    return seconds


def _seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


if __name__ == "__main__":
    print(main(sys.argv[1]))
