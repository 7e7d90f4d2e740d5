"""Batches from Parquet shards: every row once, in any number of parts, at any place."""

import itertools
import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingGroupWarning,
    SmallGroupWarning,
)

pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402 - after what skips
import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fferm.distributed import (  # noqa: E402
    ShardDataset,
    ShardLoader,
    ShardSummary,
    summarize,
)
from fferm.torch import FairnessLoss  # noqa: E402

N = 1003


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 10, n)
    age[::17] = np.nan
    sex = rng.choice(["f", "m"], n).astype(object)
    return pa.table(
        {
            "row": np.arange(n, dtype=np.float64),
            "age": pa.array(age, from_pandas=True),
            "job": pa.array(rng.choice(["cook", "nurse", None], n).tolist()),
            "sex": pa.array(sex),
            "race": pa.array(rng.integers(0, 3, n)),
            "income": pa.array(np.where(rng.random(n) < 0.3, ">50K", "<=50K")),
        }
    )


def write_shards(folder, table, sizes, row_group_size=64):
    begin = 0
    for i, size in enumerate(sizes):
        part = table.slice(begin, size)
        path = folder / f"part-{i}.parquet"
        pq.write_table(part, path, row_group_size=row_group_size)
        begin += size
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = [400, 0, 1, 602]  # an empty shard, and one of a single row
    return write_shards(tmp_path_factory.mktemp("shards"), make_table(), sizes)


@pytest.fixture(scope="module")
def summary(folder):
    return summarize(folder, target="income", sensitive="sex")


def row_numbers(summary, x):
    """Return which rows a batch holds: their number is their first feature."""
    return np.rint(x[:, 0].numpy() * summary.scale[0] + summary.mean[0]).astype(int)


def epoch_rows(summary, batches):
    return [row_numbers(summary, x) for x, _, _ in batches]


def test_the_first_pass_finds_what_pandas_does(summary):
    frame = make_table().to_pandas()
    assert summary.n_rows == N
    assert summary.roles.numeric == ("row", "age", "race")
    assert summary.categories == (("cook", "nurse"), ("f", "m"))
    assert summary.classes == ("<=50K", ">50K")
    assert_allclose(summary.mean[1], frame.age.mean(), rtol=1e-12)
    assert_allclose(summary.scale[1], frame.age.std(ddof=0), rtol=1e-12)
    expected = frame.groupby(["income", "sex"]).size()
    assert list(summary.counts) == expected.tolist()


def test_rows_become_what_pandas_makes_of_them(summary):
    table = make_table()
    frame, rows = table.to_pandas(), summary.encode(table, np.float64)
    age = ((frame.age - frame.age.mean()) / frame.age.std(ddof=0)).fillna(0.0)
    assert_allclose(rows.x[:, 1], age, atol=1e-12)
    names = list(summary.feature_names)
    assert_array_equal(rows.x[:, names.index("job=cook")], frame.job == "cook")
    assert_array_equal(rows.y, frame.income == ">50K")
    assert_array_equal(rows.group, frame.sex == "m")


def test_the_loss_is_that_of_all_labels(summary):
    frame = make_table().to_pandas()
    streamed = summary.fairness_loss(divergence="chi2", notion="equalized_odds")
    whole = FairnessLoss.from_labels(
        frame.income, frame.sex, divergence="chi2", notion="equalized_odds"
    )
    assert streamed.groups == whole.groups
    for name, table in whole.state_dict().items():
        assert_allclose(streamed.state_dict()[name], table, rtol=1e-12, err_msg=name)


def test_several_columns_make_their_intersection(folder):
    summary = summarize(folder, target="income", sensitive=["sex", "race"])
    frame = make_table().to_pandas()
    both = FairnessLoss.from_labels(frame.income, frame[["sex", "race"]])
    assert summary.fairness_loss().groups == both.groups
    encoded = summary.encode(make_table())
    assert_array_equal(encoded.group, both.encode(frame[["sex", "race"]]))


