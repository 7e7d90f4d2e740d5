"""Training from Parquet shards that do not fit in memory, on one process or many.

`shards` reads a folder once and turns its rows into numbers, `stream` makes batches
that ranks and workers share, `training` is ``python -m fferm.distributed``. It uses
`fferm.torch` and may not be imported by it.
"""

from fferm.errors import import_extra

import_extra("pyarrow.parquet", "torch")  # says what to install

from fferm.distributed.shards import LabelCounts, ShardSummary, summarize  # noqa: E402
from fferm.distributed.stream import ShardDataset, ShardLoader  # noqa: E402
from fferm.distributed.training import Options, load_model, train  # noqa: E402

__all__ = [
    "LabelCounts",
    "Options",
    "ShardDataset",
    "ShardLoader",
    "ShardSummary",
    "load_model",
    "summarize",
    "train",
]
