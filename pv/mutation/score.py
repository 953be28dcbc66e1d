"""The recorded kill score of a contract: one committed file, good while all it rests on is unchanged."""

import json
import math
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from pv import records
from pv.canonical import digest_data
from pv.evidence import MutationScore
from pv.loading.check import schema
from pv.model import Contract, Finding
from pv.mutation import scope
from pv.mutation.judge import FALLEN, STANDING, Fate
from pv.mutation.result import Result
from pv.project import Project
from pv.records import Basis

FORMAT = "pv-mutants/1"
MOST_EQUIVALENT = 0.05


def of(result: Result) -> MutationScore:
    """The score of what was just measured."""
    return MutationScore(
        total=result.total,
        judged=result.count(*FALLEN, *STANDING),
        killed=result.count(*FALLEN),
        by_limit=result.count(Fate.BY_LIMIT),
        by_error=result.count(Fate.BY_ERROR),
        unreached=result.count(Fate.UNREACHED),
        equivalent=result.count(Fate.EQUIVALENT),
        sampled=len(result.judged),
        mutated=result.mutated,
        when=datetime.now(UTC).date().isoformat(),
    )


def most_equivalent(score: MutationScore) -> int:
    """How many may be accepted as equivalent before it is no longer believed: one in any case."""
    return max(1, math.floor(MOST_EQUIVALENT * (score.judged + score.equivalent)))


def basis(project: Project, contract: Contract) -> Basis:
    """What a contract's score rests on now, but for what it names to be mutated. Raises Unbound."""
    claims = [(f, contract.subject_of(f)) for f in contract.claims if f.bound]
    clauses = {f.id: records.clause(contract, f, subject) for f, subject in claims}
    accepted = [[str(e.change.function), e.change.find, e.change.replace] for e in contract.equivalents]
    small = {run.name: dict(run.small or {}) for run in contract.runs}
    paths = [path for f, subject in claims for path in records.paths(project, contract, f, subject)]
    within = [] if contract.mutated else [str(t) for t in scope.under_contract(contract, [f for f, _ in claims])]
    said = digest_data({"clauses": clauses, "equivalents": accepted, "small": small, "scope": within})
    return Basis(said, records.digests(project, list(dict.fromkeys(paths))))


def write(project: Project, result: Result, seed: int) -> Path:
    """Writes the score file of a contract whole or not at all."""
    contract, score, rests = result.contract, of(result), basis(project, result.contract)
    path = records.record_path(project, contract, "mutants")
    sample = f" --sample {score.sampled} --seed {seed}" if score.sample else ""
    content = {
        "format": FORMAT,
        "contract": contract.id,
        "python": platform.python_version(),
        "when": score.when,
        "commit": records.commit_of(project.root),
        "renew": f"pv mutate {contract.id}{sample} --record",
        **{name: getattr(score, name) for name in COUNTS},
        "mutated": list(score.mutated),
        "survivors": [
            {"mutant": j.mutant.mutant.id, "operator": j.mutant.operator, "fate": j.fate.value}
            for j in result.judged
            if j.fate in STANDING
        ],
        "clause": rests.clause,
        "files": {**records.digests_of(project, result.files), **rests.files},
    }
    records.write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


COUNTS = ("total", "sampled", "judged", "killed", "by_limit", "by_error", "unreached", "equivalent")


def read(project: Project, contract: Contract) -> tuple[MutationScore | None, list[Finding]]:
    """The recorded score of a contract, with what has changed since. A broken file is a finding."""
    path = records.record_path(project, contract, "mutants")
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
    return records.broken(path, why, f"pv mutate {contract.id} --record")


def _score(project: Project, contract: Contract, content: Mapping[str, Any]) -> MutationScore:
    mutated = tuple(content["mutated"])
    named = [] if mutated == contract.places else ["the contract's `mutated`"]
    return MutationScore(
        **{name: content[name] for name in COUNTS},
        when=content["when"],
        commit=content["commit"],
        mutated=mutated,
        changed=(*named, *records.changed(project, content, basis(project, contract))),
    )
