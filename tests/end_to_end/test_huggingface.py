"""Hugging Face's Trainer with the penalty: small models, nothing downloaded."""

import runpy
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip(
    "transformers", reason='pip install "fferm[huggingface]"'
)

from fferm.errors import InvalidInputError, PersistenceError  # noqa: E402
from fferm.integrations.huggingface import FairTrainer  # noqa: E402
from fferm.metrics import violation  # noqa: E402
from fferm.torch import FairnessLoss  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "with_transformers.py"
if not EXAMPLE.exists():
    pytest.skip("examples/ is not beside the tests", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def trainer(example, tmp_path):
    """Return a function that makes a trainer of 64 reviews, seen in their order."""
    rows = example["make_reviews"](64, 0)

    def make(weight=10.0, **arguments):
        arguments = {"num_train_epochs": 1, "train_sampling_strategy": "sequential"} | (
            arguments
        )
        return example["make_trainer"](rows, weight, str(tmp_path), **arguments)

    return make


def weights(trainer):
    state = trainer.model.state_dict()
    return torch.cat([state[name].flatten().double() for name in sorted(state)])


@pytest.mark.slow
def test_batches_of_eight_make_a_text_classifier_fair_at_little_cost(example):
    plain, fair = example["train"](0.0), example["train"](120.0)
    assert plain["violation"] > 0.05
    assert fair["violation"] < 0.03
    assert fair["accuracy"] > plain["accuracy"] - 0.02


@pytest.mark.parametrize("batch_size", [1, 4])
def test_accumulated_batches_train_as_the_large_one(trainer, batch_size):
    found = []
    for b in (batch_size, 16):
        each = trainer(
            per_device_train_batch_size=b,
            gradient_accumulation_steps=16 // b,
            optim="sgd",
            learning_rate=0.5,
        )
        each.train()
        assert each.state.global_step == 4
        found.append((weights(each), each.fair.dual_variable.detach()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_the_penalty_is_in_the_gradient_of_accumulated_batches(trainer):
    plain, fair = (trainer(weight=w, gradient_accumulation_steps=2) for w in (0, 50))
    plain.train(), fair.train()
    assert float((weights(plain) - weights(fair)).abs().max()) > 1e-3


def test_a_loss_function_of_the_user_divides_the_penalty_by_all_batches(trainer):
    def loss(outputs, labels, num_items_in_batch):
        logits = outputs["logits"]
        total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return total / num_items_in_batch

    found = []
    for function in (None, loss):
        each = trainer(gradient_accumulation_steps=4, optim="sgd", learning_rate=0.5)
        each.compute_loss_func = function
        each.train()
        found.append(weights(each))
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


def test_mixed_precision_keeps_the_tables_exact(trainer):
    fair = trainer(bf16=True)
    fair.train()
    assert fair.fair.dual_variable.dtype == torch.float64
    assert float(fair.fair.dual_variable.detach().abs().max()) > 0
    assert bool(weights(fair).isfinite().all())


def test_evaluation_audits_the_groups(trainer, example):
    fair, rows = trainer(), example["make_reviews"](500, 1)
    fair.train()
    dual = fair.fair.dual_variable.detach().clone()
    found = fair.evaluate(rows)
    decided = fair.predict(rows).predictions.argmax(axis=1)
    y, s = (np.array([row[name] for row in rows]) for name in ("labels", "sensitive"))
    expected = violation(y, decided, sensitive_features=s)
    assert found["eval_violation"] == pytest.approx(expected, abs=1e-12)
    assert fair.audit_.violation == found["eval_violation"]
    rate = float(np.mean(decided[s == 1]))
    assert found["eval_selection_rate_1/1"] == pytest.approx(rate, abs=1e-12)
    assert torch.equal(dual, fair.fair.dual_variable), "evaluation moved the dual"


def test_a_metric_of_the_user_is_reported_beside_the_audit(trainer, example):
    fair = trainer()
    made = FairTrainer(
        model=fair.model,
        args=fair.args,
        fair=fair.fair,
        fairness_weight=1.0,
        compute_metrics=lambda found: {"rows": len(found.label_ids)},
    )
    found = made.evaluate(example["make_reviews"](50, 1))
    assert found["eval_rows"] == 50
    assert "eval_violation" in found


def test_groups_are_named_as_they_were_given(trainer):
    fair = trainer()
    rows = fair.train_dataset
    s = np.array(["man", "woman"])[[row["sensitive"] for row in rows]]
    y = np.array([row["labels"] for row in rows])
    loss = FairnessLoss.from_labels(y, s)
    made = FairTrainer(fair.model, fair.args, fair=loss, fairness_weight=1.0)
    assert "eval_selection_rate_1/woman" in made.evaluate(rows)


def test_a_resumed_run_equals_one_that_went_on(trainer, tmp_path):
    options = {"num_train_epochs": 2, "train_sampling_strategy": "random"}
    whole = trainer(**options, save_strategy="epoch")
    whole.train()
    resumed = trainer(**options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert torch.equal(weights(whole), weights(resumed))
    for name, tensor in whole.fair.state_dict().items():
        assert torch.equal(tensor, resumed.fair.state_dict()[name]), name


def test_a_checkpoint_without_the_dual_is_refused(trainer, tmp_path):
    first = trainer(save_strategy="epoch")
    first.train()
    (tmp_path / "checkpoint-8" / "fairness.pt").unlink()
    with pytest.raises(PersistenceError, match=r"has no fairness\.pt"):
        trainer(num_train_epochs=2).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-8")
        )


def test_adapters_of_peft_are_trained_and_nothing_else(trainer):
    peft = pytest.importorskip("peft", reason='pip install "fferm[huggingface]"')
    fair = trainer()
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"])
    model = peft.get_peft_model(fair.model, config)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    made = FairTrainer(
        model,
        fair.args,
        train_dataset=fair.train_dataset,
        fair=fair.fair,
        fairness_weight=50.0,
    )
    made.train()
    moved = {
        name for name, p in model.named_parameters() if not torch.equal(p, before[name])
    }
    assert moved
    assert all("lora_" in name or "classifier" in name for name in moved)
    assert "eval_violation" in made.evaluate(fair.train_dataset)


def test_data_without_the_groups_are_refused(trainer):
    fair = trainer()
    fair.train_dataset = [
        {name: row[name] for name in ("input_ids", "labels")}
        for row in fair.train_dataset
    ]
    with pytest.raises(InvalidInputError, match="must have a column 'sensitive'"):
        fair.train()
