"""Notes facts about parameters: which layers run and get gradients, where initial values come from, and attributes that
look like a switch for training and are none.

A layer runs *hidden* if gradients are recorded for the model's call but not for the layer: under `no_grad`, or in a
reentrant checkpoint. The *drawn* values of a parameter are those that a function of `torch.nn.init` has written.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.nn.utils.parametrize
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from . import distributions, frames
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MODULE_ATTRIBUTES = ("requires_grad",)
"""`module.requires_grad = False` freezes nothing: the method is `requires_grad_`."""
TENSOR_ATTRIBUTES = ("require_grad", "requires_grads", "require_grads", "required_grad", "requires_gard")
"""Misspelt names of `requires_grad`. A tensor accepts any attribute, so torch does not complain."""
CONSTANT = ("constant_", "ones_", "zeros_", "eye_", "dirac_")
LAYER_CALLS = 50_000
"""Calls of layers that are looked at in the first steps: a process may record gradients and never take a step."""
BACKWARD_PASSES = 6
"""Backward passes after which every parameter of every model is looked at."""

_Dropout = importlib.import_module("torch.nn.modules.dropout")._DropoutNd
_MATRIX_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Mark:
    """A value that the script has written to an attribute that torch does not read."""

    def __init__(self, holder: nn.Module | Tensor, name: str, value: object, at: str) -> None:
        self.holder, self.name, self.value, self.at = weakref.ref(holder), name, value, at
        self.read = False
        """Whether code has read the attribute, which then is the script's own switch."""


class Layer:
    """How a module with direct parameters has run inside calls of a model."""

    def __init__(self, model: int) -> None:
        self.model = model
        self.grad = self.hidden = self.training = False
        self.cut_input = False
        """Whether an input needed no gradient, was computed inside the model, and gradients were recorded."""
        self.checkpoint = ""
        """The line of a reentrant checkpoint none of whose inputs needed a gradient."""
        self.detached = False
        """Whether an output that needed a gradient became, without it, the input of another layer."""
        self.work = 0.0
        """Multiplications of the last call inside an autocast region; 0 outside of one."""
        self.single = False
        """Whether the result of this call is float32."""
        self.order = 0

    def note_autocast(self, module: nn.Module, result: Tensor, facts: Facts) -> None:
        """Note in which precision a layer inside an autocast region has multiplied."""
        weight = module.weight
        assert isinstance(weight, Tensor)
        facts.calls += 1
        # Elements of the weight x positions: [N, in] x [out, in] takes N * in * out multiplications.
        self.work = float(weight.numel()) * result.numel() / max(1, weight.shape[0])
        self.single, self.order = result.dtype == torch.float32, facts.calls


class Facts:
    """What is known of the parameters of one process."""

    def __init__(self, sample: Callable[[Tensor], Tensor]) -> None:
        self.sample = sample
        self.marks: dict[tuple[int, str], Mark] = {}
        self.drawn: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        """By id of a parameter: the parameter (a weak reference), and a sample of the values that were drawn."""
        self.first: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        """By id of a parameter: the parameter (a weak reference), and a sample of it at the first backward passes."""
        self.seen_at: dict[int, int] = {}
        """By id of a parameter: how many steps had ended when that sample was taken."""
        self.outputs: dict[int, tuple[Any, Any]] = {}
        """By address of a storage: the storage (a weak reference), and the layer whose output it is."""
        self.arrived: set[int] = set()
        """Ids of parameters that had a gradient after a backward pass."""
        self.looks = self.calls = self.layer_calls = 0
        self.heads: dict[int, weakref.ref[nn.Linear]] = {}
        """By number of a model: the layer (a weak reference) whose output is the model's output."""
        self.inputs: set[int] = set()
        """Where the inputs of the last outermost call are stored."""
        self.checkpoint = ""
        """The line of the reentrant checkpoint that runs, if none of its inputs needs a gradient."""

    def marked(self) -> dict[int, Mark]:
        """Return the marks that ask for no training, by id of a parameter that is trained all the same."""
        wrong: dict[int, Mark] = {}
        for mark in self.marks.values():
            holder = mark.holder()
            if mark.read or mark.value or holder is None:
                continue
            for p in holder.parameters() if isinstance(holder, nn.Module) else [holder]:
                if p.requires_grad:
                    wrong[id(p)] = mark
        return wrong

    def look(self, modules: list[nn.Module], steps: int) -> None:
        """Look at all parameters of models after a backward pass; `steps` steps have ended."""
        self.looks += 1
        for module in modules:
            for p in module.parameters():
                if id(p) not in self.first and not p.is_meta:
                    self.first[id(p)], self.seen_at[id(p)] = (weakref.ref(p), self.sample(p).clone()), steps
                if p.grad is not None:
                    self.arrived.add(id(p))


