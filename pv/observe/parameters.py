"""Records facts about parameters: layers that run and get gradients, initial values, and misspelt `requires_grad`.

Terms: the call of a layer is *hidden* if gradients are enabled in the call of the model, but not in the call of the
layer, such as under `no_grad` or in a reentrant checkpoint. The *drawn* values of a parameter are the values that a
random function of `torch.nn.init` has written.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.nn.utils.parametrize
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from . import distributions, frames
from .sharding import is_shard
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MODULE_ATTRIBUTES = ("requires_grad",)
"""Attributes of modules without an effect: `module.requires_grad = False` freezes nothing, unlike `requires_grad_`."""
TENSOR_ATTRIBUTES = ("require_grad", "requires_grads", "require_grads", "required_grad", "requires_gard")
"""Misspelt names of `requires_grad`. torch raises no error, because a tensor accepts any attribute."""
CONSTANT = ("constant_", "ones_", "zeros_", "eye_", "dirac_")
"""Functions of `torch.nn.init` that draw no random numbers."""
LAYER_CALLS = 50_000
"""Largest number of examined calls of layers. Without this limit, every call in a process without steps is examined."""
MIN_UNITS, MAX_WEIGHTS, MAX_LAYERS = 4, 2**24, 200
"""Limits for the comparison of the units of a layer: units of a layer, weights of a layer, and layers of a model."""
TIED = set("tie tied is weight weights emb embed embedding embeddings head input output lm word".split())
"""The words of attribute names that declare the weights of an embedding and of a linear layer as tied.

