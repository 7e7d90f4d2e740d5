"""The fairness loss of a critic, for predictions or attributes that are numbers."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from fferm._typing import Table
from fferm.divergences import Divergence, strip
from fferm.errors import InvalidParameterError
from fferm.notions import Notion
from fferm.penalty.dual import dual_variable
from fferm.penalty.objective import make_objective
from fferm.torch.critic import Critic
from fferm.torch.critic_rows import CriticRows, read_sides
from fferm.torch.fairness_loss import keep_precision
from fferm.torch.outputs import Outputs
from fferm.torch.pairs import Sampling, check_sampling, pair_weights

# The norm of a critic's gradient beyond which it is cut: the charge of a steep
# divergence grows exponentially, and one step too far would throw the critic away.
LARGEST_SLOPE = 1.0


class CriticFairnessLoss(nn.Module):
    r"""The fairness penalty of a batch by a critic, to be added to any loss.

    With a discrete sensitive attribute of group weights :math:`\pi_k`,

    .. math:: \frac1b \sum_i \Big[A_{s_i}(u_i) - \sum_k \pi_k f^*(A_k(u_i))\Big]

    and with a continuous one the second mean is over pairs of different rows, see
    `fferm.torch.pairs`. At any fixed critic its value and its gradients are unbiased;
    its largest value over all critics is the divergence. Make one with
    `CriticFairnessLoss.from_labels`; it is called as `FairnessLoss` is.

    The critic ascends by itself, by steps of Adam, after each call in training mode
    with gradients on. Your optimizer leaves it alone.

    Parameters
    ----------
    rows
        Reads batches.
    critic
        The dual.
    scale
        Factor of the divergence.
    sampling, learning_rate, n_ascents
        As in `from_labels`.

    Examples
    --------
    >>> y, s = torch.randn(100), torch.randn(100)
    >>> fair = CriticFairnessLoss.from_labels(y, s, divergence="kl")
    >>> prediction = torch.zeros(10, requires_grad=True)
    >>> loss = ((prediction - y[:10]) ** 2).mean() + fair(prediction, s[:10])
    >>> loss.backward()
    """

    def __init__(
        self,
        rows: CriticRows,
        critic: Critic,
        scale: float,
        sampling: Sampling,
        learning_rate: float,
        n_ascents: int,
    ) -> None:
        super().__init__()
        self.rows = rows
        self.critic = critic
        self.scale = scale
        self.sampling = sampling
        self.n_ascents = n_ascents
        self._ascent = torch.optim.Adam(
            critic.parameters(), lr=learning_rate, maximize=True
        )

    @classmethod
    def from_labels(
        cls,
        y: Table,
        sensitive_features: Table,
        *,
        divergence: str | Divergence = "kl",
        notion: str | Notion = "demographic_parity",
        classes: Sequence[object] | None = None,
        sample_weight: Table = None,
        outputs: Outputs = "auto",
        continuous: Sequence[str] | str = "auto",
        sampling: Sampling = "epochs",
        width: int = 32,
        rank: int = 16,
        learning_rate: float = 0.03,
        n_ascents: int = 1,
        random_state: int = 0,
    ) -> Self:
        """Return the loss for training data with these labels.

        Parameters
        ----------
        y, divergence, notion, classes, sample_weight, outputs
            As in `FairnessLoss.from_labels`.
        sensitive_features
            One column or several, which count together; each a set of groups or
            numbers. A row with a missing value takes no part in the penalty.
        continuous
            Names of the columns that are numbers; ``"auto"``: those with more than 20
            different fractional values.
        sampling
            ``"epochs"``: batches hold no row twice, as of a shuffled loader.
            ``"independent"``: rows are drawn with replacement.
        width, rank
            Hidden units of the critic's networks, and features that they end in.
        learning_rate, n_ascents
            Of the critic: Adam's step, and steps a call.
        random_state
            Seed of the critic's first parameters.
        """
        check_sampling(sampling)
        objective = make_objective(divergence, notion)
        if not objective.has_linear_dual:
            raise InvalidParameterError(
                f"The dual of {objective.notion.name} is not linear in the predictions,"
                " so no batch is right alone. Use SemiStochasticFairnessLoss."
            )
        rows = read_sides(
            y,
            sensitive_features,
            objective.notion,
            classes,
            sample_weight,
            outputs,
            continuous,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_state)
            left, right = (
                [side.features(width, rank) for _ in range(rows.n_strata)]
                for side in (rows.prediction, rows.attribute)
            )
        critic = Critic(left, right, dual_variable(objective.divergence))
        scale = strip(objective.divergence)[1]
        return cls(rows, critic, scale, sampling, learning_rate, n_ascents)

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        *,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of a batch, a number to be added to the loss.

        Parameters
        ----------
        output
            (n,) predicted numbers, or logits or probabilities of classes.
        sensitive
            The values of the sensitive columns, as given to `from_labels`, or as
            `encode` makes them: once, before training.
        y, control, sample_weight
            As in `FairnessLoss`.
        """
        side = self.rows.prediction.read(output)
        s, is_known = self.rows.attribute.known(
            self.encode(sensitive).to(output.device)
        )
        stratum, weight = self.rows.places(len(side), y, control, sample_weight)
        stratum, weight = stratum.to(output.device), weight.to(output.device)
        weight = torch.where(is_known, weight, 0.0)
        # Copies, for the critic moves before the model's gradient is computed.
        frozen = {k: v.detach().clone() for k, v in self.critic.named_parameters()}

        def held(r: int, u: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor]:
            pair: tuple[Tensor, Tensor] = torch.func.functional_call(
                self.critic, frozen, (r, u, v)
            )
            return pair

        value = self._value(held, side, s, stratum, weight)
        if self.training and torch.is_grad_enabled():
            for _ in range(self.n_ascents):
                self._ascend(side.detach(), s, stratum, weight)
        return value.to(output.dtype)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as `forward` takes them: once, before training."""
        return self.rows.attribute.encode(sensitive_features)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the ascent, part of the ``state_dict``."""
        return self._ascent.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with an ascent."""
        self._ascent.load_state_dict(state)

    def extra_repr(self) -> str:
        """Return what `repr` says first."""
        return f"{self.critic.kind.divergence!r}, n_strata={self.rows.n_strata}"

    def critic_gradient(
        self, side: Tensor, s: Tensor, stratum: Tensor, weight: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient of the value by the critic's parameters."""
        with torch.enable_grad():
            value = self._value(self.critic, side, s, stratum, weight)
            return torch.autograd.grad(value, list(self.critic.parameters()))

    def _ascend(self, side: Tensor, s: Tensor, stratum: Tensor, weight: Tensor) -> None:
        slopes = self.critic_gradient(side, s, stratum, weight)
        if not all(bool(torch.isfinite(slope).all()) for slope in slopes):
            return  # a batch that is not finite moves nothing
        for parameter, slope in zip(self.critic.parameters(), slopes, strict=True):
            parameter.grad = slope
        nn.utils.clip_grad_norm_(self.critic.parameters(), LARGEST_SLOPE)
        self._ascent.step()
        for parameter in self.critic.parameters():
            parameter.grad = None

    def _value(
        self,
        critic: Callable[[int, Tensor | None, Tensor | None], tuple[Tensor, Tensor]],
        side: Tensor,
        s: Tensor,
        stratum: Tensor,
        weight: Tensor,
    ) -> Tensor:
        value = side.new_zeros((), dtype=torch.float64)
        n = len(side)
        pairs = None
        if not self.rows.attribute.is_discrete:
            pairs = pair_weights(n, self.rows.n_rows, self.sampling).to(side.device)
        for r, factor in enumerate(self.rows.factor):
            inside = torch.where(stratum == r, weight, 0.0)
            share = self.rows.share[r]
            joint, product = self._parts(critic, r, side, s)
            value = value + factor * (inside @ joint) / n
            if pairs is None:
                value = value - factor * (inside @ (product @ self.rows.prior[r])) / n
            else:
                both = pairs * inside[:, None] * inside[None, :] / share
                value = value - factor * (both * product).sum()
        return self.scale * value

    def _parts(
        self,
        critic: Callable[[int, Tensor | None, Tensor | None], tuple[Tensor, Tensor]],
        r: int,
        side: Tensor,
        s: Tensor,
    ) -> tuple[Tensor, Tensor]:
        # A of each row's own pair, and C of each row's prediction with the attribute of
        # every row, or with every group.
        prediction, attribute = self.rows.prediction, self.rows.attribute
        u = None if prediction.is_discrete else side[:, None]
        dual, charge = critic(r, u, None if attribute.is_discrete else s)
        if prediction.is_discrete:  # (b, m) shares of classes
            dual, charge = side.double() @ dual, side.double() @ charge
        if attribute.is_discrete:
            return dual.gather(1, s.long()[:, None])[:, 0], charge
        return dual.diagonal(), charge

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self
