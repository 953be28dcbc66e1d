"""Faults of the evaluation, as wrong versions of `evaluate` and of what it is given."""

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


def mean_of_batch_means(original: Any, teacher: Any, student: Any, sequences: Any, weights: Any, **named: Any) -> Any:
    size, metrics = sequences.batch_size, dict[str, Any]()
    for start in range(0, len(sequences), size):
        part = _part(sequences, start, min(start + size, len(sequences)))
        for name, term in original(teacher, student, part, weights, **named).items():
            before = metrics.get(name, SimpleNamespace(sum=0.0, count=0))
            weighted = term.sum / len(part) * size
            metrics[name] = SimpleNamespace(sum=before.sum + weighted, count=before.count + term.count)
    return metrics


def padding_rank_scored(
    original: Any, teacher: Any, student: Any, sequences: Any, weights: Any, *, parallel: Any = None, **named: Any
) -> Any:
    if parallel is None:
        return original(teacher, student, sequences, weights, **named)

    class Repeated:
        device, batches = sequences.device, -(-sequences.batches // parallel.world_size) * parallel.world_size

        def __len__(self) -> int:
            return len(sequences)

        def batch(self, order: Any, position: int) -> Any:
            return sequences.batch(order, (position - 1) % sequences.batches + 1)

    return original(teacher, student, Repeated(), weights, parallel=parallel, **named)


def last_evaluation_batch_dropped(
    original: Any, teacher: Any, student: Any, sequences: Any, weights: Any, **named: Any
) -> Any:
    full = len(sequences) // sequences.batch_size * sequences.batch_size
    return original(teacher, student, _part(sequences, 0, full or len(sequences)), weights, **named)


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


def nothing_scored_is_zero(
    original: Any, teacher: Any, student: Any, sequences: Any, weights: Any, **named: Any
) -> Any:
    nothing = SimpleNamespace(sum=0.0, count=0)
    return {"hard_loss": nothing, **original(teacher, student, sequences, weights, **named)}


def direction_reversed(original: Any, teacher: Any, student: Any, sequences: Any, weights: Any, **named: Any) -> Any:
    swapped = original(student, teacher, sequences, weights, **named)
    changed = {name: swapped[name] for name in ("kl_at_1", "kl_at_T") if name in swapped}
    return original(teacher, student, sequences, weights, **named) | changed


def never_verified(directory: Any) -> None:
    """Take every model for whole."""


def fields_joined(identity: Any) -> str:
    return sha256("|".join(str(identity[name]) for name in sorted(identity)).encode()).hexdigest()


def data_by_its_path(original: Any, run: Any, **named: Any) -> Any:
    return replace(original(run, **named), data=str(run.settings.data))


def top_k_not_identified(original: Any, run: Any, **named: Any) -> Any:
    return original(run, **{**named, "top_k": None})


def produced_by_each(original: Any, cache: Any, *given: Any) -> Any:
    cache.mkdir(exist_ok=True)
    return original(type(cache)(mkdtemp(dir=cache)), *given)


def hit_not_verified(original: Any, cache: Any, kind: str, identity: Any, produce: Any) -> Any:
    found = [each for each in cache.iterdir() if each.name.startswith(f"{kind}-")] if cache.exists() else []
    return found[0] if found else original(cache, kind, identity, produce)


def nothing_locked(original: Any, *given: Any) -> Any:
    with mock.patch("fcntl.flock", side_effect=OSError("no locks")):
        return original(*given)


def size_as_digest(path: Any) -> str:
    return str(path.stat().st_size)
