"""Training from Parquet shards that do not fit in memory, on one process or many.

`shards` reads a folder once and turns its rows into numbers, `stream` makes batches
that ranks and workers share, `training` is ``python -m fferm.distributed``. It uses
`fferm.torch` and may not be imported by it.
"""

from fferm.errors import missing_package

try:
    import pyarrow.parquet as _parquet  # noqa: F401 - the message below is ours
except (ImportError, OSError) as error:
    raise missing_package("fferm.distributed", "pyarrow", "torch", error) from error

from fferm.distributed.shards import LabelCounts, ShardSummary, summarize
from fferm.distributed.stream import ShardDataset, ShardLoader
from fferm.distributed.training import Options, load_model, train

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
