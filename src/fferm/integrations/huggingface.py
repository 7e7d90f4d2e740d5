"""A Hugging Face ``Trainer`` with the penalty in its loss and an audit at evaluation.

It also trains adapters of peft, and stands before any other trainer:
``class Mine(FairTrainer, SomeTrainer)``.
"""

from pathlib import Path
from typing import Any

from fferm.auditing import Audit, audit
from fferm.data.validate import Number, check_params
from fferm.errors import InvalidInputError, PersistenceError, import_extra
from fferm.integrations.mlflow import audit_metrics
from fferm.torch import FairnessLoss

torch: Any = import_extra("torch", "torch", __name__)
transformers: Any = import_extra("transformers", "huggingface", __name__)

# The file of the loss in a checkpoint.
FILE = "fairness.pt"


class FairTrainer(transformers.Trainer):
    """A ``Trainer`` for classifiers that adds `FairnessLoss` to the model's own loss.

    Evaluation adds the violation and the rates of every group to the metrics. A
    checkpoint holds the dual, so that a resumed run goes on as if it had not stopped.

    Parameters
    ----------
    *args, **kwargs
        Of ``transformers.Trainer``.
    fair
        The loss, made from the training labels. With gradient accumulation give it
        ``dual_steps=DualSteps(accumulate=...)``, so that small batches train as the
        large one that they make.
    fairness_weight
        What the penalty is multiplied by.
    sensitive
        The column of the data with the codes of ``fair.encode``.

    Attributes
    ----------
    audit_ : Audit
        Of the last evaluation.
    """

    label_names: list[str]
    compute_metrics: Any

    def __init__(
        self,
        *args: Any,
        fair: FairnessLoss,
        fairness_weight: float,
        sensitive: str = "sensitive",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_params(
            {"fairness_weight": fairness_weight}, {"fairness_weight": Number()}
        )
        self.fair = fair.to(self.args.device)
        self.fairness_weight, self.sensitive = fairness_weight, sensitive
        # A label is kept in the data, and evaluation hands it to the metrics.
        self.label_names = [*self.label_names, sensitive]
        # Then the loss is the mean of a batch, as the penalty is.
        self.model_accepts_loss_kwargs = False
        self._other_metrics = self.compute_metrics
        self.compute_metrics = self._measure
        self.audit_: Audit | None = None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Return the model's loss plus the weighted penalty."""
        others = dict(inputs)
        sensitive, y = others.pop(self.sensitive, None), others.get("labels")
        if sensitive is None:
            raise InvalidInputError(
                f"The data must have a column {self.sensitive!r} with the codes of "
                f"fair.encode; got {', '.join(inputs)}."
            )
        loss, outputs = super().compute_loss(model, others, True, **kwargs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[1]
        weight = self.fairness_weight
        if model.training and self.compute_loss_func is not None:
            # That function has divided by the rows of all accumulated batches.
            weight /= self.current_gradient_accumulation_steps
        loss = loss + weight * self.fair(logits, sensitive, y)
        return (loss, outputs) if return_outputs else loss

    def _measure(self, prediction: Any) -> dict[str, float]:
        # What evaluation reports, with the metrics that the user asked for.
        logits, (y, sensitive) = prediction.predictions, prediction.label_ids
        logits = logits[0] if isinstance(logits, tuple) else logits
        prob = torch.softmax(torch.from_numpy(logits).double(), dim=1).numpy()
        columns = self.fair.reader.columns
        codes = torch.from_numpy(sensitive).to(self.args.device).view(len(y), -1)
        self.audit_ = audit(
            y_true=y,
            y_pred=prob.argmax(axis=1),
            y_prob=prob,
            sensitive_features={
                column.name: [(*column.groups, None)[k] for k in column(part, True)]
                for column, part in zip(columns, codes.unbind(1), strict=True)
            },
            notion=self.fair.objective.notion,
        )
        metrics = audit_metrics(self.audit_)
        if self._other_metrics is not None:
            plain = transformers.EvalPrediction(prediction.predictions, y)
            metrics |= self._other_metrics(plain)
        return metrics

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            torch.save(self.fair.state_dict(), Path(output_dir) / FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / FILE
        if not path.exists():
            raise PersistenceError(
                f"{checkpoint} has no {FILE}. Pass a checkpoint of a FairTrainer."
            )
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.fair.load_state_dict(state)
