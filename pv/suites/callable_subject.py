"""Shared code of suites that call their subject, a class or function, by parameter name."""

import inspect
from collections.abc import Mapping
from typing import Any

from pv.errors import PvError


class CannotCall(PvError, TypeError):
    """A subject that the suite cannot call; the text says what to write."""


class CallableSubject:
    """A subject that is called, whose attributes `lacks`, by feature, and `not_claimed`, by claim, give reasons."""

    make: Any
    lacks: dict[str, str]
    used: list[Any]
    """What the claim made; its number is reported."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Return the reasons of the claims that the subject does not make, by id."""
        reasons: Mapping[str, str] = getattr(self.make, "not_claimed", {})
        return reasons

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return the reason why a claim does not apply to the subject, or "" if it applies."""
        lacking = [f"no {feature}: {self.lacks[feature]}" for feature in needs if feature in self.lacks]
        return "; ".join([*lacking, *filter(None, [self.not_claimed.get(claim)])])

    def set_missing(self, reasons: dict[str, str]) -> None:
        """Set the missing features. reasons: by feature; "" for a feature that the subject has."""
        self.lacks = {name: why for name, why in reasons.items() if why} | getattr(self.make, "lacks", {})


def parameters_of(make: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters by name, with those of base classes if a class accepts `**kwargs`."""
    parameters = dict(inspect.signature(make).parameters)
    passed = inspect.isclass(make) and any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for base in make.__mro__[1:-1] if passed else ():
        if base.__init__ is not object.__init__:
            parameters = {**inspect.signature(base).parameters, **parameters}
    return parameters


def name_of(make: object) -> str:
    return getattr(make, "__qualname__", None) or repr(make)


def takes_nothing(make: Any) -> bool:
    """Return whether a function or class can be called without arguments."""
    try:
        inspect.signature(make).bind()
    except TypeError:
        return False
    return True
