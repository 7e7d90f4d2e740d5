"""Differentially private training by Opacus with the fairness penalty in the loss.

Three things are released of the rows, and all else is computed from these:

1. The number of rows of each class and group, once, with Gaussian noise.
2. The clipped gradients of each batch, summed, with noise, as Opacus releases them.
   Given the dual, the penalty is a mean of terms of one row each, so the gradient of a
   row depends on no other.
3. The table of each batch, by which the dual ascends, with Gaussian noise.

A row adds 1 to one count. To a batch it adds a gradient of norm at most ``C`` and, in
one group of each of ``A`` attributes, its probabilities, whose norm is at most 1. With
noise of ``sigma_g C`` on gradients and ``sigma_t sqrt(A)`` on tables, a step is one
Gaussian mechanism on a Poisson sample: measured in its noise, it moves by at most
``sqrt(1 / sigma_g**2 + 1 / sigma_t**2) = 1 / sigma`` with a row. The accountant is told
of ``sigma`` at each step, and of the counts once, at sample rate 1.

Classes, groups, the number of rows and the encoding of features count as public, and
two data sets as neighbours if one has a row more, as in Opacus. The value of the loss
has no noise and is not released: do not publish it.
"""

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fferm._typing import Table
from fferm.data.group_counts import GroupCounts
from fferm.data.groups import GroupMode
from fferm.data.validate import POSITIVE, Number, check_params
from fferm.divergences import Divergence
from fferm.errors import (
    DataFairnessWarning,
    InvalidInputError,
    InvalidParameterError,
    import_extra,
    muted,
)
from fferm.notions import Notion
from fferm.torch import DualSteps, FairnessLoss
from fferm.torch.distributed import rank_and_size
from fferm.torch.reader import BatchRows, plain

if TYPE_CHECKING:
    from torch import Tensor

torch: Any = import_extra("torch", "torch", __name__)
accountants: Any = import_extra("opacus.accountants", "opacus", __name__)

# How closely an epsilon is met, relative to it.
TOLERANCE = 1e-3
LARGEST_NOISE = 1e6
SHARE = Number(high=1, open_low=True, open_high=True)


