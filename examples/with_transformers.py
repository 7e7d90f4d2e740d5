"""A fair text classifier with Hugging Face's Trainer: made reviews, a small BERT.

Where praise and blame are even, labels lean towards one group, whose names give it
away. Nothing is downloaded.
"""

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from fferm.integrations.huggingface import FairTrainer
from fferm.torch import DualSteps, FairnessLoss

N_WORDS, LENGTH = 40, 8  # good words, bad words, and ten names of each group


def make_reviews(n: int, seed: int) -> list[dict[str, Any]]:
    """Return reviews as rows of word numbers, label and group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    n_good = rng.choice([0, 1, 3, 4, 2], n, p=[0.225, 0.225, 0.225, 0.225, 0.1])
    leaning = np.where(rng.random(n) < 0.7, group, 1 - group)
    label = np.where(n_good == 2, leaning, n_good > 2)
    words = rng.integers(0, 10, (n, 5)) + 10 * (np.arange(5) >= n_good[:, None])
    words[:, 4] = 20 + 10 * group + rng.integers(0, 10, n)
    return [
        {"input_ids": rng.permutation(w), "labels": y, "sensitive": s}
        for w, y, s in zip(words, label, group, strict=True)
    ]


def make_trainer(
    rows: Sequence[dict[str, Any]], weight: float, folder: str, **arguments: Any
) -> FairTrainer:
    """Return a trainer of a model of one layer."""
    config = BertConfig(
        vocab_size=N_WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 500,
        "learning_rate": 3e-3,
        "num_train_epochs": 3,
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        **arguments,
    }
    options = TrainingArguments(folder, **arguments)
    fair = FairnessLoss.from_labels(
        np.array([row["labels"] for row in rows]),
        np.array([row["sensitive"] for row in rows]),
        sharpness=2.0,
        dual_steps=DualSteps(accumulate=options.gradient_accumulation_steps),
    )
    return FairTrainer(
        model_init=lambda: BertForSequenceClassification(config),
        args=options,
        train_dataset=rows,
        fair=fair,
        fairness_weight=weight,
    )


def train(weight: float, **arguments: Any) -> dict[str, float]:
    """Return accuracy and violation on new reviews."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(make_reviews(4000, 0), weight, folder, **arguments)
        trainer.train()
        found: dict[str, float] = trainer.evaluate(make_reviews(20_000, 1))
    return {name: found[f"eval_{name}"] for name in ("accuracy", "violation")}


if __name__ == "__main__":
    for weight in (0.0, 120.0):
        print(f"weight {weight}: {train(weight)}")
