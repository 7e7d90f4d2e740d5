"""Training from Parquet shards that do not fit in memory, on one process or many.

`folder` finds the files and checks that they agree, `columns` turns their columns into
numbers, `scan` and `first_pass` find priors, vocabularies and means for `summary`;
`order` says which rows come when, `stream` reads them and `dataset` makes batches.
``python -m fferm.distributed`` trains on them: `options` is the command line,
`processes` joins the ranks that ``torchrun`` starts, `loop` trains, `files` holds
checkpoints and the trained model.
"""

try:
    import pyarrow.parquet as _parquet  # noqa: F401 - the message below is ours
except ImportError as error:
    from fferm.errors import MissingDependencyError

    raise MissingDependencyError(
        "fferm.distributed needs the package pyarrow, which is not installed. Run: "
        'pip install "fferm[torch]"'
    ) from error

from fferm.distributed.dataset import ShardDataset, ShardLoader
from fferm.distributed.files import load_model
from fferm.distributed.first_pass import summarize
from fferm.distributed.loop import train
from fferm.distributed.options import Options
from fferm.distributed.summary import LabelCounts, ShardSummary

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
