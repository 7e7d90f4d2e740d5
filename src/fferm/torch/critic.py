r"""Critics: a dual that is a function, for what no table holds.

The dual variable of a prediction :math:`u` and a sensitive value :math:`s` is

.. math:: z(u, s) = L \tanh\Big(\frac1{mL} \sum_{j=1}^m a_j(u) \, b_j(s)\Big)

the mean product of a few features of each side. Classes and groups have a row of a
table for their features, numbers a small network. If both sides are discrete and there
are as many features as groups, this is any table: the dual of `fferm.torch.losses`.
With ``A = f'(e^z)`` and ``C = f*(A)``, the value of a critic is

.. math:: E_{P(u, s)}[A] - E_{P(u) P(s)}[C] \le D_f

and the largest value is the divergence. :math:`L` is the box of the dual, which keeps
one unusual row from dominating.

The product term is a mean over all pairs of training rows,
:math:`\frac1{n^2} \sum_{i i'} c(i, i')`. Of the pairs within a batch, those of two
different rows are right for rows drawn independently of each other. A batch of an epoch
draws without replacement: there a row meets itself once in n times, so

.. math:: \frac{n-1}{n} \, \overline{c}_{i \ne i'} + \frac1n \, \overline{c}_{i = i'}

To take all pairs of the batch is biased in both cases: a row meets itself once in b
times, and its joint and product are then the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    Binning,
    column_kind,
    encode_column,
    partition,
    read_numbers,
    split_columns,
)
from fferm.data.validate import COUNT, OneOf, check_params, encode_weight
from fferm.divergences import Divergence, strip
from fferm.errors import (
    InvalidInputError,
    MissingGroupWarning,
    warn_user,
)
from fferm.notions import Labels, Notion, Strata
from fferm.penalty.dual import DualVariable, dual_variable
from fferm.torch.losses import TORCH, keep_precision, linear_objective
from fferm.torch.reader import (
    LabelReader,
    Outputs,
    as_numbers,
    check_numeric_notion,
    count_rows,
    penalized_prob,
    plain,
    read_classes,
    read_outputs,
    split_like_training,
    with_control,
)

Sampling = Literal["epochs", "independent"]
# The norm of a critic's gradient beyond which it is cut: the conjugate of a steep
# divergence grows exponentially, and one step too far would throw the critic away.
LARGEST_SLOPE = 1.0


class Standardised(nn.Module):
    """Layers in double precision on numbers, which are standardised first.

    Parameters
    ----------
    centre, scale
        (q,) of each column.
    layers
        What sees the standardised numbers.
    """

    def __init__(self, centre: Tensor, scale: Tensor, *layers: nn.Module) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.layers = nn.Sequential(*layers).double()

    centre: Tensor
    scale: Tensor

    def forward(self, values: Tensor) -> Tensor:
        """Return the outputs for (n, q) numbers."""
        output: Tensor = self.layers((values.double() - self.centre) / self.scale)
        return output


class GroupFeatures(nn.Module):
    """A row of features for each of some classes or groups."""

    def __init__(self, n_groups: int, rank: int) -> None:
        super().__init__()
        table = torch.eye(n_groups, rank, dtype=torch.float64)
        if n_groups > rank:
            extra = torch.randn(n_groups - rank, rank, dtype=torch.float64)
            table[rank:] = extra / rank**0.5
        self.table = nn.Parameter(table)

    def forward(self) -> Tensor:
        """Return the (n_groups, rank) features."""
        return self.table


class Critic(nn.Module):
    """The dual variable of every pair of a prediction and a sensitive value.

    Parameters
    ----------
    left, right
        Features of predictions and of sensitive values, one pair of them a stratum.
    kind
        What the variable is: a log-ratio as a rule.
    """

    def __init__(
        self, left: list[nn.Module], right: list[nn.Module], kind: DualVariable
    ) -> None:
        super().__init__()
        self.left = nn.ModuleList(left)
        self.right = nn.ModuleList(right)
        self.kind = kind
        self.limit = -kind.lower
        # At 0 the value is 0, the dual of independence; the other side's features are
        # not 0, so that gradients do not vanish here.
        for side in right:
            last = side.layers[-1] if isinstance(side, Standardised) else side
            for parameter in last.parameters():
                nn.init.zeros_(parameter)

    def forward(
        self, stratum: int, u: Tensor | None, s: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return A and C of each pair, (predictions x sensitive values).

        None stands for all classes, or for all groups.
        """
        a = self.left[stratum]() if u is None else self.left[stratum](u)
        b = self.right[stratum]() if s is None else self.right[stratum](s)
        variable = self.limit * torch.tanh(a @ b.T / (a.shape[1] * self.limit))
        dual, conjugate = self.kind.dual_and_conjugate(variable, TORCH)
        return dual, conjugate


