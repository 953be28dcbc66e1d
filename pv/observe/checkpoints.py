"""Records saves and loads of a training state, and kills the process after a step or inside a save on request.

A *part* of a training state is a model, an optimizer, a scheduler or a scaler. The keys of a state dictionary show
the kind of part.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor, nn

from . import frames, modes
from .sharding import is_shard
from .trace import Event, Late

if TYPE_CHECKING:
    from .observer import Observer

BARRIER_SECONDS = 30.0
"""Largest number of seconds that a rank waits for the other ranks before it is killed."""

_get_observer: Callable[[], Observer]


def saved_parts(value: object, depth: int = 0) -> dict[str, Any]:
    """Return the parts of a training state in a saved or loaded object, by kind.

    The kinds are "model", "optimizer", "scheduler" and "scaler". Four levels are searched: the first 20 elements of
    lists, and dictionaries with fewer than 200 entries.
    """
    if depth > 3:
        return {}
    if isinstance(value, nn.Module):
        return {"model": value}
    if isinstance(value, torch.optim.Optimizer):
        return {"optimizer": value}
    parts: dict[str, Any] = {}
    if isinstance(value, (list, tuple)):
        for part in value[:20]:
            parts.update(saved_parts(part, depth + 1))
        return parts
    if not isinstance(value, dict):
        return {}
    # The state dictionaries of torch have no types of their own, but their keys have never changed.
    keys = {key for key in value if isinstance(key, str)}
    if {"state", "param_groups"} <= keys:
        return {"optimizer": value}
    if {"scale", "growth_factor"} <= keys:
        return {"scaler": value}
    if "last_epoch" in keys or "_step_count" in keys:
        return {"scheduler": value}
    if value and all(isinstance(part, Tensor) for part in value.values()):
        return {"model": value}
    if len(value) < 200:
        for part in value.values():
            parts.update(saved_parts(part, depth + 1))
    return parts


MAX_CAPTURES = 20
"""Largest number of results of `Module.state_dict` that are tracked."""
MAX_VISITED = 20_000
"""Largest number of objects of a saved state that are visited."""


class Line:
    """A line of the script that calls `state_dict` of modules.

    Attributes:
        at: The line.
        steps: For every call, the number of optimizer steps before the call.
        used: The elements of `steps` for calls whose results were saved or loaded.
    """

    def __init__(self, at: str) -> None:
        self.at = at
        self.steps: set[int] = set()
        self.used: set[int] = set()


class Capture:
    """The result of `Module.state_dict`, whose tensors share the memory of the module's tensors."""

    def __init__(self, module: nn.Module, state: Any, step: int, line: Line) -> None:
        tensors = [value for value in state.values() if isinstance(value, Tensor)]
        self.module, self.state, self.step, self.line = weakref.ref(module), weakref.ref(state), step, line
        self.first = weakref.ref(tensors[0]) if tensors else None
        """The first tensor of the result. It identifies other dictionaries that contain the tensors of the result."""
        self.version = _version_of(tensors)
        self.uses: set[int] = set()
        """For every save or load of the result, the number of optimizer steps before."""

    def is_source(self, state: Mapping[str, object]) -> bool:
        """Return whether a dictionary is the result of `state_dict`, or contains the first tensor of the result."""
        if self.state() is state:
            return True
        tensor = self.first() if self.first is not None else None
        return tensor is not None and any(value is tensor for value in state.values())

    def is_alive(self) -> bool:
        """Return whether the script still references the result, or its first tensor."""
        return self.state() is not None or (self.first is not None and self.first() is not None)

    def record_use(self, step: int) -> dict[str, object]:
        """Record that the result is saved or loaded.

        Args:
            step: The number of optimizer steps before the save or load.

        Returns:
            Facts that show whether the script keeps an old state on purpose, such as the best one so far.
        """
        self.uses.add(step)
        self.line.used.add(self.step)
        module = self.module()
        return {
            "taken_at_step": self.step,
            "taken_at": self.line.at,
            "captures": len(self.line.steps),
            "unused": len(self.line.steps - self.line.used),
            "uses": len(self.uses),
            "shared": module is not None and self._is_shared(module),
        }

    def _is_shared(self, module: nn.Module) -> bool:
        # A state has detached tensors, which are not the same objects as the parameters, so addresses are compared.
        tensor = self.first() if self.first is not None else None
        places = {t.data_ptr() for t in (*module.parameters(), *module.buffers())}
        return tensor is not None and tensor.data_ptr() in places


