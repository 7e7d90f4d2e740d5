"""Threads of one process share its filters of warnings and its random numbers."""

import threading
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from fferm import FairLogisticRegression
from fferm.datasets import make_biased
from fferm.errors import (
    CollapseWarning,
    FfermWarning,
    InfeasibleWarning,
    MissingGroupWarning,
    muted,
    warn_user,
)
from fferm.estimators import weight_search

DATA = make_biased(200, bias=0.8, random_state=0)
X, Y, S = DATA.X, np.asarray(DATA.y), DATA.sensitive_features
# No model keeps it: one class for all is not usable.
IMPOSSIBLE = {"max_violation": 0.0, "random_state": 0}
WAIT = 60.0


@pytest.fixture
def shown(monkeypatch):
    """The categories of the warnings that reach the hook of the process."""
    categories = []

    def show(_message, category, *_):
        categories.append(category)

    monkeypatch.setattr(warnings, "showwarning", show)
    warnings.simplefilter("always")  # pytest puts the filters back
    return categories


def in_threads(*jobs):
    """Return what jobs return that run at once, each in a thread of its own."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [running.result() for running in [pool.submit(job) for job in jobs]]


def test_two_searches_that_overlap_leave_later_warnings_on(monkeypatch, shown):
    # The first search ends while the second is under way.
    places = [threading.Event() for _ in range(3)]
    first_runs, both_run, first_ended = places
    original = weight_search.default_weights

    def wait(*args):
        if first_runs.is_set():
            both_run.set()
            assert first_ended.wait(WAIT)
        else:
            first_runs.set()
            assert both_run.wait(WAIT)
        return original(*args)

    def fit():
        model = FairLogisticRegression(max_violation=0.3, random_state=0)
        return model.fit(X, Y, sensitive_features=S)

    def first():
        fit()
        first_ended.set()

    def second():
        assert first_runs.wait(WAIT)
        fit()

    with monkeypatch.context() as patched:
        patched.setattr(weight_search, "default_weights", wait)
        in_threads(first, second)
    filters = list(warnings.filters)
    FairLogisticRegression(**IMPOSSIBLE).fit(X, Y, sensitive_features=S)
    assert shown == [InfeasibleWarning]
    assert not [each for each in filters if issubclass(each[2], FfermWarning)]


def test_a_grid_search_in_threads_gives_every_warning_of_its_fits(shown):
    grid = {"max_violation": [0.0, 0.001, 0.3]}
    search = GridSearchCV(FairLogisticRegression(random_state=0), grid, cv=2)
    search.fit(X, Y, sensitive_features=S["group"].to_numpy())
    alone = list(shown)
    assert InfeasibleWarning in alone
    shown.clear()
    with joblib.parallel_config(backend="threading"):
        search.set_params(n_jobs=4).fit(X, Y, sensitive_features=S["group"].to_numpy())
    assert Counter(shown) == Counter(alone)


def test_a_block_without_warnings_is_that_of_its_thread_alone(shown):
    is_muted, has_warned = threading.Event(), threading.Event()

    def mute():
        with muted(CollapseWarning):
            is_muted.set()
            assert has_warned.wait(WAIT)
            warn_user("not shown", CollapseWarning)
            with muted(MissingGroupWarning):
                warn_user("not shown", CollapseWarning)
                warn_user("not shown", MissingGroupWarning)
            warn_user("shown", MissingGroupWarning)
        warn_user("shown", CollapseWarning)

    def warn():
        assert is_muted.wait(WAIT)
        warn_user("shown", CollapseWarning)
        has_warned.set()

    in_threads(mute, warn)
    assert shown == [CollapseWarning, MissingGroupWarning, CollapseWarning]
