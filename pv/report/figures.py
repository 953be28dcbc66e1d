"""Figures of a contract's verdict that several formats show."""

from collections.abc import Iterator, Sequence
from typing import Any

from pv.contract.finding import Severity
from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.results.outcome import Outcome, Result
from pv.results.verdict import ContractVerdict

HELD = (Outcome.HELD, Outcome.PROVED)


def stated(verdict: ContractVerdict) -> str:
    """Return the number of claims of a contract, and how many of them were run, as text."""
    falsifiers, harnesses = (len(claims) for claims in (verdict.contract.falsifiers, verdict.contract.harnesses))
    text = count(falsifiers, "falsifier") + (
        f" and {harnesses} harness{'' if harnesses == 1 else 'es'}" if harnesses else ""
    )
    return f"{text} stated, {sum(result.trial is not None for result in verdict.results)} run"


def selected(verdict: ContractVerdict) -> int:
    return len({result.falsifier.id for result in verdict.results})


def is_of_script(verdict: ContractVerdict) -> bool:
    """Return whether all claims are about one run of a script, as in `pv check -- COMMAND`."""
    return bool(verdict.contract.claims) and all(claim.is_of_script for claim in verdict.contract.claims)


def devices(verdict: ContractVerdict) -> list[str]:
    return sorted({result.device for result in verdict.attacks})


def claimed_on(verdict: ContractVerdict, device: str) -> list[Result]:
    on_device = (result for result in verdict.attacks if result.device == device)
    return [result for result in on_device if result.outcome is not Outcome.NOT_CLAIMED]


def count_held(results: Sequence[Result]) -> int:
    return sum(result.outcome in HELD for result in results)


def proved(verdict: ContractVerdict) -> tuple[int, str]:
    """Return the number of proofs that were found, and their outcome: "held" for a replayed example."""
    outcomes = [result.outcome.value for result in verdict.proofs if result.outcome in HELD]
    return len(outcomes), Outcome.HELD.value if Outcome.HELD.value in outcomes else Outcome.PROVED.value


def lint_errors(verdict: ContractVerdict) -> int:
    """Return the number of findings that fail the contract."""
    return sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)


def ran(verdict: ContractVerdict) -> bool:
    """Return whether any claim of the contract was tried now."""
    return any(result.trial is not None for result in verdict.results)


def set_tolerances(verdict: ContractVerdict) -> Iterator[dict[str, Any]]:
    """Yield each tolerance that the contract sets for an equation that was tried."""
    equations = {
        result.falsifier.equation for result in verdict.results if engine_of(result.falsifier).name == "equation"
    }
    for equation in verdict.contract.equations:
        tolerance = equation.executable.get("tolerance")
        if tolerance is not None and equation.name in equations:
            yield {"equation": equation.name, **tolerance}
