"""Audits: what a fitted model does to each group, and how sure one can be.

An audit puts decisions and probabilities side by side, for fairness of one is not
fairness of the other. It gives the violation with two intervals, the divergences of
the same tables and the bounds these imply, and names every group that it could not
judge.
"""

from fferm.auditing.judgement import audit
from fferm.auditing.number_reading import read_any
from fferm.auditing.number_result import RegressionAudit
from fferm.auditing.numbers import audit_regression
from fferm.auditing.result import Audit, DivergenceValue

__all__ = [
    "Audit",
    "DivergenceValue",
    "RegressionAudit",
    "audit",
    "audit_regression",
    "read_any",
]
