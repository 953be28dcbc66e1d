"""The recorded mutation score of a contract: one committed file, valid while its fingerprint is unchanged."""

import json
import math
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from pv.contract.check import schema
from pv.contract.finding import Finding
from pv.contract.model import Contract
from pv.engines.kinds import kind_of
from pv.mutation import scope
from pv.mutation.judge import DETECTED, UNDETECTED, MutantStatus
from pv.mutation.result import MutationResult
from pv.results import store
from pv.results.store import Fingerprint
from pv.results.trial import MutationScore
from pv.source.digest import digest_data
from pv.source.project import Project

FORMAT = "pv-mutants/1"
MOST_EQUIVALENT = 0.05


def of(result: MutationResult) -> MutationScore:
    """Return the score of a result."""
    return MutationScore(
        total=result.total,
        judged=result.count(*DETECTED, *UNDETECTED),
        killed=result.count(*DETECTED),
        by_timeout=result.count(MutantStatus.TIMEOUT),
        by_error=result.count(MutantStatus.ERROR),
        no_coverage=result.count(MutantStatus.NO_COVERAGE),
        equivalent=result.count(MutantStatus.EQUIVALENT),
        sampled=len(result.judged),
        mutated=result.mutated,
        when=datetime.now(UTC).date().isoformat(),
    )


def most_equivalent(score: MutationScore) -> int:
    """Return how many mutants may be declared equivalent: at least one."""
    return max(1, math.floor(MOST_EQUIVALENT * (score.judged + score.equivalent)))


def fingerprint(project: Project, contract: Contract) -> Fingerprint:
    """Return the fingerprint of a contract's score, without the mutation scope that it names. Raise Unbound."""
    claims = [(f, contract.subject_of(f)) for f in contract.claims if kind_of(f).bound]
    clauses = {f.id: store.clause(contract, f, subject) for f, subject in claims}
    declared = [[str(e.change.function), e.change.find, e.change.replace] for e in contract.equivalents]
    small = {run.name: dict(run.small or {}) for run in contract.runs}
    paths = [path for f, subject in claims for path in store.paths(project, contract, f, subject)]
    within = [] if contract.mutated else [str(t) for t in scope.under_contract(contract, [f for f, _ in claims])]
    said = digest_data({"clauses": clauses, "equivalents": declared, "small": small, "scope": within})
    return Fingerprint(said, store.digests(project, list(dict.fromkeys(paths))))


def write(project: Project, result: MutationResult, seed: int) -> Path:
    """Write the score file of a contract atomically, and return its path."""
    contract, score, rests = result.contract, of(result), fingerprint(project, result.contract)
    path = store.record_path(project, contract, "mutants")
    sample = f" --sample {score.sampled} --seed {seed}" if score.sample else ""
    content = {
        "format": FORMAT,
        "contract": contract.id,
        "python": platform.python_version(),
        "when": score.when,
        "commit": store.commit_of(project.root),
        "renew": f"pv mutate {contract.id}{sample} --record",
        **{name: getattr(score, name) for name in COUNTS},
        "mutated": list(score.mutated),
        "survivors": [
            {"mutant": j.mutant.mutant.id, "operator": j.mutant.operator, "status": j.status.value}
            for j in result.judged
            if j.status in UNDETECTED
        ],
        "clause": rests.clause,
        "files": {**store.digests_of(project, result.files), **rests.files},
    }
    store.write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


COUNTS = ("total", "sampled", "judged", "killed", "by_timeout", "by_error", "no_coverage", "equivalent")


def read(project: Project, contract: Contract) -> tuple[MutationScore | None, list[Finding]]:
    """Return the recorded score of a contract, with what changed since. An invalid file is a finding."""
    path = store.record_path(project, contract, "mutants")
    if not path.exists():
        return None, []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return None, [_broken(path, contract, str(error))]
    problem = next(Draft202012Validator(schema("mutants")).iter_errors(content), None)
    if problem is not None:
        return None, [_broken(path, contract, f"{problem.json_path}: {problem.message[:200]}")]
    if content["contract"] != contract.id:
        return None, [_broken(path, contract, f"it is the score of {content['contract']}")]
    return _score(project, contract, content), []


def _broken(path: Path, contract: Contract, why: str) -> Finding:
    return store.broken(path, why, f"pv mutate {contract.id} --record")


def _score(project: Project, contract: Contract, content: Mapping[str, Any]) -> MutationScore:
    mutated = tuple(content["mutated"])
    named = [] if mutated == contract.places else ["the contract's `mutated`"]
    return MutationScore(
        **{name: content[name] for name in COUNTS},
        when=content["when"],
        commit=content["commit"],
        mutated=mutated,
        changed=(*named, *store.changed(project, content, fingerprint(project, contract))),
    )
