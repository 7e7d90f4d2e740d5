"""``fferm plan``: what bound a table can certify, and how many rows another takes."""

import math
from typing import Annotated, Any

import numpy as np
from typer import Option

from fferm._typing import FloatArray
from fferm.cli import options
from fferm.cli.inputs import Form, Source, open_source
from fferm.cli.options import GroupKind, TaskKind
from fferm.cli.outputs import Output, table_text
from fferm.data.validate import Number, check_params, encode_decisions
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.metrics.intervals import (
    CONFIDENCE,
    LEVEL,
    bound_in_reach,
    compared_of,
    floor_of_tables,
    rows_needed,
)
from fferm.metrics.tabulator import RateTable, make_tabulator
from fferm.notions import get as get_notion


def plan(
    data: options.Data,
    target: options.Target = None,
    sensitive: options.Sensitive = None,
    max_violation: Annotated[
        float | None, Option(help="The gap between groups that shall be certified.")
    ] = None,
    confidence: Annotated[float, Option(help="The confidence of the test.")] = 0.95,
    power: Annotated[
        float, Option(help="How probable it shall be that a fair model passes.")
    ] = 0.8,
    judged: Annotated[
        float, Option(help="The share of rows that test a bound; that of `fit` is 0.2.")
    ] = 0.2,
    notion: options.Notion = "demographic_parity",
    groups: options.Groups = GroupKind.intersection,
    sep: options.Sep = None,
    encoding: options.Encoding = "utf-8",
    header: options.Header = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> int:
    """Say what bound the rows of a table can certify, before any training.

    The figures are those of a perfectly fair model that predicts each class as often as
    the target has it. The exit code is 1 if --max-violation needs more rows.

    Example: fferm plan loans.csv --target granted --sensitive sex --max-violation 0.05
    """
    output = Output(quiet, json)
    asked = {"--max-violation": max_violation, "--confidence": confidence}
    asked |= {"--power": power, "--judged": judged}
    limits = dict.fromkeys(asked, LEVEL) | {"--confidence": CONFIDENCE}
    limits["--max-violation"] = Number(0, 1, True, True, is_optional=True)
    check_params(asked, limits)
    with output.warnings_as_lines():
        source = open_source(data, target, sensitive, Form(sep, encoding, header))
        tables, rates, n_rows = _fair_tables(source, notion, groups.value)
    sizes = compared_of(tables)[1]
    shares = [size / n_rows for size in sizes]
    if min(float(part.min()) for part in shares) <= 0:
        raise InvalidInputError(
            "Some group has no rows where the notion compares it, so no bound can be "
            "certified for it. Merge groups, or collect rows of it."
        )
    level, parts = (confidence, power), list(zip(rates, shares, strict=True))
    reach = max(bound_in_reach(*part, judged * n_rows, *level) for part in parts)
    counts = {
        f"{table.attribute}={group}": round(float(size))
        for table in tables
        for group, size in zip(
            table.groups, judged * table.size.min(axis=0), strict=True
        )
    }
    # The noise of fewer rows is that of all, by the root of their share; 1 at most.
    floor = min(floor_of_tables(tables).mean / math.sqrt(judged), 1.0)
    result = {"rows": n_rows, "judged": round(judged * n_rows), "groups": counts}
    result |= {"floor": floor, "bound_in_reach": reach}
    listed = [{"group": name, "judged rows": str(n)} for name, n in counts.items()]
    words = [
        f"{n_rows} rows, of which {100 * judged:g} % would test a bound:",
        "",
        table_text(listed[0], listed),
        "",
        "By chance alone a perfectly fair model measures a violation of about "
        f"{floor:.4f} on them.",
        f"The smallest bound that they certify with {100 * confidence:g} % confidence, "
        f"for a fair model and in {100 * power:g} % of the cases: {reach:.3f}",
    ]
    if max_violation is not None:
        more, needed = _needed(max_violation, parts, level, judged, counts)
        words, result = [*words, *more], {**result, **needed}
    output.result("\n".join(words), result)
    return 0 if max_violation is None or reach <= max_violation else 1


def _fair_tables(
    source: Source, notion: str, groups: Any
) -> tuple[tuple[RateTable, ...], list[FloatArray], int]:
    # Tables of decisions that differ between groups by chance alone, their true rates,
    # and the number of rows.
    if source.is_regression(TaskKind.auto):
        raise InvalidParameterError(
            f"plan needs a target of classes; {source.target!r} holds numbers."
        )
    rows = source.rows(source.frame, is_regression=False)
    labels, code = encode_decisions(rows["y"], rows["y"])
    tabulator = make_tabulator(
        labels, get_notion(notion), rows["sensitive_features"], groups, None
    )
    share = np.bincount(code) / code.size
    drawn = np.random.default_rng(0).choice(share.size, code.size, p=share)
    tables = tabulator.tables(drawn)
    kept = share[1:] if share.size == 2 else share
    rates = []
    for size in compared_of(tables)[1]:
        common = np.tile(kept, len(size) // kept.size)[:, None]
        rates.append(np.broadcast_to(common, size.shape))
    return tables, rates, code.size


def _needed(
    bound: float,
    parts: list[tuple[FloatArray, FloatArray]],
    level: tuple[float, float],
    judged: float,
    counts: dict[str, int],
) -> tuple[list[str], dict[str, Any]]:
    # How many rows a bound takes, in words and for JSON.
    n_rows = max(rows_needed(bound, *part, *level) for part in parts)
    # If all groups had as many rows as each other.
    each = max(
        -(
            -rows_needed(bound, r, np.full(r.shape, 1 / r.shape[1]), *level)
            // r.shape[1]
        )
        for r, _ in parts
    )
    short = {group: n for group, n in counts.items() if n < each}
    words = [
        f"A bound of {bound:g} takes about {n_rows} judged rows in these shares, "
        f"{n_rows / judged:.0f} rows in all; or {each} judged rows of every group."
    ]
    if short:
        names = ", ".join(f"{group} ({n})" for group, n in short.items())
        words.append(f"Fewer than that have: {names}.")
    result = {"max_violation": bound, "judged_needed": n_rows, "each_group": each}
    return words, {**result, "rows_needed": round(n_rows / judged), "short": short}
