"""A sweep of sixty small fits, for tests that run it in a process of its own."""

from fferm import FairLogisticRegression, TradeoffCurve, tradeoff_curve
from fferm.datasets import make_biased

N_FITS = 60


def sixty_fits(folder: str | None, n_jobs: int | None = None) -> TradeoffCurve:
    """Return three seeds of twenty models, recorded in a folder if one is given."""
    data = make_biased(200, random_state=0)
    return tradeoff_curve(
        FairLogisticRegression(solver="lbfgs"),
        data.X,
        data.y,
        sensitive_features=data.sensitive_features,
        fairness_weights=20,
        seeds=3,
        n_jobs=n_jobs,
        records=folder,
    )