class _Attribute:
    """An attribute that keeps its value where Python does, and notes that it is written or read."""

    def __init__(self, name: str, observer: Callable[[], Observer]) -> None:
        self.name, self.observer = name, observer

    def __get__(self, holder: object, kind: Optional[type] = None) -> object:
        if holder is None:  # torch 2.1 gets every name in `dir(Tensor)`
            return self
        if self.name not in holder.__dict__:
            raise AttributeError(f"{getattr(kind, '__name__', kind)!r} object has no attribute {self.name!r}")
        mark = self.observer().facts.marks.get((id(holder), self.name))
        if mark is not None:
            mark.read = True
        return holder.__dict__[self.name]

    def __set__(self, holder: nn.Module | Tensor, value: object) -> None:
        holder.__dict__[self.name] = value
        observer = self.observer()
        # A class that keeps an argument of its constructor names what it was made with, which may change later.
        caller = sys._getframe(2)
        is_constructor = caller.f_code.co_name == "__init__" and caller.f_locals.get("self") is holder
        if observer.is_active() and isinstance(value, (bool, int)) and not is_constructor:
            with observer.observing("attribute"):
                key = (id(holder), self.name)
                old = observer.facts.marks.get(key)
                mark = observer.facts.marks[key] = Mark(holder, self.name, bool(value), observer.at())
                if old is not None and old.holder() is holder and old.value == mark.value:
                    mark.read = old.read
                else:
                    observer.look_closely()

    def __delete__(self, holder: object) -> None:
        if self.name not in holder.__dict__:
            raise AttributeError(self.name)
        del holder.__dict__[self.name]
        self.observer().facts.marks.pop((id(holder), self.name), None)


