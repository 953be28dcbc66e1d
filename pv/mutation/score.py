"""The recorded mutation score of a contract: one committed file, valid while its fingerprint is unchanged."""

import json
import math
import platform
from datetime import UTC, datetime
from pathlib import Path

from pv.contract.finding import Finding
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.mutation import scope
from pv.mutation.judge import DETECTED, UNDETECTED, MutantStatus, MutationResult
from pv.results import store, worktree
from pv.results.evidence import MutationScore
from pv.results.saved.report import Data
from pv.results.store import Fingerprint
from pv.source.digest import digest_data
from pv.source.project import Project

FORMAT = "pv-mutants/1"


def compute(result: MutationResult) -> MutationScore:
    """Return the mutation score of a result."""
    # `result.judged` has all tried mutants; `judged` of the score does not count equivalent and invalid mutants.
    return MutationScore(
        total=result.total,
        judged=result.count(*DETECTED, *UNDETECTED),
        killed=result.count(*DETECTED),
        by_timeout=result.count(MutantStatus.TIMEOUT),
        by_error=result.count(MutantStatus.ERROR),
        no_coverage=result.count(MutantStatus.NO_COVERAGE),
        equivalent=result.count(MutantStatus.EQUIVALENT),
        sampled=len(result.judged),
        scope=result.scope,
        judges=result.contract.mutation_scope.judge_ids if result.scope else (),
        when=datetime.now(UTC).date().isoformat(),
    )


def max_equivalent(score: MutationScore, share: float) -> int:
    """Return the maximum number of equivalent mutants: a share of the judged and equivalent mutants, but at least 1."""
    return max(1, math.floor(share * (score.judged + score.equivalent)))


def fingerprint(project: Project, contract: Contract) -> Fingerprint:
    """Return the fingerprint of a contract's score.

    The fingerprint covers the clauses and the code of the claims of the contract and of its judges, the declared
    equivalents and the small arguments of runs. It does not cover `mutation_scope`: `read` compares its names.

    Raises:
        Unbound: The code of a claim does not exist.
    """
    owner = scope.owners(contract)
    claims = [(f, owner[f.id].subject_of(f)) for f in scope.judging_claims(contract) if engine_of(f).bound]
    clauses = {f.id: store.clause_digest(owner[f.id], f, subject) for f, subject in claims}
    declared = [[str(e.change.function), e.change.find, e.change.replace] for e in contract.equivalents]
    small = {f"{c.id} {run.name}": dict(run.small or {}) for c in (contract, *contract.judges) for run in c.runs}
    paths = [path for f, subject in claims for path in store.code_files(project, owner[f.id], f, subject)]
    # Without `mutation_scope`, the modules follow from the subjects, so they belong to the fingerprint.
    falsifiers = [f for f, _ in claims]
    default_scope = [] if contract.mutation_scope.modules else scope.default_modules(project, contract, falsifiers)
    modules = [module.name for module in default_scope]
    clause_digest = digest_data({"clauses": clauses, "equivalents": declared, "small": small, "scope": modules})
    return Fingerprint(clause_digest, store.digests_with_imports(project, list(dict.fromkeys(paths))))


def write(project: Project, result: MutationResult, seed: int) -> Path:
    """Write the score file of a contract atomically, and return its path."""
    contract, score, current = result.contract, compute(result), fingerprint(project, result.contract)
    path = store.record_path(project, contract, "mutants")
    sample = f" --sample {score.sampled} --seed {seed}" if score.is_sample else ""
    content = {
        "format": FORMAT,
        "contract": contract.id,
        "python": platform.python_version(),
        "when": score.when,
        "commit": worktree.commit_of(project.root),
        "renew": f"pv mutate {contract.id}{sample} --record",
        **{name: getattr(score, name) for name in COUNTS},
        "mutation_scope": list(score.scope),
        "judges": list(score.judges),
        "survivors": [
            {"mutant": generated.mutant.id, "operator": generated.operator, "status": status.value}
            for generated, status in ((tried.mutant, tried.status) for tried in result.judged)
            if status in UNDETECTED
        ],
        "clause": current.clause,
        "files": {**store.dependency_digests(project, result.files), **current.files},
    }
    store.write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


COUNTS = ("total", "sampled", "judged", "killed", "by_timeout", "by_error", "no_coverage", "equivalent")
"""The fields of `MutationScore` that are numbers of mutants; the score file and the report have them as keys."""


def read(project: Project, contract: Contract) -> tuple[MutationScore | None, list[Finding]]:
    """Return the recorded score of a contract, with the changes since the recording, and findings on the score file."""
    path, renew = store.record_path(project, contract, "mutants"), f"pv mutate {contract.id} --record"
    content, problems = store.load(path, "mutants", renew)
    if content is None:
        return None, problems
    if content["contract"] != contract.id:
        return None, [store.damaged_finding(path, f"it is the score of {content['contract']}", renew)]
    return _score(project, contract, content), []


def _score(project: Project, contract: Contract, content: Data) -> MutationScore:
    scope_names, judges = tuple(content["mutation_scope"]), tuple(content["judges"])
    # A score of another scope or with other judges is stale, even if no file has changed.
    same_scope = (scope_names, judges) == (contract.mutation_scope.names, contract.mutation_scope.judge_ids)
    return MutationScore(
        **{name: content[name] for name in COUNTS},
        when=content["when"],
        commit=content["commit"],
        scope=scope_names,
        judges=judges,
        changed=(
            *([] if same_scope else ["the contract's `mutation_scope`"]),
            *store.changed_files(project, content, fingerprint(project, contract)),
        ),
    )
