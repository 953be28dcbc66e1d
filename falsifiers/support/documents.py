"""Documents of different lengths, two decoders for them, and a distillation loss of the documents one by one.

Shape letters: N tokens of a document, V vocabulary, P scored positions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.decoder_oracle import with_random_weights
from reference_trainer.models.decoder import Decoder, DecoderConfig

SETTINGS = {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Documents, and two decoders for them.

    Attributes:
        vocab_size: The number of tokens.
        tokens: The tokens of each document.
        prompts: The length of the prompt of each document.
        seed: Determines the weights of both decoders.
        layers: The layers of a decoder.
        heads: The heads of a decoder.
    """

    vocab_size: int
    tokens: list[list[int]]
    prompts: list[int]
    seed: int
    layers: int = 1
    heads: int = 1

    @property
    def longest(self) -> int:
        return max(map(len, self.tokens), default=0)

    def build(self, subject: Any) -> list[Any]:
        """Return them as the subject's documents; where the seed is odd, the second half of a prompt is in a mask."""
        halved = self.seed % 2 == 1
        return [self._document(subject, tokens, prompt, halved) for tokens, prompt in self._pairs()]

    def _document(self, subject: Any, tokens: list[int], prompt: int, halved: bool) -> Any:
        half = prompt // 2 if halved else prompt
        mask = torch.tensor([half <= i < prompt for i in range(len(tokens))], dtype=torch.bool, device="cpu")
        tokens_N = torch.tensor(tokens, dtype=torch.int64, device="cpu")
        return subject.Document(tokens_N, half, mask if halved else None)

    def _pairs(self) -> Any:
        return zip(self.tokens, self.prompts, strict=True)

    def decoder(self, which: int, device: str = "cpu", dtype: torch.dtype = torch.float64) -> nn.Module:
        """Return decoder 0 or 1."""
        shape = {"vocab_size": self.vocab_size, "layers": self.layers, "heads": self.heads, "width": 4 * self.heads}
        return with_random_weights(Decoder(DecoderConfig(**shape)).to(dtype), 2 * self.seed + which).to(device)

    def alone(self, device: str = "cpu") -> tuple[float, int, dict[str, Tensor]]:
        """Return loss in nats, scored tokens and gradients of the student, summed over documents run one by one."""
        teacher, student = self.decoder(0, device), self.decoder(1, device)
        total, count = torch.zeros((), dtype=torch.float64, device=device), 0
        for tokens, prompt in self._pairs():
            scored = range(max(prompt, 1), len(tokens))
            if not scored:
                continue
            row = torch.tensor([tokens], device=device)
            with torch.no_grad():
                taught_PV = teacher(row)[0, scored.start - 1 : -1]
            total = total + nats(student(row)[0, scored.start - 1 : -1], taught_PV, row[0, scored.start :])
            count += len(scored)
        if count:
            total.backward()
        named = dict(student.named_parameters())
        gradients = {
            name: torch.zeros_like(value) if value.grad is None else value.grad for name, value in named.items()
        }
        return float(total.detach()), count, gradients


def nats(student_PV: Tensor, teacher_PV: Tensor, targets_P: Tensor) -> Tensor:
    """Return the loss of `SETTINGS`, summed over positions: ce_weight·CE + kd_weight·τ²·KL(teacher ‖ student)."""
    tau = SETTINGS["temperature"]
    hard = -student_PV.log_softmax(-1).gather(-1, targets_P[:, None]).sum()
    log_p, log_q = (teacher_PV / tau).log_softmax(-1), (student_PV / tau).log_softmax(-1)
    soft = (log_p.exp() * (log_p - log_q)).sum()
    return SETTINGS["ce_weight"] * hard + SETTINGS["kd_weight"] * tau**2 * soft


@st.composite
def documents(draw: st.DrawFn, fewest: int = 0, shortest: int = 0, vocabularies: int = 3) -> Documents:
    """Draw up to five documents of up to six tokens, some with a prompt."""
    vocabulary = draw(st.integers(vocabularies, 9))
    token = st.integers(0, vocabulary - 1)
    tokens = draw(st.lists(st.lists(token, min_size=shortest, max_size=6), min_size=fewest, max_size=5))
    prompts = [draw(st.integers(0, len(document))) for document in tokens]
    return Documents(
        vocabulary, tokens, prompts, draw(st.integers(0, 2**20)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    )


def first_fit(sizes: Sequence[int], order: Iterable[int], capacity: int) -> list[list[int]]:
    """Return the indices in each row, if each size in turn goes to the first row with room."""
    rows: list[list[int]] = []
    for index in order:
        row = next((row for row in rows if sum(sizes[k] for k in row) + sizes[index] <= capacity), None)
        if row is None:
            rows.append([index])
        else:
            row.append(index)
    return sorted(map(sorted, rows))


def fewest_rows(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Return the better of two first-fit packings: in the given order, or largest first if that needs fewer rows."""
    numbers = range(len(sizes))
    in_order, largest_first = (
        first_fit(sizes, order, capacity) for order in (numbers, sorted(numbers, key=lambda number: -sizes[number]))
    )
    return largest_first if len(largest_first) < len(in_order) else in_order
