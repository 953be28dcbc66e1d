"""An attack on how much of the held-back text a distillation evaluates.

The subject is `reference_trainer.pipeline.distill`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.small_runs import run, small
from reference_trainer import Schedule, Settings
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.training.parallel import ONE_PROCESS

LIMIT = 2**16
CASES = [(257, 257), (LIMIT + 1, 257), (LIMIT + 1, 256)]
"""Bytes held back, and lengths: a byte above the limit completes a sequence of 257, a byte below ends one of 256."""


@given(case=st.sampled_from(CASES))
def falsify_evaluation_has_a_limit(subject: Any, device: str, case: tuple[int, int]) -> None:
    held, length = case
    text = bytes(97 + k * k % 26 for k in range(1000)) * (held // 100 + 1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "long").write_bytes(text[: 10 * held])
        places = {"data": directory / "long", "out": directory / "out", "device": device}
        result = run(subject, small(directory, length=length, batch_size=16, max_steps=1, **places))
    expected = (min(LIMIT, held) - 1) // (length - 1) * (length - 1)
    seen = {name: total.count for name, total in result.held_back.items()}
    assert seen.keys() >= {"hard_loss", "kl_at_1"} and set(seen.values()) == {expected}, (
        f"of {held} bytes held back, of which the first {LIMIT} count, {seen} were scored; expected {expected}"
    )


@given(more=st.integers(-1, 4))
def falsify_a_longer_sequence_is_evaluated(subject: Any, more: int) -> None:
    """Of sequences that are longer than the limit, the first is evaluated, by tables of logits in place of models.

    The bytes after it are 0, which the student expects least.
    """
    length = LIMIT + more
    with tempfile.TemporaryDirectory() as name:
        text, content = Path(name, "long"), bytearray(97 + k * k % 26 for k in range(1000)) * (length // 50)
        end = len(content) * 9 // 10 + length
        content[end:] = bytes(len(content) - end)
        text.write_bytes(content)
        settings = Settings(data=text, out=Path(name, "out"), length=length, batch_size=1, device="cpu")
        run = subject.Distillation(settings)
        run.device, run.parallel = torch.device("cpu"), ONE_PROCESS
        run.batches = run.make_batches()
        run.schedule = Schedule(epochs=1, steps_per_epoch=run.batches.batches)
        table = torch.zeros(256, 256)
        table[:, 0] = -100.0
        run.frozen, run.learner = FixtureTeacher(table), ModuleStudent(torch.nn.Embedding.from_pretrained(table), 256)
        sums = run.evaluate()
    seen = {each.count for each in sums.values()}
    assert seen == {length - 1}, f"with sequences of {length} bytes, {seen} are scored; expected {length - 1}"
    loss = sums["hard_loss"].sum / (length - 1)
    assert loss < 6, f"with sequences of {length} bytes, bytes after the first one are scored: the loss is {loss:.3g}"
