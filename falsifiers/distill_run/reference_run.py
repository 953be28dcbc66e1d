"""A whole distillation on real English text, what it did by hooks of torch, and expected values from its files alone.

The subject has `distill`, as `reference_trainer.pipeline.distill` does. Predicates compare.
"""

import hashlib
import io
import math
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import reference_trainer
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.run_record import RunRecord
from reference_trainer.data.text import packaged_text
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import heads_for

SHAPE = {"length": 32, "batch_size": 8, "layers": 1, "width": 32, "teacher_layers": 2, "teacher_width": 64}
HEADS = {"student": 1, "teacher": 2}  # about 32 features to a head
CHOSEN = {"temperature": 3.0, "ce_weight": 0.2, "kd_weight": 0.7, "lr": 3e-3, "warmup": 7, "save_every": 0}
COMPARED_BYTES = 3000


@dataclass(slots=True)
class Observed:
    """Observations of torch's hooks: learning rates and parameters of each optimizer step, and CUDA seeds."""

    steps: list[tuple[list[float], list[Tensor]]] = field(default_factory=list)
    seeded: list[int] = field(default_factory=list)

    def note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        groups = optimizer.param_groups
        self.steps.append(([group["lr"] for group in groups], [p for group in groups for p in group["params"]]))


@contextmanager
def _observing() -> Iterator[Observed]:
    observed = Observed()
    seed = observed.seeded.append
    patched = mock.patch.multiple(torch.cuda, manual_seed=seed, manual_seed_all=seed)
    with register_optimizer_step_post_hook(observed.note), patched:
        yield observed


def distil(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    steps: int,
    teacher_steps: int,
    repeated_steps: int,
    text_bytes: int,
    seed: int,
) -> dict[str, Any]:
    """Distil once for `steps` steps, then five times for `repeated_steps`, to compare seeds and origins of teachers.

    The text is the first `text_bytes` of the frozen one; a few thousand are enough for the comparisons.
    """
    del trace  # claimed in other contracts
    usual: dict[str, Any] = {
        "device": device,
        "data": _text(directory, text_bytes),
        "teacher_steps": teacher_steps,
        "seed": seed,
    }
    settings = _settings(directory, "out", max_steps=steps, **usual)
    before = _process_state(device)
    with _observing() as observed:
        result = subject.distill(settings, lines=reference_trainer.Lines(io.StringIO()))
    facts = _facts(settings, result, observed)
    save_file(_untrained(settings).state_dict(), directory / "untrained.safetensors")
    few = {"max_steps": repeated_steps, "teacher_steps": repeated_steps, "data": _text(directory, COMPARED_BYTES)}
    facts["repeated"] = _repeated(subject, directory, usual | few, seed) if repeated_steps else {}
    facts["state"] = {"before": before, "after": _process_state(device), "seeded": observed.seeded}
    return facts


def _text(directory: Path, text_bytes: int) -> str:
    path = directory / f"text-{text_bytes}"
    path.write_bytes(packaged_text()[:text_bytes])
    return str(path)


def _settings(directory: Path, name: str, *, cache: str = "cache", **changes: Any) -> reference_trainer.Settings:
    """Return settings with one thread: models of this size gain nothing from more, and lose much on shared cores."""
    chosen = {**SHAPE, **CHOSEN, **changes, "data_share": 1.0, "log_every": 0, "threads": 1}
    return reference_trainer.Settings(out=directory / name, teacher_cache=directory / cache, **chosen)


def _untrained(settings: reference_trainer.Settings) -> nn.Module:
    shape = {
        "layers": settings.student.layers,
        "width": settings.student.width,
        "heads": heads_for(settings.student.width),
    }
    return new_decoder(DecoderConfig(vocab_size=256, **shape), settings.run.seed)


def _repeated(subject: Any, directory: Path, usual: dict[str, Any], seed: int) -> dict[str, float]:
    """Return the distances of other runs' ends from the first run's, relative to the distance that the first moved."""
    # Another seed in between, to detect state that a process keeps.
    runs = {"first": ("cache-1", seed), "other": ("cache-2", seed + 1), "trained": ("cache-3", seed)}
    runs |= {"cached": ("cache-1", seed), "given": ("cache-4", seed)}
    ends: dict[str, Tensor] = {}
    for name, (cache, run_seed) in runs.items():
        origin = {"teacher": next((directory / "cache-1").iterdir())} if name == "given" else {}
        settings = _settings(directory, name, cache=cache, **{**usual, "seed": run_seed}, **origin)
        with torch.random.fork_rng(devices=[]):
            torch.rand(len(ends))  # so that no run starts from the same random state
            ends[name] = _flat(subject.distill(settings, lines=reference_trainer.Lines(io.StringIO())).student)
    start = _flat(_untrained(_settings(directory, "first", **usual)))
    moved = max(float((ends["first"] - start).norm()), 1e-30)
    return {name: float((end - ends["first"]).norm()) / moved for name, end in ends.items()}


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([value.detach().cpu().double().flatten() for value in module.state_dict().values()])


