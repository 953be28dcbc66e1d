"""A contract as its author wrote it: frozen data, read from YAML, with the location of every claim."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NoReturn

from pv.contract.claims import Equation, Falsifier, Harness, Obligation, Run
from pv.contract.finding import Location
from pv.contract.mutants import NO_SCOPE, Equivalent, Mutant, MutationScope, Name
from pv.contract.names import Target, UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class NotClaimed:
    """Falsifiers whose claims another subject does not make, why, and a reference to its own documentation."""

    falsifiers: tuple[str, ...]
    why: str
    reference: str
    places: tuple[Location, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSubject:
    """Code that can replace the subject; `package` is the distribution that it needs, "" for none.

    `claims_as` names a subject declared before it, which claims neither more nor less.
    """

    name: str
    target: Target
    location: Location
    package: str = ""
    claims_as: str = ""
    not_claimed: tuple[NotClaimed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The requirements of a contract. `None` means all.

    devices: the devices on which it makes claims, () for those that its falsifiers name. fresh: the devices whose
    recorded results are required too. mutation_score: the least recorded share of generated mutants that are killed.
    equivalents: the largest share of them that may be declared equivalent.
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

    weaker: the clause that asks for less than its base did; removed: the one that is gone. One of them is "".
    """

    owner: str
    reason: str
    expires: str
    location: Location
    weaker: str = ""
    removed: str = ""

    @property
    def name(self) -> str:
        return self.weaker or self.removed

    @property
    def last_day(self) -> date | None:
        """Return the last day on which it counts; None if `expires` is not a date."""
        try:
            return date.fromisoformat(self.expires)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One YAML file. `strict` is False for the field's existing format, whose falsifiers are prose.

    suite: the conformance suite whose claims come before its own. known: the contracts of the project by id, this one
    included, among which it names others.
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
        """Return everything that can be tried: the falsifiers, then the harnesses."""
        return (*self.falsifiers, *self.harnesses)

    @property
    def judges(self) -> "tuple[Contract, ...]":
        """Return the other contracts whose falsifiers judge its mutation scope, without those that do not exist."""
        return tuple(self.known[id_] for id_ in self.mutation_scope.judge_ids if id_ in self.known and id_ != self.id)

    def mutant(self, id: str) -> Mutant:
        """Return a declared mutant. Raise `UnknownName` if there is none of that id."""
        found = {mutant.id: mutant for mutant in self.mutants}
        return found[id] if id in found else _unknown("mutant", id, self)

    def run(self, name: str) -> Run:
        """Return a declared run. Raise `UnknownName` if there is none of that name."""
        found = {run.name: run for run in self.runs}
        return found[name] if name in found else _unknown("run", name, self)

    def not_claimed(self, target: Target) -> dict[str, str]:
        """Return why `target`, if it is declared as another subject, is not tried, by the id of the falsifier."""
        by_name = {other.name: other for other in self.subjects}
        named = next((other for other in self.subjects if other.target == target), None)
        found: list[NotClaimed] = []
        while named is not None:
            found += named.not_claimed
            named = by_name.pop(named.claims_as, None)
        return {id_: f"{part.why} ({part.reference})" for part in found for id_ in part.falsifiers}

    def subject_of(self, claim: Falsifier | Run) -> Target:
        """Return the code that `claim` attacks. Raise `UnknownName` for an unknown run, LookupError if no subject."""
        own = claim.subject
        if own is None and isinstance(claim, Falsifier) and claim.run is not None:
            own = self.run(claim.run).subject
        subject = own or self.subject
        if subject is None:
            raise LookupError(f"{claim.location}: no subject")
        return subject


def _unknown(noun: str, name: str, contract: Contract) -> NoReturn:
    raise UnknownName(f"{contract.location}: unknown {noun} {name!r}")
