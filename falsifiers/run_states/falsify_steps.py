"""Attacks on the steps that are read together. The subject has `Pending`, as `training.pending` does."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from reference_trainer.training.parallel import ONE_PROCESS
from reference_trainer.training.window import WindowSums

NATS = st.dictionaries(st.sampled_from(["loss", "hard_loss", "kl_at_T"]), st.floats(0, 1e6), min_size=1)
COUNTS = st.integers(0, 2**40)
STEPS = st.lists(st.tuples(NATS, COUNTS, COUNTS, st.none() | st.floats(0, 1e6)), min_size=1, max_size=5)
Step = tuple[dict[str, float], int, int, float | None]


@given(steps=STEPS)
def falsify_steps_are_read_in_order(subject: Any, device: str, steps: list[Step]) -> None:
    pending = subject.Pending(ONE_PROCESS)
    for nats, tokens, sequences, norm in steps:
        sums = {name: torch.tensor(each, dtype=torch.float64, device=device) for name, each in nats.items()}
        scored, total, sequenced = torch.tensor([tokens, tokens, sequences], device=device)
        measured = None if norm is None else torch.tensor(norm, dtype=torch.float64, device=device)
        pending.add(WindowSums(sums, scored, total, sequenced, 3, ()), measured)
    seen = [({name: (each.sum, each.count) for name, each in sums.items()}, n) for sums, n in pending.read()]
    expected = [(_expected(nats, tokens, norm), sequences) for nats, tokens, sequences, norm in steps]
    assert repr(seen) == repr(expected), f"the steps read are {seen}; expected {expected}"  # repr: 3 is not 3.0
    assert not pending, "steps are kept after they were read"


def _expected(nats: dict[str, float], tokens: int, norm: float | None) -> dict[str, tuple[float, int]]:
    measured = {} if norm is None else {"gradient_norm": (norm, 1)}
    return {name: (each, tokens) for name, each in nats.items()} | measured
