"""Attacks on a distillation step: its gradient, result, metrics and refusals, and the models that it runs."""

import functools
import itertools
import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.chunked_head.models import chunks_of
from falsifiers.support import oracles
from falsifiers.support.cases import (
    HALVES,
    IGNORED,
    LOGITS,
    POSITIVE_WEIGHTS,
    KdCase,
    StepCase,
    assert_same_gradient,
    step_cases,
    tensors,
)
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.oracles import assert_refused
from falsifiers.support.steps import (
    SHIFTED,
    STEP,
    USUAL,
    ZEROS,
    ConstantTeacher,
    RecordingStudent,
    allowed_table,
    assert_result_is_the_oracles,
    assert_step_refused,
    batch_of,
    embedding,
    recorded_step,
    table_step,
)
from reference_trainer import share_vocabulary
from reference_trainer.errors import PassConsumedError, ShapeError

NARROW = st.sampled_from([torch.float32, torch.bfloat16])
DTYPES = st.just((torch.float64, torch.float64)) | st.tuples(NARROW, NARROW)


@given(case=step_cases(logits=LOGITS.map(lambda x: float(np.float32(x)))), dtypes=DTYPES)
def falsify_step_against_oracle(
    subject: Any, device: str, case: StepCase, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    """dtypes: dtype of the student and dtype of the teacher."""
    case = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    unit = 2.0**-53 if torch.float64 in dtypes else 2.0**-24
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case, unit)
    assert_same_gradient(
        "the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(unit), SHIFTED
    )


DEVICES = st.sampled_from(["cpu", "cuda"])


@given(case=step_cases(), teacher_on=DEVICES, batch_on=DEVICES)
def falsify_module_step_stays_on_its_device(subject: Any, case: StepCase, teacher_on: str, batch_on: str) -> None:
    V = case.student.shape[1]
    with fake_cuda():
        module = embedding(case.student, "cuda")
        teacher = subject.ModuleTeacher(embedding(case.teacher, teacher_on), V)
        student, batch = subject.ModuleStudent(module, V), batch_of(subject, case, batch_on)
        result = subject.kd_step(teacher, student, batch, **case.settings)
        gradient = module.weight.grad
        assert gradient is not None and gradient.is_cuda, f"the gradient is {gradient}; expected one on cuda:0"
        updated = case.student - gradient.cpu()
    assert_result_is_the_oracles(result, case)
    allowed = 2 * allowed_table(case, 1.0)
    assert_same_gradient("the table minus its .grad", updated, case.oracle_table(1.0), allowed, STEP)


@given(case=step_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=tensors((4,), HALVES, torch.float64))
def falsify_teacher_has_no_influence_at_zero_weight(subject: Any, device: str, case: StepCase, other: Tensor) -> None:
    changed = case.but(teacher=case.teacher + other[: case.teacher.shape[1]])
    result, table = table_step(subject, case, 1.0, device)
    changed_result, changed_table = table_step(subject, changed, 1.0, device)
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the student's table", table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP)
    assert changed_result.loss == result.loss, f"loss with another teacher: {changed_result.loss}; not {result.loss}"
    # A GPU adds the gradients of one row in no fixed order, so bits may differ there.
    allowed = 0.0 if device == "cpu" else allowed_table(case, 1.0)
    assert_same_gradient("the student's table under another teacher", changed_table, table, allowed, "kd_weight = 0")


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_student_equal_to_teacher_gets_no_gradient(subject: Any, device: str, case: StepCase) -> None:
    case = case.but(student=case.teacher)
    result, gradient = recorded_step(subject, case, device)
    oracles.assert_close("loss in nats per token", result.loss, 0.0, case.shifted().allowed_nats(), "student = teacher")
    zero = torch.zeros_like(gradient)
    assert_same_gradient("the gradient", gradient, zero, case.shifted().allowed_gradient(), "student = teacher")