@dataclass(frozen=True)
class Side:
    """What a critic compares: groups, or numbers.

    Attributes
    ----------
    n_groups
        0 for numbers.
    centre, scale
        (q,) of the numbers, one-hot groups included.
    """

    n_groups: int
    centre: FloatArray
    scale: FloatArray

    @property
    def is_discrete(self) -> bool:
        """Whether there are groups, and no numbers."""
        return self.n_groups > 0

    def features(self, width: int, rank: int) -> nn.Module:
        """Return new features of this side, from hidden layers of some width."""
        if self.is_discrete:
            return GroupFeatures(self.n_groups, rank)
        return Standardised(
            torch.from_numpy(self.centre),
            torch.from_numpy(self.scale),
            nn.Linear(self.centre.size, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, rank),
        )


@dataclass(frozen=True)
class Prediction(Side):
    """The side of predictions: shares of classes, or numbers.

    Attributes
    ----------
    n_groups, centre, scale
        As in `Side`; classes are its groups.
    outputs
        What the loss is called with.
    """

    outputs: Outputs

    def read(self, output: Tensor) -> Tensor:
        """Return (n, n_classes) probabilities, or (n,) numbers."""
        if not self.is_discrete:
            return as_numbers(output)
        is_here = isinstance(output, Tensor) and output.device.type == "cpu"
        check = is_here and not torch.compiler.is_compiling()
        return penalized_prob(output, self.n_groups, 1.0, self.outputs, check)


@dataclass(frozen=True)
class Attribute(Side):
    """The side of sensitive values: groups, or numbers and groups as columns.

    Attributes
    ----------
    n_groups, centre, scale
        As in `Side`.
    columns
        Each with its groups; None where it is numbers.
    groups
        Of the intersection, where all columns are discrete, else empty.
    """

    columns: tuple[tuple[str, tuple[str, ...] | None], ...]
    groups: tuple[str, ...]

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return (n,) group codes, or (n, q) numbers; -1 or NaN where missing."""
        width = self.centre.size
        if isinstance(sensitive_features, Tensor):
            table = sensitive_features
            if self.is_discrete and not table.is_floating_point() and table.dim() == 1:
                return table
            if not self.is_discrete and table.dim() == 2 and table.shape[1] == width:
                return table.double()
        values = split_like_training(sensitive_features, len(self.columns))
        if not self.is_discrete:
            return torch.from_numpy(_numbers(self.columns, values))
        names = _joined([name for name, _ in self.columns], values)
        _check_seen("sensitive_features", names, self.groups)
        return torch.from_numpy(_codes(self.groups, names))

    def known(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return encoded values with gaps filled, and (n,) whether there were none."""
        if self.is_discrete:
            return s.clamp(min=0), s >= 0
        return s.nan_to_num(), ~s.isnan().any(dim=1)


