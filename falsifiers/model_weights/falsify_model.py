"""Attacks on the models that are read from files, and on files that are no models."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.support.oracles import assert_refused
from falsifiers.support.runs import assert_same_lines, file_digests, flip, reconfigure, refused, run, scratch, small
from reference_trainer.models.decoder import Decoder, DecoderConfig

STEPS = 2
"""Steps of the run whose model is read."""


def _first(subject: Any, directory: Path, seed: int = 0) -> Path:
    run(subject, small(directory, out=directory / "first", seed=seed, max_steps=STEPS, save_every=STEPS))
    return directory / "first"


@given(seed=st.integers(0, 9), exported=st.booleans())
def falsify_model_begins_a_run_like_its_last_checkpoint(subject: Any, seed: int, exported: bool) -> None:
    """exported: the model is the student of that checkpoint, exported, not the one that the run has written."""
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint

    with scratch() as directory:
        model = first = _first(subject, directory, seed)
        if exported:
            model = directory / "model"
            export_checkpoint(first, STEPS, model)
        for out, source in (("ours", model), ("theirs", first / "checkpoints" / f"student-step{STEPS}")):
            run(subject, small(directory, out=directory / out, seed=7, log_every=1, init_from=source))
        when = f"seed {seed}, exported {exported}"
        assert_same_lines(f"{when}, compared with a checkpoint", directory, "ours", "theirs")
        ends = [(directory / out / "model.safetensors").read_bytes() for out in ("ours", "theirs")]
        assert ends[0] == ends[1], f"{when}: the weights at the end are not those of a checkpoint"
        seen = json.loads((directory / "ours" / "manifest.json").read_bytes())["initial_weights"]
        digest = hashlib.sha256((model / "manifest.json").read_bytes()).hexdigest()
        expected = {"path": str(model), "step": STEPS, "sha256": digest}
        assert seen == expected, f"{when}: the manifest records {seen}; expected {expected}"


CASES: dict[str, tuple[Callable[[Path], object] | None, dict[str, Any], str]] = {
    "a flipped bit": (lambda model: flip(model / "model.safetensors"), {}, "does not match the files beside it"),
    "no manifest": (lambda model: (model / "manifest.json").unlink(), {}, "cannot verify"),
    "no step": (lambda model: reconfigure(model / "manifest.json", result={}), {}, "names no step"),
    "another width": (None, {"width": 32}, "does not fit the student of this run"),
    "another dtype": (None, {"dtype": "float64"}, "does not fit the student of this run"),
}


@given(kind=st.sampled_from(list(CASES)))
def falsify_other_models_are_refused(subject: Any, kind: str) -> None:
    damage, others, words = CASES[kind]
    with scratch() as directory:
        model = _first(subject, directory)
        if damage is not None:
            damage(model)
        before = file_digests(directory)
        said = refused(subject, small(directory, out=directory / "out", init_from=model, **others))
        assert words in said and str(model) in said, f"{kind}: the run says {said!r}; expected {words!r}"
        changed = sorted(set(before.items()) ^ set(file_digests(directory).items()))
        assert not changed, f"{kind}: the run was refused, and changed {changed}"


WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _not_finite(path: Path) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = float("nan")
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


UNFIT: dict[str, Callable[[Path], object]] = {
    "no directory": lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()],
    "weights cut in half": lambda d: os.truncate(d / WEIGHTS, (d / WEIGHTS).stat().st_size // 2),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "weights of another shape": lambda d: reconfigure(d / CONFIG, width=32),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "an unknown setting": lambda d: reconfigure(d / CONFIG, experts=8),
    "a configuration that is not an object": lambda d: (d / CONFIG).write_text("[]"),
    "NaN weights": lambda d: _not_finite(d / WEIGHTS),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_model_is_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        directory = root / "model"
        directory.mkdir()
        subject.save_decoder(Decoder(DecoderConfig(vocab_size=8, layers=1, width=16, heads=1)), directory, {})
        assert subject.load_decoder(directory).config.width == 16, "a model that was just written is another one"
        subject.verify_manifest(directory)
        UNFIT[kind](directory)
        assert_refused(f"{kind}, by its manifest", lambda: subject.verify_manifest(directory), str(directory))
        assert_refused(kind, lambda: subject.load_decoder(directory), str(directory))