def _version_of(tensors: list[Tensor]) -> int:
    return sum(tensor._version for tensor in tensors)


def _capture_of(observer: Observer, state: Mapping[str, object]) -> Optional[Capture]:
    """Return the last capture that is the source of a dictionary (`Capture.is_source`); None if there is none."""
    return next((capture for capture in reversed(observer.captures) if capture.is_source(state)), None)


def _states_in(value: object, depth: int = 0) -> Iterator[dict[str, Tensor]]:
    """Yield the dictionaries of tensors in a saved or loaded object, in at most four levels of dictionaries."""
    if isinstance(value, dict) and depth < 4 and len(value) < 10_000:
        if value and all(isinstance(part, Tensor) for part in value.values()):
            yield value
        else:
            for part in value.values():
                yield from _states_in(part, depth + 1)


class Saved:
    """The shapes and addresses of the tensors of a saved object, without the tensors in the state of an optimizer.

    Args:
        value: The saved object.

    Attributes:
        shapes: The number of tensors and NumPy arrays of every shape.
        places: The addresses of the dense tensors.
        is_known: Whether all tensors were found. False for bytes, and for objects that are too large or too deep.
    """

    def __init__(self, value: object) -> None:
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.places: set[int] = set()
        self.floats: Counter[tuple[int, ...]] = Counter()
        """The number of floating-point tensors of every shape, without the state of an optimizer. Arrays of NumPy and
        tensors in files of safetensors count whatever their type."""
        self.optimized: Counter[tuple[int, ...]] = Counter()
        """By shape: the number of tensors `exp_avg` and `momentum_buffer`, one per parameter, in a saved optimizer."""
        self.is_known = True
        self._visited = 0
        self._visit(value)

    def _visit(self, value: Any, depth: int = 0) -> None:
        self._visited += 1
        if depth > 6 or self._visited > MAX_VISITED:
            self.is_known = False
        elif isinstance(value, Tensor):
            self.shapes[tuple(value.shape)] += 1
            self.floats[tuple(value.shape)] += value.is_floating_point()
            if value.layout == torch.strided:
                self.places.add(value.data_ptr())
        elif isinstance(value, nn.Module):
            for tensor in (*value.parameters(), *value.buffers()):
                self._visit(tensor, depth + 1)
        elif isinstance(value, torch.optim.Optimizer):
            self._visit(value.state_dict(), depth + 1)
        elif isinstance(value, dict) and {"state", "param_groups"} <= value.keys():
            for state in value["state"].values() if isinstance(value["state"], dict) else ():
                moments = (
                    [state.get(name) for name in ("exp_avg", "momentum_buffer")] if isinstance(state, dict) else []
                )
                self.optimized.update(tuple(m.shape) for m in moments[:2] if isinstance(m, Tensor))
        elif isinstance(value, dict):
            for part in value.values():
                self._visit(part, depth + 1)
        elif isinstance(value, (list, tuple, set, deque)):
            for part in value:
                self._visit(part, depth + 1)
        elif isinstance(getattr(value, "shape", None), tuple):  # an array of NumPy
            self.shapes[value.shape] += 1
            self.floats[value.shape] += 1
        elif isinstance(value, (bytes, bytearray, io.BytesIO)):
            self.is_known = False
        elif hasattr(value, "__dict__") and not callable(value):
            self._visit(vars(value), depth + 1)