An attribute such as `tie_word_embeddings` counts if its name contains "tie" or "tied", and no words outside this set.
"""
BACKWARD_PASSES = 6
"""Number of backward passes, after a new model, after which all parameters are examined."""

_Dropout = importlib.import_module("torch.nn.modules.dropout")._DropoutNd
_TIED_LAYERS = (nn.Embedding, nn.Linear)
_MATRIX_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Mark:
    """An assignment of the script to an attribute that torch does not read.

    Attributes:
        holder: A weak reference to the module or tensor.
        name: The name of the attribute.
        value: The assigned value.
        at: The line of the assignment.
    """

    def __init__(self, holder: nn.Module | Tensor, name: str, value: object, at: str) -> None:
        self.holder, self.name, self.value, self.at = weakref.ref(holder), name, value, at
        self.read = False
        """Whether any code has read the attribute. If so, the script uses the attribute for its own purpose."""


class Layer:
    """Facts about the calls of a module with own parameters, inside calls of a model."""

    def __init__(self, model: int) -> None:
        self.model = model
        self.grad = self.hidden = self.training = False
        """Whether gradients were enabled in a call; whether a call was hidden, or hidden and in training mode."""
        self.cut_input = False
        """Whether no input required a gradient although gradients were enabled, and one was computed in the model."""
        self.checkpoint = ""
        """The line of a reentrant checkpoint around the layer, if no input of the checkpoint requires a gradient."""
        self.detached = False
        """Whether an output that required a gradient was detached and used as the input of a layer."""
        self.work = 0.0
        """Number of multiplications in the last call with gradients inside an autocast region; 0 without such calls."""
        self.single = False
        """Whether the result of the last call inside an autocast region is float32."""
        self.half = False
        """Whether this result is float16 and requires a gradient. Unlike bfloat16, float16 needs a loss scale."""
        self.order = 0
        """Position, from 1, of the last call inside an autocast region among all calls of layers in such regions."""
        self.first: Optional[tuple[Tensor, Tensor]] = None
        """Only for normalizations on several ranks: two sums at the first call before the first step.

        They are the sum of a sample of the first input, and the sum of the first parameter.
        """

    def record_autocast(self, module: nn.Module, result: Tensor, facts: Facts) -> None:
        """Record the number of multiplications and the precision of a call inside an autocast region."""
        weight = module.weight
        assert isinstance(weight, Tensor)
        facts.calls += 1
        # The product of [N, in] and [out, in] takes N * in * out multiplications: the elements of the weight times N.
        self.work = float(weight.numel()) * result.numel() / max(1, weight.shape[0])
        self.single, self.order = result.dtype == torch.float32, facts.calls
        self.half = result.dtype == torch.float16 and result.requires_grad


class Facts:
    """Facts about the parameters of one process.

    Args:
        sample: Returns about 256 elements of a tensor.
    """

    def __init__(self, sample: Callable[[Tensor], Tensor]) -> None:
        self.sample = sample
        self.marks: dict[tuple[int, str], Mark] = {}
        """The marks, by id of the module or tensor and name of the attribute."""
        self.drawn: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        """By id of a parameter: a weak reference to the parameter, and a sample of the drawn values."""
        self.initialized: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        """By id of a parameter: a weak reference to the parameter, and the number of events before its first values."""
        self.first: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
        """By id of a parameter: a weak reference to the parameter, and the first sample of its values."""
        self.seen_at: dict[int, int] = {}
        """By id of a parameter: number of steps that had ended when the sample in `first` was taken."""
        self.outputs: dict[int, tuple[Any, Any]] = {}
        """By address of a storage: a weak reference to the storage, and the layer that has computed its values."""
        self.arrived: set[int] = set()
        """Ids of the parameters that had a gradient at a call of `sample_parameters`."""
        self.samplings = self.calls = self.layer_calls = 0
        """Numbers of calls: of `sample_parameters`, of layers inside autocast regions, and of all examined layers.

        The first number starts again at 0 for every new model.
        """
        self.heads: dict[int, weakref.ref[nn.Linear]] = {}
        """By number of a model: a weak reference to the linear layer that computes the output of the model."""
        self.inputs: set[int] = set()
        """Addresses of the storages of the inputs of the last outermost call, or of a later call by checkpointing."""
        self.checkpoint = ""
        """The line of the running reentrant checkpoint if none of its inputs requires a gradient; else ""."""

    def marked(self) -> dict[int, Mark]:
        """Return the marks that were meant to freeze parameters which still require a gradient, by id of the parameter.

        Marks whose attributes were read are left out.
        """
        marked: dict[int, Mark] = {}
        for mark in self.marks.values():
            holder = mark.holder()
            if mark.read or mark.value or holder is None:
                continue
            for p in holder.parameters() if isinstance(holder, nn.Module) else [holder]:
                if p.requires_grad:
                    marked[id(p)] = mark
        return marked

    def initialized_at(self, parameter: Tensor) -> int:
        """Return the number of events before the first values of a parameter were drawn; -1 if unknown."""
        reference, count = self.initialized.get(id(parameter), (lambda: None, -1))
        return count if reference() is parameter else -1

    def sample_parameters(self, modules: list[nn.Module], steps: int) -> None:
        """Sample new parameters, and record which parameters have a gradient.

        Args:
            modules: The models.
            steps: Number of steps that have ended.
        """
        self.samplings += 1
        for module in modules:
            for p in module.parameters():
                if id(p) not in self.first and not p.is_meta:
                    self.first[id(p)], self.seen_at[id(p)] = (weakref.ref(p), self.sample(p).clone()), steps
                if p.grad is not None:
                    self.arrived.add(id(p))


class _Attribute:
    """A descriptor that stores the value in `__dict__`, like a normal attribute, and records reads and writes."""

    def __init__(self, name: str, observer: Callable[[], Observer]) -> None:
        self.name, self.observer = name, observer

    def __get__(self, holder: object, kind: Optional[type] = None) -> object:
        if holder is None:  # torch 2.1 reads every name in `dir(Tensor)`
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
        # A constructor that stores an argument in an attribute of this name is not meant to freeze anything.
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
                    observer.check_next_steps()

    def __delete__(self, holder: object) -> None:
        if self.name not in holder.__dict__:
            raise AttributeError(self.name)
        del holder.__dict__[self.name]
        self.observer().facts.marks.pop((id(holder), self.name), None)


def install(observer: Callable[[], Observer]) -> None:
    """Wrap random initializers, copies of parameters and reentrant checkpoints; record accesses to marked attributes.

    These attributes are `MODULE_ATTRIBUTES` of modules and `TENSOR_ATTRIBUTES` of tensors.

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
                    if facts.initialized_at(tensor) < 0:
                        facts.initialized[id(tensor)] = (weakref.ref(tensor), observer().trace.count)
            return result

        return initialize

    layers = [module for name, module in list(sys.modules.items()) if name.startswith("torch.nn.modules.")]
    for name in [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]:
        if name not in CONSTANT:
            original = getattr(nn.init, name)
            wrapped = make_init(original)
            for module in [nn.init, *layers]:  # some modules of layers import the function by name
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
    # This class is not exported; `checkpoint(..., use_reentrant=True)` uses it.
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
    """Hide these attributes in `dir` of objects that have no value for them.

    Otherwise, code that reads all names in `dir` would fail.
    """
    original = owner.__dir__

    @frames.wraps(original)
    def __dir__(self: object) -> list[str]:
        return [name for name in original(self) if name not in names or name in self.__dict__]

    owner.__dir__ = __dir__


