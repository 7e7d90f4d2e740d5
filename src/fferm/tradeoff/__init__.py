"""Trade-off curves: what each amount of fairness costs in accuracy.

A curve trains one model per fairness weight, each begun where the last one ended, and
keeps the models with their records, so that a point can be looked at and then used.
"""

from fferm.tradeoff.curve import TradeoffCurve
from fferm.tradeoff.sweep import tradeoff_curve

__all__ = ["TradeoffCurve", "tradeoff_curve"]
