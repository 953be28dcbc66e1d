"""Calls of `distill` from a program, and the last lines of a smoke run that diverges."""

import io
import time
from contextlib import redirect_stdout
from pathlib import Path

from falsifiers.distill_smoke.cases import invoked, place
from falsifiers.support.run_lines import SMOKE_END, SMOKE_START
from falsifiers.support.small_runs import small
from reference_trainer import Callback, Context, Lines, cli
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill


def test_lines_are_printed_to_standard_output_by_default(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 10)
    tiny = Settings(
        data=text,
        out=tmp_path / "out",
        teacher_cache=tmp_path / "cache",
        teacher_layers=1,
        teacher_width=16,
        layers=1,
        width=16,
        length=16,
        smoke=2,
        device="cpu",
    )
    said = io.StringIO()
    with redirect_stdout(said):
        distill(tiny)
    lines = said.getvalue().splitlines()
    assert (lines[0], lines[-1]) == (SMOKE_START.format(steps=2), SMOKE_END)
    assert sum(line.startswith("[SMOKE] ") for line in lines) == 2


class Slow(Callback):
    def on_step_end(self, context: Context) -> None:
        time.sleep(0.1)


def test_run_is_timed_by_the_clock_of_the_machine(tmp_path: Path) -> None:
    settings = small(tmp_path, out=tmp_path / "out")
    began = time.monotonic()
    result = distill(settings, callbacks=[Slow()], lines=Lines(io.StringIO()))
    assert 0.1 * result.train.steps_completed <= result.train.elapsed_s <= time.monotonic() - began


def test_diverged_smoke_run_ends_with_cause_and_verdict() -> None:
    with place() as where:
        ended = invoked(cli, where, *where.flags(smoke=6, lr=1e6, warmup=0, teacher_steps=1))
    cause, verdict, end = [line for line in ended.output.splitlines() if line.startswith("smoke")][-3:]
    assert cause.startswith("smoke check: NOT OK: losses are not finite: invalid ")
    assert (verdict, end) == ("smoke check: no-go", SMOKE_END)
