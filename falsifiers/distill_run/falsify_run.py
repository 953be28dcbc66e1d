"""Attacks on a whole distillation: models, numbers, process, files, manifest.

Falsifiers with the argument `run` check the record of `reference_run.distil`.
"""

import hashlib
import io
import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

import reference_trainer
from falsifiers.distill_run.reference_run import CHOSEN, HEADS, digests, held_back_of, steps_per_epoch, weights_of
from falsifiers.resume.runs import settings as run_settings
from falsifiers.resume.runs import small_distillation
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.run_lines import ATTACHED, matcher
from falsifiers.support.run_record import RunRecord
from falsifiers.support.runs import SMALL, acting, file_digests, refused, run, scratch, small, unchanged_files
from reference_trainer import Batch, DataError, Lines
from reference_trainer.data.text import ShuffledBatches
from reference_trainer.distillation.objective import IGNORE_INDEX


def falsify_student_learns(run: RunRecord) -> None:
    first, last = (run.result["train"][f"{name}_loss"] for name in ("initial", "final"))
    assert last < 0.75 * first, f"the loss went from {first:.4f} to {last:.4f}; expected below 75 %"
    (before, _), (after, _) = (held_back_of(run, student) for student in ("untrained", "out"))
    for name in before:
        assert after[name] < 0.9 * before[name], f"held-back {name}: {before[name]}, then {after[name]}; limit 90 %"
    untrained, trained = weights_of(run, "untrained"), weights_of(run, "out")
    assert_equal("exported tensors", sorted(trained), sorted(untrained))
    for name, weights in untrained.items():
        # Every tensor must move by more than 1000 times the rounding of its values to float32.
        change, rounding = np.linalg.norm(trained[name] - weights), np.linalg.norm(weights) * 2.0**-24
        assert change > 1000 * rounding, f"{name} moved by {change:.3g}; expected more than 1000 * {rounding:.3g}"


def falsify_first_loss_follows_settings(run: RunRecord) -> None:
    tokens = np.array(run.result["first_batch"])
    student = oracle.logits(weights_of(run, "untrained"), HEADS["student"], tokens)
    teacher = oracle.logits(weights_of(run, "teacher"), HEADS["teacher"], tokens)
    tau, count = CHOSEN["temperature"], tokens[:, 1:].size
    hard, soft = oracle.losses(student, teacher, tokens, tau)
    expected = (CHOSEN["ce_weight"] * hard + CHOSEN["kd_weight"] * tau**2 * soft) / count
    seen = run.result["train"]["initial_loss"]
    # float32 logits, and 256 terms of float32 arithmetic a byte, stay within 1e-5 of a few nats.
    assert math.isclose(seen, expected, rel_tol=1e-5), f"the first loss is {seen:.7f}; expected {expected:.7f}"
    # The student's schedule spans every epoch: max_steps does not shorten it. The teacher's spans its own steps.
    planned = run.result["epochs"] * steps_per_epoch(run)
    totals = {"rates": (run.arguments["steps"], planned), "teacher_rates": (run.arguments["teacher_steps"],) * 2}
    for kind, (steps, total) in totals.items():
        expected_rates, rates = [_rate(step, total) for step in range(1, steps + 1)], run.result["optimizer"][kind]
        assert len(rates) == steps and np.allclose(rates, expected_rates, rtol=1e-12, atol=0), (
            f"the optimizer's {len(rates)} {kind} begin with {rates[:9]}; expected {steps}: {expected_rates[:9]}"
        )


def _rate(step: int, total: int) -> float:
    """Return the rate of a step: linear to the peak in the warmup, then half a cosine to a tenth of it at `total`."""
    peak, warmup = CHOSEN["lr"], CHOSEN["warmup"]
    if step <= warmup:
        return peak * step / warmup
    return peak * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / (total - warmup)))