@given(
    case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS),
    direction=tensors((4, 4), st.integers(-4, 4).map(float), torch.float64),
)
def falsify_loss_grows_with_divergence(subject: Any, device: str, case: StepCase, direction: Tensor) -> None:
    direction = direction[: case.teacher.shape[0], : case.teacher.shape[1]]
    cases = [case.but(student=case.teacher + a * direction) for a in (0.0, 0.5, 1.0, 2.0)]
    seen = [table_step(subject, c, 1.0, device)[0].loss for c in cases]
    for nearer, further, before, after in zip(cases, cases[1:], seen, seen[1:], strict=False):
        rise = (further.shifted().oracle_nats() - nearer.shifted().oracle_nats()) / max(
            int(further.shifted().scored.sum()), 1
        )
        allowed = nearer.shifted().allowed_nats() + further.shifted().allowed_nats()
        assert after >= before + rise / 2 - allowed, (
            f"the loss at the next distance from the teacher is {after:.9g}, after {before:.9g} nats a token; expected "
            f"a rise by {rise:.9g} (losses {seen} at the distances 0, 1/2, 1, 2)"
        )


@given(case=step_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_one_step_moves_towards_the_teacher(subject: Any, device: str, case: StepCase) -> None:
    first = case.shifted().scored.nonzero()[0].tolist()
    labels = torch.full_like(case.labels, IGNORED)
    labels[first[0], first[1] + 1] = 0
    case = case.but(labels=labels)
    token = int(case.tokens[first[0], first[1]])
    _, table = table_step(subject, case, 0.1, device)
    p, q = (oracles.softmax(x[token].tolist(), case.temperature) for x in (case.teacher, case.student))
    for v, (teacher_p, student_p) in enumerate(zip(p, q, strict=True)):
        moved = float(table[token, v] - case.student[token, v])
        expected = 0.1 * case.kd_weight * case.temperature * (teacher_p - student_p)
        oracles.assert_close(
            f"move of logit {v} of token {token}", moved, expected, allowed_table(case, 0.1), "lr·τ·(p - q)"
        )
    other_rows = [k for k in range(len(table)) if k != token]
    assert torch.equal(table[other_rows], case.student[other_rows]), f"a row other than {token} changed: {table}"


@given(
    teacher=tensors((4, 4), st.integers(-3, 3).map(lambda k: k / 2), torch.float64),
    lift=st.sampled_from([1.0, -1.0, 2.0]),
    temperature=st.sampled_from([1.0, 2.0, 4.0]),
    length=st.integers(2, 5),
)
def falsify_ten_steps_lower_the_loss(
    subject: Any, device: str, teacher: Tensor, lift: float, temperature: float, length: int
) -> None:
    # The second derivative of τ²·KL in a row is at most 1/2. The gradient of the mean over n rows is divided by n, so a
    # learning rate of n is a step of size 1 in every row, which lowers the loss. Logits within 2 of their mean keep
    # every probability above 1/100 at τ = 1, so every step lowers the loss by about 2 % or more.
    student = teacher.clone()
    student[:, 0] += lift  # a constant added to all logits of a row would not change its probabilities
    tokens = torch.arange(length)[None] % 4
    scored = min(length - 1, 4)
    case = StepCase(tokens, tokens, student, teacher, temperature, 0.0, 1.0)
    learner = subject.FixtureStudent(student.to(device), float(scored))
    frozen, batch = subject.FixtureTeacher(teacher.to(device)), batch_of(subject, case, device)
    losses = [subject.kd_step(frozen, learner, batch, **case.settings).loss for _ in range(11)]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses)), f"losses of ten steps: {losses}"
    assert losses[10] < 0.9 * losses[0], f"ten steps lower the loss {losses[0]:.6g} to {losses[10]:.6g}; limit 90 %"


@given(case=step_cases())
def falsify_metrics_are_sums_with_counts(subject: Any, device: str, case: StepCase) -> None:
    result, _ = recorded_step(subject, case, device)
    expected = _expected(case.shifted())
    assert result.metrics.keys() == expected.keys(), f"metrics are {sorted(result.metrics)}; expected {list(expected)}"
    for name, (nats, allowed, formula) in expected.items():
        metric = result.metrics[name]
        oracles.assert_close(f"{name} sum", metric.sum, nats, allowed, formula)
        assert metric.count == result.count, f"count of {name} is {metric.count}; expected {result.count}"


