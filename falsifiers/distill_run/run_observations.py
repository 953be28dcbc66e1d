"""Observe a distillation by hooks of torch, in the process and in files; expected values from the files alone."""

import hashlib
import importlib
import math
import os
import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

import reference_trainer
from falsifiers.support import decoder_oracle as oracle


@dataclass(slots=True)
class Seen:
    """Observations of torch's hooks: learning rates and parameters of each optimizer step, and CUDA seeds."""

    steps: list[tuple[list[float], list[Tensor]]] = field(default_factory=list)
    seeded: list[int] = field(default_factory=list)

    def note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        groups = optimizer.param_groups
        self.steps.append(([group["lr"] for group in groups], [p for group in groups for p in group["params"]]))


@contextmanager
def watching() -> Iterator[Seen]:
    seen = Seen()
    patched = mock.patch.object(torch.cuda, "manual_seed_all", seen.seeded.append)
    with register_optimizer_step_post_hook(seen.note), patched:
        yield seen


def facts_of(settings: Any, result: Any, seen: Seen) -> dict[str, Any]:
    trained, (cached,) = result.train, settings.teacher_cache.iterdir()
    teacher = result.teacher
    return {
        "settings": {name: _plain(value) for name, value in settings},
        "train": {name: getattr(trained, name) for name in ("initial_loss", "final_loss")},
        "held_back": {name: [total.sum, total.count] for name, total in result.held_back.items()},
        "first_batch": _first_batch(settings),
        "optimizer": _optimized(seen, result),
        "student": digests(result.student.state_dict()),
        "teacher": {
            "weights": digests(teacher.state_dict()),
            "kept": digests(reference_trainer.load_decoder(cached).state_dict()),
            "with_gradient": [name for name, p in teacher.named_parameters() if p.grad is not None],
        },
        "cached": str(cached.relative_to(settings.teacher_cache.parent)),
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _first_batch(settings: Any) -> list[list[int]]:
    text = reference_trainer.read_text(settings.data, settings.length)
    part = {"length": settings.length, "batch_size": settings.batch_size, "device": torch.device("cpu")}
    sequences = reference_trainer.Sequences(bytes_N=text.training, **part)
    rows: list[list[int]] = sequences.batch(
        reference_trainer.epoch_order(settings.seed, 1, len(sequences)), 1
    ).tokens.tolist()
    return rows


def _optimized(seen: Seen, result: Any) -> dict[str, Any]:
    """Return the rates of each optimizer, and what the student's held that is not the student's."""
    own = {id(p) for p in result.student.parameters()}
    others = {id(p): f"the teacher's {name}" for name, p in result.teacher.named_parameters()}
    steps = [step for step in seen.steps if any(id(p) in own for p in step[1])]
    held = {id(p) for _, parameters in steps for p in parameters}
    return {
        "rates": [rate for rates, _ in steps for rate in dict.fromkeys(rates)],  # equal in all groups
        "teacher_rates": [rates[0] for rates, held in seen.steps if not any(id(p) in own for p in held)],
        "strangers": sorted(others.get(key, "another model's") for key in held - own),
    }


def digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """SHA-256 of the dtype and the bytes of every tensor."""
    return {name: _digest(value) for name, value in tensors.items()}


def _digest(value: Tensor) -> str:
    raw = value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(f"{value.dtype}{list(value.shape)}".encode() + raw).hexdigest()


def process_state(device: str) -> dict[str, Any]:
    """Return the state that a library has to restore for its caller."""
    numpy = importlib.import_module("numpy")
    on_device = torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.empty(0, dtype=torch.uint8)
    # Read after the line above, which initialises CUDA: PyTorch then sets CUDA_MODULE_LOADING for the whole process. It
    # sets a variable TORCH... when it first compiles anything.
    environment = sorted(pair for pair in os.environ.items() if not pair[0].startswith("TORCH"))
    return {
        "random numbers of torch": _digest(torch.get_rng_state()),
        "random numbers of the device": _digest(on_device),
        "random numbers of Python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
        "random numbers of NumPy": hashlib.sha256(repr(numpy.random.get_state()).encode()).hexdigest(),
        "default dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cuDNN": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32],
        "signal handlers": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
        "working directory": str(Path.cwd()),
        "environment": hashlib.sha256(repr(environment).encode()).hexdigest(),
    }


SHAPE = {"length": 32, "batch_size": 8, "layers": 1, "width": 32, "teacher_layers": 2, "teacher_width": 64}
LENGTH = SHAPE["length"]
HEADS = {"student": 1, "teacher": 2}  # about 32 features to a head


def parts_of(run: Any) -> tuple[bytes, bytes]:
    """Return the training text, and the last tenth, rounded up."""
    text = Path(run.result["settings"]["data"]).read_bytes()
    cut = len(text) - -(-len(text) // 10)
    return text[:cut], text[cut:]


def sequences_of(part: bytes) -> oracle.Array:
    count = (len(part) - 1) // (LENGTH - 1)
    return np.array([list(part[k * (LENGTH - 1) :][:LENGTH]) for k in range(count)])


def weights_of(run: Any, whose: str) -> dict[str, oracle.Array]:
    if whose == "untrained":
        read = load_file(run.directory / "untrained.safetensors")
        return {name: value.double().numpy() for name, value in read.items()}
    return oracle.weights_in(run.directory / (run.result["cached"] if whose == "teacher" else "out"))


def held_back_of(run: Any, student: str) -> tuple[dict[str, float], int]:
    """Return sums in nats over the held-back sequences, in float64 and from files; and over how many bytes."""
    weights, teacher = weights_of(run, student), weights_of(run, "teacher")
    tokens = sequences_of(parts_of(run)[1])
    sums = [
        oracle.losses(oracle.logits(weights, 1, part), oracle.logits(teacher, HEADS["teacher"], part), part)
        for part in oracle.chunks(tokens)
    ]
    return {"hard_loss": math.fsum(x for x, _ in sums), "kl_at_1": math.fsum(x for _, x in sums)}, tokens[:, 1:].size


def batches_of(run: Any) -> list[int]:
    """How many sequences each batch of an epoch has."""
    count = (len(parts_of(run)[0]) - 1) // (LENGTH - 1)
    return [min(SHAPE["batch_size"], count - start) for start in range(0, count, SHAPE["batch_size"])]
