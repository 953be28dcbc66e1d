"""Checks contracts against each other and against the code they name, without importing or running any of it."""

from collections.abc import Mapping, Sequence

from pv.linting import bindings, equations, existing, harnesses, mutants, references, subjects
from pv.linting.codes import CODES, MUTANT_STALE, RUNNABLE, SCORE_STALE
from pv.linting.context import Context, Rule
from pv.model import Contract, Finding, Target
from pv.project import Project

__all__ = ["CODES", "MUTANT_STALE", "RUNNABLE", "SCORE_STALE", "lint"]

RULES: tuple[Rule, ...] = (
    references.unique_ids,
    references.unique_across,
    references.references,
    references.nothing_idle,
    references.gate,
    bindings.tests,
    bindings.subjects,
    mutants.mutants,
    mutants.equivalents,
    mutants.mutated,
    equations.equations,
    subjects.others,
    harnesses.boxes,
    harnesses.predicates,
)
EXISTING_RULES: tuple[Rule, ...] = (existing.unbound_falsifiers, existing.repeated_ids)


def lint(
    contracts: Sequence[Contract], *, project: Project, subjects: Mapping[str, Target] | None = None
) -> tuple[Finding, ...]:
    """Everything that is wrong with well-formed contracts, by file and line.

    `subjects` gives contracts (by id) another subject than their own, as `pv validate --subject` does.
    """
    found: list[Finding] = []
    for contract in contracts:
        context = Context(
            project=project,
            contract=contract,
            contracts=tuple(contracts),
            subject=(subjects or {}).get(contract.id),
        )
        for rule in RULES if contract.strict else EXISTING_RULES:
            found.extend(rule(context))
    return tuple(sorted(found, key=lambda f: (f.where, f.code)))