def describe_saves(observer: Observer) -> None:
    """Add the `saved` event: the parameters whose optimizer state was saved, but whose weights were not saved.

    Call this when the process ends. No event is added if no optimizer state was saved, if parameters are sharded, if
    not all saved tensors are known, or if the weights may have been saved in other shapes.
    """
    saves: list[Saved] = list(observer.saves.values())
    parameters = [p for optimizer in observer.optimizers for p in observer.parameters_of(optimizer)]
    optimized = max((saved.optimized for saved in saves), key=lambda shapes: sum(shapes.values()), default=None)
    is_unsharded = all(getattr(p, "_local_tensor", p) is p for p in parameters)
    if not optimized or not is_unsharded or not all(saved.is_known for saved in saves):
        return
    saved_shapes: Counter[tuple[int, ...]] = sum((saved.shapes for saved in saves), Counter())
    # Parameters of equal shape cannot be distinguished, so only the number of tensors of every shape is compared.
    lacking = optimized - saved_shapes
    # Weights may be saved in other shapes, such as a matrix of queries, keys and values in three parts. So add no event
    # in two cases. In the first, saved tensors with shapes that no module has contain at least as many elements as the
    # lacking parameters. In the second, the parts have the shape of a parameter, but one save has more tensors of this
    # shape than the optimizer has parameters: enough to form each lacking parameter.
    shapes = {tuple(t.shape) for module in list(observer.models) for t in (*module.parameters(), *module.buffers())}
    floats: Counter[tuple[int, ...]] = sum((saved.floats for saved in saves), Counter())
    shapes.update(optimized)
    converted = sum(math.prod(shape) * count for shape, count in floats.items() if shape not in shapes)
    if lacking and converted >= sum(math.prod(shape) * count for shape, count in lacking.items()):
        return
    surplus = [saved.floats - optimized for saved in saves]
    if lacking and all(any(_may_be_parts(extra, shape) for extra in surplus) for shape in lacking):
        return
    places = set().union(*(saved.places for saved in saves))
    names = observer.names()
    lost = [p for p in parameters if tuple(p.shape) in lacking and p.data_ptr() not in places]
    observer.add(
        "saved",
        optimized=sum(optimized.values()),
        lacking=sum(lacking.values()),
        shapes=[list(shape) for shape in lacking][:6],
        names=[names.get(id(p), f"a parameter of shape {list(p.shape)}") for p in lost][:6],
    )


def _may_be_parts(tensors: Counter[tuple[int, ...]], shape: tuple[int, ...]) -> bool:
    """Return whether two or more tensors of one shape have together as many elements as a tensor of `shape`."""
    size = math.prod(shape)
    parts = ((math.prod(part), count) for part, count in tensors.items())
    return any(0 < 2 * part <= size <= part * count and size % part == 0 for part, count in parts)


def _common_prefix(tensors: dict[str, Tensor], state: Mapping[str, object]) -> tuple[str, int]:
    """Return the most common prefix by which names in a state and in a module differ, and the number of such names.

    Args:
        tensors: The tensors of the module, by name.
        state: The state that is loaded into the module.
    """
    missing = {name for name in tensors if name not in state}
    # A prefix, such as "module." or "model.base.", has one to three parts. Either the file or the module may have it.
    # The keys of `suffixes` are pairs: a name of the module without its first `cut` parts, and `cut`.
    suffixes = {
        (name.split(".", cut)[-1], cut): name for name in missing for cut in range(1, 4) if name.count(".") >= cut
    }
    prefixes: Counter[str] = Counter()
    for name, value in state.items():
        if name in tensors or not isinstance(value, Tensor):
            continue
        for cut in range(1, 4):
            short = name.split(".", cut)[-1] if name.count(".") >= cut else ""
            match = short if short in missing else suffixes.get((name, cut))
            if match is not None and tensors[match].shape == value.shape:
                long = max(name, match, key=len)
                prefixes[long[: len(long) - min(len(name), len(match))]] += 1
                break
    return prefixes.most_common(1)[0] if prefixes else ("", 0)


def tied_names(module: nn.Module) -> list[list[str]]:
    """Return the groups of two or more names that belong to the same parameter."""
    names: dict[int, list[str]] = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _is_written(observer: Observer, module: nn.Module) -> bool:
    """Return whether the script has changed parameters in place since the last step of their optimizer.

    All parameters of every optimizer that holds parameters of the module are examined.
    """
    ids = {id(p) for p in module.parameters()}
    return any(
        state.steps and sum(p._version for p in observer.parameters_of(optimizer)) != state.written
        for optimizer, state in observer.optimizers.items()
        if ids & {id(p) for p in observer.parameters_of(optimizer)}
    )


