"""CUDA tensors on a machine without a GPU: their data is on the CPU, and an operation that mixes devices raises.

Inside `fake_cuda()`, `device="cuda"` makes tensors that report `cuda:0` and have values, so code that reads data
(`if x.any()`, `x.item()`, a mask as an index) runs as on a GPU. PyTorch's `FakeTensorMode` has no values: it raises at
the first such line. `install()` does this for a whole process, in which PyTorch then reports a GPU: whole runs, and the
claims for CUDA, can be rehearsed (`.ci/gpu --rehearse`).

Checked: operations called from Python, and indexing. An index on the CPU is accepted, as PyTorch accepts it on a GPU;
so is a CPU tensor without axes, but not as the step of a fused optimizer. Not reached: the gradient that
`torch.autograd.backward` is given, tensors that C++ makes, kernels with their rounding and limits, streams, and
compiled operations.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from typing import Any, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

Module = TypeVar("Module", bound=nn.Module)
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
MOVES = {Tensor.to, Tensor.cpu, Tensor.cuda}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
NAMING = {torch.device, torch._C._nn._parse_to}
"""Functions that read the name of a device, and make no tensor."""
SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]  # a descriptor of C, which torch's stub calls a tensor
ANYWHERE = {Tensor.copy_, SET_DATA, torch._has_compatible_shallow_copy_type}
"""Functions whose tensors may be on two devices."""


def getter(name: str) -> Any:
    """Return the function that reads an attribute of tensors, as `__torch_function__` gets it."""
    return getattr_static(Tensor, name).__get__


ATTRIBUTES = {getter("device"): CUDA, getter("is_cuda"): True, getter("is_cpu"): False}
"""Attributes that a tensor on the GPU has; all other attributes come from its data."""


class MixedDevices(AssertionError):
    """An operation has tensors on two devices: on a GPU it would raise."""


class FakeCuda(Tensor):
    """A tensor that reports the device `cuda:0`; its memory is on the CPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answered(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "FakeCuda":
        """Copy it as a leaf, which every parameter and buffer is."""
        if id(self) not in memo:
            copied = self.detach().clone().requires_grad_(self.requires_grad)
            copied._is_param = isinstance(self, nn.Parameter)
            memo[id(self)] = copied
        copy: FakeCuda = memo[id(self)]
        return copy


class Devices(TorchFunctionMode):
    """Apply `answered` to functions without a tensor on the GPU too, such as `torch.zeros(3, device="cuda")`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answered(func, args, kwargs or {})


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Let `device="cuda"` make tensors whose memory is on the CPU."""
    with Devices():
        yield


GPU, MEMORY, INITIALISED = "rehearsal without a GPU", 64 << 20, "CUDA_MODULE_LOADING"


class FakeGenerator:
    """The generator of the GPU, which has a state but draws nothing: the CPU's generator draws all random numbers."""

    def __init__(self) -> None:
        self.device, self._own = CUDA, torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def install() -> ExitStack:
    """Let PyTorch report a GPU, `cuda:0`, in this process until the result is closed. Autocast runs as on the CPU."""
    generator, stack = FakeGenerator(), ExitStack()
    autocast, is_enabled, dtype_of = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype

    def state(device: Any = None) -> Any:
        os.environ.setdefault(INITIALISED, "LAZY")  # as PyTorch does when it initialises CUDA
        return generator.get_state()

    of_cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: CUDA.index,
        "_is_in_bad_fork": lambda: False,
        "get_device_name": lambda device=None: GPU,
        "default_generators": (generator,),
        "get_rng_state": state,
        "set_rng_state": lambda new, device=None: generator.set_state(new),
        "manual_seed": lambda seed: generator.manual_seed(seed),
        "manual_seed_all": lambda seed: generator.manual_seed(seed),
        "memory_allocated": lambda device=None: MEMORY,
        "max_memory_allocated": lambda device=None: MEMORY,
        "memory_stats": lambda device=None: {"reserved_bytes.all.peak": MEMORY},
        "synchronize": lambda device=None: None,
    }
    of_torch: dict[str, Any] = {
        "autocast": lambda kind, *args, **options: autocast(_without_cuda(kind), *args, **options),
        "is_autocast_enabled": lambda kind: is_enabled(_without_cuda(kind)),
        "get_autocast_dtype": lambda kind: dtype_of(_without_cuda(kind)),
    }
    for module, functions in ((torch.cuda, of_cuda), (torch, of_torch)):
        for name, function in functions.items():
            stack.enter_context(mock.patch.object(module, name, function))
    stack.enter_context(Devices())
    return stack


