"""Training from shards on one process or many: ``python -m fferm.torch.train``.

`options` is the command line, `processes` joins the ranks that ``torchrun`` starts,
`loop` trains, `files` holds checkpoints and the trained model.
"""

from fferm.torch.train.files import load_model
from fferm.torch.train.loop import train
from fferm.torch.train.options import Options

__all__ = ["Options", "load_model", "train"]