def _record_load(
    module: nn.Module,
    state: Mapping[str, object],
    strict: bool,
    tied: list[list[str]],
    written: bool,
    version: int,
    at: str,
) -> None:
    """Add a `load` event after a call of `Module.load_state_dict`.

    Args:
        module: The module.
        state: The state that was loaded into the module.
        strict: Whether all names had to match.
        tied: The result of `tied_names` before the load.
        written: Whether the script had changed parameters in place since the last step.
        version: The sum of the version counters of the state before the load.
        at: The line of the call.
    """
    observer = _get_observer()
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    module_state = module.state_dict()
    optimized = {id(p) for o in observer.optimizers for p in observer.parameters_of(o)}
    # Shards are left out: FSDP2 copies the values of a file into the shards of the module and then loads these shards.
    same = [
        name
        for name, p in tensors.items()
        if p.numel()
        and not is_shard(p)
        and isinstance(value := state.get(name), Tensor)
        and value.data_ptr() == p.data_ptr()
    ]
    missing = [name for name in module_state if name not in state]
    unexpected = [str(name) for name in state if name not in module_state]
    tied_after = tied_names(module)
    capture = _capture_of(observer, state)
    taken_at = capture.step if capture is not None else None
    if (
        capture is None
        and len(same) == len(module_state)
        and module in observer.captured_at
        and observer.captured_at[module] < observer.steps
    ):
        # The script has built the dictionary itself, from tensors of a state that it took before the last step.
        taken_at = observer.captured_at[module]
    source = capture.record_use(observer.steps) if capture is not None else None
    changed = capture is not None and version != capture.version
    prefix, renamed = _common_prefix(module_state, state) if missing and unexpected else ("", 0)
    observer.add(
        "load",
        kind=type(module).__name__,
        taken_at_step=taken_at,
        source=source,
        file=_file_of(observer, state),
        unused_file=_unused_file(observer, module) if len(same) == len(module_state) and not changed else None,
        prefix=prefix,
        renamed=renamed,
        first_name=next(iter(module_state), ""),
        written=written,
        strict=strict,
        tensors=len(module_state),
        same_storage=len(same),
        trained=any(id(p) in optimized for p in tensors.values()),
        step=observer.steps,
        digests=[
            {"optimizer": state.number, "digest": observer.digest(optimizer)}
            for optimizer, state in observer.optimizers.items()
            if state.steps and {id(p) for p in observer.parameters_of(optimizer)} <= {id(p) for p in tensors.values()}
        ],
        missing=missing[:6],
        missing_count=len(missing),
        **_missing_statistics(module, missing),
        unexpected=unexpected[:6],
        unexpected_count=len(unexpected),
        untied=[names for names in tied if names not in tied_after][:6],
        at=at,
    )
    if capture is not None and not missing and not any(id(p) in optimized for p in tensors.values()):
        observer.averages.add_loaded(module)
    if len(observer.loaded) < 20:
        names = [name for name, p in module.named_parameters(remove_duplicate=False) if name in state]
        untied = [group for group in tied if group not in tied_after]
        observer.loaded.append(Loaded(module, names, untied, len(tied), at, observer.sample))


def _missing_statistics(module: nn.Module, missing: list[str]) -> dict[str, object]:
    """Return the number of normalization layers whose statistics were not loaded, and how many have initial statistics.

    Return {} if no tensor is missing, or if other tensors are missing too.
    """
    layers = dict(module.named_modules())
    norms = list({layers.get(name.rpartition(".")[0]): None for name in missing})
    only_statistics = bool(missing) and all(
        name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked") for name in missing
    )
    if not only_statistics or not all(modes.has_statistics(norm) for norm in norms):
        return {}
    return {"statistics_missing": len(norms), "statistics_initial": modes.count_initial(norms)}


def _wrap_load(original: Callable[..., object]) -> Callable[..., object]:
    def load_state_dict(
        self: nn.Module, state_dict: Mapping[str, object], strict: bool = True, **kwargs: object
    ) -> object:
        observer = _get_observer()
        if not observer.is_active():
            return original(self, state_dict, strict=strict, **kwargs)
        tied: list[list[str]] = []
        written, version = False, 0
        with observer.observing("load"):
            version = _version_of([value for value in state_dict.values() if isinstance(value, Tensor)])
            tied, written = tied_names(self), _is_written(observer, self)
        result = original(self, state_dict, strict=strict, **kwargs)
        with observer.observing("load"):
            _record_load(self, state_dict, bool(strict), tied, written, version, observer.sites.find(2)[0])
        return result

    return load_state_dict


def _wrap_state_dict(original: Callable[..., object]) -> Callable[..., object]:
    def state_dict(self: nn.Module, *args: object, **kwargs: object) -> object:
        result = original(self, *args, **kwargs)
        observer = _get_observer()
        if observer.is_active() and not args and not kwargs:
            with observer.observing("state_dict"):
                at = observer.sites.find(2)[0]
                line = observer.capture_lines.setdefault(at, Line(at))
                line.steps.add(observer.steps)
                # Captures hold only weak references. Drop captures of results that the script has freed.
                observer.captures = [capture for capture in observer.captures if capture.is_alive()][1 - MAX_CAPTURES :]
                observer.captures.append(Capture(self, result, observer.steps, line))
                observer.captured_at[self] = observer.steps
        return result

    return state_dict


