"""Attacks on distillations with parts of their own and with the default ones: settings, models, and resumed runs.

The subject is `pipeline.distill`, or has its names, unless a docstring names another.
"""

import io
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from falsifiers.resume.runs import Cut, Model, Noisy, V, assert_same_end, small_distillation
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.runs import (
    SMALL,
    assert_same_history,
    file_digests,
    refused,
    run,
    scratch,
    small,
    written_model,
)
from reference_trainer import Callback, Lines, MetricSum, Schedule, SettingError, Settings

NOTHING = """data documents data_share separator share_vocabulary teacher teacher_cache init_from parts arguments
student data_cache lora lora_options chat_template template_options eval_data teacher_device_map teacher_outputs
teacher_steps temperature_end ce_weight_end kd_weight_end feature_weight_end max_steps smoke resume clip
lr_decay threads trace callbacks data_workers mix revision teacher_revision quantization attn_implementation
optimizer_options log_to teacher_url served_model on_policy_end""".split()
DEFAULTS: dict[str, Any] = dict.fromkeys(NOTHING)
DEFAULTS |= {"layers": 1, "width": 32, "teacher_layers": 4, "teacher_width": 128}
DEFAULTS |= {"length": 64, "batch_size": 8, "accumulate": 1, "epochs": 3, "seed": 0, "eval_rows": 256}
DEFAULTS |= {"checkpoint_activations": False, "data_cache_gib": 20, "lora_merge": False, "turns": "every"}
DEFAULTS |= {"group_by_length": False, "skip_invalid_rows": False}
DEFAULTS |= {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "forward_kl", "beta": 0.5}
DEFAULTS |= {"feature_weight": 0.0, "feature_distance": "cosine", "feature_layers": "-1:-1"}
DEFAULTS |= {"anneal": "linear", "anneal_warmup": 0, "shard_teacher": False, "cross_tokenizer": False}
DEFAULTS |= {"trust_remote_code": False, "compile": False, "optimizer": "adamw", "layer_decay": 1.0}
DEFAULTS |= {"lr": 3e-3, "warmup": 50, "dtype": "float32", "weights": "float32", "schedule": "cosine", "lr_end": 0.1}
DEFAULTS |= {"device": "auto", "strategy": "ddp", "rank_timeout": 600, "hang_after": 3600.0, "project_to_steps": 50000}
DEFAULTS |= {"accept_depth": 0, "best_metric": "eval/hard_loss", "best_mode": "min", "best_min_delta": 0.0}
DEFAULTS |= {"optimizer": "adamw", "layer_decay": 1.0, "trust_remote_code": False, "compile": False}
DEFAULTS |= {"on_policy": 0.0, "answer_tokens": 256, "answer_temperature": 1.0, "answer_top_p": 1.0}
DEFAULTS |= {"teacher_top_k": 20}
DEFAULTS |= {"out": Path("distilled"), "force": False, "rewind": False}
DEFAULTS |= {"log_every": 10, "eval_every": 0, "save_every": 5000, "keep": 3}
"""Every setting, if nothing else is set. Another default changes what the same command does."""


def falsify_defaults_are_those_recorded(subject: Any) -> None:
    """Without any origin, each setting has its recorded value. The subject is `config.sources`."""
    seen = subject.gather({}, {}, None).flat()
    names = sorted(seen.keys() | DEFAULTS.keys())
    pairs = {name: (seen.get(name, "no such setting"), DEFAULTS.get(name, "not recorded")) for name in names}
    assert_equal(
        "defaults (seen, recorded) that differ", {x: pair for x, pair in pairs.items() if pair[0] != pair[1]}, {}
    )


def falsify_a_supervisor_reads_the_settings_of_its_run(subject: Any) -> None:
    """Flag, variable and file of the command count, in this order. The subject is `cli.distillation`."""
    with scratch() as directory:
        file = directory / "settings.toml"
        file.write_text("width = 32\nlayers = 3\nseed = 1\n")
        variables = {"REFERENCE_TRAINER_LAYERS": "2", "REFERENCE_TRAINER_SEED": "5"}
        with mock.patch.dict(os.environ, variables, clear=True):
            settings = subject.settings_of(["distill", "--seed", "7", "--config", str(file)])
    assert_equal(
        "width, layers and seed", (settings.student.width, settings.student.layers, settings.run.seed), (32, 2, 7)
    )


SHAPES = st.tuples(st.integers(1, 2), st.sampled_from([32, 64, 96]))
"""Layers, and a width that has a head for every 32 features."""


