"""From records to figures and pages. Reports never train and never load data.

`extra` says what to install, `points` turns a curve into the rows of a table, `costs`
compares two models group by group, `figures` draws, `interactive` draws what can be
clicked, `numbers` draws predictions that are numbers, `recipes` says how to repeat a
result, `pages` fills a template and writes it. On these stand the reports, `curves`,
`audits` and `regression_audits`; `experiments` draws what the paper shows. matplotlib,
plotly and jinja2 are imported when they are first used, so this package can be imported
without them.
"""

from fferm.report.audits import write_audit
from fferm.report.curves import write_curve
from fferm.report.experiments import write_experiment
from fferm.report.figures import plot_curve
from fferm.report.regression_audits import write_regression_audit

__all__ = [
    "plot_curve",
    "write_audit",
    "write_curve",
    "write_experiment",
    "write_regression_audit",
]