def _expected(case: KdCase) -> dict[str, tuple[float, float, str]]:
    """Return by metric: the sum, its largest rounding error, and the formula."""
    hard, soft = case.but(ce_weight=1.0, kd_weight=0.0), case.but(ce_weight=0.0, kd_weight=1.0)
    entropies, agreements = list[float](), 0
    for _, student, teacher, _ in case.rows():
        entropies.append(-math.fsum(math.exp(x) * x for x in oracles.log_softmax(teacher)))
        agreements += student.index(max(student)) == teacher.index(max(teacher))
    return {
        "hard_loss": _of(hard, "-log softmax(s)[y]"),
        "soft_loss": _of(soft, "τ²·KL(teacher ‖ student) at τ"),
        "kl_at_T": _of(soft, "KL(teacher ‖ student) at τ, without τ²", case.temperature**2),
        "kl_at_1": _of(soft.but(temperature=1.0), "KL(teacher ‖ student) at temperature 1"),
        "teacher_loss": _of(hard.but(student=case.teacher), "-log softmax(t)[y]"),
        "teacher_entropy": (math.fsum(entropies), 1e-13 * len(entropies), "-Σ softmax(t)·log softmax(t)"),
        "agreement": (agreements, 0.0, "rows where the first largest logits of both models are of the same token"),
    }


def _of(case: KdCase, formula: str, divisor: float = 1.0) -> tuple[float, float, str]:
    return case.oracle_nats() / divisor, 2 * case.allowed_nats() / divisor, formula


@given(
    shape=st.sampled_from([(1, 1), (2, 3), (0, 3), (2, 0), (1, 2)]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    scored_first=st.booleans(),
)
def falsify_step_with_nothing_scored(
    subject: Any, device: str, shape: tuple[int, int], weights: tuple[float, float], scored_first: bool
) -> None:
    # No logits predict the first token, so its label is not scored.
    labels = torch.full(shape, IGNORED)
    if scored_first:
        labels[:, :1] = 1
    table = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    case = StepCase(torch.ones(shape, dtype=torch.int64), labels, table, table.flip(0), 2.0, *weights)
    result, gradient = recorded_step(subject, case, device)
    assert result.loss is None, f"the loss is {result.loss} with no scored token; expected None"
    assert (result.sum, result.count, dict(result.metrics)) == (0.0, 0, {}), f"without scored tokens: {result}"
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} with no scored token; expected zeros"
    _, after = table_step(subject, case, 1.0, device)
    assert torch.equal(after, table), f"with no scored token, the table is {after.tolist()}; not {table.tolist()}"


TOKENS = torch.tensor([[0, 1, 1]])


INVALID_STEPS: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
    ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), TOKENS, TOKENS, USUAL, ("student 2", "teacher 3")),
    ("a token without a row", ZEROS, torch.tensor([[0, 2, 1]]), TOKENS, USUAL, ("token 2",)),
    ("a label outside the vocabulary", ZEROS, TOKENS, torch.tensor([[0, 1, 2]]), USUAL, ("label 2",)),
    ("temperature 0", ZEROS, TOKENS, TOKENS, {**USUAL, "temperature": 0.0}, ("temperature",)),
    ("a negative weight", ZEROS, TOKENS, TOKENS, {**USUAL, "kd_weight": -1.0}, ("kd_weight",)),
]


INVALID_BATCHES: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
    ("labels of another shape", lambda s: s.Batch(tokens=TOKENS, labels=TOKENS[:, 1:]), ("labels", "[1, 2]")),
    ("labels that are floats", lambda s: s.Batch(tokens=TOKENS, labels=TOKENS.double()), ("labels of", "float64")),
    ("tokens that are floats", lambda s: s.Batch(tokens=TOKENS.double(), labels=TOKENS), ("tokens", "float64")),
    ("tokens without a batch axis", lambda s: s.Batch(tokens=TOKENS[0], labels=TOKENS[0]), ("tokens", "[3]")),
]


def falsify_invalid_steps_are_refused(subject: Any) -> None:
    for label, table, tokens, labels, settings, words in INVALID_STEPS:
        student, batch = RecordingStudent(ZEROS), subject.Batch(tokens=tokens, labels=labels)
        assert_step_refused(subject, label, subject.FixtureTeacher(table), student, batch, settings, words)
        is_early = "teacher of vocabulary" not in label or not student.passes
        assert is_early, f"{label}: the student ran its forward before the vocabulary sizes were compared"
    for label, call, words in INVALID_BATCHES:
        oracles.assert_refused(label, functools.partial(call, subject), *words)


class NamedOutput(NamedTuple):
    loss: Tensor
    logits: Tensor