def install(observer: Callable[[], Observer]) -> None:
    """Wrap initializers and checkpoints of torch, and watch attributes that look like `requires_grad`.

    Args:
        observer: Returns the observer of this process.
    """
    for owner, names in ((nn.Module, MODULE_ATTRIBUTES), (Tensor, TENSOR_ATTRIBUTES)):
        for name in names:
            setattr(owner, name, _Attribute(name, observer))
        _hide(owner, names)

    def make_init(original: Callable[..., object]) -> Callable[..., object]:
        @frames.wraps(original)
        def initialize(tensor: object, *args: object, **kwargs: object) -> object:
            result = original(tensor, *args, **kwargs)
            if isinstance(tensor, nn.Parameter) and not tensor.is_meta and observer().is_active():
                with observer().observing("init"):
                    facts = observer().facts
                    facts.drawn[id(tensor)] = (weakref.ref(tensor), facts.sample(tensor).clone())
            return result

        return initialize

    layers = [module for name, module in list(sys.modules.items()) if name.startswith("torch.nn.modules.")]
    for name in [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]:
        if name not in CONSTANT:
            original = getattr(nn.init, name)
            wrapped = make_init(original)
            for module in [nn.init, *layers]:  # some layers import the function by its name
                if getattr(module, name, None) is original:
                    setattr(module, name, wrapped)

    copy: Callable[..., Tensor] = nn.Parameter.__deepcopy__

    @frames.wraps(copy)
    def __deepcopy__(self: Tensor, memo: object) -> Tensor:
        result = copy(self, memo)
        drawn = observer().facts.drawn
        if id(self) in drawn and drawn[id(self)][0]() is self and id(result) not in drawn:
            drawn[id(result)] = (weakref.ref(result), drawn[id(self)][1])
        return result

    nn.Parameter.__deepcopy__ = __deepcopy__  # type: ignore[method-assign]  # torch has no hook for copies
    # Not exported by name; `checkpoint(..., use_reentrant=True)` applies this function.
    reentrant = importlib.import_module("torch.utils.checkpoint").CheckpointFunction
    forward = reentrant.forward

    @frames.wraps(forward)
    def checkpointed(ctx: object, run_function: object, preserve: object, *args: object) -> object:
        facts = observer().facts
        before = facts.checkpoint
        if not any(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            facts.checkpoint = observer().at()
        try:
            return forward(ctx, run_function, preserve, *args)
        finally:
            facts.checkpoint = before

    reentrant.forward = staticmethod(checkpointed)


def _hide(owner: Any, names: tuple[str, ...]) -> None:
    """Leave attributes that a holder does not have out of `dir`: code that gets every name must not fail."""
    original = owner.__dir__

    @frames.wraps(original)
    def __dir__(self: object) -> list[str]:
        return [name for name in original(self) if name not in names or name in self.__dict__]

    owner.__dir__ = __dir__


@frames.hidden
def call_layer(
    observer: Observer,
    original: Callable[..., object],
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Call a module inside the call of a model, and note how it ran."""
    grad = torch.is_grad_enabled()
    sources: list[distributions.Source] = []
    in_region = False
    with observer.observing("layer"):
        in_region = is_autocast(module)
        observer.facts.layer_calls += 1
        last, facts = observer.last_forward, observer.facts
        layer = observer.ran.get(module)
        if layer is None:
            layer = observer.ran[module] = Layer(last["model"])
        layer.model = last["model"]
        layer.grad = layer.grad or grad
        if last["grad"] and not grad:
            layer.hidden, layer.training = True, layer.training or module.training
            layer.checkpoint = layer.checkpoint or facts.checkpoint
        inputs = [t for t in observer.tensors_in(args) if t.is_floating_point() and t.layout == torch.strided]
        sources = observer.samples.of(inputs) if grad else []
        if grad and inputs and not any(t.requires_grad for t in inputs):
            # An input without a gradient that is no input of the model was computed inside it, and cut from the graph.
            # If it shares the storage of another layer's output, that output was detached.
            places = [t.untyped_storage() for t in inputs]
            layer.cut_input = layer.cut_input or any(place.data_ptr() not in facts.inputs for place in places)
            for place in places:
                reference, source = facts.outputs.get(place._cdata, (None, None))
                if source is not None and not reference.expired():
                    source.detached = True
    result = original(module, *args, **kwargs)
    with observer.observing("layer"):
        if isinstance(result, Tensor) and result.requires_grad and result.layout == torch.strided:
            distributions.watch_use(sources, result)
            place = result.untyped_storage()
            facts.outputs[place._cdata] = (StorageWeakRef(place), layer)
        if in_region and layer is not None and isinstance(result, Tensor) and last["grad"] and grad:
            layer.note_autocast(module, result, facts)
    return result


def note_head(observer: Observer, output: Tensor, model: int) -> None:
    """Remember which layer of matrix products has made the output of a model, reshaping apart."""
    node: Any = output.grad_fn
    for _ in range(4):
        if node is None or hasattr(node, "_saved_mat2"):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    # The backward node of a matrix product keeps its second factor: the weight, or a view of it.
    matrix = getattr(node, "_saved_mat2", None)
    module = next((module for module, state in list(observer.models.items()) if state.number == model), None)
    if isinstance(matrix, Tensor) and module is not None:
        for part in module.modules():
            if isinstance(part, nn.Linear) and part.weight.data_ptr() == matrix.data_ptr():
                observer.facts.heads[model] = weakref.ref(part)


def _last_layer(facts: Facts, model: int, module: nn.Module) -> Optional[dict[str, object]]:
    """Return facts about the last layer of a model that has frozen matrices, if that layer is linear."""
    reference = facts.heads.get(model)
    head = reference() if reference is not None else None
    if not isinstance(head, nn.Linear):
        return None
    matrices = [p for p in module.parameters() if p.dim() > 1 and p is not head.weight]
    frozen = [p for p in matrices if not p.requires_grad]
    if not frozen:
        return None
    return {
        "name": next((name for name, part in module.named_modules() if part is head), "?"),
        "trained": head.weight.requires_grad,
        "drawn": _count_as(facts, facts.drawn, [head.weight], alike=True),
        "classes": head.out_features,
        "matrices": len(matrices),
        "frozen": len(frozen),
        "frozen_drawn": _count_as(facts, facts.drawn, frozen, alike=True),
    }


def is_autocast(module: nn.Module) -> bool:
    """Return whether autocast is on for a layer of matrix products in float32 that no code of hooks replaces."""
    weight = getattr(module, "weight", None)
    if not isinstance(module, _MATRIX_LAYERS) or not isinstance(weight, Tensor) or weight.dtype != torch.float32:
        return False
    if module._forward_hooks or "forward" in vars(module) or nn.utils.parametrize.is_parametrized(module):
        return False
    device = weight.device.type
    if device not in ("cpu", "cuda"):
        return False
    if hasattr(torch, "get_autocast_dtype"):  # since torch 2.4
        return torch.is_autocast_enabled(device)
    return bool(torch.is_autocast_cpu_enabled() if device == "cpu" else torch.is_autocast_enabled())


def describe(observer: Observer, model: int, module: nn.Module, held: set[int], had: set[int]) -> dict[str, object]:
    """Return what a model's parameters have received, for the event that describes them.

    Args:
        observer: The observer of this process.
        model: The number of the model.
        module: The model.
        held: Ids of the parameters of optimizers.
        had: Ids of parameters that had a gradient.
    """
    facts = observer.facts
    trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    parents = dict(module.named_modules())

    def layer_of(name: str) -> Optional[Layer]:
        """Return how the module of a parameter ran, or the nearest one around it: some use weights of their parts."""
        while name:
            name = name.rpartition(".")[0]
            layer = observer.ran.get(parents[name])
            if layer is not None:
                return layer
        return None

    cut: dict[tuple[str, str], list[tuple[str, Tensor, Layer]]] = {}
    for name, p in trainable:
        layer = layer_of(name)
        if id(p) in held and id(p) not in had and layer is not None and layer.model == model:
            key = ("grad" if layer.grad else "checkpoint" if layer.checkpoint else "no_grad", layer.checkpoint)
            cut.setdefault(key, []).append((name, p, layer))
    parts = []
    for (mode, at), rows in cut.items():
        matrices = [p for _, p, _ in rows if p.dim() > 1]
        top = {name.split(".")[0] for name, _, _ in rows}
        inside = [m for name, m in module.named_modules() if name.split(".")[0] in top]
        parts.append(
            {
                "how": mode,
                "names": [name for name, _, _ in rows][:40],
                "parameters": len(rows),
                "weights": len(matrices),
                "drawn": _count_as(facts, facts.drawn, matrices, alike=True),
                "changed": _count_as(facts, facts.first, [p for _, p, _ in rows], alike=False),
                "dropout": any(isinstance(m, _Dropout) and m.p > 0 for m in inside),
                "training": all(layer.training for _, _, layer in rows),
                "detached": any(layer.detached for _, _, layer in rows),
                "at": at,
            }
        )
    ran = [layer for m, layer in observer.ran.items() if layer.model == model and layer.cut_input]
    # Parameters whose sample is three steps old or older, so that a change would show.
    early = [p for _, p in trainable if observer.ended_steps - facts.seen_at.get(id(p), observer.ended_steps) >= 3]
    casts = [(m, layer) for m, layer in observer.ran.items() if layer.model == model and layer.work]
    single = [(m, layer) for m, layer in casts if layer.single]
    return {
        "autocast": {
            "layers": len(casts),
            "single": len(single),
            "work": sum(layer.work for _, layer in casts),
            "single_work": sum(layer.work for _, layer in single),
            "stock": sum(type(m) in _MATRIX_LAYERS for m, _ in single),
            "half_after": any(h.order > s.order for _, h in casts if not h.single for _, s in single),
            "names": [name for name, m in module.named_modules() if any(m is other for other, _ in single)][:20],
        },
        "compared": len(early),
        "with_gradient": sum(id(p) in had for _, p in trainable),
        "changed": _count_as(facts, facts.first, early, alike=False),
        "cut": parts,
        "last_layer": _last_layer(facts, model, module),
        "cut_inputs": len(ran),
    }


def _count_as(
    facts: Facts, samples: dict[int, tuple[weakref.ref[Tensor], Tensor]], ps: Sequence[Tensor], *, alike: bool
) -> object:
    """Return how many parameters still have the values of their samples, or no longer have, read late."""
    rows = []
    for p in ps:
        if id(p) not in samples or samples[id(p)][0]() is not p:
            continue
        # A parameter that was converted to another dtype or device since still has its values.
        now, before = facts.sample(p), samples[id(p)][1]
        if now.shape != before.shape:
            continue
        same = torch.eq(now.to(before.device, before.dtype), before).double().mean()
        # A row of padding is set to 0 after the others were drawn.
        rows.append((same > 0.5 if alike else same < 1).double())
    return Late(rows, lambda *parts: sum(part[0] for part in parts)) if rows else 0
