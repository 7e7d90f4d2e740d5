"""The experiments of the paper, one spec each, and the runner that repeats them.

A spec (``specs/*.toml``) names data, panels and methods. Every panel, method and seed
is one task: a sweep over the method's trade-off parameter. Records are appended to a
file as tasks end, so that a run that was stopped goes on where it was.
"""

from fferm.lab.experiments.results import summarize
from fferm.lab.experiments.runner import run
from fferm.lab.experiments.specs import known, read_spec

__all__ = ["known", "read_spec", "run", "summarize"]
