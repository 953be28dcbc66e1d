"""What the author of a contract claims: plain frozen data, read from YAML, with the place of every claim."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A place in a file; lines and columns count from 1."""

    path: Path
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Severity(Enum):
    """How a finding counts: a refusal stops the contract, an error fails the lint, a notice is only shown."""

    REFUSAL = "refusal"
    ERROR = "error"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem of one contract file, found without running anything."""

    code: str
    severity: Severity
    where: Where
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where} {self.code} {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


@dataclass(frozen=True, slots=True)
class Binding:
    """`path/to/file.py::name`: a function in a file of the project."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """`module` or `module:attribute`: code under contract, or what replaces it."""

    module: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def inside(self, module: Any) -> Any:
        """The target itself, in its imported module."""
        found = module
        for part in self.attribute.split(".") if self.attribute else ():
            found = getattr(found, part)
        return found

    @classmethod
    def parse(cls, text: str) -> "Target":
        module, _, attribute = text.partition(":")
        return cls(module, attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """A formula for people, one that `pv` evaluates, or both.

    executable: the keys that make it one (`expression`, `domain`, ...), as read. texts: how a line and column in the
    text of such a key, from 1, becomes a place in the file.
    """

    name: str
    where: Where
    formula: str = ""
    unit: str = ""
    description: str = ""
    source: str = ""
    executable: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Callable[[int, int], Where]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    id: str
    statement: str
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Falsifier:
    """An attack on one claim. Without a `test` its equation is the test, or the contract has it only in prose."""

    id: str
    rule: str
    prediction: str
    if_fails: str
    where: Where
    test: Binding | None
    obligation: str | None = None
    equation: str | None = None
    subject: Target | None = None
    devices: tuple[str, ...] = ("cpu",)
    kills: tuple[str, ...] = ()
    run: str | None = None
    examples: int = 100
    limit_s: float = 60.0
    places: Mapping[str, Where] = field(default_factory=dict)

    @property
    def by_equation(self) -> bool:
        """Whether the equation itself is held against the code."""
        return self.test is None and self.equation is not None

    @property
    def bound(self) -> bool:
        """Whether it can be tried at all."""
        return self.test is not None or self.by_equation

    def at(self, key: str) -> Where:
        """Where the YAML says `key` (`kills/0` for an item), or the clause itself."""
        return self.places.get(key, self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness(Falsifier):
    """A predicate (its `test`) over a bounded box, to be proved. `bounds` and `requires` as in `pv.bounds`.

    engine: exhaustive, symbolic or both; "" for the one that fits the box.
    """

    bounds: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""
    engine: str = ""

    @property
    def whole_limit_s(self) -> float:
        """The limit in seconds, over all its engines."""
        return self.limit_s * (2 if self.engine == "both" else 1)

    @property
    def box(self) -> str:
        """Its bounds in words."""
        bounds = "; ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        return f"{bounds}, where {self.requires}" if self.requires else bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One named configuration of the subject, executed once per device."""

    name: str
    callable: Binding
    arguments: Mapping[str, Any]
    small: Mapping[str, Any] | None
    where: Where
    subject: Target | None = None
    limit_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace one expression or run of statements in one function.

    occurrence: which of the places that read `find`, from 0; None where it must be the only one.
    """

    function: Target
    find: str
    replace: str
    occurrence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Put another object in the subject's place."""

    object: Target
    replacement: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault that a falsifier must detect, and where it was seen in the wild."""

    id: str
    fault: str
    change: Edit | Swap
    where: Where
    seen_in: str = ""

    @property
    def module(self) -> str:
        return self.change.function.module if isinstance(self.change, Edit) else self.change.object.module


@dataclass(frozen=True, slots=True, kw_only=True)
class NotClaimed:
    """Falsifiers whose claim another subject doesn't make, why, and where its own documents say what it does."""

    falsifiers: tuple[str, ...]
    why: str
    reference: str
    places: tuple[Where, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSubject:
    """Code that can stand in the subject's place; `package` is the distribution that it needs, "" for none.

    `claims_as` names a subject declared before it, which claims neither more nor less.
    """

    name: str
    target: Target
    where: Where
    package: str = ""
    claims_as: str = ""
    not_claimed: tuple[NotClaimed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """An automatic mutant that no falsifier can tell from the code, and why: accepted, and counted apart."""

    change: Edit
    reason: str
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a contract requires. `None` stands for all; `cuda` "fresh" also requires the CUDA cells.

    mutation_score: the least recorded share of automatic mutants that fell; None where none is asked for.
    """

    id: str = ""
    name: str = ""
    falsifiers: frozenset[str] | None = None
    mutants: frozenset[str] | None = None
    harnesses: frozenset[str] | None = None
    devices: frozenset[str] = frozenset()
    mutation_score: float | None = None
    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutated:
    """A module, class or function whose automatic mutants make a contract's score."""

    target: Target
    where: Where

    def holds(self, function: str) -> bool:
        """Whether `module:qualified.name` is the target or inside it."""
        module, _, name = function.partition(":")
        if not self.target.attribute:
            return f"{module}.".startswith(f"{self.target.module}.")
        return module == self.target.module and f"{name}.".startswith(f"{self.target.attribute}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One YAML file. `strict` is False for the field's existing format, whose falsifiers are prose."""

    id: str
    version: str
    description: str
    where: Where
    strict: bool
    references: tuple[str, ...] = ()
    subject: Target | None = None
    equations: tuple[Equation, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    falsifiers: tuple[Falsifier, ...] = ()
    runs: tuple[Run, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    subjects: tuple[OtherSubject, ...] = ()
    equivalents: tuple[Equivalent, ...] = ()
    mutated: tuple[Mutated, ...] = ()
    harnesses: tuple[Harness, ...] = ()
    gate: Gate = Gate()

    @property
    def claims(self) -> tuple[Falsifier, ...]:
        """All that is to be tried: the falsifiers, then the harnesses."""
        return (*self.falsifiers, *self.harnesses)

    @property
    def executable(self) -> dict[str, Mapping[str, Any]]:
        """The equations that can be evaluated, by name, as their keys were read."""
        return {e.name: e.executable for e in self.equations if e.executable}

    @property
    def places(self) -> tuple[str, ...]:
        """What it names to be mutated."""
        return tuple(str(each.target) for each in self.mutated)

    def mutant(self, id: str) -> Mutant:
        return next(m for m in self.mutants if m.id == id)

    def run(self, name: str) -> Run:
        return next(r for r in self.runs if r.name == name)

    def not_claimed(self, target: Target) -> dict[str, str]:
        """Why `target`, if it is declared as another subject, isn't tried with a falsifier, by the falsifier's id."""
        by_name = {other.name: other for other in self.subjects}
        named = next((other for other in self.subjects if other.target == target), None)
        found: list[NotClaimed] = []
        while named is not None:
            found += named.not_claimed
            named = by_name.pop(named.claims_as, None)
        return {id_: f"{part.why} ({part.reference})" for part in found for id_ in part.falsifiers}

    def subject_of(self, claim: Falsifier | Run) -> Target:
        """The code that `claim` attacks. Lint has made sure that there is one."""
        own = claim.subject
        if own is None and isinstance(claim, Falsifier) and claim.run is not None:
            own = self.run(claim.run).subject
        subject = own or self.subject
        if subject is None:
            raise LookupError(f"{claim.where}: no subject")
        return subject
