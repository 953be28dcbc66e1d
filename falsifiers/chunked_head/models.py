"""Small models with an output layer, their windows, and the float64 oracle of a window: autograd through all logits.

Shape letters: B batch, T position, V vocabulary, W width.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from falsifiers.support.cases import IGNORED
from falsifiers.support.oracles import DIVERGENCES
from reference_trainer import Batch, Weights
from reference_trainer.distillation import heads

V, W = 11, 4


class Tiny(nn.Module):
    """A residual layer between an embedding and an output layer; `after` changes the logits.

    frozen: the part whose parameters are not trained: "body", "head", or "weight", the head without its bias.
    dropout: of hidden states in train mode.
    """

    def __init__(
        self,
        seed: int,
        vocabulary: int = V,
        *,
        tied: bool = False,
        bias: bool = False,
        checkpointed: bool = False,
        frozen: str = "",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.dropout = nn.Dropout(dropout)
        self.after: Callable[[Tensor], Tensor] = lambda logits: logits
        self.embedding = nn.Embedding(vocabulary, W)
        self.layers = nn.ModuleList([nn.Linear(W, W)])
        self.head = nn.Linear(W, vocabulary, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
        parts: dict[str, list[nn.Module]] = {"body": [self.embedding, self.layers], "head": [self.head]}
        for part in parts.get(frozen, []):
            part.requires_grad_(False)
        self.head.weight.requires_grad_(self.head.weight.requires_grad and frozen != "weight")

    def get_output_embeddings(self) -> nn.Linear:
        return self.head

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        states = self.embedding(tokens)
        for layer in self.layers:
            states = states + self.dropout(self._run(layer, states).tanh())
        logits = self.after(self.head(states))
        return SimpleNamespace(logits=logits, hidden_states=[states]) if output_hidden_states else logits

    def _run(self, layer: nn.Module, states: Tensor) -> Tensor:
        result: Tensor = checkpoint(layer, states, use_reentrant=False) if self.checkpointed else layer(states)
        return result


class Logits(nn.Module):
    """A model whose output layer is not offered."""

    def __init__(self, model: Tiny) -> None:
        super().__init__()
        self.inner = model

    def forward(self, tokens: Tensor) -> Any:
        return self.inner(tokens)


@contextmanager
def chunks_of(rows: int, itemsize: int = 8) -> Iterator[None]:
    """Let every vocabulary be large, and each chunk have this many rows of `V` logits."""
    with (
        mock.patch.object(heads, "LEAST_VOCABULARY", 1),
        mock.patch.multiple(heads, CPU_CHUNK_BYTES=rows * V * itemsize, CHUNK_BYTES=rows * V * itemsize),
    ):
        yield


def batches_of(seed: int, sizes: Sequence[tuple[int, int]], scored: float = 0.6) -> list[Batch]:
    """Return batches of these shapes [B, T]; about a share `scored` of the labels is not ignored."""
    draw = torch.Generator().manual_seed(seed)

    def batch(size: tuple[int, int]) -> Batch:
        tokens = torch.randint(V, size, generator=draw)
        return Batch(tokens=tokens, labels=tokens.where(torch.rand(size, generator=draw) < scored, IGNORED))

    return [batch(size) for size in sizes]


def window(
    subject: Any,
    student: nn.Module,
    teacher: nn.Module,
    batches: Sequence[Batch],
    weights: Weights,
    rows: int | None = 4,
    note: Callable[[str], object] = lambda line: None,
    **options: Any,
) -> Any:
    """Return the result of a window of these modules in chunks of `rows`, or of the size that the caller has set."""
    with nullcontext() if rows is None else chunks_of(rows):
        frozen, learner = subject.ModuleTeacher(teacher, V, note=note), subject.ModuleStudent(student, V, note=note)
        return subject.kd_window(frozen, learner, batches, weights, **options)


WEIGHTS = st.builds(
    Weights,
    temperature=st.sampled_from([1.0, 2.5]),
    ce_weight=st.sampled_from([0.0, 0.3]),
    kd_weight=st.sampled_from([0.0, 1.0]),
    divergence=st.sampled_from(sorted(DIVERGENCES)),
    beta=st.just(0.25),
)


@dataclass(frozen=True, slots=True)
class Oracle:
    """The sums of a window and the student's gradients, float64."""

    sums: dict[str, float]
    gradients: dict[str, Tensor]


def oracle(
    student: nn.Module, teacher: nn.Module, batches: Sequence[Batch], weights: Weights, vocabulary: int = V
) -> Oracle:
    """Return the sums, and the gradient of the loss divided by all scored tokens, of both models in eval mode.

    vocabulary: what both models are cut to; missing tokens have a logit of -inf.
    """
    student, teacher = (copy.deepcopy(model).double().eval() for model in (student, teacher))
    sums, count = dict[str, Any](), 0
    for batch in batches:
        scored = batch.labels[:, 1:] != IGNORED
        outputs = (model(batch.tokens) for model in (student, teacher))
        s, t = (_resized(getattr(output, "logits", output)[:, :-1][scored], vocabulary) for output in outputs)
        count += int(scored.sum())
        for name, term in _sums(s, t.detach(), batch.labels[:, 1:][scored], weights).items():
            sums[name] = sums.get(name, 0.0) + term
    (sums["loss"] / max(count, 1)).backward()
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in student.named_parameters()}
    return Oracle({name: float(total.detach()) for name, total in sums.items()}, gradients)


def _resized(logits_NV: Tensor, vocabulary: int) -> Tensor:
    missing = max(vocabulary - logits_NV.shape[1], 0)
    return nn.functional.pad(logits_NV[:, :vocabulary], (0, missing), value=-torch.inf)


def _sums(s: Tensor, t: Tensor, labels: Tensor, weights: Weights) -> dict[str, Tensor]:
    tau = weights.temperature
    log_q, log_p = (s / tau).log_softmax(-1), (t / tau).log_softmax(-1)
    soft = tau**2 * DIVERGENCES[weights.divergence].textbook(log_p, log_q, weights.beta).sum()
    hard = -s.log_softmax(-1).gather(1, labels[:, None]).sum()
    return {
        "loss": weights.ce_weight * hard + weights.kd_weight * soft,
        "hard_loss": hard,
        "soft_loss": soft,
        "kl_at_T": _kl(log_p, log_q),
        "kl_at_1": _kl(t.log_softmax(-1), s.log_softmax(-1)),
        "token_accuracy": (s.argmax(-1) == labels).sum(),
        "agreement": (s.argmax(-1) == t.argmax(-1)).sum(),
    }


def _kl(log_a: Tensor, log_b: Tensor) -> Tensor:
    return DIVERGENCES["forward_kl"].textbook(log_a, log_b, 0.0).sum()


def assert_gradients(case: str, module: nn.Module, expected: Oracle, allowed: float) -> None:
    """Assert that each parameter's gradient is near the oracle's: the norm of the difference, relative."""
    for name, parameter in module.named_parameters():
        wanted, seen = expected.gradients[name], parameter.grad
        if not parameter.requires_grad:
            assert seen is None, f"{case}: {name} is frozen, and has a gradient"
            continue
        assert seen is not None, f"{case}: {name} has no gradient"
        seen = getattr(seen, "full_tensor", lambda seen=seen: seen)().double()
        away = float((seen - wanted).norm())
        scale = max(float(wanted.norm()), 1e-3)
        assert away <= allowed * scale, f"{case}: the gradient of {name} is off by {away / scale:.1e} of its norm"
