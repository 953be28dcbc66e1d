"""Attacks on distillations with parts of the user and with the default parts: settings, models, and resumed runs.

The subject is `pipeline.distill`, or has its names, unless a docstring names another.
"""

import hashlib
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
    unchanged_files,
    written_model,
)
from reference_trainer import Callback, Lines, MetricSum, Schedule, SettingError, Settings

UNSET = """data documents data_share separator share_vocabulary teacher teacher_cache init_from parts arguments
student data_cache lora lora_options chat_template template_options eval_data teacher_device_map teacher_outputs
teacher_steps temperature_end ce_weight_end kd_weight_end feature_weight_end max_steps smoke resume clip
lr_decay threads trace callbacks data_workers mix revision teacher_revision quantization attn_implementation
optimizer_options log_to teacher_url served_model on_policy_end""".split()
DEFAULTS: dict[str, Any] = dict.fromkeys(UNSET)
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
DEFAULTS |= {"on_policy": 0.0, "answer_tokens": 256, "answer_temperature": 1.0, "answer_top_p": 1.0}
DEFAULTS |= {"teacher_top_k": 20}
DEFAULTS |= {"out": Path("distilled"), "force": False, "rewind": False}
DEFAULTS |= {"log_every": 10, "eval_every": 0, "save_every": 5000, "keep": 3}
"""The recorded default of every setting. A changed default changes the result of an unchanged command."""


def falsify_defaults_are_those_recorded(subject: Any) -> None:
    """Without flags, variables and file, every setting has its recorded default. The subject is `config.sources`."""
    seen = subject.gather({}, {}, None).flat()
    names = sorted(seen.keys() | DEFAULTS.keys())
    pairs = {name: (seen.get(name, "no such setting"), DEFAULTS.get(name, "not recorded")) for name in names}
    assert_equal(
        "defaults (seen, recorded) that differ", {x: pair for x, pair in pairs.items() if pair[0] != pair[1]}, {}
    )


