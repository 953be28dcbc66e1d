"""Rules about waivers: each names a clause that is there, or one that is gone, and a day."""

from collections.abc import Iterator

from pv.contract import sharing
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error
from pv.contract.model import Contract
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule

KEYS = ("subject", "qa_gate", "mutation_scope")


@rule(
    Code("PV152", "a waiver of a clause that does not exist, or of a removed one that exists", Stops.NOTHING),
    Code("PV153", "a waiver that expires on no day of the calendar", Stops.NOTHING),
)
def waivers(context: Context) -> Iterator[Finding]:
    """Check the names and dates of waivers. Whether one has expired is the comparison's to say, which has a day."""
    names = _names(context.contract)
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


def _names(contract: Contract) -> list[str]:
    """Return what a weakening of the contract can be called."""
    found = [claim.id for claim in contract.claims] + [mutant.id for mutant in contract.mutants]
    found += [run.name for run in contract.runs] + [other.name for other in contract.subjects]
    return [*found, *sharing.executable(contract), *KEYS]
