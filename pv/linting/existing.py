"""What is worth knowing of a contract in the existing format. Notices only: its authors never agreed to our rules."""

from collections.abc import Iterator

from pv.linting.context import Context, notice
from pv.model import Finding


def unbound_falsifiers(context: Context) -> Iterator[Finding]:
    for falsifier in context.contract.claims:
        message = f"{falsifier.id!r} is unbound: its test is prose, so it cannot be run"
        yield notice("PV202", falsifier.where, message, "a `schema: pv/1` contract can bind it to code")


def repeated_ids(context: Context) -> Iterator[Finding]:
    for kind, entries in (("falsifier", context.contract.falsifiers), ("obligation", context.contract.obligations)):
        first: dict[str, int] = {}
        for entry in entries:
            if entry.id in first:
                message = f"the {kind} id {entry.id!r} stands twice; first at line {first[entry.id]}"
                yield notice("PV203", entry.where, message, "rename one")
            first.setdefault(entry.id, entry.where.line)
