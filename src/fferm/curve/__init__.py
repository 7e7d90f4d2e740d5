"""Trade-off curves: what each amount of fairness costs in accuracy.

A curve trains one model per fairness weight, each warm-started at the one before, and
keeps the models with their records. `sweep` trains, `measures` evaluates models on
rows, `records` are the files that a killed sweep resumes from, and `curve` is the
result with its front.
"""

from fferm.curve.curve import Key, TradeoffCurve
from fferm.curve.sweep import tradeoff_curve

__all__ = ["Key", "TradeoffCurve", "tradeoff_curve"]
