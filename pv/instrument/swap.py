"""Replace an object of a module by the replacement of a swap mutant."""

import functools
import inspect
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pv.errors import BrokenMutant, MutantProblem

ORIGINAL = "original"
"""If the first parameter of a replacement has this name, the original function is passed to it."""


def swap(module: ModuleType, name: str, new: object) -> None:
    """Set `name`, a dotted path in the module, to `new`.

    Raises:
        BrokenMutant: There is no such object, or `new` does not accept its arguments. Without this check, the
            TypeError of a call would count as a killed mutant.
    """
    path, _, last = name.rpartition(".")
    try:
        holder: object = operator.attrgetter(path)(module) if path else module
        getattr(holder, last)
    except AttributeError:
        raise BrokenMutant(MutantProblem.NO_DEFINITION, f"{module.__name__} has no {name!r}") from None
    raw = _raw(holder, last)
    replacement = _wrap(raw, new) if callable(new) and _takes_original(new) else new
    _check_parameters(getattr(raw, "__func__", raw), new)
    setattr(holder, last, replacement)


def _check_parameters(original: object, new: object) -> None:
    """Raise BrokenMutant unless `new` accepts both calls, if `original` and `new` are functions.

    The calls are: with only the required arguments of `original`, and with all of its arguments.
    """
    if not (inspect.isfunction(original) and inspect.isfunction(new)):
        return
    signature, first = inspect.signature(new), (None,) * _takes_original(new)
    parameters = inspect.signature(original).parameters.values()
    for arguments in ([p for p in parameters if p.default is p.empty], parameters):
        positional = [None for p in arguments if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = {p.name: None for p in arguments if p.kind is p.KEYWORD_ONLY}
        try:
            signature.bind(*first, *positional, **named)
        except TypeError as error:
            message = f"{new.__name__} does not take the arguments of {original.__name__}: {error}"
            raise BrokenMutant(MutantProblem.INVALID_REPLACEMENT, message) from None


def _takes_original(new: Callable[..., object]) -> bool:
    # A function decorated with `@contextmanager` is a wrapper; look at the function inside.
    code = getattr(inspect.unwrap(new), "__code__", None)
    return code is not None and code.co_argcount > 0 and code.co_varnames[0] == ORIGINAL


def _raw(holder: object, name: str) -> object:
    """Return the attribute without calling its descriptor: a property itself, not its value."""
    for owner in getattr(holder, "__mro__", (holder,)):
        if name in vars(owner):
            return vars(owner)[name]
    return getattr(holder, name)


def _wrap(original: Any, new: Callable[..., object]) -> object:
    """Return an object of the same kind as `original` that calls `new` with the original function first."""
    if isinstance(original, property):
        assert original.fget is not None
        return property(_pass_original(original.fget, new))
    if isinstance(original, staticmethod | classmethod):
        return type(original)(_pass_original(original.__func__, new))
    return _pass_original(original, new)


def _pass_original(original: Callable[..., object], new: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(original)
    def call(*args: object, **kwargs: object) -> object:
        return new(original, *args, **kwargs)

    return call
