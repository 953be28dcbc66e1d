"""The adapter of `train.py`: what `pv` calls to attack it."""

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train import Config, Loop, Rows

from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.job import IGNORED, Example, Job
from pv.suites.training_loop.probe import Probe


class Model(nn.Module):
    """The probe with the interface that the loop expects of its model."""

    def __init__(self, probe: Probe) -> None:
        super().__init__()
        self.probe = probe

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.probe(x)
        return logits, cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")


def rows(examples: tuple[Example, ...]) -> Rows:
    targets = [[-1 if label == IGNORED else label for label in each.labels] for each in examples]
    return [(list(each.tokens[:-1]), y[1:]) for each, y in zip(examples, targets, strict=True)]


class Adapter(HandWritten):
    logged = ("loss", "rate", "norm")
    not_claimed = dict.fromkeys(("TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), "the loop logs the loss of the last step")

    def build(self, job: Job, model: Probe) -> None:
        self.job = job
        config = Config(
            learning_rate=job.rate,
            warmup=job.warmup,
            decay=job.schedule == "linear",
            batch_size=job.batch,
            accumulation=job.accumulate,
            epochs=job.epochs,
            max_iters=job.max_steps,
            grad_clip=job.clip,
            optimizer=job.optimizer,
            seed=job.seed,
        )
        self.loop = Loop(Model(model), rows(job.train), config)

    def windows(self) -> Iterable[list[Rows]]:
        return self.loop.windows()

    def update(self, window: list[Rows]) -> None:
        self.loop.step(window)

    def log(self) -> dict[str, float]:
        return {"loss": self.loop.loss, "norm": self.loop.norm, "rate": self.loop.optimizer.param_groups[0]["lr"]}

    def evaluate(self) -> float:
        return self.loop.estimate_loss(rows(self.job.evaluated), self.job.eval_batch)

    def save(self, path: Path) -> None:
        self.loop.save(path)

    def load(self, path: Path) -> int:
        self.loop.load(path)
        return self.loop.iteration
