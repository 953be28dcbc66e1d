"""Rules about a contract in the existing format. They give notices only: its authors did not choose these rules."""

from collections.abc import Iterator

from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, notice
from pv.engines.rule import Context, rule
from pv.linting.references import duplicate


@rule(Code("PV202", "existing format: a falsifier in prose, which pv cannot run", Stops.NOTHING), existing=True)
def unbound_falsifiers(context: Context) -> Iterator[Finding]:
    for falsifier in context.contract.claims:
        message = f"{falsifier.id!r} is unbound: its test is prose, so it cannot be run"
        yield notice("PV202", falsifier.location, message, "a `schema: pv/1` contract can bind it to code")


@rule(Code("PV203", "existing format: a duplicate id", Stops.NOTHING), existing=True)
def repeated_ids(context: Context) -> Iterator[Finding]:
    contract = context.contract
    for kind, entries in (("claim", contract.claims), ("obligation", contract.obligations)):
        first: dict[str, Location] = {}
        for entry in entries:
            if entry.id in first:
                message = duplicate(f"{kind} id", entry.id, first[entry.id])
                yield notice("PV203", entry.location, message, "rename one")
            first.setdefault(entry.id, entry.location)
