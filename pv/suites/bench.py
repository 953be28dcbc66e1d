"""The base classes of benches. A bench runs a subject for the claims of a suite.

The engine `suite` calls the function `bench(subject, directory)` of a suite to get the bench of a subject. For each
claim, the engine calls `missing` to find out whether the claim applies, and passes the bench to the test of the claim.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, ClassVar, NoReturn

from pv.errors import KnownCause, PvError

Parameters = Mapping[str, inspect.Parameter]
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CannotCall(PvError, TypeError):
    """The suite cannot call the subject. The text says what to write instead."""


class SuiteBench:
    """A subject with its declarations.

    Attributes:
        subject: The object under test, or its adapter.
        lacks: The reason for every feature that the subject does not have.
        used: The runs, outputs or cases that the claim has used, in order. A report shows their number as its runs.
        warm_up_failure: The message if the optional method `warm_up` of the bench raises.
        independent_features: Claims that need one of these features are tried even if `warm_up` raises for other
            claims.
    """

    subject: Any  # an object of the user; only its attributes are read
    lacks: Mapping[str, str]
    used: list[Any]
    warm_up_failure: str = ""
    independent_features: frozenset[str] = frozenset()

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Return the reasons for the claims that the subject does not make, by the id of the claim."""
        reasons: Mapping[str, str] = getattr(self.subject, "not_claimed", {})
        return reasons

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        """Return the reason why a claim does not apply to the subject, or "" if it applies.

        Args:
            claim: The id of the claim.
            needs: The features that the claim uses.
        """
        lacks = self.lacks
        reasons = [f"no {feature}: {lacks[feature]}" for feature in needs if feature in lacks]
        return "; ".join([*reasons, *filter(None, [self.not_claimed.get(claim)])])


class CallableBench(SuiteBench):
    """A bench of a class or function that the suite calls, with arguments chosen by the names of its parameters.

    A subclass determines the features of the subject, and passes them to `set_features`. The attribute `features` of
    the subject overrides them, for example `make.features = {"mask": "an image always counts"}`.

    Attributes:
        write: The text of the error for a subject that cannot be called, with `{name}`, `{why}` and `{names}`.
        names: The usual names of the parameter for each role. A role is a value that the suite can pass.
    """

    write: ClassVar[str]
    names: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, subject: Callable[..., object]) -> None:
        self.subject, self.used = subject, []

    def roles_of(self, parameters: Parameters) -> dict[str, str]:
        """Return the name of the parameter for each role: the first usual name that is a parameter, or ""."""
        return {role: next((name for name in usual if name in parameters), "") for role, usual in self.names.items()}

    def refuse_unknown(self, parameters: Parameters, roles: Mapping[str, str]) -> None:
        """Raise `CannotCall` if a required parameter has no role, since the suite then has no value for it."""
        required = [
            name
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty and parameter.kind not in _VARIADIC
        ]
        for name in required:
            if name not in roles.values():
                self.refuse(f"unknown parameter {name!r}")

    def set_features(self, reasons: Mapping[str, str]) -> None:
        """Set the features of the subject.

        Args:
            reasons: A reason for every feature of the suite that the subject does not have; "" for its other features.

        Raises:
            CannotCall: The subject declares an unknown feature, or a feature that it does not have.

        Warns:
            FutureWarning: The subject has the attribute `lacks` of version 0.2.
        """
        missing = {feature: reason for feature, reason in reasons.items() if reason}
        if hasattr(self.subject, "lacks"):  # the name of version 0.2
            text = f"{name_of(self.subject)}: `lacks` will not be read from version 0.5 on; write `features` instead"
            warnings.warn(text, FutureWarning, stacklevel=2)
        declared = {**getattr(self.subject, "lacks", {}), **getattr(self.subject, "features", {})}
        for feature, value in declared.items():
            if feature not in reasons:
                problem = unknown_feature(feature, reasons)
                raise CannotCall(f"`features` of {name_of(self.subject)} names an {problem}")
            if value is True and feature in missing:
                raise CannotCall(f"`features` of {name_of(self.subject)} has {feature!r}, but {missing[feature]}")
        # A declared reason replaces a reason of the suite.
        false = "`features` of the subject says False"
        self.lacks = missing | {name: value or false for name, value in declared.items() if value is not True}

    def refuse(self, why: str, cause: Exception | None = None) -> NoReturn:
        """Raise `CannotCall` with a reason and the code to write.

        Args:
            why: The reason why the subject cannot be called.
            cause: The exception from which the reason is known.
        """
        # The text itself has the names of roles with only one usual name.
        several = {role: usual for role, usual in self.names.items() if len(usual) > 1}
        names = "\n".join(f"{role}: {', '.join(usual)}" for role, usual in several.items())
        raise CannotCall(self.write.format(name=name_of(self.subject), why=why, names=names)) from cause

    @contextmanager
    def first_call(self) -> Iterator[None]:
        """Refuse the subject if the first call of the subject, in the body of the context, raises an exception."""
        try:
            yield
        except CannotCall:
            raise
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}", error)


def unknown_feature(feature: str, features: Mapping[str, object] | frozenset[str]) -> str:
    """Return the message about an unknown feature, with the most similar feature or all features."""
    near = get_close_matches(feature, features, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(features))}"
    return f"unknown feature {feature!r}; {hint}"


def judge(holds: bool, fault: str, cause: str = "") -> None:
    """Raise AssertionError with a fault and its cause, unless the claim holds.

    Args:
        holds: Whether the claim holds.
        fault: The text with the observed and the correct value.
        cause: The computed cause, such as "; it is the sum"; "" if the cause is unknown.

    Raises:
        KnownCause: The claim is refuted and the cause is known. A report shows this cause instead of the likely cause
            in the contract.
        AssertionError: The claim is refuted and the cause is unknown.
    """
    if not holds:
        raise (KnownCause if cause else AssertionError)(f"{fault}{cause}")


def parameters_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or class by name.

    If a class passes unknown arguments to its base classes, the parameters of the base classes are included.
    """
    parameters = dict(inspect.signature(function).parameters)
    passes_on = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    bases: Sequence[Any] = function.__mro__[1:-1] if inspect.isclass(function) and passes_on else ()
    for base in bases:
        if base.__init__ is not object.__init__:
            parameters = {**inspect.signature(base).parameters, **parameters}
    return parameters


def name_of(subject: object) -> str:
    """Return the name of a class or function; for other objects, their `repr`."""
    return getattr(subject, "__qualname__", None) or repr(subject)


def takes_nothing(function: Callable[..., object]) -> bool:
    """Return whether a function or class can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True
