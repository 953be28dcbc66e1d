"""Attacks on contexts of the hooks within a step, by a table of logits with a closed-form gradient, and on memory."""

import math
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks.lifecycle import Script, lifecycle
from falsifiers.callbacks.real_run import checkpoint, module_student, parts, recording_callbacks, run
from falsifiers.support.documents import nats
from falsifiers.support.steps import embedding
from reference_trainer.callbacks.base import Context
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureTeacher
from reference_trainer.training.loop import new_optimizer
from reference_trainer.training.state import UpdateOptions

SAME = 1e-9
WITHIN = ("on_log", "on_evaluate", "on_save", "on_step_end")


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


class Run:
    """A real run of these micro-batches, with the contexts of every event and the student's table at that time.

    tick: seconds from one reading of its clock to the next.
    """

    def __init__(self, subject: Any, script: Script, batches: Any, clip: float | None, tick: float = 0.5) -> None:
        self.script, self.batches, self.clip, self.tick = script, batches, clip, tick
        self.seen: list[tuple[Context, Tensor, Tensor | None]] = []
        self.teacher = torch.tensor([[2.0, 0, -1], [0, 4, 0], [1, -2, 0]], dtype=torch.float64)
        module = embedding(self.teacher.flip(0, 1))
        optimizer = new_optimizer(module.parameters(), 0.1)
        now = [0.0]

        def clock() -> float:
            now[0] += tick
            return now[0]

        def act(callback: int, event: str, context: Context) -> None:
            gradient = module.weight.grad
            self.seen.append(
                (context.snapshot(), module.weight.detach().clone(), None if gradient is None else gradient.clone())
            )
            for each in (context.metrics, context.validation_metrics):
                if isinstance(each, dict):
                    each.clear()  # what a callback does with its context changes nothing else

        given = parts() | {
            "teacher": FixtureTeacher(self.teacher),
            "student": module_student(module),
            "batch_at": lambda epoch, k: self.batch(epoch, k),
            "optimizer": optimizer,
            "learning_rate": lambda step: 0.1 / step,
            "clock": clock,
            "options": UpdateOptions(clip=clip),
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
        return nats(table[tokens], self.teacher[tokens], labels), len(labels)

    def window(self, epoch: int, epoch_step: int) -> list[Batch]:
        first = (epoch_step - 1) * self.script.accumulation
        last = min(first + self.script.accumulation, self.script.micro_batches)
        return [self.batch(epoch, k) for k in range(first + 1, last + 1)]


@given(drawn=runs(), tick=st.sampled_from([0.0, 0.5]))
def falsify_values_of_every_hook(subject: Any, drawn: Any, tick: float) -> None:
    run = Run(subject, *drawn, tick=tick)
    norm: float | None = None
    for (context, table, gradient), call in zip(run.seen, lifecycle(run.script).calls, strict=True):
        if context.hook == "on_pre_optimizer_step":
            norm = _norm(run, context, table)
            _assert_clipped(context, norm, gradient, drawn[2])
        _assert_values(str(call), run, context, {"gradient_norm": norm, **_batch_metrics(run, context, table)})
        _assert_totals(str(call), run, context, call.taken)
    for (before, old, _), (after, new, _) in zip(run.seen, run.seen[1:], strict=False):
        changed, may = not torch.equal(old, new), (before.hook, after.hook) == UPDATING
        assert changed is may, f"weights change between {before.hook} and {after.hook} of step {after.step}: {changed}"


UPDATING = ("on_pre_optimizer_step", "on_optimizer_step")


def _assert_values(where: str, run: Run, context: Context, own: dict[str, Any]) -> None:
    """Assert that metrics of a micro-batch, norm, evaluation and path are there from their hook to the end of the step.

    own: the metrics, and the norm wherever one is reported.
    """
    logged, evaluated = (every > 0 and context.step % every == 0 for every in run.script.every[:2])
    saved = run.script.is_saved(context.step) and context.hook in WITHIN[2:]
    known = context.hook in (*UPDATING, *WITHIN) and (logged or run.clip is not None)
    _assert_close(f"{where}: the metrics of the batch", dict(context.batch_metrics), own["batch_metrics"])
    norms = ({"norm": each} for each in (context.gradient_norm, own["gradient_norm"] if known else None))
    _assert_close(f"{where}: the norm", *norms)
    expected = {"hard_loss": 2.0} if evaluated and context.hook in WITHIN[1:] else {}
    got = dict(context.validation_metrics), context.checkpoint_path
    wanted = expected, str(checkpoint(context.step)) if saved else None
    assert got == wanted, f"{where}: evaluation and checkpoint are {got}; expected {wanted}"


def _assert_close(what: str, seen: dict[str, Any], expected: dict[str, Any]) -> None:
    pairs = [(seen.get(name), expected.get(name)) for name in {**seen, **expected}]
    same = [a is b if a is None or b is None else math.isclose(a, b, rel_tol=SAME, abs_tol=SAME) for a, b in pairs]
    assert all(same) and type(seen.get("tokens", 0)) is int, f"{what}: {seen}; expected {expected}"


def _batch_metrics(run: Run, context: Context, table: Tensor) -> dict[str, Any]:
    if context.hook != "on_after_backward":
        return {"batch_metrics": {}}
    batch = run.window(context.epoch, (context.step - 1) % run.script.steps_per_epoch + 1)[context.micro_batch - 1]
    summed, count = run.nats(batch, table)
    return {"batch_metrics": {"tokens": count} | ({"loss": float(summed) / count} if count else {})}


def _norm(run: Run, context: Context, table: Tensor) -> float:
    weights = table.clone().requires_grad_()
    window = run.window(context.epoch, (context.step - 1) % run.script.steps_per_epoch + 1)
    sums = [run.nats(batch, weights) for batch in window]
    count = sum(each for _, each in sums)
    if count == 0:
        return 0.0
    (torch.stack([each for each, _ in sums]).sum() / count).backward()
    assert weights.grad is not None
    return float(weights.grad.norm())


def _assert_clipped(context: Context, norm: float, gradient: Tensor | None, clip: float | None) -> None:
    expected = norm if clip is None else norm * min(1.0, clip / (norm + 1e-6))
    got = 0.0 if gradient is None else float(gradient.norm())
    assert math.isclose(got, expected, rel_tol=SAME, abs_tol=SAME), (
        f"on_pre_optimizer_step of step {context.step} sees a gradient of norm {got}; expected {expected}"
    )


def _assert_totals(where: str, run: Run, context: Context, taken: int) -> None:
    per_epoch = run.script.steps_per_epoch
    steps = [((step - 1) // per_epoch + 1, (step - 1) % per_epoch + 1) for step in range(1, taken + 1)]
    scored = [batch.labels[0, 1:] >= 0 for step in steps for batch in run.window(*step)]
    tokens, sequences = sum(int(each.sum()) for each in scored), sum(int(each.any()) for each in scored)
    seconds = context.elapsed_s
    rates = (context.step / seconds, tokens / seconds) if run.tick else (None, None)
    got = context.tokens, context.sequences, context.steps_per_s, context.tokens_per_s
    assert got == (tokens, sequences, *rates), f"{where}: totals and rates are {got}; {(tokens, sequences, *rates)}"
    got = context.epochs, context.steps_per_epoch, context.total_steps
    planned = run.script.epochs, per_epoch, run.script.total
    assert got == planned, f"{where}: (epochs, steps per epoch, total) are {got}; expected {planned}"
    rate = context.learning_rate
    assert context.hook != "on_step_end" or rate == 0.1 / context.step, f"{where}: the learning rate is {rate}"
    assert type(context.memory) is int and context.memory > 2**20, f"{where}: the process holds {context.memory} bytes"


MIB = 1 << 20


@given(mib=st.integers(32, 128), on_gpus=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
def falsify_memory_is_what_is_held(subject: Any, mib: int, on_gpus: tuple[int, int]) -> None:
    cpu = torch.device("cpu")
    before = subject.memory_bytes(cpu)
    held = bytearray(b"1") * (mib * MIB)
    during = subject.memory_bytes(cpu)
    del held
    after = subject.memory_bytes(cpu)
    grown, fallen = during - before, during - after
    assert min(grown, fallen) >= 0.9 * mib * MIB, f"{mib} MiB are held, then not: {before}, {during}, {after} bytes"
    with mock.patch.object(torch.cuda, "memory_allocated", lambda device=None: on_gpus[torch.device(device).index]):
        got = [subject.memory_bytes(torch.device("cuda", index)) for index in range(2)]
    assert got == [*on_gpus], f"{got} bytes of two GPUs are reported; PyTorch has allocated {on_gpus}"
