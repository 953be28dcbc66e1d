"""Train a language model on a list of token sequences: a loop written by hand, in the style of nanoGPT."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

Rows = list[tuple[list[int], list[int]]]
"""Inputs and targets of each sequence; targets are the next tokens, -1 where none is scored."""
Batch = tuple[Tensor, Tensor]


@dataclass
class Config:
    learning_rate: float = 3e-4
    warmup: int = 100
    decay: bool = True
    batch_size: int = 8
    accumulation: int = 4
    epochs: int = 1
    max_iters: int | None = None
    grad_clip: float | None = 1.0
    optimizer: str = "adamw"
    seed: int = 1337


def pad(rows: Rows) -> Batch:
    """Return inputs and targets as tensors [B, T]."""
    width = max(len(x) for x, _ in rows)
    inputs = [x + [0] * (width - len(x)) for x, _ in rows]
    targets = [y + [-1] * (width - len(y)) for _, y in rows]
    return torch.tensor(inputs), torch.tensor(targets)


class Loop:
    """A model and its optimizer on their way through the data. model(x, y) returns the logits and the summed loss."""

    def __init__(self, model: nn.Module, data: Rows, config: Config) -> None:
        torch.manual_seed(config.seed)
        self.model, self.data, self.config = model, data, config
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[config.optimizer]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = kind(self.parameters, lr=config.learning_rate)
        self.iteration = 0
        self.loss = self.norm = self.lr = math.nan

    @property
    def iters_per_epoch(self) -> int:
        return math.ceil(math.ceil(len(self.data) / self.config.batch_size) / self.config.accumulation)

    @property
    def planned(self) -> int:
        return self.config.max_iters or self.config.epochs * self.iters_per_epoch

    def get_lr(self) -> float:
        config, it = self.config, self.iteration
        if it < config.warmup:
            return config.learning_rate * it / config.warmup
        left = (self.planned - it) / max(1, self.planned - config.warmup)
        return config.learning_rate * (left if config.decay else 1.0)

    def micro_batches(self, epoch: int) -> list[Rows]:
        order, size = list(self.data), self.config.batch_size
        random.Random(f"{self.config.seed} {epoch}").shuffle(order)
        return [order[i : i + size] for i in range(0, len(order), size)]

    def windows(self) -> Iterator[list[Rows]]:
        """Yield the micro-batches of each iteration that is left."""
        while self.iteration < self.planned:
            epoch, first = divmod(self.iteration, self.iters_per_epoch)
            batches, size = self.micro_batches(epoch), self.config.accumulation
            for i in range(first * size, len(batches), size):
                if self.iteration < self.planned:
                    yield batches[i : i + size]

    def step(self, window: list[Rows]) -> None:
        self.model.train()
        self.lr = self.get_lr()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        batches = [pad(rows) for rows in window]
        scored = sum(int((y != -1).sum()) for _, y in batches)
        total = 0.0
        for x, y in batches:
            _, loss = self.model(x, y)
            (loss / max(scored, 1)).backward()
            total += loss.item()
        self.loss = total / max(scored, 1)
        self.norm = float(nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip or math.inf))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.iteration += 1

    @torch.no_grad()
    def estimate_loss(self, data: Rows, batch_size: int) -> float:
        self.model.eval()
        total, scored = 0.0, 0
        for i in range(0, len(data), batch_size):
            x, y = pad(data[i : i + batch_size])
            total += self.model(x, y)[1].item()
            scored += int((y != -1).sum())
        return total / scored

    def save(self, path: Path) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"iteration": self.iteration, "random": torch.get_rng_state()}, path)

    def load(self, path: Path) -> None:
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration = state["iteration"]
        torch.set_rng_state(state["random"])


def train(model: nn.Module, data: Rows, held: Rows, config: Config, out: Path, resume: Path | None = None) -> None:
    loop = Loop(model, data, config)
    if resume:
        loop.load(resume)
    for window in loop.windows():
        loop.step(window)
        if loop.iteration % 100 == 0:
            print(f"iteration {loop.iteration}: loss {loop.loss:.4f}, held out {loop.estimate_loss(held, 8):.4f}")
            loop.save(out / f"step-{loop.iteration}.pt")
