"""The loss of a table on a GPU, as two kernels of Triton.

The first reads rows: their cells, their probabilities, the gradient, and sums for each
block of rows. The second adds up the blocks in a fixed order and moves the dual. Both
do what the operators of `fferm.torch.losses` do, which serve wherever these do not.
The formulas of a divergence are traced, so that a user's own runs here too.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0915, PLR0917

import functools
import linecache
import re
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor, fx, nn
from torch.autograd import forward_ad

from fferm.errors import InvalidInputError
from fferm.penalty.dual import FIRST_DUAL_STEP, SMALLEST_RATE, DualVariable
from fferm.torch.distributed import add_ranks, rank_and_size
from fferm.torch.reader import BatchRows

# What one program holds: numbers of a table, numbers of its rows, classes.
TABLE_SIZE, TILE_SIZE, MOST_CLASSES = 2048, 4096, 64
WHOLE_NUMBERS = torch.int64, torch.int32, torch.int16, torch.int8
KNOWN = torch.exp, torch.log, torch.sqrt, torch.abs, torch.where
# Of each loss: how many rows had values that training had not, on the host, where the
# device writes it; and what was compiled for batches of a kind.
STATES: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
FIRST, SMALLEST = tl.constexpr(FIRST_DUAL_STEP), tl.constexpr(SMALLEST_RATE)
# Sums of a block, behind its masses: value, rows, rows of no known cell.
N_SUMS = tl.constexpr(3)
POINTERS = ["output", "s", "y", "cells", "weight"]
NUMBERS = ["stride", "step", "s_first", "n_s", "y_first", "n_y", "n"]
power = triton.next_power_of_2


@triton.jit
def code_of(values, table, first, n_entries, row, inside):
    """Return what a table says of whole numbers."""
    place = tl.load(values + row, mask=inside, other=0).to(tl.int64) - first
    return tl.load(table + tl.minimum(tl.maximum(place, 0), n_entries - 1))


# fmt: off
@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=POINTERS)
def read_rows(
    output, stride, step, s, s_table, s_first, n_s, y, y_table, y_first, n_y, cells,
    cell_of, weight, variable, constants, payoff, parts, gradient, n,
    sharpness: tl.constexpr, formula: tl.constexpr, R: tl.constexpr, M: tl.constexpr,
    K: tl.constexpr, RM: tl.constexpr, KS: tl.constexpr, MS: tl.constexpr,
    ROWS: tl.constexpr, CELLS: tl.constexpr,
):
    # fmt: on
    """Read a block of rows."""
    if variable is not None:  # every program writes the same payoff
        q, k = tl.arange(0, RM)[:, None], tl.arange(0, KS)[None, :]
        inside = (q < R * M) & (k < K)
        constant = constants + q // M * K + k
        dual, conjugate, _ = formula(tl.load(variable + q * K + k, inside, other=0.0))
        part = tl.load(constant, inside, other=0.0) * conjugate
        total = tl.sum(tl.where(inside, part, 0.0), axis=1)[:, None]
        table = total + tl.load(constant + R * K, inside, other=0.0) * dual
        tl.store(payoff + q * K + k, table, inside)
        tl.debug_barrier()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < n
    if cells is not None:
        cell = tl.load(cells + row, is_row, other=R * K)
    else:
        cell = code_of(s, s_table, s_first, n_s, row, is_row)
        if y is not None:
            label = code_of(y, y_table, y_first, n_y, row, is_row)
            cell = tl.load(cell_of + cell * (M + 2) + label)
    cell = tl.where(is_row, cell, R * K)
    j = tl.arange(0, MS)[None, :]
    here = is_row[:, None] & (j < M)
    at = output + row.to(tl.int64)[:, None] * stride + j * step
    logit = tl.load(at, here, other=-float("inf"))
    logit = logit.to(gradient.dtype.element_ty) * sharpness
    logit = tl.where(here, logit, tl.where(j < M, 0.0, -float("inf")))
    prob = tl.exp(logit - tl.max(logit, axis=1)[:, None])
    prob = prob / tl.sum(prob, axis=1)[:, None]
    place = (cell // K * (M * K) + cell % K)[:, None] + j * K
    gain = tl.load(payoff + place, here & (cell < R * K)[:, None], other=0.0)
    gain = gain.to(prob.dtype)
    mean = tl.sum(tl.where(j < M, prob * gain, 0.0), axis=1)
    slope = prob * (gain - mean[:, None]) * sharpness / n.to(prob.dtype)
    mass = tl.where(here, prob, 0.0).to(tl.float64)
    if weight is not None:
        w = tl.load(weight + row, is_row, other=0.0)
        mass, mean = mass * w[:, None], mean * w
        slope = slope * w[:, None]
    tl.store(gradient + row.to(tl.int64)[:, None] * M + j, slope, here)
    parts += tl.program_id(0) * (R * M * K + N_SUMS)
    for begin in range(0, R * K, CELLS):
        c, of_class = begin + tl.arange(0, CELLS), tl.arange(0, MS)[:, None]
        hit = cell[:, None, None] == c[None, None, :]
        sums = tl.sum(tl.where(hit, mass[:, :, None], 0.0), axis=0)
        to = parts + (c // K * (M * K) + c % K)[None, :] + of_class * K
        tl.store(to, sums, (c < R * K)[None, :] & (of_class < M))
    parts += R * M * K
    tl.store(parts, tl.sum(tl.where(is_row, mean.to(tl.float64), 0.0)))
    tl.store(parts + 1, tl.sum(is_row.to(tl.float64)))
    tl.store(parts + 2, tl.sum((cell > R * K).to(tl.float64)))


@triton.jit
def sum_blocks(parts, n_parts, at, inside, SIZE: tl.constexpr, N: tl.constexpr):
    """Return masses, value, rows and rows of no known cell, of all blocks."""
    slot = tl.arange(0, 4)[None, :]
    mass, sums = tl.zeros(at.shape, tl.float64), tl.zeros(slot.shape, tl.float64)
    begin = 0
    while begin < n_parts:
        block = begin + tl.arange(0, N)[:, None, None]
        start, here = parts + block * SIZE, block < n_parts
        part = tl.load(start + at[None, :, :], here & inside[None, :, :], other=0.0)
        mass += tl.sum(part, axis=0)
        is_slot = here & (slot < N_SUMS)[None, :, :]
        part = tl.load(start + (SIZE - N_SUMS) + slot[None, :, :], is_slot, other=0.0)
        sums += tl.sum(part, axis=0)
        begin += N
    value = tl.sum(tl.where(slot == 0, sums, 0.0), axis=1)[:, None]
    n = tl.sum(tl.where(slot == 1, sums, 0.0), axis=1)[:, None]
    return mass, value, n, tl.sum(tl.where(slot == 2, sums, 0.0), axis=1)[:, None]


# fmt: off
@triton.jit(do_not_specialize=["n_parts"])
def move_dual(
    parts, n_parts, ranks, value, alarm, variable, rate, seen, n_seen, n_steps,
    constants, formula: tl.constexpr, R: tl.constexpr, M: tl.constexpr, K: tl.constexpr,
    RM: tl.constexpr, KS: tl.constexpr, BLOCKS: tl.constexpr,
):
    # fmt: on
    """Write the value of a batch, and move the dual by its masses."""
    SIZE: tl.constexpr = R * M * K + N_SUMS
    one = tl.arange(0, 1)[:, None] + tl.arange(0, 1)[None, :]
    q, k = tl.arange(0, RM)[:, None], tl.arange(0, KS)[None, :]
    inside, place = (q < R * M) & (k < K), q * K + k
    mass, sums, n, unread = sum_blocks(parts, n_parts, place, inside, SIZE, BLOCKS)
    tl.store(value + one, sums / n)
    if alarm is not None:
        tl.store(alarm + one, unread.to(tl.int64), unread > 0)
    if variable is not None:
        if ranks is not None:
            mass, _, n, _ = sum_blocks(ranks, 1, place, inside, SIZE, 1)
        # What is not finite, minus itself, is not 0.
        total = tl.sum(tl.sum(mass, axis=1)[:, None], axis=0)[None, :]
        is_due = ((total - total) == 0) & (n > 0)
        mass = tl.where(is_due, mass, 0.0)
        tl.store(seen + place, tl.load(seen + place, inside, other=0.0) + mass, inside)
        n = tl.where(is_due, n, 0.0)
        tl.store(n_seen + one, tl.load(n_seen + one) + n)
        steps = tl.load(n_steps + one) + is_due.to(tl.float64)
        tl.store(n_steps + one, steps)
        c = constants + q // M * K + k  # in the order of `Dual`
        prior = tl.load(c + 2 * R * K, inside, other=0.0)
        pace = tl.load(c + 3 * R * K, inside, other=0.0)
        share = tl.load(c + 4 * R * K, inside, other=0.0)
        upper = tl.load(c + 5 * R * K, inside, other=0.0)
        slow = tl.load(c + 6 * R * K, inside, other=0.0)
        least = tl.load(c + 7 * R * K, inside, other=0.0)
        most = tl.load(c + 8 * R * K, inside, other=0.0)
        lower = tl.load(constants + 9 * R * K + one)
        step = tl.load(constants + 9 * R * K + 1 + one) / tl.maximum(steps, 1.0)
        old = tl.load(variable + place, inside, other=0.0)
        _, _, ratio = formula(old)
        mass = mass * share / tl.maximum(n, 1.0)
        total = tl.sum(mass, axis=1)[:, None]
        largest = is_due.to(tl.float64) * FIRST  # what is not due steps by 0
        of_class = tl.load(rate + place, inside, other=0.0)
        lag = tl.minimum(tl.maximum(step, n * slow), largest)
        of_class += lag * (total - of_class)
        tl.store(rate + place, of_class, inside)
        eta = tl.minimum(tl.maximum(step, n * least), tl.minimum(n * most, largest))
        slope = mass - prior * total * ratio
        new = old + eta * pace * slope / tl.maximum(of_class, SMALLEST)
        new = tl.minimum(tl.maximum(new, lower), upper)
        tl.store(variable + place, new, inside)


@functools.cache
def jitted_formula(kind: DualVariable) -> Any:
    """Return dual, conjugate and ratio of a variable as a function of Triton.

    None where a formula cannot be one.
    """

    def formulas(v):
        namespace: Any = torch
        return *kind.dual_and_conjugate(v, namespace), kind.ratio(v, namespace)

    try:
        graph = fx.symbolic_trace(formulas).graph
    except Exception:  # a user's own formula may do anything
        return None
    for node in graph.nodes:
        is_operator = getattr(node.target, "__module__", "") == "_operator"
        if not (isinstance(node.target, str) or is_operator or node.target in KNOWN):
            return None
        if node.target is torch.where:  # a bare number would be in single precision
            with graph.inserting_before(node):
                node.args = tuple(
                    graph.call_function(torch.full, ((), float(a), torch.float64))
                    if isinstance(a, int | float)
                    else a
                    for a in node.args
                )
    source = graph.python_code("self").src.replace("torch.", "tl.")
    source = re.sub(r";.*= None", "", re.sub(r"\binf\b", 'float("inf")', source))
    source = source[source.index("def ") :].replace("forward(self, v)", "formula(v)")
    name = f"<{kind!r}>"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    scope = {"tl": tl, "__name__": __name__}
    exec(compile(source, name, "exec"), scope)
    return triton.jit(scope["formula"])


class Term(torch.autograd.Function):
    """The value of a batch, whose gradient is known when it is."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, launch: Any, repeat: Any) -> Tensor:
        """Return the value, and keep the gradient."""
        made: tuple[Tensor, Tensor] = launch()
        ctx.save_for_backward(output)
        ctx.gradient, ctx.repeat = made[1], repeat
        return made[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient by the output."""
        if not torch.is_grad_enabled():
            slope: Tensor = ctx.gradient * grad
            return slope, None, None
        # A second derivative is wanted: by operators.
        (output,) = ctx.saved_tensors
        value = ctx.repeat(output)
        slopes = torch.autograd.grad(value, output, grad, create_graph=True)
        return slopes[0], None, None


@triton.jit
def _nothing(number):
    tl.store(number, 1)


def check_compiler() -> None:
    """Raise if nothing can be compiled or run here."""
    _nothing[1,](torch.zeros(1, device="cuda"))


def can_run(output: Tensor, reader: Any, dual: Any) -> bool:
    """Return whether the kernels serve: plain logits, in a plain loop."""
    R, M, K = reader.shape
    return (
        type(output) is Tensor
        and output.dim() == 2
        and output.shape[1] == M
        and output.shape[0] > 0
        and output.is_floating_point()
        and getattr(reader, "outputs", "") == "logits"
        and len(reader.ends) == 2
        and M <= MOST_CLASSES
        and power(R * M) * power(K) <= TABLE_SIZE
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and (
            dual is None
            or (dual.steps.accumulate == 1 and jitted_formula(dual.kind) is not None)
        )
    )


def term(
    loss: Any, output: Tensor, batch: Any, payoff: Any, dual: Any, moves: bool
) -> Tensor:
    """Return the value of a batch, and move the dual by it.

    Parameters
    ----------
    loss
        Whose reader and sums are used.
    output
        (n, m) logits.
    batch
        The other arguments of the loss.
    payoff, dual
        The payoff, or None and the dual that makes it.
    moves
        Whether the dual moves.
    """
    reader, device, n = loss.reader, output.device, output.shape[0]
    R, M, K = reader.shape
    if loss not in STATES:
        alarm = torch.zeros(1, dtype=torch.int64, pin_memory=output.is_cuda)
        STATES[loss] = alarm, alarm.numpy(), {}
    alarm, n_unread, plans = STATES[loss]
    if n_unread[0]:
        count, n_unread[0] = int(n_unread[0]), 0
        raise InvalidInputError(
            f"{count} rows of an earlier batch had values that are not in the training "
            "data. Pass -1 where a value is unknown."
        )
    inputs = _inputs(reader, output, batch)
    kinds = [None if x is None else x.dtype for x in inputs[::4]]
    key = n, moves, output.dtype, device.index, *kinds
    if key not in plans:
        block = min(max(power(n // 128), 32), 128, TILE_SIZE // power(M))
        n_cells = min(power(R * K), max(TILE_SIZE // (block * power(M)), 1))
        table = (R, M, K, power(R * M), power(K))
        formula = None if dual is None else jitted_formula(dual.kind)
        last = max(TILE_SIZE // (table[3] * table[4]), 1)
        fixed = float(reader.sharpness), formula, *table, power(M), block, n_cells
        plans[key] = -(-n // block), fixed, (formula, *table, last), []
    n_parts, rows_fixed, dual_fixed, compiled = plans[key]
    if payoff is None:
        payoff = torch.empty_like(dual.variable)

    def launch() -> tuple[Tensor, Tensor]:
        dtype = torch.float64 if output.dtype == torch.float64 else torch.float32
        gradient = torch.empty((n, M), dtype=dtype, device=device)
        size = R * M * K + 3
        parts = torch.empty((n_parts, size), dtype=torch.float64, device=device)
        value = torch.empty((), dtype=dtype, device=device)
        made = (None, None) if dual is None else (dual.variable, dual.constants)
        first, second = compiled or (read_rows, move_dual)
        rows = (
            *(output, *output.stride(), *inputs[:9], reader._direct, inputs[12]),
            *(*made, payoff, parts, gradient, n, *rows_fixed),
        )
        first = first[n_parts, 1, 1](*rows)
        ranks, state = None, [None] * 6
        if moves:
            state = [dual.variable, dual.rate, loss.seen, loss.n_seen]
            state += [dual.n_steps, dual.constants]
            if rank_and_size()[1] > 1:
                (ranks,) = add_ranks(parts.sum(dim=0))
        heard = alarm if reader.check else None
        dual_args = parts, n_parts, ranks, value, heard, *state, *dual_fixed
        second = second[1, 1, 1](*dual_args)
        if not compiled and first is not None:
            compiled[:] = first, second
        return value, gradient

    def repeat(output: Tensor) -> Tensor:
        rows: BatchRows = reader(output, *batch)
        return rows.term(payoff)

    value: Tensor = Term.apply(output, launch, repeat)
    return value


def _inputs(reader: Any, output: Tensor, batch: tuple[Any, ...]) -> tuple[Any, ...]:
    # Groups and labels, each with its table, where that begins, and its length; cells;
    # weights. Whole numbers on the device are read in the kernel, others by operators.
    s, y, control, sample_weight = batch
    numbers, columns = [s], [reader.columns[0]]
    if reader.needs_labels:
        numbers, columns = [s, y], [*columns, reader.label]
    options = reader._joint, reader._factor, reader.control, control
    if any(option is not None for option in options) or not all(
        isinstance(x, Tensor)
        and x.shape == output.shape[:1]
        and x.dtype in WHOLE_NUMBERS
        and x.device == output.device
        and x.is_contiguous()
        and not column.is_far
        for x, column in zip(numbers, columns, strict=True)
    ):
        rows: BatchRows = reader(output.detach(), *batch)
        nothing = None, None, 0, 0
        return *nothing, *nothing, rows.cells[0].contiguous(), 0, 0, 0, rows.weight
    weight = None
    if sample_weight is not None:
        weight = reader.weights(sample_weight, len(output)).to(output.device)
    read = [
        part
        for x, column in zip(numbers, columns, strict=True)
        for part in (x, column.table, column.first, column.n_entries)
    ]
    none = (None, None, 0, 0) * (2 - len(numbers))
    return *read, *none, None, 0, 0, 0, weight
