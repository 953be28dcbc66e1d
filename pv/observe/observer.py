"""The observer of one process: hooks on torch that record the actions of a training script as events of a trace.

The observer judges nothing, and does not change weights or random numbers. It does not change the exit status, unless
an option ends the process early. Between two flushes, it waits for a device only in few places, such as `finish`. An
error in the observer becomes an event of kind `trouble`, and never reaches the script.

Terms: the *gradients* of an optimizer are `p.grad` of its parameters. The *sentinels* of an optimizer are a sample of
its parameters. Gradients are *left over* if the gradient of a sentinel is not zero when a backward pass begins, if the
pass adds to unchanged gradients of an earlier pass, or if FSDP2 has not reduced a gradient yet.

Version counters detect that the script changes gradients between the backward pass and the step: torch counts the
in-place changes of every tensor.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import math
import os
import signal
import sys
import threading
import types
import weakref
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from . import (
    averages,
    checkpoints,
    collectives,
    distributions,
    frames,
    handwritten,
    heads,
    loaders,
    losses,
    masters,
    metrics,
    modes,
    parameters,
    probes,
    reported,
    schedules,
    seeds,
    terms,
    tokens,
)
from .call_sites import CallSites
from .launch import DEFAULTS, Options
from .sharding import Shards, is_partial, is_shard, is_unchanged, local, version
from .trace import Event, Late, Trace

FLUSH_INTERVAL = 10
"""Number of steps between two flushes of the trace. The trace is also flushed after each of the first two steps."""
EAGER_STEPS = 3
"""Number of steps at the start in which every call of a module and every parameter is examined."""
CHECK_INTERVAL = 50
"""Number of steps between two examinations of every parameter, after the first steps."""
HALF_PRECISION_CHECK_INTERVAL = 10
"""`CHECK_INTERVAL` for optimizers with parameters in half precision, in which rounding may cancel updates."""
IGNORED_RATES = ("learningrate", "lrate")
"""Names of a learning rate that no optimizer of torch reads, in lower case and without underscores."""
HALVES = (torch.float16, torch.bfloat16)
"""The data types of half precision."""
MAX_PULL = 65_536
"""Largest number of elements of a model output whose gradient is summed for the field `pulls`."""
COMPARED_STEPS = 10
"""Number of steps at the start in which gradients are compared before and after a reduction by the script."""
SENTINELS = 12
"""Largest number of sentinels of an optimizer."""
SAMPLE_SIZE = 256
"""Approximate number of elements in the sample of a tensor."""
KEPT_OBJECTS = 8
"""Number of models and optimizers, the last used ones, that the observer keeps alive until the process ends."""
KEPT_SIZE = 1 << 22
"""Largest size of a model or an optimizer that is kept alive: the number of elements of its parameters."""
MODE_LAYERS = (modes.NORM, modes.DROPOUT)
"""Layers that behave differently in training and eval mode."""


class OptimizerState:
    """What the observer has recorded about one optimizer and its gradients."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps = 0
        self.created = 0
        """Number of events before the optimizer was constructed."""
        self.is_small: Optional[bool] = None
        """Whether the optimizer may be kept alive; None before its first step."""
        self.modified = False
        """Whether the script changed gradients between the backward pass and the step."""
        self.last_versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """Weak references to gradients, and the versions of these gradients, by id of the parameter."""
        self.is_accumulating = False
        """Whether a backward pass has reached the optimizer since its last step."""
        self.before: dict[int, tuple[Tensor, Optional[Tensor]]] = {}
        """Samples of a parameter and of its gradient before the step, by id of the parameter."""
        self.had_gradient: set[int] = set()
        """Ids of the parameters that had a gradient at a step."""
        self.digest_before: Optional[Late] = None
        """The `digest` of the weights before the step."""
        self.state_before: Optional[dict[str, object]] = None
        """Sums over the optimizer state before the step, for comparisons of runs."""
        self.weights_before: Optional[Late] = None
        """Sums over samples of all weights before the step, for comparisons of runs."""
        self.began = 0
        """Value of `Observer.ended_steps` when the last step of this optimizer began."""
        self.touched = False
        """Whether the script changed gradients between the backward pass and a call that clips gradients."""
        self.written = 0
        """The sum of the version counters of the parameters after the last step."""
        self.scale: Optional[Tensor] = None
        """The loss scale by which the gradients are multiplied; None after they were divided by this scale."""
        self.clipped: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """As `last_versions`, but for all gradients (not only of sentinels) that were clipped since the last step."""
        self.gradients: Optional[tuple[Optional[Late], int]] = None
        """The norm and the number of gradients of a handwritten update.

        They are computed after the backward pass, because the script may clear the gradients before the update is
        detected.
        """
        self.frozen = 0
        """Number of parameters without `requires_grad` at the last step. If it changes, all parameters are examined."""
        self.idle = 0
        """Number of examined steps in which all rates were 0, as in a warm-up; at most `EAGER_STEPS` are counted.

        For each of these steps, one more step is examined.
        """
        self.copied: Optional[Tensor] = None
        """The result of `Masters.before_step`: how the gradients of master weights and of the model differ."""
        self.local: list[tuple[Tensor, Tensor]] = []
        """Pairs of a parameter and some elements of its gradient after the last backward pass of this rank."""
        self.sides: dict[str, Tensor] = {}
        """The elements in `local` ("local_gradient"), and the same elements when the step begins ("gradient")."""
        self.waiting = 0
        """Number of parameters whose gradient FSDP2 has not reduced when the step begins."""
        self.arrived: list[Tensor] = []
        """The parameters that had a gradient after the last backward pass."""
        self.removed: list[Tensor] = []
        """The parameters of `arrived` without a gradient when the step begins; [] if none has a gradient then."""
        self.remaining_checks = 0
        """Number of further steps in which every parameter is examined."""


# A private function of torch, missing in some versions. In these versions, calls inside `torch.func` are observed too.
_active_transform: Callable[[], object] = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


def _is_transformed() -> bool:
    """Return whether the call is inside a transform of `torch.func` or inside `torch.jit.trace`."""
    return _active_transform() is not None or torch._C._get_tracing_state() is not None


