"""From results to figures and pages. Reports never train and never load data.

`figures` draws, `snippets` says how to repeat a result, `pages` fills a template and
writes it. On these stand the reports, `curves`, `audits` and `dossiers`. matplotlib
and jinja2 are imported when they are first used, so this package can be imported
without them.
"""

from fferm.report.audits import write_audit
from fferm.report.curves import write_curve
from fferm.report.dossiers import write_alternatives, write_dossier
from fferm.report.figures import plot_curve

__all__ = [
    "plot_curve",
    "write_alternatives",
    "write_audit",
    "write_curve",
    "write_dossier",
]
