"""German Credit: the published rows, groups and rates."""

import gzip

import numpy as np
import pack_files
import pytest

from fferm.datasets import german, load_german
from fferm.errors import InvalidParameterError, UnknownNameError


def joined(data):
    """Return label and sensitive features of both parts together."""
    y = np.concatenate([data.y, data.y_test])
    names = data.sensitive_features.columns
    parts = (data.sensitive_features, data.sensitive_features_test)
    return y, {name: np.concatenate([part[name] for part in parts]) for name in names}


@pytest.mark.parametrize(
    ("name", "group", "count", "rate"),
    [
        ("sex", "male", 690, 0.7232),
        ("sex", "female", 310, 0.6484),
        ("age_over_25", ">25", 810, 0.7284),
        ("age_over_25", "<=25", 190, 0.5789),
        ("foreign_worker", "yes", 963, None),
        ("foreign_worker", "no", 37, None),
    ],
)
def test_groups_and_their_rates_are_as_published(name, group, count, rate):
    y, sensitive = joined(load_german(name))
    assert len(y) == 1000
    assert y.sum() == 700
    assert np.sum(sensitive[name] == group) == count
    if rate is not None:
        assert y[sensitive[name] == group].mean() == pytest.approx(rate, abs=5e-5)


def test_seven_columns_are_numbers_and_thirteen_are_codes():
    frame = load_german().frame
    assert frame.select_dtypes("number").shape[1] == 7
    assert frame.select_dtypes("category").shape[1] == 13


def test_both_parts_have_the_rates_of_the_whole():
    data = load_german()
    assert (len(data.y), len(data.y_test)) == (700, 300)
    for sex in ("male", "female"):
        train = data.y[data.sensitive_features["sex"] == sex].mean()
        test = data.y_test[data.sensitive_features_test["sex"] == sex].mean()
        # Each label of the group is off by less than one of at least 93 test rows.
        assert train == pytest.approx(test, abs=0.02)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("sex", "personal_status"),
        ("age_over_25", "age"),
        ("foreign_worker", "foreign_worker"),
    ],
)
def test_dropping_a_sensitive_feature_drops_the_column_that_tells_it(name, raw):
    data = load_german(name, drop_sensitive=True)
    assert raw not in data.frame
    assert not any(feature.startswith(raw) for feature in data.feature_names)
    assert raw in load_german(name).frame


def test_the_seed_decides_the_split():
    first, again, other = (load_german(random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.X, again.X)
    assert not first.frame.index.equals(other.frame.index)


def test_an_unknown_sensitive_column_is_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'foreign_worker'"):
        load_german("foreign")


def test_a_test_size_above_one_is_refused():
    with pytest.raises(InvalidParameterError, match=r"test_size must be .*got 300"):
        load_german(test_size=300)


@pytest.mark.data
def test_the_shipped_file_holds_the_published_rows(data_file):
    packed = pack_files.pack_german(data_file("german.data").parent)
    shipped = pack_files.shipped(german.FILE.name)
    assert gzip.decompress(packed) == gzip.decompress(shipped)
