"""The details of one result: location, claim, counterexample, effort, the command that repeats it."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pv.contract.finding import Location
from pv.contract.wording import cut
from pv.engines.encoding import show
from pv.engines.registry import engine_of
from pv.engines.trial import Counterexample, EquationMutant, TrialStatus, in_suite
from pv.report import View
from pv.results.outcome import Outcome, Result
from pv.results.saved import changes
from pv.results.saved.changes import Change
from pv.results.verdict import ContractVerdict


def claim_location(result: Result, *, verbose: bool = False) -> str:
    """Return the location of a claim in its contract; "" for a claim of an installed suite, unless `verbose`."""
    return "" if is_installed(result) and not verbose else str(result.falsifier.location)


def is_installed(result: Result) -> bool:
    """Return whether the claim of a result is in an installed suite, not in a file of the user's project."""
    path = result.falsifier.location.path
    # A relative path that begins with "pv" is a file of the project itself: the user works in a clone of pv.
    return in_suite(str(path)) and path.parts[:1] != ("pv",)


def script_location(result: Result) -> str:
    """Return "path:line" of a finding about a script; "" for other results, and if the line is not known."""
    example = result.counterexample
    return example.place if example is not None and result.falsifier.is_of_script else ""


def result_location(result: Result, view: View) -> Location | None:
    """Return the location of the code that failed, or else of the claim; None for a script whose line is not known."""
    location = code_location(result, view)
    return location if location is not None or result.falsifier.is_of_script else result.falsifier.location


def further_locations(result: Result) -> Iterator[Location]:
    """Yield the locations of a finding about a script, except the first."""
    example = result.counterexample
    if example is not None and result.falsifier.is_of_script:
        yield from (Location(Path(span.path), span.line) for span in example.code[1:])


def code_location(result: Result, view: View) -> Location | None:
    """Return the first line of the code that failed, if possible one that changed since the base; None without code."""
    # GitHub shows no annotation outside the changed lines.
    example = result.counterexample
    if example is None or not example.code:
        return None
    first = example.code[0]
    return next(_changed_lines(result, view), Location(Path(first.path), first.line))


def _changed_lines(result: Result, view: View) -> Iterator[Location]:
    """Yield the lines that changed since the base, in the code that failed."""
    hunks = view.compared.hunks if view.compared is not None else {}
    example = result.counterexample
    for span in example.code if example is not None else ():
        for line in changes.changed_lines(hunks, span.path, span.line, span.end):
            yield Location(Path(span.path), line)


def change_location(change: Change, view: View) -> Location | None:
    """Return the location of a change; a removed clause is shown at the line where it was removed."""
    if change.location is None or not change.removed or view.compared is None:
        return change.location
    line = changes.line_now(view.compared.hunks, str(change.location.path), change.location.line)
    return change.location if line is None else replace(change.location, line=line, column=1)


MAX_VALUE = 400  # characters of a value or of a call
MAX_MUTANTS = 5
MAX_SURVIVORS = 6
MAX_PRINTED = 2000  # characters of the output of a task
MAX_LINES = 30  # lines of the output of an example


