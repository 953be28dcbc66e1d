"""Attacks on teachers and students: passes, frozen teachers, outputs that are no logits, what a step refuses.

The subject is that of `falsify_kd_step`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers import oracles
from falsifiers.falsify_kd_loss import assert_same_gradient
from falsifiers.falsify_kd_step import (
    STEP,
    AnsweringTeacher,
    RecordingStudent,
    allowed_table,
    assert_result_is_the_oracles,
    batch_of,
)
from falsifiers.strategies import LOGITS, StepCase, step_cases


def embedding(table: Tensor, device: str = "cpu") -> nn.Embedding:
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table.clone().to(device))


class NamedOutput(NamedTuple):
    loss: Tensor
    logits: Tensor


class DictOutput(dict[str, Any]):
    """A dict whose entries are attributes too, as Hugging Face's ModelOutput is."""

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
    """Answers with something that has the logits."""

    def __init__(self, inner: nn.Module, output: str) -> None:
        super().__init__()
        self.inner, self.output = inner, OUTPUTS[output]

    def forward(self, tokens: Tensor) -> Any:
        return self.output(self.inner(tokens))


@given(
    case=step_cases(logits=LOGITS), steps=st.integers(1, 3), output=st.sampled_from(sorted(OUTPUTS)), held=st.booleans()
)
def falsify_module_student_accumulates(
    subject: Any, device: str, case: StepCase, steps: int, output: str, held: bool
) -> None:
    """Gradients of several steps add up in .grad; no parameter moves, for stepping is the loop's to do.

    A buffer that is there before is added to where it lies, as optimizers with one flat buffer need, and hooks run.
    """
    module = embedding(case.student, device)
    teacher_module = embedding(case.teacher, device)
    student = subject.ModuleStudent(Wrapped(module, output), case.student.shape[1])
    teacher = subject.ModuleTeacher(Wrapped(teacher_module, output), case.teacher.shape[1])
    buffer = torch.zeros_like(module.weight)
    hooked: list[Tensor] = []
    module.weight.grad = buffer if held else None
    module.weight.register_post_accumulate_grad_hook(hooked.append)
    for _ in range(steps):
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        assert_result_is_the_oracles(result, case)
    assert torch.equal(module.weight.detach().cpu(), case.student), (
        "the student's parameters moved without an optimizer"
    )
    assert module.weight.grad is not None, "the student's parameters got no gradient"
    expected = steps * (case.student.double() - case.oracle_table(1.0))
    allowed = 2 * steps * allowed_table(case, 1.0)
    assert_same_gradient(
        ".grad of the table", module.weight.grad.cpu(), expected, allowed, f"{steps} steps' gradients added"
    )
    assert not held or torch.equal(buffer, module.weight.grad), (
        f".grad was a buffer of zeros, which holds {buffer.tolist()} now; .grad is {module.weight.grad.tolist()}: a "
        f"new tensor, where the gradient should have been added to the old one"
    )
    assert len(hooked) == steps, f"the parameter's post-accumulate hook ran {len(hooked)} times in {steps} steps"


@given(case=step_cases(), order=st.sampled_from([(0, 1), (1, 0)]))
def falsify_a_gradient_meets_its_own_forward(subject: Any, case: StepCase, order: tuple[int, int]) -> None:
    """Two forwards, then their gradients in either order: each reaches the rows of its own batch."""
    size = case.student.shape
    batches = [case.but(tokens=torch.full_like(case.tokens, k)) for k in (0, 1)]
    gradients = [torch.full((*case.tokens.shape, size[1]), g, dtype=torch.float64) for g in (1.0, 10.0)]
    expected = torch.zeros_like(case.student)
    expected[0], expected[1] = case.tokens.numel() * 1.0, case.tokens.numel() * 10.0
    module = embedding(case.student)
    table = subject.FixtureStudent(case.student, 1.0)
    for student in (table, subject.ModuleStudent(module, size[1])):
        passes = [student.forward(batch_of(subject, b)) for b in batches]
        for which in order:
            passes[which].backward(gradients[which])
    assert module.weight.grad is not None, "the student's parameters got no gradient"
    for kind, seen in (("fixture", case.student - table.logits_table), ("module", module.weight.grad)):
        # Whole numbers up to 120 minus halves: exact.
        assert_same_gradient(f"the {kind} student's gradient", seen, expected, 1e-12, "each batch's own gradient")


