"""The claims of a contract (falsifiers and harnesses), and the equations, obligations and runs that they name."""

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

    executable: the keys that `pv` evaluates (`expression`, `domain`, ...), as read. texts: for the path of every such
    key, the function from a line and column of its text, from 1, to a location in the file.
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
    """A statement in words that a contract has to fulfil, which falsifiers refer to by its id."""

    id: str
    statement: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Falsifier:
    """A claim and the attack on it. Its engine (`pv.engines.registry`) decides how it is tried.

    test: the function that attacks the claim, None for claims of other engines. kills: the ids of the mutants that the
    attack must detect. run: the name of the run whose record it reads. limit_s: in seconds. places: the locations of
    its keys and items.
    """

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
    """The keys without a field, as read; only the claim's engine reads them."""

    @property
    def guess(self) -> str:
        """Return `if_fails` as reports show it. It is the author's guess, which no engine has checked."""
        return f"if this fails: {self.if_fails}" if self.if_fails else ""

    @property
    def is_of_script(self) -> bool:
        """Return whether `pv check -- COMMAND` made this claim for a script, without a contract of a user."""
        return "observed" in self.options and self.run is None

    def at(self, key: str) -> Location:
        """Return the location of `key` in the YAML (`kills/0` for an item), or of the clause itself."""
        return self.places.get(key, self.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness(Falsifier):
    """A predicate over a bounded box, to be proved.

    test: the predicate. bounds, requires: the box, in the syntax of `pv.contract.bounds`. engine: `exhaustive`,
    `symbolic` or `both`; "" for the engine that fits the size of the box.
    """

    prediction: str = ""
    bounds: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""
    engine: str = ""

    @property
    def whole_limit_s(self) -> float:
        """Return the sum of the limits of all its engines, in seconds."""
        return self.limit_s * (2 if self.engine == "both" else 1)

    @property
    def box(self) -> str:
        """Return the box as reports show it."""
        bounds = "; ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        return f"{bounds}, where {self.requires}" if self.requires else bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One named configuration of the subject, executed once per device and subject.

    callable: the function that executes the run; None for a run with a `command`. environment: the variables that the
    command gets besides the worker's. claims: the claims of `training-run` about the observed command, or the single
    name `all`. arguments: what the function or command is called with. small: the arguments with mutants, None if the
    run has none.
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
        """Return the function that is executed, or the command with its variables, as text."""
        if self.callable is not None:
            return str(self.callable)
        return shlex.join([*(f"{name}={value}" for name, value in self.environment.items()), *self.command])