class CriticReader(LabelReader):
    """Reads batches of both sides, and knows the constants of the training data.

    Attributes
    ----------
    prediction, attribute
        The two sides.
    n_rows
        Of the training data.
    share, factor
        (R,) share of each stratum, and ``w_r / rho_r``.
    prior
        (R, K) group weights in each stratum; empty for numbers.
    """

    def __init__(
        self,
        y: Table,
        sensitive_features: Table,
        notion: Notion,
        *,
        classes: Sequence[object] | None,
        sample_weight: Table,
        outputs: Outputs,
        continuous: Sequence[str] | str,
    ) -> None:
        sensitive_features = plain(sensitive_features)
        n_rows = count_rows(sensitive_features)
        weight = encode_weight(plain(sample_weight), n_rows)
        prediction, labels = _read_prediction(
            y, read_outputs(y, outputs), classes, n_rows
        )
        if not prediction.is_discrete:
            check_numeric_notion(notion)
        labels = with_control(labels, notion)
        strata = notion.strata(labels)
        # Names of classes stand for the outputs where the strata do not look at labels.
        labels = replace(labels, classes=labels.classes or ("0", "1"))
        super().__init__(labels, notion, strata, float(weight.mean()))
        self.prediction, self.n_rows = prediction, n_rows
        self.attribute, code = _read_attribute(sensitive_features, n_rows, continuous)
        is_known = _is_known(code)
        if not is_known.all():
            names = " × ".join(name for name, _ in self.attribute.columns)
            warn_user(
                f"{int(np.sum(~is_known))} of {n_rows} rows have no value of {names}. "
                "They are left out of the penalty.",
                MissingGroupWarning,
            )
        # Rows without a value are part of the batches, and of no mean.
        counted, total = np.where(is_known, weight, 0.0), float(weight.sum())
        n_groups = self.attribute.n_groups
        share, factor, prior = _weights(notion, strata, counted, total, code, n_groups)
        self.share, self.factor = share.tolist(), factor.tolist()
        self.register_buffer("prior", torch.from_numpy(prior))

    prior: Tensor

    def places(
        self, side: Tensor, y: Table, control: Table, sample_weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return (n,) strata, and weights of mean 1 over the training rows."""
        stratum = self.strata(y, control, side)
        if sample_weight is None:
            return stratum, side.new_ones(len(side), dtype=torch.float64)
        return stratum, self.weights(sample_weight, len(side)).to(side.device)


class CriticFairnessLoss(nn.Module):
    r"""The fairness penalty of a batch by a critic, to be added to any loss.

    With a discrete sensitive attribute of group weights :math:`\pi_k`,

    .. math:: \frac1b \sum_i \Big[A_{s_i}(u_i) - \sum_k \pi_k f^*(A_k(u_i))\Big]

    and with a continuous one the second mean is over pairs of different rows. At any
    fixed critic its value and its gradients are unbiased;
    its largest value over all critics is the divergence. Make one with
    `CriticFairnessLoss.from_labels`; it is called as `FairnessLoss` is.

    The critic ascends by itself, by steps of Adam, after each call in training mode
    with gradients on. Your optimizer leaves it alone.

    Parameters
    ----------
    reader
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
        reader: CriticReader,
        critic: Critic,
        scale: float,
        sampling: Sampling,
        learning_rate: float,
        n_ascents: int,
    ) -> None:
        super().__init__()
        self.reader = reader
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
        check_params(
            {"sampling": sampling, "n_ascents": n_ascents},
            {"sampling": OneOf(("epochs", "independent")), "n_ascents": COUNT},
        )
        objective = linear_objective(divergence, notion)
        reader = CriticReader(
            y,
            sensitive_features,
            objective.notion,
            classes=classes,
            sample_weight=sample_weight,
            outputs=outputs,
            continuous=continuous,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_state)
            left, right = (
                [side.features(width, rank) for _ in reader.strata_names]
                for side in (reader.prediction, reader.attribute)
            )
        critic = Critic(left, right, dual_variable(objective.divergence))
        scale = strip(objective.divergence)[1]
        return cls(reader, critic, scale, sampling, learning_rate, n_ascents)

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
        reader = self.reader
        side = reader.prediction.read(output)
        encoded = self.encode(sensitive).to(output.device)
        s, is_known = reader.attribute.known(encoded)
        stratum, weight = reader.places(side, y, control, sample_weight)
        weight = torch.where(is_known, weight, 0.0)
        # Copies, because the critic moves before the model's gradient is computed.
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
        return self.reader.attribute.encode(sensitive_features)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the ascent, part of the ``state_dict``."""
        return self._ascent.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with an ascent."""
        self._ascent.load_state_dict(state)

    def extra_repr(self) -> str:
        """Return what `repr` says first."""
        return f"{self.critic.kind.divergence!r}, n_strata={len(self.reader.factor)}"

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
        if not self.reader.attribute.is_discrete:
            pairs = pair_weights(n, self.reader.n_rows, self.sampling).to(side.device)
        for r, factor in enumerate(self.reader.factor):
            inside = torch.where(stratum == r, weight, 0.0)
            share = self.reader.share[r]
            joint, product = self._parts(critic, r, side, s)
            value = value + factor * (inside @ joint) / n
            if pairs is None:
                value = value - factor * (inside @ (product @ self.reader.prior[r])) / n
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
        prediction, attribute = self.reader.prediction, self.reader.attribute
        u = None if prediction.is_discrete else side[:, None]
        dual, conjugate = critic(r, u, None if attribute.is_discrete else s)
        if prediction.is_discrete:  # (b, m) shares of classes
            dual, conjugate = side.double() @ dual, side.double() @ conjugate
        if attribute.is_discrete:
            return dual.gather(1, s.long()[:, None])[:, 0], conjugate
        return dual.diagonal(), conjugate

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(keep_precision(fn), recurse)  # type: ignore[no-untyped-call]
        return self


def pair_weights(n_batch: int, n_total: int, sampling: Sampling) -> Tensor:
    """Return the (b, b) weights that pairs of a batch have in the mean over all pairs.

    Parameters
    ----------
    n_batch
        Rows in the batch.
    n_total
        Rows of the training data.
    sampling
        How the batch was drawn.
    """
    if n_batch < 2 and n_total > 1:
        raise InvalidInputError(
            "A continuous sensitive attribute is compared over pairs of rows, so it "
            "needs batches of at least 2 rows; got 1."
        )
    same = torch.eye(n_batch, dtype=torch.float64)
    if n_total == 1:
        return same
    apart = (1 - same) / (n_batch * (n_batch - 1))
    if sampling == "independent":
        return apart
    return (n_total - 1) / n_total * apart + same / (n_batch * n_total)