@given(case=step_cases(), kind=st.sampled_from(["fixture", "module"]), axis=st.integers(0, 2))
def falsify_pass_is_consumed_once(subject: Any, case: StepCase, kind: str, axis: int) -> None:
    """A second gradient and one of another shape are refused, and neither leaves a trace."""
    module = embedding(case.student)
    student = (
        subject.FixtureStudent(case.student, 1.0)
        if kind == "fixture"
        else subject.ModuleStudent(module, case.student.shape[1])
    )

    def state() -> Tensor:
        grad = module.weight.grad
        return (
            student.logits_table
            if kind == "fixture"
            else torch.zeros_like(case.student)
            if grad is None
            else grad.clone()
        )

    done = student.forward(batch_of(subject, case))
    assert not done.logits.requires_grad, "a pass's logits hang on a graph; expected them detached"
    gradient = torch.ones_like(done.logits)
    before = state()
    wrong = gradient.narrow(axis, 0, 1) if gradient.shape[axis] > 1 else torch.cat([gradient] * 2, axis)
    oracles.assert_refused("no gradient at all", lambda: done.backward(None), "NoneType")
    for misshapen in (wrong, gradient.flatten(), gradient.flatten(0, 1)):
        what = f"a gradient of shape {list(misshapen.shape)}"
        said = (f"has shape {list(misshapen.shape)}", f"the logits {list(done.logits.shape)}")
        oracles.assert_refused(what, lambda misshapen=misshapen: done.backward(misshapen), *said)
    assert torch.equal(state(), before), "a gradient of the wrong shape was refused and applied nevertheless"
    done.backward(gradient)
    after = state()
    complaint = oracles.refusal_complaint(
        "a second gradient", lambda: done.backward(gradient), "already", kind=RuntimeError
    )
    assert complaint is None, complaint
    assert torch.equal(state(), after), "the second gradient was refused and applied nevertheless"
    assert not torch.equal(after, before), "the first gradient left no trace"


class Interrupted(nn.Module):
    """Its backward raises half-way as long as it is told to."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding, self.fails = embedding, True

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.embedding(tokens)
        logits.register_hook(self.interrupt)
        return logits + 0

    def interrupt(self, gradient: Tensor) -> None:
        if self.fails:
            raise ArithmeticError("the device is gone")


@given(case=step_cases(), recovers=st.booleans())
def falsify_an_interrupted_pass_is_consumed(subject: Any, case: StepCase, recovers: bool) -> None:
    """A gradient whose application raises half-way was the pass's one gradient: part of it may have arrived."""
    module = Interrupted(embedding(case.student))
    done = subject.ModuleStudent(module, case.student.shape[1]).forward(batch_of(subject, case))
    gradient = torch.ones_like(done.logits)
    complaint = oracles.refusal_complaint(
        "a backward that fails", lambda: done.backward(gradient), "gone", kind=ArithmeticError
    )
    assert complaint is None, complaint
    module.fails = not recovers
    complaint = oracles.refusal_complaint(
        "a gradient after one that raised half-way", lambda: done.backward(gradient), "already", kind=RuntimeError
    )
    assert complaint is None, complaint


class Noisy(nn.Module):
    """Tokens to logits with everything that train mode changes: dropout, running statistics."""

    def __init__(self, embedding: nn.Embedding, V: int) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.embedding, self.dropout = embedding, nn.Dropout(0.5)
        self.norm, self.head = nn.BatchNorm1d(width).double(), nn.Linear(width, V).double()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.dropout(self.embedding(tokens)).mT
        logits: Tensor = self.head(self.norm(hidden).mT)
        return logits


def _noisy_pair(case: StepCase, shared: bool, device: str) -> tuple[Noisy, Noisy]:
    V = case.student.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        teacher = Noisy(embedding(case.teacher), V)
        student = Noisy(teacher.embedding if shared else embedding(case.student), V)
        if shared:
            student.dropout, student.head = teacher.dropout, teacher.head
    return teacher.to(device), student.to(device)


