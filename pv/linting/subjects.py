"""Rules about the other subjects of a contract, which can replace its own."""

from collections.abc import Iterable, Iterator

from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error
from pv.contract.model import OtherSubject
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule
from pv.linting.bindings import subject_exists


@rule(
    Code("PV195", "`not_claimed` of another subject names a falsifier that is not declared", Stops.NOTHING),
    Code("PV196", "`claims_as` of another subject names a subject that is not declared before it", Stops.NOTHING),
    Code("PV197", "two other subjects with the same target", Stops.NOTHING),
)
def others(context: Context) -> Iterator[Finding]:
    before: dict[str, OtherSubject] = {}
    for other in context.contract.subjects:
        yield from subject_exists(context, other.location, str(other.target))
        yield from _claims(context, other, list(before))
        yield from _same(other, before.values())
        before[other.name] = other


def _same(other: OtherSubject, before: Iterable[OtherSubject]) -> Iterator[Finding]:
    for earlier in before:
        if earlier.target == other.target:
            message = f"{other.name}: duplicate target {other.target} (first used by {earlier.name})"
            yield error("PV197", other.location, message, "remove one of them, or give it a function of its own")
            return


def _claims(context: Context, other: OtherSubject, before: list[str]) -> Iterator[Finding]:
    if other.claims_as and other.claims_as not in before:
        message = f"{other.name}: unknown subject {other.claims_as!r} in `claims_as`; it must be declared before"
        yield error("PV196", other.location, message, did_you_mean(other.claims_as, before))
    known = [falsifier.id for falsifier in context.contract.falsifiers]
    for part in other.not_claimed:
        for name, location in zip(part.falsifiers, part.places, strict=True):
            if name not in known:
                yield error("PV195", location, f"{other.name}: unknown falsifier {name!r}", did_you_mean(name, known))
