"""Rules about names inside contracts: ids are unique, and every reference is declared."""

from collections.abc import Iterator

from pv.contract.claims import Falsifier
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule

RENAME = "ids are unique across all contracts: rename one"


@rule(Code("PV101", "a duplicate id in a contract"))
def unique_ids(context: Context) -> Iterator[Finding]:
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
    mine = context.contract
    for other in context.contracts:
        if other is mine:
            return  # reported once, at the later of the two
        if not other.strict:
            continue
        if other.id == mine.id:
            yield error("PV102", mine.location, _duplicate_id("contract", mine.id, other.location), RENAME)
        taken = {f.id: f.location for f in other.claims} | {m.id: m.location for m in other.mutants}
        entries: list[tuple[str, Falsifier | Mutant]] = [("falsifier", claim) for claim in mine.claims]
        entries += [("mutant", mutant) for mutant in mine.mutants]
        for noun, entry in entries:
            if entry.id in taken:
                yield error("PV102", entry.location, _duplicate_id(noun, entry.id, taken[entry.id]), RENAME)


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
    contract = context.contract
    known = {
        "obligation": ("PV140", [o.id for o in contract.obligations]),
        "equation": ("PV142", [e.name for e in contract.equations]),
        "run": ("PV143", [r.name for r in contract.runs]),
    }
    mutants = [m.id for m in contract.mutants]
    for claim in contract.claims:
        for key, (code, names) in known.items():
            name = getattr(claim, key)
            if name is not None and name not in names:
                yield error(code, claim.at(key), f"{claim.id}: unknown {key} {name!r}", did_you_mean(name, names))
        for index, mutant in enumerate(claim.kills):
            if mutant not in mutants:
                message = f"{claim.id}: unknown mutant {mutant!r}"
                yield error("PV130", claim.at(f"kills/{index}"), message, did_you_mean(mutant, mutants))
    yield from _unknown_killers(contract)


def _unknown_killers(contract: Contract) -> Iterator[Finding]:
    start = f"{contract.id}."
    known = [claim.id.removeprefix(start) for claim in contract.falsifiers if claim.id.startswith(start)]
    for mutant in contract.mutants:
        for name in mutant.killed_by:
            if name not in known:
                hint = did_you_mean(name, known) if known else "the contract names no suite, and no `claims` of a run"
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
    gate = context.contract.gate
    location = gate.location or context.contract.location
    known = {
        "falsifier": (gate.falsifiers, [f.id for f in context.contract.falsifiers]),
        "harness": (gate.harnesses, [h.id for h in context.contract.harnesses]),
        "mutant": (gate.mutants, [m.id for m in context.contract.mutants]),
    }
    for kind, (required, names) in known.items():
        for name in sorted((required or frozenset()) - set(names)):
            yield error("PV150", location, f"unknown {kind} {name!r} in the gate", did_you_mean(name, names))
    if "cuda" in gate.fresh and not any("cuda" in f.devices for f in context.contract.falsifiers):
        message = "the gate requires fresh CUDA evidence, and no falsifier has `cuda` in `devices`"
        yield error("PV151", location, message, "give one `devices: [cpu, cuda]`, or remove `cuda: fresh`")