def lines(result: Result, verdict: ContractVerdict, *, verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the details of a result as label and text.

    Args:
        result: The result.
        verdict: The verdict of its contract.
        verbose: Also show locations inside the suites of `pv`, and all printed lines.
    """
    engine = engine_of(result.falsifier)
    yield "claim", result.falsifier.rule
    if result.falsifier.prediction and not names_cause(result):
        yield "predicted", result.falsifier.prediction
    if scope := engine.scope(result.falsifier):
        yield "over", scope
    if result.reason:
        yield "because", result.reason
    trial, example = result.trial, result.example
    if example is not None:
        yield from _counterexample_lines(example, result.reason, verbose)
    if result.outcome is Outcome.FALSIFIED and (text := guess(result)):
        yield "author", text
    yield from _mutants(result, verdict)
    if result.outcome is Outcome.VACUOUS:
        yield from (("survivor", text) for text in list(survivors(result, verdict))[:MAX_SURVIVORS])
    if trial is None:
        return
    yield "tried", engine.effort(trial)
    if result.outcome is Outcome.ERROR and trial.output.text.strip():
        yield "printed", trial.output.text.strip()[-MAX_PRINTED:]
    yield "rerun", command(result, verdict)
    replay = _replay_argument(result, example) if example is not None else ""
    if replay and not any(word.startswith("--replay") for word in verdict.repeat):
        yield "replay", f"{command(result, verdict)} --replay {shlex.quote(replay)}"


def guess(result: Result) -> str:
    """Return the author's guess at the cause; "" if there is none, or if the failure itself names the cause."""
    return "" if names_cause(result) else result.falsifier.guess


def names_cause(result: Result) -> bool:
    """Return whether the message of the failure names its cause; the author's guess might contradict this cause."""
    return result.counterexample is not None and result.counterexample.explained


def _replay_argument(result: Result, counterexample: Counterexample) -> str:
    """Return the value of `--replay` for a counterexample: VERSION:BLOB, @FILE or JSON; "" if none is exact."""
    engine = engine_of(result.falsifier)
    if not engine.replays:
        return ""
    if counterexample.blob and not engine.replays_arguments:
        return f"{counterexample.hypothesis}:{counterexample.blob}"
    if counterexample.file:
        return f"@{counterexample.file}"
    return json.dumps(dict(counterexample.arguments)) if counterexample.exact and counterexample.arguments else ""


def _mutants(result: Result, verdict: ContractVerdict) -> Iterator[tuple[str, str]]:
    """Yield the mutants that a vacuous falsifier did not kill or that could not be judged, as label and text."""
    if result.outcome not in (Outcome.VACUOUS, Outcome.ERROR):
        return
    if not result.falsifier.kills:  # generated mutants, which the contract does not describe
        for trial in result.mutants[:MAX_MUTANTS]:
            yield "mutant", f"{trial.mutant}: {trial.detail or trial.status.value}"
        return
    declared = {mutant.id: mutant for mutant in verdict.contract.mutants}
    for trial in result.mutants:
        mutant = declared[trial.mutant or ""]
        if result.outcome is Outcome.VACUOUS and trial.status is TrialStatus.HELD:
            reach = "its code was reached" if trial.mutant_reached else "its code was never reached"
            yield "survivor", f"{mutant.id}: {mutant.fault} ({mutant.location}); {reach}"
        elif result.outcome is Outcome.ERROR and trial.detail:
            yield "mutant", f"{mutant.id}: {trial.status.value}: {trial.detail} ({mutant.location})"


def survivors(result: Result, verdict: ContractVerdict) -> Iterator[str]:
    """Yield the surviving equation mutants of a falsifier, with their locations in the contract."""
    mutants = result.trial.equation_mutants if result.trial is not None else None
    for mutant in mutants.survivors if mutants is not None else ():
        location = mutant_location(mutant, verdict) or result.falsifier.location
        yield f"{location} {mutant.equation}: {mutant.after} for {mutant.before}"


def mutant_location(mutant: EquationMutant, verdict: ContractVerdict) -> Location | None:
    """Return the location of an equation mutant in the contract; None if its equation is in another contract."""
    equation = next((item for item in verdict.contract.equations if item.name == mutant.equation), None)
    find = equation.texts.get("expression") if equation is not None else None
    return find(mutant.line, mutant.column) if find is not None else None


def _counterexample_lines(example: Counterexample, reason: str, verbose: bool) -> Iterator[tuple[str, str]]:
    if example.error and example.error != reason:
        yield "seen", example.error
    if example.right:
        yield "right", example.right
    label = "with" if example.error else "under way"
    for name, value in example.arguments.items():
        yield label, f"{name} = {cut(show(value), MAX_VALUE)}"
    if example.call:
        yield "call", cut(example.call, MAX_VALUE)
    if at := example.frames[-1] if verbose and example.frames else example.place:
        yield "at", at
    if example.printed.strip():
        yield "printed", _printed(example.printed.strip(), verbose)


def _printed(text: str, verbose: bool) -> str:
    """Return the last distinct lines that an example printed; all lines with `verbose`."""
    # A loop prints the same line for every example; the last distinct lines are closest to the failure. Of equal lines,
    # the last is shown.
    lines_printed = text.splitlines()
    shown = lines_printed if verbose else [*dict.fromkeys(reversed(lines_printed))][MAX_LINES - 1 :: -1]
    omitted = len(lines_printed) - len(shown)
    note = [f"({omitted} repeated or earlier lines are left out; -v shows them)"] if omitted else []
    return "\n".join([*note, *shown])


def command(result: Result, verdict: ContractVerdict) -> str:
    """Return the command that repeats a result; an observed run is repeated as a whole."""
    # The command of an observed run has `-- COMMAND`, or `--trace FOLDER` for a recorded run.
    if any(word.startswith(("--trace", "-- ")) for word in verdict.repeat):
        return " ".join(verdict.repeat)
    device = [f"--device {result.device}"] if result.device != "cpu" else []
    return " ".join([*verdict.repeat, f"--only {shlex.quote(result.falsifier.id)}", *device])
