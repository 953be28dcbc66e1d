"""Attacks on the largest tensor, and on models whose output layer cannot be used."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.chunked_head.models import Tiny, V, assert_gradients, batches_of, chunks_of, oracle
from reference_trainer.data.text import Sequences
from reference_trainer.distillation.objective import Weights
from reference_trainer.models.decoder import DecoderConfig, new_decoder

MODELS = ["student", "teacher"]
USUAL = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7)
LARGE, SEQUENCES, LENGTH = 16_384, 18, 64


class Largest(TorchDispatchMode):
    """Note the bytes of the largest tensor that an operation returns."""

    bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.bytes = max(self.bytes, each.numel() * each.element_size())
        return result


def falsify_no_tensor_has_all_logits(subject: Any) -> None:
    """1152 rows of 16,384 float32 logits are 72 MiB; with the defaults, a chunk has 64 MiB."""
    config = DecoderConfig(vocab_size=LARGE, layers=1, width=4, heads=1)
    student, teacher = new_decoder(config, 0), new_decoder(config, 1)
    providers = subject.ModuleTeacher(teacher, LARGE), subject.ModuleStudent(student, LARGE)
    (batch,) = batches_of(0, [(SEQUENCES, LENGTH)], scored=1.0)
    rows = Sequences(
        bytes_N=torch.zeros(SEQUENCES * LENGTH, dtype=torch.uint8),
        length=LENGTH,
        batch_size=SEQUENCES,
        device=torch.device("cpu"),
    )
    ways: dict[str, Callable[[], object]] = {
        "a step": lambda: subject.kd_window(*providers, [batch], USUAL, metrics=True),
        "an evaluation": lambda: subject.evaluate(*providers, rows, USUAL),
    }
    for name, way in ways.items():
        with Largest() as largest:
            way()
        seen, allowed = largest.bytes / 2**20, 64
        assert seen <= allowed, f"{name} has a tensor of {seen:.0f} MiB; expected at most a chunk of {allowed} MiB"


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "a soft cap of 30": lambda logits: 30 * torch.tanh(logits / 30),
    "a soft cap of 500": lambda logits: 500 * torch.tanh(logits / 500),
    "a scale": lambda logits: logits / 8,
    "a banned token": lambda logits: logits.where(torch.arange(logits.shape[-1]) != 3, -100.0),
}


@given(seed=st.integers(0, 99), change=st.sampled_from(sorted(CHANGES)), changed=st.sampled_from(MODELS))
def falsify_changed_logits_are_formed_by_the_model(subject: Any, seed: int, change: str, changed: str) -> None:
    """Weights are small, so that a cap changes the logits by less than float32 rounding at first."""
    student, teacher = (Tiny(seed + k).double() for k in range(2))
    {"student": student, "teacher": teacher}[changed].after = CHANGES[change]
    with torch.no_grad():
        for each in (*student.parameters(), *teacher.parameters()):
            each.mul_(0.01)
    batches, lines = batches_of(seed, [(3, 5), (2, 7)]), list[str]()
    expected = oracle(student, teacher, batches, USUAL)
    with chunks_of(3):
        providers = (
            subject.ModuleTeacher(teacher, V, note=lines.append),
            subject.ModuleStudent(student, V, note=lines.append),
        )
        subject.kd_window(*providers, batches, USUAL)
    assert_gradients(f"{change} of the {changed}", student, expected, 1e-12)
    named = [line.startswith(f"the {changed} forms the logits of all tokens at once") for line in lines]
    assert named == [True], f"{change} of the {changed}: the lines are {lines}; expected one that names it"


class Twice(Tiny):
    """A model that applies its output layer twice, and returns the mean."""

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        states = self.embedding(tokens)
        states = states + self.layers[0](states)
        return (self.head(states) + self.head(states)) / 2


class Scaled(nn.Linear):
    """An output layer that is no plain matrix product."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


def falsify_other_output_layers_are_left_alone(subject: Any) -> None:
    """Models that use their layer twice, have another one or none: gradients are theirs, and a line says so."""
    none, other, hooked = Tiny(3), Tiny(4), Tiny(5)
    none.get_output_embeddings = lambda: None
    other.head = Scaled(4, V, bias=False)
    hooked.head.register_forward_hook(lambda layer, inputs, output: output * 2)
    for name, student in {"twice": Twice(2), "none": none, "other": other, "hooked": hooked}.items():
        student.double()
        teacher, batches, lines = Tiny(1).double(), batches_of(0, [(3, 5)]), list[str]()
        expected = oracle(student, teacher, batches, USUAL)
        with chunks_of(3):
            providers = subject.ModuleTeacher(teacher, V), subject.ModuleStudent(student, V, note=lines.append)
            subject.kd_window(*providers, batches, USUAL)
        assert len(lines) == 1, f"{name}: the lines are {lines}; expected one"
        assert_gradients(name, student, expected, 1e-12)