def _normalizes_on_ranks(module: nn.Module) -> bool:
    """Return whether a module is probably a normalization of features, and the run has several ranks.

    Such a module has no submodules, is no batch normalization, and its parameters are vectors without shards.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return False
    vectors = [p for p in module._parameters.values() if p is not None]
    is_candidate = not module._modules and not isinstance(module, nn.modules.batchnorm._BatchNorm)
    return is_candidate and bool(vectors) and all(p.dim() == 1 and p.numel() > 1 and not is_shard(p) for p in vectors)


@frames.hidden
def call_layer(
    observer: Observer,
    original: Callable[..., object],
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Call a module inside the call of a model, and record facts about the call."""
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
            # An input that requires no gradient, and is not an input of the model, was computed inside the model and
            # then cut from the graph. If it has the storage of the output of a layer, this output was detached.
            places = [t.untyped_storage() for t in inputs]
            layer.cut_input = layer.cut_input or any(place.data_ptr() not in facts.inputs for place in places)
            for place in places:
                reference, source = facts.outputs.get(place._cdata, (None, None))
                if source is not None and not reference.expired():
                    source.detached = True
        if layer.first is None and not observer.steps and inputs and _normalizes_on_ranks(module):
            weight = next(p for p in module._parameters.values() if p is not None)
            first = (observer.facts.sample(inputs[0]).sum(dtype=torch.float64), weight.sum(dtype=torch.float64))
            layer.first = first
    result = original(module, *args, **kwargs)
    with observer.observing("layer"):
        if isinstance(result, Tensor) and result.requires_grad and result.layout == torch.strided:
            distributions.watch_use(sources, result)
            place = result.untyped_storage()
            facts.outputs[place._cdata] = (StorageWeakRef(place), layer)
        if in_region and layer is not None and isinstance(result, Tensor) and last["grad"] and grad:
            layer.record_autocast(module, result, facts)
    return result


MAX_ROWS = 64
"""Largest number of rows whose angles are compared."""


def record_head(observer: Observer, output: Tensor, model: int) -> None:
    """Store the linear layer that computed the output of a model. The output may be reshaped after the layer.

    Args:
        observer: The observer of this process.
        output: The output of the model.
        model: The number of the model.
    """
    node: Any = output.grad_fn
    for _ in range(4):
        if node is None or hasattr(node, "_saved_mat2"):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    # The autograd node of a matrix product stores the second factor, which is the weight or a view of the weight.
    matrix = getattr(node, "_saved_mat2", None)
    module = next((module for module, state in list(observer.models.items()) if state.number == model), None)
    if isinstance(matrix, Tensor) and module is not None:
        for part in module.modules():
            if isinstance(part, nn.Linear) and part.weight.data_ptr() == matrix.data_ptr():
                observer.facts.heads[model] = weakref.ref(part)


def _last_layer(facts: Facts, model: int, module: nn.Module) -> Optional[dict[str, object]]:
    """Return facts about the last layer of a model with frozen matrices.

    Return None if the last layer is unknown or not linear, if no other matrix is frozen, or if the last layer is a
    fixed classifier.
    """
    reference = facts.heads.get(model)
    head = reference() if reference is not None else None
    if not isinstance(head, nn.Linear) or (not head.weight.requires_grad and _is_regular(head.weight)):
        return None
    matrices = [p for p in module.parameters() if p.dim() > 1 and p is not head.weight]
    frozen = [p for p in matrices if not p.requires_grad]
    if not frozen:
        return None
    return {
        "name": next((name for name, part in module.named_modules() if part is head), "?"),
        "trained": head.weight.requires_grad,
        "drawn": _count_by_sample(facts, facts.drawn, [head.weight], unchanged=True),
        "classes": head.out_features,
        "matrices": len(matrices),
        "frozen": len(frozen),
        "frozen_drawn": _count_by_sample(facts, facts.drawn, frozen, unchanged=True),
    }


def _is_regular(weight: Tensor) -> bool:
    """Return whether all pairs of rows have the same angle: orthogonal rows, or a simplex, as in a fixed classifier.

    Only the first `MAX_ROWS` rows are compared.
    """
    if len(weight) < 2:
        return False
    rows = nn.functional.normalize(weight.detach().float()[:MAX_ROWS], dim=1)
    cosines = (rows @ rows.t())[tuple(torch.triu_indices(len(rows), len(rows), 1))]
    # Two rows have only one angle, so the rows must be orthogonal or opposite. The angles of random rows differ more.
    spread = cosines.max() - cosines.min() if len(rows) > 2 else (cosines * (cosines + 1)).abs().max()
    return bool(spread < 1e-4)