@given(case=step_cases(), shared=st.booleans(), rearmed=st.booleans())
def falsify_teacher_is_untouched(subject: Any, device: str, case: StepCase, shared: bool, rearmed: bool) -> None:
    """Three steps of a student in train mode, which may share modules with its teacher, leave no trace in the teacher.

    It answers in eval mode every time, keeps every bit, never has a gradient, and its training flags are its own.
    """
    teacher_module, student_module = _noisy_pair(case, shared, device)
    teacher = subject.ModuleTeacher(teacher_module, case.student.shape[1])
    asking = [name for name, parameter in teacher_module.named_parameters() if parameter.requires_grad]
    assert not asking, f"{asking} of a new teacher ask for a gradient"
    student = subject.ModuleStudent(student_module, case.student.shape[1])
    student_module.train()
    teacher_module.dropout.train(case.tokens.numel() % 2 == 0)
    if rearmed:
        for parameter in student_module.parameters():
            parameter.requires_grad_(True)
    before = {name: value.clone() for name, value in teacher_module.state_dict().items()}
    flags = [part.training for part in teacher_module.modules()]
    both = dict.fromkeys([*teacher_module.parameters(), *student_module.parameters()])  # shared ones once
    optimizer = torch.optim.SGD(both, lr=0.5)
    batch = batch_of(subject, case, device)
    first = teacher.logits(batch)
    assert not first.requires_grad, "the teacher's logits hang on a graph; expected none"
    for _ in range(3):
        subject.kd_step(teacher, student, batch, **case.settings)
        optimizer.step()
    again = teacher.logits(batch)
    assert torch.equal(first, again), f"the teacher answered {first.tolist()} and, after three steps, {again.tolist()}"
    changed = [name for name, value in teacher_module.state_dict().items() if not torch.equal(value, before[name])]
    assert not changed, f"the teacher's {changed} changed in three steps of its student"
    with_gradient = [name for name, p in teacher_module.named_parameters() if p.grad is not None or p.requires_grad]
    assert not with_gradient, f"the teacher's {with_gradient} have or ask for a gradient"
    now = [part.training for part in teacher_module.modules()]
    assert now == flags, f"the teacher's training flags were {flags} and are {now} after its forwards"


