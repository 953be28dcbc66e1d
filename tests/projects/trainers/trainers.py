"""Trainers that are the suite's own loop, right or with one fault."""

from dataclasses import replace
from unittest import SkipTest

import torch

from pv.suites.training_loop.loop import Loop


class Right(Loop):
    def run(self, job):
        return super().run(job)


class Unclipped(Loop):
    def run(self, job):
        return super().run(replace(job, clip=None))


class DroppedReserved(Loop):
    """Drops an example, so that claims about the orders of all examples say nothing."""

    not_claimed = {"TL-DATA-001": "it drops an example (README, section Data)"}

    def run(self, job):
        return super().run(replace(job, train=job.train[1:]))


class Reserved(Loop):
    features = {"norm": "it logs no norm"}
    not_claimed = {"TL-CLIP-001": "it never clips (README, section Clipping)"}

    def run(self, job):
        report = super().run(job)
        for row in report.logs:
            row.pop("norm", None)
        return report


def train(model):
    """Trains without an adapter."""


class Unfinished(Loop):
    def run(self, job):
        raise SkipTest("fill in train()")


class Picky(Loop):
    """Skips some of the jobs that are drawn."""

    def run(self, job):
        if job.accumulate == 3:
            raise SkipTest("a window has at most two micro-batches")
        return super().run(job)


class Raising(Loop):
    """Raises in the model of the suite, which it calls with numbers that are no ids."""

    def run(self, job):
        return job.model()(torch.zeros(1, 2))


class RaisingLater(Loop):
    """Raises in jobs of several epochs, in the model of the suite."""

    def run(self, job):
        job.model()(torch.full((1, 2), 99)) if job.epochs > 1 else None
        return super().run(job)


class Unknown(Loop):
    not_claimed = {"TL-CLIPS-001": "it never clips"}


class Returning(Loop):
    """Returns no report."""

    def run(self, job):
        job.model()


class Unloaded(Loop):
    def __init__(self):
        raise OSError("missing settings")
