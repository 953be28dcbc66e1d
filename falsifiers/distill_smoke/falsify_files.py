"""Attacks on the claims that a smoke run changes no file, and that `max_steps` is not a smoke run.

The subject is that of `falsify_smoke`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, distilled, finished, place, planned
from falsifiers.distill_smoke.falsify_smoke import COUNTS, WRITTEN

OUTPUTS = st.sampled_from(["absent", "empty", "below nothing", "forced"])


def _output(where: Place, state: str) -> dict[str, Any]:
    """Create an output directory in this state and return its settings."""
    out = where.out / "deep" / "deeper" if state == "below nothing" else where.out
    if state in ("empty", "forced"):
        out.mkdir()
    if state == "forced":
        (out / "model.safetensors").write_bytes(b"an older model")
    return {"out": out, "force": state == "forced"}


@given(n=COUNTS, output=OUTPUTS, cached=st.booleans())
@example(n=2, output="absent", cached=False)
@example(n=2, output="empty", cached=True)
@example(n=2, output="forced", cached=True)
def falsify_no_file_is_changed(subject: Any, n: int, output: str, cached: bool) -> None:
    """Text, output, cache, home and working directory keep every path, content and modification time."""
    with place() as where:
        if cached:
            finished(subject, where, out=where.tree / "earlier", epochs=1)
        settings = _output(where, output)
        before = where.listing()
        finished(subject, where, smoke=n, traced=False, **settings)
        changed = changes(before, where.listing())
    assert not changed, f"with --out {output}, a smoke run changed {changed}"


@given(n=COUNTS, what=st.sampled_from(["a file in it", "a hidden file in it", "is a file itself"]))
def falsify_full_output_directory_is_refused(subject: Any, n: int, what: str) -> None:
    """A smoke run refuses what the full run would refuse: the same error, nothing trained."""
    with place() as where:
        if what == "is a file itself":
            where.out.write_text("taken")
        else:
            where.out.mkdir()
            (where.out / (".a" if "hidden" in what else "a")).touch()
        before = where.listing()
        smoked, long = distilled(subject, where, smoke=n), distilled(subject, where)
        changed = changes(before, where.listing())
    assert long.error is not None, f"a long run into an output that {what} isn't refused"
    assert repr(smoked.error) == repr(long.error), f"--out: {what}: {smoked.error!r}, the long run {long.error!r}"
    assert smoked.lines == [], f"refused, but not before {smoked.lines}"
    assert not changed, f"a refused run changed {changed}"


@given(n=COUNTS, epochs=st.integers(1, 3))
def falsify_max_steps_ends_and_saves(subject: Any, n: int, epochs: int) -> None:
    """With `max_steps`, min(N, planned) steps run, the model is written, and no line mentions smoke mode."""
    with place() as where:
        ran = finished(subject, where, max_steps=n, epochs=epochs)
        written = sorted(path.name for path in where.out.iterdir()) if where.out.exists() else []
        output = ran.result.output
    expected = min(n, planned(epochs=epochs))
    steps = ran.result.train.steps_completed
    assert steps == len(ran.losses) == expected, f"{steps} steps ran with max_steps = {n}; expected {expected}"
    assert written == WRITTEN, f"max_steps = {n} left {written}; expected {WRITTEN}"
    assert isinstance(output, Path), f"the result names the output {output}"
    assert not any("smoke" in line.lower() for line in ran.lines), f"speaks of a smoke run: {ran.lines}"