def _facts(settings: reference_trainer.Settings, result: Any, observed: Observed) -> dict[str, Any]:
    """Return the observations of a run that need its objects, as JSON."""
    teacher, (cached,) = result.teacher, settings.teacher.cache.iterdir()
    text = reference_trainer.read_text(settings.data.path, settings.data.length)
    sequences = reference_trainer.Sequences(
        bytes_N=text.training,
        length=settings.data.length,
        batch_size=settings.data.batch_size,
        device=torch.device("cpu"),
    )
    order = reference_trainer.epoch_order(settings.run.seed, 1, len(sequences))
    students = {id(p) for p in result.student.parameters()}
    names = {id(p): f"the teacher's {name}" for name, p in teacher.named_parameters()}
    steps = [step for step in observed.steps if any(id(p) in students for p in step[1])]
    optimized = {id(p) for _, parameters in steps for p in parameters}
    return {
        "data": str(settings.data.path),
        "epochs": settings.schedule.epochs,
        "train": {name: getattr(result.train, name) for name in ("initial_loss", "final_loss")},
        "held_back": {name: [total.sum, total.count] for name, total in result.held_back.items()},
        "first_batch": sequences.batch(order, 1).tokens.tolist(),
        "optimizer": {
            "rates": [rate for rates, _ in steps for rate in dict.fromkeys(rates)],  # equal in all groups
            "teacher_rates": [rates[0] for rates, held in observed.steps if not students & {*map(id, held)}],
            "strangers": sorted(names.get(key, "another model's") for key in optimized - students),
        },
        "student": digests(result.student.state_dict()),
        "teacher": {
            "weights": digests(teacher.state_dict()),
            "cached": digests(reference_trainer.load_decoder(cached).state_dict()),
            "with_gradient": [name for name, p in teacher.named_parameters() if p.grad is not None],
        },
        "cached": str(cached.relative_to(settings.teacher.cache.parent)),
    }


def digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """SHA-256 of the dtype and the bytes of every tensor."""
    return {name: _digest(value) for name, value in tensors.items()}


def _digest(value: Tensor) -> str:
    raw = value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{value.dtype}{list(value.shape)}".encode() + raw).hexdigest()


def _process_state(device: str) -> dict[str, Any]:
    """Return the state that a library has to restore for its caller."""
    on_device = torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.empty(0, dtype=torch.uint8)
    # Read after the line above, which initialises CUDA: PyTorch then sets CUDA_MODULE_LOADING for the whole process. It
    # sets a variable TORCH... when it first compiles anything.
    environment = sorted(pair for pair in os.environ.items() if not pair[0].startswith("TORCH"))
    cudnn = torch.backends.cudnn
    return {
        "random numbers of torch": _digest(torch.get_rng_state()),
        "random numbers of the device": _digest(on_device),
        "random numbers of Python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
        "random numbers of NumPy": hashlib.sha256(repr(np.random.get_state()).encode()).hexdigest(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cuDNN": [cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32],
        "signal handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "working directory": str(Path.cwd()),
        "environment": hashlib.sha256(repr(environment).encode()).hexdigest(),
    }


def _sequences(run: RunRecord) -> tuple[oracle.Array, oracle.Array]:
    """Return the sequences of the training text and of the last tenth, rounded up. Neighbours share a byte."""
    text, step = Path(run.result["data"]).read_bytes(), SHAPE["length"] - 1
    cut = len(text) - -(-len(text) // 10)
    training, held_back = (
        np.array([list(part[k * step :][: step + 1]) for k in range((len(part) - 1) // step)])
        for part in (text[:cut], text[cut:])
    )
    return training, held_back


def weights_of(run: RunRecord, model: str) -> dict[str, oracle.Array]:
    if model == "untrained":
        tensors = load_file(run.directory / "untrained.safetensors")
        return {name: value.double().numpy() for name, value in tensors.items()}
    return oracle.weights_in(run.directory / (run.result["cached"] if model == "teacher" else "out"))


def held_back_of(run: RunRecord, student: str) -> tuple[dict[str, float], int]:
    """Return sums in nats over the held-back sequences, in float64 and from files, and the number of their bytes."""
    weights, teacher, (_, tokens) = weights_of(run, student), weights_of(run, "teacher"), _sequences(run)
    sums = [
        oracle.losses(oracle.logits(weights, 1, part), oracle.logits(teacher, HEADS["teacher"], part), part)
        for part in oracle.chunks(tokens)
    ]
    return {"hard_loss": math.fsum(x for x, _ in sums), "kl_at_1": math.fsum(x for _, x in sums)}, tokens[:, 1:].size


def steps_per_epoch(run: RunRecord) -> int:
    return -(-len(_sequences(run)[0]) // SHAPE["batch_size"])
