"""Count the files, functions and frames of ours that one job of a user runs through.

Run as a program it does the jobs in their order, so that each first use imports what it
needs, and prints the counts as JSON. Compiled code is not seen.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import fferm
from fferm.datasets import make_biased

ROOT = str(Path(fferm.__file__).parent)


def count(job):
    """Return files, functions and depth of a job, and what it returned."""
    stack, deepest, calls = [], 0, {}

    def profile(frame, event, _):
        nonlocal deepest
        path = frame.f_code.co_filename
        if not path.startswith(ROOT):
            return
        if event == "call":
            stack.append((path, frame.f_code.co_qualname))
            deepest = max(deepest, len(stack))
            calls.setdefault(stack[-1])
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(profile)
    try:
        result = job()
    finally:
        sys.setprofile(None)
    # Lambdas, comprehensions and modules are no functions that a reader opens.
    named = [key for key in calls if "<" not in key[1].rsplit(".", 1)[-1]]
    return (len({path for path, _ in named}), len(named), deepest), result


def jobs():
    """Yield a name and a function, each after the one before it was called."""
    data = make_biased(random_state=0)
    X, y, s = data.X, np.asarray(data.y), data.sensitive_features
    model = fferm.FairLogisticRegression(fairness_weight=3)
    yield "linear fit", lambda: model.fit(X, y, sensitive_features=s)
    yield (
        "linear fit, sgda",
        lambda: fferm.FairLogisticRegression(
            fairness_weight=3, solver="sgda", random_state=0
        ).fit(X, y, sensitive_features=s),
    )
    yield "predict", lambda: model.predict(X)
    yield "audit", lambda: fferm.audit(model, X, y, sensitive_features=s)
    yield (
        "tradeoff_curve",
        lambda: fferm.tradeoff_curve(
            fferm.FairLogisticRegression(),
            X,
            y,
            sensitive_features=s,
            fairness_weights=[0, 1, 10],
        ),
    )
    yield (
        "boosting fit",
        lambda: fferm.FairBoostingClassifier(n_estimators=5).fit(
            X, y, sensitive_features=s
        ),
    )
    yield (
        "regression fit",
        lambda: fferm.FairRegressor(fairness_weight=3).fit(
            X, np.asarray(X)[:, 0] + y, sensitive_features=s
        ),
    )
    yield from torch_jobs(X, y, s)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.fferm"
        yield "save and load", lambda: (fferm.save(model, path), fferm.load(path))


def torch_jobs(X, y, s):
    import torch

    from fferm.torch import FairnessLoss

    group = np.unique(np.asarray(s).reshape(-1), return_inverse=True)[1]
    labels, groups, losses = torch.tensor(y), torch.tensor(group), []
    yield (
        "FairnessLoss.from_labels",
        lambda: losses.append(FairnessLoss.from_labels(labels, groups)),
    )
    logits = torch.zeros(len(labels), 2, requires_grad=True)
    yield "FairnessLoss.forward", lambda: losses[0](logits, groups, labels)
    yield (
        "net fit",
        lambda: fferm.FairNetClassifier(max_epochs=1, random_state=0).fit(
            X, y, sensitive_features=s
        ),
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump({name: count(job)[0] for name, job in jobs()}, sys.stdout)
