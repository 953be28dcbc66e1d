"""Attacks on the contexts of the hooks within a step. The subject is that of `real_run`.

The expected numbers come from a small table of logits and its closed-form gradient, in float64.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.callbacks.lifecycle import Script, lifecycle
from falsifiers.callbacks.real_run import checkpoint, module_student, parts, recording_callbacks, run
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.tables import FixtureTeacher
from reference_trainer.training.callbacks import Context
from reference_trainer.training.loop import new_optimizer

SAME = 1e-9
WITHIN = ("on_log", "on_evaluate", "on_save", "on_step_end")
CE, KD, T = 0.3, 0.7, 2.0


class Table(nn.Module):
    """A table of logits [V, V], by token."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(logits.clone())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Script, list[tuple[tuple[int, int], ...]], float | None]:
    """Draw a schedule, micro-batches of (token, label) pairs, some of which score nothing, and a clip."""
    accumulation = draw(st.integers(1, 3))
    every = draw(st.tuples(*[st.integers(0, 3)] * 3))
    left, epochs, steps = draw(st.integers(1, accumulation)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    script = Script(epochs, steps, None, ((),), accumulation, left, every)
    pair = st.tuples(st.integers(0, 2), st.sampled_from([-100, 0, 1, 2]))
    batches = draw(st.lists(st.lists(pair, min_size=2, max_size=4).map(tuple), min_size=1, max_size=5))
    return script, batches, draw(st.none() | st.sampled_from([1e-3, 0.5, 1e3]))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a run hands over to be saved. seen: the number of contexts before its on_save."""

    state: Any
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    seen: int


class Run:
    """A real run of these micro-batches, with the contexts of every event and the student's table at that time.

    saved: its checkpoints; `resumed` is one of an equal run. tick: seconds from one reading of its clock to the next.
    """

    def __init__(
        self,
        subject: Any,
        script: Script,
        batches: Any,
        clip: float | None,
        resumed: Checkpoint | None = None,
        tick: float = 0.5,
    ) -> None:
        self.script, self.batches = script, batches
        self.seen: list[tuple[Context, Tensor, Tensor | None]] = []
        self.saved: list[Checkpoint] = []
        self.teacher = torch.tensor([[2.0, 0, -1], [0, 4, 0], [1, -2, 0]], dtype=torch.float64)
        module = Table(self.teacher.flip(0, 1))
        optimizer = new_optimizer(module.parameters(), 0.1)
        if resumed is not None:
            module.load_state_dict(resumed.weights)
            optimizer.load_state_dict(resumed.optimizer)
        now = [0.0]

        def clock() -> float:
            now[0] += tick
            return now[0]

        def act(callback: int, event: str, context: Context) -> None:
            gradient = module.table.grad
            self.seen.append(
                (context.snapshot(), module.table.detach().clone(), None if gradient is None else gradient.clone())
            )
            for each in (context.metrics, context.validation_metrics):
                if isinstance(each, dict):
                    each.clear()  # what a callback does with its context changes nothing else

        def save(state: Any) -> None:
            files = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
            self.saved.append(Checkpoint(state, *files, len(self.seen)))

        given = parts() | {
            "teacher": FixtureTeacher(self.teacher),
            "student": module_student(module),
            "batch_at": lambda epoch, k: self.batch(epoch, k),
            "optimizer": optimizer,
            "learning_rate": lambda step: 0.1 / step,
            "clock": clock,
            "clip": clip,
            "save": save,
            "resumed": None if resumed is None else resumed.state,
        }
        run(subject, script, recording_callbacks(1, act), given)

    def batch(self, epoch: int, k: int) -> Batch:
        pairs = self.batches[((epoch - 1) * self.script.micro_batches + k - 1) % len(self.batches)]
        tokens, labels = torch.tensor(pairs).T
        return Batch(tokens=tokens[None], labels=labels[None])

    def nats(self, batch: Batch, table: Tensor) -> tuple[Tensor, int]:
        """Return the loss of a micro-batch under a table, summed over its scored tokens, and their count."""
        tokens, labels = batch.tokens[0, :-1], batch.labels[0, 1:]
        tokens, labels = tokens[labels >= 0], labels[labels >= 0]
        student, teacher = table[tokens], self.teacher[tokens]
        hard = -student.log_softmax(-1).gather(-1, labels[:, None]).sum()
        at_T, ours = (teacher / T).log_softmax(-1), (student / T).log_softmax(-1)
        return CE * hard + KD * T**2 * (at_T.exp() * (at_T - ours)).sum(), len(labels)

    def window(self, epoch: int, epoch_step: int) -> list[Batch]:
        first = (epoch_step - 1) * self.script.accumulation
        last = min(first + self.script.accumulation, self.script.micro_batches)
        return [self.batch(epoch, k) for k in range(first + 1, last + 1)]


@given(drawn=runs())
def falsify_micro_batches_are_reported(subject: Any, drawn: Any) -> None:
    run = Run(subject, *drawn)
    for context, table, _ in run.seen:
        expected: dict[str, float] = {}
        if context.hook == "on_after_backward":
            epoch_step = (context.step - 1) % run.script.steps_per_epoch + 1
            batch = run.window(context.epoch, epoch_step)[context.micro_batch - 1]
            nats, count = run.nats(batch, table)
            expected = {"tokens": count} | ({"loss": float(nats) / count} if count else {})
        got = dict(context.batch_metrics)
        close = got.keys() == expected.keys() and all(
            math.isclose(got[name], expected[name], rel_tol=SAME, abs_tol=SAME) for name in got
        )
        close = close and type(got.get("tokens", 0)) is int
        where = f"{context.hook} of step {context.step}, micro-batch {context.micro_batch}"
        assert close, f"{where}: the metrics of the batch are {got}; expected {expected}"


@given(drawn=runs())
def falsify_gradient_norms_are_reported(subject: Any, drawn: Any) -> None:
    script, batches, clip = drawn
    run = Run(subject, script, batches, clip)
    norm: float | None = None
    for context, table, gradient in run.seen:
        if context.hook == "on_pre_optimizer_step":
            norm = _norm(run, context, table)
            _assert_clipped(context, norm, gradient, clip)
        known = context.hook in ("on_pre_optimizer_step", "on_optimizer_step", *WITHIN)
        logged = script.every[0] > 0 and context.step % script.every[0] == 0
        expected = norm if known and (logged or clip is not None) else None
        got = context.gradient_norm
        same = got == expected if None in (got, expected) else math.isclose(got, expected, rel_tol=SAME, abs_tol=SAME)
        assert same, f"{context.hook} of step {context.step}: the norm is {got}; expected {expected}, clip {clip}"


def _norm(run: Run, context: Context, table: Tensor) -> float:
    weights = table.clone().requires_grad_()
    window = run.window(context.epoch, (context.step - 1) % run.script.steps_per_epoch + 1)
    sums = [run.nats(batch, weights) for batch in window]
    count = sum(each for _, each in sums)
    if count == 0:
        return 0.0
    (torch.stack([nats for nats, _ in sums]).sum() / count).backward()
    return float(weights.grad.norm())


def _assert_clipped(context: Context, norm: float, gradient: Tensor | None, clip: float | None) -> None:
    expected = norm if clip is None else norm * min(1.0, clip / (norm + 1e-6))
    got = 0.0 if gradient is None else float(gradient.norm())
    assert math.isclose(got, expected, rel_tol=SAME, abs_tol=SAME), (
        f"on_pre_optimizer_step of step {context.step} sees a gradient of norm {got}; expected {expected}"
    )


@given(drawn=runs())
def falsify_weights_change_between_the_hooks(subject: Any, drawn: Any) -> None:
    run = Run(subject, *drawn)
    for (before, old, _), (after, new, _) in zip(run.seen, run.seen[1:], strict=False):
        changed = not torch.equal(old, new)
        may = (before.hook, after.hook) == ("on_pre_optimizer_step", "on_optimizer_step")
        assert may or not changed, f"the weights change between {before.hook} and {after.hook} of step {after.step}"
        assert changed or not may, f"the optimizer left the weights of step {after.step} as they were"


@given(drawn=runs())
def falsify_evaluations_and_checkpoints_are_reported(subject: Any, drawn: Any) -> None:
    run = Run(subject, *drawn)
    evaluate = run.script.every[1]
    for context, _, _ in run.seen:
        evaluated = evaluate > 0 and context.step % evaluate == 0 and context.hook in WITHIN[1:]
        saved = run.script.is_saved(context.step) and context.hook in WITHIN[2:]
        expected = ({"hard_loss": 2.0} if evaluated else {}, str(checkpoint(context.step)) if saved else None)
        got = dict(context.validation_metrics), context.checkpoint_path
        assert got == expected, f"{context.hook} of step {context.step}: {got}; expected {expected}"


@given(drawn=runs(), tick=st.sampled_from([0.0, 0.5]))
def falsify_totals_are_reported(subject: Any, drawn: Any, tick: float) -> None:
    run = Run(subject, *drawn, tick=tick)
    calls, per_epoch = lifecycle(run.script).calls, run.script.steps_per_epoch
    for (context, _, _), call in zip(run.seen, calls, strict=True):
        batches = [
            batch
            for step in range(1, call.taken + 1)
            for batch in run.window((step - 1) // per_epoch + 1, (step - 1) % per_epoch + 1)
        ]
        tokens = sum(int((batch.labels[0, 1:] >= 0).sum()) for batch in batches)
        sequences = sum(int((batch.labels[0, 1:] >= 0).any()) for batch in batches)
        got = context.tokens, context.sequences
        assert got == (tokens, sequences), f"{call}: {got} tokens and sequences; expected {(tokens, sequences)}"
        rates = context.steps_per_s, context.tokens_per_s
        wanted = (context.step / context.elapsed_s, tokens / context.elapsed_s) if tick else (None, None)
        assert rates == wanted, f"{call}: steps and tokens per second are {rates}; expected {wanted}"
        memory = context.memory
        assert type(memory) is int and 2**20 < memory < 2**40, f"{call}: the process holds {memory} bytes"