class Witness(nn.Module):
    """Counts which of its parts are in train mode when it is called; then it may fail. Two parents share a part."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        shared = nn.Sequential(nn.Dropout(0.5))
        self.one, self.other = nn.Sequential(shared, nn.Linear(2, 2)), nn.Sequential(nn.Dropout(0.5), shared)
        self.fails = fails
        self.seen: list[bool] = []
        self.with_graph = True

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen, self.with_graph = [part.training for part in self.modules()], torch.is_grad_enabled()
        if self.fails:
            raise ArithmeticError("the device is gone")
        return torch.zeros(*tokens.shape, 2)


@given(flags=st.lists(st.booleans(), min_size=7, max_size=7), fails=st.booleans())
def falsify_training_flags_survive_a_teacher(subject: Any, flags: list[bool], fails: bool) -> None:
    """Every submodule is in eval mode during the forward and back in its own mode after it, also when it raises.

    Its own: not its parent's, of which it may have two.
    """
    module = Witness(fails)
    teacher = subject.ModuleTeacher(module, 2)
    for part, training in zip(module.modules(), flags, strict=True):
        part.training = training
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    batch = subject.Batch(tokens=tokens, labels=tokens)
    if fails:
        complaint = oracles.refusal_complaint(
            "a teacher that fails", lambda: teacher.logits(batch), "gone", kind=ArithmeticError
        )
        assert complaint is None, complaint
    else:
        teacher.logits(batch)
    assert torch.is_grad_enabled(), "the teacher's forward left gradients switched off for everybody"
    assert not any(module.seen), f"in the teacher's forward the training flags were {module.seen}; expected all False"
    assert not module.with_graph, "the teacher's forward records a graph, which nothing will ever use"
    now = [part.training for part in module.modules()]
    names = [name or "itself" for name, _ in module.named_modules()]
    assert now == flags, f"the training flags of {names} were {flags} and are {now} after the teacher's forward"


ANSWERS: list[tuple[str, Callable[[Tensor], Any], tuple[str, ...]]] = [
    ("nothing", lambda logits: None, ("None", "weights", "device")),
    ("a list", lambda logits: logits.tolist(), ("list",)),
    ("token ids", lambda logits: logits.argmax(-1), ("int64",)),
    ("a larger vocabulary", lambda logits: torch.cat([logits, logits], -1), ("vocabular", "checkpoint")),
    ("a smaller vocabulary", lambda logits: logits[..., :-1], ("vocabular", "checkpoint")),
    ("the last position only", lambda logits: logits[:, -1:], ("shape",)),
    ("no position axis", lambda logits: logits[:, -1], ("shape",)),
    ("one element for the batch", lambda logits: logits[:1], ("shape",)),
    ("transposed positions", lambda logits: logits.transpose(0, 1), ("shape",)),
    ("a fourth axis", lambda logits: logits[None], ("shape",)),
    ("one number, as a loss is", lambda logits: logits.sum(), ("shape", "[]")),
    ("one number per position", lambda logits: logits[0, :, 0], ("shape", "[3]")),
    ("nothing for an empty batch", lambda logits: logits[:0], ("shape", "[0, 3, 2]")),
    ("which logits are positive", lambda logits: logits > 0, ("bool",)),
    ("complex numbers", lambda logits: logits.to(torch.complex64), ("complex",)),
    ("a tuple", lambda logits: (logits, None), ("tuple",)),
    ("a dict without attributes", lambda logits: {"logits": logits}, ("dict",)),
    ("NaN", lambda logits: torch.full_like(logits, math.nan), ("teacher", "nan")),
]


class Constant(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, tokens: Tensor) -> Any:
        return self.answer


def falsify_broken_answers_are_refused(subject: Any) -> None:
    """Each wrong answer by its likely cause, and the student has had no gradient."""
    tokens = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = subject.Batch(tokens=tokens, labels=tokens)
    right = torch.zeros(2, 3, 2, dtype=torch.float64)
    settings = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
    found: list[str | None] = []
    for what, answer, words in ANSWERS:
        for kind, teacher in (
            ("protocol", AnsweringTeacher(2, answer(right))),
            ("module", subject.ModuleTeacher(Constant(answer(right)), 2)),
        ):
            student = RecordingStudent(torch.zeros(2, 2, dtype=torch.float64))
            name = f"a {kind} teacher that answers with {what}"
            found.append(
                oracles.refusal_complaint(
                    name, lambda t=teacher, s=student: subject.kd_step(t, s, batch, **settings), *words
                )
            )
            if any(done.gradients for done in student.passes):
                found.append(f"{name}: the student had a gradient before the refusal")
        learner = RecordingStudent(torch.zeros(2, 2, dtype=torch.float64), answer(right))
        frozen = subject.FixtureTeacher(torch.zeros(2, 2, dtype=torch.float64))
        own_words = tuple(word.replace("teacher", "student") for word in words)
        if what != "nothing":  # to RecordingStudent, None means its table
            name = f"a protocol student that answers with {what}"
            call = functools.partial(subject.kd_step, frozen, learner, batch, **settings)
            found.append(oracles.refusal_complaint(name, call, *own_words))
        if any(done.gradients for done in learner.passes):
            found.append(f"a student that answers with {what} had a gradient before the refusal")
        if what != "NaN":
            module = subject.ModuleStudent(Constant(answer(right)), 2)
            name = f"a module student that answers with {what}"
            found.append(oracles.refusal_complaint(name, functools.partial(module.forward, batch), *own_words))
    complaints = [complaint for complaint in found if complaint]
    assert not complaints, "\n".join(complaints)


def falsify_unfit_settings_are_refused_by_the_step(subject: Any) -> None:
    """Vocabularies that differ, tokens without a row, labels or settings outside their domain; nothing was applied."""
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    right = torch.tensor([[0, 1, 1]])
    usual = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
    found: list[str | None] = []
    cases: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
        ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), right, right, usual, ("2", "3", "vocab")),
        ("a teacher of vocabulary 1", torch.zeros(2, 1).double(), right, right, usual, ("2", "1", "vocab")),
        ("a token without a row", zeros, torch.tensor([[0, 2, 1]]), right, usual, ("token 2",)),
        ("a negative token", zeros, torch.tensor([[0, -1, 1]]), right, usual, ("token -1",)),
        ("a label outside", zeros, right, torch.tensor([[0, 1, 2]]), usual, ("label 2",)),
        ("temperature 0", zeros, right, right, {**usual, "temperature": 0.0}, ("temperature",)),
        ("a negative weight", zeros, right, right, {**usual, "kd_weight": -1.0}, ("kd_weight",)),
    ]
    for what, teacher, tokens, labels, settings, words in cases:
        student = RecordingStudent(zeros)
        tables = subject.FixtureTeacher(teacher)
        batch = subject.Batch(tokens=tokens, labels=labels)
        found.append(
            oracles.refusal_complaint(
                what, lambda t=tables, s=student, b=batch, k=settings: subject.kd_step(t, s, b, **k), *words
            )
        )
        if any(done.gradients for done in student.passes):
            found.append(f"{what}: the student had a gradient before the refusal")
        if "vocabulary" in what and student.passes:
            found.append(f"{what}: the student ran its forward, though the two vocab_size already differ")
    learner = subject.FixtureStudent(zeros, 1.0)
    outside = subject.Batch(tokens=torch.tensor([[-1, 0]]), labels=torch.tensor([[0, 0]]))
    found.append(
        oracles.refusal_complaint("a student's token without a row", lambda: learner.forward(outside), "token -1")
    )
    found += [
        oracles.refusal_complaint(
            "labels of another shape", lambda: subject.Batch(tokens=right, labels=right[:, 1:]), "labels", "[1, 2]"
        ),
        oracles.refusal_complaint(
            "tokens that are floats", lambda: subject.Batch(tokens=right.double(), labels=right), "tokens", "float64"
        ),
        oracles.refusal_complaint(
            "tokens without a batch axis", lambda: subject.Batch(tokens=right[0], labels=right[0]), "tokens", "[3]"
        ),
        oracles.refusal_complaint(
            "a table without an axis", lambda: subject.FixtureTeacher(zeros[0]), "table", " is [2]"
        ),
        oracles.refusal_complaint(
            "tokens that are a list", lambda: subject.Batch(tokens=[[0]], labels=right), "tokens", "list"
        ),
        oracles.refusal_complaint("a table that is a list", lambda: subject.FixtureTeacher([[0.0]]), "table", "list"),
        oracles.refusal_complaint(
            "an endless learning rate", lambda: subject.FixtureStudent(zeros, math.inf), "learning_rate"
        ),
        oracles.refusal_complaint(
            "a gradient for a frozen module", lambda: _frozen(subject).backward(torch.zeros(1, 3, 2)), "no parameter"
        ),
        oracles.refusal_complaint(
            "a learning rate of NaN", lambda: subject.FixtureStudent(zeros, math.nan), "learning_rate"
        ),
        oracles.refusal_complaint(
            "a learning rate below 0", lambda: subject.FixtureStudent(zeros, -1.0), "learning_rate"
        ),
    ]
    complaints = [complaint for complaint in found if complaint]
    assert not complaints, "\n".join(complaints)
    subject.FixtureStudent(zeros, 0.0)  # no step at all is a rate too: a loss can be watched that way


def _frozen(subject: Any) -> Any:
    """A pass of a module none of whose parameters asks for a gradient."""
    module = nn.Embedding(2, 2).requires_grad_(False)
    tokens = torch.tensor([[0, 1, 1]])
    return subject.ModuleStudent(module, 2).forward(subject.Batch(tokens=tokens, labels=tokens))


@given(case=step_cases(), asking=st.booleans())
def falsify_tables_belong_to_nobody_else(subject: Any, case: StepCase, asking: bool) -> None:
    """A fixture copies its table; a teacher's answers can be written to without teaching it anything.

    A table may be a parameter that somebody trains: neither its memory nor its graph is the fixture's.
    """
    student_table, teacher_table = case.student.clone(), case.teacher.clone()
    batch = batch_of(subject, case)
    for leaf in (student_table, teacher_table):
        leaf.requires_grad_(asking)
    student, teacher = subject.FixtureStudent(student_table, 1.0), subject.FixtureTeacher(teacher_table)
    for what, logits in (
        ("the student's logits", student.forward(batch).logits),
        ("the student's table", student.logits_table),
        ("the teacher's logits", teacher.logits(batch)),
    ):
        assert not logits.requires_grad, f"{what} hang on the graph of the parameter that the fixture was made from"
    for leaf in (student_table, teacher_table):
        leaf.requires_grad_(False)
    subject.kd_step(teacher, student, batch, **case.settings)
    assert torch.equal(student_table, case.student), "a step wrote into the table that the student was made from"
    teacher.logits(batch).zero_()
    teacher_table.zero_()
    assert torch.equal(teacher.logits(batch), case.teacher[case.tokens]), (
        "the teacher's answers changed after it was made"
    )
    assert_same_gradient(
        "the student's table", student.logits_table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP
    )


@given(case=step_cases(), momentum=st.sampled_from([0.0, 0.9]))
def falsify_old_gradients_are_never_applied(subject: Any, case: StepCase, momentum: float) -> None:
    """A module that was being fitted a moment ago still has gradients; as a teacher it has none."""
    module = embedding(case.teacher)
    module(case.tokens).sum().backward()
    teacher = subject.ModuleTeacher(module, case.teacher.shape[1])
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0, momentum=momentum)
    teacher.logits(batch_of(subject, case))
    optimizer.step()
    assert torch.equal(module.weight.detach(), case.teacher), "an optimizer applied a gradient from before the freezing"