class DictOutput(dict[str, Any]):
    """A dict with attributes, such as Hugging Face's ModelOutput."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(loss=logits.sum(), logits=logits)
        self.logits = logits


OUTPUTS: dict[str, Callable[[Tensor], Any]] = {
    "a tensor": lambda logits: logits,
    "an object": lambda logits: SimpleNamespace(logits=logits),
    "a named tuple after the loss": lambda logits: NamedOutput(logits.sum(), logits),
    "a dict with attributes": DictOutput,
}


class Wrapped(nn.Module):
    """A module that wraps the logits of another in one of `OUTPUTS`."""

    def __init__(self, inner: nn.Module, output: str) -> None:
        super().__init__()
        self.inner, self.output = inner, OUTPUTS[output]

    def forward(self, tokens: Tensor) -> Any:
        return self.output(self.inner(tokens))


@given(case=step_cases(logits=LOGITS), steps=st.integers(1, 3), output=st.sampled_from(sorted(OUTPUTS)))
def falsify_module_student_accumulates(subject: Any, device: str, case: StepCase, steps: int, output: str) -> None:
    module = embedding(case.student, device)
    teacher_module = embedding(case.teacher, device)
    student = subject.ModuleStudent(Wrapped(module, output), case.student.shape[1])
    teacher = subject.ModuleTeacher(Wrapped(teacher_module, output), case.teacher.shape[1])
    for _ in range(steps):
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        assert_result_is_the_oracles(result, case)
    assert torch.equal(module.weight.detach().cpu(), case.student), f"table {module.weight}; expected {case.student}"
    assert module.weight.grad is not None, "the parameters of the module have no gradient"
    expected = steps * (case.student.double() - case.oracle_table(1.0))
    allowed = 2 * steps * allowed_table(case, 1.0)
    assert_same_gradient(
        ".grad of the table", module.weight.grad.cpu(), expected, allowed, f"sum of the gradients of {steps} steps"
    )


@given(case=step_cases(), order=st.sampled_from([(0, 1), (1, 0)]))
def falsify_gradient_reaches_its_own_forward(subject: Any, case: StepCase, order: tuple[int, int]) -> None:
    size = case.student.shape
    batches = [case.but(tokens=torch.full_like(case.tokens, k)) for k in (0, 1)]
    gradients = [torch.full((*case.tokens.shape, size[1]), g, dtype=torch.float64) for g in (1.0, 10.0)]
    expected = torch.zeros_like(case.student)
    expected[0], expected[1] = case.tokens.numel() * 1.0, case.tokens.numel() * 10.0
    module = embedding(case.student)
    table = subject.FixtureStudent(case.student, 1.0)
    for student in (table, subject.ModuleStudent(module, size[1])):
        passes = [student.forward(batch_of(subject, b)) for b in batches]
        for number in order:
            passes[number].backward(gradients[number])
    assert module.weight.grad is not None, "the parameters of the module have no gradient"
    for kind, seen in (("fixture", case.student - table.logits_table), ("module", module.weight.grad)):
        # Integers up to 120 minus multiples of 1/2 are exact.
        assert_same_gradient(f"the {kind} student's gradient", seen, expected, 1e-12, "each batch's own gradient")


KINDS = st.sampled_from(["fixture", "module", "module of another vocabulary"])


def _student(subject: Any, case: StepCase, kind: str) -> tuple[Any, Callable[[], Tensor]]:
    """Return a student of this kind, and a function that returns the sum of the gradients applied to its table."""
    if kind == "fixture":
        table = subject.FixtureStudent(case.student, 1.0)
        return table, lambda: case.student - table.logits_table
    module, size = embedding(case.student), case.student.shape[1]
    student = subject.ModuleStudent(module, size)
    if kind != "module":
        _, student = share_vocabulary(ConstantTeacher(size + 1, None), student, "pad")
    return student, lambda: torch.zeros_like(case.student) if module.weight.grad is None else module.weight.grad.clone()


@given(case=step_cases(), kind=KINDS, axis=st.integers(0, 2))
def falsify_pass_takes_one_gradient_of_its_shape(subject: Any, case: StepCase, kind: str, axis: int) -> None:
    student, applied = _student(subject, case, kind)
    forward = student.forward(batch_of(subject, case))
    gradient = torch.ones_like(forward.logits)
    other_length = gradient.narrow(axis, 0, 1) if gradient.shape[axis] > 1 else torch.cat([gradient] * 2, axis)
    for invalid in (other_length, gradient[..., :1], gradient.flatten(0, 1), gradient.sum()):
        words = (f"has shape {list(invalid.shape)}", f"the logits {list(gradient.shape)}")
        call = functools.partial(forward.backward, invalid)
        assert_refused(f"a gradient of shape {list(invalid.shape)} for a {kind}", call, *words, kind=ShapeError)
    assert not bool(applied().any()), f"a {kind} has applied a gradient of an invalid shape: {applied()}"
    forward.backward(gradient)
    once = applied()
    counts = torch.bincount(case.tokens.flatten(), minlength=len(once)).to(once.dtype)
    assert torch.equal(once, counts[:, None].expand_as(once)), f"a {kind} has applied {once}; expected {counts} by row"
    again = functools.partial(forward.backward, gradient)
    assert_refused(f"a second gradient for a {kind}", again, "already", kind=PassConsumedError)
    assert torch.equal(applied(), once), f"{kind}, refused second gradient: applied {applied()}, not {once}"
    _assert_failed_backward_consumes_its_pass(subject)


class FailingBackward(torch.autograd.Function):
    """The identity, whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("the backward fails on purpose")


