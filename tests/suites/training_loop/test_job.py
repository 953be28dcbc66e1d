from pathlib import Path

import torch

from pv.suites.training_loop.claims.cases import equal, unequal
from pv.suites.training_loop.job import IGNORED, Job, padded, probe_of, weights_of


def test_rows_are_padded_on_the_right_to_a_multiple() -> None:
    batch = padded(list(unequal(3)), 16)
    assert {each.shape for each in batch.values()} == {torch.Size([3, 16])}
    short = len(unequal(3)[0].tokens)
    assert (batch["labels"][0, short:] == IGNORED).all() and not batch["attention_mask"][0, short:].any()


def test_noise_draws_from_the_default_generator() -> None:
    job = Job(directory=Path(), train=equal(4), noise=True)
    torch.manual_seed(1)
    one, two = (job.collate(list(equal(4)))["input_ids"] for _ in range(2))
    torch.manual_seed(1)
    assert (one != two).any() and (job.collate(list(equal(4)))["input_ids"] == one).all()


def test_model_has_what_the_job_asks_for() -> None:
    probe = Job(directory=Path(), train=equal(1), tied=True, frozen=True).model()
    assert probe.head.weight is probe.embed.weight and not probe.embed.weight.requires_grad
    assert probe_of(torch.nn.Sequential(probe)) is probe
    assert weights_of(probe).keys() == {"embed.weight", "head.bias"}


def test_model_returns_nan_in_the_evaluations_asked_for() -> None:
    job = Job(directory=Path(), train=equal(1), evaluated=equal(3), eval_batch=2, nan_evaluations=(1,))
    probe, row = job.model().eval(), torch.tensor([[1, 40]])
    assert [bool(probe(row).isnan().any()) for _ in range(6)] == [False, False, True, True, False, False]
