"""Check contracts against each other and against the code that they name, without importing or running the code.

references  rules about the names in a contract, and the functions of its falsifiers
mutants     rules about mutants and equivalents: they apply to the code, and survive a refactoring

To add a rule:

1. Decorate its check with `pv.engines.rule.rule`, in a module of `RULES`; rules about one engine are in its folder.
2. Add a bad contract for each of its codes to tests/bad_contracts, and an explanation to pv/contract/rules.
"""

from collections.abc import Mapping, Sequence

from pv.contract.codes import EVIDENCE, LOADING, Stops
from pv.contract.finding import Finding
from pv.contract.model import Contract, Target
from pv.engines.registry import engines
from pv.engines.rule import Context, rules_of
from pv.linting import mutants, references
from pv.source.imports import Imports
from pv.source.project import Project

__all__ = ["CODES", "MUTANT_STALE", "RUNNABLE", "SCORE_STALE", "lint"]

RULES = (
    *rules_of(references, mutants),
    *(rule for engine in engines() for rule in engine.rules),
)

_CODES = sorted([*LOADING, EVIDENCE, *(code for rule in RULES for code in rule.codes)], key=lambda code: code.name)
CODES: Mapping[str, str] = {code.name: code.meaning for code in _CODES}
"""The meaning of every code of loading, of lint and of evidence files."""
MUTANT_STALE = frozenset(code.name for code in _CODES if code.stops is Stops.MUTANT)
"""The codes of errors that keep a mutant from being tried."""
SCORE_STALE = frozenset(code.name for code in _CODES if code.stops is Stops.SCORE)
"""The codes of errors that keep a mutation score from being measured."""
RUNNABLE = frozenset(code.name for code in _CODES if code.stops is not Stops.CONTRACT)
"""The codes of errors that fail a contract but do not keep its falsifiers from running."""


def lint(
    contracts: Sequence[Contract], *, project: Project, subjects: Mapping[str, Target] | None = None
) -> tuple[Finding, ...]:
    """Return the findings in well-formed contracts, in the order of files and lines.

    Args:
        contracts: The contracts, linked with each other by `pv.contract.load`.
        project: The project whose code they name.
        subjects: Subjects that replace the contracts' own, by contract id, as for `pv validate --subject`.
    """
    findings: list[Finding] = []
    imports = Imports(project)
    for contract in contracts:
        context = Context(
            project=project,
            contract=contract,
            contracts=tuple(contracts),
            imports=imports,
            subject=(subjects or {}).get(contract.id),
        )
        for rule in RULES:
            # A rule is either for contracts of the existing format or for strict contracts.
            if rule.existing is not contract.strict:
                findings.extend(rule.check(context))
    return tuple(sorted(findings, key=lambda finding: (finding.location, finding.code)))