def answered(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Call the function on the memory of its arguments; return tensors on the device that they have on a GPU.

    Raise `MixedDevices` for tensors on two devices.
    """
    if func in NAMING:
        return func(*args, **kwargs)
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    on_cuda = any(isinstance(x, FakeCuda) for x in tensors)
    if on_cuda and func in ATTRIBUTES:
        return ATTRIBUTES[func]
    if func is Tensor.pin_memory:
        return args[0]
    if func not in MOVES and func not in ANYWHERE:
        _check_devices(func, tensors, args)
    target = _target(func, args, kwargs)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*tree_map(_without_cuda, args), **tree_map(_without_cuda, kwargs))
        if func == SET_DATA:
            _become(args[0], isinstance(args[1], FakeCuda))
        moved = func in MOVES and target is not None and target != on_cuda
        return tree_map(lambda x: _placed(x, on_cuda if target is None else target, moved), result)


def _check_devices(func: Any, tensors: list[Tensor], args: Any) -> None:
    """Raise `MixedDevices` if a function has tensors on two devices that a GPU does not accept together."""
    checked = tensors
    if func in INDEXING and isinstance(args[0], FakeCuda):
        by_tensor = any(isinstance(x, Tensor) for x in tree_leaves(args[1]))
        checked = [args[0], *(x for x in args[2:] if by_tensor and isinstance(x, Tensor))]
    if getattr(func, "__name__", "").startswith("_fused_"):  # its kernel reads weights, moments and steps
        on_cpu = [list(x.shape) for x in tree_leaves(args) if isinstance(x, Tensor) and not isinstance(x, FakeCuda)]
    else:
        on_cpu = [list(x.shape) for x in checked if not isinstance(x, FakeCuda) and x.dim()]
    if on_cpu and any(isinstance(x, FakeCuda) for x in checked):
        name = getattr(func, "__qualname__", repr(func))
        raise MixedDevices(f"{name}: expected all tensors on cuda:0, but tensors of shape {on_cpu} are on the CPU")


def _target(func: Any, args: Any, kwargs: dict[str, Any]) -> bool | None:
    """Return whether the arguments ask for a result on the GPU; None if they name no device."""
    if func in (Tensor.cpu, Tensor.cuda):
        return func is Tensor.cuda
    asked = [kwargs.get("device")]
    if func is Tensor.to:
        asked += [kwargs.get("other"), *args[1:2]]
    for place in asked:
        if isinstance(place, Tensor):
            return isinstance(place, FakeCuda)
        if isinstance(place, torch.device | str):
            return torch.device(place).type == "cuda"
    return None


def _without_cuda(value: Any) -> Any:
    """Return a device or its name with the CPU in place of the GPU, and any other value unchanged."""
    if isinstance(value, str):
        return "cpu" if value.startswith("cuda") else value
    return CPU if isinstance(value, torch.device) and value.type == "cuda" else value


def _become(tensor: Tensor, on_cuda: bool) -> None:
    """Move a tensor in place, as `module.to(device)` moves parameters: `parameter.data = moved`."""
    is_parameter = isinstance(tensor, nn.Parameter)
    if on_cuda:
        tensor.__class__ = FakeCuda
        tensor._is_param = is_parameter  # by which PyTorch knows parameters of other classes
    else:
        tensor.__class__ = nn.Parameter if is_parameter else Tensor


def _placed(value: Any, on_cuda: bool, moved: bool) -> Any:
    """Return a tensor with the class of its device; a tensor that was moved gets its own memory."""
    if not isinstance(value, Tensor) or (isinstance(value, FakeCuda) is on_cuda and not moved):
        return value
    kind = FakeCuda if on_cuda else Tensor
    if value.is_leaf and not moved:
        return value.detach().as_subclass(kind).requires_grad_(value.requires_grad)
    return (value.clone() if moved else value).as_subclass(kind)


def moved(model: Module, device: str) -> Module:
    """Return the module with parameters and buffers on a device that `fake_cuda` may make."""
    for part in model.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            part.register_parameter(name, nn.Parameter(parameter.detach().to(device)))
        for name, buffer in list(part.named_buffers(recurse=False)):
            part.register_buffer(name, buffer.to(device))
    return model