class PrivateFairnessLoss(FairnessLoss):
    """A `FairnessLoss` that knows the rows by noisy counts and noisy tables only.

    Make one with `from_noisy_counts`, then model, optimizer and loader with
    `make_private`. Call the loss once between two steps of the optimizer, which moves
    the dual. What `diagnostics` says and the ``state_dict`` are private too.
    """

    engine: Any
    noise = math.inf
    _table: "Tensor | None" = None

    @classmethod
    def from_noisy_counts(
        cls,
        engine: Any,
        y: Table,
        sensitive_features: Table,
        *,
        count_noise: float = 30.0,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        sharpness: float = 1.0,
        groups: GroupMode = "intersection",
        dual_steps: DualSteps | None = None,
    ) -> Self:
        """Return the loss for training data, and tell the engine of the counts.

        Parameters
        ----------
        engine
            An ``opacus.PrivacyEngine``.
        y, sensitive_features
            Labels and groups of all training rows. A column of many numbers is not cut
            into bands, which would show where they lie.
        count_noise
            The standard deviation of the noise of a count, in rows.
        divergence, notion, sharpness, groups, dual_steps
            As in `FairnessLoss.from_labels`.
        """
        check_params({"count_noise": count_noise}, {"count_noise": POSITIVE})
        counts = GroupCounts()
        counts.update(sensitive_features=plain(sensitive_features), y=plain(y))
        values = zip(*(values for _, values in counts.cells), strict=True)
        known = [sorted({*column, None}, key=str) for column in values]
        cells = [*itertools.product(counts.labels, itertools.product(*known))]
        exact = torch.tensor([counts.cells.get(c, 0.0) for c in cells]).double()
        noisy = _add_noise(exact, count_noise, engine.secure_rng)
        engine.accountant.step(noise_multiplier=count_noise, sample_rate=1.0)
        labels, groups_of = zip(*cells, strict=True)
        columns = zip(counts.columns or (), zip(*groups_of, strict=True), strict=True)
        with muted(DataFairnessWarning):  # of cells, each of which is many rows
            loss = cls.from_labels(
                np.array(labels),
                {name: list(column) for name, column in columns},
                divergence=divergence,
                notion=notion,
                sharpness=sharpness,
                groups=groups,
                sample_weight=noisy.clamp_min(1.0),
                dual_steps=dual_steps,
            )
        loss.engine = engine
        return loss

    def make_private(
        self,
        *,
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        table_share: float = 0.1,
        **options: Any,
    ) -> tuple[Any, Any, Iterable[Any]]:
        """Return model, optimizer and loader for private training with this loss.

        Parameters
        ----------
        target_epsilon, target_delta
            What the accountant says at most after all epochs, counts included.
        epochs
            Passes over the loader.
        table_share
            Of the privacy of a step: what goes to the table, not to the gradients.
        **options
            Of ``PrivacyEngine.make_private``, without ``noise_multiplier``.
        """
        check_params(
            {"target_epsilon": target_epsilon, "table_share": table_share},
            {"target_epsilon": POSITIVE, "table_share": SHARE},
        )
        if rank_and_size()[1] > 1:
            raise InvalidParameterError(
                "A private loss trains on one process; got a run of several."
            )
        rate = 1 / len(options["data_loader"])
        steps = round(epochs / rate)
        sigma = self._noise_for(target_epsilon, target_delta, rate, steps)
        share = math.sqrt(table_share)
        self.noise = sigma / share * math.sqrt(len(self.reader.ends) - 1)
        model, optimizer, loader = self.engine.make_private(
            noise_multiplier=sigma / math.sqrt(1 - table_share), **options
        )

        def release(optimizer: Any) -> None:
            self._release(optimizer)
            self.engine.accountant.step(noise_multiplier=sigma, sample_rate=rate)

        optimizer.attach_step_hook(release)
        return model, optimizer, loader

    def _noise_for(
        self, epsilon: float, delta: float, rate: float, steps: int
    ) -> float:
        # The smallest noise of a step that keeps the target beside what was released.
        before = self.engine.accountant
        accountant = accountants.create_accountant(before.mechanism())

        def spent(sigma: float) -> float:
            accountant.history = [*before.history, (sigma, rate, steps)]
            return float(accountant.get_epsilon(delta))

        low, high = 0.0, 1.0
        while spent(high) > epsilon:
            low, high = high, 2 * high
            if high > LARGEST_NOISE:
                raise InvalidParameterError(
                    f"target_epsilon={epsilon} is spent by the counts. Raise it, or "
                    "the count_noise of from_noisy_counts."
                )
        while high - low > TOLERANCE * high:
            middle = (low + high) / 2
            low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
        return high

    def _fused(self, *args: Any, **kwargs: Any) -> None:
        """Move no dual within a kernel."""

    def _observe(self, rows: BatchRows) -> None:
        if self._table is not None or rows.weight is not None:
            raise InvalidInputError(
                "A private loss is called once between two steps of the optimizer, "
                "without sample_weight."
            )
        self._table = rows.mass(self.reader.shape)

    def _release(self, optimizer: Any) -> None:
        # Add the noise, and move the dual by what comes out.
        if self._table is None:
            return
        table = _add_noise(self._table, self.noise, optimizer.generator)
        self._table = None
        n_rows = torch.full_like(self.n_seen, optimizer.expected_batch_size)
        self.seen.add_(table).clamp_(min=0)
        self.n_seen += n_rows
        self.dual.observe(table, n_rows, torch.ones_like(n_rows))


def _add_noise(table: "Tensor", scale: float, generator: Any) -> "Tensor":
    noise: Tensor = torch.empty_like(table).normal_(0, scale, generator=generator)
    return table + noise