def test_unknown_groups_are_counted_and_left_out(tmp_path):
    table = make_table().to_pandas()
    table.loc[:9, "sex"] = None
    table.loc[table.index[-3:], "sex"] = "x"
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "a.parquet")
    summary = summarize(tmp_path, target="income", sensitive="sex")
    with (
        pytest.warns(MissingGroupWarning, match="10 of 1003 rows have no value of sex"),
        pytest.warns(SmallGroupWarning, match=r"x \(3 rows\)"),
    ):
        fair = summary.fairness_loss()
    group = summary.encode(pa.Table.from_pandas(table)).group
    assert set(group[:10]) == {-1}
    fair(torch.zeros(len(group), 2, requires_grad=True), torch.from_numpy(group))


def test_a_summary_survives_json(summary, folder):
    text = summary.to_json()
    json.loads(text)
    assert ShardSummary.from_json(text, folder) == summary


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [8, 40, 2048])
def test_every_row_is_read_once_across_ranks(summary, n_ranks, batch_size):
    found, steps = [], set()
    for rank in range(n_ranks):
        data = ShardDataset(summary, batch_size, buffer=50, rank=rank, n_ranks=n_ranks)
        batches = epoch_rows(summary, data)
        steps.add(len(batches))
        found += batches
    assert steps == {math.ceil(math.ceil(N / 4) / (batch_size // 4))}
    assert sorted(np.concatenate(found)) == list(range(N))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_every_row_is_read_once_across_ranks_and_workers(summary, num_workers):
    found = []
    for rank in range(2):
        data = ShardDataset(summary, 64, buffer=50, rank=rank, n_ranks=2)
        found += epoch_rows(summary, ShardLoader(data, num_workers=num_workers))
    assert sorted(np.concatenate(found)) == list(range(N))


def test_workers_of_a_plain_loader_share_the_rows(summary):
    data = ShardDataset(summary, 64, buffer=50)
    loader = DataLoader(data, batch_size=None, num_workers=2)
    assert sorted(np.concatenate(epoch_rows(summary, loader))) == list(range(N))


def test_batches_do_not_depend_on_ranks_or_workers(summary):
    whole = epoch_rows(summary, ShardDataset(summary, 64, buffer=50))
    ranks = [
        ShardLoader(ShardDataset(summary, 64, buffer=50, rank=rank, n_ranks=2))
        for rank in range(2)
    ]
    halves = [epoch_rows(summary, loader) for loader in ranks]
    for batch, one, other in zip(whole, *halves, strict=True):
        assert_array_equal(batch, np.concatenate([one, other]))
    workers = ShardLoader(ShardDataset(summary, 64, buffer=50), num_workers=2)
    for batch, other in zip(whole, epoch_rows(summary, workers), strict=True):
        assert_array_equal(batch, other)


def test_epochs_differ_and_repeat_with_their_seed(summary):
    loader = ShardLoader(ShardDataset(summary, 64, buffer=50))
    first, second = (epoch_rows(summary, loader) for _ in range(2))
    assert loader.state_dict() == {"epoch": 2, "step": 0}
    assert not np.array_equal(first[0], second[0])
    loader.set_epoch(1)
    for batch, again in zip(second, epoch_rows(summary, loader), strict=True):
        assert_array_equal(batch, again)
    other = ShardDataset(summary, 64, buffer=50, seed=1)
    assert not np.array_equal(first[0], row_numbers(summary, next(iter(other))[0]))


def test_every_epoch_has_its_own_order_of_row_groups(summary):
    # A small buffer leaves the rows of a row group close together.
    loader = ShardLoader(ShardDataset(summary, 17, streams=1, buffer=8))
    sizes = np.array([n for sizes in summary.shards.values() for n in sizes])
    first = np.cumsum(sizes) - sizes
    orders = []
    for _ in range(3):
        place = np.argsort(np.concatenate(epoch_rows(summary, loader)))
        centre = [place[i : i + 64].mean() for i in first[sizes == 64]]
        orders.append(tuple(np.argsort(centre)))
        assert np.diff(np.sort(centre)).min() > 30
    assert len({*orders, tuple(range(len(centre)))}) == 4


def test_every_epoch_has_its_own_order_of_the_rows_of_a_row_group(tmp_path):
    write_shards(tmp_path, make_table(100), [100], row_group_size=100)
    summary = summarize(tmp_path, target="income", sensitive="sex")
    loader = ShardLoader(ShardDataset(summary, 100, streams=1))
    (first,), (second,) = (epoch_rows(summary, loader) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first.tolist() != second.tolist()


def test_rows_are_mixed_well_beyond_their_row_group(summary):
    batch = next(iter(ShardDataset(summary, 128, buffer=50)))[0]
    rows = np.sort(row_numbers(summary, batch))
    assert np.ptp(rows) > N // 2
    assert np.diff(rows).max() < N // 4


def test_without_a_shuffle_streams_run_in_order(summary):
    data = ShardDataset(summary, 10, streams=1, shuffle=False, buffer=33)
    assert_array_equal(np.concatenate(epoch_rows(summary, data)), np.arange(N))


@pytest.mark.parametrize("step", [1, 3, 9, 15, 16])
def test_a_loader_goes_on_from_where_it_stood(summary, step):
    loader = ShardLoader(ShardDataset(summary, 64, buffer=20))
    for x, _, _ in itertools.islice(loader, step):
        state = loader.state_dict()
        last = x
    other = ShardLoader(ShardDataset(summary, 64, buffer=20))
    other.load_state_dict(state)
    whole = list(ShardLoader(ShardDataset(summary, 64, buffer=20)))
    assert torch.equal(whole[step - 1][0], last)
    rest = list(other)
    assert len(rest) == len(whole) - step
    for expected, found in zip(whole[step:], rest, strict=True):
        for one, another in zip(expected, found, strict=True):
            assert torch.equal(one, another)


def test_what_came_before_is_not_read_again(summary, monkeypatch):
    data, n_read = ShardDataset(summary, 64, buffer=20), []
    encode = ShardSummary.encode

    def counted(self, table, dtype):
        n_read.append(table.num_rows)
        return encode(self, table, dtype)

    monkeypatch.setattr(ShardSummary, "encode", counted)
    data.set_epoch(0, step=14)
    list(data)
    assert sum(n_read) < N / 2


def test_the_last_batch_may_be_dropped(summary):
    data = ShardDataset(summary, 64, drop_last=True)
    assert {len(y) for _, y, _ in data} == {64}
    assert data.n_steps == N // 64


def test_the_rows_of_a_batch_are_known_beforehand(summary):
    data = ShardDataset(summary, 64, buffer=50)
    assert [len(y) for _, y, _ in data] == [data.n_rows(t) for t in range(data.n_steps)]


def test_features_are_chosen_by_name(folder):
    chosen = summarize(folder, target="income", sensitive="sex", features=["age"])
    assert chosen.feature_names == ("age",)
    dropped = summarize(folder, target="income", sensitive="sex", drop_sensitive=True)
    assert "sex=f" not in dropped.feature_names


def refuse(folder, error, match, **options):
    options = {"target": "income", "sensitive": "sex", **options}
    with pytest.raises(error, match=match):
        summarize(folder, **options)


def test_a_folder_without_shards_is_refused(tmp_path):
    refuse(tmp_path, InvalidInputError, "has no Parquet files")
    refuse(tmp_path / "none", InvalidInputError, "is not a folder")


def test_a_missing_column_is_named(folder):
    refuse(folder, InvalidInputError, "no column 'pay'.*age, job", target="pay")


def test_shards_that_differ_are_named(tmp_path):
    table = make_table(100)
    write_shards(tmp_path, table, [50, 50])
    pq.write_table(table.drop_columns("age"), tmp_path / "part-2.parquet")
    refuse(tmp_path, InvalidInputError, "part-2.parquet has no column .age., or two")
    words = table.set_column(1, "age", pa.array(["old"] * 100))
    pq.write_table(words, tmp_path / "part-2.parquet")
    refuse(tmp_path, InvalidInputError, "part-2.parquet has 'age' as string")
    more = table.append_column("pay", pa.array([1.0] * 100))
    pq.write_table(more, tmp_path / "part-2.parquet")
    refuse(tmp_path, InvalidInputError, "part-2.parquet also has 'pay'")
    assert summarize(
        tmp_path, target="income", sensitive="sex", features=["age"]
    ).feature_names == ("age",)


def test_a_type_that_cannot_be_read_is_named(tmp_path):
    table = make_table(20).append_column("when", pa.array([0] * 20, pa.date32()))
    pq.write_table(table, tmp_path / "a.parquet")
    refuse(tmp_path, InvalidTypeError, "a.parquet has 'when' as date32")


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_text("no")
    refuse(tmp_path, InvalidInputError, r"a.parquet could not be read as Parquet")


def damage_a_page(path):
    content = bytearray(path.read_bytes())
    page = pq.ParquetFile(path).metadata.row_group(0).column(2).data_page_offset
    content[page : page + 20] = bytes(20)
    path.write_bytes(content)


def damage_a_string(path):
    pq.write_table(make_table(100), path, compression="none", row_group_size=50)
    path.write_bytes(path.read_bytes().replace(b"nurse", b"nurs\xff"))


def repeat_a_column(path):
    table = make_table(100)
    twice = table.append_column("job", table["job"])
    pq.write_table(twice, path, row_group_size=50)


def drop_a_column(path):
    less = make_table(100).drop_columns("job")
    pq.write_table(less, path, row_group_size=50)


def drop_rows(path):
    pq.write_table(make_table(70), path, row_group_size=50)


def drop_a_row_group(path):
    pq.write_table(make_table(50), path, row_group_size=50)


@pytest.mark.parametrize("change", [damage_a_page, damage_a_string])
def test_a_damaged_page_is_named_in_the_first_pass(tmp_path, change):
    write_shards(tmp_path, make_table(100), [100], row_group_size=50)
    change(tmp_path / "part-0.parquet")
    refuse(tmp_path, InvalidInputError, r"part-0\.parquet could not be read as Parquet")


@pytest.mark.parametrize(
    "change",
    [
        damage_a_page,
        damage_a_string,
        repeat_a_column,
        drop_a_column,
        drop_rows,
        drop_a_row_group,
    ],
)
def test_a_shard_that_changed_after_the_first_pass_is_named(tmp_path, change):
    twice = pa.concat_tables([make_table(100)] * 2)
    write_shards(tmp_path, twice, [100, 100], row_group_size=50)
    summary = summarize(tmp_path, target="income", sensitive="sex")
    change(tmp_path / "part-1.parquet")
    match = r"part-1\.parquet could not be read as Parquet .* after the first pass"
    with pytest.raises(InvalidInputError, match=match):
        list(ShardDataset(summary, 40))


def test_bad_values_are_named(tmp_path):
    frame = make_table(100).to_pandas()
    path = tmp_path / "a.parquet"
    endless = frame.assign(age=np.inf)
    pq.write_table(pa.Table.from_pandas(endless), path)
    refuse(path, InvalidInputError, "a.parquet has infinite .* in 'age'")
    frame.loc[3, "income"] = None
    pq.write_table(pa.Table.from_pandas(frame), path)
    refuse(path, InvalidInputError, "1 rows without a value of 'income'")
    one_class = make_table(100).to_pandas().assign(income="low")
    pq.write_table(pa.Table.from_pandas(one_class), path)
    refuse(path, InvalidInputError, "100 rows and 1 values of 'income'")


def test_a_sensitive_column_of_numbers_is_refused_with_advice(folder):
    with pytest.raises(InvalidInputError, match=r"age has .* at fixed edges"):
        summarize(folder, target="income", sensitive=["age"])


def test_a_column_that_names_rows_is_no_category(tmp_path):
    table = make_table(11_000)
    names = pa.array([f"id-{i}" for i in range(11_000)])
    pq.write_table(table.append_column("name", names), tmp_path / "a.parquet")
    refuse(tmp_path, InvalidInputError, "'name' has more than 10000 different")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"batch_size": 10, "streams": 4},
            "multiple of streams.*got 10 and 4",
        ),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1; got 0"),
        (
            {"batch_size": 8, "streams": 2, "rank": 0, "n_ranks": 4},
            "multiple of the num",
        ),
        ({"batch_size": 8, "dtype": torch.float16}, "got torch.float16"),
    ],
)
def test_parameters_out_of_range_are_refused(summary, options, match):
    with pytest.raises(InvalidParameterError, match=match):
        ShardDataset(summary, **options)
