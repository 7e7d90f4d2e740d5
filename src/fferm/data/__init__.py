"""The one boundary: users' tables in, encoded rows out.

Whatever a user passes (arrays, data frames, sparse matrices, dicts) is checked and
encoded here, once. `validate` reads X, y and weights, `groups` the sensitive columns,
`rows` puts both together as `Rows`, `split` holds rows out and `group_counts` counts
groups in data that arrive in batches. No other package looks at raw tables, and this
one imports nothing above `notions`.
"""

from fferm._lazy import lazy

__getattr__, __dir__ = lazy(__name__)
