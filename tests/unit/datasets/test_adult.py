"""Adult: the published rows, split, columns and rates."""

import gzip

import numpy as np
import pack_files
import pytest

from fferm.datasets import adult, load_adult
from fferm.errors import InvalidParameterError, UnknownNameError

# Rates and counts of the published files, to four digits.
RATES = {"Female": (0.1095, 0.1088), "Male": (0.3057, 0.2998)}
FOUR_GROUPS = {
    ("Male", "White"): (19174, 0.3176, 0.3113),
    ("Female", "White"): (8642, 0.1190, 0.1172),
    ("Male", "Black"): (1569, 0.1893, 0.1696),
    ("Female", "Black"): (1555, 0.0579, 0.0558),
}


@pytest.fixture(scope="module")
def data():
    return load_adult()


def test_the_split_is_the_published_one(data):
    assert len(data.y) == len(data.X) == len(data.frame) == 32561
    assert len(data.y_test) == len(data.X_test) == len(data.frame_test) == 16281
    assert data.frame["age"].iloc[:3].tolist() == [39, 50, 38]


def test_x_has_99_columns_of_which_five_are_numeric(data):
    assert data.X.shape[1] == len(data.feature_names) == 99
    is_numeric = [name in data.frame for name in data.feature_names]
    assert is_numeric == [True] * 5 + [False] * 94


def test_the_survey_weight_is_nowhere(data):
    assert "fnlwgt" not in data.feature_names
    assert list(data.frame) == list(data.frame_test) == list(pack_files.ADULT)


def test_label_one_is_as_frequent_as_published(data):
    assert data.y.dtype == np.int64
    assert data.y.mean() == pytest.approx(0.24081, abs=5e-6)
    assert data.y_test.mean() == pytest.approx(0.23623, abs=5e-6)


@pytest.mark.parametrize("sex", RATES)
def test_rates_by_sex_are_as_published(data, sex):
    train = data.y[data.sensitive_features["sex"] == sex].mean()
    test = data.y_test[data.sensitive_features_test["sex"] == sex].mean()
    assert (train, test) == pytest.approx(RATES[sex], abs=5e-5)


def test_two_races_and_sex_make_the_four_published_groups():
    data = load_adult(("sex", "race"), races=("Black", "White"))
    assert len(data.y) == 32561 - 1621
    for group, (count, train, test) in FOUR_GROUPS.items():
        is_in, is_in_test = (
            ((part["sex"] == group[0]) & (part["race"] == group[1])).to_numpy()
            for part in (data.sensitive_features, data.sensitive_features_test)
        )
        assert is_in.sum() == count
        assert data.y[is_in].mean() == pytest.approx(train, abs=5e-5)
        assert data.y_test[is_in_test].mean() == pytest.approx(test, abs=5e-5)
    assert list(data.frame["race"].cat.categories) == ["Black", "White"]


def test_a_question_mark_is_a_level_of_its_own(data):
    counts = {name: (data.frame[name] == "?").sum() for name in data.frame}
    assert {name: n for name, n in counts.items() if n} == {
        "workclass": 1836,
        "occupation": 1843,
        "native-country": 583,
    }


def test_numbers_are_standardised_by_the_training_part_alone(data):
    np.testing.assert_allclose(data.X[:, :5].mean(axis=0), 0.0, atol=1e-12)
    assert np.all(np.abs(data.X_test[:, :5].mean(axis=0)) > 1e-4)


def test_sensitive_columns_leave_x_and_frame_when_dropped():
    data = load_adult(("sex", "race"), drop_sensitive=True)
    assert data.X.shape[1] == 99 - 1 - 4
    assert not {"sex", "race"} & set(data.frame)
    assert list(data.sensitive_features) == ["sex", "race"]


def test_age_stays_a_number():
    data = load_adult("age")
    assert data.sensitive_features["age"].iloc[0] == 39


def test_an_unknown_sensitive_column_is_refused():
    with pytest.raises(UnknownNameError, match=r"mean 'sex'\? Known: sex, race, age"):
        load_adult(("sexx",))


def test_an_unknown_race_is_refused():
    with pytest.raises(UnknownNameError, match="Unknown race 'Blue'"):
        load_adult(races=("Blue",))


def test_no_race_is_refused():
    with pytest.raises(InvalidParameterError, match="at least one name"):
        load_adult(races=())


@pytest.mark.data
def test_the_shipped_file_holds_the_published_rows(data_file):
    published = data_file("adult.data").parent
    data_file("adult.test")
    packed = pack_files.pack_adult(published)
    shipped = pack_files.shipped(adult.FILE.name)
    # Contents, since another zlib may compress to other bytes.
    assert gzip.decompress(packed) == gzip.decompress(shipped)
