"""Encode the arguments of a counterexample as JSON, decode them if the encoding is exact, and format them for people.

Floats that JSON cannot represent are `{"$float": "nan"}`, integers from 2**53 on `{"$int": text}`; a tuple is
`{"$tuple": [...]}`; a tensor is `{"$tensor": {dtype, shape, data}}`; a dataclass is
`{"$data": {"type": "module:Name", "fields": {...}}}`; a value that cannot be rebuilt is `{"$repr": text}`.
"""

import dataclasses
import importlib
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from torch import Tensor

MAX_ITEMS = 4096  # of a list or tuple
MAX_ELEMENTS = 32_768  # of a tensor, whose JSON must fit into one record of evidence
MAX_TEXT = 4096  # characters
MAX_DEPTH = 8
MAX_DECIMAL_BITS = 10_000  # Python refuses to convert much longer integers to decimal


def encode(value: object, depth: int = 0) -> tuple[object, bool]:
    """Encode a value as JSON. Never raise, so that every counterexample can be reported.

    Args:
        value: The value.
        depth: The number of containers around the value. A container at a depth above `MAX_DEPTH` becomes text.

    Returns:
        The JSON value, and whether `decode` can rebuild the original value from it.
    """
    try:
        return _encode(value, depth)
    except (Exception, SystemExit) as error:  # a method of the value, such as `__repr__`, may raise anything
        return {"$repr": f"<{type(value).__name__}: {type(error).__name__} while it was encoded>"}, False