def is_autocast(module: nn.Module) -> bool:
    """Return whether autocast should apply to a layer.

    This is so if autocast is enabled on the device of the layer, which is a CPU or uses CUDA, and the layer is a linear
    or convolution layer with float32 weights, and without forward hooks, parametrizations or a replaced `forward`.
    """
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


def describe(
    observer: Observer, model: int, module: nn.Module, held: set[int], with_gradient: set[int]
) -> dict[str, object]:
    """Return fields of the `parameters` event of a model.

    Args:
        observer: The observer of this process.
        model: The number of the model.
        module: The model.
        held: Ids of the parameters that optimizers hold.
        with_gradient: Ids of the parameters that had a gradient.
    """
    facts = observer.facts
    trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    parents = dict(module.named_modules())

    def layer_of(name: str) -> Optional[Layer]:
        """Return the facts about the module of a parameter, or about the nearest enclosing module that ran.

        The enclosing modules are needed because some modules use the weights of submodules without calling them.
        """
        while name:
            name = name.rpartition(".")[0]
            layer = observer.ran.get(parents[name])
            if layer is not None:
                return layer
        return None

    # The parameters without a gradient, by the mode in which their layers ran, and the line of a reentrant checkpoint.
    cut: dict[tuple[str, str], list[tuple[str, Tensor, Layer]]] = {}
    for name, p in trainable:
        layer = layer_of(name)
        if id(p) in held and id(p) not in with_gradient and layer is not None and layer.model == model:
            key = ("grad" if layer.grad else "checkpoint" if layer.checkpoint else "no_grad", layer.checkpoint)
            cut.setdefault(key, []).append((name, p, layer))
    parts = []
    for (mode, at), rows in cut.items():
        matrices = [p for _, p, _ in rows if p.dim() > 1]
        children = {name.split(".")[0] for name, _, _ in rows}
        inside = [m for name, m in module.named_modules() if name.split(".")[0] in children]
        parts.append(
            {
                "how": mode,
                "names": [name for name, _, _ in rows][:40],
                "parameters": len(rows),
                "weights": len(matrices),
                "drawn": _count_by_sample(facts, facts.drawn, matrices, unchanged=True),
                "changed": _count_by_sample(facts, facts.first, [p for _, p, _ in rows], unchanged=False),
                "dropout": any(isinstance(m, _Dropout) and m.p > 0 for m in inside),
                "training": all(layer.training for _, _, layer in rows),
                "detached": any(layer.detached for _, _, layer in rows),
                "at": at,
            }
        )
    cut_inputs = sum(layer.model == model and layer.cut_input for layer in observer.ran.values())
    # The parameters whose sample is at least three steps old: training must have changed these parameters.
    early = [p for _, p in trainable if observer.ended_steps - facts.seen_at.get(id(p), observer.ended_steps) >= 3]
    casts = [(m, layer) for m, layer in observer.ran.items() if layer.model == model and layer.work]
    single = [(m, layer) for m, layer in casts if layer.single]
    return {
        "autocast": {
            "layers": len(casts),
            "single": len(single),
            "float16": sum(layer.half for _, layer in casts),
            "work": sum(layer.work for _, layer in casts),
            "single_work": sum(layer.work for _, layer in single),
            "stock": sum(type(m) in _MATRIX_LAYERS for m, _ in single),
            "half_after": any(h.order > s.order for _, h in casts if not h.single for _, s in single),
            "names": [name for name, m in module.named_modules() if any(m is other for other, _ in single)][:20],
        },
        "compared": len(early),
        "with_gradient": sum(id(p) in with_gradient for _, p in trainable),
        "changed": _count_by_sample(facts, facts.first, early, unchanged=False),
        "cut": parts,
        "last_layer": _last_layer(facts, model, module),
        "cut_inputs": cut_inputs,
        "rows": _spread_of_rows(facts, module, held & with_gradient),
        "one_storage": _names_of_one_storage([(name, p) for name, p in trainable if id(p) in held]),
        "initial": _has_initial_weights(observer, module) if type(module).__name__ == "AveragedModel" else None,
        "untied": _untied_embeddings(facts, module, held & with_gradient),
    }


