"""A correct loop with DistributedDataParallel, and faults of loops over several processes."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pv.suites.training_loop.job import Example, Job, Report
from pv.suites.training_loop.probe import token_loss


class Model(nn.Module):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.probe = job.model()

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return token_loss(self.probe(batch["input_ids"]), batch["labels"], "sum")


class DDP:
    """Divides by the tokens of a window over all ranks."""

    features: Mapping[str, bool | str] = {"save": "it writes no checkpoint"}
    tolerance = 1e-9

    def run(self, job: Job) -> Report:
        dist.init_process_group("gloo")
        model = Model(job)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=job.rate)
        report = Report(model=model)
        for step, window in enumerate(self.windows(job) * job.epochs, 1):
            scored = self.total(sum(example.scored for batch in window for example in batch))
            for batch in window:
                # Each backward averages over the ranks, so that the sum of their means is the mean of all.
                (parallel(job.collate(batch)) * dist.get_world_size() / scored).backward()
            optimizer.step()
            optimizer.zero_grad()
            if job.eval_every and step % job.eval_every == 0:
                report.evaluations.append((step, self.evaluate(job, model)))
        return report

    def windows(self, job: Job) -> list[list[list[Example]]]:
        mine = job.train[dist.get_rank() :: dist.get_world_size()]
        batches = [list(mine[i : i + job.batch]) for i in range(0, len(mine), job.batch)]
        return [batches[i : i + job.accumulate] for i in range(0, len(batches), job.accumulate)]

    def total(self, scored: int) -> int:
        return int(self.summed(torch.tensor(scored)))

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(tensor)
        return tensor

    def evaluate(self, job: Job, model: Model) -> float:
        mine = list(job.evaluated[dist.get_rank() :: dist.get_world_size()])
        model.eval()
        with torch.no_grad():
            tokens = torch.tensor(sum(example.scored for example in mine))
            nats, scored = self.summed(torch.stack([model(job.collate(mine)), tokens]))
        model.train()
        return float(nats / scored)


class OwnEvaluation(DDP):
    """Evaluates the part of its own rank."""

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.ndim else super().summed(tensor)


class Broken(DDP):
    """Fails on one rank, while the other waits for it."""

    def total(self, scored: int) -> int:
        if dist.get_rank() == 1:
            raise ArithmeticError("no such rank")
        return super().total(scored)