def falsify_teacher_is_unchanged(run: RunRecord) -> None:
    """A teacher's tensor in the student's optimizer would change even without a gradient, by weight decay."""
    teacher = run.result["teacher"]
    moved = [name for name, digest in teacher["cached"].items() if teacher["weights"].get(name) != digest]
    assert_equal("tensors of the teacher that differ from those cached before the distillation", moved, [])
    assert_equal("tensors of the teacher with a gradient", teacher["with_gradient"], [])
    assert_equal("other tensors in the student's optimizer", run.result["optimizer"]["strangers"], [])


def falsify_seed_determines_weights(run: RunRecord) -> None:
    """Two runs with one seed end at the same weights; the distance is relative to the distance from the start.

    CUDA adds the gradients of repeated tokens in no fixed order, which changes less than 1 % in a few steps of AdamW.
    """
    allowed, repeated = (0.0 if run.device == "cpu" else 0.01), run.result["repeated"]
    for name in ("trained", "cached", "given"):
        assert repeated[name] <= allowed, f"{name} teacher: relative distance {repeated[name]:.3g}; allowed {allowed}"
    assert repeated["other"] > 0.5, f"two seeds: relative distance {repeated['other']:.3g}; expected above 0.5"


def falsify_exported_weights_equal_trained_weights(run: RunRecord) -> None:
    assert_equal("exported tensors", digests(load_file(run.directory / "out/model.safetensors")), run.result["student"])


def falsify_process_state_is_restored(run: RunRecord) -> None:
    """Random states of torch, Python and NumPy; torch's defaults and flags; signal handlers, folder, environment."""
    state = run.result["state"]
    for name, before in state["before"].items():
        assert_equal(f"{name} after the runs", state["after"][name], before)
    assert_equal("seeds of the generators of all CUDA devices", state["seeded"], [])


def falsify_held_back_metrics_match_exported_model(run: RunRecord) -> None:
    expected, tokens = held_back_of(run, "out")
    manifest = json.loads((run.directory / "out/manifest.json").read_text())["held_back"]
    reports = {"the result": run.result["held_back"]}
    reports["the manifest"] = {name: [value["sum"], value["count"]] for name, value in manifest.items()}
    # Errors of float32 logits, and of the nats of a byte, are about 1e-6; 1e-5 a byte is allowed.
    for where, held_back in reports.items():
        assert set(expected) < set(held_back), f"{where} has {sorted(held_back)}; expected also {sorted(expected)}"
        for name, nats in expected.items():
            seen, count = held_back[name]
            assert_equal(f"held-back bytes of {name} in {where}", count, tokens)
            assert abs(seen - nats) <= 1e-5 * tokens, f"{where}: {name} is {seen}; expected {nats} (recomputed)"