def _assert_failed_backward_consumes_its_pass(subject: Any) -> None:
    """Assert that a pass refuses a gradient after a backward that raised, which may have applied a part of it."""
    tokens, module = torch.tensor([[0, 1, 1]]), embedding(ZEROS)
    module.register_forward_hook(lambda module, inputs, logits: FailingBackward.apply(logits))
    forward = subject.ModuleStudent(module, 2).forward(subject.Batch(tokens=tokens, labels=tokens))
    backward = functools.partial(forward.backward, torch.ones_like(forward.logits))
    assert_refused("a backward that fails", backward, "on purpose", kind=RuntimeError)
    assert_refused("a gradient after a failed backward", backward, "already", kind=PassConsumedError)


INVALID_LOGITS: list[tuple[str, Callable[[Tensor], Any], tuple[str, ...]]] = [
    ("nothing", lambda logits: None, ("None instead of logits",)),
    ("a list", lambda logits: logits.tolist(), ("list",)),
    ("token ids", lambda logits: logits.argmax(-1), ("int64",)),
    ("a larger vocabulary", lambda logits: torch.cat([logits, logits], -1), ("vocabulary of 4",)),
    ("the last position only", lambda logits: logits[:, -1:], ("[2, 1, 2]",)),
    ("transposed positions", lambda logits: logits.transpose(0, 1), ("[3, 2, 2]",)),
    ("a scalar, such as a loss", lambda logits: logits.sum(), ("[]",)),
    ("a dict without attributes", lambda logits: {"logits": logits}, ("dict",)),
    ("NaN", lambda logits: torch.full_like(logits, math.nan), ("teacher", "nan")),
]


class ConstantModule(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, tokens: Tensor) -> Any:
        return self.answer


def falsify_invalid_logits_are_refused(subject: Any) -> None:
    tokens = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = subject.Batch(tokens=tokens, labels=tokens)
    for label, invalid_logits, words in INVALID_LOGITS:
        answer = invalid_logits(torch.zeros(2, 3, 2, dtype=torch.float64))
        for kind, teacher in (
            ("protocol", ConstantTeacher(2, answer)),
            ("module", subject.ModuleTeacher(ConstantModule(answer), 2)),
        ):
            case = f"a {kind} teacher that returns {label}"
            assert_step_refused(subject, case, teacher, RecordingStudent(ZEROS), batch, USUAL, words)
        # RecordingStudent cannot return None. A module student does not check its logits for NaN; the step does.
        words = tuple(word.replace("teacher", "student") for word in words)
        if answer is not None:
            learner, frozen = RecordingStudent(ZEROS, answer), subject.FixtureTeacher(ZEROS)
            case = f"a protocol student that returns {label}"
            assert_step_refused(subject, case, frozen, learner, batch, USUAL, words)
        if "nan" not in words:
            forward = functools.partial(subject.ModuleStudent(ConstantModule(answer), 2).forward, batch)
            assert_refused(f"a module student that returns {label}", forward, *words)


class DropoutModel(nn.Module):
    """A module with dropout and batch normalization: train mode changes its logits, hidden states and buffers."""

    def __init__(self, embedding: nn.Embedding, V: int) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.dropout = embedding, nn.Dropout(0.5)
        self.norm, self.head = nn.BatchNorm1d(width).double(), nn.Linear(width, V).double()
        self.lazy = Lazy()
        self.factor = torch.ones((), dtype=torch.float64, requires_grad=True)  # not a parameter, so it stays unfrozen

    def get_output_embeddings(self) -> nn.Linear:
        return self.head

    def forward(self, tokens: Tensor, output_hidden_states: bool = False) -> Any:
        hidden = self.dropout(self.lazy(self.embedding(tokens))) * self.factor
        logits = self.head(self.norm(hidden.mT).mT)
        return SimpleNamespace(logits=logits, hidden_states=[hidden]) if output_hidden_states else logits


