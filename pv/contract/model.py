"""The dataclass `Contract`, its gate, its waivers and its other subjects, as read from YAML, with locations."""

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
    """Falsifiers whose claims another subject does not make.

    why: the reason. reference: where the documentation of that subject says so. places: the location of every id.
    """

    falsifiers: tuple[str, ...]
    why: str
    reference: str
    places: tuple[Location, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSubject:
    """Code that can replace the subject.

    package: the distribution that it needs, "" for none. claims_as: a subject declared before it that makes the same
    claims, "" for none.
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

    falsifiers, mutants, harnesses: the required ids, None for all. devices: the devices on which the contract makes
    claims, () for the devices of its falsifiers. fresh: the devices whose recorded results are required too.
    mutation_score: the minimum recorded share of generated mutants that are killed, None for no minimum. equivalents:
    the maximum share of generated mutants that may be declared equivalent.
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

    weaker: the clause that asks for less than in the base; removed: the clause that was removed. One of them is "".
    """

    owner: str
    reason: str
    expires: str
    location: Location
    weaker: str = ""
    removed: str = ""

    @property
    def name(self) -> str:
        """Return the clause."""
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

    strict: False for the field's existing format, whose falsifiers are prose. suite: the conformance suite whose claims
    precede the contract's. known: all contracts of the project by id, to look up the ids in `use` and `judges`.
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
        """Return the declared mutant of an id. Raise `UnknownName` if there is none."""
        by_id = {mutant.id: mutant for mutant in self.mutants}
        return by_id[id] if id in by_id else _raise_unknown("mutant", id, self)

    def run(self, name: str) -> Run:
        """Return the declared run of a name. Raise `UnknownName` if there is none."""
        by_name = {run.name: run for run in self.runs}
        return by_name[name] if name in by_name else _raise_unknown("run", name, self)

    def not_claimed(self, target: Target) -> dict[str, str]:
        """Return the falsifiers that are not tried on another subject: the reason with its reference, by id.

        A target that is not declared as another subject is tried by all falsifiers.
        """
        by_name = {subject.name: subject for subject in self.subjects}
        subject = next((subject for subject in self.subjects if subject.target == target), None)
        exceptions: list[NotClaimed] = []
        # `claims_as` may form a chain; `pop` ends it where a subject would come up a second time.
        while subject is not None:
            exceptions += subject.not_claimed
            subject = by_name.pop(subject.claims_as, None)
        return {id_: f"{entry.why} ({entry.reference})" for entry in exceptions for id_ in entry.falsifiers}

    def subject_of(self, claim: Falsifier | Run) -> Target:
        """Return the subject of a claim or run: its own, else that of the run that it reads, else the contract's.

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


def _raise_unknown(noun: str, name: str, contract: Contract) -> NoReturn:
    raise UnknownName(f"{contract.location}: unknown {noun} {name!r}")
