"""Attacks on what a state counts: losses, totals and sums of the steps that were noted.

The subject is that of `steps`.
"""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.train_state.steps import ANY, EIGHTHS, NAMES, Step, assert_same_state, bits, exact, noted, steps

TAKEN = st.lists(steps(EIGHTHS), max_size=6) | st.lists(steps(ANY), max_size=6)


@given(taken=TAKEN, pauses=st.sets(st.integers(0, 6)))
def falsify_state_of_noted_steps(subject: Any, taken: list[Step], pauses: set[int]) -> None:
    """pauses: the steps before which the state is saved and restored."""
    straight, state = noted(subject.fresh(), taken), subject.fresh()
    for number, step in enumerate(taken):
        if number in pauses:
            text = subject.saved(state)
            json.loads(text, parse_constant=_no_json)
            state = subject.restored(text)
        noted(state, [step])
    assert_same_state(f"saved and restored before the steps {sorted(pauses)} of {len(taken)}", state, straight)
    every = [sums["loss"].sum / sums["loss"].count if sums["loss"].count else None for sums, _ in taken]
    scored = [loss for loss in every if loss is not None]
    expected = {
        "steps": len(taken),
        "sequences": sum(sequences for _, sequences in taken),
        "tokens": sum(sums["loss"].count for sums, _ in taken),
        "initial_loss": next(iter(scored), None),
        "final_loss": next(reversed(scored), None),
        "best_loss": min(filter(math.isfinite, scored), default=None),
        "loss": next(reversed(every), None),
        "finite": all(map(math.isfinite, scored)),
    }
    for name, wanted in expected.items():
        seen = getattr(state, name)
        same = bits(seen) == bits(wanted) or (seen == wanted == 0)
        assert same, f"after steps with the losses {every}: {name} is {seen!r}; expected {wanted!r}"
    if all((each.sum * 8).is_integer() and abs(each.sum) <= 100 for sums, _ in taken for each in sums.values()):
        _assert_sums(state, taken)


def _assert_sums(state: Any, taken: list[Step]) -> None:
    """Assert exact sums, of numbers whose addition does not round."""
    every = {name: [sums[name] for sums, _ in taken if name in sums] for name in NAMES}
    expected = {name: exact(values) for name, values in every.items() if values}
    assert state.interval == expected, f"the interval has {state.interval}; expected {expected}"
    epoch = exact(every["loss"])
    assert state.epoch == epoch, f"the epoch has {state.epoch}; expected {epoch}"


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
