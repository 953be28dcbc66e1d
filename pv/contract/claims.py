"""The claims of a contract, and the equations, obligations and runs that they name."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pv.contract.finding import Location
from pv.contract.mutants import Name
from pv.contract.names import Binding, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """A formula for people, one that `pv` evaluates, or both.

    executable: the keys that `pv` evaluates (`expression`, `domain`, ...), as read. texts: for each such key, the
    function that turns a line and column of its text, from 1, into a location in the file.
    """

    name: str
    location: Location
    formula: str = ""
    unit: str = ""
    description: str = ""
    source: str = ""
    executable: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Callable[[int, int], Location]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    id: str
    statement: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Falsifier:
    """An attack on one claim. How it is tried is decided by its kind (`pv.engines.registry`)."""

    id: str
    rule: str
    prediction: str
    if_fails: str
    location: Location
    test: Binding | None = None
    obligation: str | None = None
    equation: str | None = None
    subject: Target | None = None
    devices: tuple[str, ...] = ("cpu",)
    kills: tuple[str, ...] = ()
    run: str | None = None
    examples: int = 100
    limit_s: float = 60.0
    places: Mapping[str, Location] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """The keys that no field takes, as read: those that only the claim's kind reads."""

    @property
    def guess(self) -> str:
        """Return `if_fails` as reports show it: the words of the author, which no engine has checked."""
        return f"if this fails: {self.if_fails}" if self.if_fails else ""

    @property
    def is_of_script(self) -> bool:
        """Return whether it is judged from one run of a script, by `pv check -- COMMAND`, for no contract of a user."""
        return "observed" in self.options and self.run is None

    def at(self, key: str) -> Location:
        """Return the location of `key` in the YAML (`kills/0` for an item), or of the clause itself."""
        return self.places.get(key, self.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness(Falsifier):
    """A predicate (its `test`) over a bounded box, to be proved. `bounds` and `requires` as in `pv.contract.bounds`.

    engine: exhaustive, symbolic or both; "" for the one that fits the box.
    """

    prediction: str = ""
    bounds: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""
    engine: str = ""

    @property
    def whole_limit_s(self) -> float:
        """Return the limit in seconds, over all its engines."""
        return self.limit_s * (2 if self.engine == "both" else 1)

    @property
    def box(self) -> str:
        """Return its bounds as text."""
        bounds = "; ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        return f"{bounds}, where {self.requires}" if self.requires else bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One named configuration of the subject, executed once per device and subject.

    callable: the function that executes it; None where `command` does. environment: the variables that the command gets
    besides those of the worker. claims: the claims of `training-run` about the observed command, or the one name `all`.
    """

    name: str
    location: Location
    callable: Binding | None = None
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[Name, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] | None = None
    subject: Target | None = None
    limit_s: float = 120.0

    @property
    def target(self) -> str:
        """Return what is executed, as text: the function, or the command with its variables."""
        if self.callable is not None:
            return str(self.callable)
        return shlex.join([*(f"{name}={value}" for name, value in self.environment.items()), *self.command])