def _encode(value: object, depth: int) -> tuple[object, bool]:
    """Encode a value. Unlike `encode`, raise any exception of a method of the value."""
    if value is None or isinstance(value, bool):
        return value, True
    if type(value) is int:
        # JSON readers outside of Python read numbers as float64, exact up to 2**53.
        if abs(value) < 1 << 53:
            return value, True
        return {"$int": str(value) if value.bit_length() < MAX_DECIMAL_BITS else hex(value)}, True
    if type(value) is float:
        return (value, True) if math.isfinite(value) else ({"$float": repr(value)}, True)
    if type(value) is str:
        return (value, True) if len(value) <= MAX_TEXT else ({"$repr": value[:MAX_TEXT]}, False)
    if depth > MAX_DEPTH:
        return _repr(value)
    if type(value) is list or type(value) is tuple:
        return _sequence(value, depth)
    if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
        pairs = {key: encode(item, depth + 1) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, all(exact for _, exact in pairs.values())
    # A tensor exists only if torch has been imported. This module must not import torch, which would take long.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, depth)
    return _repr(value)


def _sequence(value: Sequence[object], depth: int) -> tuple[object, bool]:
    """Encode the first `MAX_ITEMS` items of a list or tuple."""
    items = [encode(item, depth + 1) for item in value[:MAX_ITEMS]]
    encoded = [item for item, _ in items]
    exact = all(item_exact for _, item_exact in items) and len(value) <= MAX_ITEMS
    return (encoded if isinstance(value, list) else {"$tuple": encoded}), exact


class _Tensor(TypedDict):
    """The JSON of a tensor; `data` is missing if the tensor is too large, not dense, or on the meta device."""

    dtype: str
    shape: list[int]
    data: NotRequired[list[object]]


class _Dataclass(TypedDict):
    """The JSON of a dataclass. type: `module:name`."""

    type: str
    fields: dict[str, object]


def _tensor(value: "Tensor") -> tuple[object, bool]:
    """Encode the dtype and shape of a tensor, and its numbers if it is dense and has at most `MAX_ELEMENTS`."""
    described: dict[str, object] = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    has_data = value.numel() <= MAX_ELEMENTS and not value.is_meta and str(value.layout) == "torch.strided"
    if has_data:
        flat = value.detach().cpu().resolve_conj().reshape(-1)
        # Convert bfloat16 to float32, which represents every bfloat16 number exactly.
        numbers = (flat.float() if str(flat.dtype) == "torch.bfloat16" else flat).tolist()
        described["data"] = [encode(number)[0] for number in numbers]  # `_sequence` would cut the list at `MAX_ITEMS`
    return {"$tensor": described}, has_data and not value.is_complex() and not value.requires_grad


def _dataclass(value: Any, depth: int) -> tuple[object, bool]:
    """Encode a dataclass by its type and fields."""
    kind = type(value)
    fields = {f.name: encode(getattr(value, f.name), depth + 1) for f in dataclasses.fields(value)}
    described: _Dataclass = {
        "type": f"{kind.__module__}:{kind.__qualname__}",
        "fields": {name: item for name, (item, _) in fields.items()},
    }
    # A local class cannot be imported by name, and fields without `init` cannot be passed.
    buildable = "<locals>" not in kind.__qualname__ and all(f.init for f in dataclasses.fields(value))
    return {"$data": described}, buildable and all(exact for _, exact in fields.values())


def _repr(value: object) -> tuple[object, bool]:
    """Encode a value that cannot be rebuilt as the start of its `repr`."""
    return {"$repr": repr(value)[:500]}, False


def decode(value: object) -> Any:
    """Rebuild a value from the result of `encode`.

    Args:
        value: The JSON value.

    Returns:
        An equal value; tensors are on the CPU.

    Raises:
        ValueError: The encoding is not exact: it has a text in place of a value, or a tensor without data.
        Exception: The encoding is invalid, or its dataclass cannot be imported or constructed.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        reader = _READERS.get(key)
        if reader is not None:
            return reader(inner)
    return {key: decode(item) for key, item in value.items()}


def _read_tensor(described: _Tensor) -> object:
    """Return the tensor that an encoding describes. Raise ValueError if it has no numbers."""
    import torch

    if "data" not in described:
        raise ValueError("the tensor was encoded without its numbers")
    dtype = getattr(torch, described["dtype"])
    return torch.tensor(decode(described["data"]), dtype=dtype).reshape(described["shape"])


def _read_dataclass(described: _Dataclass) -> object:
    module, _, name = described["type"].partition(":")
    kind: Callable[..., object] = operator.attrgetter(name)(importlib.import_module(module))
    return kind(**{key: decode(item) for key, item in described["fields"].items()})


def _read_repr(text: object) -> object:
    raise ValueError(f"{text} cannot be rebuilt from its text")


_READERS: dict[str, Callable[[Any], object]] = {
    "$float": float,
    "$int": lambda text: int(text, 0),
    "$tuple": lambda items: tuple(decode(item) for item in items),
    "$tensor": _read_tensor,
    "$data": _read_dataclass,
    "$repr": _read_repr,
}


def show(value: object) -> str:
    """Format an encoded value for people, such as `tensor([[0.0, 1.0]], float32)`."""
    if isinstance(value, list):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value) if len(repr(value)) <= 9 else f"{value:.7g}"
    if not isinstance(value, dict):
        return repr(value)
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == "$tensor":
            return _show_tensor(inner)
        if key == "$data":
            fields = ", ".join(f"{name}={show(item)}" for name, item in inner["fields"].items())
            return f"{inner['type'].rpartition(':')[2]}({fields})"
        if key == "$tuple":
            return f"({', '.join(show(item) for item in inner)}{',' if len(inner) == 1 else ''})"
        if key in ("$float", "$int", "$repr"):
            return str(inner)
    return f"{{{', '.join(f'{key!r}: {show(item)}' for key, item in value.items())}}}"


def _show_tensor(described: _Tensor) -> str:
    shape, dtype = described["shape"], described["dtype"]
    if "data" not in described or math.prod(shape) > 64:
        return f"tensor(shape {shape}, {dtype})"
    return f"tensor({_format_nested([show(item) for item in described['data']], shape)}, {dtype})"


def _format_nested(items: list[str], shape: list[int]) -> str:
    """Format a flat list of texts as nested lists of a shape."""
    if not shape:
        return items[0]
    step = len(items) // shape[0] if shape[0] else 0
    return f"[{', '.join(_format_nested(items[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"
