"""Rules about names inside contracts: ids are unique, references are declared, and declarations are used.

They cover claims, gates and waivers, and the few rules about contracts in the existing format.
"""

from collections.abc import Iterator

from pv.contract import sharing
from pv.contract.claims import Falsifier
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error, notice
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule

OTHER_CLAUSES = ("subject", "qa_gate", "mutation_scope")
RENAME = "ids are unique across all contracts: rename one"


@rule(Code("PV101", "a duplicate id in a contract"))
def unique_ids(context: Context) -> Iterator[Finding]:
    """Check that no two claims, obligations, mutants, runs and subjects of a contract have the same id."""
    contract = context.contract
    seen: dict[str, Location] = {}
    entries = [
        *((f.id, f.location) for f in contract.claims),
        *((o.id, o.location) for o in contract.obligations),
        *((m.id, m.location) for m in contract.mutants),
        *((r.name, r.location) for r in contract.runs),
        *((s.name, s.location) for s in contract.subjects),
    ]
    for id_, location in entries:
        if id_ in seen:
            yield error("PV101", location, duplicate("id", id_, seen[id_]), "rename one")
        seen.setdefault(id_, location)


def duplicate(noun: str, name: str, first: Location) -> str:
    """Return the message for a name that is defined twice in one file."""
    return f"duplicate {noun} {name!r} (first defined at line {first.line})"


@rule(Code("PV102", "an id that another contract uses"))
def unique_across(context: Context) -> Iterator[Finding]:
    """Check that ids are unique across all contracts: they name evidence files and arguments of commands."""
    contract = context.contract
    for earlier in context.contracts:
        if earlier is contract:
            return  # only earlier contracts are compared: a duplicate is reported once, at the later of the two
        if not earlier.strict:
            continue
        if earlier.id == contract.id:
            yield error("PV102", contract.location, _duplicate_id("contract", contract.id, earlier.location), RENAME)
        first = {f.id: f.location for f in earlier.claims} | {m.id: m.location for m in earlier.mutants}
        entries: list[tuple[str, Falsifier | Mutant]] = [("falsifier", claim) for claim in contract.claims]
        entries += [("mutant", mutant) for mutant in contract.mutants]
        for noun, entry in entries:
            if entry.id in first:
                yield error("PV102", entry.location, _duplicate_id(noun, entry.id, first[entry.id]), RENAME)


def _duplicate_id(noun: str, id_: str, location: Location) -> str:
    return f"duplicate {noun} id {id_!r} (first defined at {location})"


@rule(
    Code("PV130", "a falsifier claims to kill a mutant that is not declared"),
    Code("PV132", "a mutant names a claim that the contract's suite does not have"),
    Code("PV140", "a falsifier names an obligation that is not declared"),
    Code("PV142", "a falsifier names an equation that is not declared"),
    Code("PV143", "a falsifier names a run that is not declared"),
)
def references(context: Context) -> Iterator[Finding]:
    """Check that the obligation, equation, run and mutants of every claim are declared."""
    contract = context.contract
    declared = {
        "obligation": ("PV140", [o.id for o in contract.obligations]),
        "equation": ("PV142", [e.name for e in contract.equations]),
        "run": ("PV143", [r.name for r in contract.runs]),
    }
    mutants = [m.id for m in contract.mutants]
    # The keys are attributes of a claim of the same name.
    for claim in contract.claims:
        for key, (code, names) in declared.items():
            name = getattr(claim, key)
            if name is not None and name not in names:
                yield error(code, claim.at(key), f"{claim.id}: unknown {key} {name!r}", did_you_mean(name, names))
        for index, mutant in enumerate(claim.kills):
            if mutant not in mutants:
                message = f"{claim.id}: unknown mutant {mutant!r}"
                yield error("PV130", claim.at(f"kills/{index}"), message, did_you_mean(mutant, mutants))
    yield from _unknown_killers(contract)


def _unknown_killers(contract: Contract) -> Iterator[Finding]:
    # The claims of a suite have the id of the contract before theirs (`pv.contract.suites.join_suite`).
    prefix = f"{contract.id}."
    ids = [claim.id.removeprefix(prefix) for claim in contract.falsifiers if claim.id.startswith(prefix)]
    for mutant in contract.mutants:
        for name in mutant.killed_by:
            if name not in ids:
                hint = did_you_mean(name, ids) if ids else "the contract names no suite, and no `claims` of a run"
                yield error("PV132", mutant.location, f"{mutant.id}: unknown claim {name!r} of a suite", hint)


