"""Attacks on the operations of a step, and on the rates that a run reports of them."""

import io
import math
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.resume.runs import Noisy, V, settings, small_distillation
from falsifiers.support.assertions import assert_equal
from falsifiers.support.runs import scratch
from reference_trainer import Lines
from reference_trainer.models.decoder import Decoder, DecoderConfig

SIZES = st.integers(1, 4)


def _config(layers: int, heads: int, pairs: int) -> DecoderConfig:
    return DecoderConfig(vocab_size=11, layers=layers, width=2 * heads * pairs, heads=heads)


CONFIGS = st.builds(_config, st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))


def forward_flops(config: DecoderConfig, B: int, T: int) -> int:
    """Return two operations for each multiplication of the decoder's matrix products.

    A layer multiplies each token with W x 3W, W x W, W x 2F and F x W weights, F = floor(8W/3), and each pair of
    positions in W features twice (scores, values); the head multiplies each token with W x V weights.
    """
    W, F = config.width, 8 * config.width // 3
    weights = config.layers * (4 * W * W + 3 * W * F) + W * config.vocab_size
    return 2 * B * T * weights + 2 * 2 * config.layers * B * T * T * W


@given(student=CONFIGS, teacher=st.none() | CONFIGS, B=SIZES, T=st.integers(1, 9))
@example(student=_config(1, 1, 1), teacher=_config(2, 2, 2), B=2, T=3)
def falsify_decoders_have_their_closed_form(
    subject: Any, device: str, student: DecoderConfig, teacher: DecoderConfig | None, B: int, T: int
) -> None:
    models = [None if config is None else Decoder(config).to(device) for config in (teacher, student)]
    seen = subject.step_flops(*models, (B, T))
    once = 0 if teacher is None else forward_flops(teacher, B, T)
    expected = once + 3 * forward_flops(student, B, T)
    assert seen == expected and type(seen) is int, f"{student} on [{B}, {T}], {teacher}: {seen!r}, not {expected}"


READS = ("nothing", "a value", "positions on the CPU", "whole batches")


class Reading(nn.Module):
    """Logits of V tokens by one product, after a read of what has no values or device."""

    def __init__(self, reads: str) -> None:
        super().__init__()
        self.reads = reads
        self.embedding, self.head = nn.Embedding(V, 4), nn.Linear(4, V, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.reads in ("a value", "whole batches"):
            assert int(tokens.max()) < V
            assert self.reads == "a value" or len(tokens) == 2
        elif self.reads == "positions on the CPU":
            tokens = tokens + 0 * torch.arange(tokens.shape[1])
        logits: Tensor = self.head(self.embedding(tokens))
        return logits


def _distilled(subject: Any, directory: Path, reads: dict[str, str], accumulate: int) -> tuple[Any, list[str]]:
    """Return the result and the lines of a run on micro-batches [2, 5] that logs every step."""

    def model(name: str) -> Reading:
        torch.manual_seed(len(name))
        return Reading(reads[name])

    models = {"make_student": lambda run: model("student"), "make_teacher": lambda run: model("teacher")}
    stream = io.StringIO()
    chosen = settings(directory, "-".join(reads.values()), accumulate=accumulate, epochs=1, save_every=0, force=True)
    with type("Counted", (small_distillation(subject),), models)(chosen, lines=Lines(stream)) as run:
        run.prepare()
        return run.conclude(run.run()).train, stream.getvalue().splitlines()


@given(
    model=st.sampled_from(["student", "teacher"]), reads=st.sampled_from(READS), accumulate=st.sampled_from([1, 3, 9])
)
@example(model="student", reads="a value", accumulate=9)  # more micro-batches than an epoch has
@example(model="teacher", reads="whole batches", accumulate=3)
def falsify_a_model_that_reads_values_is_counted(subject: Any, model: str, reads: str, accumulate: int) -> None:
    with scratch() as root:
        usual = {"student": "nothing", "teacher": "nothing"}
        counted, _ = _distilled(subject, root, usual, accumulate)
        seen, lines = _distilled(subject, root, {**usual, model: reads}, accumulate)
    named = [line for line in lines if "flops_per_s" in line]
    estimated = reads == "whole batches"
    # Two operations for each of 10 tokens and 4 x V weights: one forward of the teacher, three passes of the student.
    # Its two tables have 4 x V parameters each, and the estimate counts all of them.
    expected = (2 + 6) * 8 * V * 10 if estimated else 4 * 2 * 10 * 4 * V
    flops = seen.metrics["flops_per_s"] / seen.metrics["steps_per_s"] / min(accumulate, Noisy.batches)
    case = f"a {model} that reads {reads}, a step of up to {accumulate} of {Noisy.batches} micro-batches"
    assert math.isclose(flops, expected, rel_tol=1e-12), f"{case}: {flops} FLOP a micro-batch, not {expected}"
    assert len(named) == estimated, f"with a {model} that reads {reads}, the lines on the metric are {named}"
    assert_equal("the loss of the same model without its reads", seen.final_loss, counted.final_loss)