def _weights(
    notion: Notion,
    strata: Strata,
    weight: FloatArray,
    total: float,
    code: Table,
    n_groups: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    # Share of each stratum, w_r / rho_r, and the weights of groups within each.
    n_strata = len(strata.names)
    mass = np.array([weight[strata.code == r].sum() for r in range(n_strata)])
    share, safe = mass / total, np.where(mass > 0, mass, 1.0)
    factor = (mass > 0) * total / safe
    if notion.weighting == "frequency":
        factor = (mass > 0) / share.sum()
    prior = np.zeros((n_strata, n_groups))
    for r in range(n_strata if n_groups else 0):
        inside = (strata.code == r) & (code >= 0)
        prior[r] = np.bincount(code[inside], weight[inside], n_groups) / safe[r]
    return share, np.asarray(factor, dtype=np.float64), prior


def _read_prediction(
    y: Table, outputs: Outputs, classes: Sequence[object] | None, n_rows: int
) -> tuple[Prediction, Labels]:
    centre, scale = np.zeros(1), np.ones(1)
    if outputs != "numbers":
        labels = read_classes(plain(y), n_rows, classes)
        return Prediction(len(labels.classes), centre, scale, outputs), labels
    if y is not None:
        values = np.asarray(plain(y), dtype=np.float64)
        # Single precision is enough to standardise by.
        both = np.array([[values.mean()], [values.std() or 1.0]], dtype=np.float32)
        centre, scale = both.astype(np.float64)
    return Prediction(0, centre, scale, outputs), Labels(n_rows)


def _read_attribute(
    sensitive_features: Table, n_rows: int, continuous: Sequence[str] | str
) -> tuple[Attribute, Table]:
    parts = split_columns(sensitive_features)
    names, values = [name for name, _ in parts], [part for _, part in parts]
    Binning(continuous).check(names)
    columns: list[tuple[str, tuple[str, ...] | None]] = []
    for name, part in parts:
        is_number = name in continuous
        if continuous == "auto":
            is_number = column_kind(pd.Series(np.asarray(part))) == "continuous"
        groups = None if is_number else encode_column(part, name, n_rows).groups
        columns.append((name, groups))
    if all(groups is not None for _, groups in columns):
        joined = _joined(names, values)
        distinct = tuple(sorted({name for name in joined if name is not None}))
        none = np.zeros(0)
        side = Attribute(len(distinct), none, none, tuple(columns), distinct)
        return side, _codes(distinct, joined)
    table = _numbers(columns, values)
    whole = table[_is_known(table)]
    if len(whole) == 0:
        raise InvalidInputError(
            f"No row has a value in each of {', '.join(names)}. Check how "
            "sensitive_features was read."
        )
    deviation = whole.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return Attribute(0, whole.mean(axis=0), scale, tuple(columns), ()), table


def _is_known(values: Table) -> NDArray[np.bool_]:
    # Of group codes, or of rows of numbers.
    if values.ndim == 1:
        return np.asarray(values >= 0)
    return np.asarray(~np.isnan(values).any(axis=1))


def _codes(groups: Sequence[str], names: Sequence[str | None]) -> IntArray:
    position: dict[str | None, int] = {group: k for k, group in enumerate(groups)}
    return np.array([position.get(name, -1) for name in names], dtype=np.int64)


def _joined(names: Sequence[str], values: Sequence[Table]) -> list[str | None]:
    columns = [
        encode_column(part, name, len(part))
        for name, part in zip(names, values, strict=True)
    ]
    (joint,) = partition(columns, "intersection")
    return [*map([*joint.groups, None].__getitem__, joint.code)]


def _numbers(
    columns: Sequence[tuple[str, tuple[str, ...] | None]], values: Sequence[Table]
) -> FloatArray:
    # One column of numbers, or one-hot groups, for each sensitive column.
    parts = []
    for (name, groups), part in zip(columns, values, strict=True):
        if groups is None:
            parts.append(read_numbers(pd.Series(np.asarray(part)), name)[:, None])
            continue
        column = encode_column(part, name, len(part))
        _check_seen(name, column.groups, groups)
        one_hot = np.vstack([np.eye(len(groups)), np.full(len(groups), np.nan)])
        place = np.array([*(groups.index(group) for group in column.groups), -1])
        parts.append(one_hot[place[column.code]])
    return np.concatenate(parts, axis=1)


def _check_seen(name: str, groups: Sequence[str | None], known: Sequence[str]) -> None:
    unseen = sorted({group for group in groups if group} - set(known))
    if unseen:
        raise InvalidInputError(
            f"{name} contains {unseen[0]!r}, which is not in the training data. Pass "
            f"one of {', '.join(known)}."
        )
