"""Rules about the code that a contract lets stand in its subject's place."""

from collections.abc import Iterable, Iterator

from pv.linting.bindings import subject_exists
from pv.linting.context import Context, error
from pv.loading.check import did_you_mean
from pv.model import Finding, OtherSubject


def others(context: Context) -> Iterator[Finding]:
    before: dict[str, OtherSubject] = {}
    for other in context.contract.subjects:
        yield from subject_exists(context, other.where, str(other.target))
        yield from _claims(context, other, list(before))
        yield from _same(other, before.values())
        before[other.name] = other


def _same(other: OtherSubject, before: Iterable[OtherSubject]) -> Iterator[Finding]:
    for earlier in before:
        if earlier.target == other.target:
            message = f"{other.name}: {other.target} is the target of {earlier.name}, whose claims would be its own"
            yield error("PV197", other.where, message, "leave one of them out, or give it a function of its own")
            return


def _claims(context: Context, other: OtherSubject, before: list[str]) -> Iterator[Finding]:
    if other.claims_as and other.claims_as not in before:
        message = f"{other.name}: no subject {other.claims_as!r} is declared before it"
        yield error("PV196", other.where, message, did_you_mean(other.claims_as, before))
    known = [falsifier.id for falsifier in context.contract.falsifiers]
    for part in other.not_claimed:
        for name, where in zip(part.falsifiers, part.places, strict=True):
            if name not in known:
                yield error("PV195", where, f"{other.name}: there is no falsifier {name!r}", did_you_mean(name, known))
