"""Faults of the evaluation, as wrong versions of `evaluate` and of its arguments."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from hashlib import sha256
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from unittest import mock


def _part(sequences: Any, first: int, end: int) -> Any:
    """Return the sequences with numbers from `first` to `end`, which share a byte with their neighbours."""
    step = sequences.length - 1
    return replace(sequences, bytes_N=sequences.bytes_N[first * step : end * step + 1])


def mean_of_batch_means(original: Any, teacher: Any, student: Any, sequences: Any, *args: Any, **named: Any) -> Any:
    size, metrics = sequences.batch_size, dict[str, Any]()
    for start in range(0, len(sequences), size):
        part = _part(sequences, start, min(start + size, len(sequences)))
        for name, term in original(teacher, student, part, *args, **named).items():
            before = metrics.get(name, SimpleNamespace(sum=0.0, count=0))
            weighted = term.sum / len(part) * size
            metrics[name] = SimpleNamespace(sum=before.sum + weighted, count=before.count + term.count)
    return metrics


def padding_rank_scored(original: Any, *args: Any, parallel: Any = None, **named: Any) -> Any:
    if parallel is None:
        return original(*args, **named)
    teacher, student, sequences, weights = args

    class Repeated:
        device, batches = sequences.device, -(-sequences.batches // parallel.world_size) * parallel.world_size

        def __len__(self) -> int:
            return len(sequences)

        def batch(self, order: Any, position: int) -> Any:
            return sequences.batch(order, (position - 1) % sequences.batches + 1)

    return original(teacher, student, Repeated(), weights, parallel=parallel, **named)


def last_evaluation_batch_dropped(
    original: Any, teacher: Any, student: Any, rows: Any, *args: Any, **named: Any
) -> Any:
    full = len(rows) // rows.batch_size * rows.batch_size
    return original(teacher, student, _part(rows, 0, full or len(rows)), *args, **named)


def student_left_in_eval_mode(original: Any, module: Any) -> Any:
    module.eval()
    return nullcontext()


@contextmanager
def student_in_eval_mode_after_an_exception(original: Any, module: Any) -> Iterator[None]:
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    yield
    for part, training in before:
        part.training = training


def nothing_scored_is_zero(original: Any, *args: Any, **named: Any) -> Any:
    return {"hard_loss": SimpleNamespace(sum=0.0, count=0), **original(*args, **named)}


def direction_reversed(original: Any, teacher: Any, student: Any, *args: Any, **named: Any) -> Any:
    swapped = original(student, teacher, *args, **named)
    changed = {name: swapped[name] for name in ("kl_at_1", "kl_at_T") if name in swapped}
    return original(teacher, student, *args, **named) | changed


def never_verified(directory: Any) -> None:
    """Take every model for whole."""


def fields_joined(identity: Any) -> str:
    return sha256("|".join(str(identity[name]) for name in sorted(identity)).encode()).hexdigest()


def data_by_its_path(original: Any, run: Any, **named: Any) -> Any:
    return replace(original(run, **named), data=str(run.settings.data.path))


def top_k_not_identified(original: Any, run: Any, **named: Any) -> Any:
    return original(run, **{**named, "top_k": None})


def produced_by_each(original: Any, cache: Any, *args: Any) -> Any:
    cache.mkdir(exist_ok=True)
    return original(type(cache)(mkdtemp(dir=cache)), *args)


def hit_not_verified(original: Any, cache: Any, kind: str, identity: Any, produce: Any) -> Any:
    entries = [path for path in cache.iterdir() if path.name.startswith(f"{kind}-")] if cache.exists() else []
    return entries[0] if entries else original(cache, kind, identity, produce)


def nothing_locked(original: Any, *args: Any) -> Any:
    with mock.patch("fcntl.flock", side_effect=OSError("no locks")):
        return original(*args)


def size_as_digest(path: Any) -> str:
    return str(path.stat().st_size)


@contextmanager
def use_not_recorded(original: Any, *args: Any) -> Iterator[Any]:
    with mock.patch("os.utime"), original(*args) as entry:
        yield entry
