"""Attacks on limits, and on smoke runs beside full ones. Subjects: `plan.schedule`, `cli` and `pipeline.distill`."""

import itertools
import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, finished, invoked, place, planned, read_trace
from falsifiers.distill_smoke.falsify_steps import COUNTS
from falsifiers.support import oracles
from reference_trainer.storage.checkpoints import saved_steps

WRITTEN = ["config.json", "manifest.json", "model.safetensors"]


def _run_unset(subject: Any, where: Place, device: str, name: str, **variables: str) -> list[float]:
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


def assert_losses(what: str, device: str, seen: list[float], expected: list[float]) -> None:
    """Assert that two runs have the same losses; on a GPU within 1 %, as it adds gradients in no fixed order."""
    allowed = 0.0 if device == "cpu" else 0.01
    same = len(seen) == len(expected) and all(
        math.isclose(x, y, rel_tol=allowed, abs_tol=0.0) for x, y in zip(seen, expected, strict=True)
    )
    assert same, f"{what} the losses are {seen}; those of the other run are {expected}; allowed is {allowed:.0%}"


def falsify_unset_limit_gives_a_full_run(subject: Any, device: str) -> None:
    with place() as where:
        usual = _run_unset(subject, where, device, "unset")
        losses = _run_unset(subject, where, device, "empty", APR_DISTILL_MAX_STEPS="", REFERENCE_TRAINER_SMOKE="")
    assert_losses("with empty variables", device, losses, usual)


@given(n=COUNTS, seed=st.integers(0, 3), warmup=st.sampled_from([50, 0, 5]))
@example(n=6, seed=0, warmup=2)
def falsify_losses_equal_the_first_of_the_full_run(subject: Any, device: str, n: int, seed: int, warmup: int) -> None:
    with place() as where:
        same = {"device": device, "seed": seed, "warmup": warmup, "epochs": 4, "teacher_steps": n}
        fresh = finished(subject, where, smoke=n, **same).losses
        long = finished(subject, where, **same).losses
        kept = finished(subject, where, smoke=n, out=where.tree / "other", **same).losses
    for name, losses in (("its own teacher", fresh), ("the cached teacher", kept)):
        assert_losses(f"with {name}", device, losses, long[:n])


def falsify_schedules_need_positive_integers(subject: Any) -> None:
    usual = {"epochs": 2, "steps_per_epoch": 3, "limit": 4}
    for name, value in itertools.product(usual, (0, -1, 2.0, True, "2", None)):
        if (name, value) != ("limit", None):
            oracles.assert_refused(f"{name} = {value!r}", lambda k={**usual, name: value}: subject.Schedule(**k), name)


@given(n=st.integers(1, 12), epochs=st.integers(1, 3))
def falsify_max_steps_ends_and_saves(subject: Any, device: str, n: int, epochs: int) -> None:
    with place() as where:
        ran = finished(subject, where, device=device, max_steps=n, epochs=epochs, save_every=5000)
        written = sorted(path.name for path in where.out.iterdir()) if where.out.exists() else []
        saved = saved_steps(where.out / "checkpoints", "student")
        output = ran.result.output
    expected = min(n, planned(epochs=epochs))
    steps = ran.result.train.steps_completed
    assert steps == len(ran.losses) == expected, f"{steps} steps ran with max_steps = {n}; expected {expected}"
    wanted = sorted([*WRITTEN, "checkpoints"])
    assert written == wanted, f"max_steps = {n} left {written}; expected {wanted}"
    assert saved == [expected], f"max_steps = {n} left checkpoints of the steps {saved}; expected {[expected]}"
    assert output == where.out, f"the result reports the output {output}; expected {where.out}"
    assert not any("smoke" in line.lower() for line in ran.lines), f"lines mention smoke mode: {ran.lines}"
