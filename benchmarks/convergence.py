"""How minibatches converge, and what the paper's own Algorithm 1 comes to.

Adult by sex and race, four groups, KL. First the objective above the optimum and the
norm of its gradient against the rows that were read: batches of every size, SREDA, and
Algorithm 1 as printed. Then the variance of a batch's gradient times its size, which is
that of a row. Then the accuracy and violation to which Algorithm 1 as printed comes:
300 passes without the penalty and 1700 with it, in batches of 8.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from fferm import FairLogisticRegression
from fferm._typing import FloatArray
from fferm.data.rows import FitInput
from fferm.datasets import FairDataset, load_adult
from fferm.lab.experiments.results import COLORS, STYLE, WIDTH
from fferm.metrics import violation
from fferm.penalty.objective import Problem
from fferm.solvers import LBFGS
from fferm.solvers.base import Monitor
from fferm.solvers.full_batch import FusedEvaluator
from fferm.solvers.linear import linear_logits
from fferm.solvers.stochastic import SGDA, SREDA, StochasticSolver

WEIGHT = 10.0
# Nobody knows when these runs end: the average is over the later half at any time.
ENDLESS = 10**9
PRINTED: dict[str, Any] = {"dual": "plain", "lr": 1e-5, "dual_lr": 1e-6}
SIZES = (1, 2, 8, 64)
PASSES = {1: 8, 2: 16, 8: 32, 64: 100}
WARM_UP, LAST = 300, 2000
N_BATCHES = 40_000  # of which the variance is taken
WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 150.0)
FIGURE = Path(__file__).parent.parent / "docs/paper/results/convergence.png"


def run() -> dict[str, Any]:
    """Return the curves of convergence and the table of Algorithm 1 as printed."""
    data = load_adult(sensitive=("sex", "race"), races=("Black", "White"))
    given = FitInput(data.X, data.y, data.sensitive_features)
    problem = FairLogisticRegression(divergence="kl")._encode(given)[1]
    curves = _curves(problem.with_weight(WEIGHT))
    _draw(curves)
    variances = _variances(problem.with_weight(WEIGHT))
    return {
        "curves": {name: curve.tolist() for name, curve in curves.items()},
        "tables": {"variance": variances, "printed": _printed(problem, data)},
    }


def _curves(problem: Problem) -> dict[str, FloatArray]:
    """Return (points, 3) rows read, objective above the optimum, gradient norm."""
    n = problem.y.size
    solvers: dict[str, tuple[StochasticSolver, int]] = {
        f"batch {size}": (
            SGDA(batch_size=size, max_epochs=PASSES[size], patience=ENDLESS),
            size,
        )
        for size in SIZES
    }
    solvers["all rows"] = SGDA(batch_size=n, max_epochs=600, patience=ENDLESS), n
    # A chunk reads all rows once, and small batches twice.
    sreda = SREDA(max_epochs=60, patience=ENDLESS)
    chunk = n + sreda.batch_size * (sreda.inner_steps + 3) * sreda.chunk_steps(n)
    solvers["SREDA"] = sreda, chunk // sreda.chunk_steps(n)
    printed = SGDA(batch_size=8, max_epochs=600, patience=ENDLESS, **PRINTED)
    solvers["Algorithm 1 as printed"] = printed, 8
    best = LBFGS(tol=1e-9).solve(problem).stats["objective"]
    found = {}
    for name, (solver, rows_a_step) in solvers.items():
        points = [
            (rows_a_step * n_steps, value - best, slope)
            for n_steps, value, slope in _points(problem, solver)
        ]
        found[name] = np.array(points)
        read, excess, slope = points[-1]
        print(
            f"{name}: after {read / n:.0f} passes {excess:.2g} above the optimum "
            f"{best:.4f}, gradient {slope:.2g}",
            flush=True,
        )
    return found


def _points(
    problem: Problem, solver: StochasticSolver
) -> Iterator[tuple[int, float, float]]:
    state = solver.begin(problem, None, [WEIGHT])
    evaluator, due = FusedEvaluator(problem), 1.0
    while solver.is_done(state) is None:
        state = solver.advance(problem, state, Monitor())
        if state.thetas and state.n_steps >= due:
            due = 1.15 * state.n_steps
            value, gradient = evaluator.value_and_gradient(problem, state.thetas[0])
            yield state.n_steps, value, float(np.linalg.norm(gradient))


def _draw(curves: dict[str, FloatArray]) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure((WIDTH, 3.4), layout="constrained")
        axes = figure.subplots(1, 2)
        for number, (name, curve) in enumerate(curves.items()):
            for ax, column in zip(axes, (1, 2), strict=True):
                color = COLORS[number % len(COLORS)]
                ax.loglog(curve[:, 0], curve[:, column], color=color, label=name)
        for ax, title in zip(
            axes, ("objective above the optimum", "norm of the gradient"), strict=True
        ):
            ax.set_title(title)
            ax.set_xlabel("rows read")
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4
        )
        figure.savefig(FIGURE, dpi=160)


def _variances(problem: Problem) -> list[str]:
    """Return the variance of batch gradients times the size, over that of a row.

    After a pass, when the dual is no longer that of independence.
    """
    rng, solver = np.random.default_rng(0), SGDA(batch_size=8, max_epochs=1)
    state = solver.begin(problem, None, [WEIGHT])
    state = solver.advance(problem, state, Monitor())
    rows = np.arange(state.rows.size)
    found = {}
    for size in SIZES:
        batches = rows[:, None]  # of one row: all there are
        if size > 1:
            batches = rng.choice(rows, (N_BATCHES, size))
        means = [_batch_gradient(state, batch) for batch in batches]
        found[size] = float(np.sum(np.var(means, axis=0))) * size
    cells = [f"{found[size] / found[1]:.3f}" for size in SIZES]
    lines = [
        f"| batch | {' | '.join(map(str, SIZES))} |",
        "|---|" + "---|" * len(SIZES),
        f"| variance times size | {' | '.join(cells)} |",
    ]
    print("\n".join(lines), flush=True)
    return lines


def _batch_gradient(state: Any, batch: Any) -> FloatArray:
    from fferm.penalty.compiled import payoff_into
    from fferm.solvers import _kernels

    scratch, theta = state.scratch, state.model.theta
    payoff_into(state.dual, scratch)
    scratch.gradient[:] = 0.0
    _kernels.batch_gradients_into(
        state.rows, batch, batch[:0], theta, state.steps, 1.0, scratch
    )
    return np.asarray(scratch.gradient.ravel().copy())


def _printed(problem: Problem, data: FairDataset) -> list[str]:
    """Return accuracy and violation of Algorithm 1 as printed and of the optimum."""
    plain = SGDA(batch_size=8, max_epochs=WARM_UP, **PRINTED)
    (first,) = plain.solve_path(problem, [0.0])
    longer = SGDA(batch_size=8, max_epochs=LAST - WARM_UP, **PRINTED)
    sides = {
        "as printed": list(longer.solve_path(problem, WEIGHTS, start=first.value)),
        "optimum": list(LBFGS().solve_path(problem, WEIGHTS)),
    }
    lines = [
        "| weight | accuracy, as printed | violation | accuracy, optimum | violation |",
        "|---|---|---|---|---|",
    ]
    for number, weight in enumerate(WEIGHTS):
        cells = []
        for solutions in sides.values():
            theta = solutions[number].value
            decided = linear_logits(data.X_test, theta).argmax(axis=1)
            gap = violation(
                data.y_test, decided, sensitive_features=data.sensitive_features_test
            )
            cells += [f"{np.mean(decided == data.y_test):.4f}", f"{gap:.4f}"]
        lines.append(f"| {weight:g} | {' | '.join(cells)} |")
    dual = sides["as printed"][-1].dual[0]
    print("\n".join(lines), flush=True)
    print(f"largest optimal dual at the last weight {np.abs(dual).max():.3g}")
    return lines
