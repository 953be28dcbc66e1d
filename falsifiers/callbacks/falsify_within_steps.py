"""Attacks on contexts of the hooks within a step, by a table of logits with a closed-form gradient, and on memory."""

import math
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import Call, Script, lifecycle
from falsifiers.callbacks.real_run import checkpoint, module_student, parts, recording_callbacks, run
from falsifiers.support.documents import nats
from falsifiers.support.steps import embedding
from reference_trainer import Batch, Context, UpdateOptions
from reference_trainer.distillation.providers import FixtureTeacher
from reference_trainer.training.loop import new_optimizer

SAME = 1e-9
UPDATING = ("on_pre_optimizer_step", "on_optimizer_step")
WITHIN = ("on_log", "on_evaluate", "on_save", "on_step_end")
TEACHER = torch.tensor([[2.0, 0, -1], [0, 4, 0], [1, -2, 0]], dtype=torch.float64)
MIB = 1 << 20


@st.composite
def runs(draw: st.DrawFn) -> tuple[Script, list[tuple[tuple[int, int], ...]], float | None]:
    """Draw a schedule, micro-batches of (token, label) pairs, including pairs that score nothing, and a clip."""
    accumulation = draw(st.integers(1, 3))
    every = draw(st.tuples(*[st.integers(0, 3)] * 3))
    left, epochs, steps = draw(st.integers(1, accumulation)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    script = Script(epochs, steps, None, ((),), accumulation, left, every)
    pair = st.tuples(st.integers(0, 2), st.sampled_from([-100, 0, 1, 2]))
    batches = draw(st.lists(st.lists(pair, min_size=2, max_size=4).map(tuple), min_size=1, max_size=5))
    return script, batches, draw(st.none() | st.sampled_from([1e-3, 0.5, 1e3]))


class Run:
    """A real run of these micro-batches, with the contexts of every event and the student's table at that time.

    tick: seconds from one reading of its clock to the next.
    """

    def __init__(self, subject: Any, script: Script, batches: Any, clip: float | None, tick: float = 0.5) -> None:
        self.script, self.batches, self.clip, self.tick = script, batches, clip, tick
        self.events: list[tuple[Context, Tensor, Tensor | None]] = []
        module, now = embedding(TEACHER.flip(0, 1)), [0.0]

        def clock() -> float:
            now[0] += tick
            return now[0]

        def act(callback: int, event: str, context: Context) -> None:
            gradient = None if module.weight.grad is None else module.weight.grad.clone()
            self.events.append((context.snapshot(), module.weight.detach().clone(), gradient))
            for metrics in (context.metrics, context.validation_metrics):
                if isinstance(metrics, dict):
                    metrics.clear()  # what a callback does with its context changes nothing else

        arguments = parts() | {
            "teacher": FixtureTeacher(TEACHER),
            "student": module_student(module),
            "batch_at": self.batch,
            "optimizer": new_optimizer(module.parameters(), 0.1),
            "learning_rate": lambda step: 0.1 / step,
            "clock": clock,
            "options": UpdateOptions(clip=clip),
        }
        run(subject, script, recording_callbacks(1, act), arguments)

    def batch(self, epoch: int, k: int) -> Batch:
        pairs = self.batches[((epoch - 1) * self.script.micro_batches + k - 1) % len(self.batches)]
        tokens, labels = torch.tensor(pairs).T
        return Batch(tokens=tokens[None], labels=labels[None])

    def window(self, step: int) -> list[Batch]:
        """Return the micro-batches of a step, counted from 1 over all epochs."""
        epoch, place = divmod(step - 1, self.script.steps_per_epoch)
        first = place * self.script.accumulation
        last = min(first + self.script.accumulation, self.script.micro_batches)
        return [self.batch(epoch + 1, k) for k in range(first + 1, last + 1)]

    def expected(self, context: Context, call: Call, table: Tensor, norm: float | None) -> dict[str, Any]:
        """Return the values of a context; `norm` is the gradient's, wherever it is reported."""
        script, step = self.script, context.step
        logged, evaluated = (every > 0 and step % every == 0 for every in script.every[:2])
        batch: dict[str, Any] = {}
        if context.hook == "on_after_backward":
            summed, count = _nats(self.window(step)[context.micro_batch - 1], table)
            batch = {"tokens": count} | ({"loss": float(summed) / count} if count else {})
        scored = [batch.labels[0, 1:] >= 0 for k in range(1, call.taken + 1) for batch in self.window(k)]
        tokens, seconds = sum(int(row.sum()) for row in scored), context.elapsed_s
        return {
            "batch_metrics": batch,
            "gradient_norm": norm if context.hook in UPDATING + WITHIN and (logged or self.clip is not None) else None,
            "validation_metrics": {"hard_loss": 2.0} if evaluated and context.hook in WITHIN[1:] else {},
            "checkpoint_path": str(checkpoint(step)) if script.is_saved(step) and context.hook in WITHIN[2:] else None,
            "tokens": tokens,
            "sequences": sum(int(row.any()) for row in scored),
            "steps_per_s": step / seconds if self.tick else None,
            "tokens_per_s": tokens / seconds if self.tick else None,
            "epochs": script.epochs,
            "steps_per_epoch": script.steps_per_epoch,
            "total_steps": script.total,
        } | ({"learning_rate": 0.1 / step} if context.hook == "on_step_end" else {})


def _nats(batch: Batch, table: Tensor) -> tuple[Tensor, int]:
    """Return the loss of a micro-batch under a table, summed over its scored tokens, and their count."""
    tokens, labels = batch.tokens[0, :-1], batch.labels[0, 1:]
    tokens, labels = tokens[labels >= 0], labels[labels >= 0]
    return nats(table[tokens], TEACHER[tokens], labels), len(labels)


def _norm(window: list[Batch], table: Tensor) -> float:
    """Return the norm of the gradient of a window's mean loss by the table, by autograd; 0 if nothing is scored."""
    weights = table.clone().requires_grad_()
    sums = [_nats(batch, weights) for batch in window]
    count = sum(scored for _, scored in sums)
    if count == 0:
        return 0.0
    (gradient,) = torch.autograd.grad(torch.stack([total for total, _ in sums]).sum() / count, weights)
    return float(gradient.norm())


def _is_close(seen: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return isinstance(seen, float) and math.isclose(seen, expected, rel_tol=SAME, abs_tol=SAME)
    if isinstance(expected, dict):
        return seen.keys() == expected.keys() and all(_is_close(seen[name], expected[name]) for name in expected)
    return type(seen) is type(expected) and bool(seen == expected)


@given(drawn=runs(), tick=st.sampled_from([0.5, 0.0]))
def falsify_values_of_every_hook(subject: Any, drawn: Any, tick: float) -> None:
    run, norm = Run(subject, *drawn, tick=tick), None
    for (context, table, gradient), call in zip(run.events, lifecycle(run.script).calls, strict=True):
        if context.hook == "on_pre_optimizer_step":
            norm = _norm(run.window(context.step), table)
            # As torch.nn.utils.clip_grad_norm_ scales, with its 1e-6 in the divisor.
            clipped = norm if run.clip is None else norm * min(1.0, run.clip / (norm + 1e-6))
            seen = 0.0 if gradient is None else float(gradient.norm())
            assert _is_close(seen, clipped), f"{call} sees a gradient of norm {seen}; expected {clipped}"
        for name, value in run.expected(context, call, table, norm).items():
            seen = getattr(context, name)
            seen = dict(seen) if name.endswith("metrics") else seen
            assert _is_close(seen, value), f"{call}: {name} is {seen!r}; expected {value!r}"
        assert type(context.memory) is int and context.memory > MIB, f"{call}: the process holds {context.memory} bytes"
    for (before, old, _), (after, new, _) in zip(run.events, run.events[1:], strict=False):
        changed = not torch.equal(old, new)
        assert changed is ((before.hook, after.hook) == UPDATING), (
            f"weights change between {before.hook} and {after.hook} of step {after.step}: {changed}"
        )


@given(mib=st.integers(32, 128), on_gpus=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
def falsify_memory_is_what_is_held(subject: Any, mib: int, on_gpus: tuple[int, int]) -> None:
    cpu = torch.device("cpu")
    before = subject.memory_bytes(cpu)
    content = bytearray(b"1") * (mib * MIB)
    during = subject.memory_bytes(cpu)
    del content
    after = subject.memory_bytes(cpu)
    grown = min(during - before, during - after)
    assert grown >= 0.9 * mib * MIB, f"{mib} MiB are held, then not: {before}, {during}, {after} bytes"
    with mock.patch.object(torch.cuda, "memory_allocated", lambda device=None: on_gpus[torch.device(device).index]):
        seen = [subject.memory_bytes(torch.device("cuda", index)) for index in range(2)]
    assert seen == [*on_gpus], f"{seen} bytes of two GPUs are reported; PyTorch has allocated {on_gpus}"
