"""Trade-off curves: what each amount of fairness costs in accuracy.

A curve trains one model per fairness weight, each begun where the last one ended, and
keeps the models with their records, so that a point can be looked at and then used.

`splits` are the rows, `measuring` what is measured on them, `journal` the append-only
files of records. A path of `paths` is one curve and one seed, `sweep` runs many of
them, `assembly` puts their records together to the `curve`, and `fronts` knows its
geometry.
"""

from fferm.tradeoff.curve import TradeoffCurve
from fferm.tradeoff.keys import Key
from fferm.tradeoff.sweep import tradeoff_curve

__all__ = ["Key", "TradeoffCurve", "tradeoff_curve"]
