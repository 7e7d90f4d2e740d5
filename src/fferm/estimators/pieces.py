"""Training on data that arrive in pieces, behind ``partial_fit``.

The sizes of the groups are given, or counted as the pieces come; the steps are those of
`fferm.solvers.pieces`, which is imported when the first piece comes: compiling is not
free.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fferm._types import FloatArray, Table
from fferm.counts import GroupCounts
from fferm.data import check_aligned
from fferm.errors import InvalidInputError, InvalidParameterError
from fferm.estimators.base import FairClassifier
from fferm.estimators.piece_groups import KnownGroups, PlacedRows, place_rows_of_piece
from fferm.estimators.validation import TrainingData, check_classes, validate_piece
from fferm.objective import Objective, Problem
from fferm.solvers import Solver

if TYPE_CHECKING:
    from fferm.solvers.pieces import Piece, PieceRun, Start


# Adagrad's step by default. Pieces may come sorted: longer steps would follow each.
PIECE_RATE = 0.4


@dataclass(frozen=True)
class PieceInput:
    """The arguments of `partial_fit`, as they came."""

    X: Table
    y: Table
    classes: Table = None
    groups: Table = None
    sensitive_features: Table = None
    sample_weight: Table = None


@dataclass(frozen=True)
class Pieces:
    """What is known after some pieces.

    Attributes
    ----------
    objective
        What was minimised in the last of them.
    run
        Where the solver stands.
    known
        The groups, None without a penalty.
    n_rows, weight
        Rows of positive weight so far, and their weight.
    n_pieces
        Pieces so far.
    """

    objective: Objective
    run: "PieceRun"
    known: KnownGroups | None
    n_rows: int
    weight: float
    n_pieces: int


@dataclass(frozen=True)
class Learned:
    """What a piece has taught: where training stands, and the model."""

    pieces: Pieces
    classes: NDArray[Any]
    theta: FloatArray
    dual: FloatArray

    @property
    def groups(self) -> NDArray[Any]:
        """Names of the groups."""
        known = self.pieces.known
        return np.array(known.names if known else (), dtype=object)


def check_solver(solver: str, max_violation: float | None) -> None:
    """Refuse what needs all rows at once."""
    if solver not in ("auto", "sgda"):
        raise InvalidParameterError(
            f"solver={solver!r} came. partial_fit trains by minibatches: use "
            'solver="sgda" or "auto".'
        )
    if max_violation is not None:
        raise InvalidParameterError(
            f"max_violation={max_violation!r} came. It is judged on held-out rows, and "
            "partial_fit holds none. Set max_violation=None and choose a "
            "fairness_weight."
        )


def learn_piece(
    model: FairClassifier,
    given: PieceInput,
    solver: Solver[Any],
    before: Pieces | None,
    start: FloatArray | None,
) -> Learned:
    """Return what a model knows after one more piece.

    Parameters
    ----------
    model
        Says what is minimised.
    given
        The piece.
    solver
        An `SGDA`.
    before
        What was known before it; None begins anew.
    start
        Parameters to begin anew at; None is 0.
    """
    from fferm.solvers.pieces import piece_dual, piece_parameters, train_piece

    piece, placed, total = read_piece(model, given, before)
    begin = None if start is None else _start(model, start, placed)
    run = train_piece(solver, piece, before.run if before else None, begin)  # type: ignore[arg-type]
    n_pieces = before.n_pieces + 1 if before else 1
    pieces = Pieces(piece.problem.objective, run, placed.known, *total, n_pieces)
    dual = piece_dual(solver, piece, run)  # type: ignore[arg-type]
    classes = check_classes(_known_classes(model, given), given.classes)
    return Learned(pieces, classes, piece_parameters(piece, run), dual)


def read_piece(
    model: FairClassifier, given: PieceInput, before: Pieces | None
) -> tuple["Piece", PlacedRows, tuple[int, float]]:
    """Return a piece to train on, its groups, and number and weight of rows so far."""
    check_aligned(
        X=given.X,
        y=given.y,
        sensitive_features=given.sensitive_features,
        sample_weight=given.sample_weight,
    )
    objective = _objective(model, before)
    classes = check_classes(_known_classes(model, given), given.classes)
    data = validate_piece(model, given.X, given.y, given.sample_weight, classes)
    placed = place_rows_of_piece(
        data,
        objective,
        model.groups,
        (given.sensitive_features, given.groups),
        before.known if before else None,
    )
    n_rows = int(data.kept.sum()) + (before.n_rows if before else 0)
    weight = float(data.weight.sum()) + (before.weight if before else 0.0)
    if not 0 < weight < np.inf:
        raise InvalidInputError(
            f"The sample weights so far sum to {weight:g}. Expected a positive number."
        )
    return _piece(data, placed, objective, weight / n_rows), placed, (n_rows, weight)


def _objective(model: FairClassifier, before: Pieces | None) -> Objective:
    objective = model._objective()
    is_fair = objective.fairness_weight > 0
    if is_fair:
        _check_penalty(objective)
    if before is not None:
        old = before.objective
        _check_same("divergence", old.divergence, objective.divergence)
        _check_same("notion", old.notion, objective.notion)
        _check_same("fairness_weight > 0", old.fairness_weight > 0, is_fair)
    return objective


def _check_same(name: str, old: object, new: object) -> None:
    if old != new:
        raise InvalidParameterError(
            f"{name} was {old!r} in the pieces before and is {new!r} now, and what was "
            "learned of the groups does not carry over. Begin anew with a clone."
        )


def _check_penalty(objective: Objective) -> None:
    from fferm.solvers.dual import check_linear_dual

    check_linear_dual(objective, "sgda")
    if objective.notion.control_feature() is not None:
        raise InvalidParameterError(
            f"{objective.notion!r} has a control feature, by which partial_fit does "
            "not count. Use fit, or a notion that conditions on the label."
        )


def _known_classes(model: FairClassifier, given: PieceInput) -> NDArray[Any] | None:
    if hasattr(model, "classes_"):
        return model.classes_
    if given.classes is None and isinstance(given.groups, GroupCounts):
        found = given.groups.labels
        return np.array(found) if len(found) > 1 else None
    return None


def _piece(
    data: TrainingData, placed: PlacedRows, objective: Objective, mean_weight: float
) -> "Piece":
    from fferm.solvers.pieces import make_piece

    kept = data.kept
    problem = Problem(
        objective,
        data.X if kept.all() else data.X[kept],
        data.y[kept],
        data.weight[kept] / mean_weight / max(1, kept.sum()),
        data.classes.size,
    )
    return make_piece(problem, placed.weights, placed.stratum[kept], placed.group[kept])


def _start(model: FairClassifier, theta: FloatArray, placed: PlacedRows) -> "Start":
    from fferm.solvers.pieces import Start

    if placed.known is None or tuple(model.groups_) != placed.known.names:
        return Start(theta, None)
    shape = len(placed.weights.share), model.classes_.size, len(placed.known.names)
    return Start(theta, model.dual_ if model.dual_.shape == shape else None)