@contextmanager
def _optimizers() -> Iterator[list[dict[str, Any]]]:
    """Yield a list of the optimizers that made a step: name, and constants and parameters of their groups."""
    stepped: list[dict[str, Any]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        names = ("params", "weight_decay", "betas", "eps")
        groups = [{name: group[name] for name in names} for group in optimizer.param_groups]
        stepped.append({"name": type(optimizer).__name__, "groups": groups})

    with register_optimizer_step_post_hook(note):
        yield stepped


@given(elapsed_s=st.sampled_from([0.0, 0.25, 8.0]), seed=st.integers(0, 9))
def falsify_manifest_entries_match_run(subject: Any, device: str, elapsed_s: float, seed: int) -> None:
    with scratch() as directory, _optimizers() as stepped:
        settings = small(directory, out=directory / "out", seed=seed, epochs=2, device=device)
        times = itertools.chain([0.0], itertools.repeat(elapsed_s))
        result = run(subject, settings, clock=lambda: next(times))
        manifest, config = (
            json.loads((settings.run.out / f"{name}.json").read_text()) for name in ("manifest", "config")
        )
        files = file_digests(settings.run.out)
        (teacher,) = settings.teacher.cache.glob("*/model.safetensors")
        expected = {
            "schema": "reference-trainer/manifest/1",
            "settings": {
                name: str(value) if isinstance(value, Path) else value for name, value in settings.flat().items()
            },
            "seed": seed,
            "unit": "byte",
            "data_sha256": hashlib.sha256(bytes(range(100))).hexdigest(),
            "teacher_sha256": hashlib.sha256(teacher.read_bytes()).hexdigest(),
            "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
            "threads": torch.get_num_threads(),
            "sha256": {name: files[name] for name in ("model.safetensors", "config.json")},
        }
    assert_equal("files", sorted(files), ["config.json", "manifest.json", "model.safetensors"])
    shape = {"vocab_size": 256, "layers": SMALL["layers"], "width": SMALL["width"], "heads": 1}
    assert_equal("config.json", config, {"model_type": "reference_trainer.decoder", **shape})
    assert_equal("the manifest", {name: manifest.get(name) for name in expected}, expected)
    further = {"versions", "result", "held_back", "optimizer", "evaluation"}  # see the contract `evaluation`
    assert_equal("other entries of the manifest", set(manifest) - set(expected), further)
    assert all(map(manifest["versions"].get, ("reference_trainer", "torch", "python"))), f"{manifest['versions']=}"
    names = {parameter: f"student.{name}" for name, parameter in result.student.named_parameters()}
    groups = [
        {"parameters": [names[p] for p in group["params"]], "betas": list(group["betas"])}
        | {name: group[name] for name in ("weight_decay", "eps")}
        for group in stepped[-1]["groups"]
    ]
    written = [{name: group.get(name) for name in groups[0]} for group in manifest["optimizer"]["groups"]]
    assert_equal("the optimizer", (manifest["optimizer"]["name"], written), (stepped[-1]["name"], groups))
    _assert_numbers(manifest, result, elapsed_s)


def _assert_numbers(manifest: dict[str, Any], result: Any, elapsed_s: float) -> None:
    train, reported = result.train, dict(manifest["result"])
    for name, count in (("steps", train.steps_completed), ("tokens", train.tokens)):
        seen, expected = reported.pop(f"throughput_{name}_per_s", None), count / max(elapsed_s, 1e-9)
        assert seen is not None and math.isclose(seen, expected, rel_tol=1e-9), (
            f"{count} {name} in {elapsed_s} s: throughput {seen!r} per second; expected {expected}"
        )
    assert_equal("the manifest's result", reported, asdict(train))
    held_back = {name: {"sum": metric.sum, "count": metric.count} for name, metric in result.held_back.items()}
    assert_equal("the manifest's held-back metrics", manifest["held_back"], held_back)


class _ProductDtypes(TorchDispatchMode):
    """Mode that records the dtypes of the operands of matrix products, after autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.dtypes += [argument.dtype for argument in arguments if isinstance(argument, torch.Tensor)]
        return function(*arguments, **(named or {}))


@given(name=st.sampled_from(["bfloat16", "float32", "float64"]), saved_teacher=st.booleans())
@example(name="float64", saved_teacher=True)
def falsify_matrix_products_use_the_dtype(subject: Any, device: str, name: str, saved_teacher: bool) -> None:
    """saved_teacher: whether the teacher is read from a float32 file, instead of trained by the run."""
    with scratch() as directory:
        float32 = run(subject, small(directory, out=directory / "one", device=device, teacher_cache=directory / "c"))
        teacher = {"teacher": next((directory / "c").iterdir())} if saved_teacher else {}
        with _ProductDtypes() as products:
            result = run(subject, small(directory, out=directory / "two", dtype=name, device=device, **teacher))
    assert_equal("dtypes of products", set(products.dtypes), {getattr(torch, name)})
    dtypes = {parameter.dtype for parameter in result.student.parameters()}
    assert_equal(f"dtypes of weights in {name}", dtypes, {torch.float64 if name == "float64" else torch.float32})
    # bfloat16 keeps 8 bits: a loss of a few nats is off by less than 2 %.
    seen, expected = result.train.initial_loss, float32.train.initial_loss
    assert abs(seen - expected) <= 0.02 * expected, f"first loss in {name}: {seen}; expected {expected} within 2 %"


def falsify_auto_selects_an_available_device(subject: Any) -> None:
    for available, expected in ((True, "cuda"), (False, "cpu")):
        with mock.patch.object(torch.cuda, "is_available", lambda available=available: available):
            try:
                device = subject.usable_device("auto").type
            except reference_trainer.SettingError as error:  # on a machine without a GPU, the chosen one is unusable
                device = "cuda" if "'cuda'" in str(error) else str(error)
        assert_equal(f"the device of auto, CUDA available: {available}", device, expected)


@given(threads=st.sampled_from([None, 1, 3]), variable=st.booleans())
def falsify_run_uses_one_thread_unless_asked(subject: Any, threads: int | None, variable: bool) -> None:
    before = 2  # from the variable if it is set, otherwise as if chosen by torch
    used, environment = set[int](), {"OMP_NUM_THREADS": str(before)} if variable else {}
    recorder, original = acting(lambda: used.add(torch.get_num_threads())), torch.get_num_threads()
    torch.set_num_threads(before)
    try:
        with scratch() as directory:
            settings = small(directory, out=directory / "out", threads=threads)
            run(subject, settings, callbacks=[recorder], environment=environment)
            recorded = json.loads((settings.run.out / "manifest.json").read_text())["threads"]
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(original)
    expected = threads or (before if variable else 1)
    case = f"threads {threads}, {environment}, {before} before: used, in the manifest, after"
    assert_equal(case, (used, recorded, after), ({expected}, expected, before))


@given(
    event=st.sampled_from(
        [f"on_{name}" for name in ("train_begin", "epoch_begin", "step_end", "epoch_end", "train_end")]
    ),
    fault=st.sampled_from([RuntimeError, KeyboardInterrupt]),
    existing=st.sampled_from(["nothing", "a directory", "an older model"]),
)
def falsify_failed_run_leaves_no_files(subject: Any, event: str, fault: type[BaseException], existing: str) -> None:
    def fail() -> None:
        raise fault("on purpose")

    with scratch() as directory:
        out = directory / "new" / "out"
        if existing != "nothing":
            out.mkdir(parents=True)
        run(subject, small(directory, out=out if existing == "an older model" else directory / "model"))
        settings = small(directory, out=out, force=True, seed=0)
        with unchanged_files(directory, case := f"{fault.__name__} in {event}, {existing} at the output path"):
            message = refusal(lambda: run(subject, settings, callbacks=[acting(fail, event)]), fault)
        assert_equal(f"{case}: exception of the run", message, "on purpose")


REFUSED: dict[str, Callable[[Path], dict[str, Any]]] = {
    "existing results": lambda d: {"out": d, "trace": d / "trace"},
    "a file at the output path": lambda d: {"out": d / "text"},
    "an existing trace": lambda d: {"trace": d / "model" / "config.json"},
    "a trace over the text": lambda d: {"trace": d / "text", "force": True},
    "a missing teacher": lambda d: {"trace": d / "trace", "teacher": d / "missing"},
    "a missing device": lambda d: {"out": d / "new" / "out", "trace": d / "trace", "device": "cuda:999"},
}


@given(kind=st.sampled_from(list(REFUSED)))
def falsify_refused_run_leaves_no_files(subject: Any, kind: str) -> None:
    with scratch() as directory:
        run(subject, small(directory, out=directory / "model"))
        # With other `teacher_steps`, the cache has no teacher, so the run would train one and write it to the cache.
        settings = small(directory, **{"out": directory / "out", "teacher_steps": 2, **REFUSED[kind](directory)})
        with unchanged_files(directory, kind):
            assert refused(subject, settings), f"{kind}: the run is accepted; expected a refusal"


SPACE: list[tuple[dict[str, Any], float, bool]] = [({}, 1.5, True), ({}, 0.5, False), ({"save_every": 1}, 12.0, True)]
SPACE += [({"save_every": 1}, 3.5, False), ({"eval_every": 1}, 3.5, False)]
"""Settings, free bytes as a multiple of the weights, and whether the run fits."""


def falsify_run_that_does_not_fit_is_refused_at_its_start(subject: Any) -> None:
    for changes, share, fits in SPACE:
        with scratch() as directory:
            settings = small(directory, out=directory / "out").model_copy(update={"width": 64, **changes})
            with subject.Distillation(settings) as distillation:
                student = distillation.make_student()
            free = int(share * sum(p.numel() * p.element_size() for p in student.parameters()))
            before, disk = file_digests(directory), SimpleNamespace(free=free)
            with mock.patch.object(shutil, "disk_usage", lambda path, disk=disk: disk):
                message = refused(subject, settings)
            case = f"with {changes or 'no checkpoints'} and {share} times the bytes of the weights"
            assert (message == "") is fits, f"{case}, the refusal is {message!r}; fits: {fits}"
            if not fits:
                assert f"{free:,} bytes" in message, f"{case}, the refusal is {message!r}; expected {free:,} bytes"
                assert_equal(f"{case}, files after the refusal", file_digests(directory), before)


def falsify_teacher_progress_is_printed_every_hundred_steps(subject: Any) -> None:
    stream, steps = io.StringIO(), 203
    with scratch() as root:
        settings = small(root, out=root / "out", teacher_steps=steps, max_steps=1)
        subject.distill(settings, lines=reference_trainer.Lines(stream))
    lines = stream.getvalue().splitlines()
    seen = [line.partition(", loss ")[0] for line in lines if ": step " in line or matcher(ATTACHED).match(line)]
    expected = [f"teacher: step {step}/{steps}" for step in (100, 200)] + [ATTACHED.format(every=10)]
    assert_equal(f"lines of {steps} steps of a teacher", seen, expected)


class MaskedRows:
    """Rows of four tokens with labels only at the positions in `kept`."""

    device, batch_size = torch.device("cpu"), 2

    def __init__(self, rows: int, kept: set[tuple[int, int]]) -> None:
        self.rows, self.kept = rows, kept
        self.batches = -(-rows // self.batch_size)

    def __len__(self) -> int:
        return self.rows

    def batch(self, order: Any, position: int) -> Batch:
        chosen = order[(position - 1) * self.batch_size : position * self.batch_size]
        labels = [[t if (row, t) in self.kept else IGNORE_INDEX for t in range(4)] for row in chosen.tolist()]
        return Batch(tokens=torch.arange(4).expand(len(chosen), 4), labels=torch.tensor(labels))


@given(
    rows=st.integers(1, 5),
    kept=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=2),
)
@example(rows=5, kept={(3, 0)})
@example(rows=5, kept={(4, 3)})
def falsify_run_without_a_scored_token_is_refused(subject: Any, rows: int, kept: set[tuple[int, int]]) -> None:
    """The first token of a row follows no other, so its label is never predicted."""

    class Masked(small_distillation(subject)):  # the subject is any module
        def make_batches(self) -> Any:
            return ShuffledBatches(sequences=MaskedRows(rows, kept), seed=1)

    scored = any(row < rows and t > 0 for row, t in kept)
    with scratch() as directory:
        stack = Masked(run_settings(directory, "out"), lines=Lines(io.StringIO()))
        with stack as distillation, distillation:
            message = refusal(distillation.prepare, DataError)
        assert bool(message) is not scored, f"{rows} rows with the labels {kept}: {message or 'accepted'}"
        assert scored or f"none of the {rows} rows" in message, message
        assert not list(directory.glob("out/*")), "a prepared run created files; expected none"
