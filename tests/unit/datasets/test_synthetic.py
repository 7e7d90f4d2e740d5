"""Synthetic data: the drawn rates are the told ones."""

import numpy as np
import pytest

from fferm.datasets import biased_rates, make_biased
from fferm.errors import InvalidParameterError


def draw(**parameters):
    """Return label and group of both parts together."""
    data = make_biased(**parameters)
    parts = (data.sensitive_features, data.sensitive_features_test)
    group = np.concatenate([part["group"].to_numpy() for part in parts]).astype(int)
    return np.concatenate([data.y, data.y_test]), group


@pytest.mark.parametrize("bias", [0.0, 1.0, -3.0])
@pytest.mark.parametrize(("n_groups", "n_classes"), [(2, 2), (3, 2), (2, 4), (4, 3)])
def test_drawn_rates_are_the_told_ones(bias, n_groups, n_classes):
    sizes = {"n_groups": n_groups, "n_classes": n_classes, "bias": bias}
    y, group = draw(n_samples=20_000, random_state=7, **sizes)
    rates = biased_rates(**sizes)
    for k in range(n_groups):
        drawn = np.bincount(y[group == k], minlength=n_classes) / np.sum(group == k)
        sigma = np.sqrt(rates[k] * (1 - rates[k]) / np.sum(group == k))
        assert np.all(np.abs(drawn - rates[k]) < 5 * sigma)


def test_rates_are_probabilities_and_follow_the_formula():
    rates = biased_rates(n_groups=3, n_classes=2, bias=1.5)
    np.testing.assert_allclose(rates.sum(axis=1), 1.0, rtol=1e-15)
    log_odds = np.log(rates[:, 1] / rates[:, 0])
    np.testing.assert_allclose(log_odds, [-1.5, 0.0, 1.5], atol=1e-14)


def test_without_bias_every_group_has_the_same_rates():
    rates = biased_rates(n_groups=4, n_classes=3, bias=0.0)
    assert np.all(rates == rates[0])


def test_a_negative_bias_turns_the_groups_round():
    np.testing.assert_allclose(biased_rates(bias=-2.0), biased_rates(bias=2.0)[::-1])


def test_features_follow_the_formula():
    data = make_biased(
        40_000, n_features=3, bias=2.0, noise=0.5, test_size=0.01, random_state=1
    )
    u = np.ones(3) / np.sqrt(3)
    along = data.frame.to_numpy() @ u
    group = data.sensitive_features["group"].to_numpy().astype(int)
    for y in (0, 1):
        for k in (0, 1):
            cell = along[(data.y == y) & (group == k)]
            expected = (2 * y - 1) + 2.0 * (2 * k - 1) / 2
            assert abs(cell.mean() - expected) < 5 * 0.5 / np.sqrt(len(cell))
            # The deviation of a sample deviation is about sigma / sqrt(2 n).
            assert abs(cell.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * len(cell))


def test_groups_come_with_their_weights():
    _, group = draw(n_samples=20_000, n_groups=3, group_weights=(6, 3, 1))
    share = np.bincount(group) / 20_000
    expected = np.array([0.6, 0.3, 0.1])
    sigma = np.sqrt(expected * (1 - expected) / 20_000)
    assert np.all(np.abs(share - expected) < 5 * sigma)


def test_the_group_is_no_feature_and_x_is_standardised():
    data = make_biased(300, n_features=4)
    assert data.feature_names == ("x0", "x1", "x2", "x3")
    np.testing.assert_allclose(data.X.mean(axis=0), 0.0, atol=1e-12)
    assert (len(data.y), len(data.y_test)) == (210, 90)


def test_the_seed_decides_the_draw():
    first, again, other = (make_biased(random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, other.X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_samples": -5},
        {"n_samples": 1},
        {"n_samples": 10.0},
        {"n_features": 0},
        {"n_groups": 1},
        {"n_classes": 1},
        {"n_classes": True},
        {"bias": float("nan")},
        {"noise": 0.0},
        {"noise": float("inf")},
        {"group_weights": (1.0,)},
        {"group_weights": (1.0, -1.0)},
        {"test_size": 0.0},
    ],
    ids=str,
)
def test_a_parameter_out_of_range_is_refused_by_name(parameters):
    (name,) = parameters
    with pytest.raises(InvalidParameterError, match=f"{name} must be .*got"):
        make_biased(**parameters)
