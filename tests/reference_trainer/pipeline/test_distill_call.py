"""Calls of `distill` from a program."""

import io
from contextlib import redirect_stdout
from pathlib import Path

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
    assert lines[0].startswith("smoke mode: 2 steps ") and lines[0].endswith("no model will be written")
    assert lines[-1].startswith("smoke mode: export skipped")
    assert sum(line.startswith("[SMOKE] ") for line in lines) == 2
