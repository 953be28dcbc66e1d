"""Attacks on the plan of a run (memory, steps, tokens), on defaults, and on settings of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.runs import run, scratch, small
from reference_trainer import Callback, Settings
from reference_trainer.errors import DriftError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import save_decoder

OPTIMIZERS = {
    "adamw": None,
    "adafactor": None,
    "torch.optim:SGD": '{"momentum": 0.9}',
    "torch.optim:Adagrad": None,
}


def write_text(directory: Path) -> None:
    """Replace the text of `small` by documents of different lengths."""
    (directory / "text").write_bytes(b"".join(b"%d%s\n\n" % (n, b"x" * n) for n in range(1, 13)))


class MemoryRecorder(Callback):
    """Callback that records the bytes of the tensors of a run after its last step, by kind."""

    sizes: dict[str, int]

    def attach(self, distillation: Any) -> None:
        self._run = distillation

    def on_train_end(self, context: Any) -> None:
        student, optimizer = self._run.student, self._run.optimizer
        parameters = list(student.parameters())
        state_values = [value for state in optimizer.state.values() for value in state.values()]
        tensors = {
            "weights": [*parameters, *student.buffers()],
            "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
            "optimizer state": [value for value in state_values if isinstance(value, torch.Tensor)],
            "teacher": list(self._run.teacher.parameters()),
        }
        self.sizes = {name: sum(tensor.nbytes for tensor in values) for name, values in tensors.items()}


@given(
    layers=st.integers(1, 3),
    width=st.sampled_from([16, 48]),
    optimizer=st.sampled_from(list(OPTIMIZERS)),
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    documents=st.sampled_from([None, "pad", "pack"]),
    accumulate=st.integers(1, 3),
    epochs=st.integers(1, 2),
    limit=st.sampled_from([None, 2, 100]),
)
@example(
    layers=2,
    width=16,
    optimizer="adamw",
    dtype="float32",
    documents=None,
    accumulate=2,
    epochs=2,
    limit=None,
)
@example(
    layers=1,
    width=48,
    optimizer="torch.optim:SGD",
    dtype="float64",
    documents="pack",
    accumulate=1,
    epochs=2,
    limit=None,
)
def falsify_plan_is_what_the_run_needs(
    subject: Any,
    layers: int,
    width: int,
    optimizer: str,
    dtype: str,
    documents: str | None,
    accumulate: int,
    epochs: int,
    limit: int | None,
) -> None:
    """limit: `max_steps` of the run."""
    with scratch() as directory:
        options: dict[str, Any] = {"optimizer": optimizer, "optimizer_options": OPTIMIZERS[optimizer], "dtype": dtype}
        options |= {"layers": layers, "width": width, "documents": documents, "accumulate": accumulate}
        options |= {"epochs": epochs, "max_steps": limit, "lr": 1e-3, "separator": "\n\n" if documents else None}
        settings = small(directory, out=directory / "out", **options)
        write_text(directory)
        planned = subject.plan(settings)
        if limit is None:  # two ranks divide the rows of an epoch
            seen = subject.plan(settings, ranks=2).predicted_tokens
            assert_equal("predicted tokens of two ranks", seen, planned.predicted_tokens)
        assert not (directory / "out").exists(), "`plan` created the output directory"
        recorder = MemoryRecorder()
        result = run(reference_trainer, settings, callbacks=[recorder])
        case = f"{layers} layers of width {width}, {optimizer}, {dtype}"
        for part, size in recorder.sizes.items():
            assert_equal(f"bytes of {part}, {case}", planned.memory[part], size)
        if optimizer == "adamw":
            parameters = list(result.student.parameters())
            moments = 2 * sum(map(torch.Tensor.numel, parameters)) * (8 if dtype == "float64" else 4)
            state = moments + 4 * len(parameters)  # a float32 number of steps for each parameter
            assert_equal(f"bytes of the optimizer, {case}", planned.memory["optimizer state"], state)
        rows = f"{documents} rows, {accumulate} batches a step, {epochs} epochs, at most {limit} steps"
        assert_equal(f"steps, {rows}", planned.steps, result.train.steps_completed)
        if limit != 2:  # of a part of the rows, the planned tokens are only an estimate
            assert_equal(f"predicted tokens, {rows}", planned.predicted_tokens, result.train.tokens)
        # A trained teacher and a saved one, on one rank and sharded over three, in a smoke run of one step.
        (directory / "teacher").mkdir()
        save_decoder(result.teacher, directory / "teacher", {})
        chunks = sum(parameter.chunk(3)[0].nbytes for parameter in result.teacher.parameters())
        for teacher in (None, directory / "teacher"):
            chosen = settings.replace(teacher=teacher, smoke=1, max_steps=None)
            sharded = chosen.replace(shard_teacher=True)
            one, three = subject.plan(chosen), subject.plan(sharded, ranks=3)
            sizes = one.memory["teacher"], three.memory["teacher"]
            which = f"a teacher {'to train' if teacher is None else 'in a directory'}, {case}, on one rank and on three"
            assert_equal(f"bytes of {which}", sizes, (recorder.sizes["teacher"], chunks))
            assert_equal(f"steps of a smoke run, {rows}", one.steps, 1)
            largest = accumulate * settings.data.batch_size * settings.data.length
            assert_equal(f"tokens of a step, {rows}", (one.largest_step, three.largest_step), (largest, 3 * largest))
        lines = subject.plan_lines(planned, tokens_per_s=0.25)
        count = sum(map(torch.Tensor.numel, result.student.parameters()))
        numbers = [
            f"{count:,} parameters, {count:,} trained",
            *(f"{size / 2**20:.2f} MiB {part}" for part, size in planned.memory.items() if size),
            f"{sum(planned.memory.values()) / 2**20:.2f} MiB per rank in total",
            f"tokens of a step: at most {largest:,}, with padding",
            f"steps: {planned.steps:,}",
            f"predicted tokens: {planned.predicted_tokens:,}",
            f"time: {planned.predicted_tokens / 0.25 / 3600:.2f} h",
        ]
        missing = [number for number in numbers if not any(number in line for line in lines)]
        assert not missing, f"{case}: {missing} are not in the lines {lines}"


@given(batches=st.sampled_from([999, 2100, 5003]), epochs=st.integers(1, 2))
@example(batches=5003, epochs=1)
def falsify_tokens_of_many_batches_are_planned(subject: Any, batches: int, epochs: int) -> None:
    """Of more than 1,000 batches, the plan counts a sample. Here all batches have 7 tokens, so the result is exact."""
    with scratch() as directory:
        settings = small(directory, out=directory / "out", length=8, batch_size=1, epochs=epochs)
        (directory / "text").write_bytes(bytes(-(-(7 * batches + 1) * 10 // 9)))  # a tenth is held back
        planned = subject.plan(settings)
    case = f"{epochs} epochs of {batches} batches of 7 tokens"
    assert_equal(f"steps of {case}", planned.steps, epochs * batches)
    assert_equal(f"predicted tokens of {case}", planned.predicted_tokens, 7 * epochs * batches)


@given(ranks=st.integers(1, 9), layers=st.integers(1, 2), width=st.sampled_from([16, 48]))
@example(ranks=3, layers=1, width=16)
def falsify_first_rank_has_the_largest_shard(subject: Any, ranks: int, layers: int, width: int) -> None:
    """FSDP2 divides parameters as `torch.chunk` does; buffers and numbers of steps are on every rank."""
    with torch.device("meta"):
        student = Decoder(DecoderConfig(vocab_size=250, layers=layers, width=width, heads=1))
        student.register_buffer("table", torch.empty(10, 3))
    planned, notes = subject.trained_bytes(student, lambda: torch.optim.AdamW(student.parameters()), ranks=ranks)
    shards = sum(parameter.chunk(ranks)[0].numel() * 4 for parameter in student.parameters())
    counts = 4 * len(list(student.parameters()))
    expected = {"weights": shards + 4 * 30, "gradients": shards, "optimizer state": 2 * shards + counts}
    assert_equal(f"bytes of the first of {ranks} ranks", (planned, notes), (expected, []))


PRETRAINED: dict[str, Any] = {"lr": 2e-5, "clip": 1.0, "warmup": 0.03, "length": 1024, "batch_size": 8, "epochs": 3}
PRETRAINED |= {"save_every": 500}
CHOSEN: dict[str, Any] = {"lr": 3e-3, "clip": 0.5, "warmup": 50, "length": 64, "batch_size": 2, "epochs": 1}
CHOSEN |= {"save_every": 5000, "dtype": "float64"}


ATTEMPT: dict[str, Any] = {"force": True, "rewind": True, "trace": Path("trace"), "project_to_steps": 7}
ATTEMPT |= {"resume": Path("latest"), "max_steps": 3}
"""Settings of a single attempt, which a checkpoint does not store."""


@given(
    chosen=st.sets(st.sampled_from(sorted(CHOSEN))),
    positions=st.sampled_from([None, 128, 1024, 40960]),
    key=st.sampled_from(["max_position_embeddings", "n_positions", "n_ctx", "seq_length"]),
    nested=st.booleans(),
    kind=st.sampled_from(["weights", "adapter", "configuration", "decoder"]),
    gpu=st.sampled_from(["none", "with bfloat16", "without bfloat16"]),
    file=st.sampled_from(["model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin"]),
)
def falsify_defaults_are_those_of_what_is_trained(
    subject: Any,
    chosen: set[str],
    positions: int | None,
    key: str,
    nested: bool,
    kind: str,
    gpu: str,
    file: str,
) -> None:
    """gpu: whether the run is on a GPU, which need not exist, and whether the GPU supports bfloat16."""
    has_bfloat16 = gpu == "with bfloat16"
    cuda = {"is_available": lambda: True, "is_bf16_supported": lambda: has_bfloat16}
    with scratch() as directory, mock.patch.multiple(torch.cuda, **cuda):
        sizes = {} if positions is None else {key: positions}
        content = {"model_type": "llama", **({"text_config": sizes} if nested else sizes)}
        (directory / "config.json").write_text(json.dumps(content))
        if kind in ("weights", "adapter"):
            (directory / file).touch()
        values: dict[str, Any] = {name: CHOSEN[name] for name in chosen} | {
            "device": "cpu" if gpu == "none" else "cuda"
        }
        values |= {} if kind == "decoder" else {"student": directory}
        values |= {"lora": 4} if kind == "adapter" else {}
        settings = Settings(**values)
        expected = settings.flat()
        if kind in ("weights", "adapter"):
            defaults = PRETRAINED | ({"lr": 2e-4} if kind == "adapter" else {})
            defaults |= {"length": min(1024, positions or 1024), "dtype": "bfloat16" if has_bfloat16 else "float32"}
            expected |= {name: value for name, value in defaults.items() if name not in chosen}
        case = (
            f"settings of {kind} {file} with the configuration {content}, GPU: {gpu}, with values for {sorted(chosen)}"
        )
        seen = subject.with_defaults(settings).flat()
        assert_equal(f"names of the {case}", seen.keys(), expected.keys())
        changed = [name for name in seen if seen[name] != expected[name]]
        assert not changed, f"{case}: {[f'{name} is {seen[name]!r}; not {expected[name]!r}' for name in changed]}"
        settings = settings.replace(out=directory / "out")
        assert_equal("settings without a checkpoint to resume", subject.latest_settings(settings), settings)
        all_set = settings.replace(**ATTEMPT, callbacks="callbacks.py", parts="parts:Parts")
        names = {name for name, value in all_set.json_values().items() if value is not None}
        kept = subject.kept_settings(all_set)
        assert_equal("settings that a checkpoint lacks", sorted(names - kept.keys()), sorted({"out", *ATTEMPT}))


@given(share=st.floats(1e-6, 1, exclude_max=True), planned=st.integers(1, 10**6), steps=st.integers(0, 10**6))
@example(share=0.03, planned=1000, steps=1)
@example(share=0.5, planned=1, steps=0)
def falsify_share_of_the_steps_is_rounded_up(subject: Any, share: float, planned: int, steps: int) -> None:
    warmup = subject.warmup_steps(share, planned)
    assert type(warmup) is int, f"warmup of {share} * {planned}: {warmup!r}; expected an int"
    product = share * planned
    assert product - 1e-6 <= warmup < product + 1, f"{share} of {planned} steps: {warmup}; not {product}, rounded up"
    assert_equal("warmup of an integer number of steps", subject.warmup_steps(steps, planned), steps)


VALUES: dict[str, Any] = {
    "temperature": 3.0,
    "ce_weight": 0.5,
    "lr": 0.01,
    "warmup": 0.25,
    "epochs": 2,
    "clip": 0.1,
    "schedule": "linear",
    "accumulate": 2,
    "documents": "pad",
    "seed": 3,
    "keep": 0,
    "lr_end": 0.0,
    "optimizer_options": '{"weight_decay": 0.5}',
}
CHANGES: dict[str, Any] = {
    "temperature": 7.0,
    "ce_weight": 0.9,
    "lr": 0.5,
    "warmup": 7,
    "epochs": 5,
    "clip": 9.0,
    "schedule": "wsd",
    "accumulate": 3,
    "documents": "pack",
    "seed": 11,
    "optimizer_options": '{"weight_decay": 0.25}',
}


@given(names=st.sets(st.sampled_from(sorted(VALUES)), min_size=1))
@example(names={"temperature", "lr", "warmup", "keep", "lr_end"})
def falsify_resumed_run_has_the_settings_of_its_checkpoint(subject: Any, names: set[str]) -> None:
    with scratch() as directory:
        chosen = {name: VALUES[name] for name in names} | {"save_every": 1, "log_every": 2}
        outputs = ("uninterrupted", "interrupted")
        uninterrupted, interrupted = (small(directory, out=directory / name, **chosen) for name in outputs)
        write_text(directory)
        run(subject, uninterrupted)
        run(subject, interrupted.replace(max_steps=1))
        resumed = Settings(out=directory / "interrupted", resume=Path("latest"), force=True)
        message = refusal(lambda: run(subject, resumed.replace(**CHANGES)), DriftError)
        unnamed = [name for name in CHANGES if f" {name} was " not in message]
        assert not unnamed, f"resumed with other values for {sorted(CHANGES)}: {message!r} does not name {unnamed}"
        run(subject, resumed.replace(log_every=1))
        expected, seen = (json.loads((directory / name / "manifest.json").read_text())["settings"] for name in outputs)
        for name in sorted({*chosen, "teacher_steps"} - {"log_every"}):
            assert_equal(f"{name} of the resumed run", seen[name], expected[name])
        assert_equal("log_every of a run that is resumed with 1", seen["log_every"], 1)
        files = [(directory / name / "model.safetensors").read_bytes() for name in outputs]
        assert files[0] == files[1], f"with values for {sorted(names)}, the resumed run has other weights"
