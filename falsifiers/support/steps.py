"""Steps and windows."""

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

STEP = "table[token] - learning_rate · oracle gradient of the mean over scored tokens"
USUAL = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
ZEROS = torch.zeros(2, 2, dtype=torch.float64)
SHIFTED = "logits at i against the label at i + 1, divided by the scored tokens"


class RecordingPass:
    """A pass that records the gradients it is given."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.gradients: list[Tensor] = []

    def backward(self, logit_gradient: Tensor) -> None:
        self.gradients.append(logit_gradient)


class RecordingStudent:
    """A student that records its passes; its logits come from a table, or are always `logits`."""

    def __init__(self, table: Tensor, logits: Any = None) -> None:
        self.table, self.vocab_size, self.fixed = table, table.shape[1], logits
        self.passes: list[RecordingPass] = []

    def forward(self, batch: Any) -> RecordingPass:
        self.passes.append(RecordingPass(self.table[batch.tokens.long()] if self.fixed is None else self.fixed))
        return self.passes[-1]


class AnsweringTeacher:
    """A teacher whose `logits` always returns `answer`."""

    def __init__(self, vocab_size: int, answer: Any) -> None:
        self.vocab_size, self.answer = vocab_size, answer

    def logits(self, batch: Any) -> Any:
        return self.answer


def embedding(table: Tensor, device: str = "cpu") -> nn.Embedding:
    """Return a module that maps token k to row k of a copy of the table [K, V]."""
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table.clone().to(device))


def batch_of(subject: Any, case: StepCase, device: str = "cpu") -> Any:
    """Return the case's tokens and labels as the subject's `Batch`."""
    return subject.Batch(tokens=case.tokens.to(device), labels=case.labels.to(device))


def recorded_step(subject: Any, case: StepCase, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the step's result and the gradient [B, T, V] it passed to the student; assert that there is one."""
    student = RecordingStudent(case.student.to(device))
    teacher = subject.FixtureTeacher(case.teacher.to(device))
    result = subject.kd_step(teacher, student, batch_of(subject, case, device), **case.settings)
    gradients = [gradient for done in student.passes for gradient in done.gradients]
    assert len(student.passes) == len(gradients) == 1, f"{len(student.passes)} forwards, {len(gradients)} gradients"
    expected = [*case.tokens.shape, case.student.shape[1]]
    assert list(gradients[0].shape) == expected, f"the gradient is {list(gradients[0].shape)}; expected {expected}"
    return result, gradients[0].cpu()


def table_step(subject: Any, case: StepCase, learning_rate: float, device: str = "cpu") -> tuple[Any, Tensor]:
    """Return the step's result and the student's table [K, V] after it."""
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
    # A tensor would keep memory of its device and its graph for as long as the result is kept.
    kinds = {name: (type(value.sum), type(value.count)) for name, value in {"step": result, **result.metrics}.items()}
    assert type(result.loss) is float and all(kind == (float, int) for kind in kinds.values()), (
        f"the loss is a {type(result.loss).__name__}, types of sums and counts are {kinds}; expected float and int"
    )


def allowed_table(case: StepCase, learning_rate: float, unit: float = 2.0**-53) -> float:
    """Return the largest rounding error of a table row: each token may add its error to one row, which rounds again."""
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
    got = any(done.gradients for done in student.passes)
    assert not got, f"{case}: the student got a gradient before the refusal"


V, W = 3, 2
EXACT = 1e-12
"""Largest difference of two float64 gradients, relative to the largest gradient that such rows could have."""

