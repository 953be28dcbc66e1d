"""Attacks on distillations with parts of their own. The subject is `pipeline.distill`, or has its names."""

import io
import json
import time
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from falsifiers.support.scratch import scratch
from falsifiers.support.small_runs import SMALL, found, small, written_model
from reference_trainer import Callback, Lines, SettingError, Settings
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.step import MetricSum

V = 11
"""Tokens of the own models."""


class Ones:
    """Three batches of ones and twos; `asked` are the numbers of those that were asked for."""

    batches = 3

    def __init__(self) -> None:
        self.asked = set[tuple[int, int]]()

    def batch(self, epoch: int, position: int) -> Batch:
        self.asked.add((epoch, position))
        tokens = torch.ones(2, 4, dtype=torch.int64) + torch.arange(4) % 2
        return Batch(tokens=tokens, labels=tokens)


def own_model(seed: int) -> nn.Module:
    """Return a model that is no decoder."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(V, 8), nn.Linear(8, V))


def _save(run: Any, directory: Path, manifest: dict[str, Any]) -> None:
    torch.save(run.student.state_dict(), directory / "own.pt")
    (directory / "manifest.json").write_text(json.dumps(manifest))


PARTS: dict[str, Any] = {
    "make_batches": lambda run: Ones(),
    "make_student": lambda run: own_model(1),
    "make_teacher": lambda run: own_model(2),
    "evaluate": lambda run: {"own": MetricSum(3.0, 2)},
    "save": _save,
}
"""Methods of a distillation of own models, by name."""


def own(subject: Any, *names: str, **others: Any) -> Any:
    """Return a distillation with these parts of its own, and `others`."""
    size = {"vocab_size": V} if "make_student" in names else {}
    return type("Own", (subject.Distillation,), {name: PARTS[name] for name in names} | size | others)


def prepared(kind: Any, settings: Settings) -> tuple[str, str]:
    """Return what a run writes until it is prepared, and the message if it is refused."""
    stream = io.StringIO()
    try:
        with kind(settings, lines=Lines(stream)) as run:
            run.prepare()
    except SettingError as error:
        return stream.getvalue(), str(error)
    return stream.getvalue(), ""


MISSING: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "batches alone": (["make_batches"], {}, "make_teacher"),
    "batches alone, in a smoke run": (["make_batches"], {"smoke": 1}, "make_teacher"),
    "batches alone, and a given teacher": (["make_batches"], {"smoke": 1, "teacher": None}, ""),
    "batches and a teacher": (["make_batches", "make_student", "make_teacher"], {}, "evaluate"),
    "no evaluation, evaluated in a smoke run": (
        ["make_batches", "make_student", "make_teacher", "save"],
        {"smoke": 2, "eval_every": 1},
        "evaluate",
    ),
    "a student alone": (["make_student"], {}, "save"),
    "an own evaluation and teacher": (["make_teacher", "evaluate"], {"best_metric": "eval/own", "eval_every": 1}, ""),
    "no evaluation, in a smoke run": (["make_batches", "make_student", "make_teacher"], {"smoke": 1}, ""),
    "a student alone, in a smoke run": (["make_student"], {"smoke": 1}, ""),
}
"""Own parts, settings, and the part that the run needs too; empty if it needs none."""


def falsify_missing_part_is_refused(subject: Any) -> None:
    for kind, (names, others, needed) in MISSING.items():
        with scratch() as directory:
            given = {"teacher": written_model(directory)} if "teacher" in others else {}
            settings = small(directory, out=directory / "out", **others | given)
            before = found(directory)
            _, said = prepared(own(subject, *names), settings)
            words = ("Own", f"override {needed} too") if needed else ()
            assert bool(said) == bool(needed), f"{kind}: {said or 'the run is accepted'}"
            assert all(word in said for word in words), f"{kind}: {said!r} does not say {words}"
            changed = sorted(set(before.items()) ^ set(found(directory).items())) if needed else []
            assert not changed, f"{kind}: the run was refused, and changed {changed}"


class Noting(Callback):
    """Callback that notes the name of a run, and its saves."""

    def __init__(self) -> None:
        self.begun, self.saved = list[Any](), list[int]()

    def on_train_begin(self, context: Any) -> None:
        self.begun.append((context.run, context.attempt))

    def on_save(self, context: Any) -> None:
        self.saved.append(context.step)


@given(epochs=st.integers(1, 3), smoke=st.booleans())
@example(epochs=1, smoke=True)
def falsify_own_parts_are_used(subject: Any, epochs: int, smoke: bool) -> None:
    with scratch() as directory:
        noting, before = Noting(), time.time()
        given = {"epochs": epochs, "device": "cpu", "warmup": 0, "lr": 0.1, **({"smoke": 1} if smoke else {})}
        settings = Settings(out=directory / "out", **given)
        with own(subject, *PARTS)(settings, callbacks=[noting], lines=Lines(io.StringIO())) as run:
            run.prepare()
            result = run.conclude(run.run())
        ((at, attempt),) = noting.begun
        assert at == "out" and before - 1 <= attempt / 1000 <= time.time() + 1, f"the run is {at!r}, attempt {attempt}"
        steps = result.train.steps_completed
        assert steps == (1 if smoke else 3 * epochs), f"{given}: {steps} steps"
        wanted = {(1, 1)} if smoke else {(epoch, k) for epoch in range(1, epochs + 1) for k in (1, 2, 3)}
        assert run.batches.asked == wanted, f"{given}: the batches {sorted(run.batches.asked)} are asked for"
        assert noting.saved == ([] if smoke else [3 * epochs]), f"{given}: the steps {noting.saved} are saved"
        untrained, after = own_model(1).state_dict(), result.student.state_dict()
        kept = [name for name in untrained if torch.equal(untrained[name], after[name])]
        assert not kept, f"{given}: {kept} of the own student are not trained"
        assert (directory / "out").exists() is not smoke, f"{given}: the files are {sorted(found(directory))}"
        if not smoke:
            _assert_saved(directory / "out", after)


def _assert_saved(out: Path, weights: dict[str, Any]) -> None:
    saved = torch.load(out / "own.pt", weights_only=True)
    wrong = [name for name, each in weights.items() if not torch.equal(saved[name], each)]
    assert not wrong, f"{wrong} are saved with other values"
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["held_back"] == {"own": {"sum": 3.0, "count": 2}}, f"held back: {manifest['held_back']}"
    assert manifest["unit"] == "token", f"batches of the parts are counted in {manifest['unit']}s"
    assert "data_sha256" not in manifest, "a text that is not read is in the manifest"


@given(largest=st.sampled_from([98, 99, 100, 101]), place=st.sampled_from(["begin", "end"]))
def falsify_text_beyond_the_teachers_tokens_is_refused(subject: Any, largest: int, place: str) -> None:
    with scratch() as directory:
        rest = bytes(range(50, 98)) * 4
        teacher = written_model(directory, 100)
        (directory / "text").write_bytes(bytes([largest]) + rest if place == "begin" else rest + bytes([largest]))
        given = {**SMALL, "data": directory / "text", "teacher": teacher, "out": directory / "out"}
        _, said = prepared(subject.Distillation, Settings(share_vocabulary="pad", **given))
        words = f"byte {largest}, and the teacher has 100 tokens" if largest > 99 else ""
        assert bool(words) == bool(said) and words in said, f"byte {largest} at the {place} of the text: {said!r}"


NOTED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "nothing": ({}, lambda: own_model(1), ""),
    "eval mode": ({}, lambda: own_model(1).eval(), "student: trains in eval mode, without dropout; return"),
    "single in a float64 run": (
        {"dtype": "float64"},
        lambda: own_model(1),
        "student: has parameters of torch.float32; return model.double()",
    ),
    "a setting without effect": ({"beta": 0.2}, lambda: own_model(1), "settings: beta has no effect without"),
}
"""Settings, a student, and how the line about them begins; empty if there is none."""


def falsify_odd_students_are_named(subject: Any) -> None:
    for kind, (others, make, words) in NOTED.items():
        with scratch() as directory:
            settings = small(directory, out=directory / "out", smoke=1, **others)
            distillation = own(subject, *PARTS, make_student=lambda run, make=make: make())
            lines, _ = prepared(distillation, settings)
            noted = [each for each in lines.splitlines() if each.startswith(("student: ", "settings: "))]
            expected = 1 if words else 0
            assert len(noted) == expected and all(words in each for each in noted), f"{kind}: the lines are {noted}"
