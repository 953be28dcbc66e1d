"""What became of automatic mutants, as text or JSON."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pv.evidence import MutationScore
from pv.mutation import score
from pv.mutation.judge import STANDING, Fate, Judged
from pv.mutation.result import Result

FORMAT = "pv-mutants-report/1"
SHOWN = (*STANDING, Fate.NOT_EQUIVALENT)


def problems(result: Result) -> list[str]:
    """Why a result does not count as it stands: what fails the command."""
    prefix = "no score was recorded: " if result.unrecorded else ""
    return [*(f"{prefix}{text}" for text in objections(result)), *_below_gate(result)]


def objections(result: Result) -> list[str]:
    """What keeps a result from being recorded as the contract's score."""
    measured = score.of(result)
    found = [f"{t.falsifier} does not hold on the code itself: {t.detail or t.ending.value}" for t in result.unfit]
    found += [f"not equivalent, {j.tried[-1]} can tell: {j.mutant.mutant.id}" for j in _of(result, Fate.NOT_EQUIVALENT)]
    if result.whole and measured.equivalent > (most := score.most_equivalent(measured)):
        found.append(
            f"{measured.equivalent} accepted as equivalent; at most {score.MOST_EQUIVALENT:.0%} of all mutants may be, "
            f"here {most}: write a falsifier that tells them apart, or simpler code"
        )
    found += [f"{name} is to be mutated, and no falsifier of the contract runs anything of it" for name in result.idle]
    return [*found, *(f"accepted as equivalent, but no automatic mutant of this contract: {t}" for t in result.unused)]


def _below_gate(result: Result) -> list[str]:
    """What the contract's gate has against the score. A part of a contract has no score that it could ask for."""
    measured, least = score.of(result), result.contract.gate.mutation_score
    if least is None or result.restricted or result.unfit:
        return []
    if measured.value is not None and measured.value >= least:
        return []
    said = _share(measured)
    return [f"the mutation score is {said}, the contract's gate asks for {least:.1%}; survivors are shown above"]


def _share(measured: MutationScore) -> str:
    """The score in percent, rounded down: what is short of a gate never reads as if it met it."""
    return "nothing to judge" if measured.value is None else f"{math.floor(measured.value * 1000) / 10:.1f}%"


def exit_code(results: Sequence[Result]) -> int:
    """1 where something is wrong with a result or its gate, 2 where there was nothing to judge, else 0."""
    if any(problems(result) for result in results):
        return 1
    return 0 if results and all(score.of(result).judged for result in results) else 2


def _of(result: Result, *fates: Fate) -> list[Judged]:
    return [judged for judged in result.judged if judged.fate in fates]


def summary(result: Result) -> str:
    """The score of a result with its denominators, or why there is none."""
    if result.elsewhere:
        return f"nothing to judge: {result.elsewhere}"
    measured = score.of(result)
    parts = [f"{measured.killed} of {measured.judged} killed"]
    parts += [f"{measured.by_limit} of them by the time limit"] if measured.by_limit else []
    parts += [f"{measured.by_error} of them by an error"] if measured.by_error else []
    parts += [f"{n} recalled"] if (n := sum(judged.recalled for judged in result.judged)) else []
    parts += [f"{measured.unreached} never reached"] if measured.unreached else []
    parts += [f"{measured.equivalent} equivalent"] if measured.equivalent else []
    parts += [f"{n} void"] if (n := result.count(Fate.VOID)) else []
    parts += [f"a sample of {measured.sampled} of {measured.total}"] if measured.sample else []
    return f"mutation score {_share(measured)} ({', '.join(parts)})"


def text(results: Sequence[Result], seconds: float) -> str:
    """A line a contract, each survivor as a small diff, then what is wrong."""
    lines: list[str] = []
    for result in results:
        lines += [f"{_title(result)}: {summary(result)}", ""]
        for judged in _of(result, *SHOWN):
            lines += [*_survivor(judged), ""]
        lines += [f"error: {problem}" for problem in problems(result)]
    return "\n".join([*lines, f"{seconds:.1f} s; exit {exit_code(results)}", ""])


def _title(result: Result) -> str:
    judges = result.falsifiers[0] if len(result.falsifiers) == 1 else f"{len(result.falsifiers)} falsifiers"
    return f"{result.contract.id} by {judges}"


def _survivor(judged: Judged) -> Iterator[str]:
    mutant = judged.mutant
    reach = "never reached" if judged.fate is Fate.UNREACHED else "reached"
    reach = "not equivalent" if judged.fate is Fate.NOT_EQUIVALENT else reach
    where = mutant.mutant.where
    yield f"{_relative(where.path)}:{where.line} {mutant.function} [{mutant.operator}] {reach}"
    yield from (f"  {line}" for line in mutant.diff.splitlines())
    if judged.tried:
        yield f"  tried by {', '.join(judged.tried)}"
    if judged.seen:
        yield f"  seen: {judged.seen}"


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def data(results: Sequence[Result], seconds: float) -> str:
    """One JSON object with every mutant."""
    content = {
        "format": FORMAT,
        "exit_code": exit_code(results),
        "seconds": round(seconds, 3),
        "contracts": [_contract(result) for result in results],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _contract(result: Result) -> dict[str, Any]:
    measured = score.of(result)
    return {
        "id": result.contract.id,
        "falsifiers": list(result.falsifiers),
        "mutated": list(result.mutated),
        "summary": summary(result),
        "score": measured.value,
        **{name: getattr(measured, name) for name in score.COUNTS},
        "problems": problems(result),
        "mutants": [_mutant(judged) for judged in result.judged],
    }


def _mutant(judged: Judged) -> dict[str, Any]:
    mutant = judged.mutant
    return {
        "id": mutant.mutant.id,
        "operator": mutant.operator,
        "function": mutant.function,
        "path": str(_relative(mutant.mutant.where.path)),
        "line": mutant.mutant.where.line,
        "fate": judged.fate.value,
        "tried": list(judged.tried),
        "seen": judged.seen,
        "diff": mutant.diff,
    }
