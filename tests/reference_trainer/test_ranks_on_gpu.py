"""The flags of a step on a GPU, which ranks read without a wait for what follows them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from falsifiers.support.fake_cuda import install
from reference_trainer.plan.schedule import Action
from reference_trainer.ranks.parallel import Agreement


class Copies(TorchFunctionMode):
    """Note copies from the GPU: one to pinned memory does not wait, another waits for all that precedes it.

    It is also the stream, whose events are noted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.pinned: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        is_pinned = options.pop("pin_memory", False)
        result = func(*args, **options)
        if is_pinned:
            self.pinned.append(result)
        if func is Tensor.copy_ or (func is Tensor.to and args[1] == "cpu"):
            waits = not (options.get("non_blocking") and any(tensor is args[0] for tensor in self.pinned))
            self.seen.append("copied and waited" if waits else "copied")
        return result

    def record_event(self) -> "Copies":
        self.seen.append("recorded")
        return self

    def synchronize(self) -> None:
        self.seen.append("waited")


class TwoRanks:
    world_size = 2


def test_flags_are_copied_to_pinned_memory_and_awaited_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with install(), Copies() as copies:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda *device: copies)
        agreement = Agreement(TwoRanks(), lambda: False)  # type: ignore[arg-type]
        flags = torch.tensor([0, 0, 1, 0, 0, 0], device="cuda")
        assert not agreement.receive(flags), "there are no flags of the step before"
        assert copies.seen == ["copied", "recorded"]
        assert agreement.receive(flags) and agreement.actions is Action.STOP
        assert copies.seen == ["copied", "recorded", "copied", "recorded", "waited"]