def _wrap_restore(kind: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a wrapper of `load_state_dict` of an optimizer, a scheduler or a scaler that adds a `restore` event."""

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def load_state_dict(self: Any, state_dict: object, *args: object, **kwargs: object) -> object:
            result = original(self, state_dict, *args, **kwargs)
            observer = _get_observer()
            if observer.is_active():
                with observer.observing("restore"):
                    number = observer.state_of(self).number if kind == "optimizer" else None
                    observer.add(
                        "restore", kind=kind, optimizer=number, step=observer.steps, at=observer.sites.find(2)[0]
                    )
            return result

        return load_state_dict

    return make


def _facts(value: object) -> Event:
    """Return the fields of a `save` or `read_file` event that describe the saved object."""
    parts = saved_parts(value)
    scaler, scheduler = parts.get("scaler", {}), parts.get("scheduler", {})
    # Step counters are entries of a checkpoint, which has few entries; larger dictionaries are states of models.
    numbers = value.values() if isinstance(value, dict) and len(value) < 100 else ()
    return {
        "counts": [number for number in numbers if type(number) is int],
        "parts": sorted({*parts, *(["random"] if any(map(_is_random_state, _byte_tensors(value))) else [])}),
        "scale": float(scaler["scale"]) if isinstance(scaler.get("scale"), (int, float)) else None,
        "stateful": bool(parts["optimizer"]["state"]) if isinstance(parts.get("optimizer"), dict) else False,
        "last_epoch": scheduler.get("last_epoch") if isinstance(scheduler.get("last_epoch"), int) else None,
    }


def _wrap_save(original: Callable[..., object]) -> Callable[..., object]:
    def save(obj: object, f: object, *args: object, **kwargs: object) -> object:
        observer = _get_observer()
        if not observer.is_active():
            return original(obj, f, *args, **kwargs)
        with observer.observing("save"):
            at = observer.sites.find(2)[0]
            captures = [_capture_of(observer, state) for state in _states_in(obj)]
            sources = [capture.record_use(observer.steps) for capture in captures if capture is not None]
            is_best = isinstance(f, (str, os.PathLike)) and "best" in Path(f).name.lower()
            observer.add("save", step=observer.steps, at=at, best=is_best, sources=sources, **_facts(obj))
            observer.saves[str(f) if isinstance(f, (str, os.PathLike)) else at] = Saved(obj)
        result = original(obj, f, *args, **kwargs)
        _cut_in_save(observer, f)
        return result

    return save


def _wrap_serialize(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `safetensors.torch.serialize_file`, which `save_file` calls."""

    def serialize_file(tensors: dict[str, Any], filename: object, *args: object, **kwargs: object) -> object:
        observer = _get_observer()
        if not observer.is_active():
            return original(tensors, filename, *args, **kwargs)
        with observer.observing("save"):
            at = observer.sites.find(2)[0]
            observer.add(
                "save", step=observer.steps, at=at, parts=["model"], scale=None, stateful=False, last_epoch=None
            )
            saved = observer.saves[str(filename)] = Saved(None)
            # Older versions of safetensors describe every tensor by a dictionary.
            shapes = [spec["shape"] if isinstance(spec, dict) else spec.shape for spec in tensors.values()]
            saved.shapes.update(tuple(shape) for shape in shapes)
            saved.floats.update(saved.shapes)
        result = original(tensors, filename, *args, **kwargs)
        _cut_in_save(observer, filename)
        return result

    return serialize_file


def watch_safetensors() -> None:
    """Wrap the function that writes safetensors files, if the script has imported safetensors. Wrap it only once."""
    module: Any = sys.modules.get("safetensors.torch")
    original = getattr(module, "serialize_file", None)
    if original is not None and not hasattr(original, "__wrapped__"):
        module.serialize_file = frames.wraps(original)(_wrap_serialize(original))


def _wrap_read(original: Callable[..., object]) -> Callable[..., object]:
    def load(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        observer = _get_observer()
        if observer.is_active():
            with observer.observing("read"):
                _random_states.update({id(tensor): weakref.ref(tensor) for tensor in _byte_tensors(result)})
                at = observer.sites.find(2)[0]
                observer.add("read_file", step=observer.steps, at=at, **_facts(result))
                observer.files = (
                    observer.files[-3:] + [ReadFile(state, observer.steps, at) for state in _states_in(result)][:4]
                )
        return result

    return load


class ReadFile:
    """A dictionary of tensors that `torch.load` has returned.

    Attributes:
        step: The number of optimizer steps before the call.
        at: The line of the call.
        name: The first name in the dictionary.
        shapes: The number of tensors of every shape.
        places: The addresses of the tensors.
        prints: The result of `fingerprints` for the tensors.
        is_used: Whether a module has loaded tensors of the dictionary.
    """

    def __init__(self, state: dict[str, Tensor], step: int, at: str) -> None:
        self.step, self.at = step, at
        self.name = str(next(iter(state)))
        self.shapes = Counter(tuple(tensor.shape) for tensor in state.values())
        self.places = {tensor.data_ptr() for tensor in state.values()}
        self.prints = fingerprints(state.values())
        self.is_used = False


def fingerprints(tensors: Iterable[Tensor]) -> list[tuple[object, ...]]:
    """Return the shapes and up to 8 elements of the first and the last matrix, to recognize the weights of a model.

    The list has one tuple. It is empty if there is no matrix, or if a matrix is of a subclass such as DTensor.
    """
    matrices = [tensor.detach() for tensor in tensors if tensor.dim() > 1 and tensor.is_floating_point()]
    if not matrices or not all(type(matrix) in (Tensor, nn.Parameter) for matrix in matrices):
        return []
    ends = [matrix.reshape(-1)[:: max(1, matrix.numel() // 8)][:8] for matrix in (matrices[0], matrices[-1])]
    return [(matrices[0].shape, matrices[-1].shape, *(value for end in ends for value in end.tolist()))]


def is_restored(observer: Observer, average: nn.Module, trained: list[Tensor]) -> Optional[bool]:
    """Return whether a copy of a model has, before the first step, weights from a file that was read.

    Args:
        observer: The observer of this process.
        average: The copy.
        trained: The parameters of an optimizer.

    Returns:
        None if this cannot be decided: the copy has no fingerprint, no file has the weights of the trained model, or no
        file has other weights with the shapes of the copy.
    """
    averaged, model = fingerprints(average.parameters()), fingerprints(trained)
    if not averaged:
        return None
    saved = [file.prints for file in observer.files if file.prints]
    candidates = [weights for weights in saved if weights[0][:2] == averaged[0][:2] and weights != model]
    return averaged in candidates if candidates and model in saved else None


def _file_of(observer: Observer, state: Mapping[str, object]) -> Optional[str]:
    """Return the line that read the file whose tensors are in a state, and mark the file as used; else None."""
    places = {value.data_ptr() for value in state.values() if isinstance(value, Tensor) and value.numel()}
    for file in reversed(observer.files):
        if places & file.places:
            file.is_used = True
            return str(file.at)
    return None


def _unused_file(observer: Observer, module: nn.Module) -> Optional[list[str]]:
    """Return the line that read a file with the weights of a module, and the first name in the file; None without one.

    At least half of the shapes of the module are in the file, no load has used the file, and no optimizer step was
    taken since the file was read.
    """
    shapes = Counter(tuple(p.shape) for p in module.parameters())
    for file in reversed(observer.files):
        if (
            not file.is_used
            and file.step == observer.steps
            and 2 * sum((shapes & file.shapes).values()) >= sum(shapes.values())
        ):
            return [file.at, file.name]
    return None


_random_states: dict[int, weakref.ref[Tensor]] = {}
"""By id: byte tensors that were read from files. Each may be the state of a random number generator."""


def _byte_tensors(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the byte tensors in a saved or loaded object, inside at most three nested lists or small dictionaries."""
    if isinstance(value, Tensor):
        if value.dtype == torch.uint8:
            yield value
    elif depth < 3:
        parts = value.values() if isinstance(value, dict) and len(value) < 200 else value
        for part in parts if isinstance(parts, (list, ValuesView)) else ():
            yield from _byte_tensors(part, depth + 1)


def _is_random_state(tensor: Tensor) -> bool:
    """Return whether a byte tensor has the size of the state of a random number generator of the CPU."""
    return tensor.dim() == 1 and tensor.numel() == torch.default_generator.get_state().numel()


def _is_from_file(state: object) -> bool:
    reference = _random_states.get(id(state))
    return reference is not None and reference() is state


def _wrap_random_state(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `set_rng_state`: add a `restore` event if the state comes from a file.

    Other states are ignored: an evaluation may save the state in memory at its beginning, and restore it at its end.
    """

    def set_rng_state(new_state: object) -> None:
        original(new_state)
        observer = _get_observer()
        if observer.is_active() and _is_from_file(new_state):
            with observer.observing("restore"):
                at = observer.sites.find(2)[0]
                observer.add("restore", kind="random", optimizer=None, step=observer.steps, at=at)

    return set_rng_state


# Weights between a load and the first forward.

MAX_LOADED = 200
"""Largest number of tensors of a load that are compared at the first forward."""


class Loaded:
    """Samples of the parameters of a module after a load.

    Args:
        module: The module.
        names: The names of the parameters that were in the state.
        tied: Groups of names that belonged to the same parameter before the load, but not after it.
        groups: The number of all groups of names that belonged to the same parameter before the load.
        at: The line of the load.
        sample: Returns about 256 elements of a tensor.
    """

    def __init__(
        self,
        module: nn.Module,
        names: list[str],
        tied: list[list[str]],
        groups: int,
        at: str,
        sample: Callable[[Tensor], Tensor],
    ) -> None:
        self.module, self.tied, self.at = weakref.ref(module), tied, at
        self.groups = groups
        parameters = dict(module.named_parameters(remove_duplicate=False))
        self.samples = {
            name: (weakref.ref(parameters[name]), sample(parameters[name]).clone()) for name in names[:MAX_LOADED]
        }

    def facts(self, sample: Callable[[Tensor], Tensor]) -> Optional[Event]:
        """Return the changes of the parameters since the load; None if the module no longer exists.

        Parameters that were replaced or converted, or have fewer than two dimensions, are left out.
        """
        module = self.module()
        if module is None:
            return None
        parameters = dict(module.named_parameters(remove_duplicate=False))
        names, tensors = [], []
        for name, (reference, values) in self.samples.items():
            p = parameters.get(name)
            if p is None or reference() is not p or p.is_meta or p.dtype != values.dtype or p.dim() < 2:
                continue
            later = sample(p)
            if later.shape == values.shape:
                names.append(name)
                tensors += [values, later.clone()]
        untied = [group for group in self.tied if len({id(parameters.get(name)) for name in group}) > 1]
        equal = [
            group
            for group in untied
            if parameters.keys() >= set(group)
            if all(torch.equal(sample(parameters[name]), sample(parameters[group[0]])) for name in group)
        ]

        def build(*values: list[float]) -> list[list[object]]:
            pairs = zip(names, values[::2], values[1::2])
            return [[name, *_change(before, after)] for name, before, after in pairs if before != after]

        changed: object = Late(tensors, build) if tensors else []
        return {
            "compared": len(names),
            "changed": changed,
            "tied": self.groups,
            "untied": untied[:6],
            "untied_equal": equal[:6],
        }


def _change(before: list[float], after: list[float]) -> tuple[float, float, float, float]:
    """Describe how the sampled elements of a parameter have changed.

    Returns:
        1. The fraction of elements that are equal.
        2. The fraction of elements in the block of zeros at the end; 0 if these elements were zeros before.
        3. The correlation of the elements before and after; 0 if it is not defined.
        4. The fraction of elements that became 0.
    """
    same = sum(a == b for a, b in zip(before, after)) / len(before)
    zeros = 0
    while zeros < len(after) and after[-1 - zeros] == 0:
        zeros += 1
    lost = any(before[len(before) - zeros :])
    mean, mean_after = sum(before) / len(before), sum(after) / len(after)
    product = sum((a - mean) * (b - mean_after) for a, b in zip(before, after))
    sizes = sum((a - mean) ** 2 for a in before) * sum((b - mean_after) ** 2 for b in after)
    correlation = product / sizes**0.5 if sizes > 0 else 0.0
    emptied = sum(b == 0 != a for a, b in zip(before, after)) / len(before)
    return same, zeros / len(after) if lost else 0.0, correlation, emptied


def record_first_forward(observer: Observer, module: nn.Module, sample: Callable[[Tensor], Tensor]) -> None:
    """Add an `after_load` event for each loaded module at its first forward: the changes of parameters since the load.

    Args:
        observer: The observer of this process.
        module: The outermost module that is called. Only loads into this module and its submodules are recorded.
        sample: Returns about 256 elements of a tensor.
    """
    inside = {id(part) for part in module.modules()}
    for loaded in list(observer.loaded):
        part = loaded.module()
        if part is None or id(part) in inside:
            observer.loaded.remove(loaded)
            facts = loaded.facts(sample)
            if facts is not None and (facts["compared"] or facts["untied"]):
                observer.add("after_load", kind=type(part).__name__, at=loaded.at, **facts)


# Killing the process.


def cut_after_step(observer: Observer) -> None:
    """Kill this process with SIGKILL after `Options.cut` steps, unless `Options.cut_in_save` is set.

    First wait until all ranks have reached this point, at most `BARRIER_SECONDS`.
    """
    if observer.options.cut and observer.steps >= observer.options.cut and not observer.options.cut_in_save:
        _mark(observer)
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        deadline = time.monotonic() + BARRIER_SECONDS
        while len(list(observer.folder.glob("cut-*"))) < ranks and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


def _cut_in_save(observer: Observer, file: Any) -> None:
    """If `Options.cut_in_save` is set, truncate the saved file to its first half, and kill this process.

    Does nothing before `Options.cut` steps have ended.
    """
    if not (observer.options.cut_in_save and observer.options.cut and observer.steps >= observer.options.cut):
        return
    if isinstance(file, (str, os.PathLike)):
        os.truncate(file, Path(file).stat().st_size // 2)
    elif hasattr(file, "fileno") and not isinstance(file, io.BytesIO):
        file.flush()
        os.truncate(file.fileno(), os.fstat(file.fileno()).st_size // 2)
    _mark(observer)
    os.kill(os.getpid(), signal.SIGKILL)


def _mark(observer: Observer) -> None:
    """Write the trace, and a file `cut-PID` as a sign that this process is about to be killed."""
    with observer.observing("flush"):
        observer.trace.flush()
    ranks = 1 if observer.options.cut_in_save else int(os.environ.get("WORLD_SIZE", "1"))
    mark = {"steps": observer.steps, "ranks": ranks}
    partial = observer.folder / f"mark-{os.getpid()}"
    partial.write_text(json.dumps(mark))
    partial.replace(observer.folder / f"cut-{os.getpid()}")


# Facts for the comparison of two runs.


def weights_sums(parameters: list[Tensor], sample: Callable[[Tensor], Tensor]) -> Optional[Late]:
    """Return a weighted sum of sampled elements of parameters, and the sum of their absolute values; see `_sums`."""
    return _sums([sample(p) for p in parameters])


def state_sums(optimizer: torch.optim.Optimizer, sample: Callable[[Tensor], Tensor]) -> dict[str, object]:
    """Return the number of parameters with a state in an optimizer, and sums of sampled elements of the state."""
    states = list(getattr(optimizer, "state", {}).values())  # an optimizer without the base class may have none
    tensors = [
        sample(value)
        for state in states
        if isinstance(state, dict)
        for value in state.values()
        if isinstance(value, Tensor) and value.numel()
    ]
    return {"parameters": sum(bool(state) for state in states), "sums": _sums(tensors)}


def _sums(tensors: list[Tensor]) -> Optional[Late]:
    if not tensors:
        return None
    # Compute the sums now, since the tensors may change later. The factors make a sum depend on the order of elements.
    doubles = [t.double() for t in tensors if not t.dtype.is_complex]
    sums = [(d * torch.arange(1, d.numel() + 1, device=d.device, dtype=d.dtype).sin()).sum() for d in doubles]
    sizes = [d.abs().sum() for d in doubles]
    return Late([*sums, *sizes], _build_sums)


def _build_sums(*values: list[float]) -> list[float]:
    half = len(values) // 2
    return [sum(value for (value,) in values[:half]), sum(value for (value,) in values[half:])]


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the functions of torch that save, read and restore.

    Args:
        observer: Returns the observer of this process.
    """
    global _get_observer
    _get_observer = observer
    frames.wrap(nn.Module, "load_state_dict", _wrap_load)
    frames.wrap(nn.Module, "state_dict", _wrap_state_dict)
    frames.wrap(torch.optim.Optimizer, "load_state_dict", _wrap_restore("optimizer"))
    for schedule in list(vars(torch.optim.lr_scheduler).values()):
        of_torch = getattr(schedule, "__module__", "") == torch.optim.lr_scheduler.__name__
        if of_torch and "load_state_dict" in vars(schedule):
            frames.wrap(schedule, "load_state_dict", _wrap_restore("scheduler"))
    scalers = reversed(torch.cuda.amp.GradScaler.__mro__)  # since torch 2.3, a subclass of torch.amp.GradScaler
    frames.wrap(
        next(kind for kind in scalers if "load_state_dict" in vars(kind)), "load_state_dict", _wrap_restore("scaler")
    )
    frames.wrap(torch, "save", _wrap_save)
    frames.wrap(torch, "load", _wrap_read)
    frames.wrap(torch.random, "set_rng_state", _wrap_random_state)
    torch.set_rng_state = torch.random.set_rng_state
