"""The training loop: PyTorch's DistributedDataParallel around a small network."""

import logging
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - everybody's name for it
from torch.nn.parallel import DistributedDataParallel

from fferm.distributed.dataset import ShardDataset, ShardLoader
from fferm.distributed.files import (
    CHECKPOINT,
    build_model,
    check_folder,
    check_settings,
    read_checkpoint,
    write_checkpoint,
    write_model,
)
from fferm.distributed.first_pass import summarize
from fferm.distributed.folder import describe_shard, find_shards
from fferm.distributed.options import Options
from fferm.distributed.processes import explained, joined_ranks
from fferm.distributed.summary import ShardSummary
from fferm.errors import InvalidInputError, InvalidParameterError, NonFiniteError
from fferm.torch.ranks import add_ranks, rank_and_size, spread_ranks

log = logging.getLogger("fferm.distributed")


def train(options: Options) -> list[dict[str, Any]]:
    """Train as told, from the last checkpoint on if there is one.

    Returns
    -------
    list of dict
        Loss, penalty and violation of each epoch.
    """
    with joined_ranks(options.device, options.timeout) as device:
        rescue = f"run the same command again to go on from {options.out / CHECKPOINT}"
        with explained("at the beginning", rescue):
            training = _begin(options, device)
        with explained("in training", rescue):
            while training.loader.dataset.epoch < options.epochs:
                training.run_epoch()
        training.finish()
        return training.history