class Lazy(nn.Module):
    """A module that builds a constant in its first forward and keeps it, as rotary embeddings do."""

    scale: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.full_like(hidden[0, 0], 2.0).detach()
        return hidden * self.scale


def _dropout_models(case: StepCase, shared: bool, device: str) -> tuple[DropoutModel, DropoutModel]:
    V = case.student.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        teacher = DropoutModel(embedding(case.teacher), V)
        student = DropoutModel(teacher.embedding if shared else embedding(case.student), V)
        if shared:
            student.dropout, student.head, student.lazy = teacher.dropout, teacher.head, teacher.lazy
    return teacher.to(device), student.to(device)


@given(case=step_cases(), shared=st.booleans(), rearmed=st.booleans(), chunked=st.booleans())
def falsify_teacher_is_unchanged(
    subject: Any, device: str, case: StepCase, shared: bool, rearmed: bool, chunked: bool
) -> None:
    """shared: teacher and student share modules. rearmed: parameters of the student get requires_grad before each step.

    chunked: the output layers are applied to chunks of rows.
    """
    teacher_module, student_module = _dropout_models(case, shared, device)
    teacher = subject.ModuleTeacher(teacher_module, case.student.shape[1])
    trainable = [name for name, parameter in teacher_module.named_parameters() if parameter.requires_grad]
    assert not trainable, f"parameters {trainable} of a new teacher require a gradient"
    student = subject.ModuleStudent(student_module, case.student.shape[1])
    student_module.train()
    teacher_module.dropout.train(case.tokens.numel() % 2 == 0)
    before = {name: value.clone() for name, value in teacher_module.state_dict().items()}
    flags = [part.training for part in teacher_module.modules()]
    batch = batch_of(subject, case, device)
    first, states = teacher.logits(batch), teacher.outputs(batch).hidden_states[0]
    assert not (first.requires_grad or states.requires_grad), "logits or hidden states of the teacher have a graph"
    parameters = dict.fromkeys([*teacher_module.parameters(), *student_module.parameters()])  # each one once
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    with chunks_of(2) if chunked else nullcontext():
        _assert_reading_changes_nothing(student, student_module, batch)
        for _ in range(3):
            if rearmed:
                student_module.requires_grad_(True)
            subject.kd_step(teacher, student, batch, **case.settings)
            trainable = [name for name, parameter in teacher_module.named_parameters() if parameter.requires_grad]
            assert not trainable, f"after a step, parameters {trainable} of the teacher require a gradient"
            optimizer.step()
    for output, initial, final in (
        ("logits", first, teacher.logits(batch)),
        ("hidden states", states, teacher.outputs(batch).hidden_states[0]),
    ):
        assert torch.equal(initial, final), f"the teacher's {output} changed from {initial} to {final}"
    _assert_unchanged(teacher_module, before, flags)


def _assert_reading_changes_nothing(student: Any, module: nn.Module, batch: Any) -> None:
    """Assert that reading logits and hidden states of a student in train mode does not change it."""
    before = {name: value.clone() for name, value in module.state_dict().items()}
    flags = [part.training for part in module.modules()]
    seen = [student.logits(batch), student.outputs(batch).logits, student.logits(batch)]
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2]), f"repeated calls return the logits {seen}"
    changed = [name for name, value in module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"reading the student changes its {changed}"
    assert [part.training for part in module.modules()] == flags, "reading the student changes its training flags"


def _assert_unchanged(module: nn.Module, before: dict[str, Tensor], flags: list[bool]) -> None:
    """Assert that the module has this state and these training flags, and no gradient."""
    changed = [name for name, value in module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"the teacher's {changed} changed in three steps"
    with_gradient = [name for name, p in module.named_parameters() if p.grad is not None or p.requires_grad]
    assert not with_gradient, f"the teacher's {with_gradient} have or require a gradient"
    now = [part.training for part in module.modules()]
    assert now == flags, f"the teacher's training flags changed from {flags} to {now}"
