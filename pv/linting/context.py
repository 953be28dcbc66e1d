"""What every rule gets, and how it says what it found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pv.binding import Unbound
from pv.loading.check import did_you_mean
from pv.model import Contract, Finding, Severity, Target, Where
from pv.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One contract among all that are linted together. `subject` stands in for the contract's own."""

    project: Project
    contract: Contract
    contracts: tuple[Contract, ...]
    subject: Target | None = None


Rule = Callable[[Context], Iterator[Finding]]


def error(code: str, where: Where, message: str, hint: str = "") -> Finding:
    return Finding(code=code, severity=Severity.ERROR, where=where, message=message, hint=hint)


def notice(code: str, where: Where, message: str, hint: str = "") -> Finding:
    return Finding(code=code, severity=Severity.NOTICE, where=where, message=message, hint=hint)


def unbound(codes: dict[str, str], where: Where, problem: Unbound, name: str) -> Finding:
    """The finding for a name that leads nowhere; `codes` gives the code for each kind of dead end."""
    hint = did_you_mean(name, list(problem.known)) if problem.known else ""
    return error(codes.get(problem.kind, codes["name"]), where, str(problem), hint)
