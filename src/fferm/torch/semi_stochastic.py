r"""The semi-stochastic fairness loss: a payoff from a streamed pass, held fixed.

Any penalty ``R`` of the table ``P`` can be trained so, also one whose dual is not
linear in the predictions: under shifts, or for sufficiency.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from fferm._typing import FloatArray, Table
from fferm.data.groups import GroupMode
from fferm.divergences import Divergence
from fferm.errors import InvalidInputError, NonFiniteError
from fferm.notions import Notion
from fferm.penalty.objective import Objective, make_objective, table_penalty
from fferm.torch.diagnostics import Diagnostics, violation_of
from fferm.torch.encoding import read_labels
from fferm.torch.fairness_loss import (
    describe,
    group_names,
    keep_precision,
    make_reader,
    split_groups,
)
from fferm.torch.outputs import Outputs
from fferm.torch.ranks import add_ranks
from fferm.torch.rows import BatchRows, RowReader
from fferm.uncertainty import Uncertainty


class SemiStochasticFairnessLoss(nn.Module):
    r"""The fairness penalty linearised at the table of the last `refresh`.

    .. math:: R(P_0) + \langle \nabla R(P_0), \hat P_B - P_0 \rangle

    Right after a refresh its mean over batches is the penalty and its gradient that of
    the penalty, at any batch size; then it grows stale until the next. Refresh once an
    epoch or more often. Make one with `SemiStochasticFairnessLoss.from_labels`.

    Parameters
    ----------
    reader
        Places a batch in the table.
    objective
        Divergence, notion and uncertainty set.

    Examples
    --------
    >>> from fferm import SmallShift
    >>> y, s = torch.tensor([0, 1] * 40), torch.tensor([0, 0, 1, 1] * 20)
    >>> fair = SemiStochasticFairnessLoss.from_labels(
    ...     y, s, uncertainty=SmallShift(0.01)
    ... )
    >>> model = torch.nn.Linear(3, 2)
    >>> x = torch.ones(80, 3)
    >>> _ = fair.refresh(model, [(x[:40], s[:40]), (x[40:], s[40:])])
    >>> fair(model(x), s).backward()
    """

    def __init__(self, reader: RowReader, objective: Objective) -> None:
        super().__init__()
        self.reader = reader
        self.objective = objective
        self._is_fresh = False
        shape = reader.shape
        self.register_buffer("payoff", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("offset", torch.zeros((), dtype=torch.float64))
        self.register_buffer("n_rows", torch.zeros((), dtype=torch.float64))

    payoff: Tensor
    offset: Tensor
    n_rows: Tensor

    @classmethod
    def from_labels(
        cls,
        y: Table,
        sensitive_features: Table,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        uncertainty: Uncertainty | None = None,
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        classes: Sequence[object] | None = None,
        sample_weight: Table = None,
        outputs: Outputs = "logits",
        check: bool = True,
    ) -> Self:
        """Return the loss for training data with these labels.

        Parameters are those of `FairnessLoss.from_labels`; ``uncertainty`` is None,
        `SmallShift` or `LargeShift`, and every notion is allowed.
        """
        objective = make_objective(divergence, notion, uncertainty, sharpness=sharpness)
        encoding, rows = read_labels(
            y, sensitive_features, objective.notion, groups, classes, sample_weight
        )
        return cls(make_reader(objective, encoding, rows, outputs, check), objective)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of all groups, in the order of the table."""
        return group_names(self.reader.encoding)

    def refresh(self, model: nn.Module, loader: Iterable[Sequence[Any]]) -> Diagnostics:
        """Take the payoff from the model's predictions on all batches of a loader.

        A batch is ``(x, sensitive)``, or ``(x, sensitive, y, control, sample_weight)``
        as far as needed. The model is in evaluation mode for the pass; ``x`` is moved
        to the device of its first parameter.
        """
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        was_training = model.training
        model.eval()
        try:
            return self.refresh_from(
                (model(x.to(device) if isinstance(x, Tensor) else x), *rest)
                for x, *rest in loader
            )
        finally:
            model.train(was_training)

    @torch.no_grad()
    def refresh_from(self, batches: Iterable[Sequence[Any]]) -> Diagnostics:
        """Take the payoff from batches ``(output, sensitive, ...)`` of a whole pass.

        Returns
        -------
        Diagnostics
            Penalty and violation of the table.
        """
        mass = torch.zeros_like(self.payoff)
        n_rows = torch.zeros_like(self.offset)
        for batch in batches:
            rows: BatchRows = self.reader(*batch)
            mass += rows.mass(self.reader.shape)
            n_rows += rows.n_rows
        mass, n_rows = add_ranks(mass, n_rows)
        if float(n_rows) == 0 or not bool(torch.isfinite(mass).all()):
            raise InvalidInputError(
                f"The pass held {int(n_rows)} rows, or outputs that are not finite. "
                "Expected every training row once; a generator that was used up "
                "gives none."
            )
        return self._linearise(mass.cpu().numpy(), float(n_rows))

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        *,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the linearised penalty of a batch; parameters as in `FairnessLoss`."""
        if not self._is_fresh:
            raise InvalidInputError(
                "There is no payoff yet. Call fair.refresh(model, loader) before the "
                "first batch, and again every epoch."
            )
        rows: BatchRows = self.reader(output, sensitive, y, control, sample_weight)
        return rows.term(self.payoff) + self.offset.to(rows.prob.dtype)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as `forward` takes them: once, before training."""
        return self.reader.encode(sensitive_features)

    def extra_repr(self) -> str:
        """Return what `repr` says first."""
        shift = self.objective.uncertainty
        said = describe(self.objective, self.reader.encoding)
        return said if shift is None else f"{said}, {shift!r}"

    def _linearise(self, mass: FloatArray, n_rows: float) -> Diagnostics:
        encoding, notion = self.reader.encoding, self.objective.notion
        comparison = notion.comparison(encoding.strata, encoding.classes)
        tables = split_groups(mass, encoding)
        value, payoffs = 0.0, []
        for table in tables:
            known = float(table.sum())
            if known <= 0:
                payoffs.append(np.zeros_like(table))
                continue
            part, payoff = table_penalty(self.objective, table / known, comparison)
            value += part
            # A batch is a mean over all its rows, the table one over some of them.
            payoffs.append(payoff * (n_rows / known))
        payoff = np.concatenate(payoffs, axis=2)
        if not (np.isfinite(value) and np.all(np.isfinite(payoff))):
            raise NonFiniteError(
                "The penalty is infinite here: the worst case gives some cell no "
                "probability. Give LargeShift a floor, or choose a divergence that "
                "stays finite (jensen_shannon, squared_hellinger, total_variation)."
            )
        linear = float(np.sum(payoff * mass)) / n_rows
        self.payoff.copy_(torch.from_numpy(payoff))
        self.offset.fill_(value - linear)
        self.n_rows.fill_(n_rows)
        self._is_fresh = True
        violation = violation_of([comparison.tables(table) for table in tables])
        return Diagnostics(value, value, violation, 0.0, round(n_rows))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._is_fresh = bool(self.n_rows > 0)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self
