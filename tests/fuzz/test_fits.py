"""Fits on strange data end in a finite model or in an error of ours."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from fferm import FairLogisticRegression, LargeShift, SmallShift
from fferm.divergences import Alpha, get
from fferm.errors import FfermError, FfermWarning
from fferm.notions import ConditionalParity, EqualizedOdds, EqualOpportunity

FITS_PER_TEST = 50


def choose(rng, *options):
    return options[rng.integers(len(options))]


def often(rng, usual, strange):
    """Return one of the usual options, now and then one of the strange ones."""
    return choose(rng, *(usual if rng.random() < 0.97 else strange))


def make_features(rng, n, d):
    X = rng.normal(size=(n, d))
    scale = often(rng, (1, 1, 1e-300, 1e-8, 1e6, 1e12, 1e60), (1e150, 1e300))
    with np.errstate(over="ignore"):
        X = X * scale
    kinds = often(rng, (USUAL_FEATURES,), (STRANGE_FEATURES,))
    return kinds[choose(rng, *kinds)](rng, X)


def spoil(value):
    def change(rng, X):
        if X.size:
            X.flat[rng.integers(X.size)] = value
        return X

    return change


def constant_column(rng, X):
    if X.shape[1]:
        X[:, rng.integers(X.shape[1])] = choose(rng, 0.0, 1.0, 1e8)
    return X


USUAL_FEATURES = {
    "plain": lambda rng, X: X,
    "constant": lambda rng, X: np.ones_like(X),
    "constant column": constant_column,
    "doubled columns": lambda rng, X: np.hstack([X, X]),
    "zeros": lambda rng, X: np.zeros_like(X),
    "single precision": lambda rng, X: np.clip(X, -1e30, 1e30).astype(np.float32),
    "half precision": lambda rng, X: np.clip(X, -1e4, 1e4).astype(np.float16),
    "integers": lambda rng, X: rng.integers(-3, 3, X.shape),
    "booleans": lambda rng, X: X > 0,
    "csr": lambda rng, X: scipy.sparse.csr_array(X * (X > 0)),
    "csc": lambda rng, X: scipy.sparse.csc_matrix(X * (X > 0)),
    "coo": lambda rng, X: scipy.sparse.coo_array(X),
    "list": lambda rng, X: X.tolist(),
    "objects": lambda rng, X: X.astype(object),
    "pandas": lambda rng, X: pd.DataFrame(
        X, columns=[f"x{j}" for j in range(X.shape[1])]
    ),
    "polars": lambda rng, X: pl.DataFrame(
        X, schema=[f"x{j}" for j in range(X.shape[1])]
    ),
}
STRANGE_FEATURES = {
    "complex": lambda rng, X: X + 1j,
    "nan": spoil(np.nan),
    "infinity": spoil(np.inf),
    "flat": lambda rng, X: X.reshape(-1),
    "deep": lambda rng, X: X[None],
    "text": lambda rng, X: X.astype(str),
    "words": lambda rng, X: np.full(X.shape, "word", dtype=object),
    "dates": lambda rng, X: np.full(X.shape, "2020-01-01", dtype="datetime64[D]"),
    "none": lambda rng, X: None,
}


def make_labels(rng, n):
    y = rng.integers(0, often(rng, (2, 2, 2, 3, 5), (1,)), n)
    usual = (
        y,
        y.astype(str),
        y > 0,
        y.astype(float),
        y.astype(np.int8),
        y.tolist(),
        pd.Series(y),
        pl.Series(y.astype(str)),
        np.where(y > 0, "yes", "no").astype(object),
    )
    strange = (
        y.reshape(-1, 1),
        rng.normal(size=n),
        np.where(y > 0, np.nan, 1.0),
        np.where(y > 0, None, "a"),
        y[: n // 2],
        None,
        np.stack([y, y], axis=1),
        [{}] * n,
    )
    return often(rng, usual, strange)


def make_groups(rng, n):
    s = rng.integers(0, often(rng, (2, 2, 3, 5), (1, max(n, 1))), n)
    gaps = np.where(rng.random(n) < 0.3, None, s.astype(object))
    usual = (
        s,
        s.tolist(),
        s.astype(str),
        s.astype(float),
        s > 0,
        gaps,
        np.where(rng.random(n) < 0.3, np.nan, s),
        np.stack([s, s[::-1]], axis=1),
        pd.DataFrame({"a": s, "b": s[::-1].astype(str)}),
        pl.DataFrame({"a": s.astype(str)}),
        pd.Series(s, dtype="category"),
        {"a": s, "b": gaps},
        np.where(np.arange(n) == 0, "alone", "rest"),
    )
    strange = (
        np.full(n, None),
        rng.normal(size=n),
        s[: n // 2],
        "sex",
        3,
        None,
        [{}] * n,
        s.reshape(-1, 1, 1),
        np.full(n, np.inf),
    )
    return often(rng, usual, strange)


def make_weights(rng, n):
    w = rng.random(n)
    strange = (
        np.zeros(n),
        -w,
        w[: n // 2],
        np.where(w > 0.5, np.nan, w),
        "heavy",
        w * 1e308,
        w * 1e-320,
    )
    return often(rng, (None, None, w, w > 0.5, 2.0, w * 1e200, w * 1e-200), strange)


DIVERGENCES = (
    "kl",
    "chi2",
    "reverse_kl",
    "total_variation",
    "jensen_shannon",
    "squared_hellinger",
    "alpha",
    Alpha(-1.5),
    Alpha(3.0),
    get("kl", normalisation="paper"),
)
NOTIONS = (
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "sufficiency",
    "predictive_parity",
    EqualizedOdds("frequency"),
    EqualOpportunity(positive=1),
)
SHIFTS = (
    SmallShift(0.01),
    SmallShift(0.1, p=1, coupled=True),
    SmallShift(0.1, p="inf", power=2),
    LargeShift(0.05),
    LargeShift(0.05, mode="simplex"),
    LargeShift(0.02, mode="coupled"),
    LargeShift(0.05, mode="paper"),
)


def make_model(rng):
    return FairLogisticRegression(
        divergence=often(rng, DIVERGENCES, ("klx", None)),
        notion=often(
            rng, NOTIONS, (ConditionalParity(0), ConditionalParity("x0"), "nonsense")
        ),
        uncertainty=often(rng, (*[None] * 9, *SHIFTS), ("large",)),
        fairness_weight=often(rng, (0, 0.1, 1, 10, 1e3, 1e8), (-1, np.nan, "much")),
        sharpness=often(rng, (1, 1, 2, 20, 1e5), (0, np.inf)),
        groups=often(rng, ("intersection", "marginal"), ("both",)),
        l2=often(rng, (1e-4, 0, 1e-12, 1e3), (-1, 1e300)),
        solver=choose(rng, "auto", "auto", "sgda"),
        batch_size=often(rng, (1, 3, 1000), (0,)),
        fit_intercept=choose(rng, True, True, False),
        tol=often(rng, (1e-5, 1e-2), (0, 1e300)),
        max_iter=often(rng, (30, 1), (0, 2.5)),
    )


def fit_something(seed):
    """Return the model of one strange fit, or the error of ours that ended it."""
    rng = np.random.default_rng(seed)
    n = often(rng, (2, 3, 5, 12, 12, 40, 40, 40), (0, 1))
    d = often(rng, (1, 1, 2, 5, 30), (0,))
    model = make_model(rng)
    X, y = make_features(rng, n, d), make_labels(rng, n)
    s, w = make_groups(rng, n), make_weights(rng, n)
    try:
        model.fit(X, y, sensitive_features=s, sample_weight=w)
        prob = model.predict_proba(X)
    except FfermError as error:
        return error
    assert np.all(np.isfinite(model.coef_))
    assert np.all(np.isfinite(model.intercept_))
    assert np.all(np.isfinite(prob))
    np.testing.assert_allclose(prob.sum(axis=1), 1.0, rtol=1e-12)
    assert set(model.predict(X)) <= set(model.classes_)
    return model


def fit_many(seeds):
    n_models = 0
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FfermWarning)
            warnings.filterwarnings("ignore", message="A column-vector y was passed")
            try:
                outcome = fit_something(seed)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error!r}") from error
        n_models += isinstance(outcome, FairLogisticRegression)
    return n_models


@pytest.mark.timeout(120)
@pytest.mark.parametrize("block", range(12))
def test_strange_fits_end_in_a_finite_model_or_a_named_error(block):
    begin = block * FITS_PER_TEST
    fit_many(range(begin, begin + FITS_PER_TEST))


@pytest.mark.parametrize("seed", [1_001_176])
def test_strange_fits_that_once_ended_badly_end_well(seed):
    fit_many([seed])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(20))
def test_ten_thousand_strange_fits_end_well(block):
    begin = 1_000_000 + block * 500
    fit_many(range(begin, begin + 500))


def test_a_fair_share_of_the_strange_fits_does_end_in_a_model():
    # Otherwise the fuzzing would test nothing but the boundary.
    assert fit_many(range(2000, 2100)) >= 20
