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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from fferm._typing import FloatArray, IntArray, Table
from fferm.data.groups import (
    Attribute,
    Binning,
    column_kind,
    encode_column,
    number_cells,
    read_numbers,
    read_series,
    split_columns,
)
from fferm.data.rows import Rows
from fferm.data.validate import COUNT, OneOf, check_params, encode_weight
from fferm.divergences import Divergence, strip
from fferm.errors import (
    FfermWarning,
    InvalidInputError,
    MissingGroupWarning,
    muted,
    warn_user,
)
from fferm.notions import ConditionalParity, Notion
from fferm.penalty.dual import DualVariable, dual_variable, group_weights
from fferm.penalty.objective import Objective
from fferm.torch.losses import TORCH, BatchPenalty, linear_objective
from fferm.torch.networks import seeded
from fferm.torch.reader import (
    LabelReader,
    Outputs,
    as_numbers,
    check_numeric_notion,
    count_rows,
    penalized_prob,
    plain,
    positions,
    read_labels,
    read_outputs,
    split_like_training,
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


def make_features(
    side: tuple[int, FloatArray, FloatArray], width: int, rank: int
) -> nn.Module:
    """Return new features of one side: a row for each class or group, or a network.

    Parameters
    ----------
    side
        How many groups, 0 for numbers; (q,) centre and scale of the numbers, one-hot
        groups included.
    width, rank
        Of hidden layers, and of the features.
    """
    n_groups, centre, scale = side
    if n_groups:
        table = torch.eye(n_groups, rank, dtype=torch.float64)
        if n_groups > rank:
            extra = torch.randn(n_groups - rank, rank, dtype=torch.float64)
            table[rank:] = extra / rank**0.5
        return nn.Embedding(n_groups, rank, _weight=table)
    first, second = nn.Linear(centre.size, width), nn.Linear(width, width)
    layers = first, nn.Tanh(), second, nn.Tanh(), nn.Linear(width, rank)
    return Standardised(torch.from_numpy(centre), torch.from_numpy(scale), *layers)


class Critic(nn.Module):
    """The dual variable of every pair of a prediction and a sensitive value.

    Parameters
    ----------
    left, right
        Features of predictions and of sensitive values, one pair of them a stratum.
    kind
        What the variable is: a log-ratio as a rule.
    """

    def __init__(self, left: list[Any], right: list[Any], kind: DualVariable) -> None:
        super().__init__()
        self.left, self.right = nn.ModuleList(left), nn.ModuleList(right)
        self.kind, self.limit = kind, -kind.lower
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
        sides: Any = (self.left[stratum], u), (self.right[stratum], s)
        a, b = (side.weight if x is None else side(x) for side, x in sides)
        variable = self.limit * torch.tanh(a @ b.T / (a.shape[1] * self.limit))
        dual, conjugate = self.kind.dual_and_conjugate(variable, TORCH)
        return dual, conjugate


class CriticReader(LabelReader):
    """Reads batches of both sides, and knows the constants of the training data.

    Attributes
    ----------
    n_classes, n_groups
        Of predictions and of sensitive values, 0 where they are numbers.
    sides
        What `make_features` takes, for both.
    n_rows
        Of the training data.
    share, factor
        (R,) ``1 / rho_r`` and ``w_r / rho_r`` of each stratum.
    prior
        (R, K) group weights in each stratum; one group for numbers.
    """

    def __init__(
        self,
        y: Table,
        sensitive_features: Table,
        notion: Notion,
        classes: Sequence[object] | None,
        sample_weight: Table,
        outputs: Outputs,
        continuous: Sequence[str] | str,
    ) -> None:
        outputs, sensitive = read_outputs(y, outputs), plain(sensitive_features)
        n_rows = count_rows(sensitive)
        weight = encode_weight(plain(sample_weight), n_rows)
        centre, scale = np.zeros(1), np.ones(1)
        if outputs == "numbers":
            check_numeric_notion(notion)
            if y is not None:
                values = np.asarray(plain(y), dtype=np.float64)
                # Single precision is enough to standardise by.
                both = [[values.mean()], [values.std() or 1.0]]
                centre, scale = np.array(both, dtype=np.float32).astype(np.float64)
            y, classes = None, ()
        labels = read_labels(plain(y), n_rows, classes, notion)
        n_classes = len(labels.classes)
        strata = notion.strata(labels)
        # Names of classes stand for the outputs where the strata do not look at labels.
        labels = replace(labels, classes=labels.classes or ("0", "1"))
        super().__init__(labels, notion, strata, float(weight.mean()))
        self.outputs, self.n_classes, self.n_rows = outputs, n_classes, n_rows
        s, is_known = self._read_columns(sensitive, n_rows, continuous)
        numbers = np.zeros((1, 0)) if self.n_groups else s[is_known]
        mean, deviation = numbers.mean(axis=0), numbers.std(axis=0)
        spread = np.where(deviation > 0, deviation, 1.0)
        self.sides = (n_classes, centre, scale), (self.n_groups, mean, spread)
        code = np.where(is_known, s if self.n_groups else 0, -1)
        groups = tuple(map(str, range(self.n_groups or 1)))
        rows = Rows((Attribute("group", groups, code),), strata, weight)
        weights = group_weights(rows, notion.weighting)
        self.share, self.factor = weights.share[:, 0], weights.factor[:, 0]
        self.register_buffer("prior", torch.from_numpy(weights.prior))

    prior: Tensor

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return (n,) group codes, or (n, q) numbers; -1 or NaN where missing."""
        table, width = sensitive_features, self.sides[1][1].size
        if isinstance(table, Tensor) and self.n_groups:
            if not table.is_floating_point() and table.dim() == 1:
                return table
        elif isinstance(table, Tensor) and table.dim() == 2 and table.shape[1] == width:
            return table.double()
        parts = split_like_training(sensitive_features, len(self.columns))
        return torch.from_numpy(self._encode(parts))

    def _read_columns(
        self, sensitive_features: Table, n_rows: int, continuous: Sequence[str] | str
    ) -> tuple[Table, NDArray[np.bool_]]:
        # The encoded training rows, and which of them have a value in each column.
        parts = split_columns(sensitive_features)
        series = {name: read_series(part, name, n_rows) for name, part in parts}
        Binning(continuous).check([*series])
        is_known = np.ones(n_rows, dtype=bool)
        self.columns: list[tuple[str, tuple[str, ...] | None]] = []
        for name, part in series.items():
            is_number = name in continuous
            if continuous == "auto":
                is_number = column_kind(part) == "continuous"
            column = None if is_number else encode_column(part, name, n_rows)
            is_known &= part.notna() if column is None else column.code >= 0
            self.columns.append((name, None if column is None else column.groups))
        if not is_known.any():
            raise InvalidInputError(
                f"No row has a value in each of {', '.join(series)}."
            )
        if not is_known.all():
            warn_user(
                f"{int(np.sum(~is_known))} of {n_rows} rows have no value of "
                f"{' × '.join(series)}. They are left out of the penalty.",
                MissingGroupWarning,
            )
        self._cells: IntArray | None = None
        s = self._encode(list(series.values()))
        cells: Any = self._cells  # set by `_encode`, where there are groups
        self.n_groups = 0 if cells is None else cells.size
        self.names = self.columns, None if cells is None else cells.tolist()
        return s, is_known

    def _encode(self, parts: Sequence[Table]) -> Table:
        numbers: list[Table] = []
        codes: list[IntArray] = []
        for (name, groups), part in zip(self.columns, parts, strict=True):
            if groups is None:
                numbers.append(read_numbers(read_series(part, name), name)[:, None])
            else:
                codes.append(positions(part, name, groups))
                gap = np.full(len(groups), np.nan)
                numbers.append(np.vstack([np.eye(len(groups)), gap])[codes[-1]])
        if len(codes) < len(numbers):
            return np.concatenate(numbers, axis=1)
        is_known = (np.stack(codes) >= 0).all(axis=0)
        shape = tuple(part.shape[1] for part in numbers)
        cell = number_cells(np.maximum(codes, 0), shape)
        if self._cells is None:  # the training rows say which intersections there are
            self._cells = np.unique(cell[is_known])
        group = np.searchsorted(self._cells, cell).clip(max=self._cells.size - 1)
        if np.any(is_known & (self._cells[group] != cell)):
            raise InvalidInputError(
                "sensitive_features contains a combination of values that is not in "
                "the training data. Pass None where a value is unknown."
            )
        return np.where(is_known, group, -1)

    def forward(
        self,
        output: Tensor,
        sensitive: Table,
        y: Table = None,
        control: Table = None,
        sample_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return predictions, sensitive values, strata and weights of a batch.

        Weights have mean 1 over the training rows; they are 0 where a value is missing.
        """
        if self.n_classes == 0:
            side = as_numbers(output)
        else:
            how = self.outputs, self.can_check(output)
            side = penalized_prob(output, self.n_classes, 1.0, *how)
        s = self.encode(sensitive).to(output.device)
        is_known = s >= 0 if self.n_groups else ~s.isnan().any(dim=1)
        s = s.clamp(min=0) if self.n_groups else s.nan_to_num()
        weight = side.new_ones(len(side), dtype=torch.float64)
        if sample_weight is not None:
            weight = self.weights(sample_weight, len(side)).to(side.device)
        stratum = self.strata(y, control, side)
        return side, s, stratum, torch.where(is_known, weight, 0.0)


class CriticFairnessLoss(BatchPenalty):
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
        self.reader, self.critic, self.scale = reader, critic, scale
        self.sampling, self.n_ascents = sampling, n_ascents
        parameters = critic.parameters()
        self._ascent = torch.optim.Adam(parameters, lr=learning_rate, maximize=True)

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
        parts = objective.notion, classes, sample_weight, outputs, continuous
        reader = CriticReader(y, sensitive_features, *parts)
        with seeded(random_state):
            left, right = (
                [make_features(side, width, rank) for _ in reader.strata_names]
                for side in reader.sides
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
        batch = self.reader(output, sensitive, y, control, sample_weight)
        # Copies, because the critic moves before the model's gradient is computed.
        frozen = {k: v.detach().clone() for k, v in self.critic.named_parameters()}
        value = self._value(frozen, *batch)
        if self.training and torch.is_grad_enabled():
            side, *rest = batch
            for _ in range(self.n_ascents):
                self._ascend(*self.critic_gradient(side.detach(), *rest))
        return value.to(output.dtype)

    def encode(self, sensitive_features: Table) -> Tensor:
        """Return sensitive features as `forward` takes them: once, before training."""
        return self.reader.encode(sensitive_features)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the ascent, part of the ``state_dict``."""
        return self._ascent.state_dict() | {"made_for": self._made_for()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Go on with an ascent."""
        self._ascent.load_state_dict(state)

    def extra_repr(self) -> str:
        """Return what `repr` says first."""
        return f"{self.critic.kind.divergence!r}, n_strata={len(self.reader.factor)}"

    def critic_gradient(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of the value by the critic's parameters."""
        parameters = dict(self.critic.named_parameters())
        with torch.enable_grad():
            value = self._value(parameters, *batch)
            return torch.autograd.grad(value, list(parameters.values()))

    def _ascend(self, *slopes: Tensor) -> None:
        if not all(bool(torch.isfinite(slope).all()) for slope in slopes):
            return  # a batch that is not finite moves nothing
        for parameter, slope in zip(self.critic.parameters(), slopes, strict=True):
            parameter.grad = slope
        nn.utils.clip_grad_norm_(self.critic.parameters(), LARGEST_SLOPE)
        self._ascent.step()
        for parameter in self.critic.parameters():
            parameter.grad = None

    def _value(self, parameters: dict[str, Any], *batch: Tensor) -> Tensor:
        side, s, stratum, weight = batch
        reader, n, pairs = self.reader, len(side), None
        value = side.new_zeros((), dtype=torch.float64)
        u = None if reader.n_classes else side[:, None]
        if reader.n_groups == 0:
            pairs = pair_weights(n, reader.n_rows, self.sampling).to(side.device)
        for r, factor in enumerate(reader.factor.tolist()):
            inside = torch.where(stratum == r, weight, 0.0)
            # A and C of each prediction with the attribute of every row, or with every
            # group.
            pair = r, u, None if pairs is None else s
            dual, conjugate = functional_call(self.critic, parameters, pair)
            if u is None:  # (b, m) shares of classes
                dual, conjugate = side.double() @ dual, side.double() @ conjugate
            if pairs is None:
                joint = dual.gather(1, s.long()[:, None])[:, 0]
                product = inside @ (conjugate @ reader.prior[r]) / n
            else:
                joint = dual.diagonal()
                share = float(reader.share[r])
                both = pairs * inside[:, None] * inside[None, :] * share
                product = (both * conjugate).sum()
            value = value + factor * (inside @ joint / n - product)
        return self.scale * value


class CriticPenalty(BatchPenalty):
    """A critic for each of several models, which ascends with every batch.

    Parameters
    ----------
    columns, continuous
        The sensitive values by column, and which columns are numbers.
    objective, rows
        What is penalised.
    n_models, seed
        How many critics, and the seed of their parameters.
    n_classes
        How many classes are predicted; 0 for numbers.
    target
        The numbers to predict, which say how large predictions are.
    """

    def __init__(
        self,
        columns: Mapping[str, Table],
        continuous: Sequence[str] | str,
        objective: Objective,
        rows: Rows,
        n_models: int,
        seed: int,
        *,
        n_classes: int = 0,
        target: FloatArray | None = None,
    ) -> None:
        super().__init__()
        # A notion that knows strata by their numbers: batches know neither columns of X
        # nor labels, only which rows they hold.
        code, names = rows.strata.code, rows.strata.names
        notion: Notion | str = "demographic_parity"
        control = None
        if len(names) > 1 or np.any(code != 0):
            values = np.array([*map(str, range(len(names))), None], dtype=object)
            weighting = objective.notion.weighting
            notion = ConditionalParity(values[code].tolist(), weighting)
            control = torch.tensor(code)
        self.sharpness = objective.sharpness
        with muted(FfermWarning):  # encoding the rows has warned already
            losses = [
                CriticFairnessLoss.from_labels(
                    target,
                    columns,
                    divergence=objective.divergence,
                    notion=notion,
                    classes=range(n_classes) if n_classes else None,
                    # Batches bring weights of mean 1.
                    sample_weight=rows.weight / rows.weight.mean(),
                    outputs="logits" if n_classes else "numbers",
                    continuous=continuous,
                    n_ascents=2,
                    random_state=seed,
                )
                for _ in range(n_models)
            ]
        self.losses = nn.ModuleList(losses)
        self.is_discrete = losses[0].reader.n_groups > 0
        self.register_buffer("values", losses[0].encode(columns))
        self.register_buffer("control", control, persistent=False)
        self.register_buffer("total", torch.zeros(n_models, dtype=torch.float64))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.float64))

    values: Tensor
    control: Tensor | None
    total: Tensor
    n_batches: Tensor

    def forward(
        self, output: Tensor, row: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Return the (n_models,) penalties of a batch, and move the critics.

        ``row`` has the (b, 1) positions of its rows.
        """
        if len(row) < 2 and not self.is_discrete:
            # The last row of an epoch has no other to be compared with.
            return output.new_zeros(len(output))
        s, control = self.values[row[:, 0]], None
        if self.control is not None:
            control = self.control[row[:, 0]]
        options = {"control": control, "sample_weight": sample_weight}
        parts = zip(self.losses, self.sharpness * output, strict=True)
        penalties = torch.stack([loss(part, s, **options) for loss, part in parts])
        self.total += penalties.detach().double()
        self.n_batches += 1
        return penalties

    def of_epoch(self) -> list[float]:
        """Return what each model's critic saw on average."""
        means: list[float] = (self.total / self.n_batches.clamp(min=1)).tolist()
        self.total.zero_()
        self.n_batches.zero_()
        return means


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
            "A numeric sensitive column needs batches of at least 2 rows; got 1."
        )
    same = torch.eye(n_batch, dtype=torch.float64)
    if n_total == 1:
        return same
    apart = (1 - same) / (n_batch * (n_batch - 1))
    if sampling == "independent":
        return apart
    return (n_total - 1) / n_total * apart + same / (n_batch * n_total)
