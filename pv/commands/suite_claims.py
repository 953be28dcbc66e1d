"""Names the claims of a suite, and the commands that show them, where a name matches none."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from pv.contract.load import load
from pv.contract.model import Contract
from pv.contract.suites import OBSERVED, suites
from pv.contract.wording import nearest


def topics(suite: Contract) -> tuple[str, ...]:
    """Return the topics of a suite, such as `GRAD` of TL-GRAD-001, in its order."""
    return tuple(dict.fromkeys(claim.id.partition("-")[2].rpartition("-")[0] for claim in suite.claims))


def with_topics(suite: Contract, patterns: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of ids, in which a topic of the suite is replaced by the pattern of its claims."""
    known = topics(suite)
    return tuple(f"*-{each.upper()}-*" if each.upper() in known else each for each in patterns)


def same_claims() -> dict[str, tuple[str, ...]]:
    """Return which claims about every job of a loop say what a claim about one run says, by the id of the latter."""
    (suite,) = load([suites()[OBSERVED]]).contracts
    return {claim.id: tuple(claim.options.get("same_as", ())) for claim in suite.falsifiers}


def hint(suite: Contract, name: str) -> str:
    """Return how to find the claims of a suite that were meant by a name that matches none."""
    near = nearest(name.upper(), [*topics(suite), *(claim.id for claim in suite.claims)])
    return f"did you mean {near!r}? `pv explain {suite.id}` shows all claims; topics: {', '.join(topics(suite))}"


def suite_hint(name: str) -> str:
    """Return which suite a name belongs to, and the command for it; "" if none has it or one that is similar."""
    for suite in (contract for path in suites().values() for contract in load([path]).contracts):
        if any(fnmatchcase(claim.id, name) for claim in suite.claims):
            option = "" if suite.id == "training-loop" else f" --suite {suite.id}"
            return f"it is of the suite {suite.id}: `pv check SUBJECT{option} --only {name!r}`"
    return ""


def similar(name: str) -> str:
    """Return the suite, or the claim or topic of one, whose name is most similar; "" if none is."""
    known: dict[str, str] = {each: f"`pv explain {each}`" for each in suites()}
    for suite in (contract for path in suites().values() for contract in load([path]).contracts):
        known |= {topic: f"`pv explain '*-{topic}-*'`" for topic in topics(suite)}
        if name.startswith(suite.claims[0].id.partition("-")[0] + "-"):
            known |= {claim.id: f"`pv explain {claim.id}`" for claim in suite.claims}
    near = name if name in known else _nearest(name, list(known))
    return known[near] if near else ""


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the most similar name; those that share its start up to the last hyphen are compared first."""
    start = name.rpartition("-")[0]
    return nearest(name, [each for each in known if start and each.startswith(start)] or known)
