"""The kernels of a GPU do what the operators do, and the operators are few."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fferm.torch import FairnessLoss  # noqa: E402 - after torch

B, MOST_CALLS = 512, 60


def calls(job):
    """Return the operators that a job calls, without those that operators call."""
    job()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        job()
    return [
        event.name
        for event in profile.events()
        if event.name.startswith("aten::")
        and not (event.cpu_parent and event.cpu_parent.name.startswith("aten::"))
    ]


@pytest.mark.parametrize("divergence", ["kl", "js", "chi2", "hellinger"])
def test_forward_and_backward_call_few_operators(divergence):
    rng = np.random.default_rng(0)
    s, y = torch.tensor(rng.integers(0, 4, B)), torch.tensor(rng.integers(0, 2, B))
    fair = FairnessLoss.from_labels(y, s, divergence=divergence)
    logits = torch.zeros(B, 2, requires_grad=True)
    made = calls(lambda: fair(logits, s, y).backward())
    assert len(made) <= MOST_CALLS, made


# Triton reads its setting when it is imported, so a process of its own.
COMPARISON = """
import numpy as np, torch
from fferm.torch import FairnessLoss, fused

def check(notion, divergence, n_classes, n_groups, n, weighted):
    rng = np.random.default_rng(0)
    y, s = rng.integers(0, n_classes, 600), rng.integers(0, n_groups, 600)
    weight = rng.uniform(0.5, 2, 600) if weighted else None
    plain, kernels = (
        FairnessLoss.from_labels(
            y, s, divergence=divergence, notion=notion, sample_weight=weight,
            sharpness=1.5, outputs="logits",
        )
        for _ in range(2)
    )
    for _ in range(2):
        i = rng.integers(0, 600, n)
        x = torch.tensor(rng.normal(size=(n, n_classes)))
        label, group = torch.tensor(y[i]), torch.tensor(s[i])
        group[::7] = -1
        w = torch.tensor(weight[i]) if weighted else None
        one, two = (x.clone().requires_grad_() for _ in range(2))
        expected = plain(one, group, label, sample_weight=w)
        assert fused.can_run(two, kernels.reader, kernels.dual)
        batch = group, label, None, w
        value = fused.term(kernels, two, batch, None, kernels.dual, True)
        close = dict(rtol=0, atol=1e-12)
        torch.testing.assert_close(value, expected, **close)
        first, other = (
            torch.autograd.grad(3 * v, x, create_graph=True)[0]
            for v, x in ((expected, one), (value, two))
        )
        torch.testing.assert_close(other, first, **close)
        (2 * expected).backward(), (2 * value).backward()
        torch.testing.assert_close(two.grad, one.grad, **close)
        for name, table in plain.state_dict().items():
            torch.testing.assert_close(kernels.state_dict()[name], table, **close)

check("demographic_parity", "kl", 2, 4, 50, False)
check("equalized_odds", "tv", 3, 2, 33, True)
"""


def test_kernels_do_what_operators_do():
    pytest.importorskip("triton")
    source = str(Path(__file__).parents[2] / "src")
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPARISON],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
