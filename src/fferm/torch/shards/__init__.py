"""Training from a folder of Parquet shards that does not fit in memory.

`folder` finds the files and checks that they agree, `columns` turns their columns into
numbers, `scan` and `first_pass` find priors, vocabularies and means for `summary`;
`order` says which rows come when, `stream` reads them and `dataset` makes batches.
"""

try:
    import pyarrow.parquet as _parquet  # noqa: F401 - the message below is ours
except ImportError as error:
    from fferm.errors import MissingDependencyError

    raise MissingDependencyError(
        "fferm.torch.shards needs the package pyarrow, which is not installed. Run: "
        'pip install "fferm[torch]"'
    ) from error

from fferm.torch.shards.dataset import ShardDataset, ShardLoader
from fferm.torch.shards.first_pass import summarize
from fferm.torch.shards.summary import LabelCounts, ShardSummary

__all__ = ["LabelCounts", "ShardDataset", "ShardLoader", "ShardSummary", "summarize"]
