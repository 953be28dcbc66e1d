"""Small distillations: their settings and texts, callbacks that act in a hook, and the files and lines they leave."""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import reference_trainer
from reference_trainer.callbacks.base import Callback
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.storage.export import save_decoder


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a new directory, and remove it at the end. A faulty subject may still write to it at that time."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file, by default of its last byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def cut(path: Path, part: float = 0.5) -> None:
    """Keep the first part of a file, given as a fraction of its size."""
    os.truncate(path, int(path.stat().st_size * part))


def reconfigure(path: Path, **changes: Any) -> None:
    """Change entries of a JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def held(path: Path) -> list[int]:
    """Return the descriptors of this process open on the path or below it, including deleted files."""
    descriptors = {int(link.name): _place(link) for link in Path("/proc/self/fd").iterdir()}
    return sorted(number for number, place in descriptors.items() if place and place.is_relative_to(path.resolve()))


def _place(descriptor: Path) -> Path | None:
    try:
        return Path(str(descriptor.readlink()).removesuffix(" (deleted)"))
    except OSError:  # the descriptor with which the directory was listed
        return None


# The settings of a run of three steps.
SMALL: dict[str, Any] = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 1}
SMALL |= {"length": 8, "batch_size": 4, "epochs": 1, "save_every": 0, "device": "cpu"}
SMALL |= {"temperature": 2.0, "ce_weight": 0.3, "kd_weight": 0.7}


def small(directory: Path, **others: Any) -> Any:
    """Return the settings of a run of three steps on a text of 100 bytes in `directory`.

    Args:
        directory: The directory of the text and of the cache of the teacher.
        others: Settings that replace or extend `SMALL`.
    """
    path = directory / "text"
    path.write_bytes(bytes(range(100)))
    return reference_trainer.Settings(**{**SMALL, "data": path, "teacher_cache": directory / "cache", **others})


def run(subject: Any, settings: Any, **others: Any) -> Any:
    """Return the result of a run without its output."""
    return subject.distill(settings, lines=reference_trainer.Lines(io.StringIO()), **others)


def written_model(directory: Path, tokens: int = 256, seed: int = 0) -> Path:
    """Write a decoder of the size in `SMALL`, and return its directory."""
    config = DecoderConfig(vocab_size=tokens, layers=1, width=16, heads=1)
    (directory / "teacher").mkdir()
    save_decoder(new_decoder(config, seed), directory / "teacher", {})
    return directory / "teacher"


def file_digests(directory: Path) -> dict[str, str]:
    """Return the digests of the files below a directory by relative path; "a directory" for a directory."""
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "a directory"
        for p in sorted(directory.rglob("*"))
    }


@contextmanager
def unchanged_files(directory: Path, case: str) -> Iterator[None]:
    """Assert that the body changes no file below the directory."""
    before = file_digests(directory)
    yield
    changed = sorted(set(before.items()) ^ set(file_digests(directory).items()))
    assert not changed, f"{case}: the run changed {changed}; expected no change"


def refused(subject: Any, settings: Any, **others: Any) -> str:
    """Return the message of a refused run; empty if it is accepted."""
    try:
        run(subject, settings, **others)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def acting(act: Callable[[], Any], hook: str = "on_step_end", step: int | None = None) -> Callback:
    """Return a callback whose hook returns act().

    Args:
        act: The function to call.
        hook: The name of the hook.
        step: The step in which `act` is called; None for every step.
    """

    def called(self: Any, context: Any) -> Any:
        return act() if step in (None, context.step) else None

    return type("Acting", (Callback,), {hook: called})()


TIMES = frozenset(["elapsed_s", "steps_per_s", "tokens_per_s", "flops_per_s"])


def without_times(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line or a result, and its metrics, without the numbers that depend on time."""
    others = {name: value for name, value in entry.items() if name not in TIMES}
    return others | {"metrics": {name: value for name, value in entry["metrics"].items() if name not in TIMES}}


def lines(directory: Path, out: str) -> list[dict[str, Any]]:
    """Return the lines of the metrics file of an output, without the numbers that depend on time."""
    return [without_times(json.loads(line)) for line in (directory / out / "metrics.jsonl").read_text().splitlines()]


def assert_same_lines(when: str, directory: Path, out: str, uninterrupted: str) -> None:
    """Assert equal metrics files of two outputs; the message has the first line that differs."""
    assert_same_history(f"{when}, the metrics file of {out}", lines(directory, out), lines(directory, uninterrupted))


def assert_same_history(name: str, seen: Sequence[Any], expected: Sequence[Any]) -> None:
    """Assert equal entries; the message has the first one that differs, by its differing values."""
    for number, (ours, theirs) in enumerate(zip_longest(seen, expected), start=1):
        assert ours == theirs, f"{name} differs in entry {number} of {len(expected)}: {difference(ours, theirs)}"


def difference(seen: Any, expected: Any, name: str = "") -> str:
    """Describe the difference of two values: the differing entries of dictionaries, otherwise both values."""
    if isinstance(seen, dict) and isinstance(expected, dict):
        wrong = [key for key in {**expected, **seen} if seen.get(key) != expected.get(key)]
        step = f"step {expected['step']}: " if "step" in expected else ""
        return step + "; ".join(difference(seen.get(key), expected.get(key), f"{name}{key} ") for key in wrong)
    return f"{name}is {seen!r}; expected {expected!r}"


@contextmanager
def file_of(content: bytes, name: bytes = b"text") -> Iterator[Path]:
    """Yield the path of a temporary file."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(os.fsdecode(os.fsencode(directory) + b"/" + name))
        path.write_bytes(content)
        yield path


def sequences_of(subject: Any, text: Tensor, length: int, batch_size: int = 3, device: str = "cpu") -> Any:
    return subject.Sequences(bytes_N=text, length=length, batch_size=batch_size, device=torch.device(device))


def epoch(subject: Any, sequences: Any, seed: int = 0, number: int = 1) -> list[Any]:
    """Return the batches of an epoch, as a run asks for them."""
    order = subject.epoch_order(seed, number, len(sequences))
    return [sequences.batch(order, position) for position in range(1, sequences.batches + 1)]
