"""A whole distillation on real English text, from settings to files.

The subject has `distill`, as `reference_trainer.pipeline.distill` does. `run_observations.py` collects what the run
did, and what it should do; the predicates compare.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import reference_trainer
from falsifiers.distill_run.run_observations import SHAPE, facts_of, process_state, watching
from reference_trainer.data.text import packaged_text
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.teachers import heads_for

CHOSEN = {"temperature": 3.0, "ce_weight": 0.2, "kd_weight": 0.7, "lr": 3e-3, "warmup": 7, "save_every": 0}
COMPARED_BYTES = 3000


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: models of this size gain nothing from more, and lose much on shared cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
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
    own = {"seed": seed, "teacher_steps": teacher_steps, "device": device, "data": _text(directory, text_bytes)}
    settings = _settings(directory, "out", max_steps=steps, **own)
    before = process_state(device)
    with watching() as seen:
        result = subject.distill(settings, lines=reference_trainer.Lines(io.StringIO()))
    facts = facts_of(settings, result, seen)
    save_file(_untrained(settings).state_dict(), directory / "untrained.safetensors")
    few: dict[str, Any] = {
        **own,
        "data": _text(directory, COMPARED_BYTES),
        "max_steps": repeated_steps,
        "teacher_steps": repeated_steps,
    }
    facts["repeated"] = _repeated(subject, directory, few, seed) if repeated_steps else {}
    facts["state"] = {"before": before, "after": process_state(device), "seeded": seen.seeded}
    return facts


def _text(directory: Path, text_bytes: int) -> str:
    path = directory / f"text-{text_bytes}"
    path.write_bytes(packaged_text()[:text_bytes])
    return str(path)


def _settings(directory: Path, name: str, *, cache: str = "cache", **others: Any) -> Any:
    chosen = {**SHAPE, **CHOSEN, **others, "data_share": 1.0, "log_every": 0}
    return reference_trainer.Settings(out=directory / name, teacher_cache=directory / cache, **chosen)


def _untrained(settings: Any) -> nn.Module:
    shape = {"layers": settings.layers, "width": settings.width, "heads": heads_for(settings.width)}
    student: nn.Module = new_decoder(DecoderConfig(vocab_size=256, **shape), settings.seed)
    return student


def _repeated(subject: Any, directory: Path, own: dict[str, Any], seed: int) -> dict[str, float]:
    """Return how far other runs end from the first, relative to the distance that the first moved."""
    # Another seed in between, to detect state that a process keeps.
    runs = {"first": ("cache-1", seed), "other": ("cache-2", seed + 1), "trained": ("cache-3", seed)}
    runs |= {"cached": ("cache-1", seed), "given": ("cache-4", seed)}
    ends: dict[str, Tensor] = {}
    for name, (cache, other_seed) in runs.items():
        origin = {"teacher": next((directory / "cache-1").iterdir())} if name == "given" else {}
        settings = _settings(directory, name, cache=cache, **{**own, "seed": other_seed}, **origin)
        with torch.random.fork_rng(devices=[]):
            torch.rand(len(ends))  # so that no run starts from the same random state
            ends[name] = _flat(subject.distill(settings, lines=reference_trainer.Lines(io.StringIO())).student)
    start = _flat(_untrained(_settings(directory, "first", **own)))
    way = float((ends["first"] - start).norm())
    return {name: float((end - ends["first"]).norm()) / max(way, 1e-30) for name, end in ends.items()}


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([value.detach().cpu().double().flatten() for value in module.state_dict().values()])