def falsify_a_supervisor_reads_the_settings_of_its_run(subject: Any) -> None:
    """A flag takes precedence over a variable, and a variable over the file. The subject is `cli.distillation`."""
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
    tokens_by_embedding: dict[nn.Module, set[int]] = {}

    def record(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if module.training and isinstance(module, nn.Embedding) and arguments[0].device.type != "meta":
            tokens_by_embedding.setdefault(module, set()).update(arguments[0].flatten().tolist())

    shapes = {"layers": student[0], "width": student[1], "teacher_layers": teacher[0], "teacher_width": teacher[1]}
    with register_module_forward_pre_hook(record), scratch() as directory:
        result = run(subject, small(directory, out=directory / "out", teacher_steps=4, data_share=share, **shapes))
    for name, (layers, width), part in (("student", student, share), ("teacher", teacher, 1.0)):
        model = getattr(result, name)
        shape = model.config.layers, model.config.width, model.config.heads
        assert_equal(f"layers, width and heads of the {name}", shape, (layers, width, width // 32))
        # Byte k of the 90 bytes to train on has the value k. A sequence of 8 bytes begins with the last byte of the
        # sequence before it, and the end of the text that fills no sequence is left out.
        end = (int(90 * part) - 1) // 7 * 7
        assert_equal(f"bytes that the {name} reads", tokens_by_embedding[model.embedding], set(range(end + 1)))


@given(
    shape=st.sampled_from(["cosine", "linear", "constant", "wsd"]),
    warmup=st.integers(0, 4),
    decay=st.sampled_from([None, 1, 3]),
    limit=st.sampled_from([None, 2]),
)
def falsify_rates_follow_the_settings(
    subject: Any, shape: str, warmup: int, decay: int | None, limit: int | None
) -> None:
    """The learning rate follows every setting; `limit`, the last step to run, does not shorten the schedule."""
    chosen: dict[str, Any] = {"schedule": shape, "lr": 0.5, "lr_end": 0.25, "lr_decay": decay, "warmup": warmup}
    distillation = subject.Distillation(Settings(**chosen))
    distillation.schedule = Schedule(epochs=2, steps_per_epoch=5, limit=limit)
    # A run of 10 steps decays from `begin` on; `wsd` stays at the peak until its decay, by default a fifth of the run.
    begin = max(warmup, 10 - (decay or 2)) if shape == "wsd" else warmup
    for step in range(1, 11):
        progress = max(0, step - begin) / (10 - begin)
        remaining = {"cosine": (1 + math.cos(math.pi * progress)) / 2, "constant": 1.0}.get(shape, 1 - progress)
        expected = 0.5 * (step / warmup if step < warmup else 0.25 + 0.75 * remaining)
        seen = distillation.learning_rate(step)
        assert math.isclose(seen, expected, rel_tol=1e-12), f"{chosen}, step {step} of 10: {seen}; expected {expected}"


class Saving:
    """The evaluation and the export of a user; the other parts come from `resume.runs`."""

    def evaluate(self) -> dict[str, MetricSum]:
        return {"own": MetricSum(3.0, 2)}

    def save(self: Any, directory: Path, manifest: dict[str, Any]) -> None:
        torch.save(self.student.state_dict(), directory / "own.pt")
        (directory / "manifest.json").write_text(json.dumps(manifest))


MODELS = ["make_batches", "make_student", "make_teacher"]


def overriding(subject: Any, *names: str, **methods: Any) -> Any:
    """Return a subclass of `Distillation` that overrides the parts with these names, and `methods`."""
    parts = {**vars(small_distillation(subject)), **vars(Saving)}
    size = {"vocab_size": V} if "make_student" in names else {}
    return type("Own", (subject.Distillation,), {name: parts[name] for name in names} | size | methods)


def prepare_run(distillation_class: Any, settings: Settings) -> tuple[str, str]:
    """Prepare a run; return the printed lines, and the message of the refusal, empty if the run is accepted."""
    stream = io.StringIO()

    def prepare() -> None:
        with distillation_class(settings, lines=Lines(stream)) as distillation:
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
"""By case: overridden parts, changed settings, and the part that must be overridden too; empty if none is missing."""


def falsify_missing_part_is_refused(subject: Any) -> None:
    for case, (names, changes, missing_part) in MISSING.items():
        with scratch() as directory:
            teacher = {"teacher": written_model(directory)} if "teacher" in changes else {}
            settings = small(directory, out=directory / "out", **changes | teacher)
            before = file_digests(directory)
            _, message = prepare_run(overriding(subject, *names), settings)
            assert bool(message) == bool(missing_part), f"{case}: {message!r}; missing is {missing_part!r}"
            if missing_part:
                assert "Own" in message and f"override {missing_part} too" in message, f"{case}, class Own: {message!r}"
                assert_equal(f"{case}: files after the refusal", file_digests(directory), before)


class RunRecorder(Callback):
    """Callback that records name and attempt of a run at its start, and the steps of its saves."""

    def __init__(self) -> None:
        self.starts, self.saved_steps = list[Any](), list[int]()

    def on_train_begin(self, context: Any) -> None:
        self.starts.append((context.run, context.attempt))

    def on_save(self, context: Any) -> None:
        self.saved_steps.append(context.step)


@given(epochs=st.integers(1, 3), smoke=st.booleans())
@example(epochs=1, smoke=True)
def falsify_own_parts_are_used(subject: Any, epochs: int, smoke: bool) -> None:
    with scratch() as directory:
        case = f"{epochs} epochs, smoke {smoke}"
        recorder, before, out = RunRecorder(), time.time(), directory / "out"
        settings = Settings(out=out, epochs=epochs, device="cpu", warmup=0, lr=0.1, smoke=1 if smoke else None)
        with overriding(subject, *MODELS, "evaluate", "save")(
            settings, callbacks=[recorder], lines=Lines(io.StringIO())
        ) as distillation:
            distillation.prepare()
            result = distillation.conclude(distillation.run())
        ((name, attempt),) = recorder.starts
        assert name == "out" and before - 1 <= attempt / 1000 <= time.time() + 1, f"run {name!r}, started at {attempt}"
        steps = 1 if smoke else Noisy.batches * epochs
        assert_equal(f"{case}: steps", result.train.steps_completed, steps)
        batches = {(1 + k // Noisy.batches, 1 + k % Noisy.batches) for k in range(steps)}
        assert_equal(f"{case}: epoch and position of requested batches", set(distillation.batches.requested), batches)
        assert_equal(f"{case}: saved steps", recorder.saved_steps, [] if smoke else [steps])
        untrained, trained = Model(5, seed=1).state_dict(), result.student.state_dict()
        unchanged = [name for name in untrained if torch.equal(untrained[name], trained[name])]
        assert_equal(f"{case}: tensors that the training did not change", unchanged, [])
        assert out.exists() is not smoke, f"{case}: the files are {sorted(file_digests(directory))}"
        if not smoke:
            saved = torch.load(out / "own.pt", weights_only=True)
            wrong = [name for name, tensor in trained.items() if not torch.equal(saved[name], tensor)]
            assert_equal("tensors that are saved with other values", wrong, [])
            manifest = json.loads((out / "manifest.json").read_text())
            assert_equal("held back", manifest["held_back"], {"own": {"sum": 3.0, "count": 2}})
            assert_equal("the unit of batches", manifest["unit"], "token")
            assert "data_sha256" not in manifest, "the manifest has the digest of a text, although no text is read"


@given(byte=st.sampled_from([98, 99, 100, 101]), place=st.sampled_from(["begin", "end"]))
@example(byte=100, place="begin")
@example(byte=101, place="end")
@example(byte=99, place="end")
def falsify_text_beyond_the_teachers_tokens_is_refused(subject: Any, byte: int, place: str) -> None:
    with scratch() as directory:
        known, teacher = bytes(range(50, 98)) * 4, written_model(directory, 100)
        (directory / "text").write_bytes(bytes([byte]) + known if place == "begin" else known + bytes([byte]))
        files = {"data": directory / "text", "teacher": teacher, "out": directory / "out"}
        _, message = prepare_run(subject.Distillation, Settings(share_vocabulary="pad", **{**SMALL, **files}))
    words = f"byte {byte}, and the teacher has 100 tokens" if byte > 99 else ""
    assert bool(words) == bool(message) and words in message, f"byte {byte} at the {place}: {message!r}; not {words!r}"


REPORTED: dict[str, tuple[dict[str, Any], Callable[[], nn.Module], str]] = {
    "a student as the settings say": ({}, lambda: Model(5, seed=1), ""),
    "eval mode": ({}, lambda: Model(5, seed=1).eval(), "student: trains in eval mode, without dropout; return"),
    "float32 in a float64 run": (
        {"dtype": "float64"},
        lambda: Model(5, seed=1),
        "student: has parameters of torch.float32; return model.double()",
    ),
    "a setting without effect": ({"beta": 0.2}, lambda: Model(5, seed=1), "settings: beta has no effect without"),
}
"""By case: changed settings, the student, and words of the line about them; empty if no line is printed."""


def falsify_odd_students_are_named(subject: Any) -> None:
    for case, (changes, make, words) in REPORTED.items():
        with scratch() as directory:
            settings = small(directory, out=directory / "out", smoke=1, **changes)
            distillation = overriding(subject, *MODELS, "evaluate", "save", make_student=lambda run, make=make: make())
            lines = prepare_run(distillation, settings)[0].splitlines()
        reports = [line for line in lines if line.startswith(("student: ", "settings: "))]
        is_expected = len(reports) == bool(words) and all(words in line for line in reports)
        assert is_expected, f"{case}: the lines are {reports}; expected {[words] if words else []}"


TEXT = b"".join(b"%d, %d.\n\n" % (k, k * k) + b"so it goes. " * (k % 3) for k in range(16))
RESUMABLE: dict[str, Any] = {"save_every": 1, "log_every": 1, "eval_every": 2, "hang_after": 600, "force": True}
RESUMABLE |= {"epochs": 2, "length": 16, "warmup": 2, "lr": 0.01}
OPTIONAL: dict[str, Any] = {
    "accumulate": 2,
    "clip": 0.05,
    "dtype": "bfloat16",
    "anneal": "cosine",
    "temperature_end": 1.0,
}
OPTIONAL |= {"temperature_end": 1.0, "teacher_width": 32}
OPTIONAL |= {"feature_weight": 0.5, "feature_weight_end": 2.0, "feature_distance": "l2"}


class BatchRecorder(Callback):
    """Callback that records every batch that the student reads, and the mode of the student, by a hook of torch.

    names: by run, the classes of all callbacks except `Cut`.
    """

    def __init__(self) -> None:
        self.batches, self.names = list[dict[str, Any]](), list[list[str]]()

    def attach(self, pipeline: Any) -> None:
        self.student = pipeline.student
        self.names.append([type(one).__name__ for one in pipeline.callbacks if type(one) is not Cut])

    def on_train_begin(self, context: Any) -> None:
        self.hook = self.student.register_forward_pre_hook(self.record, with_kwargs=True)

    def on_train_end(self, context: Any) -> None:
        self.hook.remove()

    def record(self, student: Any, arguments: Sequence[Any], options: dict[str, Any]) -> None:
        tokens, segments = arguments[0], options.get("segments")
        if tokens.device.type != "meta":  # on the meta device, the trainer only counts operations
            segments = None if segments is None else segments.tolist()
            self.batches.append({"training": student.training, "tokens": tokens.tolist(), "segments": segments})


@given(
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=2, unique=True),
    seed=st.integers(0, 9),
    documents=st.sampled_from([None, "pad", "pack"]),
    optional=st.sets(st.sampled_from(sorted(OPTIONAL))),
)
@example(cuts=[1, 4], seed=1, documents=None, optional=set(OPTIONAL))
@example(cuts=[2], seed=2, documents="pack", optional=set(OPTIONAL) - {"dtype", "accumulate"})
def falsify_cut_run_of_default_parts_ends_like_the_straight_one(
    subject: Any, cuts: list[int], seed: int, documents: str | None, optional: set[str]
) -> None:
    def run_to_end(out: str, callbacks: Sequence[Callback], resume: Path | None = None) -> Any:
        """Return the result of a run; after an interrupt, resume from the latest checkpoint."""
        chosen = {**RESUMABLE, "seed": seed, "documents": documents, **{key: OPTIONAL[key] for key in sorted(optional)}}
        chosen |= {"out": directory / out, "trace": directory / f"{out}.trace", "resume": resume}
        settings = small(directory, **chosen)
        settings.data.path.write_bytes(TEXT)
        try:
            return run(subject, settings, callbacks=callbacks)
        except KeyboardInterrupt:
            return run_to_end(out, callbacks, Path("latest"))

    with scratch() as directory:
        recorder, expected = BatchRecorder(), BatchRecorder()
        uninterrupted, resumed = run_to_end("uninterrupted", [expected]), run_to_end("resumed", [recorder, Cut(*cuts)])
        when = f"seed {seed}, documents {documents}, {sorted(optional)}, interrupted after the steps {sorted(cuts)}"
        assert_same_history(f"{when}, batches of the student", recorder.batches, expected.batches)
        assert_equal(f"{when}, callbacks", recorder.names, expected.names * len(recorder.names))
        assert_same_end(when, directory, ("resumed", (None, resumed)), ("uninterrupted", (None, uninterrupted)))
        assert_equal(f"{when}, held-back metrics", resumed.held_back, uninterrupted.held_back)
        written = [(directory / out / "model.safetensors").read_bytes() for out in ("resumed", "uninterrupted")]
        assert written[0] == written[1], f"{when}: the exported file differs from the file of the uninterrupted run"


@given(place=st.sampled_from([0, 50, 99]))
@example(place=99)
def falsify_another_text_is_refused(subject: Any, place: int) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "out", save_every=1))
        settings = small(directory, out=directory / "out", save_every=1, resume=Path("latest"), force=True)
        text = bytearray(settings.data.path.read_bytes())
        text[place] += 1
        digests = [hashlib.sha256(content).hexdigest() for content in (settings.data.path.read_bytes(), text)]
        settings.data.path.write_bytes(text)
        with unchanged_files(directory, case := f"byte {place} of the text is changed"):
            message = refused(subject, settings)
        words = 'data_sha256 was "{}" and is "{}"'.format(*digests)
        assert words in message, f"{case}: the refusal is {message!r}; expected {words!r}"
