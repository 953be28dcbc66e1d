"""Checks contracts against each other and against the code they name, without importing or running any of it.

To add a rule, decorate its check with `pv.engines.rule.rule` and keep a bad contract for each of its codes. A new
module is added to `RULES`; an engine holds the rules about its own claims.
"""

from collections.abc import Mapping, Sequence

from pv.contract.codes import EVIDENCE, LOADING, Stops
from pv.contract.finding import Finding
from pv.contract.model import Contract
from pv.contract.names import Target
from pv.engines.registry import engines
from pv.engines.rule import Context, rules_of
from pv.linting import attacks, bindings, existing, mutants, refactors, references, subjects, waivers
from pv.source.imports import Imports
from pv.source.project import Project

__all__ = ["CODES", "MUTANT_STALE", "RUNNABLE", "SCORE_STALE", "lint"]

RULES = (
    *rules_of(references, bindings, attacks, mutants, refactors, subjects, waivers, existing),
    *(rule for engine in engines() for rule in engine.rules),
)

_CODES = sorted([*LOADING, EVIDENCE, *(code for rule in RULES for code in rule.codes)], key=lambda code: code.name)
CODES: Mapping[str, str] = {code.name: code.meaning for code in _CODES}
"""Every code that loading and lint can give, and its meaning."""
MUTANT_STALE = frozenset(code.name for code in _CODES if code.stops is Stops.MUTANT)
SCORE_STALE = frozenset(code.name for code in _CODES if code.stops is Stops.SCORE)
RUNNABLE = frozenset(code.name for code in _CODES if code.stops is not Stops.CONTRACT)
"""The codes of errors that fail a contract but do not keep its falsifiers from running."""


def lint(
    contracts: Sequence[Contract], *, project: Project, subjects: Mapping[str, Target] | None = None
) -> tuple[Finding, ...]:
    """Return everything that is wrong with well-formed contracts, by file and line.

    `subjects` gives contracts (by id) another subject than their own, as `pv validate --subject` does.
    """
    found: list[Finding] = []
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
            if rule.existing is not contract.strict:
                found.extend(rule.check(context))
    return tuple(sorted(found, key=lambda f: (f.location, f.code)))
