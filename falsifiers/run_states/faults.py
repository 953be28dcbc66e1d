"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any


def due_steps_only(original: Any, *given: Any, save: Any = None, **rest: Any) -> Any:
    """Hand over the steps whose checkpoint is due, and no other."""
    return original(*given, save=lambda run: save(run) if run.due else None, **rest)


def request_hidden_by_failure(
    original: Any, *given: Any, batch_at: Any = None, stop_requested: Any = lambda: False, **rest: Any
) -> Any:
    """Forget a request to stop once data have failed."""
    failed = False

    def fetched(*place: int) -> Any:
        nonlocal failed
        failed = True
        batch = batch_at(*place)
        failed = False
        return batch

    return original(*given, batch_at=fetched, stop_requested=lambda: not failed and stop_requested(), **rest)
