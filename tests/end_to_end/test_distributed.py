"""Training from shards in real processes: alike, interrupted, resumed."""

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from full_disk import short_of_room

pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402 - after what skips
import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save  # noqa: E402

from fferm.distributed import ShardLoader, ShardSummary, load_model, train  # noqa: E402
from fferm.distributed.__main__ import main  # noqa: E402
from fferm.distributed.training import parse  # noqa: E402
from fferm.errors import (  # noqa: E402
    InvalidInputError,
    InvalidParameterError,
    NonFiniteError,
    PersistenceError,
)

N = 2003  # 51 batches of 40, the last of 3 rows
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "distributed.md"

# A rank that goes wrong at its 13th batch, two after a checkpoint.
BROKEN = """
import os, signal, sys, time
from fferm.distributed import ShardLoader
from fferm.distributed.__main__ import main

whole = ShardLoader.__iter__

def broken(self):
    is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    for t, batch in enumerate(whole(self)):
        if t == 12 and is_first and os.environ["RANK"] == "1":
            {how}
        yield batch

ShardLoader.__iter__ = broken
sys.exit(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, N)
    age = rng.normal(size=N) + sex
    frame = pa.table(
        {
            "age": age,
            "job": rng.choice(["cook", "nurse"], N),
            "sex": np.array(["f", "m"])[sex],
            "income": (age + rng.normal(size=N) > 0.5).astype(int),
        }
    )
    for i, begin in enumerate(range(0, N, 700)):
        part = frame.slice(begin, 700)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=100)
    return folder


def arguments(folder, out, *more):
    return [
        *(str(folder), "--target", "income", "--sensitive", "sex", "--out", str(out)),
        *("--epochs", "1", "--batch-size", "40", "--buffer", "60", "--hidden", "8"),
        *("--dtype", "float64", "--device", "cpu", "--checkpoint-every", "5", *more),
    ]


def parameters(out):
    return load_model(out)[0].state_dict()


def assert_same(one, other, atol):
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], atol=atol, rtol=0, msg=name)


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """What a run in one process leaves, never interrupted."""
    out = tmp_path_factory.mktemp("alone")
    (record,) = train(parse(arguments(folder, out)))
    assert record["n_rows"] == N
    return out


@pytest.fixture(scope="module")
def alone(trained):
    """The model of that run."""
    return parameters(trained)


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def torchrun(*command):
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--standalone", *map(str, command)),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_processes_train_the_model_of_one(folder, alone, tmp_path):
    command = arguments(folder, tmp_path, "--workers", "1")
    done = torchrun("-m", "fferm.distributed", *command)
    assert done.returncode == 0, done.stderr
    assert "epoch 1 of 1" in done.stderr
    assert_same(alone, parameters(tmp_path), atol=1e-6)


def test_a_killed_rank_is_started_again_and_ends_in_the_same_model(
    folder, alone, tmp_path
):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN.format(how="os.kill(os.getpid(), signal.SIGKILL)"))
    out = tmp_path / "out"
    done = torchrun("--max-restarts", "1", script, *arguments(folder, out))
    assert done.returncode == 0, done.stderr
    assert "goes on from epoch 1, step 10" in done.stderr
    assert_same(alone, parameters(out), atol=1e-12)


@pytest.mark.parametrize(
    ("how", "seconds"),
    [("os.kill(os.getpid(), signal.SIGKILL)", 60), ("time.sleep(600)", 12)],
    ids=["killed", "stalled"],
)
def test_the_others_say_that_a_rank_is_gone(folder, tmp_path, how, seconds):
    script = tmp_path / "broken.py"
    script.write_text(BROKEN.format(how=how))
    command = arguments(folder, tmp_path / "out", "--timeout", str(seconds))
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), *command],
            env=environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = ranks[0].communicate(timeout=120)[1]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert ranks[0].returncode == 1
    assert "error: Rank 0 lost another rank in training" in said
    assert "go on from" in said
    assert (tmp_path / "out" / "checkpoint.pt").exists()


def interrupt(monkeypatch, step):
    whole = ShardLoader.__iter__

    def broken(self):
        for t, batch in enumerate(whole(self)):
            if t == step:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(ShardLoader, "__iter__", broken)


@pytest.mark.parametrize("step", [7, 49])
def test_one_process_goes_on_from_its_checkpoint(
    folder, alone, tmp_path, monkeypatch, step
):
    options = parse(arguments(folder, tmp_path))
    with monkeypatch.context() as patch:
        interrupt(patch, step)
        with pytest.raises(KeyboardInterrupt):
            train(options)
    with monkeypatch.context() as patch:
        patch.delattr("fferm.distributed.training.summarize")  # not passed over again
        (record,) = train(options)
    assert record["n_rows"] == N
    assert_same(alone, parameters(tmp_path), atol=0)


def test_a_run_that_ended_takes_more_epochs(folder, tmp_path):
    train(parse(arguments(folder, tmp_path / "one")))
    train(parse(arguments(folder, tmp_path / "one", "--epochs", "2")))
    history = train(parse(arguments(folder, tmp_path / "two", "--epochs", "2")))
    assert [record["epoch"] for record in history] == [1, 2]
    assert_same(parameters(tmp_path / "one"), parameters(tmp_path / "two"), atol=0)


def test_the_penalty_makes_the_model_fairer(folder, tmp_path):
    found = {}
    for weight in ("0", "10"):
        options = arguments(folder, tmp_path / weight, "--fairness-weight", weight)
        more = ("--epochs", "3", "--lr", "0.01", "--batch-size", "80")
        found[weight] = train(parse([*options, *more]))[-1]["violation"]
    assert found["10"] < found["0"] / 2


def test_a_trained_model_predicts_from_a_table(folder, alone, tmp_path):
    train(parse(arguments(folder, tmp_path)))
    model, summary = load_model(tmp_path)
    assert isinstance(summary, ShardSummary)
    table = pq.read_table(folder / "part-0.parquet").drop_columns(["income"])
    x = torch.from_numpy(summary.features(table, np.float64))
    assert model(x).shape == (700, 2)
    with pytest.raises(PersistenceError, match="does not exist"):
        load_model(tmp_path / "none")


def test_other_settings_than_the_checkpoint_are_refused(folder, tmp_path):
    train(parse(arguments(folder, tmp_path)))
    with pytest.raises(InvalidParameterError, match=r"lr must be 0.001.*got 0.5"):
        train(parse(arguments(folder, tmp_path, "--lr", "0.5")))
    with pytest.raises(InvalidParameterError, match=r"streams must be 4 .*got 2"):
        train(parse(arguments(folder, tmp_path, "--streams", "2")))
    train(parse(arguments(folder, tmp_path, "--lr", "0.5", "--restart")))


def test_other_shards_than_the_checkpoint_are_refused(folder, tmp_path):
    train(parse(arguments(folder, tmp_path / "out")))
    one = pq.read_table(folder / "part-0.parquet")
    (tmp_path / "other").mkdir()
    pq.write_table(one, tmp_path / "other" / "part-0.parquet")
    with pytest.raises(InvalidInputError, match=r"checkpoint: part-0.parquet, part-1"):
        train(parse(arguments(tmp_path / "other", tmp_path / "out")))


def rewritten(path, about=(), **tensors):
    """Return the bytes of a saved model with other tensors, or other words about it."""
    with safe_open(path, framework="pt") as file:
        words, saved = file.metadata(), {n: file.get_tensor(n) for n in file.keys()}  # noqa: SIM118
    words["about"] = json.dumps(json.loads(words["about"]) | dict(about))
    return save(saved | tensors, words)


NOT_MODELS = {
    "empty": lambda path: b"",
    "garbage": lambda path: bytes(range(256)) * 9,
    "cut in its header": lambda path: path.read_bytes()[:200],
    "cut by a byte": lambda path: path.read_bytes()[:-1],
    "a checkpoint": lambda path: path.with_name("checkpoint.pt").read_bytes(),
    "of another library": lambda path: save({"weight": torch.zeros(3)}),
    "of another library, with words": lambda path: save({}, {"format": "pt"}),
    "of other layers": lambda path: rewritten(path, {"hidden": [9]}),
    "of huge layers": lambda path: rewritten(path, {"hidden": [1 << 40]}),
    "of no precision": lambda path: rewritten(path, {"dtype": "load"}),
    "not finite": lambda path: rewritten(path, **{"0.bias": torch.full((8,), np.nan)}),
}


@pytest.mark.parametrize("kind", NOT_MODELS)
def test_what_is_not_a_trained_model_is_refused(trained, tmp_path, kind):
    path = tmp_path / "model.safetensors"
    path.write_bytes(NOT_MODELS[kind](trained / path.name))
    match = r"model.safetensors could not be read as a .* Pass the --out of a run"
    with pytest.raises(PersistenceError, match=match):
        load_model(tmp_path)


def saved(state):
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def without(name):
    def change(path):
        state = torch.load(path, weights_only=True)
        return saved({key: value for key, value in state.items() if key != name})

    return change


NOT_CHECKPOINTS = {
    "empty": lambda path: b"",
    "text": lambda path: b"no",
    "an opcode without a stack": lambda path: b"b" * 100,
    "cut by a byte": lambda path: path.read_bytes()[:-1],
    "a list": lambda path: saved([1, 2]),
    "of another library": lambda path: saved({"model": {}, "optimizer": {}}),
    "of other settings": lambda path: saved({"settings": 3, "streams": 4}),
    **{f"without its {name}": without(name) for name in ("summary", "streams")},
    **{f"without its {name}": without(name) for name in ("fair", "total", "history")},
}


@pytest.mark.parametrize("kind", NOT_CHECKPOINTS)
def test_what_is_not_a_checkpoint_is_refused(folder, trained, tmp_path, kind):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(NOT_CHECKPOINTS[kind](trained / path.name))
    match = (
        r"checkpoint.pt could not be read as a .* Choose another --out, or .*--restart"
    )
    with pytest.raises(PersistenceError, match=match):
        train(parse(arguments(folder, tmp_path)))


def test_two_trainings_do_not_share_a_folder(folder, alone, tmp_path, monkeypatch):
    options = parse(arguments(folder, tmp_path))
    whole, refused = ShardLoader.__iter__, []

    def watched(self):
        for batch in whole(self):
            if len(refused) < 2:
                with pytest.raises(PersistenceError) as caught:
                    train(options)
                refused.append(str(caught.value))
            yield batch

    monkeypatch.setattr(ShardLoader, "__iter__", watched)
    train(options)
    for text in refused:
        assert re.match(rf"Process {os.getpid()} on .* is writing to ", text)
        assert text.endswith("Wait for its end, or choose another.")
    assert_same(alone, parameters(tmp_path), atol=0)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"checkpoint.pt", "model.safetensors"}


def test_a_checkpoint_of_another_version_is_refused(folder, trained, tmp_path):
    state = torch.load(trained / "checkpoint.pt", weights_only=True)
    state["settings"]["version"] = "0.0.1"
    torch.save(state, tmp_path / "checkpoint.pt")
    with pytest.raises(InvalidParameterError, match=r"version must be '0.0.1' as in"):
        train(parse(arguments(folder, tmp_path)))


def test_a_full_disk_is_named_and_leaves_no_partial_file(folder, tmp_path):
    options = parse(arguments(folder, tmp_path))
    match = r"Cannot write .*{} \(File too large\). Choose an --out .* has room"
    with (
        pytest.raises(PersistenceError, match=match.format("checkpoint.pt")),
        short_of_room(4000),
    ):
        train(options)
    assert list(tmp_path.iterdir()) == []
    train(options)
    (tmp_path / "model.safetensors").unlink()
    with (
        pytest.raises(PersistenceError, match=match.format("model.safetensors")),
        short_of_room(1000),
    ):
        train(options)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_folder_that_cannot_be_written_is_refused_before_training(folder, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with pytest.raises(PersistenceError, match=r"Cannot write .* Choose an --out that"):
        train(parse(arguments(folder, taken)))


@pytest.mark.parametrize(
    "wrong",
    [
        ("--target", "wealth"),
        ("--sensitive", "age"),
        ("--divergence", "no_such"),
        ("--features", "no_such"),
        ("--batch-size", "0"),
        ("--fairness-weight", "nan"),
        ("--lr", "inf"),
    ],
    ids=lambda wrong: " ".join(wrong),
)
def test_a_refused_command_leaves_no_folder(folder, tmp_path, wrong):
    out = tmp_path / "deep" / "out"
    assert main([*arguments(folder, out), *wrong]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_writes_no_checkpoint(folder, tmp_path):
    options = arguments(folder, tmp_path, "--lr", "1e300", "--fairness-weight", "0")
    with pytest.raises(NonFiniteError, match="epoch 1 is not finite"):
        train(parse(options))


def test_bad_input_ends_with_status_2(folder, tmp_path, caplog):
    assert main(arguments(tmp_path, tmp_path / "out")) == 2
    assert "has no Parquet files" in caplog.text
    assert main(arguments(folder, tmp_path / "out", "--epochs", "0")) == 2
    assert "epochs must be an integer of at least 1; got 0" in caplog.text


# Two workers on any machine, and no page in a browser.
BEFORE = {
    "ray": "import ray; ray.init(num_cpus=2, include_dashboard=False)",
    "pyspark": "from pyspark.sql import SparkSession; session = SparkSession.builder"
    ".master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()",
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", BEFORE)
def test_a_launcher_trains_the_model_of_one_process(launcher, folder, tmp_path):
    pytest.importorskip(launcher)
    if launcher == "pyspark" and shutil.which("java") is None:
        pytest.skip("there is no Java runtime for Spark")
    if not PAGE.exists():
        pytest.skip("docs/ is not beside the tests")
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python title=\"launch.py\"\n(.*?)```", text, re.S)[1]
    common, ray, spark = re.split("# Ray Train|# Spark", block)
    recipe = ray if launcher == "ray" else spark
    script = tmp_path / "launch.py"
    script.write_text("\n".join([common, BEFORE[launcher], recipe]))
    (tmp_path / "DATA").symlink_to(folder)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment(HOME=str(tmp_path), RAY_USAGE_STATS_ENABLED="0"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    options = ["--target", "income", "--sensitive", "sex", "--device", "cpu"]
    train(parse([str(folder), *options, "--out", str(tmp_path / "alone")]))
    assert_same(parameters(tmp_path / "alone"), parameters(tmp_path / "RUN"), atol=1e-4)


def test_a_loop_of_ones_own_trains_alike_on_two_processes(tmp_path):
    if not PAGE.exists():
        pytest.skip("docs/ is not beside the tests")
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"```python title=\"loop.py\"\n(.*?)```", text, re.S)
    script = tmp_path / "loop.py"
    script.write_text(block[1])
    done = torchrun(script)
    assert done.returncode == 0, done.stderr
    one = subprocess.run(
        [sys.executable, str(script)],
        env=environment(
            RANK="0",
            WORLD_SIZE="1",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found, expected = (
        [float(number) for number in run.stdout.split()] for run in (done, one)
    )
    assert found == pytest.approx(expected, rel=0, abs=1.5e-9)  # of 9 digits
