"""Records training and eval mode: the calls that set a mode, the layers that they reach, and normalization inputs.

Terms: `train()` and `eval()` call each other for the children of a module; the outermost of these calls is a *request*.
The *root* of a request is the module whose method was called. The mode of a layer was set by the last request that
reached the layer, unless the script assigns the attribute `training`.
"""

from __future__ import annotations

import importlib
import math
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import frames
from .trace import Event, Late

if TYPE_CHECKING:
    from torch.nn.utils.spectral_norm import SpectralNorm

    from .observer import Model, Observer

NORM = importlib.import_module("torch.nn.modules.batchnorm")._NormBase
DROPOUT = importlib.import_module("torch.nn.modules.dropout")._DropoutNd
SPECTRAL = importlib.import_module("torch.nn.utils.spectral_norm").SpectralNorm
DROPOUT_FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
MEASURED_FORWARDS = 3
"""Number of forwards in which the inputs of a shared normalization layer, or a spectral norm, are measured."""
SEARCH_INTERVAL = 50
"""Number of calls of a model between two searches for frozen parts, after the first calls."""
MAX_UNREACHED = 8
"""Largest number of `unreached` events for a line and a kind of layer."""
GRAPH_NODES = 5_000
"""Largest number of visited autograd nodes in a search."""
POWER_ITERATIONS = 12
"""Number of power iterations to estimate a spectral norm."""
USUAL_EPS, USUAL_MOMENTUM = 0.01, 0.5
"""A normalization with a larger `eps` or `momentum` is recorded as unusual. The defaults of torch are 1e-5 and 0.1."""


class Request(NamedTuple):
    """An outermost call of `train()` or `eval()`.

    Attributes:
        number: The position of the request among the requests of the process, from 1.
        mode: True for training mode.
        at: The line of the user's code that made the call, directly or through a library.
        forwards: Number of forwards of outermost modules before the call.
        by_user: Whether the user's code, and not a library, made the call.
        root: The module whose method was called.
    """

    number: int
    mode: bool
    at: str
    forwards: int
    by_user: bool
    root: weakref.ref[nn.Module]


class FrozenPart:
    """A part of a model without trainable parameters, with samples of its parameters and its first running statistics.

    The part may no longer exist when the process ends. So `update` stores the facts for the last event.

    Attributes:
        frozen: Whether the part had no trainable parameter at the last `update`.
        written: Whether parameters of the part had changed before the last `update`.
        trained: Whether a parameter of the part had a gradient at a step.
    """

    def __init__(self, part: nn.Module, norms: list[Any], sample: Callable[[Tensor], Tensor]) -> None:
        self.sample = sample
        self.part = weakref.ref(part)
        self.norms = [weakref.ref(norm) for norm in norms[:4]]
        self.statistics = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms[:4]]
        self.written_before = sum(p._version for p in part.parameters())
        # A change through `.data` does not change the version counter, so samples are compared too.
        self.before = [sample(p).clone() for p in part.parameters()]
        self.frozen, self.written, self.trained = True, False, False
        self.last_key: object = None
        """The facts that must change before another event of this part is added."""

    def update(self, trained: set[int]) -> None:
        """Update the facts if the part still exists.

        Args:
            trained: The ids of the parameters that had a gradient at a step.
        """
        part = self.part()
        if part is not None:
            parameters = list(part.parameters())
            self.frozen = not any(p.requires_grad for p in parameters)
            self.written = sum(p._version for p in parameters) != self.written_before or not all(
                now.shape == old.shape and torch.equal(now.to(old.device, old.dtype), old)
                for now, old in zip(map(self.sample, parameters), self.before)
            )
            self.trained = any(id(p) in trained for p in parameters)
            pairs = [(reference(), old) for reference, old in zip(self.norms, self.statistics)]
            self.means = [(norm.running_mean, old) for norm, old in pairs if norm is not None]

    def shift_of_means(self) -> Tensor:
        """Return how much the running means have changed since this object was created.

        The change of a channel is divided by the standard deviation of the channel at that time. The result is the
        median of the channels of a layer; of the first four layers, the largest median. It is 0 if no layer exists.
        """
        shifts = [((mean - old).abs() / (var + 1e-5).sqrt()).median().double().cpu() for mean, (old, var) in self.means]
        return torch.stack(shifts).max() if shifts else torch.zeros(())


