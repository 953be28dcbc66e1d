"""Recording students and teachers for a distillation step, and windows of micro-batches with their exact gradients.

Shape letters: B batch, T position, V vocabulary, K token ids, W width of the student.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support import oracles
from falsifiers.support.cases import IGNORED, TEMPERATURES, WEIGHTS, Case, StepCase, tensors
from reference_trainer.distillation.losses import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent

# The formulas that failure messages quote, usual settings, and a table of zeros.
STEP = "table[token] - learning_rate · oracle gradient of the mean over scored tokens"
USUAL = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
ZEROS = torch.zeros(2, 2, dtype=torch.float64)
SHIFTED = "logits at i against the label at i + 1, divided by the scored tokens"


class RecordingPass:
    """A forward pass that records the arguments of `backward`."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.gradients: list[Tensor] = []

    def backward(self, logit_gradient: Tensor) -> None:
        self.gradients.append(logit_gradient)


class RecordingStudent:
    """A student that records its passes.

    Args:
        table: Row k holds the logits after token k, [K, V].
        logits: The logits of every pass; None to read them from the table.
    """

    def __init__(self, table: Tensor, logits: Any = None) -> None:
        self.table, self.vocab_size, self.fixed = table, table.shape[1], logits
        self.passes: list[RecordingPass] = []

    def forward(self, batch: Any) -> RecordingPass:
        self.passes.append(RecordingPass(self.table[batch.tokens.long()] if self.fixed is None else self.fixed))
        return self.passes[-1]


class ConstantTeacher:
    """A teacher whose `logits` always returns the same value, also an invalid one."""

    def __init__(self, vocab_size: int, value: Any) -> None:
        self.vocab_size, self.value = vocab_size, value

    def logits(self, batch: Any) -> Any:
        return self.value


def embedding(table: Tensor, device: str = "cpu") -> nn.Embedding:
    """Return a module that maps token k to row k of a copy of the table [K, V]."""
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table.clone().to(device))


def batch_of(subject: Any, case: StepCase, device: str = "cpu") -> Any:
    """Return the case's tokens and labels as the subject's `Batch`."""
    return subject.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))


