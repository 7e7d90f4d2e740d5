"""Steps of a run on a GPU, replayed as one CUDA graph."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fferm.torch.training import Run

# Steps before a capture, as PyTorch asks for.
REHEARSALS = 3


class CapturedSteps:
    """A step on batches of full size as a CUDA graph; other sizes run as they are.

    Parameters
    ----------
    run
        The run whose step is captured; it is left as it was.
    """

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.graph: torch.cuda.CUDAGraph | None = None
        self.index = torch.zeros(0, dtype=torch.int64)
        self.penalty_index: Tensor | None = None

    def __call__(self, index: Tensor, penalty_index: Tensor | None) -> None:
        """Take a step."""
        if len(index) != self.run.config.batch_size:
            self.run.step(index, penalty_index)
            return
        if self.graph is None:
            self._capture(index, penalty_index)
        self.index.copy_(index)
        if penalty_index is not None and self.penalty_index is not None:
            if len(penalty_index) != len(self.penalty_index):
                self.run.step(index, penalty_index)
                return
            self.penalty_index.copy_(penalty_index)
        assert self.graph is not None
        self.graph.replay()

    def _capture(self, index: Tensor, penalty_index: Tensor | None) -> None:
        run = self.run
        self.index = index.clone()
        self.penalty_index = None if penalty_index is None else penalty_index.clone()
        before = [tensor.clone() for tensor in _tensors(run)]
        # Adam's state comes into being with its first step and must be there before.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(REHEARSALS):
                run.step(self.index, self.penalty_index)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            run.step(self.index, self.penalty_index)
        tensors = _tensors(run)
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=False):
                tensor.copy_(old)
            for tensor in tensors[len(before) :]:  # the optimizer had no state yet
                tensor.zero_()


def _tensors(run: "Run") -> list[Tensor]:
    tensors = [*run.networks.state().values()]
    tensors += [run.objective.losses, run.objective.totals]
    if run.objective.penalty is not None:
        tensors += list(run.objective.penalty.state_dict().values())
    for state in run.optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return tensors
