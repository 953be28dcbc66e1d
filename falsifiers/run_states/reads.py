"""Attacks on the batches that a run reads, and a source of batches that notes each read."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.run_states.plan import Plan, plans, same, trained
from falsifiers.support.fake_cuda import fake_cuda
from reference_trainer.distillation.losses import loss_by_blocks, raise_fault
from reference_trainer.distillation.providers import FixtureStudent, FixtureTeacher

WAITING = {f"__{name}__" for name in ("bool", "int", "float", "index", "contains")}
WAITING |= set("item tolist cpu numpy nonzero argwhere masked_select unique equal allclose".split())
"""Functions and methods of tensors whose result the host waits for."""

CHECKS = {each.__module__ for each in (loss_by_blocks, raise_fault, FixtureStudent, FixtureTeacher)}
"""Modules that check logits, labels and the tokens of tables at once, by reading them: they are not counted."""


class Reads(TorchFunctionMode):
    """Call `note` with the name of each operation that waits, except in `CHECKS`."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        waits = name in WAITING or (name == "to" and _to_the_host(args)) or (name == "__getitem__" and _masks(args))
        if waits and not _checking():
            self._note(name)
        return func(*args, **(kwargs or {}))


def _to_the_host(args: Any) -> bool:
    """Return whether the call copies a tensor of another device to the CPU."""
    named = [torch.device(x) for x in args[1:] if isinstance(x, str | torch.device)]
    named += [x.device for x in args[1:] if isinstance(x, Tensor)]
    return args[0].device.type != "cpu" and any(each.type == "cpu" for each in named)


def _masks(args: Any) -> bool:
    """Return whether a mask selects elements, whose number the host waits for."""
    return any(isinstance(x, Tensor) and x.dtype is torch.bool for x in tree_leaves(args[1]))


def _checking() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in CHECKS:
            return True
        frame = frame.f_back
    return False


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
