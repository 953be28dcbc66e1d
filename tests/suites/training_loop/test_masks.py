"""Masks of a training forward are compared with its rows; masks of another form are not judged."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pv.suites.training_loop.cases import unequal
from pv.suites.training_loop.claims.gradients import wrong_mask
from pv.suites.training_loop.job import Job, padded
from pv.suites.training_loop.probe import Recorder
from tests.suites.training_loop.planting import correct


def fault(change: Callable[[Tensor], Any], left: bool, added: int | None = None) -> str:
    """Return what is wrong with the changed mask of four rows. left: of the padding. added: a token before each row."""
    run = correct().run(Job(train=unequal(4)))
    batch = padded(list(run.job.train))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    if left:
        missing = (mask == 0).sum(1).tolist()
        ids, mask = (torch.stack(list(map(torch.roll, tensor, missing))) for tensor in (ids, mask))
    if added is not None:
        ids = torch.cat([ids.new_full((4, 1), added), ids], 1)
        mask = torch.cat([mask.new_ones(4, 1), mask], 1)
    recorder = Recorder()
    recorder.note_mask(ids, change(mask))
    return wrong_mask(replace(run, masked=tuple(recorder.masked)))[0]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda mask: None,
        lambda mask: mask.tolist(),
        lambda mask: mask,
        lambda mask: mask.bool(),
        lambda mask: mask.double(),
        lambda mask: mask == 0,  # of PyTorch's `key_padding_mask`
        lambda mask: (1.0 - mask) * -1e9,
        lambda mask: ((1.0 - mask) * -1e9)[:, None, None],
        lambda mask: mask[:, None] * mask[:, :, None],
        lambda mask: mask.cumsum(1),  # positions, or segments
        lambda mask: torch.zeros_like(mask),
    ],
)
def test_mask_that_is_right_or_has_another_form_is_no_fault(change: Callable[[Tensor], Any], left: bool) -> None:
    assert fault(change, left) == ""


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("change", [lambda mask: 1 - mask, lambda mask: mask.bool().roll(1, 1)])
def test_mask_that_hides_tokens_is_a_fault(change: Callable[[Tensor], Any], left: bool) -> None:
    assert "the model is given the mask" in fault(change, left)


def test_mask_of_ones_is_a_fault_where_padding_comes_before_the_tokens_and_not_a_token() -> None:
    assert fault(lambda mask: mask, left=False, added=0) == "", "the loop adds it before each row"
    assert fault(torch.ones_like, left=False) == ""
    assert "the model is given the mask" in fault(torch.ones_like, left=True)
    assert "not 0001111?" in fault(lambda mask: torch.maximum(mask, mask.roll(-1, 1)), left=True)


def test_numbers_of_examples_that_share_a_row_are_no_fault() -> None:
    run = correct().run(Job(train=unequal(4)))
    first, second, third = (list(example.tokens) for example in run.job.train[:3])
    rows = [[*first, *second[:2]], third]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    segments = (ids == second[0]).cumsum(1)
    recorder = Recorder()
    recorder.note_mask(ids, segments)
    assert recorder.masked and wrong_mask(replace(run, masked=tuple(recorder.masked))) == ("", ())