def has_statistics(module: object) -> bool:
    """Return whether a module is a normalization that uses running statistics in eval mode."""
    return isinstance(module, NORM) and module.running_mean is not None


class Modes:
    """Records the modes of the modules of one process.

    Args:
        observer: The observer of this process.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.forwards = 0
        """Number of forwards of outermost modules that have begun."""
        self.previous = 0
        """The id of the first parameter of the last layer with parameters that ran and is no normalization."""
        self._request: Optional[Request] = None
        self._count = 0
        self._dropout_depth = 0
        self._requests: weakref.WeakKeyDictionary[nn.Module, dict[tuple[int, bool], Request]] = (
            weakref.WeakKeyDictionary()
        )
        """By layer of normalization or dropout: the last request of every root (by its id) and mode."""
        self._roots: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        """The number of requests of every root."""
        self._early: weakref.WeakKeyDictionary[nn.Module, list[dict[str, object]]] = weakref.WeakKeyDictionary()
        """The last requests of modules that the script has not called yet."""
        self._searched: dict[int, int] = {}
        """By number of the model: the number of the last request before the last search for frozen parts."""
        self._parts: dict[tuple[int, str], FrozenPart] = {}
        """The frozen parts, by number of the model and name of the part."""
        self._model: Optional[Model] = None
        """The model whose forward is running."""
        self._runs: dict[nn.Module, list[tuple[int, object, Optional[Tensor], str]]] = {}
        """The calls of every normalization layer in the running forward.

        A call is a tuple: the value of `previous`, the autograd node of the output, the input (None if inputs are not
        measured), and the line ("" for the first call).
        """
        self._shared: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        """By normalization layer: number of forwards with several calls of the layer, minus one."""
        self._spectral: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        """Number of measured forwards of a module with a spectral norm; `MEASURED_FORWARDS` to stop the measurement."""
        self._froze: list[tuple[list[weakref.ref[Tensor]], Event]] = []
        """The first requests that froze parameters: the trained ones of these, and the fields of the `froze` event."""
        self._unreached_counts: dict[tuple[object, ...], int] = {}
        """Number of calls of `_add_unreached`, by line and kind of the layer."""
        self._inputs: list[Tensor] = []
        """The tensors in the arguments of the running forward."""

    # Requests.

    def begin_request(self, module: nn.Module, mode: bool, by_user: bool) -> None:
        """Record a request before the call runs.

        Args:
            module: The root of the request.
            mode: True for training mode.
            by_user: Whether the user's code, and not a library, made the call.
        """
        observer = self.observer
        at = observer.sites.find(2)[0]
        self._count += 1
        self._roots[module] = self._roots.get(module, 0) + 1
        self._request = Request(self._count, mode, at, self.forwards, by_user, weakref.ref(module))
        self.record_request(module)
        fields = {"training": mode, "before": module.training, "at": at}
        if module in observer.models:
            observer.add("mode", model=observer.models[module].number, **fields)
        else:
            self._early.setdefault(module, []).append(fields)
            del self._early[module][:-4]

    def record_request(self, module: nn.Module) -> None:
        """Record that the running request has reached a module."""
        if self._request is not None and isinstance(module, (NORM, DROPOUT)):
            request = self._request
            self._requests.setdefault(module, {})[id(request.root()), request.mode] = request

    def end_request(self, module: nn.Module, frozen: Optional[set[int]]) -> None:
        """End the running request, and store which trained parameters the request has frozen.

        Args:
            module: The root of the request.
            frozen: The ids of the parameters that were frozen before the request; None to store nothing.
        """
        request, self._request = self._request, None
        if frozen is None or request is None or all(p.requires_grad or id(p) in frozen for p in module.parameters()):
            return
        trained = self._trained()
        named = [(name, p) for name, p in module.named_parameters() if id(p) in trained]
        frozen_now = [(name, p) for name, p in named if not p.requires_grad and id(p) not in frozen]
        facts = {
            "names": [name for name, _ in frozen_now][:40],
            "count": len(frozen_now),
            "trained": len(named),
            "first": self._roots.get(module) == 1,
            "step": self.observer.steps,
            "at": request.at,
        }
        self._froze.append(([weakref.ref(p) for _, p in frozen_now], facts))
        del self._froze[8:]

    def _trained(self) -> set[int]:
        """Return the ids of the parameters that had a gradient at a step."""
        return set().union(*(state.had_gradient for state in self.observer.optimizers.values()))

    def add_model(self, module: nn.Module, number: int) -> None:
        """Add events for the requests before the first call of a model."""
        for fields in self._early.pop(module, []):
            self.observer.add("mode", model=number, **fields)

    # Forwards.

    def begin_forward(self, model: Model, module: nn.Module, grad: bool, inputs: list[Tensor]) -> None:
        """Record that the forward of an outermost module begins.

        Args:
            model: The observer's record of the module.
            module: The module, without wrappers such as DistributedDataParallel.
            grad: Whether gradients are enabled.
            inputs: The tensors in the arguments.
        """
        self.forwards += 1
        self._model, self.previous, self._inputs = model, 0, inputs
        if model.network_fields and not (model.is_trained and grad):
            self._record_network(module, model, self._trained())
        # The search for frozen parts visits all modules, so it runs only in the first calls, after a request, and in
        # every 50th call.
        is_after_request = self._searched.get(model.number) != self._count
        if grad and model.layers and (model.calls <= 3 or model.calls % SEARCH_INTERVAL == 0 or is_after_request):
            self._searched[model.number] = self._count
            self._record_parts(model, module)

    def end_forward(self) -> None:
        """Record that the forward of an outermost module ends, and which normalization layers ran several times."""
        runs, self._runs, self._model, self._inputs = self._runs, {}, None, []
        for norm, calls in runs.items():
            if len(calls) > 1:
                with self.observer.observing("shared normalization"):
                    self._record_shared(norm, calls)

    @frames.hidden
    def call(
        self,
        module: nn.Module,
        original: Callable[..., object],
        args: Any,
        kwargs: dict[str, object],
    ) -> object:
        """Call a layer of normalization or dropout inside an outermost module, and record facts about the call."""
        observer = self.observer
        root = observer._last_forward
        if not module.training or root is None or self._model is None:
            return original(module, *args, **kwargs)
        if not root["training"] and not root["grad"] and observer.is_active():
            with observer.observing("layer"):
                self._record_unreached(self._model, module)
            self._dropout_depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                self._dropout_depth -= 1
        result = original(module, *args, **kwargs)
        # These lines run in every call of a layer, so they do not use the slow context `observing`. They cannot raise.
        if root["grad"] and isinstance(module, NORM) and isinstance(result, Tensor) and has_statistics(module):
            calls = self._runs.get(module)
            if calls is None:
                calls = self._runs[module] = []
            measured = args and self._shared and self._shared.get(module, MEASURED_FORWARDS) < MEASURED_FORWARDS
            place = observer.at() if calls else ""
            calls.append((self.previous, result.grad_fn, args[0] if measured else None, place))
        return result

    # Layers that a request does not reach.

    def _record_unreached(self, model: Model, module: nn.Module) -> None:
        """Record a layer in training mode that runs in a model in eval mode, if the layer is not registered in it."""
        if getattr(module, "p", 1) and (not isinstance(module, NORM) or has_statistics(module)):
            if not any(layer is module for layer in model.layers):
                self._add_unreached(model, type(module).__name__, getattr(module, "p", None), False, False)

    def record_function(self, name: str, rate: float, explicit: bool, operand: object) -> None:
        """Record a call of a dropout function that is active in the forward of a model in eval mode.

        Args:
            name: The name of the function.
            rate: The dropout rate.
            explicit: Whether the call passes the argument `training`.
            operand: The first argument of the function.
        """
        if self._dropout_depth or self._model is None:
            return
        with self.observer.observing("dropout"):
            # Only dense tensors, because a sparse tensor has no storage.
            inputs = [t for t in self._inputs if t.is_floating_point() and t.layout == torch.strided]
            on_input = (
                isinstance(operand, Tensor)
                and operand.layout == torch.strided
                and operand.data_ptr() in [t.data_ptr() for t in inputs]
            )
            # Dropout of equal numbers, such as ones, draws a random mask. To save time, only the first call of a line
            # compares the numbers.
            if isinstance(operand, Tensor) and not self._unreached_counts.get((self.observer.at(), name)):
                on_input = on_input or bool((operand == operand.flatten()[:1]).all())
            self._add_unreached(self._model, name, rate, explicit, on_input)

    def _add_unreached(self, model: Model, kind: str, rate: Optional[float], explicit: bool, on_input: bool) -> None:
        """Add an `unreached` event, unless `MAX_UNREACHED` is reached. `on_input` also stands for a random mask."""
        at = self.observer.at()
        self._unreached_counts[at, kind] = self._unreached_counts.get((at, kind), 0) + 1
        if self._unreached_counts[at, kind] <= MAX_UNREACHED:
            self.observer.add(
                "unreached",
                model=model.number,
                forward=self.observer.last_forward["n"],
                kind=kind,
                rate=rate,
                explicit=explicit,
                on_input=on_input,
                at=at,
            )

    # Frozen parts.

    def _record_parts(self, model: Model, module: nn.Module) -> None:
        """Add an event for every frozen part with running statistics that is new, or whose mode or requests changed."""
        for name, part, fixed in frozen_parts(module):
            norms = [layer for layer in part.modules() if has_statistics(layer) and layer.momentum != 0]
            if not norms:
                continue
            state = self._parts.get((model.number, name))
            if state is None or state.part() is not part:
                state = self._parts[model.number, name] = FrozenPart(part, norms, self.observer.sample)
            training = [norm for norm in norms if norm.training]
            requests = sorted(self._requests.get((training or norms)[0], {}).values())
            # If all parameters of the root are frozen, the user wrote the call for the frozen part.
            direct = [r for r in requests if r.by_user and _is_frozen(r.root())]
            request = next((r for r in reversed(direct) if not r.mode), None)
            last = requests[-1] if requests else None
            facts = {
                "layers": len(norms),
                "training": len(training),
                "fixed_inputs": fixed,
                "asked_eval": {"at": request.at, "forwards": request.forwards} if request else None,
                "asked_training": any(r.mode for r in direct),
                "reached_by_training": any(r.mode for r in requests),
                "last": {"at": last.at, "training": last.mode, "forwards": last.forwards} if last else None,
            }
            key = (len(training), request and request.at, last and (last.at, last.mode))
            if key != state.last_key:
                state.last_key = key
                state.update(self._trained())
                at = self.observer.last_forward["at"]
                self.observer.add("frozen_part", model=model.number, part=name, at=at, **facts)

    def describe(self) -> None:
        """Add events about the running statistics of models and frozen parts, and about parameters that were frozen."""
        self.record_training()
        trained = self._trained()
        for module, state in list(self.observer.models.items()):
            norms = [layer for layer in module.modules() if has_statistics(layer)]
            if norms:
                facts = {"layers": len(norms), "average": self.observer.averages.is_average(module)}
                numbers = {"initial": count_initial(norms), "unusual": _describe_unusual(module)}
                self.observer.add("statistics", model=state.number, **numbers, **facts)
        for references, facts in self._froze:
            still = all(p is None or not p.requires_grad for p in (reference() for reference in references))
            self.observer.add("froze", still=still, **facts)
        for (model, name), part in self._parts.items():
            part.update(trained)
            facts = {"frozen": part.frozen, "written": part.written, "trained": part.trained}
            self.observer.add("frozen_statistics", model=model, part=name, moved=part.shift_of_means(), **facts)

    def record_training(self) -> None:
        """Record which models and frozen parts were trained, or changed by the script."""
        trained = self._trained()
        for module, state in list(self.observer.models.items()):
            self._record_network(module, state, trained)
        for part in self._parts.values():
            part.update(trained)

    def _record_network(self, module: nn.Module, state: Model, trained: set[int]) -> None:
        """Add a `network` event for a model if its facts differ from the last `network` event."""
        parameters = list(module.parameters())
        state.is_trained = state.is_trained or any(id(p) in trained for p in parameters)
        facts = {
            "trained": state.is_trained,
            "gradients": 0 if state.is_trained else sum(p.grad is not None for p in parameters),
            "version": sum(p._version for p in parameters),
            "shapes": zlib.crc32(repr([list(p.shape) for p in parameters]).encode()),
        }
        if facts != state.network_fields:
            state.network_fields = facts
            self.observer.add("network", model=state.number, **facts)

    # Normalization layers that run several times in one forward.

    def _record_shared(self, norm: nn.Module, calls: list[tuple[int, object, Optional[Tensor], str]]) -> None:
        """Add a `shared_norm` event about a normalization layer that ran several times in a forward."""
        count = self._shared.get(norm)
        self._shared[norm] = 0 if count is None else count + 1
        if self._shared[norm] > MEASURED_FORWARDS:
            return
        inputs = [x for _, _, x, _ in calls if x is not None]
        # The inputs of the normalization are compared if they come from different layers. Of the calls after the same
        # layer, only the first is compared: in a dictionary that is filled in reverse order, it overwrites the others.
        by_layer = list({before: position for position, (before, *_) in reversed(list(enumerate(calls)))}.values())
        by_layer.sort()
        chosen = by_layer if len(by_layer) > 1 else list(range(min(len(calls), 8)))
        serial = False
        if len(by_layer) > 1 and calls[chosen[0]][1] is not None and len(inputs) == len(calls):
            # Serial: the second input depends on the first output, because the layer runs at two depths of a network.
            # In two parallel branches of a network, the second input does not depend on the first output.
            later = inputs[chosen[1]].grad_fn
            serial = _is_reached(later, calls[chosen[0]][1])
        measure = None
        if len(inputs) == len(calls):
            measure = Late(list(_moments([inputs[i].detach() for i in chosen])), _largest_distance)
        model = self.observer.last_forward["model"]
        module = next((m for m, state in list(self.observer.models.items()) if state.number == model), None)
        names = dict(module.named_modules()).items() if module is not None else ()
        self.observer.add(
            "shared_norm",
            model=model,
            layer=next((name for name, layer in names if layer is norm), type(norm).__name__),
            calls=len(calls),
            layers=len(by_layer),
            serial=serial,
            apart=measure,
            at=calls[1][3],
        )

    # Spectral norms.

    def record_hooks(self, module: nn.Module, *, outermost: bool = False) -> None:
        """Record a spectral norm that is used in eval mode before the module has run in training mode.

        Args:
            module: The module with hooks.
            outermost: Whether the module is an outermost module.
        """
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SPECTRAL):
                measured = self._spectral.get(module, 0)
                if module.training:
                    self._spectral[module] = MEASURED_FORWARDS
                elif measured < MEASURED_FORWARDS and (outermost or self.observer.is_active()):
                    self._spectral[module] = measured + 1
                    with self.observer.observing("spectral norm"):
                        self._record_spectral(module, hook)

    def _record_spectral(self, module: nn.Module, hook: SpectralNorm) -> None:
        """Add a `spectral_norm` event with the norm by which a layer divides its weight, and the correct norm."""
        weight = hook.reshape_weight_to_matrix(getattr(module, hook.name + "_orig").detach()).double()
        u, v = (getattr(module, f"{hook.name}_{part}").double() for part in "uv")
        # The layer divides its weight W by u W v, which should be the largest singular value of W. Power iterations
        # from u and v compute this value with a few correct digits.
        used = torch.dot(u, torch.mv(weight, v))
        for _ in range(POWER_ITERATIONS):
            v = F.normalize(torch.mv(weight.t(), u), dim=0)
            u = F.normalize(torch.mv(weight, v), dim=0)
        last = self.observer.last_forward
        self.observer.add(
            "spectral_norm",
            model=last["model"],
            layer=type(module).__name__,
            norms=Late([used, torch.dot(u, torch.mv(weight, v))], lambda a, b: [a[0], b[0]]),
            input=last["inputs"][-1] if last["inputs"] else 0,
            at=last["at"],
        )


def frozen_parts(module: nn.Module) -> Iterator[tuple[str, nn.Module, bool]]:
    """Yield the largest parts of a model whose parameters are all frozen. Yield nothing if the whole model is frozen.

    A single normalization layer counts as a frozen part only if the layer before it is also frozen. If the layer before
    it is trained, the running statistics must adapt to the outputs of this layer.

    Yields:
        The name of the part, the module, and whether all parameters are frozen that are registered before the part.
    """
    if not any(not p.requires_grad for p in module.parameters()) or _is_frozen(module):
        return
    # Depth-first search in the order of registration, which is the order of execution in most networks.
    stack: list[tuple[str, nn.Module]] = [("", module)]
    fixed, behind_frozen = True, False
    while stack:
        name, part = stack.pop()
        if not _is_frozen(part):
            if any(p.requires_grad for p in part._parameters.values() if p is not None):
                fixed = behind_frozen = False
            prefix = f"{name}." if name else ""
            stack += [(prefix + child, m) for child, m in reversed(list(part.named_children()))]
        elif next(part.parameters(), None) is not None:
            if not isinstance(part, NORM) or behind_frozen:
                yield name, part, fixed
            behind_frozen = True


def count_initial(norms: list[Any]) -> Late:
    """Return the number of normalization layers whose running statistics are the initial values."""
    changed = []
    for norm in norms:
        facts = [norm.running_mean.any(), (norm.running_var != 1).any()]
        if norm.num_batches_tracked is not None:
            facts.append(norm.num_batches_tracked.bool())
        changed.append(torch.stack(facts).any())
    return Late(changed, lambda *values: sum(not value for (value,) in values))


def _describe_unusual(module: nn.Module) -> object:
    """Return facts about the normalization layers of a model with unusual `eps` or `momentum`; see `USUAL_EPS`."""
    rows, variances = [], []
    for name, layer in module.named_modules():
        momentum = getattr(layer, "momentum", None)
        if has_statistics(layer) and (layer.eps > USUAL_EPS or (momentum is not None and momentum > USUAL_MOMENTUM)):
            rows.append((name, type(layer).__name__, layer.eps, momentum))
            variances.append([layer.running_var.detach().median(), layer.num_batches_tracked])
    tensors = [torch.stack([torch.as_tensor(0 if v is None else v).double() for v in pair]) for pair in variances[:40]]
    names = ("name", "kind", "eps", "momentum", "variance", "batches")
    return Late(tensors, lambda *v: [dict(zip(names, (*r, *pair))) for r, pair in zip(rows, v)]) if tensors else []


def _is_frozen(module: Optional[nn.Module]) -> bool:
    """Return whether a module requires no gradients; False for None."""
    return module is not None and not any(p.requires_grad for p in module.parameters())


def _is_reached(node: object, goal: object) -> bool:
    """Return whether the autograd node `node` depends on the node `goal`. Visit at most `GRAPH_NODES` nodes."""
    seen, waiting = {node}, [node]
    while waiting and len(seen) < GRAPH_NODES:
        current = waiting.pop()
        if current is goal:
            return True
        for following, _ in getattr(current, "next_functions", ()):
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _moments(inputs: list[Tensor]) -> Iterator[Tensor]:
    """Yield the mean and the variance of the channels (dimension 1) of every input: two tensors [C] per input."""
    for x in inputs:
        var, mean = torch.var_mean(x.double(), [dim for dim in range(x.dim()) if dim != 1], unbiased=False)
        yield mean
        yield var


def _largest_distance(*values: list[float]) -> dict[str, float]:
    """Return the largest distance between any two of several distributions.

    Args:
        *values: Two lists for every distribution: the means and the variances of its channels.

    Returns:
        shift: The difference of the means, in standard deviations.
        spread: The ratio of the larger to the smaller variance.
        Both are medians over the channels, and the largest over all pairs of distributions.
    """
    moments = list(zip(values[::2], values[1::2]))
    shifts, ratios = [0.0], [1.0]
    for i, (mean_a, var_a) in enumerate(moments):
        for mean_b, var_b in moments[i + 1 :]:
            rows = list(zip(mean_a, var_a, mean_b, var_b))
            # Take the median over the channels, because single channels may differ by chance.
            shift = sorted(abs(a - b) / math.sqrt((va + vb) / 2 + 1e-12) for a, va, b, vb in rows)
            ratio = sorted((max(va, vb) + 1e-12) / (min(va, vb) + 1e-12) for _, va, _, vb in rows)
            shifts.append(shift[len(shift) // 2])
            ratios.append(ratio[len(ratio) // 2])
    return {"shift": max(shifts), "spread": max(ratios)}


# Installation.


def install(observer: Callable[[], Observer]) -> None:
    """Wrap `Module.train`, `Module.eval`, the dropout functions and `scaled_dot_product_attention`.

    Args:
        observer: Returns the observer of this process.
    """
    for name in ("train", "eval"):
        setattr(nn.Module, name, _wrap_mode(getattr(nn.Module, name), observer, name == "eval"))
    for name in DROPOUT_FUNCTIONS:
        setattr(F, name, _wrap_dropout(name, getattr(F, name), observer))
    name = "scaled_dot_product_attention"
    attention = _wrap_attention(getattr(F, name), observer)
    builtins = importlib.import_module("torch.jit._builtins")
    # `torch.jit.script` identifies builtin functions by their objects, so the wrapper must be registered. Otherwise, a
    # module with attention cannot be scripted.
    builtins._register_builtin(attention, f"aten::{name}")
    setattr(F, name, attention)


def _wrap_mode(
    original: Callable[..., object], observer: Callable[[], Observer], is_eval: bool
) -> Callable[..., object]:
    """Wrap `Module.train` or `Module.eval` to record requests."""

    @frames.wraps(original)
    def request(self: nn.Module, *args: object, **kwargs: object) -> object:
        active = observer()
        modes = active.modes
        # `train` calls `train` of every child, and `eval` calls `train`. Only the outermost call is a request.
        if modes._request is not None:
            modes.record_request(self)
            return original(self, *args, **kwargs)
        if not active.is_active():
            return original(self, *args, **kwargs)
        frozen = None
        mode = not is_eval and bool((args or (kwargs.get("mode", True),))[0])
        with active.observing("mode"):
            by_user = active.sites.is_user(sys._getframe(1).f_code.co_filename)
            modes.begin_request(self, mode, by_user)
            if active.steps and next(self.children(), None) is not None:
                frozen = {id(p) for p in self.parameters() if not p.requires_grad}
        try:
            return original(self, *args, **kwargs)
        finally:
            with active.observing("mode"):
                modes.end_request(self, frozen)

    return request


def _is_evaluated(active: Observer) -> bool:
    """Return whether a model in eval mode is running without gradients."""
    last = active._last_forward
    return active.in_module and last is not None and not last["training"] and not last["grad"] and active.is_active()


def _wrap_dropout(
    name: str, original: Callable[..., object], observer: Callable[[], Observer]
) -> Callable[..., object]:
    """Wrap a dropout function to record calls that are active in the forward of a model in eval mode."""
    default = name not in ("alpha_dropout", "feature_alpha_dropout")  # the default of `training`

    @frames.wraps(original)
    def dropout(*args: Any, **kwargs: Any) -> object:
        active = observer()
        if _is_evaluated(active):
            explicit = "training" in kwargs or len(args) > 2
            training = kwargs.get("training", args[2] if len(args) > 2 else default)
            rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            if training and rate:
                active.modes.record_function(name, float(rate), explicit, kwargs.get("input", (args or (None,))[0]))
        return original(*args, **kwargs)

    vars(dropout)["__prepare_scriptable__"] = lambda: original  # for `torch.jit.script`
    return dropout


def _wrap_attention(original: Callable[..., object], observer: Callable[[], Observer]) -> Callable[..., object]:
    """Wrap `scaled_dot_product_attention` to record active dropout in the forward of a model in eval mode."""

    @frames.wraps(original)
    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> object:
        active = observer()
        if _is_evaluated(active):
            rate = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            if rate:
                active.modes.record_function("scaled_dot_product_attention", float(rate), False, None)
        return original(*args, **kwargs)

    return scaled_dot_product_attention
