"""Attacks on the claim that a smoke run changes no file. The subject is that of `falsify_steps`."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import changes, distilled, finished, place
from falsifiers.distill_smoke.falsify_steps import COUNTS


@given(n=COUNTS, older=st.booleans(), cached=st.booleans())
@example(n=2, older=False, cached=False)
@example(n=2, older=True, cached=True)
def falsify_no_file_is_changed(subject: Any, device: str, n: int, older: bool, cached: bool) -> None:
    """older: an older model is in the output, and force is given."""
    with place() as where:
        if cached:
            finished(subject, where, device=device, out=where.tree / "earlier", epochs=1)
        if older:
            where.out.mkdir()
            (where.out / "model.safetensors").write_bytes(b"an older model")
        before = where.listing()
        finished(subject, where, device=device, smoke=n, traced=False, force=older)
        changed = changes(before, where.listing())
    assert not changed, f"an older model {older}, a cached teacher {cached}: a smoke run changed {changed}"


@given(n=COUNTS, is_file=st.booleans())
def falsify_full_output_directory_is_refused(subject: Any, device: str, n: int, is_file: bool) -> None:
    with place() as where:
        if is_file:
            where.out.write_text("taken")
        else:
            where.out.mkdir()
            (where.out / "a").touch()
        before = where.listing()
        smoked, long = (distilled(subject, where, device=device, smoke=smoke) for smoke in (n, None))
        changed = changes(before, where.listing())
    assert long.error is not None, "a full run into an output that is taken is accepted; expected a refusal"
    assert repr(smoked.error) == repr(long.error), f"a smoke run: {smoked.error!r}; the full run: {long.error!r}"
    assert smoked.lines == [] and not changed, f"before the refusal: lines {smoked.lines}, changed files {changed}"
