"""Attacks on the agreement of smoke runs with full runs, and on full runs, which show nothing of smoke mode.

The subject is that of `falsify_steps`; where stated, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, finished, invoked, place, planned, read_trace
from falsifiers.distill_smoke.falsify_steps import COUNTS

WRITTEN = ["config.json", "manifest.json", "model.safetensors"]


def _run_unset(subject: Any, where: Place, device: str, name: str, **variables: str) -> list[float]:
    """Return the losses of a full run."""
    trace, out = where.root / f"{name}.jsonl", where.tree / name
    flags = where.flags(epochs=2, trace=trace, out=out, device=device)
    ended = invoked(subject, where, *flags, **variables)
    said = f"with {variables or 'smoke unset'}: exit {ended.exit_code}, {ended.output}"
    assert ended.exit_code == 0, said
    assert "smoke" not in ended.output.lower(), f"a run that is not a smoke run mentions smoke mode {said}"
    assert sorted(path.name for path in out.iterdir()) == WRITTEN, f"{sorted(out.iterdir())} {said}"
    losses = [event["loss"] for event in read_trace(trace) if event["event"] == "on_step_end"]
    assert len(losses) == planned(epochs=2), f"{len(losses)} of {planned(epochs=2)} steps ran {said}"
    return losses


def falsify_unset_limit_gives_a_full_run(subject: Any, device: str) -> None:
    """The subject is the command line."""
    with place() as where:
        usual = _run_unset(subject, where, device, "unset")
        losses = _run_unset(subject, where, device, "empty", APR_DISTILL_MAX_STEPS="", REFERENCE_TRAINER_SMOKE="")
    assert losses == usual, f"with empty variables the losses are {losses}; expected {usual}"


@given(n=COUNTS, seed=st.integers(0, 3), warmup=st.sampled_from([50, 0, 5]))
@example(n=6, seed=0, warmup=2)
def falsify_losses_equal_the_first_of_the_full_run(subject: Any, device: str, n: int, seed: int, warmup: int) -> None:
    with place() as where:
        same = {"device": device, "seed": seed, "warmup": warmup, "epochs": 4, "teacher_steps": n}
        fresh = finished(subject, where, smoke=n, **same).losses
        long = finished(subject, where, **same).losses
        kept = finished(subject, where, smoke=n, out=where.tree / "other", **same).losses
    for name, losses in (("its own teacher", fresh), ("the cached teacher", kept)):
        assert losses == long[:n], f"with {name} the {n} losses are {losses}; those of the full run are {long[:n]}"


@given(n=st.integers(1, 4), teacher_steps=st.integers(1, 5))
@example(n=2, teacher_steps=4)
def falsify_teacher_training_is_limited_and_not_cached(subject: Any, device: str, n: int, teacher_steps: int) -> None:
    steps = min(n, teacher_steps)
    with place() as where:
        before = where.listing()
        smoked = finished(subject, where, device=device, smoke=n, teacher_steps=teacher_steps)
        left = changes(before, where.listing())
        long = finished(subject, where, device=device, teacher_steps=steps, epochs=1)
    weights, expected = smoked.result.teacher.state_dict(), long.result.teacher.state_dict()
    other = [name for name, value in weights.items() if not torch.equal(value, expected[name])]
    assert not other, f"with N = {n} of {teacher_steps}, {other} of the teacher are not those after {steps} steps"
    assert not left, f"a smoke run changed {left}; expected that its teacher is not cached"
