"""Attacks on how a teacher is trained, and on what is said of it. The subject is that of `falsify_teachers`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.teacher_cases import CPU, TEXT, Fetched, bits_of, settings_of

OFFSET = 1_000_003
AT_A_STANDSTILL = 5e-324
"""The smallest learning rate that there is: no float32 weight moves by it."""


def falsify_heads_are_about_32_wide(subject: Any) -> None:
    """Of all numbers that cut a width into even parts, the largest that leaves 32 features to each, or one head."""
    for width in range(16, 2049, 16):
        fitting = [heads for heads in range(1, width + 1) if (width / heads) % 2 == 0]
        expected = max((heads for heads in fitting if width / heads >= 32), default=1)
        seen = subject.heads_for(width)
        assert seen == expected, f"a width of {width} has {seen} heads; expected {expected}"


class _Recorded(nn.Module):
    """A decoder, with the tokens that it was asked for."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder, self.read = decoder, list[list[list[int]]]()

    def forward(self, tokens: Tensor) -> Any:
        self.read.append(tokens.tolist())
        return self.decoder(tokens)


class _Watched:
    """A training of a teacher that stands still: its weights, and for each step the batch and the loss."""

    def __init__(self, subject: Any, steps: int, **own: Any) -> None:
        self.losses: list[float] = []
        recorded: list[_Recorded] = []
        settings = settings_of(subject, None, lr=AT_A_STANDSTILL, **own)
        sequences = subject.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)

        def wrap(decoder: nn.Module) -> nn.Module:
            recorded.append(_Recorded(decoder))
            return recorded[0]

        def hear(listener: Any, context: Any) -> None:
            self.losses.append(context.loss)

        listener = type("Listener", (subject.Callback,), {"on_step_end": hear})()
        self.decoder = subject.fit(settings, sequences, steps, [listener], wrap)
        self.read = recorded[0].read


def _to_be_read(subject: Any, seed: int, steps: int) -> list[list[list[int]]]:
    """The batches of two sequences of `TEXT`, which has eight, each sharing a byte with the next."""
    rows = [TEXT.tolist()[start : start + 8] for start in range(0, 56, 7)]
    orders = [subject.epoch_order(seed, epoch, len(rows)).tolist() for epoch in range(1, steps // 4 + 2)]
    return [[rows[k] for k in order[start : start + 2]] for order in orders for start in range(0, 8, 2)][:steps]


@given(seed=st.integers(0, 9), layers=st.integers(1, 2), steps=st.integers(1, 9))
def falsify_a_teacher_learns_from_the_labels_alone(subject: Any, seed: int, layers: int, steps: int) -> None:
    """It starts from the weights and reads in the order of a seed that no student has, and its loss is cross-entropy.

    Which seed that is, keys of older teachers rely on.
    """
    seen = _Watched(subject, steps, seed=seed, teacher_layers=layers)
    config = subject.DecoderConfig(vocab_size=256, layers=layers, width=16, heads=1)
    start = subject.new_decoder(config, seed + OFFSET)
    assert bits_of(seen.decoder) == bits_of(start), f"a teacher of seed {seed} doesn't start as seed {seed + OFFSET}"
    expected = _to_be_read(subject, seed + OFFSET, steps)
    assert seen.read == expected, f"seed {seed} reads {seen.read}; in the order of {seed + OFFSET} it is {expected}"
    for step, (batch, loss) in enumerate(zip(expected, seen.losses, strict=True), 1):
        nats = _cross_entropy(start, torch.tensor(batch))
        assert math.isclose(loss, nats, rel_tol=1e-6), f"the loss of step {step} is {loss}; its cross-entropy is {nats}"


def _cross_entropy(decoder: nn.Module, tokens: Tensor) -> float:
    with torch.no_grad():
        logits = decoder(tokens)[:, :-1].double()
    return float(nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


class OnPurpose(Exception):
    """What a callback raises."""


@given(
    event=st.sampled_from(["on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end"]),
    fault=st.sampled_from([OnPurpose, KeyboardInterrupt]),
)
def falsify_a_failed_training_says_whose_it_was(subject: Any, event: str, fault: type[BaseException]) -> None:
    """The exception is the one that was raised, with a note that it was the teacher's; nothing is kept."""

    def fail(listener: Any, context: Any) -> None:
        raise fault("on purpose")

    listener = type("Failing", (subject.Callback,), {event: fail})()
    sequences = subject.Sequences(bytes_N=TEXT, length=8, batch_size=2, device=CPU)
    with tempfile.TemporaryDirectory() as name:
        settings, notes = settings_of(subject, Path(name)), None
        try:
            subject.cached_or_trained(settings, sequences, "d", [listener], list[str]().append, lambda decoder: decoder)
        except fault as error:
            notes = getattr(error, "__notes__", [])
        kept = [p.name for p in Path(name).rglob("*")]
    assert notes is not None, f"an exception in {event} of a teacher's training is lost, and half a teacher is taken"
    assert any("teacher" in note for note in notes), f"what failed in {event} has the notes {notes}: whose was it?"
    assert kept == [], f"a training that failed in {event} left {kept} in the cache"


TRAINED = "teacher: training one for {steps} steps on the same text; --teacher PATH takes yours"


@given(steps=st.integers(1, 4), smoke=st.none() | st.integers(1, 4))
def falsify_what_is_done_for_a_teacher_is_said(subject: Any, steps: int, smoke: int | None) -> None:
    """For how many steps one is trained and where it is kept, or that one is taken from there: as it is done."""
    with tempfile.TemporaryDirectory() as name:
        cache, own = Path(name, "cache"), {"teacher_steps": steps}
        first = Fetched(subject, settings_of(subject, cache, smoke=smoke, **own))
        kept = [f"teacher: kept in {path}" for path in cache.glob("*")]
        expected = [TRAINED.format(steps=min(steps, smoke or steps)), *kept]
        assert first.said == expected, f"of a new teacher is said {first.said}; expected {expected}"
        assert len(kept) == (smoke is None), f"a run with smoke = {smoke} kept {len(kept)} teachers"
        Fetched(subject, settings_of(subject, cache, **own))
        again = Fetched(subject, settings_of(subject, cache, smoke=smoke, **own))
        (directory,) = cache.iterdir()
    assert again.said == [f"teacher: {directory}"], f"of the teacher in {directory} is said {again.said}"
