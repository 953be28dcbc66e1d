"""The figures of one contract's verdict that more than one format shows."""

from collections.abc import Sequence

from pv.contract.finding import Severity
from pv.engines.kinds import kind_of
from pv.results.outcome import Outcome, Result
from pv.results.verdict import ContractVerdict

HELD = (Outcome.HELD, Outcome.PROVED)


def count(number: int, noun: str) -> str:
    """Return the number with its noun: `1 error`, `2 errors`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unbound(verdict: ContractVerdict) -> str:
    falsifiers = sum(not kind_of(result.falsifier).bound for result in verdict.attacks)
    harnesses = sum(not kind_of(result.falsifier).bound for result in verdict.proofs)
    text = f"{falsifiers} of {len(verdict.contract.falsifiers)} falsifiers"
    return f"{text}, {harnesses} of {len(verdict.contract.harnesses)} harnesses" if harnesses else text


def selected(verdict: ContractVerdict) -> int:
    return len({result.falsifier.id for result in verdict.results})


def devices(verdict: ContractVerdict) -> list[str]:
    return sorted({result.device for result in verdict.attacks})


def claimed_on(verdict: ContractVerdict, device: str) -> list[Result]:
    on_device = (result for result in verdict.attacks if result.device == device)
    return [result for result in on_device if result.outcome is not Outcome.NOT_CLAIMED]


def held(results: Sequence[Result]) -> int:
    return sum(result.outcome in HELD for result in results)


def proved(results: Sequence[Result]) -> int:
    return sum(result.outcome is Outcome.PROVED for result in results)


def lint_errors(verdict: ContractVerdict) -> int:
    """Return how many findings fail the contract."""
    return sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)


def ran(verdict: ContractVerdict) -> bool:
    """Return whether anything of the contract was tried now."""
    return any(result.trial is not None for result in verdict.results)
