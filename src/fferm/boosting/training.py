"""The loop over rounds: records, stopping, and the booster that is left."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fferm._typing import FloatArray
from fferm.boosting.recipes import Judge, Recipe
from fferm.boosting.rounds import Rounds
from fferm.boosting.trees import read_booster
from fferm.solvers import Result
from fferm.solvers.base import Monitor, Record

if TYPE_CHECKING:
    import lightgbm as lgb


@dataclass(frozen=True)
class Grown:
    """A trained booster, and how training went.

    ``scores`` are those of the training rows, None where rounds were dropped.
    """

    booster: "lgb.Booster"
    text: str
    scores: FloatArray | None
    history: tuple[Record, ...]
    n_rounds: int
    result: Result


def grow(rounds: Rounds, recipe: Recipe, judge: Judge | None = None) -> Grown:
    """Return a booster of as many rounds as were asked for, or as were best."""
    monitor = Monitor(callbacks=recipe.callbacks)
    result = Result.schedule_completed
    for _ in range(recipe.n_rounds):
        record = rounds.advance()
        if record is None:
            result = Result.nothing_gained
            break
        if judge is not None:
            record["held_out"] = judge.see(rounds.held_out_scores())
        if monitor.record(**record) or (judge is not None and judge.is_over):
            result = monitor.stopped or Result.nothing_gained
            break
    kept = len(monitor.history)
    if judge is not None and judge.best_round:  # 0 where no round could be judged
        kept = judge.best_round
    text = rounds.text(kept)
    booster = read_booster(text)
    scores = rounds.scores() if kept == len(monitor.history) else None
    return Grown(booster, text, scores, tuple(monitor.history), kept, result)
