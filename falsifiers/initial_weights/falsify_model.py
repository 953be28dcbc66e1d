"""Attacks on runs that begin with a model. The subject is `pipeline.distill`."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.rank_runs.launched import lines
from falsifiers.support.small_runs import found, refused, run, small

STEPS = 2
"""Steps of the run whose model is read."""


def _first(subject: Any, directory: Path, seed: int = 0) -> Path:
    run(subject, small(directory, out=directory / "first", seed=seed, max_steps=STEPS, save_every=STEPS))
    return directory / "first"


@given(seed=st.integers(0, 9), exported=st.booleans())
def falsify_model_begins_a_run_like_its_last_checkpoint(subject: Any, seed: int, exported: bool) -> None:
    """Metrics and weights equal those of the run that begins with the last checkpoint; the model is recorded.

    `exported`: the model is the student of that checkpoint, exported, not the one that the run has written.
    """
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        model = first = _first(subject, directory, seed)
        if exported:
            model = directory / "model"
            export_checkpoint(first, STEPS, model)
        for out, source in (("ours", model), ("theirs", first / "checkpoints" / f"student-step{STEPS}")):
            run(subject, small(directory, out=directory / out, seed=7, log_every=1, init_from=source))
        when = f"seed {seed}, exported {exported}"
        same = lines(directory, "ours") == lines(directory, "theirs")
        assert same, f"{when}: the metrics are not those of a checkpoint"
        ends = [(directory / out / "model.safetensors").read_bytes() for out in ("ours", "theirs")]
        assert ends[0] == ends[1], f"{when}: the weights at the end are not those of a checkpoint"
        seen = json.loads((directory / "ours" / "manifest.json").read_bytes())["initial_weights"]
        digest = hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()
        expected = {"path": str(model), "step": STEPS, "sha256": digest}
        assert seen == expected, f"{when}: the manifest records {seen}; expected {expected}"


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _stepless(model: Path) -> None:
    tree = json.loads((model / "manifest.json").read_text())
    del tree["result"]
    (model / "manifest.json").write_text(json.dumps(tree))


CASES: dict[str, tuple[Callable[[Path], object] | None, dict[str, Any], str]] = {
    "a flipped bit": (lambda model: _flipped(model / "model.safetensors"), {}, "does not match the files beside it"),
    "no manifest": (lambda model: (model / "manifest.json").unlink(), {}, "cannot verify"),
    "no step": (_stepless, {}, "names no step"),
    "another width": (None, {"width": 32}, "does not fit the student of this run"),
    "another dtype": (None, {"dtype": "float64"}, "does not fit the student of this run"),
}


@given(kind=st.sampled_from(list(CASES)))
def falsify_other_models_are_refused(subject: Any, kind: str) -> None:
    """An error with the path, and no file is changed."""
    damage, others, words = CASES[kind]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name).resolve()
        model = _first(subject, directory)
        if damage is not None:
            damage(model)
        before = found(directory)
        said = refused(subject, small(directory, out=directory / "out", init_from=model, **others))
        assert words in said and str(model) in said, f"{kind}: the run says {said!r}; expected {words!r}"
        changed = sorted(set(before.items()) ^ set(found(directory).items()))
        assert not changed, f"{kind}: the run was refused, and changed {changed}"
