"""Lint rules: a rule is a check of one contract, with the codes of the findings that it can yield.

An engine defines the rules about its own claims. `pv.linting` defines all other rules, and collects all rules.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

from pv.contract.codes import Code
from pv.contract.finding import Finding, Location, error
from pv.contract.model import Contract, Target
from pv.contract.wording import did_you_mean
from pv.source.imports import Imports
from pv.source.project import Project
from pv.source.resolve import Unbound


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The contract to check, and the other contracts that are linted together with it.

    Attributes:
        project: The project of the contracts.
        contract: The contract to check.
        contracts: All contracts, in the order of files.
        imports: The imports of the files of the project.
        subject: The subject that replaces the subject of the contract; None to keep the latter.
    """

    project: Project
    contract: Contract
    contracts: tuple[Contract, ...]
    imports: Imports
    subject: Target | None = None


Check = Callable[[Context], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check and its codes.

    Attributes:
        check: The check.
        codes: The codes of findings of the check, without codes that another rule declares.
        existing: Whether the rule checks contracts without `schema`, whose falsifiers are prose; False for all other
            contracts.
    """

    check: Check
    codes: tuple[Code, ...]
    existing: bool


def rule(*codes: Code, existing: bool = False) -> Callable[[Check], Rule]:
    """Return a decorator that turns a check into a rule; see `Rule` for the arguments."""
    return lambda check: Rule(check=check, codes=codes, existing=existing)


def rules_of(*modules: ModuleType) -> tuple[Rule, ...]:
    """Return the rules of modules, in the order in which they are defined there."""
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Rule))


def unbound_finding(codes: dict[str, str], location: Location, problem: Unbound, name: str) -> Finding:
    """Return the finding for a name that cannot be resolved.

    Args:
        codes: The code of the finding by kind of problem; `codes["name"]` is the code for all other kinds.
        location: The location of the name.
        problem: The problem.
        name: The name, for which the hint suggests a similar name.
    """
    hint = did_you_mean(name, problem.known) if problem.known else ""
    return error(codes.get(problem.kind, codes["name"]), location, str(problem), hint)
