"""What is worth knowing of a contract in the existing format. Notices only: its authors never agreed to our rules."""

from collections.abc import Iterator

from pv.lint.context import Context, notice
from pv.model import Finding


def unbound_falsifiers(context: Context) -> Iterator[Finding]:
    seen: set[str] = set()
    for falsifier in context.contract.falsifiers:
        if falsifier.id in seen:
            yield notice("PV203", falsifier.where, f"the falsifier id {falsifier.id!r} stands twice")
        seen.add(falsifier.id)
        message = f"{falsifier.id} is unbound: its test is prose, so it cannot be run"
        yield notice("PV202", falsifier.where, message)
