"""Attacks on what a run costs for its users: a progress line needs nothing from the device.

The subject is that of `falsifiers.callbacks.real_run`.
"""

from __future__ import annotations

import io
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.callbacks.lifecycle import Script
from falsifiers.callbacks.real_run import parts, run
from reference_trainer.training.lines import Lines
from reference_trainer.training.progress import ProgressCallback


class Operations(TorchDispatchMode):
    """Record the operations that torch dispatches; reading a number from a device is one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def _operations(subject: Any, device: str, callbacks: list[Any], log_every: int) -> list[str]:
    """Return the operations of a run of six steps, in order."""
    given = parts(device)
    with Operations() as operations:
        run(subject, Script(2, 3, None, ()), callbacks, given, log_every)
    return operations.seen


def falsify_progress_adds_no_torch_operation(subject: Any, device: str) -> None:
    for every in (0, 1, 4):
        plain = _operations(subject, device, [], every)
        assert any("softmax" in name for name in plain), f"no step was recorded: {sorted(set(plain))}"
        seen = _operations(subject, device, [ProgressCallback(every, lines=Lines(io.StringIO()))], every)
        more = {name: seen.count(name) - plain.count(name) for name in {*seen, *plain}}
        more = {name: count for name, count in more.items() if count}
        assert seen == plain, f"with a ProgressCallback({every}) the operations differ in number: {more}"
