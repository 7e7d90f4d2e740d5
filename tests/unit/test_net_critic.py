"""Networks whose dual is a critic: sensitive numbers as they are."""

import itertools

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from fferm import FairNetClassifier, LargeShift, load, save  # noqa: E402 - after torch
from fferm.data.rows import FitInput, Rows  # noqa: E402
from fferm.errors import (  # noqa: E402
    FfermWarning,
    InvalidInputError,
    InvalidParameterError,
    SmallGroupWarning,
)
from fferm.metrics.dependence import distance_correlation  # noqa: E402
from fferm.torch.critic import CriticPenalty  # noqa: E402

EXACT = 1e-12


def symmetric(n=1500, seed=0):
    """Labels that depend on the size of a number, whatever its sign."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n)
    X = np.column_stack([np.abs(s) + 0.3 * rng.normal(size=n), rng.normal(size=n)])
    y = (X.sum(axis=1) + 0.3 * rng.normal(size=n) > 0.8).astype(int)
    return X, y, s


def network(**options):
    settings = {"hidden": (16,), "max_epochs": 12, "batch_size": 64, "random_state": 0}
    return FairNetClassifier(**{"method": "critic", **settings, **options})


def test_a_critic_removes_what_linear_correlation_cannot_see():
    X, y, s = symmetric()
    given = FitInput(X, y, pd.DataFrame({"s": s}))
    plain, fair = (
        distance_correlation(model.predict_proba(X)[:, 1], s)
        for model in network().fit_path(given, [0.0, 10.0])
    )
    assert plain > 0.15
    assert fair < 0.5 * plain


@pytest.mark.filterwarnings("ignore::fferm.errors.SmallGroupWarning")
def test_groups_and_numbers_count_together_under_label_conditions(tmp_path):
    X, y, s = symmetric(400)
    sex = np.where(np.arange(400) % 3 == 0, "f", "m").astype(object)
    sex[:20] = None
    sensitive = {"s": s, "sex": sex}
    # On one device: two devices need not agree in the last bit.
    model = network(max_epochs=2, notion="equalized_odds", device="cpu")
    model.set_params(early_stopping="validation")
    with pytest.warns(FfermWarning, match="20 of 400 rows"):
        model.fit(X, y, sensitive_features=sensitive)
    assert all(np.isfinite(record["penalty"]) for record in model.history_)
    save(model, tmp_path / "model.fferm")
    again = load(tmp_path / "model.fferm")
    assert again.method == "critic"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_run_that_was_stopped_goes_on_with_the_same_critic(tmp_path):
    X, y, s = symmetric(200)
    whole = network(max_epochs=4).fit(X, y, sensitive_features={"s": s})

    seen = []
    options = {"max_epochs": 4, "checkpoint": tmp_path}

    def kill(record):
        seen.append(record)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        network(callbacks=[kill], **options).fit(X, y, sensitive_features={"s": s})
    rest = network(**options).fit(X, y, sensitive_features={"s": s})
    np.testing.assert_array_equal(rest.predict_proba(X), whole.predict_proba(X))


def test_the_penalty_of_a_batch_is_right_on_average():
    X, y, s = symmetric(5)
    y = np.array([0, 1, 1, 0, 1])
    model = network(fairness_weight=1.0, continuous=["s"])
    given = FitInput(X, y, {"s": s}, np.array([1.0, 2.0, 0.5, 1.5, 1.0]))
    with pytest.warns(SmallGroupWarning, match="fewer than 10"):
        encoded = model._encode(given)
    problem, rows = encoded.problem, encoded.rows
    assert isinstance(rows, Rows)
    columns = model._critic(encoded)
    penalty = CriticPenalty(
        columns, ["s"], problem.objective, rows, n_models=2, seed=0, n_classes=2
    ).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in penalty.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator).double())
    logits = torch.randn(2, 5, 2, generator=generator).double()
    place, weight = (
        torch.arange(5)[:, None],
        torch.from_numpy(rows.weight / rows.weight.mean()),
    )

    def at(batch):
        index = torch.tensor(batch)
        return penalty(logits[:, index], place[index], sample_weight=weight[index])

    batches = [at(batch) for batch in itertools.combinations(range(5), 3)]
    np.testing.assert_allclose(torch.stack(batches).mean(0), at(range(5)), rtol=EXACT)


@pytest.mark.filterwarnings("ignore::fferm.errors.SmallGroupWarning")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "table"}, "method must be 'bins' or 'critic'"),
        ({"uncertainty": LargeShift(0.01)}, "Use method='bins'"),
        ({"notion": "sufficiency"}, "Use method='bins'"),
        ({"solver": "semi_stochastic"}, "Use method='bins'"),
        ({"continuous": ["age"]}, "continuous must be.*'age'"),
        ({"batch_size": 1}, "batch_size must be at least 2"),
    ],
)
def test_what_a_critic_cannot_do_is_refused_by_name(options, message):
    X, y, s = symmetric(120)
    with pytest.raises((InvalidParameterError, InvalidInputError), match=message):
        FairNetClassifier(**{"method": "critic", **options}).fit(
            X, y, sensitive_features={"s": s}
        )


def test_a_lone_last_row_is_no_trouble():
    X, y, s = symmetric(129)
    model = network(max_epochs=1).fit(X, y, sensitive_features={"s": s})
    assert (
        model._config(model._encode(FitInput(X, y, {"s": s})).problem).batch_size == 64
    )
    assert np.isfinite(model.predict_proba(X)).all()
