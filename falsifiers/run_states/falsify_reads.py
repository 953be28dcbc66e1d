"""Attacks on when a run waits for its device. The subject is that of `plan`."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.run_states.plan import Plan, plans, same, trained
from falsifiers.run_states.reads import Reads
from falsifiers.support.fake_cuda import fake_cuda

EVENTS = ("on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end")
ONE = ((0, 1), (1, 2))
LONG = Plan(epochs=1, micro_batches=257, accumulation=1, limit=None, log_every=0, batches=(ONE,))
"""A run of 257 steps."""


class Log:
    """The events of a run, and between them its reads; some callbacks ask for a loss."""

    def __init__(self, asked: frozenset[int]) -> None:
        self.entries: list[str] = []
        self.asked = asked

    def act(self, callback: int, event: str, context: Any) -> None:
        if event not in EVENTS:
            return  # the others are called too, and read nothing
        self.entries.append(f"{event} {context.step}")
        if event == "on_step_end" and context.step in self.asked:
            values = context.loss, context.best_loss, context.tokens
            self.entries.append(f"asked for {len(values)} values")


def _expected(plan: Plan, asked: frozenset[int]) -> list[str]:
    """Return events and reads of a run: one read at each logged step, 256th step, end, and step that is asked for."""
    entries, unread = ["on_train_begin 0"], 0
    for step in range(1, plan.steps + 1):
        if step % plan.steps_per_epoch == 1 or plan.steps_per_epoch == 1:
            entries.append(f"on_epoch_begin {step - 1}")
        unread += 1
        if step % 256 == 0 or (plan.log_every and step % plan.log_every == 0):
            entries.append("read")
            unread = 0
        entries.append(f"on_step_end {step}")
        if step in asked:
            entries += ["read"] * bool(unread) + ["asked for 3 values"]
            unread = 0
        if step % plan.steps_per_epoch == 0 or step == plan.steps:
            entries += ["read"] * bool(unread) + [f"on_epoch_end {step}"]
            unread = 0
    return [*entries, f"on_train_end {plan.steps}"]


@given(plan=plans(), asked=st.just(frozenset()) | st.frozensets(st.integers(1, 18)))
@example(plan=LONG, asked=frozenset())
def falsify_reads_are_scheduled(subject: Any, device: str, plan: Plan, asked: frozenset[int]) -> None:
    log = Log(asked)
    with Reads(lambda name: log.entries.append("read")):
        trained(subject, plan, device, recording_callbacks(1, log.act))
    expected = _expected(plan, asked)
    at = next((n for n, pair in enumerate(zip(log.entries, expected, strict=False)) if pair[0] != pair[1]), -1)
    assert log.entries == expected, (
        f"logged every {plan.log_every}, asked at {sorted(asked)}: entry {at + 1} is {log.entries[at]!r} after "
        f"{log.entries[:at][-3:]}; expected {expected[at]!r} ({len(log.entries)} entries, expected {len(expected)})"
    )


@given(plan=plans())
def falsify_batches_may_stay_on_the_host(subject: Any, plan: Plan) -> None:
    with fake_cuda():
        seen = trained(subject, plan, "cuda", [], batches_on="cpu")
    every = [plan.sums(step).mean("loss") for step in range(1, plan.steps + 1)]
    scored = [loss for loss in every if loss is not None] or [None]
    for name, wanted in (("initial_loss", scored[0]), ("final_loss", scored[-1])):
        assert same(getattr(seen, name), wanted), f"{name} is {getattr(seen, name)}; expected {wanted}"
