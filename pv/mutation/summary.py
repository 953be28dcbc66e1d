"""The report of a mutation run, as text or JSON."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pv.errors import ExitCode
from pv.mutation import score
from pv.mutation.judge import UNDETECTED, Judged, MutantStatus, MutationResult

FORMAT = "pv-mutants-report/1"
SHOWN = (*UNDETECTED, MutantStatus.NOT_EQUIVALENT)
"""The statuses of the mutants that the text report lists one by one."""


def problems(result: MutationResult) -> list[str]:
    """Return the problems that fail the command."""
    prefix = "no score was recorded: " if result.unrecorded else ""
    return [*(f"{prefix}{text}" for text in objections(result)), *_below_gate(result)]


def objections(result: MutationResult) -> list[str]:
    """Return the problems that prevent the command from recording a result as the contract's score."""
    measured = score.compute(result)
    texts = [f"{t.falsifier} does not hold on the code itself: {t.detail or t.status.value}" for t in result.unfit]
    # A declared equivalent that a falsifier kills is not equivalent: the declaration is wrong.
    texts += [
        f"declared equivalent, but {j.tried[-1]} kills it: {j.mutant.mutant.id}"
        for j in _with_status(result, MutantStatus.NOT_EQUIVALENT)
    ]
    share = result.contract.gate.equivalents
    if result.whole and measured.equivalent > (limit := score.max_equivalent(measured, share)):
        texts.append(
            f"{measured.equivalent} mutants declared equivalent, at most {limit} allowed "
            f"(`equivalents` of the gate: {share * 100:g} % of all mutants): "
            "write a falsifier that kills them, or simplify the code"
        )
    texts += [f"no falsifier executes {name}" for name in result.idle]
    return [*texts, *(f"declared equivalent matches no generated mutant: {t}" for t in result.unused)]


def _below_gate(result: MutationResult) -> list[str]:
    """Return the problem if the score is below the contract's gate; else an empty list."""
    measured, required = score.compute(result), result.contract.gate.mutation_score
    # A score of only some mutants, or of only some falsifiers, is not comparable with the gate.
    if required is None or result.restricted or result.unfit:
        return []
    if measured.value is not None and measured.value >= required:
        return []
    return [
        f"the mutation score is {measured.percent}, the contract's gate requires {required * 100:g} %; "
        "survivors are listed above"
    ]


def exit_code(results: Sequence[MutationResult]) -> ExitCode:
    """Return whether a result has a problem, or there was nothing to judge, as an exit code."""
    nothing = not results or not all(score.compute(result).judged for result in results)
    return ExitCode.worst(failed=any(problems(result) for result in results), undecided=nothing)


def _with_status(result: MutationResult, *statuses: MutantStatus) -> list[Judged]:
    return [judged for judged in result.judged if judged.status in statuses]


def summary(result: MutationResult) -> str:
    """Return the score of a result with its denominators as text, or the reason why there is none."""
    if result.elsewhere:
        return f"nothing to judge: {result.elsewhere}"
    measured = score.compute(result)
    parts = [f"{measured.killed} of {measured.judged} killed"]
    parts += [f"{measured.by_timeout} of them by timeout"] if measured.by_timeout else []
    parts += [f"{measured.by_error} of them by error"] if measured.by_error else []
    parts += [f"{n} cached"] if (n := sum(judged.cached for judged in result.judged)) else []
    parts += [f"{measured.no_coverage} without coverage"] if measured.no_coverage else []
    parts += [f"{measured.equivalent} equivalent"] if measured.equivalent else []
    parts += [f"{n} invalid"] if (n := result.count(MutantStatus.INVALID)) else []
    parts += [f"a sample of {measured.sampled} of {measured.total}"] if measured.is_sample else []
    return f"mutation score {measured.percent} ({', '.join(parts)})"


def text(results: Sequence[MutationResult], seconds: float) -> str:
    """Return for each contract one line, a diff for each mutant in `SHOWN`, and the problems; then the exit code."""
    lines: list[str] = []
    for result in results:
        lines += [f"{_title(result)}: {summary(result)}", ""]
        for judged in _with_status(result, *SHOWN):
            lines += [*_survivor(judged), ""]
        lines += [f"error: {problem}" for problem in problems(result)]
    return "\n".join([*lines, f"{seconds:.1f} s; exit {exit_code(results)}", ""])


def _title(result: MutationResult) -> str:
    judges = result.falsifiers[0] if len(result.falsifiers) == 1 else f"{len(result.falsifiers)} falsifiers"
    return f"{result.contract.id} by {judges}"


def _survivor(judged: Judged) -> Iterator[str]:
    mutant = judged.mutant
    location = mutant.mutant.location
    yield f"{_relative(location.path)}:{location.line} {mutant.function} [{mutant.operator}] {judged.status.value}"
    yield from (f"  {line}" for line in mutant.diff.splitlines())
    if judged.tried:
        yield f"  tried by {', '.join(judged.tried)}"
    if judged.seen:
        yield f"  seen: {judged.seen}"


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def data(results: Sequence[MutationResult], seconds: float) -> str:
    """Return the results as a JSON object, with every mutant."""
    content = {
        "format": FORMAT,
        "exit_code": exit_code(results),
        "seconds": round(seconds, 3),
        "contracts": [_contract(result) for result in results],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _contract(result: MutationResult) -> dict[str, object]:
    measured = score.compute(result)
    return {
        "id": result.contract.id,
        "falsifiers": list(result.falsifiers),
        "mutation_scope": list(result.scope),
        "judges": [judge.id for judge in result.contract.judges],
        "summary": summary(result),
        "score": measured.value,
        **{name: getattr(measured, name) for name in score.COUNTS},
        "problems": problems(result),
        "mutants": [_mutant(judged) for judged in result.judged],
    }


def _mutant(judged: Judged) -> dict[str, object]:
    mutant = judged.mutant
    return {
        "id": mutant.mutant.id,
        "operator": mutant.operator,
        "function": mutant.function,
        "path": str(_relative(mutant.mutant.location.path)),
        "line": mutant.mutant.location.line,
        "status": judged.status.value,
        "tried": list(judged.tried),
        "seen": judged.seen,
        "diff": mutant.diff,
    }
