"""The classes of a contract and its parts, as read from YAML: targets in code, mutants, claims, gate, waivers."""

import operator
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pv.contract.finding import Location


class UnknownName(LookupError):
    """A claim refers to a run or mutant that its contract does not declare."""


def hyphen_hint(name: str) -> str:
    """Return a hint for the name of code with a hyphen, which Python cannot import; "" without a hyphen."""
    return f"Python names have no '-': rename it, such as to {name.replace('-', '_')!r}" if "-" in name else ""


Keys = Mapping[str, Any]
"""The keys of a part of a contract, as read from YAML; the JSON Schema has checked their types."""


@dataclass(frozen=True, slots=True)
class Binding:
    """`path/to/file.py::name`: a function in a file of the project."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """`module` or `module:attribute`: code under contract, or the code that replaces it."""

    module: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}" if self.attribute else self.module

    def inside(self, module: object) -> Any:
        """Return the object of this target in the imported `module`. Raise AttributeError if there is none."""
        return operator.attrgetter(self.attribute)(module) if self.attribute else module

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Return the target that `module` or `module:attribute` names."""
        module, _, attribute = text.partition(":")
        return cls(module, attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The replacement of one expression or several statements in one function.

    Attributes:
        occurrence: The index of the occurrence of `find` that is replaced; None if `find` must occur exactly once.
    """

    function: Target
    find: str
    replace: str
    occurrence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """The replacement of an object by another one."""

    object: Target
    replacement: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A fault that a falsifier must detect.

    Attributes:
        seen_in: Where the fault occurred in real code, "" if unknown.
        killed_by: Claims that must detect the fault too: ids of claims of the contract's suite, or `RUN.ID` for a claim
            about an observed run.
    """

    id: str
    fault: str
    change: Edit | Swap
    location: Location
    seen_in: str = ""
    killed_by: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Return the module that the mutant changes."""
        return self.change.function.module if isinstance(self.change, Edit) else self.change.object.module


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalent:
    """A generated mutant that the author declares equivalent, with the reason. Such mutants are counted separately."""

    change: Edit
    reason: str
    location: Location


OWN_FILE = ".__init__"
"""The suffix that restricts the name of a package to its `__init__.py`, without the modules of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name in a contract, with its location."""

    text: str
    location: Location

    def holds(self, function: str) -> bool:
        """Return whether the function `module:qualified.name` is in the module or package of this name."""
        module = function.partition(":")[0]
        if self.text.endswith(OWN_FILE):
            return module == self.text.removesuffix(OWN_FILE)
        return f"{module}.".startswith(f"{self.text}.")  # with dots: the package `a.b` does not hold the module `a.bc`


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScope:
    """The modules and packages whose generated mutants make up a contract's mutation score.

    Attributes:
        judges: Ids of other contracts whose falsifiers are tried on these mutants too.
    """

    modules: tuple[Name, ...] = ()
    judges: tuple[Name, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the modules and packages."""
        return tuple(module.text for module in self.modules)

    @property
    def judge_ids(self) -> tuple[str, ...]:
        """Return the ids of the judges."""
        return tuple(judge.text for judge in self.judges)

    def holds(self, function: str) -> bool:
        """Return whether the function `module:qualified.name` is in one of the modules and packages."""
        return any(module.holds(function) for module in self.modules)


NO_SCOPE = MutationScope()
"""The scope of a contract without `mutation_scope`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """A formula for people, one that `pv` evaluates, or both.

    Attributes:
        executable: The keys that `pv` evaluates (`expression`, `domain`, ...), as read; {} if there are none.
        texts: By path of a key in `executable`: a function that maps a line and column of the text of this key, counted
            from 1, to a location in the file.
    """

    name: str
    location: Location
    formula: str = ""
    unit: str = ""
    description: str = ""
    source: str = ""
    executable: Keys = field(default_factory=dict)
    texts: Mapping[str, Callable[[int, int], Location]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligation:
    """A statement in words that a contract has to fulfil, which falsifiers refer to by its id."""

    id: str
    statement: str
    location: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Falsifier:
    """A claim and the attack on it. The engine (`pv.engines.registry`) decides how the claim is tried.

    Attributes:
        test: The function that attacks the claim, None for claims of other engines.
        kills: The ids of the mutants that the attack must detect.
        run: The name of the run whose record the claim reads; None for none.
        limit_s: The time limit in seconds.
        places: The locations of the keys and items of the clause.
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
    options: Keys = field(default_factory=dict)
    """The keys without a field, as read; only the claim's engine reads them."""

    @property
    def guess(self) -> str:
        """Return `if_fails` as reports show it: the author's guess at the cause, which no engine has checked."""
        return f"if this fails: {self.if_fails}" if self.if_fails else ""

    @property
    def is_of_script(self) -> bool:
        """Return whether the claim judges the script of `pv check -- COMMAND`, without a run of a contract."""
        return "observed" in self.options and self.run is None

    def at(self, key: str) -> Location:
        """Return the location of `key` in the YAML (`kills/0` for an item), or of the clause itself."""
        return self.places.get(key, self.location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness(Falsifier):
    """A claim that a predicate holds for all values in a bounded box, to be proved.

    Attributes:
        test: The predicate.
        bounds: The bounds of each argument, in the syntax of `pv.contract.harness_bounds`.
        requires: A condition on the arguments, which restricts the box further; "" for none.
        engine: `exhaustive`, `symbolic` or `both`; "" for the engine that fits the size of the box.
    """

    prediction: str = ""
    bounds: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""
    engine: str = ""

    @property
    def whole_limit_s(self) -> float:
        """Return the sum of the time limits of all engines that prove the harness, in seconds."""
        return self.limit_s * (2 if self.engine == "both" else 1)

    @property
    def box(self) -> str:
        """Return the bounds and the condition as reports show them."""
        bounds = "; ".join(f"{name} {bound}" for name, bound in self.bounds.items())
        return f"{bounds}, where {self.requires}" if self.requires else bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One named configuration of the subject, executed once per device and subject.

    Attributes:
        callable: The function that executes the run; None for a run with a `command`.
        environment: Environment variables of the command, in addition to the environment of the worker.
        claims: The claims of `training-run` about the observed command, or the single name `all`.
        arguments: The arguments of the function or command.
        small: The arguments that replace `arguments` on mutants; None if the contract has none for this run of a
            function: lint then reports the run, and a validation tries no mutants on it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotClaimed:
    """Falsifiers whose claims another subject does not make.

    Attributes:
        why: The reason.
        reference: Where the documentation of that subject says so.
        places: The location of every id.
    """

    falsifiers: tuple[str, ...]
    why: str
    reference: str
    places: tuple[Location, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSubject:
    """Code that can replace the subject.

    Attributes:
        package: The distribution that the code needs, "" for none.
        claims_as: The name of an earlier subject in the contract that makes the same claims, "" for none.
    """

    name: str
    target: Target
    location: Location
    package: str = ""
    claims_as: str = ""
    not_claimed: tuple[NotClaimed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The requirements of a contract.

    Attributes:
        falsifiers, mutants, harnesses: The required ids, None for all.
        devices: The devices on which the contract makes claims, () for the devices of its falsifiers.
        fresh: The devices whose recorded results are required too.
        mutation_score: The minimum recorded share of generated mutants that are killed, None for no minimum.
        equivalents: The maximum share of generated mutants that may be declared equivalent.
    """

    id: str = ""
    name: str = ""
    falsifiers: frozenset[str] | None = None
    mutants: frozenset[str] | None = None
    harnesses: frozenset[str] | None = None
    devices: tuple[str, ...] = ()
    fresh: frozenset[str] = frozenset()
    mutation_score: float | None = None
    equivalents: float = 0.05
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A weakening that its owner accepts until a date, inclusive.

    Attributes:
        weaker: The clause that requires less than in the base; "" if `removed` is given.
        removed: The clause that was removed; "" if `weaker` is given.
    """

    owner: str
    reason: str
    expires: str
    location: Location
    weaker: str = ""
    removed: str = ""

    @property
    def name(self) -> str:
        """Return the clause that the waiver is about."""
        return self.weaker or self.removed

    @property
    def last_day(self) -> date | None:
        """Return the last day on which the waiver is valid; None if `expires` is not a date."""
        try:
            return date.fromisoformat(self.expires)  # lint reports an invalid date; loading does not fail for it
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The content of one YAML file.

    Attributes:
        strict: False for a contract without `schema`, in the older format whose falsifiers are prose.
        suite: The conformance suite whose claims precede the claims of the contract.
        known: The `pv/1` contracts that were loaded together, by id, to look up the ids in `use` and `judges`.
    """

    id: str
    version: str
    description: str
    location: Location
    strict: bool
    references: tuple[str, ...] = ()
    subject: Target | None = None
    suite: Name | None = None
    domains: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    use: tuple[Name, ...] = ()
    equations: tuple[Equation, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    falsifiers: tuple[Falsifier, ...] = ()
    runs: tuple[Run, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    subjects: tuple[OtherSubject, ...] = ()
    equivalents: tuple[Equivalent, ...] = ()
    mutation_scope: MutationScope = NO_SCOPE
    harnesses: tuple[Harness, ...] = ()
    gate: Gate = Gate()
    waivers: tuple[Waiver, ...] = ()
    places: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)
    """The locations of its keys, such as `subject` and `mutation_scope`."""
    known: "Mapping[str, Contract]" = field(default_factory=dict, compare=False, repr=False)

    @property
    def claims(self) -> tuple[Falsifier, ...]:
        """Return the falsifiers, then the harnesses."""
        return (*self.falsifiers, *self.harnesses)

    @property
    def judges(self) -> "tuple[Contract, ...]":
        """Return the other contracts whose falsifiers judge the mutation scope; ids that do not exist are ignored."""
        return tuple(self.known[id_] for id_ in self.mutation_scope.judge_ids if id_ in self.known and id_ != self.id)

    def mutant(self, id: str) -> Mutant:
        """Return the declared mutant with an id. Raise `UnknownName` if there is none."""
        for mutant in self.mutants:
            if mutant.id == id:
                return mutant
        raise UnknownName(f"{self.location}: unknown mutant {id!r}")

    def run(self, name: str) -> Run:
        """Return the declared run with a name. Raise `UnknownName` if there is none."""
        for run in self.runs:
            if run.name == name:
                return run
        raise UnknownName(f"{self.location}: unknown run {name!r}")

    def not_claimed(self, target: Target) -> dict[str, str]:
        """Return the ids of falsifiers that are not tried on another subject, with the reasons and their references.

        All falsifiers are tried on a target that is not declared in `subjects`.
        """
        by_name = {subject.name: subject for subject in self.subjects}
        subject = next((subject for subject in self.subjects if subject.target == target), None)
        exceptions: list[NotClaimed] = []
        # `claims_as` may form a chain. `pop` removes visited subjects, so that a cycle ends.
        while subject is not None:
            exceptions += subject.not_claimed
            subject = by_name.pop(subject.claims_as, None)
        return {id_: f"{entry.why} ({entry.reference})" for entry in exceptions for id_ in entry.falsifiers}

    def subject_of(self, claim: Falsifier | Run) -> Target:
        """Return the subject of a claim or run: its own, or the one of the claim's run, or the contract's.

        Raises:
            UnknownName: The run does not exist.
            LookupError: There is no subject.
        """
        subject = claim.subject
        if subject is None and isinstance(claim, Falsifier) and claim.run is not None:
            subject = self.run(claim.run).subject
        subject = subject or self.subject
        if subject is None:
            raise LookupError(f"{claim.location}: no subject")
        return subject