def describe_late(facts: Facts, named: Sequence[tuple[str, Tensor]], created: int) -> dict[str, object]:
    """Return fields of the `parameters` event about parameters that were drawn after an optimizer was constructed.

    Args:
        facts: The facts about the parameters of this process.
        named: The names of parameters that are in no optimizer, and these parameters.
        created: The number of events before the optimizer of the model's other parameters was constructed.
    """
    late = [(name, p) for name, p in named if facts.initialized_at(p) > created]
    matrices = [p for _, p in late if p.dim() > 1]
    drawn = _count_by_sample(facts, facts.drawn, matrices, unchanged=True)
    return {"late": [name for name, _ in late][:40], "late_matrices": len(matrices), "late_drawn": drawn}


def _has_initial_weights(observer: Observer, average: nn.Module) -> object:
    """Return whether an average still has the first weights of a model with the same shapes; None if unknown."""
    facts, averaged = observer.facts, list(average.parameters())
    for module in list(observer.models):
        parameters = list(module.parameters())
        if module is not average and [p.shape for p in parameters] == [p.shape for p in averaged]:
            firsts = [facts.first[id(p)][1] if id(p) in facts.first else None for p in parameters]
            samples = [(facts.sample(p), first) for p, first in zip(averaged, firsts) if first is not None]
            equal = [(now == first).all() for now, first in samples if now.device == first.device]
            return Late(equal, lambda *values: all(value for (value,) in values)) if equal else None
    return None


def _names_of_one_storage(named: list[tuple[str, Tensor]]) -> list[list[str]]:
    """Return groups of names: the parameters of a group are different tensors with the same shape and memory."""
    groups: dict[tuple[int, torch.Size], list[str]] = {}
    for name, p in named:
        if p.numel() > 1 and not p.is_meta and not is_shard(p) and p.data_ptr():
            groups.setdefault((p.data_ptr(), p.shape), []).append(name)
    return [names for names in groups.values() if len(names) > 1][:20]


def _untied_embeddings(facts: Facts, module: nn.Module, trained: set[int]) -> object:
    """Compare samples of the weights of all pairs of an embedding and a linear layer with equal shapes.

    Args:
        facts: The facts about the parameters of this process.
        module: The model.
        trained: Ids of the parameters that optimizers hold, and that had a gradient.

    Returns:
        A row for every pair: the names of both weights, whether the weights were equal in their first samples, the
        largest difference of their samples now, and whether the model declares that they are tied.
    """
    layers = [(f"{name}.weight", m, m.weight) for name, m in module.named_modules() if type(m) in _TIED_LAYERS]
    layers = [row for row in layers if id(row[2]) in trained and id(row[2]) in facts.first]
    names: list[list[str]] = []
    parts: list[Tensor] = []
    for embedding, _, p in (row for row in layers if type(row[1]) is nn.Embedding):
        for head, layer, q in layers:
            if type(layer) is nn.Linear and p is not q and p.shape == q.shape and p.device == q.device:
                first, other = facts.first[id(p)][1], facts.first[id(q)][1]
                now = (facts.sample(p) - facts.sample(q)).abs().amax()
                names.append([embedding, head])
                parts.append(torch.stack([(first - other).abs().amax().double(), now.double()]))
    # Models of transformers have the method `tie_weights` even if their weights are not tied, so use the configuration.
    configured = getattr(getattr(module, "config", None), "tie_word_embeddings", None)
    attributes = [*dir(type(module)), *(name for name, value in vars(module).items() if value is not False)]
    words = [set(name.lower().strip("_").split("_")) for name in attributes]
    tied = any(name & {"tie", "tied"} and name <= TIED for name in words) if configured is None else bool(configured)
    return Late(parts, lambda *rows: [[*pair, a == 0, b, tied] for pair, (a, b) in zip(names, rows)]) if parts else []


