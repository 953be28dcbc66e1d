"""Faulty teachers, caches, keys and vocabularies, for mutants that replace a public function."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn import functional


def key_without_the_seed(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    return original(settings.replace(seed=0), digest, device, **rest)


def key_without_the_learning_rate(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    return original(settings.replace(lr=1.0), digest, device, **rest)


def key_without_the_text(original: Any, settings: Any, digest: str, device: Any, **rest: Any) -> Any:
    return original(settings, str(settings.data.path), device, **rest)


def key_of_joined_values(settings: Any, digest: str, device: Any, **rest: Any) -> str:
    names = "batch_size dtype length lr seed warmup teacher_layers teacher_steps teacher_width".split()
    values = [digest, device.type, *(settings.flat()[name] for name in names)]
    return hashlib.sha256("".join(map(str, values)).encode()).hexdigest()[:24]


def cache_used_without_its_manifest(original: Any, settings: Any, sequences: Any, digest: str, *rest: Any) -> Any:
    from reference_trainer.pipeline import teachers

    directory = _place(settings, sequences, digest)
    if (directory / "model.safetensors").exists() and not (directory / "manifest.json").exists():
        return teachers.load_teacher(directory)
    return original(settings, sequences, digest, *rest)


def _place(settings: Any, sequences: Any, digest: str) -> Path:
    from reference_trainer.pipeline import teachers

    key = teachers.teacher_key(settings, digest, sequences.device)
    return teachers.cache_directory(settings) / f"teacher-{key}"


def smoke_run_caches_its_teacher(original: Any, settings: Any, *rest: Any) -> Any:
    if settings.run.smoke is not None:
        steps = min(settings.teacher.steps, settings.run.smoke)
        settings = settings.replace(smoke=None, teacher_steps=steps)
    return original(settings, *rest)


def vocabulary_not_read(original: Any, directory: Path, *, any_vocabulary: bool = False) -> Any:
    return original(directory, any_vocabulary=True)


def _teacher(model: Any, vocab_size: int, resize: Any) -> Any:
    return SimpleNamespace(vocab_size=vocab_size, logits=lambda batch: resize(model.logits(batch)))


def _student(model: Any, vocab_size: int, resize: Any, back: Any) -> Any:
    def forward(batch: Any) -> Any:
        done = model.forward(batch)
        return SimpleNamespace(
            logits=resize(done.logits), backward=lambda gradient: done.backward(back(gradient, done.logits))
        )

    return SimpleNamespace(vocab_size=vocab_size, forward=forward)


def _widened(x: Tensor, vocab_size: int, value: float) -> Tensor:
    return functional.pad(x, (0, vocab_size - x.shape[-1]), value=value)


def padded_with_zeros(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    original(teacher, student, mode)
    size = max(teacher.vocab_size, student.vocab_size)
    return (
        _teacher(teacher, size, lambda x: _widened(x, size, 0.0)),
        _student(student, size, lambda x: _widened(x, size, 0.0), lambda g, x: g[..., : x.shape[-1]]),
    )


def bare_numbers(original: Any, *arguments: Any, **digests: str) -> Any:
    content = original(*arguments, **digests)
    held_back = {
        name: {**value, "sum": float(value["sum"]) if isinstance(value["sum"], str) else value["sum"]}
        for name, value in content["held_back"].items()
    }
    return {**content, "held_back": held_back}