@rule(
    Code("PV131", "a mutant that no falsifier claims to kill", Stops.NOTHING),
    Code("PV141", "an obligation that no falsifier checks", Stops.NOTHING),
    Code("PV144", "a run that no falsifier reads", Stops.NOTHING),
    Code("PV145", "a run without `small` arguments, with which its falsifiers' mutants are run", Stops.NOTHING),
    Code("PV160", "a contract without falsifiers: nothing could be measured"),
)
def unused(context: Context) -> Iterator[Finding]:
    """Check that every obligation is checked, every run is read and every mutant is claimed."""
    contract = context.contract
    # Without claims everything is unused: one finding says it.
    if not contract.claims:
        yield error("PV160", contract.location, "the contract has no falsifiers", "nothing could be measured")
        return
    checked = {f.obligation for f in contract.claims}
    claimed = {mutant for f in contract.claims for mutant in f.kills}
    for obligation in contract.obligations:
        if obligation.id not in checked:
            hint = f"give a falsifier `obligation: {obligation.id}`"
            yield error("PV141", obligation.location, f"no falsifier checks the obligation {obligation.id!r}", hint)
    yield from _unused_runs(context)
    for mutant in contract.mutants:
        if mutant.id not in claimed:
            message = f"no falsifier claims to kill {mutant.id!r}"
            yield error("PV131", mutant.location, message, "list it in the `kills` of one")


def _unused_runs(context: Context) -> Iterator[Finding]:
    read = {f.run for f in context.contract.claims}
    for run in context.contract.runs:
        if run.name not in read:
            message, hint = f"no falsifier reads the run {run.name!r}", f"give a falsifier `run: {run.name}`"
            yield error("PV144", run.location, message, hint)
        elif run.small is None:
            message, hint = f"the run {run.name!r} has no `small` arguments", "mutants are run with these"
            yield error("PV145", run.location, message, hint)


@rule(
    Code("PV150", "the gate requires a falsifier, harness or mutant that is not declared", Stops.NOTHING),
    Code("PV151", "the gate requires fresh CUDA evidence, and no falsifier runs on CUDA", Stops.NOTHING),
)
def gate(context: Context) -> Iterator[Finding]:
    """Check that the gate requires declared ids, and recorded results of devices that falsifiers run on."""
    gate = context.contract.gate
    location = gate.location or context.contract.location
    declared = {
        "falsifier": (gate.falsifiers, [f.id for f in context.contract.falsifiers]),
        "harness": (gate.harnesses, [h.id for h in context.contract.harnesses]),
        "mutant": (gate.mutants, [m.id for m in context.contract.mutants]),
    }
    for kind, (required, names) in declared.items():
        for name in sorted((required or frozenset()) - set(names)):
            yield error("PV150", location, f"unknown {kind} {name!r} in the gate", did_you_mean(name, names))
    if "cuda" in gate.fresh and not any("cuda" in f.devices for f in context.contract.falsifiers):
        message = "the gate requires fresh CUDA evidence, and no falsifier has `cuda` in `devices`"
        yield error("PV151", location, message, "give one `devices: [cpu, cuda]`, or remove `cuda: fresh`")


@rule(
    Code("PV152", "a waiver of a clause that does not exist, or of a removed one that exists", Stops.NOTHING),
    Code("PV153", "a waiver that expires on no day of the calendar", Stops.NOTHING),
)
def waivers(context: Context) -> Iterator[Finding]:
    """Check the clauses and dates of waivers."""
    # Whether a waiver has expired is no rule of lint, which gives the same findings on every day: the comparison with a
    # base says so.
    names = _clauses(context.contract)
    for waiver in context.contract.waivers:
        if waiver.weaker and waiver.weaker not in names:
            hint = f"use `removed` for a clause that is gone; {did_you_mean(waiver.weaker, names)}"
            yield error("PV152", waiver.location, f"unknown clause {waiver.weaker!r} in a waiver", hint)
        if waiver.removed and waiver.removed in names:
            message = f"clause {waiver.removed!r} of a waiver is not removed: the contract still has it"
            yield error("PV152", waiver.location, message, "use `weaker` for a clause that asks for less")
        if waiver.last_day is None:
            message = f"invalid date {waiver.expires!r} for 'expires'"
            yield error("PV153", waiver.location, message, "write a day of the calendar as YYYY-MM-DD")


def _clauses(contract: Contract) -> list[str]:
    """Return the names of the clauses that a waiver can name."""
    names = [claim.id for claim in contract.claims] + [mutant.id for mutant in contract.mutants]
    names += [run.name for run in contract.runs] + [subject.name for subject in contract.subjects]
    return [*names, *sharing.executable(contract), *OTHER_CLAUSES]


@rule(Code("PV202", "existing format: a falsifier in prose, which pv cannot run", Stops.NOTHING), existing=True)
def unbound_falsifiers(context: Context) -> Iterator[Finding]:
    """Note every claim of the existing format: its test is prose.

    Rules about this format give notices only, since the authors of such a file did not choose these rules.
    """
    for falsifier in context.contract.claims:
        message = f"{falsifier.id!r} is unbound: its test is prose, so it cannot be run"
        yield notice("PV202", falsifier.location, message, "a `schema: pv/1` contract can bind it to code")


@rule(Code("PV203", "existing format: a duplicate id", Stops.NOTHING), existing=True)
def repeated_ids(context: Context) -> Iterator[Finding]:
    """Note duplicate ids in a contract of the existing format."""
    contract = context.contract
    for kind, entries in (("claim", contract.claims), ("obligation", contract.obligations)):
        first: dict[str, Location] = {}
        for entry in entries:
            if entry.id in first:
                message = duplicate(f"{kind} id", entry.id, first[entry.id])
                yield notice("PV203", entry.location, message, "rename one")
            first.setdefault(entry.id, entry.location)
