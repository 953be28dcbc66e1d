"""The adapter of `nano.py`: what `pv` calls to attack it."""

from nano import Config, Loop

from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.adapters.usual import NextTokens, next_tokens, settings
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.probe import Probe


class Adapter(HandWritten):
    features = dict.fromkeys(("loss", "rate", "norm"), True)
    not_claimed = dict.fromkeys(("TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), "the loop logs the loss of the last step")

    def build(self, job: Job, model: Probe) -> None:
        self.loop = Loop(NextTokens(model, reduction="sum"), next_tokens(job.train), settings(Config, job))

    def evaluate(self) -> float:
        return self.loop.estimate_loss(next_tokens(self.job.evaluated), self.job.eval_batch)