@given(student=SHAPES, teacher=SHAPES, share=st.sampled_from([0.3, 0.5, 1.0]))
def falsify_models_are_made_and_trained_as_the_settings_say(
    subject: Any, student: tuple[int, int], teacher: tuple[int, int], share: float
) -> None:
    read: dict[nn.Module, set[int]] = {}

    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and isinstance(module, nn.Embedding) and arguments[0].device.type != "meta":
            read.setdefault(module, set()).update(arguments[0].flatten().tolist())

    shapes = {"layers": student[0], "width": student[1], "teacher_layers": teacher[0], "teacher_width": teacher[1]}
    with register_module_forward_pre_hook(note), scratch() as directory:
        result = run(subject, small(directory, out=directory / "out", teacher_steps=4, data_share=share, **shapes))
    for name, (layers, width), part in (("student", student, share), ("teacher", teacher, 1.0)):
        model = getattr(result, name)
        shape = model.config.layers, model.config.width, model.config.heads
        assert_equal(f"layers, width and heads of the {name}", shape, (layers, width, width // 32))
        # Of 90 bytes to train on, each is its own offset; a sequence has seven new ones.
        end = (int(90 * part) - 1) // 7 * 7
        assert_equal(f"bytes that the {name} reads", read[model.embedding], set(range(end + 1)))


@given(
    shape=st.sampled_from(["cosine", "linear", "constant", "wsd"]),
    warmup=st.integers(0, 4),
    decay=st.sampled_from([None, 1, 3]),
    limit=st.sampled_from([None, 2]),
)
def falsify_rates_follow_the_settings(
    subject: Any, shape: str, warmup: int, decay: int | None, limit: int | None
) -> None:
    """The rate of a step has every setting, and spans the whole run, whatever its limit."""
    chosen: dict[str, Any] = {"schedule": shape, "lr": 0.5, "lr_end": 0.25, "lr_decay": decay, "warmup": warmup}
    distillation = subject.Distillation(Settings(**chosen))
    distillation.schedule = Schedule(epochs=2, steps_per_epoch=5, limit=limit)
    # A run of 10 steps decays from `begin` on; `wsd` stays at the peak until its decay, by default a fifth of the run.
    begin = max(warmup, 10 - (decay or 2)) if shape == "wsd" else warmup
    for step in range(1, 11):
        way = max(0, step - begin) / (10 - begin)
        left = {"cosine": (1 + math.cos(math.pi * way)) / 2, "constant": 1.0}.get(shape, 1 - way)
        expected = 0.5 * (step / warmup if step < warmup else 0.25 + 0.75 * left)
        seen = distillation.learning_rate(step)
        assert math.isclose(seen, expected, rel_tol=1e-12), f"{chosen}: step {step} of 10 has {seen}, not {expected}"


class Saving:
    """An evaluation and an export of the user; other parts come from `resume.runs`."""

    def evaluate(self) -> dict[str, MetricSum]:
        return {"own": MetricSum(3.0, 2)}

    def save(self: Any, directory: Path, manifest: dict[str, Any]) -> None:
        torch.save(self.student.state_dict(), directory / "own.pt")
        (directory / "manifest.json").write_text(json.dumps(manifest))


MODELS = ["make_batches", "make_student", "make_teacher"]


def overriding(subject: Any, *names: str, **methods: Any) -> Any:
    """Return a distillation that overrides these parts, and `methods`."""
    parts = {**vars(small_distillation(subject)), **vars(Saving)}
    size = {"vocab_size": V} if "make_student" in names else {}
    return type("Own", (subject.Distillation,), {name: parts[name] for name in names} | size | methods)


def prepared(kind: Any, settings: Settings) -> tuple[str, str]:
    """Return the lines of a run until it is prepared, and the message if it is refused."""
    stream = io.StringIO()

    def prepare() -> None:
        with kind(settings, lines=Lines(stream)) as distillation:
            distillation.prepare()

    message = refusal(prepare, SettingError)
    return stream.getvalue(), message


MISSING: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "batches alone": (["make_batches"], {}, "make_teacher"),
    "batches alone, in a smoke run": (["make_batches"], {"smoke": 1}, "make_teacher"),
    "batches alone, and a given teacher": (["make_batches"], {"smoke": 1, "teacher": None}, ""),
    "batches and a teacher": (MODELS, {}, "evaluate"),
    "no evaluation, evaluated in a smoke run": ([*MODELS, "save"], {"smoke": 2, "eval_every": 1}, "evaluate"),
    "a student alone": (["make_student"], {}, "save"),
    "an own evaluation and teacher": (["make_teacher", "evaluate"], {"best_metric": "eval/own", "eval_every": 1}, ""),
    "no evaluation, in a smoke run": (MODELS, {"smoke": 1}, ""),
    "a student alone, in a smoke run": (["make_student"], {"smoke": 1}, ""),
}
"""Overridden parts, settings, and the part that the run needs too; empty if it needs none."""


def falsify_missing_part_is_refused(subject: Any) -> None:
    for kind, (names, changes, needed) in MISSING.items():
        with scratch() as directory:
            teacher = {"teacher": written_model(directory)} if "teacher" in changes else {}
            settings = small(directory, out=directory / "out", **changes | teacher)
            before = file_digests(directory)
            _, message = prepared(overriding(subject, *names), settings)
            assert bool(message) == bool(needed), f"{kind}: {message or 'the run is accepted'}"
            if needed:
                assert "Own" in message and f"override {needed} too" in message, f"{kind}: {message!r}"
                assert_equal(f"{kind}: files after the refusal", file_digests(directory), before)


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
        noting, before, out = Noting(), time.time(), directory / "out"
        settings = Settings(out=out, epochs=epochs, device="cpu", warmup=0, lr=0.1, smoke=1 if smoke else None)
        with overriding(subject, *MODELS, "evaluate", "save")(
            settings, callbacks=[noting], lines=Lines(io.StringIO())
        ) as distillation:
            distillation.prepare()
            result = distillation.conclude(distillation.run())
        case = f"{epochs} epochs, smoke {smoke}"
        ((name, attempt),) = noting.begun
        assert name == "out" and before - 1 <= attempt / 1000 <= time.time() + 1, f"run {name!r}, attempt {attempt}"
        steps = 1 if smoke else Noisy.batches * epochs
        assert_equal(f"{case}: steps", result.train.steps_completed, steps)
        batches = {(1 + k // Noisy.batches, 1 + k % Noisy.batches) for k in range(steps)}
        assert_equal(f"{case}: batches that are asked for", set(distillation.batches.asked), batches)
        assert_equal(f"{case}: saved steps", noting.saved, [] if smoke else [steps])
        untrained, trained = Model(5, seed=1).state_dict(), result.student.state_dict()
        same = [name for name in untrained if torch.equal(untrained[name], trained[name])]
        assert_equal(f"{case}: untrained tensors", same, [])
        assert out.exists() is not smoke, f"{case}: the files are {sorted(file_digests(directory))}"
        if not smoke:
            saved = torch.load(out / "own.pt", weights_only=True)
            wrong = [name for name, tensor in trained.items() if not torch.equal(saved[name], tensor)]
            assert_equal("tensors that are saved with other values", wrong, [])
            manifest = json.loads((out / "manifest.json").read_text())
            assert_equal("held back", manifest["held_back"], {"own": {"sum": 3.0, "count": 2}})
            assert_equal("the unit of batches", manifest["unit"], "token")
            assert "data_sha256" not in manifest, "a text that is not read is in the manifest"


@given(largest=st.sampled_from([98, 99, 100, 101]), place=st.sampled_from(["begin", "end"]))
def falsify_text_beyond_the_teachers_tokens_is_refused(subject: Any, largest: int, place: str) -> None:
    with scratch() as directory:
        rest, teacher = bytes(range(50, 98)) * 4, written_model(directory, 100)
        (directory / "text").write_bytes(bytes([largest]) + rest if place == "begin" else rest + bytes([largest]))
        files = {"data": directory / "text", "teacher": teacher, "out": directory / "out"}
        _, message = prepared(subject.Distillation, Settings(share_vocabulary="pad", **{**SMALL, **files}))
    words = f"byte {largest}, and the teacher has 100 tokens" if largest > 99 else ""
    assert bool(words) == bool(message) and words in message, f"byte {largest} at the {place} of the text: {message!r}"


NOTED: dict[str, tuple[dict[str, Any], Callable[[], nn.Module], str]] = {
    "nothing": ({}, lambda: Model(5, seed=1), ""),
    "eval mode": ({}, lambda: Model(5, seed=1).eval(), "student: trains in eval mode, without dropout; return"),
    "single in a float64 run": (
        {"dtype": "float64"},
        lambda: Model(5, seed=1),
        "student: has parameters of torch.float32; return model.double()",
    ),
    "a setting without effect": ({"beta": 0.2}, lambda: Model(5, seed=1), "settings: beta has no effect without"),
}
"""Settings, a student, and how the line about them begins; empty if there is none."""


def falsify_odd_students_are_named(subject: Any) -> None:
    for kind, (changes, make, words) in NOTED.items():
        with scratch() as directory:
            settings = small(directory, out=directory / "out", smoke=1, **changes)
            distillation = overriding(subject, *MODELS, "evaluate", "save", make_student=lambda run, make=make: make())
            lines = prepared(distillation, settings)[0].splitlines()
        noted = [line for line in lines if line.startswith(("student: ", "settings: "))]
        assert len(noted) == bool(words) and all(words in line for line in noted), f"{kind}: the lines are {noted}"


TEXT = b"".join(b"%d, %d.\n\n" % (k, k * k) + b"so it goes. " * (k % 3) for k in range(16))
EVERY: dict[str, Any] = {"save_every": 1, "log_every": 1, "eval_every": 2, "hang_after": 600, "force": True}
EVERY |= {"epochs": 2, "length": 16, "warmup": 2, "lr": 0.01}
VARIED: dict[str, Any] = {
    "accumulate": 2,
    "clip": 0.05,
    "dtype": "bfloat16",
    "anneal": "cosine",
    "temperature_end": 1.0,
}
VARIED |= {"feature_weight": 0.5, "feature_weight_end": 2.0, "feature_distance": "l2", "teacher_width": 32}


class Reading(Callback):
    """Callback that notes each batch that the student reads, by a hook of torch, and in which mode.

    beside: the classes of all callbacks of each run that it is attached to.
    """

    def __init__(self) -> None:
        self.batches, self.beside = list[dict[str, Any]](), list[list[str]]()

    def attach(self, pipeline: Any) -> None:
        self.student = pipeline.student
        self.beside.append([type(callback).__name__ for callback in pipeline.callbacks if type(callback) is not Cut])

    def on_train_begin(self, context: Any) -> None:
        self.hook = self.student.register_forward_pre_hook(self.note, with_kwargs=True)

    def on_train_end(self, context: Any) -> None:
        self.hook.remove()

    def note(self, student: Any, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        tokens, segments = arguments[0], options.get("segments")
        if tokens.device.type != "meta":  # where its operations are counted
            segments = None if segments is None else segments.tolist()
            self.batches.append({"training": student.training, "tokens": tokens.tolist(), "segments": segments})


@given(
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=2, unique=True),
    seed=st.integers(0, 9),
    documents=st.sampled_from([None, "pad", "pack"]),
    varied=st.sets(st.sampled_from(sorted(VARIED))),
)
@example(cuts=[1, 4], seed=1, documents=None, varied=set(VARIED))
@example(cuts=[2], seed=2, documents="pack", varied=set(VARIED) - {"dtype", "accumulate"})
def falsify_cut_run_of_default_parts_ends_like_the_straight_one(
    subject: Any, cuts: list[int], seed: int, documents: str | None, varied: set[str]
) -> None:
    def distilled(out: str, callbacks: Sequence[Callback], resume: Path | None = None) -> Any:
        """Return the result of a run; each interrupt is followed by a run that resumes from the latest checkpoint."""
        chosen = {**EVERY, "seed": seed, "documents": documents, **{name: VARIED[name] for name in sorted(varied)}}
        chosen |= {"out": directory / out, "trace": directory / f"{out}.trace", "resume": resume}
        settings = small(directory, **chosen)
        settings.data.path.write_bytes(TEXT)
        try:
            return run(subject, settings, callbacks=callbacks)
        except KeyboardInterrupt:
            return distilled(out, callbacks, Path("latest"))

    with scratch() as directory:
        reading, expected = Reading(), Reading()
        straight, cut = distilled("straight", [expected]), distilled("cut", [reading, Cut(*cuts)])
        when = f"seed {seed}, documents {documents} and {sorted(varied)}, cut after {sorted(cuts)}"
        assert_same_history(f"{when}, what the student reads", reading.batches, expected.batches)
        assert_equal(f"{when}, callbacks", reading.beside, expected.beside * len(reading.beside))
        assert_same_end(when, directory, ("cut", (None, cut)), ("straight", (None, straight)))
        assert_equal(f"{when}, held-back metrics", cut.held_back, straight.held_back)
        written = [(directory / out / "model.safetensors").read_bytes() for out in ("cut", "straight")]
        assert written[0] == written[1], f"{when}, the exported weights differ"


@given(place=st.sampled_from([0, 50, 99]))
def falsify_another_text_is_refused(subject: Any, place: int) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "out", save_every=1))
        settings = small(directory, out=directory / "out", save_every=1, resume=Path("latest"), force=True)
        text = bytearray(settings.data.path.read_bytes())
        text[place] += 1
        settings.data.path.write_bytes(text)
        before, message = file_digests(directory), refused(subject, settings)
        assert "data_sha256 was" in message, f"byte {place} of the text is another: {message or 'resumed'!r}"
        assert_equal(f"byte {place} of the text is another: files after the refusal", file_digests(directory), before)