class Training:
    """A run between two steps.

    Parameters
    ----------
    options
        What it was told.
    summary
        What the shards hold.
    streams
        As in `ShardDataset`.
    device
        Where it runs.
    """

    def __init__(
        self,
        options: Options,
        summary: ShardSummary,
        streams: int | None,
        device: torch.device,
    ) -> None:
        self.options = options
        self.summary = summary
        self.device = device
        dtype: torch.dtype = getattr(torch, options.dtype)
        self.loader = ShardLoader(
            ShardDataset(
                summary,
                options.batch_size,
                seed=options.seed,
                buffer=options.buffer,
                streams=streams,
                dtype=dtype,
            ),
            num_workers=options.workers,
        )
        self.model = build_model(
            len(summary.feature_names),
            summary.n_classes,
            options.hidden,
            seed=options.seed,
            dtype=dtype,
        ).to(device)
        self.fair = summary.fairness_loss(
            divergence=options.divergence,
            notion=options.notion,
            sharpness=options.sharpness,
            groups=options.groups,
        ).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=options.lr, weight_decay=options.weight_decay
        )
        self.rank, self.n_ranks = rank_and_size()
        self.history: list[dict[str, Any]] = []
        self.total = torch.zeros(2, dtype=torch.float64, device=device)  # loss, rows

    def run_epoch(self) -> None:
        """Train to the end of the epoch, with checkpoints."""
        began, data = time.perf_counter(), self.loader.dataset
        model: nn.Module = self.model
        if self.n_ranks > 1:
            model = DistributedDataParallel(self.model)
        epoch, every = data.epoch, self.options.checkpoint_every
        for x, y, group in self.loader:
            self._step(model, x, y, group, data.n_rows(data.step - 1))
            if data.step % every == 0 and data.step < data.n_steps:
                self.save()
        self._close_epoch(epoch, time.perf_counter() - began)
        self.save()

    def save(self) -> None:
        """Write a checkpoint, on rank 0; every rank must call."""
        self._check_total()
        if self.rank == 0:
            write_checkpoint(self.options.out, self.state_dict())

    def finish(self) -> None:
        """Write the trained model, on rank 0."""
        if self.rank == 0:
            about = {**self.options.settings(), "data": str(self.options.data)}
            about["history"] = self.history
            path = write_model(self.options.out, self.model, self.summary, about)
            log.info("%s is trained", path)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a run needs to go on."""
        return {
            "settings": self.options.settings(),
            "summary": self.summary.to_json(),
            "streams": self.loader.dataset.order.streams,
            "loader": self.loader.state_dict(),
            "model": self.model.state_dict(),
            "fair": self.fair.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "total": self.total.cpu(),
            "history": self.history,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.loader.load_state_dict(state["loader"])
        self.model.load_state_dict(state["model"])
        self.fair.load_state_dict(state["fair"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = list(state["history"])
        if self.rank == 0:
            self.total.copy_(state["total"])

    def _step(
        self, model: nn.Module, x: Tensor, y: Tensor, group: Tensor, n_rows: int
    ) -> None:
        x, y, group = (t.to(self.device, non_blocking=True) for t in (x, y, group))
        logits = model(x)
        n_own = max(len(y), 1)
        loss = F.cross_entropy(logits, y, reduction="sum") / n_own
        loss = loss + self.options.fairness_weight * self.fair(logits, group, y)
        # Gradients are averaged over ranks; the rows of a batch are to weigh alike.
        share = len(y) * self.n_ranks / n_rows
        self.optimizer.zero_grad()
        (share * loss).backward()
        self.optimizer.step()
        self.total[0] += loss.detach() * len(y)
        self.total[1] += len(y)

    def _check_total(self) -> None:
        """Gather the loss so far on rank 0, after checking it."""
        (self.total,) = add_ranks(self.total)
        if not math.isfinite(float(self.total[0])):
            raise NonFiniteError(
                f"The loss of epoch {self.loader.dataset.epoch + 1} is not finite. "
                "Lower --lr or --fairness-weight; the last checkpoint is from before."
            )
        if self.rank > 0:
            self.total.zero_()

    def _close_epoch(self, epoch: int, seconds: float) -> None:
        self._check_total()
        found = self.fair.diagnostics()
        loss, n_rows = self.total.tolist() if self.rank == 0 else (0.0, 1.0)
        record = {
            "epoch": epoch + 1,
            "loss": loss / n_rows,
            "divergence": found.divergence,
            "violation": found.violation,
            "n_rows": found.n_samples,
        }
        self.history.append(record)
        self.total.zero_()
        if self.rank == 0:
            log.info(
                "epoch %d of %d: loss %.4f, divergence %.5f, violation %.4f (%.1f s)",
                epoch + 1,
                self.options.epochs,
                record["loss"],
                found.divergence,
                found.violation,
                seconds,
            )


def _begin(options: Options, device: torch.device) -> Training:
    # Rank 0 alone needs to see the folder; another machine may not.
    state, failure = None, None
    if rank_and_size()[0] == 0:
        try:
            check_folder(options.out)
            state = None if options.restart else read_checkpoint(options.out)
            if state is not None:
                check_settings(state, options.settings(), options.out)
        except ValueError as error:
            failure = error
    state, failure = spread_ranks((state, failure))
    if failure is not None:
        raise failure
    if state is None:
        summary = summarize(
            options.data,
            target=options.target,
            sensitive=options.sensitive,
            features=options.features,
            drop_sensitive=options.drop_sensitive,
        )
        return Training(options, summary, options.streams, device)
    summary = ShardSummary.from_json(state["summary"], options.data)
    _check_shards(summary, options.data)
    if options.streams not in (None, state["streams"]):
        raise InvalidParameterError(
            f"streams={options.streams} came, and the checkpoint has "
            f"{state['streams']}. Leave --streams out to go on."
        )
    training = Training(options, summary, state["streams"], device)
    training.load_state_dict(state)
    if training.rank == 0:
        place = training.loader.state_dict()
        log.info("goes on from epoch %d, step %d", place["epoch"] + 1, place["step"])
    return training


def _check_shards(summary: ShardSummary, folder: Path) -> None:
    found = tuple(describe_shard(path, folder)[0] for path in find_shards(folder))
    if found != summary.shards:
        changed = {shard.name for shard in set(found) ^ set(summary.shards)}
        raise InvalidInputError(
            f"{folder} is not as the checkpoint knew it: {', '.join(sorted(changed))}. "
            "Put the shards back, or begin anew with --restart."
        )