Sample = tuple[tuple[int, int], ...]
Split = tuple[tuple[tuple[int, ...], ...], ...]
"""Numbers of the samples of each micro-batch of each rank; every rank has equally many micro-batches."""


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
    """One window: samples of (token, label) pairs, their split, and the models.

    spare: columns of padding in every batch. filler: a micro-batch without samples has one sequence that scores
    nothing; otherwise it has none, B = 0. teacher: logits [K, V]. embedding [K, W], head [V, W] and bias [V]: the
    student's weights, float64.
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
        """Return the scored tokens of these samples, by default of all."""
        chosen = [self.samples[n] for n in numbers] if numbers else self.samples
        return sum(label != IGNORED for sample in chosen for _, label in sample[1:])

    def table(self) -> Tensor:
        """Return the student's logits after each token, float64 [K, V]."""
        return self.embedding @ self.head.T + self.bias

    def steps(self) -> list[StepCase]:
        """Return each sample as a case of its own."""
        settings = (self.temperature, self.ce_weight, self.kd_weight)
        pairs = [torch.tensor(sample)[None] for sample in self.samples]
        return [StepCase(pair[..., 0], pair[..., 1], self.table(), self.teacher, *settings) for pair in pairs]

    def gradient_by_logits(self) -> Tensor:
        """Return G, float64 [K, V]: of the mean loss over all scored tokens; 0 if nothing is scored."""
        summed = torch.zeros(V, V, dtype=torch.float64)
        for step in self.steps():
            summed.index_add_(0, step.tokens[0, :-1], step.shifted().oracle_gradient()[0])
        return summed / max(self.count(), 1)

    def gradient(self) -> dict[str, Tensor]:
        """Return the gradient of each parameter in closed form, float64."""
        return self._by_parameter(self.gradient_by_logits(), self.embedding, self.head)

    def allowed(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return the largest rounding error of each element of the gradient.

        float64: `EXACT` of the gradient whose rows all have their largest size. float32: that size times the roundings
        of its sums over n rows, V and W, plus the error of each row.
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
        """Return the sums over these samples, by default all: the loss, and its terms without their weights."""
        cases = [self.steps()[n].shifted() for n in numbers or range(len(self.samples))]
        hard = math.fsum(case.but(ce_weight=1.0, kd_weight=0.0).oracle_nats() for case in cases)
        soft = math.fsum(case.but(ce_weight=0.0, kd_weight=1.0).oracle_nats() for case in cases)
        loss = self.ce_weight * hard + self.kd_weight * soft
        return {"loss": loss, "hard_loss": hard, "soft_loss": soft, "kl_at_T": soft / self.temperature**2}

    def allowed_nats(self) -> float:
        """Return the largest rounding error of a sum of `nats`, in float64."""
        both = [step.shifted().but(ce_weight=1 + self.ce_weight, kd_weight=1 + self.kd_weight) for step in self.steps()]
        return 2 * math.fsum(case.allowed_nats() for case in both) * max(1.0, self.temperature**-2)


def learners(case: WindowCase, device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Any, Any, TinyModel]:
    """Return teacher, student and the student's module."""
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
    for name, wanted in expected.items():
        grad = seen[name]
        assert grad is not None, f"{case}: {name} has no gradient; expected {wanted.tolist()}"
        difference = (grad.double() - wanted).abs()
        ratio = float(grad.double().norm() / wanted.norm()) if wanted.any() else math.nan
        assert bool((difference <= allowed[name]).all()), (
            f"{case}: the gradient of {name} is {grad.tolist()}; expected {wanted.tolist()}, as of one batch with "
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
    at = [draw(st.integers(0, micro_batches - 1)) for _ in samples]
    split = (tuple(tuple(n for n in range(len(samples)) if at[n] == m) for m in range(micro_batches)),)
    return WindowCase(samples, split, draw(st.integers(0, 2)), draw(st.booleans()), **draw(models()))


def sample_of(scored: int, start: int = 0) -> Sample:
    """Return a sequence with this many scored tokens."""
    return tuple(((start + i) % V, (start + 2 * i) % V) for i in range(scored + 1))


NOTHING_SCORED: Sample = ((0, IGNORED), (1, IGNORED), (2, IGNORED))

UNEVEN = tuple(sample_of(scored, start) for start, scored in enumerate((4, 1, 1, 5, 2, 1, 3, 1, 2)))
"""Nine sequences of different lengths: no number of ranks from 2 on gives each as many tokens."""


def dealt(samples: int, ranks: int, micro_batches: int) -> Split:
    """Return the split that deals samples in turn, first to ranks, then to micro-batches."""
    by_rank = [range(rank, samples, ranks) for rank in range(ranks)]
    return tuple(tuple(tuple(mine[m::micro_batches]) for m in range(micro_batches)) for mine in by_rank)


def hard_windows(model: dict[str, Any], ranks: int) -> list[WindowCase]:
    """Return windows for several ranks that a wrong divisor or a missing reduction changes.

    Nine sequences dealt in turn; one token on rank 0 against all others on the last rank; ranks without any sequence
    (B = 0) and with a filler; samples without a scored token on rank 0, or on every rank.
    """
    even = dealt(len(UNEVEN), ranks, 2)
    lonely: Split = (((1,), ()), *[((), ())] * (ranks - 2), ((0, 3), (2, 4, 6)))
    silent = (NOTHING_SCORED, NOTHING_SCORED, *UNEVEN[:4])
    unscored: Split = (((0,), (1,)), *[((), ())] * (ranks - 2), ((2, 3), (4, 5)))
    first = WindowCase(UNEVEN, even, 1, False, **model)
    lonely_case = first.but(samples=tuple(UNEVEN[:7]), split=_whole(lonely, 7))
    return [
        first,
        lonely_case,
        lonely_case.but(filler=True, spare=0),
        first.but(samples=silent, split=unscored),
        first.but(samples=(NOTHING_SCORED,) * ranks, split=tuple(((r,), ()) for r in range(ranks))),
    ]


def _whole(split: Split, samples: int) -> Split:
    """Return the split with the samples that it lacks in the last micro-batch of the last rank."""
    given = set(itertools.chain.from_iterable(itertools.chain.from_iterable(split)))
    rest = tuple(n for n in range(samples) if n not in given)
    return (*split[:-1], (*split[-1][:-1], split[-1][-1] + rest))
