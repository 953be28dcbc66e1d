"""Wrong runs: the faults that the contract declares. `original` is the replaced function."""

from dataclasses import replace
from typing import Any

from falsifiers.training_loop_held.faults import without


def gradients_not_cleared(original: Any, self: Any, *arguments: Any) -> Any:
    return original(replace(self, optimizer=without(self.optimizer, "zero_grad")), *arguments)