def _has_ranks() -> bool:
    """Return whether the launcher has started several ranks."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"] if isinstance(p, Tensor)]


def _decay(group: dict[str, object]) -> float:
    """Return the weight decay of a parameter group; 0 if it has none."""
    decay = group.get("weight_decay")
    return float(decay) if isinstance(decay, (int, float)) else 0.0


def _differ_only_in_decay(groups: list[dict[str, object]]) -> bool:
    """Return whether all parameter groups have equal options, apart from the weight decay.

    Groups with a tensor as an option are not compared.
    """
    options = [
        {k: v for k, v in group.items() if k not in ("params", "param_names", "weight_decay")} for group in groups
    ]
    return all(
        option.keys() == options[0].keys()
        and all(option[key] is value or option[key] == value for key, value in options[0].items())
        for option in options
        if not any(isinstance(value, Tensor) for value in option.values())
    )


def _ignored_rates(optimizer: torch.optim.Optimizer) -> dict[int, list[object]]:
    """Return the rates of parameter groups that the optimizer ignores, because their key is not `lr`.

    An optimizer accepts any key in a parameter group, such as `learning_rate`, but reads only its options.

    Returns:
        The key, its value, and the default rate of the optimizer, by number of the group.
    """
    defaults = getattr(optimizer, "defaults", {})  # handwritten updates have no defaults
    if not isinstance(defaults.get("lr"), float):
        return {}
    return {
        number: [key, value, defaults["lr"]]
        for number, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if key not in defaults and key.lower().replace("_", "") in IGNORED_RATES and isinstance(value, float)
    }


def stack_on_one_device(parts: list[Tensor]) -> list[Tensor]:
    """Stack tensors of equal shapes into one tensor; return the tensors unchanged if they are on several devices."""
    return [torch.stack(parts)] if len({part.device for part in parts}) == 1 else parts


def real(tensor: Tensor) -> Tensor:
    """Return a tensor of complex numbers as real and imaginary parts; return any other tensor unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def sample(tensor: Tensor) -> Tensor:
    """Return about 256 evenly spaced elements of a tensor, as a view if possible; all elements of a small tensor.

    Real and imaginary parts of complex numbers are separate elements. Of a sparse tensor, stored values are sampled.
    """
    flat = local(tensor.detach())
    flat = real(flat._values() if flat.is_sparse else flat)
    size = flat.numel()
    if size <= SAMPLE_SIZE:
        return flat.reshape(-1)
    stride = _stride(size)
    if type(flat) is Tensor and flat.is_contiguous():  # faster: one operation instead of two
        return flat.as_strided(((size - 1) // stride + 1,), (stride,))
    return flat.reshape(-1)[::stride]


def subsample(tensor: Tensor) -> Tensor:
    """Return at most eight evenly spaced elements of the sample of a tensor."""
    return masters.evenly_spaced(sample(tensor), 8)


@functools.lru_cache(maxsize=4096)
def _stride(size: int) -> int:
    """Return the stride of a sample: at most `size // SAMPLE_SIZE`, and coprime to the number of elements.

    If the stride were a multiple of the size of a kernel or an image, all sampled elements would have the same position
    in the kernel or the image.
    """
    stride = size // SAMPLE_SIZE
    while math.gcd(stride, size) > 1:
        stride -= 1
    return stride


def sentinels(parameters: list[Tensor]) -> list[Tensor]:
    """Return at most `SENTINELS` evenly spaced parameters among the parameters with gradients."""
    present = [p for p in parameters if p.grad is not None]
    count = len(present)
    return present if count <= SENTINELS else [present[i * count // SENTINELS] for i in range(SENTINELS)]


class Model:
    """A module that the script calls, and its layers whose behaviour depends on the training mode."""

    def __init__(self, number: int, module: nn.Module) -> None:
        self.number = number
        self.calls = 0
        self.calls_by_grad = [0, 0]
        """Numbers of calls without and with gradients whose inputs were recorded: the first 64 of a `forward` event."""
        self.is_trained = False
        """Whether a parameter of the model had a gradient at a step."""
        self.is_small: Optional[bool] = None
        """Whether the model may be kept alive; None before the first call of the model."""
        self.network_fields: object = None
        """The fields of the last `network` event of the model."""
        self.refresh(module)

    def refresh(self, module: nn.Module) -> None:
        """Collect the layers of the module again, because the script may have replaced layers."""
        parts = list(module.modules())
        self.dropouts = [m for m in parts if (isinstance(m, modes.DROPOUT) and m.p) or _attention_dropout(m) > 0]
        self.layers = [m for m in parts if modes.has_statistics(m)] + self.dropouts
        self.shards = Shards(parts)


def _attention_dropout(module: nn.Module) -> float:
    """Return the attribute `dropout` of a module if it is a rate, such as in `nn.MultiheadAttention`; else 0."""
    rate = vars(module).get("dropout", 0.0)  # not `getattr`: `__getattr__` of a model may print warnings, or be slow
    # Recurrent layers apply dropout only between layers, so the rate of a single layer has no effect.
    is_single_layer = isinstance(module, nn.RNNBase) and module.num_layers == 1
    return rate if isinstance(rate, float) and not is_single_layer else 0.0


class Observing:
    """A context in which nothing is observed, gradients are off, and exceptions are recorded as `trouble` events.

    This is a class, because `contextlib.contextmanager` with `torch.no_grad()` takes four times as long.
    """

    __slots__ = ("grad", "observer", "part")

    def __init__(self, observer: Observer, part: str) -> None:
        self.observer, self.part = observer, part

    def __enter__(self) -> None:
        self.observer._busy += 1
        self.grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, kind: object, error: Optional[BaseException], traceback: object) -> bool:
        torch._C._set_grad_enabled(self.grad)
        if isinstance(error, Exception):
            self.observer.trace.trouble(self.part, error)
        self.observer._busy -= 1
        return error is None or isinstance(error, Exception)


class Observer:
    """Records the actions of the script of one process.

    Args:
        folder: The folder that the trace is written to.
        options: The options of the process.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder, self.options = folder, options
        self.held_logits: Callable[[], Optional[losses.HeldLogits]] = lambda: None
        """Returns the logits of the last forward if their hook still exists, else None."""
        self.is_sampled = True
        """Whether losses and logits of the current step are recorded; see `Options.sample`."""
        self.sites = CallSites()
        self.trace = Trace(folder, asdict(options))
        self.backward: Optional[Event] = None
        """The running backward pass."""
        self.in_module = False
        """Whether a call of an outermost module is running."""
        self.sampled_inputs: list[distributions.Source] = []
        """The distributions whose samples are inputs of the last call of an outermost module."""
        self.call: Optional[tokens.Call] = None
        """The last call of an outermost module; None if it had no gradients, or after `tokens.EARLY_STEPS` steps.

        The first call of a model that is stored for probes is also stored here after these steps.
        """
        self.matrices: deque[list[Tensor]] = deque(maxlen=3)
        """The matrices in the last batches of loaders. They are stored only in the first steps."""
        self.first_calls: dict[int, Optional[tokens.Call]] = {}
        """The first call of a model with gradients, or None after the model was probed; by number of the model."""
        self.label_batches: dict[int, int] = {}
        """Number of batches whose labels were compared with the input tokens, by key of the loss."""
        self.rows = 0
        """Number of rows in the input of the last outermost module."""
        self.evaluated_rows = 0
        """`rows` if the last forward had no gradients and its input came from a loader, else 0."""
        self.read_by: set[int] = set()
        """Keys of the calls by which the script has read a number since the last forward."""
        self.passes = 0
        """Number of passes over loaders that have begun."""
        self.recorded_calls: Counter[tuple[int, bool]] = Counter()
        """Number of recorded calls of a loss, by key of the loss and by whether its output requires a gradient."""
        self.fused_calls = 0
        """Number of calls of losses that are fused with the head."""
        self.hidden_heads: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """The last linear layers of models that return a single number.

        Such a layer may be a head if the model computes its loss without a loss function.
        """
        self.last_layer: Optional[nn.Linear] = None
        """In the first steps: the last linear layer that ran in the current call of a model."""
        self.steps = 0
        """The largest number of steps that one optimizer has taken."""
        self.ended_steps = 0
        """Number of steps of all optimizers that have ended."""
        self.is_over = False
        """Whether the `with` block of `pv.observe.recording` has ended."""
        self.reduced = 0
        """Number of elements that were reduced over all ranks since the last step."""
        self.reducers: dict[str, int] = {}
        """In the first steps: number of elements that a function has reduced since the last step, by its name."""
        self.exchanged: dict[tuple[str, bool], tuple[int, int, int]] = {}
        """The calls of a collective, by its name and by whether it runs inside a forward or a backward pass.

        A value has three numbers: the steps before the last call, the elements that were exchanged since the last of
        these steps, and the elements in the largest `exchange` event.
        """
        self.optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, OptimizerState] = weakref.WeakKeyDictionary()
        self.models: weakref.WeakKeyDictionary[nn.Module, Model] = weakref.WeakKeyDictionary()
        self.kept: dict[int, object] = {}
        """The small models and optimizers that were used last, by their numbers.

        They are kept alive for `finish`, which describes them after `main()` of the script has returned.
        """
        self.described: list[weakref.ref[Any]] = []
        """The models and optimizers that existed at the last call of `describe`."""
        self.ran: weakref.WeakKeyDictionary[nn.Module, parameters.Layer] = weakref.WeakKeyDictionary()
        """The modules with parameters that ran in the first steps, and facts about their calls."""
        self.facts = parameters.Facts(sample)
        self.samples = distributions.Samples()
        self.terms = terms.Terms()
        self.updates = handwritten.Updates(self)
        self.masters = masters.Masters(self)
        self.wrappers: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """Instances of DistributedDataParallel."""
        self.wrapped: dict[int, weakref.ref[Tensor]] = {}
        """The parameters of these instances by id. The parameters may exist longer than the instances."""
        self.batches: deque[tuple[Optional[int], dict[int, Any]]] = deque(maxlen=6)
        """Number of the loader and storages of the tensors of the last batches; (None, {}) for the end of a pass."""
        self.captures: list[checkpoints.Capture] = []
        """The last results of `Module.state_dict` that the script still references."""
        self.capture_lines: dict[str, checkpoints.Line] = {}
        """The lines that call `state_dict`, by "path:line"."""
        self.captured_at: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        """The number of steps at the last call of `state_dict` of a module."""
        self.saves: dict[str, checkpoints.Saved] = {}
        """Descriptions of the objects that were last saved to files, by path, or by line of code without a path."""
        self.files: list[checkpoints.ReadFile] = []
        """The last dictionaries of tensors that were read from files."""
        self.loaded: list[checkpoints.Loaded] = []
        """Loads of weights that no forward has used yet."""
        self.modes = modes.Modes(self)
        self.metrics = metrics.Metrics(self)
        self.schedules = schedules.Schedules(self)
        self.seeds = seeds.Seeds(self)
        self.averages = averages.Averages(self)
        self._first_optimizers: dict[tuple[int, int, int], tuple[weakref.ref[Tensor], weakref.ref[Tensor], int]] = {}
        """The first optimizer with certain parameters, by ids of its first and last parameter, and their number.

        A value has weak references to the first and the last parameter, and the number of the optimizer.
        """
        self._numbers = 0  # a counter, because numbers must be unique and the weak dictionaries shrink
        self._busy = 0
        self._thread = threading.get_ident()
        self._stepping: Optional[threading.Thread] = None
        """The thread of the first step."""
        self._last_forward: Optional[Event] = None
        self._backward_depth = self._scaler_depth = self._clip_depth = 0
        self.clipped_iterator: Optional[Iterator[Tensor]] = None
        """The iterator that was passed to the last call of a clipping function; None if it got no iterator."""

    # State and helpers of all observations.

    def is_same_process(self) -> bool:
        """Return whether this is the observer of the running process. A forked child has its own observer."""
        return self is current

    def is_active(self) -> bool:
        """Return whether calls are observed now.

        Calls are not observed in the observer's own code, after the `with` block of `pv.observe.recording`, and inside
        transforms of torch. In a forked child, the observer of the parent process observes nothing.
        """
        return not self._busy and not self.is_over and self.is_same_process() and not _is_transformed()

    def observing(self, part: str) -> Observing:
        """Return the context for code of the observer. In `trouble` events, `part` is the name of this code."""
        return Observing(self, part)

    def add(self, kind: str, /, **fields: object) -> Event:
        """Append an event to the trace; see `Trace.add`."""
        # Before the new event: the last event may be a `forward` whose fields still change until the next event.
        if self.trace.is_full():
            with self.observing("flush"):
                self.trace.free_memory()
        return self.trace.add(kind, **fields)

    @property
    def last_forward(self) -> Event:
        """The event of the last call of an outermost module. The caller must know that there was such a call."""
        assert self._last_forward is not None
        return self._last_forward

    def number(self) -> int:
        """Return a new number for an object of the trace, such as a model or an optimizer."""
        self._numbers += 1
        return self._numbers

    @staticmethod
    def sample(tensor: Tensor) -> Tensor:
        """Return about 256 elements of a tensor; see the function `sample`."""
        return sample(tensor)

    def end_at_limit(self) -> None:
        """End the process with status 0 if an optimizer has taken `Options.steps` steps."""
        if self.is_active() and self.options.steps and self.steps >= self.options.steps:
            self.finish()
            raise SystemExit(0)

    @staticmethod
    def tensors_in(value: object) -> Iterator[Tensor]:
        """Yield the tensors in arguments or a batch; see the function `tensors_in`."""
        return tensors_in(value)

    @staticmethod
    def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """Return the parameters of an optimizer, in the order of its groups."""
        return parameters_of(optimizer)

    def at(self) -> str:
        """Return the current line of the user's code as "path:line"."""
        return self.sites.find(3)[0]

    # Optimizers.

    def state_of(self, optimizer: torch.optim.Optimizer) -> OptimizerState:
        """Return the recorded state of an optimizer. Add an `optimizer` event for a new optimizer."""
        state = self.optimizers.get(optimizer)
        if state is None:
            state = self.optimizers[optimizer] = OptimizerState(self.number())
            state.created = self.trace.count
            kind = type(optimizer)
            count = len(parameters_of(optimizer))
            self.add(
                "optimizer",
                optimizer=state.number,
                kind=getattr(optimizer, "kind", kind.__name__),
                by_hand=isinstance(optimizer, handwritten.HandwrittenOptimizer),
                builtin=kind.__module__.startswith("torch.optim."),
                parameters=count,
                again=self._number_of_same(optimizer, state.number),
                moments=any(g.get("betas") or g.get("momentum") for g in optimizer.param_groups),
                rates=schedules.rates_of(optimizer.param_groups),
                decays=[_decay(group) for group in optimizer.param_groups],
                alike=_differ_only_in_decay(optimizer.param_groups),
                ignored_rates=_ignored_rates(optimizer),
                at=self.at(),
            )
        return state

    def _number_of_same(self, optimizer: torch.optim.Optimizer, number: int) -> int:
        """Return the number of the first optimizer with the same parameters, which may no longer exist.

        The number is `number` if the optimizer itself is the first.
        """
        parameters = parameters_of(optimizer)
        if not parameters:
            return number
        first, last = parameters[0], parameters[-1]
        # Python reuses the ids of freed objects, so equal ids are not enough: compare the objects too.
        key = (id(first), id(last), len(parameters))
        entry = self._first_optimizers.get(key)
        if entry is None or entry[0]() is not first or entry[1]() is not last:
            entry = self._first_optimizers[key] = (weakref.ref(first), weakref.ref(last), number)
        return entry[2]

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the parameters, state and gradients of an optimizer before a step.

        Raises:
            RuntimeError: A second thread takes a step while the thread of the first step is alive. The events of
                several threads may be mixed, so nothing is observed from then on.
        """
        if not self._backward_depth:  # hooks of a backward pass may run in a thread of autograd
            self._stepping = self._stepping or threading.current_thread()
            if self._stepping is not threading.current_thread() and self._stepping.is_alive():
                self.is_over = True
                raise RuntimeError("optimizers take steps in several threads of one process")
        state = self.state_of(optimizer)
        self.loaded.clear()  # after a step, weights and loaded weights differ as intended
        state.began = self.ended_steps
        # Without a backward pass since the last step, the script may have put back the weights before that step.
        if _has_ranks() or not state.steps or not state.arrived:
            state.digest_before = self.digest(optimizer)
        parameters = parameters_of(optimizer)
        if self.files and not self.steps:
            self.averages.check_restored(parameters)
        if self.options.comparing or not state.steps:
            state.state_before = checkpoints.state_sums(optimizer, sample)
        if self.options.comparing:
            state.weights_before = checkpoints.weights_sums(parameters, sample)
        # If the gradient of a sentinel was replaced, or has another version, the script has changed it.
        state.modified = state.touched or any(not is_unchanged(p, state.last_versions) for p in sentinels(parameters))
        # The gradient that this rank computed, and the gradient that its optimizer applies. The claims compare them to
        # estimate the factor by which a reduction in the script's own code scales gradients.
        if state.local:
            dense = [(part, p.grad) for p, part in state.local if p.grad is not None and not p.grad.is_sparse]
            pairs, state.local = [(part, subsample(gradient)) for part, gradient in dense], []
            sides = [torch.cat([part.double() for part in side]) for side in zip(*pairs)]
            state.sides = dict(zip(("local_gradient", "gradient"), sides))
        removed = [p for p in state.arrived if p.grad is None]
        state.removed = removed if len(removed) < len(state.arrived) else []
        state.copied = self.masters.before_step(optimizer, state)
        waiting = self.waiting() if _has_ranks() else {}
        state.waiting = sum(id(p) in waiting for p in parameters)
        frozen = sum(not p.requires_grad for p in parameters)
        if frozen != state.frozen:
            state.frozen, state.remaining_checks = frozen, EAGER_STEPS
        # A sample costs two small copies per parameter, so samples are taken only in the first steps, and later in one
        # of `interval` steps. A step with a rate of 0 changes no parameter, so another step is sampled in addition.
        has_halves = any(p.dtype in HALVES for p in parameters)
        interval = HALF_PRECISION_CHECK_INTERVAL if has_halves else CHECK_INTERVAL
        if state.steps < EAGER_STEPS + state.idle or state.steps % interval == 0 or state.remaining_checks:
            state.remaining_checks = max(0, state.remaining_checks - 1)
            rates = [group.get("lr") for group in optimizer.param_groups]
            if state.idle < EAGER_STEPS and all(isinstance(rate, float) and rate == 0 for rate in rates):
                state.idle += 1
            for p in parameters:
                gradient = None if p.grad is None or p.grad.is_sparse else sample(p.grad).clone()
                state.before[id(p)] = (sample(p).clone(), gradient)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Add the event of a step, and flush the trace if a flush is due."""
        state = self.state_of(optimizer)
        self.averages.record_updates("step")
        state.steps += 1
        parameters = parameters_of(optimizer)
        self._keep(state, optimizer)
        # The norm can be computed after the step: clipping comes before the step, and optimizers of torch do not change
        # gradients.
        norm, count = state.gradients or self.norm(optimizer)
        gradients = [p.grad for p in parameters if p.grad is not None]
        state.gradients = None
        if len(state.had_gradient) < len(parameters):
            state.had_gradient.update(id(p) for p in parameters if p.grad is not None)
        fields: dict[str, object] = {}
        if state.digest_before is not None:
            fields["digest_before"] = state.digest_before
            state.digest_before = None
        if state.state_before is not None:
            fields["state_before"], state.state_before = state.state_before, None
        if self.options.comparing:
            fields["weights_before"] = state.weights_before
            fields["weights"] = checkpoints.weights_sums(parameters, sample)
        # The reader of the traces combines the norms of all ranks, because every rank has other shards. Gradients that
        # are not sharded are equal on all ranks and must count only once, so their norm is recorded separately.
        if any(map(is_shard, gradients)):
            fields["whole_norm"] = self._norm_of([gradient for gradient in gradients if not is_shard(gradient)])
        if _has_ranks():
            fields["reduced"], self.reduced = self.reduced, 0
            if self.reducers:
                fields["reducers"], self.reducers = self.reducers, {}
            fields["elements"] = sum(p.numel() for p in parameters if p.requires_grad)
        if state.waiting:
            fields["waiting"] = state.waiting
        if state.removed:
            names = self.names()
            fields["removed"] = [names.get(id(p), str(list(p.shape))) for p in state.removed[:4]]
            fields["removed_count"], state.removed = len(state.removed), []
        fields.update(state.sides)
        state.sides = {}
        seeded = self.seeds.at_step()
        if seeded is not None:
            fields["seeded"] = seeded
        if state.copied is not None:
            fields["copied"], state.copied = state.copied, None
        if state.before:
            fields["moved"] = self._moved(optimizer, state)
            state.before = {}
        self.add(
            "step",
            optimizer=state.number,
            step=state.steps,
            rates=schedules.rates_of(optimizer.param_groups),
            norm=norm,
            gradients=count,
            modified=state.modified,
            digest=self.digest(optimizer),
            wraps=self.ended_steps > state.began,
            by_scaler=self._scaler_depth > 0,
            at=self.at(),
            **fields,
        )
        self.store_versions(optimizer)
        state.scale, state.clipped, state.touched, state.is_accumulating, state.arrived = None, {}, False, False, []
        self.ended_steps += 1
        state.written = sum(p._version for p in parameters)
        self.steps = max(self.steps, state.steps)
        if state.steps <= 2:
            checkpoints.watch_safetensors()
        # Hooks on losses and logits cost the most time. The option `--sample N` uses them only in every N-th step.
        self.is_sampled = self.steps < EAGER_STEPS or self.steps % self.options.sample == 0
        if state.steps == EAGER_STEPS or state.steps % 500 == 0:
            self.describe()
        if state.steps == EAGER_STEPS:
            probes.run(self)
            probes.run_schedules(self)
        if state.steps <= 2 or state.steps % FLUSH_INTERVAL == 0:
            self.modes.record_training()
            self.trace.flush()

    @staticmethod
    def norm(optimizer: torch.optim.Optimizer) -> tuple[Optional[Late], int]:
        """Return the 2-norm of the gradients of an optimizer, and the number of parameters with a gradient."""
        present = [p.grad for p in parameters_of(optimizer) if p.grad is not None]
        return Observer._norm_of(present), len(present)

    @staticmethod
    def _norm_of(gradients: list[Tensor]) -> Optional[Late]:
        """Return the 2-norm of the local parts of dense gradients; None if there are none."""
        parts = [local(gradient) for gradient in gradients if not gradient.is_sparse]
        if not parts:
            return None
        norms = stack_on_one_device(list(torch._foreach_norm(parts)))
        return Late(norms, lambda *lists: math.hypot(*(value for part in lists for value in part)))

    @staticmethod
    def digest(optimizer: torch.optim.Optimizer) -> Optional[Late]:
        """Return the sum of some elements of up to six parameters, to compare weights between ranks and runs."""
        parameters = parameters_of(optimizer)
        # The four smallest parameters cost the least. The first and the last parameter are in different layers.
        small = sorted(parameters, key=Tensor.numel)[:4] + parameters[:1] + parameters[-1:]
        samples = [sample(p) for p in small if local(p) is p]
        if len({(part.dtype, part.device) for part in samples}) == 1:
            sums = [torch.cat(samples).sum(dtype=torch.float64)]
        else:
            sums = [part.sum(dtype=torch.float64) for part in samples]
        return Late(sums, lambda *lists: sum(map(sum, lists))) if sums else None

    def _moved(self, optimizer: torch.optim.Optimizer, state: OptimizerState) -> Late:
        """Compare the parameters before and after a step: the field `moved` of a `step` event.

        The field has, among others, the parameters that the step did not change although they have a gradient, and the
        frozen parameters that the step changed.
        """
        parameters = [p for p in parameters_of(optimizer) if id(p) in state.before]
        names = self.names()
        labels = [names.get(id(p), f"a parameter of shape {list(p.shape)}") for p in parameters]
        facts = [(not p.requires_grad, local(p).is_contiguous()) for p in parameters]
        shapes = [list(p.shape) for p in parameters]
        rates = {id(p): group.get("lr", 0.0) for group in optimizer.param_groups for p in group["params"]}
        marks = self.facts.marked() if self.facts.marks else {}
        marked = [marks.get(id(p)) for p in parameters]
        rows = []  # the six numbers of every parameter that `build` unpacks
        for p in parameters:
            before, gradient = state.before[id(p)]
            moved = (sample(p) != before).any()
            if gradient is None or not gradient.numel():  # the shard of a small parameter may be empty
                rows.append(torch.stack([moved.double(), *[torch.zeros_like(moved)] * 5]))
                continue
            # 1 if the gradient of a matrix is zero, 2 if the matrix is zero too. All elements are compared, because a
            # sample may miss the elements that are not zero.
            whole = p.grad if p.dim() == 2 and local(p) is p else None
            zero = torch.zeros_like(moved).double()
            if whole is not None and not whole.is_sparse:
                zero = (~whole.any()).double() * (2 - p.detach().any().double())
            # A step of plain SGD or of Adam would change these elements by much more than the precision of the weight.
            size = gradient.double().abs()
            is_visible = (rates[id(p)] * size.clamp(max=1.0) > 1e-5 * before.double().abs()) & (size > 0)
            visible = (
                torch.where(is_visible, size, torch.zeros_like(size)).amax() if p.dtype == torch.float32 else 0 * moved
            )
            # In half precision: the number of nonzero elements with a gradient, and how many of these elements change.
            counted = (size > 0) & (before != 0) & (p.dtype in HALVES)
            changed = (counted & (sample(p) != before)).sum()
            rows.append(torch.stack([moved.double(), visible.double(), size.amax(), zero, counted.sum(), changed]))

        def build(*lists: list[float]) -> dict[str, object]:
            """Return the value of the field from the rows."""
            values = [value for part in lists for value in part]
            moved, visible, largest, zeros, counted, changed = (values[column::6] for column in range(6))
            # Gradients far below the largest gradient do not count, because they may be rounding errors only: for
            # example, the gradient of a bias before a normalization.
            limit = max(largest, default=0.0) * 1e-3
            table = list(zip(labels, facts, moved, visible, largest))
            unmoved = [(name, contiguous) for name, (_, contiguous), m, size, _ in table if not m and size > limit]
            return {
                "checked": len(table),
                "moved": sum(m > 0 for m in moved),
                "unmoved": [name for name, _ in unmoved][:40],
                "unmoved_contiguous": sum(contiguous for _, contiguous in unmoved),
                # If a frozen parameter has a gradient, the script intends to change the parameter.
                "moved_frozen": [name for name, (frozen, _), m, _, size in table if m and frozen and not size][:40],
                "zero_matrices": [(name, shape) for name, shape, zero in zip(labels, shapes, zeros) if zero == 2][:40],
                "zero_gradients": [
                    name for name, (frozen, _), zero in zip(labels, facts, zeros) if zero == 1 and not frozen
                ][:40],
                "halves": [sum(counted), sum(changed)],
                "frozen": sum(frozen for frozen, _ in facts),
                "marks": len(self.facts.marks),
                "marked": [
                    [name, mark.name, mark.at]
                    for name, m, mark in zip(labels, moved, marked)
                    if m and mark is not None and not mark.read
                ][:40],
            }

        return Late(stack_on_one_device(rows), build)

    def check_next_steps(self) -> None:
        """Request that the next `EAGER_STEPS` steps of all optimizers compare every parameter before and after."""
        for state in self.optimizers.values():
            state.remaining_checks = EAGER_STEPS

    def store_versions(self, optimizer: torch.optim.Optimizer, among: Optional[set[int]] = None) -> None:
        """Store weak references to the gradients of the sentinels, and their versions, to detect later changes.

        Args:
            optimizer: The optimizer.
            among: Ids of parameters: only sentinels with these ids are stored. None for all sentinels.
        """
        state = self.optimizers[optimizer]
        for p in sentinels(parameters_of(optimizer)):
            if p.grad is not None and (among is None or id(p) in among):
                state.last_versions[id(p)] = (weakref.ref(p.grad), version(p.grad))

    # Backward passes.

    def begin_backward(self) -> dict[str, object]:
        """Record which gradients are left over when a backward pass begins.

        Returns:
            The record of the pass, for `end_backward`.
        """
        self.averages.record_updates("backward")
        self.updates.before_backward(sys._getframe(2))
        record: Event = {"losses": [], "logits": [], "optimizers": [], "scale": None, "forwards": set()}
        record["pulls"], record["retained"] = {}, True
        record["sampled"] = self.is_sampled
        record["copied"] = self.masters.before_backward() if self.masters.copies else {}
        # Per optimizer: whether gradients are left over (`left`); whether a left-over gradient is unchanged since its
        # version was stored (`kept`); the sum of the versions of the weights (`written`); the parameters with clipped
        # gradients; and the versions of the gradients.
        waiting = self.waiting()
        for optimizer, state in list(self.optimizers.items()):
            parameters = parameters_of(optimizer)
            chosen = sentinels(parameters)
            unchanged = [is_unchanged(p, state.last_versions) for p in chosen]
            left, kept = _any_left(chosen, unchanged)
            # Gradients that are accumulated may be 0, for example if the weights of the head are initialized with 0.
            present = [is_kept for p, is_kept in zip(chosen, unchanged) if p.grad is not None]
            accumulates = state.is_accumulating and bool(present) and all(present)
            if accumulates or (waiting and any(id(p) in waiting for p in parameters)):
                left = kept = True
            written = sum(p._version for p in parameters)
            clipped = [p for p in parameters if is_unchanged(p, state.clipped)] if state.clipped else []
            record["optimizers"].append(
                (optimizer, state, (left, kept, written, clipped), _versions(parameters, waiting))
            )
        self.backward = record
        return record

    def waiting(self) -> dict[int, Tensor]:
        """Return, by id of a parameter, the gradients that FSDP2 has not reduced yet."""
        gradients: dict[int, Tensor] = {}
        for model in list(self.models.values()):
            gradients.update(model.shards.waiting())
        return gradients

    def end_backward(self, record: Event, at: str) -> None:
        """Add the event of a backward pass, with its losses and the optimizers whose gradients it changed.

        Args:
            record: The record that `begin_backward` returned.
            at: The line that calls the backward pass.
        """
        self.backward = None
        reached = {}
        waiting = self.waiting()
        for optimizer, state, (left, kept, written, clipped), versions in record["optimizers"]:
            # The pass has reached an optimizer if a gradient of the optimizer is new, or has another version.
            if _versions(parameters_of(optimizer), waiting) != versions:
                onto = sum(not is_unchanged(p, state.clipped) for p in clipped)
                reached[str(state.number)] = {"left_over": left, "kept": kept, "written": written, "onto_clipped": onto}
                state.scale = record["scale"]
                state.is_accumulating = True
                state.arrived = [p for p in parameters_of(optimizer) if p.grad is not None]
                self.store_versions(optimizer)
                if _has_ranks() and not self.wrappers and state.steps < COMPARED_STEPS:
                    chosen = [p for p in sentinels(parameters_of(optimizer)) if local(p) is p]
                    state.local = [(p, subsample(p.grad).clone()) for p in chosen if p.grad is not None]
        if self.facts.samplings < parameters.BACKWARD_PASSES:
            self.facts.sample_parameters(list(self.models), self.ended_steps)
        self.updates.after_backward()
        fields = {} if record.get("root") is None else {"root": record["root"]}
        if any(loss["gone"] for loss in record.get("dropped", ())):
            fields["computed"] = record["dropped"]
        fields.update(record.get("plan", {}))
        if record.get("derivative"):
            fields["derivative"] = record["derivative"]
        if self.masters.copies:
            fields["copied"] = self.masters.after_backward(record["copied"])
        self.add(
            "backward",
            **fields,
            reached=reached,
            losses=record["losses"],
            logits=record["logits"],
            forwards=sorted(record["forwards"]),
            pulls=record["pulls"],
            sampled=record["sampled"],
            scale=record["scale"],
            at=at,
        )

    # Modules.

    def is_recomputed(self, module: nn.Module) -> bool:
        """Return whether gradient checkpointing calls this module in a backward pass to recompute its outputs."""
        return self.backward is not None and self._last_forward is not None and unwrapped(module) not in self.models

    def recompute(self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], grad: bool) -> None:
        """Record a call by gradient checkpointing as a call inside the last model, not as a call of another model."""
        self._record_inputs(module, self.last_forward["model"], list(tensors_in((args, kwargs))), grad)

    def _record_inputs(self, module: nn.Module, model: int, tensors: list[Tensor], grad: bool) -> None:
        """In the first steps, record the inputs of a call, and that a module with own parameters ran in a model."""
        if self.steps < EAGER_STEPS:
            self.facts.inputs = loaders.storages(tensors)
            if module._parameters:
                layer = self.ran.setdefault(module, parameters.Layer(model))
                layer.model, layer.grad = model, layer.grad or grad

    def begin_module(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], grad: bool
    ) -> Optional[Model]:
        """Record the call of an outermost module, and return its model.

        If the module is not a known model, and is a loss or has no parameters, return None and record nothing.
        """
        inner = unwrapped(module)
        model = self.models.get(inner)
        if model is None:
            if isinstance(module, nn.modules.loss._Loss) or next(module.parameters(), None) is None:
                return None
            model = self.models[inner] = Model(self.number(), inner)
            self.add("model", model=model.number, kind=type(inner).__name__)
            reports.wrap_libraries()
            metrics.wrap_libraries(lambda: current)
            self.facts.samplings = self.updates.searches = 0
            self.modes.add_model(inner, model.number)
        self._keep(model, inner)
        self.terms.derivative = ""
        model.calls += 1
        if self.loaded:
            checkpoints.record_first_forward(self, inner, sample)
        if model.calls % 100 == 0:
            model.refresh(inner)
        tensors = list(tensors_in((args, kwargs)))
        self.sampled_inputs = self.samples.of(tensors) if grad and self.samples.stored else []
        self._record_inputs(inner, model.number, tensors, grad)
        training = sum(layer.training for layer in model.layers)
        fields: Event = {
            "model": model.number,
            "loader": loaders.loader_of(self.batches, tensors),
            "grad": grad,
            "training_layers": training,
            "eval_layers": len(model.layers) - training,
            "dropouts": sum(layer.training for layer in model.dropouts),
            "training": inner.training,
            "wrapped": inner is not module,
            "from_graph": grad and any(t.requires_grad for t in tensors),
            "at": self.at(),
        }
        tokens.record_call(self, inner, model.number, args, kwargs, grad, fields["at"])
        self.rows = tensors[0].shape[0] if tensors and tensors[0].dim() else 0
        self.read_by.clear()
        self.evaluated_rows = 0 if grad or fields["loader"] is None else self.rows
        # Successive forwards with equal fields, such as in an evaluation, become one event with the count `times`.
        last = self._last_forward
        if last is not None and self.trace.count - 1 == last["n"] and all(last[key] == fields[key] for key in fields):
            last["times"] += 1
        else:
            last = self._last_forward = self.add("forward", times=1, rows=[], inputs=[], **fields)
        # Only the first 64 inputs of an event: the trace must not grow with the length of an evaluation.
        if len(last["inputs"]) < 64:
            last["rows"].append(self.rows)
            last["inputs"].append(fingerprint(tensors[0]) if tensors else 0)
            if self.options.comparing and grad and tensors:
                last.setdefault("examples", []).append(row_fingerprints(tensors[0]))
            model.calls_by_grad[grad] += 1
            scale = loaders.scale_of(model.calls_by_grad[grad], tensors[0]) if tensors else None
            if scale is not None:
                last.setdefault("scales", []).append(scale)
            if inner is not module or _has_ranks():
                last.setdefault("others", []).append([fingerprint(tensor) for tensor in tensors[1:4]])
        self.modes.begin_forward(model, inner, grad, tensors)
        self.seeds.begin_forward(grad)
        return model

    def watch_outputs(self, outputs: object) -> None:
        """Register hooks that record which backward passes compute gradients of the outputs of the last forward."""
        position = self.last_forward["n"]

        def hook(gradient: Optional[Tensor]) -> None:
            if gradient is not None and self.backward is not None and self.is_same_process():
                self.backward["forwards"].add(position)
                if len(self.optimizers) > 1 and gradient.numel() <= MAX_PULL:
                    pulls = self.backward["pulls"]
                    pulls[str(position)] = pulls.get(str(position), 0) + gradient.detach().sum()

        tensors = list(tensors_in(outputs))
        for part in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
            tensors += tensors_in(getattr(part, "__dict__", {}))  # `part` may be a distribution or a dataclass
        # A hook belongs to the autograd graph and is freed together with the graph, so it keeps no tensors alive.
        for tensor in tensors[:8]:
            if tensor.requires_grad:
                tensor.register_hook(hook)
                distributions.watch_use(self.sampled_inputs, tensor)

    def _keep(self, facts: Union[Model, OptimizerState], item: Union[nn.Module, torch.optim.Optimizer]) -> None:
        """Keep a small model or optimizer alive until the process ends, or until `KEPT_OBJECTS` others were used."""
        if facts.is_small is None:
            parameters = item.parameters() if isinstance(item, nn.Module) else parameters_of(item)
            facts.is_small = sum(p.numel() for p in parameters) <= KEPT_SIZE
        if facts.is_small:
            self.kept.pop(facts.number, None)
            self.kept[facts.number] = item
            if len(self.kept) > KEPT_OBJECTS:
                del self.kept[next(iter(self.kept))]

    def names(self) -> dict[int, str]:
        """Return the names of the parameters of all models that ran, by id of the parameter.

        If a parameter has several names, the longest name is returned. So all ranks use the same name, even if one rank
        also calls a part of the model directly.
        """
        names: dict[int, str] = {}
        for module in list(self.models):
            for name, p in module.named_parameters(remove_duplicate=False):
                if len(name) > len(names.get(id(p), "")):
                    names[id(p)] = name
        return names

    def describe(self) -> None:
        """Add events that describe all models and optimizers.

        These are a `parameters` event for every model and a `held` event for every optimizer, and events about
        normalizations, distributions and modes.
        """
        self.described = [weakref.ref(item) for item in (*self.models, *self.optimizers)]
        held = {id(p): s.number for o, s in self.optimizers.items() for p in parameters_of(o)}
        self.facts.sample_parameters(list(self.models), self.ended_steps)
        with_gradient = set().union(self.facts.arrived, *(state.had_gradient for state in self.optimizers.values()))
        names = self.names()
        for module, model in list(self.models.items()):
            inside = {id(m) for m in module.modules()}
            trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
            outside = [
                f"{type(m).__name__}.{name}"
                for m, layer in list(self.ran.items())
                if layer.model == model.number and layer.grad and id(m) not in inside
                for name, p in m._parameters.items()
                # `functional_call` replaces the parameters of a layer by tensors that never have a gradient.
                if p is not None and p.requires_grad and p.grad is not None
                if id(p) not in held and id(p) not in names
            ]
            ran = {
                id(p) for m, layer in self.ran.items() if layer.grad for p in m._parameters.values() if p is not None
            }
            lacking = {key for key in ran if key in held and key not in with_gradient}
            # The parameters that had a gradient, but are in no optimizer.
            left_out = [(name, p) for name, p in trainable if id(p) not in held and id(p) in with_gradient]
            ids = {id(p) for _, p in trainable}
            created = [state.created for o, state in self.optimizers.items() if ids & set(_ids(o))]
            self.add(
                "parameters",
                model=model.number,
                trainable=len(trainable),
                held=sum(id(p) in held for _, p in trainable),
                left_out=[name for name, _ in left_out][:40],
                left_out_shapes=[list(p.shape) for _, p in left_out][:40],
                **parameters.describe_late(self.facts, left_out, max(created, default=self.trace.count)),
                outside=outside[:20],
                listed=parameters.count_listed(self, model.number, module, set(held)),
                # FSDP1 leaves empty shards, which have no elements.
                without_gradient=[name for name, p in trainable if id(p) in lacking and p.numel()][:40],
                **parameters.describe(self, model.number, module, set(held), with_gradient),
            )
        firsts = [
            (next(iter(m._parameters.values())), layer.first) for m, layer in list(self.ran.items()) if layer.first
        ]
        if firsts:
            layers = [
                {
                    "name": names[id(p)],
                    "input": first[0],
                    "first": first[1],
                    "last": p.detach().sum(dtype=torch.float64),
                }
                for p, first in firsts
                if p is not None and id(p) in names
            ]
            self.add("normalizations", layers=layers[:40])
        sources = self.samples.describe()
        if sources:
            self.add("distributions", sources=sources)
        self.modes.describe()
        wrapped = {key for key, parameter in self.wrapped.items() if parameter() is not None}
        for optimizer, state in self.optimizers.items():
            held_here = parameters_of(optimizer)
            ids = {id(p) for p in held_here}
            outside_shapes = [list(p.shape) for p in held_here if id(p) not in names]
            # The parameters of the optimizer that never had a gradient, and are in no model that ran.
            unused = [p for p in held_here if id(p) not in names and id(p) not in state.had_gradient]
            self.add(
                "held",
                outside=len(outside_shapes),
                outside_shapes=outside_shapes if len(outside_shapes) <= 40 else None,
                optimizer=state.number,
                steps=state.steps,
                parameters=len(held_here),
                in_no_model=len(unused),
                in_no_model_shapes=[list(p.shape) for p in unused][:40],
                shares_with=[s.number for o, s in self.optimizers.items() if o is not optimizer and ids & set(_ids(o))],
                in_ddp=len(ids & wrapped),
                shards=sum(map(is_shard, held_here)),
                divides_otherwise=any(model.shards.has_custom_divisor() for model in self.models.values()),
                names=zlib.crc32(repr([(names.get(id(p)), list(p.shape)) for p in held_here]).encode()),
            )

    # Gradients between the backward pass and the step.

    def record_clip(
        self, kind: str, parameters: list[Tensor], limit: object, result: object, scaled: object, used_up: bool, at: str
    ) -> None:
        """Record a call that has clipped gradients.

        Args:
            kind: The name of the clipping function.
            parameters: The parameters whose gradients were clipped.
            limit: The limit of the norm or of the values.
            result: The return value of the function.
            scaled: The return value of `pending_scale` before the call.
            used_up: Whether the parameters were passed as an exhausted generator or iterator.
            at: The line of the call.
        """
        ids = {id(p) for p in parameters}
        covers = {}
        for optimizer, state in self.optimizers.items():
            with_gradient = [p for p in parameters_of(optimizer) if p.grad is not None]
            covers[str(state.number)] = [sum(id(p) in ids for p in with_gradient), len(with_gradient)]
        self.add(
            "clip",
            kind=kind,
            limit=limit,
            norm=local(result.detach()).clone() if isinstance(result, Tensor) else None,
            flat_shards=sum(len(ids & model.shards.flat_ids()) for model in self.models.values()),
            partial=isinstance(result, Tensor) and is_partial(result),
            covers=covers,
            scale=scaled,
            parameters=len(parameters),
            held=sum(id(p) in ids for optimizer in self.optimizers for p in parameters_of(optimizer)),
            with_gradient=sum(p.grad is not None for p in parameters),
            used_up=used_up,
            at=at,
        )
        for optimizer, state in self.optimizers.items():
            self.store_versions(optimizer, ids)
            for p in parameters_of(optimizer):
                if id(p) in ids and p.grad is not None:
                    state.clipped[id(p)] = (weakref.ref(p.grad), version(p.grad))

    def pending_scale(self, parameters: Iterable[Tensor]) -> Optional[Tensor]:
        """Return the loss scale by which the gradients of the parameters are multiplied; None if there is none.

        Also record for every optimizer whether the script has changed the gradients since the backward pass. The
        gradients of such an optimizer do not count, because the script may have divided them by the scale.
        """
        ids = {id(p) for p in parameters}
        pending = None
        for optimizer, state in self.optimizers.items():
            covered = [p for p in sentinels(parameters_of(optimizer)) if id(p) in ids]
            if any(not is_unchanged(p, state.last_versions) for p in covered):
                state.touched = True
            elif covered and state.scale is not None:
                pending = state.scale
        return pending

    def record_zero(self, target: Union[torch.optim.Optimizer, nn.Module]) -> None:
        """Record a call that clears the gradients of an optimizer or of a module, before the call."""
        self.updates.record_statements()
        if isinstance(target, torch.optim.Optimizer):
            cleared = [self.state_of(target).number]
        else:
            ids = {id(p) for p in target.parameters()}
            cleared = [s.number for o, s in self.optimizers.items() if all(id(p) in ids for p in parameters_of(o))]
        self.add("zero", optimizers=cleared, at=self.at())

    def finish(self) -> None:
        """Add the final events and write the trace, at the end of the process.

        A second call, and a call before the first step, have no effect.
        """
        if self.steps and self.is_same_process():
            with self.observing("finish"):
                self.updates.record_statements()
                # If an optimizer no longer exists, a new description would show its parameters as held by no optimizer.
                # Then the description of the last call remains valid.
                if all(item() is not None for item in self.described):
                    self.describe()
                checkpoints.describe_saves(self)
                for optimizer, state in self.optimizers.items():
                    total = sum(float(real(local(p.detach())).double().sum()) for p in parameters_of(optimizer))
                    self.add("end", optimizer=state.number, steps=state.steps, sum=total)
                self.kept.clear()
            self.add("finished")
            self.steps = 0
            with self.observing("flush"):
                self.trace.flush()


def _any_left(parameters: list[Tensor], kept: list[bool]) -> tuple[object, object]:
    """Return whether a gradient is not 0, and whether a gradient is unchanged and not 0.

    Args:
        parameters: The parameters whose gradients are checked.
        kept: Per parameter: whether its gradient is unchanged since its version was stored.

    Returns:
        Two values, each a boolean or a tensor on the device of the gradients.
    """
    # In the common case, all gradients are unchanged, and one operation is enough. The result stays on the device until
    # the next flush.
    left: Any
    samples = [sample(p.grad) for p in parameters if p.grad is not None]
    if samples and all(kept) and len({(part.dtype, part.device) for part in samples}) == 1:
        left = torch.cat(samples).any()
        return left, left
    sizes = list(torch._foreach_norm(samples, 1)) if samples else []
    unchanged = [size for size, is_kept in zip(sizes, kept) if is_kept]
    left = torch.stack(sizes).any() if sizes else False
    if len(unchanged) == len(sizes):
        return left, left
    return left, torch.stack(unchanged).any() if unchanged else False


def _ids(optimizer: torch.optim.Optimizer) -> list[int]:
    """Return the ids of the parameters of an optimizer."""
    return [id(p) for p in parameters_of(optimizer)]


def _versions(parameters: list[Tensor], waiting: dict[int, Tensor]) -> list[tuple[int, int]]:
    """Return ids and versions of the gradients, including the gradients that FSDP2 has not reduced yet.

    The result is different after a gradient was replaced, or changed in place.
    """
    gradients = [p.grad for p in parameters]
    if waiting:
        gradients += [waiting.get(id(p)) for p in parameters]
    return [(0, 0) if gradient is None else (id(gradient), version(gradient)) for gradient in gradients]


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`, DistributedDataParallel and DataParallel."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def tensors_in(value: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors in arguments or a batch, at most four levels deep."""
    if isinstance(value, Tensor):
        yield value
    elif depth < 4 and (isinstance(value, dict) or (hasattr(value, "keys") and hasattr(value, "__getitem__"))):
        for key in list(value.keys()):
            yield from tensors_in(value[key], depth + 1)
    elif depth < 4 and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth + 1)


def fingerprint(tensor: Tensor) -> object:
    """Return a 48-bit hash of about 256 elements of a tensor, as a tensor on the same device.

    Return 0 for tensors that are empty, complex, not dense, or on the meta device.
    """
    if tensor.layout != torch.strided or tensor.dtype.is_complex or tensor.is_meta or tensor.numel() == 0:
        return 0
    # Hash the bits of the float32 values, so that nearly equal values have different hashes.
    part = sample(tensor)
    if part.is_floating_point():
        part = part.contiguous().float().view(torch.int32)
    part = part.long()
    return torch.bitwise_and((part * _factors(part.numel(), part.device)).sum(), (1 << 48) - 1)


_known_factors: dict[tuple[int, torch.device], Tensor] = {}


def _factors(size: int, device: torch.device) -> Tensor:
    """Return the factors of the elements in a hash. Different factors make the hash depend on the order of elements."""
    factors = _known_factors.get((size, device))
    if factors is None:
        # Multiples of a prime near 2^32 / golden ratio (Knuth's multiplicative hashing).
        factors = torch.arange(1, size + 1, device=device) * 2_654_435_761 + 1
        if type(factors) is Tensor:  # a mode of the script, such as fake tensors, may give another type
            _known_factors[size, device] = factors
    return factors


def row_fingerprints(tensor: Tensor) -> Union[Tensor, list[int]]:
    """Return a 48-bit hash of a sample of every row of a batch, as a tensor on the same device.

    Return [] for tensors that are empty, complex, not dense, on the meta device, or without dimensions.
    """
    if (
        tensor.layout != torch.strided
        or tensor.dtype.is_complex
        or tensor.is_meta
        or not tensor.numel()
        or not tensor.dim()
    ):
        return []
    rows = local(tensor.detach()).reshape(tensor.shape[0], -1)
    rows = rows[:, :: max(1, rows.shape[1] // SAMPLE_SIZE)]
    if rows.is_floating_point():
        rows = rows.contiguous().float().view(torch.int32)
    rows = rows.long()
    return torch.bitwise_and((rows * _factors(rows.shape[1], rows.device)).sum(1), (1 << 48) - 1)


# Installation: wrappers around functions of torch, which call the observer of this process.

current: Observer
"""The observer of this process."""
reports: reported.Reports
"""The recorder of the numbers that the script reports."""


def _observe_after(part: str, record: Callable[..., None]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a function that wraps a method: the wrapper calls `record(self, *args, **kwargs)` after the method."""

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def call(self: object, *args: object, **kwargs: object) -> object:
            result = original(self, *args, **kwargs)
            if current.is_active():
                with current.observing(part):
                    record(self, *args, **kwargs)
            return result

        return call

    return make


def _observe_before(part: str, record: Callable[..., None]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a function that wraps a method: the wrapper calls `record(self, *args, **kwargs)` before the method."""

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def call(self: object, *args: object, **kwargs: object) -> object:
            if current.is_active():
                with current.observing(part):
                    record(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        return call

    return make


def _wrap_backward(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `torch.autograd.backward`, which `Tensor.backward` calls."""

    def backward(*args: object, **kwargs: object) -> object:
        observer = current
        if not observer.is_active() or observer._backward_depth:  # a nested pass, by reentrant checkpointing
            return original(*args, **kwargs)
        started = None
        with observer.observing("backward"):
            started = observer.begin_backward()
            roots = args[0] if args else kwargs.get("tensors")
            terms.mark_root(roots, observer.ended_steps)
            if observer.steps < EAGER_STEPS:
                losses.record_differences(observer, roots, observer.sites.find(2)[0])
            if observer.steps < terms.STEPS:
                started["derivative"] = observer.terms.constant_derivative(roots)
                started["root"] = observer.terms.describe(roots)
                started["dropped"] = observer.terms.dropped
                started["plan"] = terms.accumulation_plan(sys._getframe(1))
            # `args[2]` and `args[3]` are the parameters `retain_graph` and `create_graph`.
            retained = kwargs.get("retain_graph") or kwargs.get("create_graph") or any(args[2:4])
            started["retained"] = bool(retained)
        observer.end_at_limit()  # no hook of an optimizer runs after an update by statements
        observer._backward_depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            observer._backward_depth -= 1
        if started is not None:
            with observer.observing("backward"):
                observer.end_backward(started, observer.sites.find(2)[0])
        return result

    return backward


def _wrap_grad(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `torch.autograd.grad`. `args[4]` is its parameter `create_graph`."""

    def grad(*args: Any, **kwargs: Any) -> object:
        result = original(*args, **kwargs)
        observer = current
        if observer.is_active() and not observer.in_module and observer.backward is None:
            with observer.observing("derivative"):
                outputs = args[0] if args else kwargs.get("outputs")
                inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
                observer.terms.add_derivative(
                    observer, outputs, inputs, bool(kwargs.get("create_graph") or any(args[4:5]))
                )
        return result

    return grad


def _wrap_module_call(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `Module.__call__`. A global hook would not get keyword arguments, and would make calls of modules slower."""

    def __call__(self: nn.Module, *args: object, **kwargs: object) -> object:
        observer = current
        # A call inside the call of an outermost module. Most calls take this branch, so it must be fast.
        if observer.in_module:
            inner = original
            if self._forward_pre_hooks:
                observer.modes.record_hooks(self)
            if isinstance(self, MODE_LAYERS):

                def inner(module: nn.Module, *args: object, **kwargs: object) -> object:
                    return observer.modes.call(module, original, args, kwargs)

            elif self._parameters:
                observer.modes.previous = id(next(iter(self._parameters.values())))
            last = observer._last_forward
            early = observer.steps < EAGER_STEPS and self._parameters and last is not None and last["grad"]
            if early and isinstance(self, nn.Linear):
                observer.last_layer = self
            if observer.hidden_heads and self in observer.hidden_heads and observer.is_active():
                output = inner(self, *args, **kwargs)
                if observer.is_sampled and isinstance(output, Tensor) and output.requires_grad:
                    with observer.observing("logits"):
                        losses.watch_logits(observer, output, key="hidden head", is_kept=False)
                return output
            if early and observer.facts.layer_calls < parameters.LAYER_CALLS and observer.is_active():
                return parameters.call_layer(observer, inner, self, args, kwargs)
            return inner(self, *args, **kwargs)
        if not observer.is_active() or threading.get_ident() != observer._thread:
            return original(self, *args, **kwargs)
        # An outermost call: of a model, of a loss, or of a part of a model that gradient checkpointing recomputes.
        model, grad = None, torch.is_grad_enabled()
        is_recomputed = observer.is_recomputed(self)
        with observer.observing("module"):
            if is_recomputed:
                observer.recompute(self, args, kwargs, grad)
            else:
                model = observer.begin_module(self, args, kwargs, grad)
            if model is not None and self._forward_pre_hooks:
                observer.modes.record_hooks(self, outermost=True)
        observer.in_module = model is not None or is_recomputed
        try:
            result = original(self, *args, **kwargs)
        finally:
            observer.in_module = False
            observer.modes.end_forward()
            if model is not None:
                observer.seeds.end_forward()
        if model is not None and grad:
            with observer.observing("output"):
                heads.record_layer(observer, result)
                observer.watch_outputs(result)
                tokens.record_outputs(observer, result)
                logits = getattr(result, "logits", None)
                tensors = [logits] if isinstance(logits, Tensor) else list(tensors_in(result))[:4]
                output = next((t for t in tensors if t.requires_grad and t.is_floating_point() and t.dim() >= 2), None)
                if output is not None and model.calls_by_grad[True] <= 2:
                    parameters.record_head(observer, output, model.number)
                if output is not None and observer.is_sampled:
                    losses.watch_logits(observer, output, model=model.number)
        return result

    return __call__


def _wrap_clip(kind: str, limit_name: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a function that wraps the clipping function `kind`; `limit_name` is the name of its second parameter."""

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def clip(*args: Any, **kwargs: Any) -> object:
            observer = current
            arguments = {**dict(zip(("parameters", limit_name), args)), **kwargs}
            if not observer.is_active() or observer._clip_depth or not {"parameters", limit_name} <= set(arguments):
                return original(*args, **kwargs)
            parameters, limit = arguments.pop("parameters"), arguments.pop(limit_name)
            # An exhausted generator has no frame. Another iterator, such as `filter(...)`, is exhausted if the previous
            # call of a clipping function has used it.
            used_up = isinstance(parameters, types.GeneratorType) and parameters.gi_frame is None
            used_up = used_up or (isinstance(parameters, Iterator) and parameters is observer.clipped_iterator)
            iterable = parameters
            observer.clipped_iterator = parameters if isinstance(parameters, Iterator) else None
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            passed = iterable if used_up else parameters  # torch warns if it gets an exhausted generator
            scaled = None
            with observer.observing("clip"):
                scaled = observer.pending_scale(parameters)
            observer._clip_depth += 1
            try:
                result = original(passed, limit, *args[2:], **arguments)
            finally:
                observer._clip_depth -= 1
            with observer.observing("clip"):
                value = limit.detach().clone() if isinstance(limit, Tensor) else float(limit)
                observer.record_clip(kind, parameters, value, result, scaled, used_up, observer.sites.find(2)[0])
            return result

        return clip

    return make


def _wrap_scaler_step(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `GradScaler.step` to add an event if the scaler skips the step."""

    def step(self: torch.amp.GradScaler, optimizer: object, *args: object, **kwargs: object) -> object:
        observer = current
        # If a gradient is not finite, the scaler does not call `optimizer.step`, and the number of steps is the same.
        before = observer.ended_steps
        observer._scaler_depth += 1
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            observer._scaler_depth -= 1
            if observer.is_active() and self.is_enabled() and before == observer.ended_steps:
                observer.add("skipped_step", at=observer.sites.find(2)[0])

    return step


def _wrap_scaler_scale(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `GradScaler.scale` to store the loss scale in the record of the backward pass of the scaled loss."""

    def scale(self: Any, outputs: object) -> object:
        result = original(self, outputs)
        if current.is_active() and self.is_enabled():
            with current.observing("scale"):
                factor = self._scale.detach().clone()  # the public method `get_scale` would wait for the device
                for tensor in tensors_in(result):
                    if tensor.requires_grad:
                        tensor.register_hook(functools.partial(_record_scale, factor))
        return result

    return scale


def _record_scale(factor: Tensor, gradient: Optional[Tensor]) -> None:
    """Record the loss scale of the running backward pass. This function is a hook of a scaled loss."""
    if gradient is not None and current.backward is not None and current.is_same_process():
        current.backward["scale"] = factor


def _record_unscale(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
    """Record that a scaler has divided the gradients of an optimizer by the loss scale."""
    if scaler.is_enabled() and optimizer in current.optimizers:
        current.add("unscale", optimizer=current.state_of(optimizer).number)
        current.state_of(optimizer).scale = None
        current.store_versions(optimizer)


def _after_fork() -> None:
    """Give a forked child, such as a worker of a data loader, a new observer and a new trace."""
    global current
    is_over = current.is_over
    current = Observer(current.folder, current.options)
    current.is_over = is_over


def _wrap_resolution(original: Callable[..., object]) -> Callable[..., object]:
    """Make `torch.jit.script` resolve the names in a wrapped function in the scope of the original function.

    Older versions of torch resolve these names in the scope of the wrapper.
    """

    def resolve(function: object) -> object:
        prepare = getattr(function, "__prepare_scriptable__", None)
        return original(function if prepare is None else prepare())

    return resolve


def _cut_after_step(optimizer: object, args: object, kwargs: object) -> None:
    """Kill the process after a step if `Options.cut` is reached. This function is a hook of all optimizers."""
    if current.is_active():
        checkpoints.cut_after_step(current)


def _write_and_terminate(number: int, frame: object) -> None:
    """Write the trace, then end the process by the default action of the signal. This function is a signal handler."""
    current.finish()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _wrap_exit(original: Callable[..., object]) -> Callable[..., object]:
    """Wrap `os._exit` to write the trace before. Children of `multiprocessing` end by `os._exit`, without `atexit`."""

    def _exit(*args: object, **kwargs: object) -> None:
        # Not with CUDA: a watchdog may call this function in a process whose GPU operations never finish.
        if threading.get_ident() == current._thread and not torch.cuda.is_initialized():
            current.finish()
        original(*args, **kwargs)

    return _exit


def _record_ddp(self: nn.parallel.DistributedDataParallel, *args: object, **kwargs: object) -> None:
    """Record a new `DistributedDataParallel` and its parameters."""
    current.wrappers.add(self)
    current.wrapped.update({id(p): weakref.ref(p) for p in self.parameters()})
    current.add("ddp", group=torch.distributed.get_world_size(self.process_group), at=current.at())


def _record_hook(self: object, *args: object, **kwargs: object) -> None:
    """Record that the script registers a communication hook, which may change the gradients."""
    current.add("communication_hook", at=current.at())


def _record_optimizer(self: torch.optim.Optimizer, *args: object, **kwargs: object) -> None:
    """Record a new optimizer after its constructor has returned."""
    current.state_of(self)


def install(folder: Path, options: Options = DEFAULTS) -> None:
    """Start to observe this process. A second call starts a new trace.

    Args:
        folder: The existing folder that the trace is written to.
        options: The options of the process.
    """
    global current, reports
    is_installed = "current" in globals()
    current = Observer(folder.resolve(), options)
    if is_installed:  # the functions are wrapped already; the wrappers read `current` on every call
        return
    frames.install()
    losses.install(lambda: current)
    heads.install(lambda: current)
    loaders.install(lambda: current)
    checkpoints.install(lambda: current)
    reports = reported.install(lambda: current)
    reports.wrap_libraries()
    parameters.install(lambda: current)
    distributions.install(lambda: current, EAGER_STEPS)
    modes.install(lambda: current)
    averages.install(lambda: current)
    schedules.install(lambda: current)
    seeds.install(lambda: current)
    frames.wrap(torch.autograd, "backward", _wrap_backward)
    frames.wrap(torch.autograd, "grad", _wrap_grad)
    frames.wrap(importlib.import_module("torch._jit_internal"), "createResolutionCallbackFromClosure", _wrap_resolution)
    frames.wrap(torch.optim.Optimizer, "__init__", _observe_after("optimizer", _record_optimizer))
    hooks = importlib.import_module("torch.optim.optimizer")  # `torch.optim` deletes this name

    def before_step(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if current.is_active():
            with current.observing("before step"):
                current.before_step(optimizer)

    def after_step(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if current.is_active():
            with current.observing("after step"):
                current.after_step(optimizer)

    hooks.register_optimizer_step_pre_hook(before_step)
    hooks.register_optimizer_step_post_hook(after_step)
    hooks.register_optimizer_step_post_hook(_cut_after_step)
    hooks.register_optimizer_step_post_hook(lambda optimizer, args, kwargs: current.end_at_limit())
    zero = _observe_before("zero", lambda target, *args, **kwargs: current.record_zero(target))
    frames.wrap(torch.optim.Optimizer, "zero_grad", zero)
    frames.wrap(nn.Module, "zero_grad", zero)
    frames.wrap(nn.Module, "__call__", _wrap_module_call)
    for kind, limit_name in (("clip_grad_norm_", "max_norm"), ("clip_grad_value_", "clip_value")):
        frames.wrap(nn.utils.clip_grad, kind, _wrap_clip(kind, limit_name))
        setattr(nn.utils, kind, getattr(nn.utils.clip_grad, kind))
    scaler = importlib.import_module("torch.amp.grad_scaler").GradScaler if _has_amp() else torch.cuda.amp.GradScaler
    frames.wrap(scaler, "step", _wrap_scaler_step)
    frames.wrap(scaler, "scale", _wrap_scaler_scale)
    frames.wrap(scaler, "unscale_", _observe_after("unscale", _record_unscale))
    if torch.distributed.is_available():
        collectives.install(lambda: current)
        frames.wrap(nn.parallel.DistributedDataParallel, "__init__", _observe_after("ddp", _record_ddp))
        frames.wrap(nn.parallel.DistributedDataParallel, "register_comm_hook", _observe_after("ddp", _record_hook))
    atexit.register(lambda: current.finish())
    frames.wrap(os, "_exit", _wrap_exit)
    os.register_at_fork(after_in_child=_after_fork)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _write_and_terminate)


def _has_amp() -> bool:
    """Return whether torch has `torch.amp.GradScaler`. It exists since torch 2.3."""
    return importlib.util.find_spec("torch.amp.grad_scaler") is not None