def recorded_step(subject: Any, case: StepCase, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the result of a step, and the gradient [B, T, V] of the student; assert one forward and one gradient."""
    student = RecordingStudent(case.student.to(device))
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    gradients = [gradient for forward in student.passes for gradient in forward.gradients]
    assert len(student.passes) == len(gradients) == 1, f"{len(student.passes)} forwards, {len(gradients)} gradients"
    expected = [*case.tokens.shape, case.student.shape[1]]
    assert list(gradients[0].shape) == expected, f"the gradient is {list(gradients[0].shape)}; expected {expected}"
    return result, gradients[0].cpu()


def table_step(subject: Any, case: StepCase, learning_rate: float, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the result of a step, and the table [K, V] of the student after the step."""
    student = subject.FixtureStudent(case.student.to(device), learning_rate)
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    return result, student.logits_table.cpu()


def assert_result_is_the_oracles(result: Any, case: StepCase, unit: float = 2.0**-53) -> None:
    """Assert that count, sum and loss equal the oracle's and are Python numbers; `unit` is the unit roundoff."""
    shifted = case.shifted()
    nats, count, allowed = shifted.oracle_nats(), int(shifted.scored.sum()), shifted.allowed_nats(unit)
    assert result.count == count, f"count is {result.count}; expected {count}, the scored tokens after the first"
    oracles.assert_close("sum in nats", result.sum, nats, allowed, SHIFTED)
    assert result.loss is not None, f"the loss is None; expected a number for {count} scored tokens"
    oracles.assert_close("loss in nats per token", result.loss, nats / count, allowed / count, SHIFTED)
    # A tensor in the result would keep its graph and its device memory alive.
    kinds = {name: (type(value.sum), type(value.count)) for name, value in {"step": result, **result.metrics}.items()}
    assert type(result.loss) is float and all(kind == (float, int) for kind in kinds.values()), (
        f"the loss is a {type(result.loss).__name__}, types of sums and counts are {kinds}; expected float and int"
    )


def allowed_table(case: StepCase, learning_rate: float, unit: float = 2.0**-53) -> float:
    """Return the largest rounding error of an element of the student's table after a step."""
    # All tokens may change the same row. Each adds the error of its gradient, and two roundings of the row.
    tokens = case.tokens.numel()
    largest = float(case.student.abs().max()) + learning_rate * tokens * (
        case.ce_weight + case.kd_weight * case.temperature
    )
    return learning_rate * tokens * case.shifted().allowed_gradient(unit) + 2 * tokens * unit * largest


def assert_step_refused(
    subject: Any, case: str, teacher: Any, student: RecordingStudent, batch: Any, settings: Any, words: tuple[str, ...]
) -> None:
    """Assert that the step raises a ValueError with these words, and that the student gets no gradient before."""
    oracles.assert_refused(case, lambda: subject.kd_step(teacher, student, batch, **settings), *words)
    has_gradient = any(forward.gradients for forward in student.passes)
    assert not has_gradient, f"{case}: the student got a gradient before the refusal"


V, W = 3, 2
"""Vocabulary size and width of the student of a `WindowCase`."""
EXACT = 1e-12
"""Allowed difference of float64 gradients, relative to the largest possible gradient of the rows."""

Sample = tuple[tuple[int, int], ...]
"""A sequence of pairs (token, label)."""
Split = tuple[tuple[tuple[int, ...], ...], ...]
"""By rank and micro-batch: indices of the samples. Every rank has the same number of micro-batches."""


class TinyModel(nn.Module):
    """Logits [B, T, V] that depend on one token each; three parameters."""

    def __init__(self, embedding: Tensor, head: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(embedding.clone(), freeze=False)
        self.head = nn.Linear(W, V, dtype=head.dtype, device=head.device)
        with torch.no_grad():
            self.head.weight.copy_(head)
            self.head.bias.copy_(bias)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(tokens))
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class WindowCase(Case):
    """One window of micro-batches, and the models.

    Attributes:
        samples: The sequences.
        split: The samples of each micro-batch of each rank.
        spare: The number of padding columns that every batch has beyond its longest sample.
        filler: Whether a micro-batch without samples has one unscored sequence; otherwise it has no sequence (B = 0).
        teacher: The teacher's logits after each token, [K, V].
        embedding: Weights of the student, float64 [K, W].
        head: Weights of the student, float64 [V, W].
        bias: Weights of the student, float64 [V].
        temperature: The temperature of the loss.
        ce_weight: The weight of the cross-entropy.
        kd_weight: The weight of the divergence.
    """

    samples: tuple[Sample, ...]
    split: Split
    spare: int
    filler: bool
    teacher: Tensor
    embedding: Tensor
    head: Tensor
    bias: Tensor
    temperature: float
    ce_weight: float
    kd_weight: float

    @property
    def weights(self) -> Weights:
        return Weights(**self.settings)

    def model(self, device: str = "cpu", dtype: torch.dtype = torch.float64) -> TinyModel:
        return TinyModel(*(weight.to(device, dtype) for weight in (self.embedding, self.head, self.bias)))

    def batches(self, rank: int = 0, device: str = "cpu") -> list[Batch]:
        return [self._batch(numbers, device) for numbers in self.split[rank]]

    def _batch(self, numbers: tuple[int, ...], device: str) -> Batch:
        rows = [self.samples[number] for number in numbers] or ([((1, IGNORED), (2, IGNORED))] if self.filler else [])
        length = max(map(len, rows), default=2) + self.spare
        padded = [[*row, *[(0, IGNORED)] * (length - len(row))] for row in rows]
        pairs = torch.tensor(padded, dtype=torch.int64, device=device).reshape(len(rows), length, 2)
        return Batch(tokens=pairs[..., 0], labels=pairs[..., 1])

    def sequences(self) -> int:
        """Return the number of sequences with a scored token in the batches of all ranks."""
        batches = (batch for rank in range(len(self.split)) for batch in self.batches(rank))
        return sum(int((batch.labels[:, 1:] != IGNORED).any(-1).sum()) for batch in batches)

    def count(self, *numbers: int) -> int:
        """Return the number of scored tokens in these samples; without numbers, in all samples."""
        chosen = [self.samples[n] for n in numbers] if numbers else self.samples
        return sum(label != IGNORED for sample in chosen for _, label in sample[1:])

    def table(self) -> Tensor:
        """Return the student's logits after each token, float64 [K, V]."""
        return self.embedding @ self.head.T + self.bias

    def steps(self) -> list[StepCase]:
        """Return one case per sample."""
        settings = (self.temperature, self.ce_weight, self.kd_weight)
        pairs = [torch.tensor(sample)[None] for sample in self.samples]
        return [StepCase(pair[..., 0], pair[..., 1], self.table(), self.teacher, *settings) for pair in pairs]

    def gradient_by_logits(self) -> Tensor:
        """Return the gradient of the mean loss with respect to the logits after each token, float64 [K, V].

        The mean is over all scored tokens; the gradient is 0 if nothing is scored.
        """
        summed = torch.zeros(V, V, dtype=torch.float64)
        for step in self.steps():
            summed.index_add_(0, step.tokens[0, :-1], step.shifted().oracle_gradient()[0])
        return summed / max(self.count(), 1)

    def gradient(self) -> dict[str, Tensor]:
        """Return the gradient of each parameter in closed form, float64."""
        return self._by_parameter(self.gradient_by_logits(), self.embedding, self.head)

    def allowed(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return the largest rounding error of each element of the gradient, by parameter.

        The gradient of a row is at most `largest`. In float64, the error is the fraction `EXACT` of a gradient whose
        rows all have this size. In float32, it is the roundings of its sums over n rows, V and W, times this size, plus
        the error of a row.
        """
        scored = torch.zeros(V, dtype=torch.float64)
        for step in self.steps():
            scored.index_add_(0, step.tokens[0, :-1], step.shifted().scored[0].double())
        size = scored[:, None].expand(V, V) / max(self.count(), 1)
        largest = self.ce_weight + self.kd_weight * self.temperature
        if dtype is torch.float64:
            share = EXACT * largest
        else:
            unit, n = 2.0**-24, sum(map(len, self.samples))
            rows = max(step.shifted().allowed_gradient(unit) for step in self.steps())
            share = rows + 4 * unit * (n + V + W + 4) * largest
        return self._by_parameter(size * share, self.embedding.abs(), self.head.abs())

    def _by_parameter(self, by_logits: Tensor, embedding: Tensor, head: Tensor) -> dict[str, Tensor]:
        gradients = (by_logits @ head, by_logits.T @ embedding, by_logits.sum(0))
        return dict(zip(("embedding.weight", "head.weight", "head.bias"), gradients, strict=True))

    def nats(self, *numbers: int) -> dict[str, float]:
        """Return the loss and its terms without their weights, summed over these samples; by default over all."""
        cases = [self.steps()[n].shifted() for n in numbers or range(len(self.samples))]
        hard = math.fsum(case.but(ce_weight=1.0, kd_weight=0.0).oracle_nats() for case in cases)
        soft = math.fsum(case.but(ce_weight=0.0, kd_weight=1.0).oracle_nats() for case in cases)
        loss = self.ce_weight * hard + self.kd_weight * soft
        return {"loss": loss, "hard_loss": hard, "soft_loss": soft, "kl_at_T": soft / self.temperature**2}

    def allowed_nats(self) -> float:
        """Return the largest rounding error of a sum of `nats`, in float64."""
        # The terms are summed with the weight 1, and again with their weights in the loss.
        weights = {"ce_weight": 1 + self.ce_weight, "kd_weight": 1 + self.kd_weight}
        cases = [step.shifted().but(**weights) for step in self.steps()]
        return 2 * math.fsum(case.allowed_nats() for case in cases) * max(1.0, self.temperature**-2)


def learners(case: WindowCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Any, Any, TinyModel]:
    """Return the teacher, the student, and the module of the student."""
    module = case.model(device, dtype)
    return FixtureTeacher(case.teacher.to(device, dtype)), ModuleStudent(module, V), module


def gradients_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the gradient of each parameter, on the CPU."""
    named = ((name.removeprefix("module."), parameter.grad) for name, parameter in module.named_parameters())
    return {name: None if grad is None else grad.detach().cpu().clone() for name, grad in named}


def assert_gradients(
    case: str, seen: dict[str, Tensor | None], expected: dict[str, Tensor], allowed: dict[str, Tensor]
) -> None:
    """Assert that every parameter has the expected gradient; the message has the ratio of the two norms."""
    for name, target in expected.items():
        grad = seen[name]
        assert grad is not None, f"{case}: {name} has no gradient; expected {target.tolist()}"
        difference = (grad.double() - target).abs()
        ratio = float(grad.double().norm() / target.norm()) if target.any() else math.nan
        assert bool((difference <= allowed[name]).all()), (
            f"{case}: the gradient of {name} is {grad.tolist()}; expected {target.tolist()}, as with one batch of "
            f"all sequences; its norm is {ratio:.6g} times the expected one, difference {float(difference.max()):.3g}, "
            f"allowed {float(allowed[name].max()):.3g}"
        )


HALF = st.integers(-4, 4).map(lambda k: k / 2)
PAIRS = st.tuples(st.integers(0, V - 1), st.sampled_from([0, 1, 2, IGNORED]))
SAMPLES = st.lists(PAIRS, min_size=2, max_size=5).map(tuple)


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Draw teacher, student and weights of the loss, as fields of a `WindowCase`."""
    names = {"teacher": (V, V), "embedding": (V, W), "head": (V, W), "bias": (V,)}
    drawn: dict[str, Any] = {name: draw(tensors(shape, HALF, torch.float64)) for name, shape in names.items()}
    return drawn | {"temperature": draw(TEMPERATURES), "ce_weight": draw(WEIGHTS), "kd_weight": draw(WEIGHTS)}


@st.composite
def window_cases(draw: st.DrawFn) -> WindowCase:
    """Draw a window of one rank: up to seven samples in up to four micro-batches, some of them empty."""
    samples = tuple(draw(st.lists(SAMPLES, min_size=1, max_size=7)))
    micro_batches = draw(st.integers(1, 4))
    batch_of = [draw(st.integers(0, micro_batches - 1)) for _ in samples]
    split = (tuple(tuple(n for n in range(len(samples)) if batch_of[n] == m) for m in range(micro_batches)),)
    return WindowCase(samples, split, draw(st.integers(0, 2)), draw(st.booleans()), **draw(models()))


def sample_of(scored: int, start: int = 0) -> Sample:
    """Return a sequence with this many scored tokens."""
    return tuple(((start + i) % V, (start + 2 * i) % V) for i in range(scored + 1))


NOTHING_SCORED: Sample = ((0, IGNORED), (1, IGNORED), (2, IGNORED))

UNEVEN = tuple(sample_of(scored, start) for start, scored in enumerate((4, 1, 1, 5, 2, 1, 3, 1, 2)))
"""Nine sequences of different lengths: with two or more ranks, the ranks get different numbers of tokens."""


def dealt(samples: int, ranks: int, micro_batches: int) -> Split:
    """Return the split that deals samples in turn, first to ranks, then to micro-batches."""
    by_rank = [range(rank, samples, ranks) for rank in range(ranks)]
    return tuple(tuple(tuple(numbers[m::micro_batches]) for m in range(micro_batches)) for numbers in by_rank)


def hard_windows(model: dict[str, Any], ranks: int) -> list[WindowCase]:
    """Return windows for several ranks whose gradient changes with a wrong divisor or a missing reduction.

    1. Nine sequences, dealt in turn.
    2. One sequence with one scored token on rank 0, all other sequences on the last rank; the ranks between have no
       sequence (B = 0).
    3. The second window, in which empty micro-batches have a filler.
    4. Only sequences without scored tokens on rank 0.
    5. Only sequences without scored tokens on every rank.
    """
    dealt_case = WindowCase(UNEVEN, dealt(len(UNEVEN), ranks, 2), 1, False, **model)
    between = [((), ())] * (ranks - 2)
    one_token: Split = (((1,), ()), *between, ((0, 3), (2, 4, 6)))
    one_token_case = dealt_case.but(samples=tuple(UNEVEN[:7]), split=_completed(one_token, 7))
    none_on_rank_0: Split = (((0,), (1,)), *between, ((2, 3), (4, 5)))
    return [
        dealt_case,
        one_token_case,
        one_token_case.but(filler=True, spare=0),
        dealt_case.but(samples=(NOTHING_SCORED, NOTHING_SCORED, *UNEVEN[:4]), split=none_on_rank_0),
        dealt_case.but(samples=(NOTHING_SCORED,) * ranks, split=tuple(((r,), ()) for r in range(ranks))),
    ]


def _completed(split: Split, samples: int) -> Split:
    """Return the split, with samples that it lacks in the last micro-batch of the last rank."""
    used = set(itertools.chain.from_iterable(itertools.chain.from_iterable(split)))
    missing = tuple(n for n in range(samples) if n not in used)
    return (*split[:-1], (*split[-1][:-1], split[-1][-1] + missing))