def count_listed(observer: Observer, model: int, module: nn.Module, held: set[int]) -> object:
    """Count the untrained modules that a model stores in lists or dictionaries, where torch does not register them.

    Only lists, tuples and dictionaries of at least two modules count. Layers of these modules must have run in the
    model, their matrices must have gradients, and no optimizer may hold one of these matrices. Nothing is counted if
    the model has as many registered modules of equal shapes: a fixed random network beside every trained network may be
    intended, such as a randomized prior.

    Returns:
        Three numbers: matrices that still have their drawn values, matrices, and modules; [0, 0, 0] if a condition is
        not met.
    """
    registered = {id(part) for part in module.modules()}
    twins = Counter(_shapes(part) for part in module.modules())
    elements: list[nn.Module] = []
    for part in module.modules():
        for value in list(vars(part).values()):
            value = list(value.values()) if type(value) is dict else value
            if isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(m, nn.Module) for m in value):
                elements += [m for m in value if id(m) not in registered]
    if elements and not Counter(map(_shapes, elements)) - twins:
        return [0, 0, 0]
    layers = [m for element in elements for m in element.modules() if m in observer.ran]
    layers = [m for m in layers if observer.ran[m].model == model and observer.ran[m].grad]
    matrices = [p for m in layers for p in m._parameters.values() if p is not None and p.dim() > 1]
    if not matrices or any(p.grad is None or id(p) in held for p in matrices):
        return [0, 0, 0]
    drawn = _count_by_sample(observer.facts, observer.facts.drawn, matrices, unchanged=True)
    count, size = len(matrices), len(elements)
    return (
        Late(drawn.tensors, lambda *parts: [drawn.build(*parts), count, size]) if isinstance(drawn, Late) else [0, 0, 0]
    )


def _shapes(module: nn.Module) -> tuple[torch.Size, ...]:
    """Return the shapes of the parameters of a module."""
    return tuple(p.shape for p in module.parameters())


def _spread_of_rows(facts: Facts, module: nn.Module, trained: set[int]) -> object:
    """Compare the units of every trained linear or convolution layer with at least `MIN_UNITS` units.

    Layers with shards or with more than `MAX_WEIGHTS` weights are left out, and layers after the first `MAX_LAYERS`.

    Args:
        facts: The facts about the parameters of this process.
        module: The model.
        trained: Ids of the parameters that optimizers hold, and that had a gradient.

    Returns:
        A row for every layer: the name of its weight, the number of units, the largest difference between the weights
        of a unit and of unit 0, and the largest change of a sampled weight since the first sample.
    """
    names: list[list[object]] = []
    parts: list[Tensor] = []
    for name, layer in module.named_modules():
        weight = getattr(layer, "weight", None)
        if not isinstance(layer, _MATRIX_LAYERS) or not isinstance(weight, Tensor) or id(weight) not in trained:
            continue
        if weight.dim() < 2:  # a part of a flat parameter
            continue
        reference, before = facts.first.get(id(weight), (None, weight))
        if reference is None or reference() is not weight or is_shard(weight) or len(weight) < MIN_UNITS:
            continue
        # All units are compared, not a sample: in a large vocabulary, most classes may never occur, so that their units
        # have equal gradients.
        if weight.numel() > MAX_WEIGHTS:
            continue
        rows, now = weight.detach().flatten(1), facts.sample(weight)
        if now.shape == before.shape and now.device == before.device and len(names) < MAX_LAYERS:
            names.append([f"{name}.weight", len(weight)])
            largest = [(rows - rows[:1]).abs().amax(), (now - before).abs().amax()]
            parts.append(torch.stack([value.double() for value in largest]))
    return Late(parts, lambda *pairs: [[*name, *pair] for name, pair in zip(names, pairs)]) if parts else []


def _count_by_sample(
    facts: Facts,
    samples: dict[int, tuple[weakref.ref[Tensor], Tensor]],
    parameters: Sequence[Tensor],
    *,
    unchanged: bool,
) -> object:
    """Return the number of parameters that still have the values of their samples, or that do not have them.

    Args:
        facts: The facts about the parameters of this process.
        samples: By id of a parameter: a weak reference to the parameter, and a sample.
        parameters: The parameters to count. Parameters without a sample of the present shape are left out.
        unchanged: If True, count the parameters with more than half of the sample unchanged; if False, count the
            parameters with a changed value in the sample.

    Returns:
        The number as a `Late` value; 0 if no parameter has such a sample.
    """
    rows = []
    for p in parameters:
        if id(p) not in samples or samples[id(p)][0]() is not p:
            continue
        # A conversion to another dtype or device does not count as a change of values.
        now, before = facts.sample(p), samples[id(p)][1]
        if now.shape != before.shape:
            continue
        same = torch.eq(now.to(before.device, before.dtype), before).double().mean()
        # Not all values must be equal: an embedding sets the row of its padding to 0 after it has drawn all rows.
        rows.append((same > 0.5 if unchanged else same < 1).double())
    return Late(rows, lambda *parts: sum(part[0] for part in parts)) if rows else 0
