"""Attacks on the claim that a smoke run changes no file. The subject is that of `falsify_steps`."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, distilled, finished, place
from falsifiers.distill_smoke.falsify_steps import COUNTS

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
def falsify_no_file_is_changed(subject: Any, device: str, n: int, output: str, cached: bool) -> None:
    with place() as where:
        if cached:
            finished(subject, where, device=device, out=where.tree / "earlier", epochs=1)
        settings = _output(where, output)
        before = where.listing()
        finished(subject, where, device=device, smoke=n, traced=False, **settings)
        changed = changes(before, where.listing())
    assert not changed, f"with the output {output}, a smoke run changed {changed}; expected no change"


@given(n=COUNTS, what=st.sampled_from(["a file in it", "a hidden file in it", "is a file itself"]))
def falsify_full_output_directory_is_refused(subject: Any, device: str, n: int, what: str) -> None:
    with place() as where:
        if what == "is a file itself":
            where.out.write_text("taken")
        else:
            where.out.mkdir()
            (where.out / (".a" if "hidden" in what else "a")).touch()
        before = where.listing()
        smoked, long = (distilled(subject, where, device=device, smoke=smoke) for smoke in (n, None))
        changed = changes(before, where.listing())
    assert long.error is not None, f"a full run into an output ({what}) is accepted; expected a refusal"
    assert repr(smoked.error) == repr(long.error), f"output ({what}): {smoked.error!r}; the full run: {long.error!r}"
    assert smoked.lines == [], f"lines were printed before the refusal: {smoked.lines}"
    assert not changed, f"a refused run changed {changed}"
