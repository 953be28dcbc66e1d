"""Rules about names inside contracts: ids are unique, and every reference leads somewhere."""

from collections.abc import Iterator

from pv.linting.context import Context, error
from pv.loading.check import did_you_mean
from pv.model import Falsifier, Finding, Mutant, Where

RENAME = "ids are unique over all contracts: rename one"


def unique_ids(context: Context) -> Iterator[Finding]:
    contract = context.contract
    seen: dict[str, Where] = {}
    entries = [
        *((f.id, f.where) for f in contract.claims),
        *((o.id, o.where) for o in contract.obligations),
        *((m.id, m.where) for m in contract.mutants),
        *((r.name, r.where) for r in contract.runs),
        *((s.name, s.where) for s in contract.subjects),
    ]
    for id_, where in entries:
        if id_ in seen:
            yield error("PV101", where, f"the id {id_!r} stands twice; first at line {seen[id_].line}", "rename one")
        seen.setdefault(id_, where)


def unique_across(context: Context) -> Iterator[Finding]:
    """Ids of contracts, falsifiers and mutants name evidence and commands, so they are unique over all contracts."""
    mine = context.contract
    for other in context.contracts:
        if other is mine:
            return  # reported once, at the later of the two
        if not other.strict:
            continue
        if other.id == mine.id:
            yield error("PV102", mine.where, f"the contract id {mine.id!r} is taken by {other.where}", RENAME)
        taken = {f.id: f.where for f in other.claims} | {m.id: m.where for m in other.mutants}
        claims: list[Falsifier | Mutant] = [*mine.claims, *mine.mutants]
        for claim in claims:
            if claim.id in taken:
                kind = "falsifier" if isinstance(claim, Falsifier) else "mutant"
                yield error("PV102", claim.where, f"the {kind} id {claim.id!r} is taken by {taken[claim.id]}", RENAME)


def references(context: Context) -> Iterator[Finding]:
    contract = context.contract
    known = {
        "obligation": ("PV140", [o.id for o in contract.obligations]),
        "equation": ("PV142", [e.name for e in contract.equations]),
        "run": ("PV143", [r.name for r in contract.runs]),
    }
    for falsifier in contract.claims:
        for key, (code, names) in known.items():
            name = getattr(falsifier, key)
            if name is not None and name not in names:
                message = f"{falsifier.id}: there is no {key} {name!r}"
                yield error(code, falsifier.at(key), message, did_you_mean(name, names))
        mutants = [m.id for m in contract.mutants]
        for index, mutant in enumerate(falsifier.kills):
            if mutant not in mutants:
                message = f"{falsifier.id}: there is no mutant {mutant!r}"
                yield error("PV130", falsifier.at(f"kills/{index}"), message, did_you_mean(mutant, mutants))


def nothing_idle(context: Context) -> Iterator[Finding]:
    """Every obligation is attacked, every run read, every mutant claimed."""
    contract = context.contract
    if not contract.claims:
        yield error("PV160", contract.where, "the contract has no falsifiers", "nothing could be measured")
        return
    attacked = {f.obligation for f in contract.claims}
    read = {f.run for f in contract.claims}
    claimed = {mutant for f in contract.claims for mutant in f.kills}
    for obligation in contract.obligations:
        if obligation.id not in attacked:
            hint = "give a falsifier `obligation: " + obligation.id + "`"
            yield error("PV141", obligation.where, f"no falsifier attacks the obligation {obligation.id!r}", hint)
    for run in contract.runs:
        if run.name not in read:
            yield error("PV144", run.where, f"no falsifier reads the run {run.name!r}", f"`run: {run.name}` does")
        elif run.small is None:
            yield error(
                "PV145", run.where, f"the run {run.name!r} has no `small` arguments", "mutants are judged there"
            )
    for mutant in contract.mutants:
        if mutant.id not in claimed:
            yield error("PV131", mutant.where, f"no falsifier claims to kill {mutant.id!r}", "list it in its `kills`")


def gate(context: Context) -> Iterator[Finding]:
    gate = context.contract.gate
    where = gate.where or context.contract.where
    known = {
        "falsifier": (gate.falsifiers, [f.id for f in context.contract.falsifiers]),
        "harness": (gate.harnesses, [h.id for h in context.contract.harnesses]),
        "mutant": (gate.mutants, [m.id for m in context.contract.mutants]),
    }
    for kind, (required, names) in known.items():
        for name in sorted((required or frozenset()) - set(names)):
            yield error("PV150", where, f"the gate requires the {kind} {name!r}", did_you_mean(name, names))
    if "cuda" in gate.devices and not any("cuda" in f.devices for f in context.contract.falsifiers):
        message = "the gate requires fresh CUDA evidence, and no falsifier has `cuda` in `devices`"
        yield error("PV151", where, message, "give one `devices: [cpu, cuda]`, or require less")
