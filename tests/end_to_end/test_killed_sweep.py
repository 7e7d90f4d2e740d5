"""A sweep that is killed at any moment goes on, and ends in the same records."""

import multiprocessing
import time

import numpy as np
import pandas as pd
import pytest
from sweeps import N_FITS, sixty_fits

from fferm import TradeoffCurve

# Processes that are forked from one which has imported everything already.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["sweeps"])


# About the time of one fit, in seconds: a kill hits any part of it.
ONE_FIT = 0.05


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The records of a sweep that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    finish(folder)
    return TradeoffCurve.load(folder)


def start(folder, n_jobs=None):
    process = PROCESSES.Process(target=sixty_fits, args=(str(folder), n_jobs))
    process.start()
    return process


def finish(folder):
    process = start(folder)
    process.join()
    assert process.exitcode == 0


def start_and_kill(folder, moment, n_jobs=None):
    """Kill a sweep a little after so many fits are on record."""
    process = start(folder, n_jobs)
    while process.exitcode is None and n_done(folder) < int(moment):
        time.sleep(0.002)
    time.sleep(ONE_FIT * (moment % 1))
    process.kill()
    process.join()


def n_done(folder):
    texts = contents(folder).values()
    return sum(max(len(text.splitlines()) - 1, 0) for text in texts)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.jsonl"))}


def assert_same(folder, whole):
    found = TradeoffCurve.load(folder)
    pd.testing.assert_frame_equal(
        found.records.drop(columns="seconds"), whole.records.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(found.baseline, whole.baseline)
    assert set(found.models) == set(whole.models)
    for key in found.models:
        assert found.models[key].coef_.tobytes() == whole.models[key].coef_.tobytes()
        assert found.audits[key].to_dict() == whole.audits[key].to_dict()


def kill_and_resume(folder, whole, moment, n_jobs=None):
    """Kill a sweep at a moment, finish it, and return how much was done before."""
    start_and_kill(folder, moment, n_jobs)
    before = contents(folder)
    n_before = n_done(folder)
    finish(folder)
    after = contents(folder)
    for name, text in before.items():
        assert after[name].startswith(text)  # append-only: nothing is lost
    n_torn = sum(not text.endswith(b"\n") for text in before.values() if text)
    assert n_done(folder) <= N_FITS + n_torn  # nothing is doubled
    assert_same(folder, whole)
    return n_before


def moments(count, seed):
    return np.random.default_rng(seed).uniform(0, N_FITS, count)


def test_a_sweep_killed_at_three_moments_ends_in_the_same_records(
    uninterrupted, tmp_path
):
    assert len(uninterrupted.models) == N_FITS
    for k, moment in enumerate(moments(3, 1)):
        n_before = kill_and_resume(tmp_path / str(k), uninterrupted, moment)
        assert int(moment) <= n_before < N_FITS


def test_two_sweeps_at_once_end_in_the_records_of_one(uninterrupted, tmp_path):
    processes = [start(tmp_path) for _ in range(2)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert n_done(tmp_path) == N_FITS
    assert_same(tmp_path, uninterrupted)
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_sweep_killed_at_twenty_moments_ends_in_the_same_records(
    uninterrupted, tmp_path, number
):
    # Of workers, every fourth time: they outlive the process that is killed.
    n_jobs = None if number % 4 else 2
    moment = moments(20, 0)[number]
    kill_and_resume(tmp_path, uninterrupted, moment, n_jobs)


@pytest.mark.slow
def test_a_sweep_killed_again_and_again_still_ends(uninterrupted, tmp_path):
    for moment in sorted(moments(5, 2)):
        start_and_kill(tmp_path, moment)
    finish(tmp_path)
    assert_same(tmp_path, uninterrupted)
