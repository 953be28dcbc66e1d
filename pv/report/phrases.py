"""Share texts and selections among the formats: notes, the closing line, the results that are shown in detail."""

from collections.abc import Iterator, Mapping, Sequence

from pv.contract.finding import Finding, Severity
from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.engines.trial import TrialStatus
from pv.report import View
from pv.results import requirements
from pv.results.evidence import UNFINISHED
from pv.results.outcome import GOOD, Outcome, Result
from pv.results.saved.changes import BaseComparison
from pv.results.verdict import FAILING, ContractVerdict, Report, Shard, Status, find_missing_shards


def describe_claims(verdict: ContractVerdict) -> str:
    """Return the number of claims of a contract, and how many of them were run, as text."""
    falsifiers, harnesses = (len(claims) for claims in (verdict.contract.falsifiers, verdict.contract.harnesses))
    text = count(falsifiers, "falsifier")
    if harnesses:
        text += f" and {harnesses} harness{'' if harnesses == 1 else 'es'}"
    return f"{text} stated, {sum(result.trial is not None for result in verdict.results)} run"


def count_selected(verdict: ContractVerdict) -> int:
    """Return the number of requested claims."""
    return len({result.falsifier.id for result in verdict.results})


def is_of_script(verdict: ContractVerdict) -> bool:
    """Return whether all claims are about one run of a script, as in `pv check -- COMMAND`."""
    return bool(verdict.contract.claims) and all(claim.is_of_script for claim in verdict.contract.claims)


def devices(verdict: ContractVerdict) -> list[str]:
    """Return the devices on which falsifiers have results, by name."""
    return sorted({result.device for result in verdict.attacks})


def claimed_results(verdict: ContractVerdict, device: str) -> list[Result]:
    """Return the results of falsifiers on a device, without claims that the subject does not make."""
    results = (result for result in verdict.attacks if result.device == device)
    return [result for result in results if result.outcome is not Outcome.NOT_CLAIMED]


def count_held(results: Sequence[Result]) -> int:
    """Return the number of claims that held or were proved."""
    return sum(result.outcome in GOOD for result in results)


def count_proved(verdict: ContractVerdict) -> tuple[int, str]:
    """Return the number of proofs that were found, and the word for it: "proved", or "held" if an example held."""
    outcomes = [result.outcome.value for result in verdict.proofs if result.outcome in GOOD]
    return len(outcomes), Outcome.HELD.value if Outcome.HELD.value in outcomes else Outcome.PROVED.value


def count_lint_errors(verdict: ContractVerdict) -> int:
    """Return the number of findings that fail the contract."""
    return sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)


def was_run(verdict: ContractVerdict) -> bool:
    """Return whether any claim of the contract was tried now."""
    return any(result.trial is not None for result in verdict.results)


def declared_tolerances(verdict: ContractVerdict) -> Iterator[dict[str, object]]:
    """Yield the bounds and the reason of each tolerance that the contract sets for an equation of a requested claim."""
    equations = {
        result.falsifier.equation for result in verdict.results if engine_of(result.falsifier).name == "equation"
    }
    for equation in verdict.contract.equations:
        tolerance = equation.executable.get("tolerance")
        if tolerance is not None and equation.name in equations:
            yield {"equation": equation.name, **tolerance}


DETAILED = (*FAILING, Outcome.UNDECIDED)
"""The outcomes that are shown in detail, worst first."""

FEW_DIVISOR = 10
"""A claim that held on fewer than 1 / FEW_DIVISOR of the requested examples is listed in the text report."""


def report_title(report: Report) -> str:
    """Return the title of a report, for a validation or for an observed run."""
    return "Observed training run" if report.closing else "Falsifier report"


def on_device(result: Result) -> str:
    """Return the text " on DEVICE"; "" for a claim about a script, because the script chooses its device."""
    return "" if result.falsifier.is_of_script else f" on {result.device}"


def outcome_text(result: Result) -> str:
    """Return the outcome of a result as text; for a script, "not reached" in place of "not claimed"."""
    not_reached = result.outcome is Outcome.NOT_CLAIMED and result.falsifier.is_of_script
    return "not reached" if not_reached else result.outcome.value


def contract_name(verdict: ContractVerdict, version: str = "") -> str:
    """Return the id of a contract, with the version if it is given, and the subject if the user requested one."""
    text = f"{verdict.contract.id} {version}".strip()
    return f"{text} on {verdict.subject}" if verdict.subject else text


def contract_title(verdict: ContractVerdict) -> str:
    """Return the id and the version of the contract, and the subject if the user requested one."""
    return contract_name(verdict, verdict.contract.version)


def detailed_results(verdict: ContractVerdict) -> list[Result]:
    """Return the results to show in detail, worst first: failures and proofs that were not found.

    Claims whose premise does not hold are left out: `group_by_premise` returns them.
    """
    shown = [result for result in verdict.results if result.outcome in FAILING or _is_unproved(result)]
    shown = [result for result in shown if not _lacks_premise(result)]
    return sorted(shown, key=lambda result: DETAILED.index(result.outcome))


def group_by_exception(results: list[Result]) -> list[list[Result]]:
    """Group results with the same exception at the same location, and keep their order."""
    # A broken import fails every claim: reports show its error once, followed by the ids of the other claims.
    grouped: dict[object, list[Result]] = {}
    for result in results:
        grouped.setdefault(_exception_key(result) or id(result), []).append(result)
    return [*grouped.values()]


def _exception_key(result: Result) -> tuple[str, ...]:
    """Return the exception of a result and its traceback as a key; () for an assertion, or without a traceback."""
    trial, example = result.trial, result.example
    if trial is None or example is None or trial.status not in (TrialStatus.ERROR, TrialStatus.RAISED):
        return ()
    return (result.outcome.value, example.error or result.reason, *example.frames) if example.frames else ()


def group_by_premise(verdict: ContractVerdict) -> Iterator[tuple[str, list[Result]]]:
    """Yield, for each premise that does not hold, a sentence and the claims that could not be tried for that reason."""
    lacking = {result.falsifier.id: result for result in verdict.results if _lacks_premise(result)}
    grouped: dict[str, list[Result]] = {}
    for result in verdict.results:
        if _lacks_premise(result):
            grouped.setdefault(_first_reason(result, lacking), []).append(result)
    for reason, results in grouped.items():
        verb = "was" if len(results) == 1 else "were"
        yield f"{count(len(results), 'claim')} {verb} not tried because {reason.removeprefix('its premise ')}", results


def _first_reason(result: Result, lacking: Mapping[str, Result]) -> str:
    """Return the reason of the first premise in a chain of premises that do not hold."""
    for premise in result.falsifier.options.get("premises", ()):
        if premise in lacking:
            return _first_reason(lacking[premise], lacking)
    return result.reason


def _lacks_premise(result: Result) -> bool:
    """Return whether a claim was not tried because its premise does not hold."""
    return result.trial is not None and result.trial.status is TrialStatus.NO_PREMISE


def _is_unproved(result: Result) -> bool:
    """Return whether a search for a proof ended without a proof and without a counterexample."""
    searched = result.trial is not None and result.trial.status in (TrialStatus.TIMEOUT, TrialStatus.INCONCLUSIVE)
    return searched and engine_of(result.falsifier).proves and result.outcome is Outcome.UNDECIDED


def group_undecided(verdict: ContractVerdict) -> dict[str, list[Result]]:
    """Return the required results that are undecided, by reason; none if lint errors prevented every trial.

    Proofs that were not found are left out: `detailed_results` returns them. Claims with prose as a test are left out.
    """
    grouped: dict[str, list[Result]] = {}
    if count_lint_errors(verdict) and not was_run(verdict):
        return grouped
    for result in verdict.results:
        needed = result.required and engine_of(result.falsifier).bound and not _is_unproved(result)
        if needed and result.outcome is Outcome.UNDECIDED:
            grouped.setdefault(result.reason, []).append(result)
    return grouped


def is_whole_contract(verdict: ContractVerdict, results: Sequence[Result]) -> bool:
    """Return whether the contract has several claimed results, and `results` are all of them.

    Claims that the subject does not make are not counted.
    """
    claimed = [result for result in verdict.results if result.outcome is not Outcome.NOT_CLAIMED]
    return len(claimed) == len(results) > 1


def group_not_claimed(verdict: ContractVerdict) -> dict[str, list[Result]]:
    """Return the claims that the subject does not make, by reason."""
    grouped: dict[str, list[Result]] = {}
    for result in verdict.results:
        if result.outcome is Outcome.NOT_CLAIMED:
            grouped.setdefault(result.reason, []).append(result)
    return grouped


def proofs_near_limit(verdict: ContractVerdict) -> Iterator[tuple[Result, str]]:
    """Yield, with a remark, the proofs that took more than half of their limit and may fail on a slower machine."""
    for result in verdict.proofs:
        limit_s, trial = engine_of(result.falsifier).soft_limit_s(result.falsifier), result.trial
        if trial is not None and result.outcome is Outcome.PROVED and result.near_limit:
            limit = f"more than half of its limit of {limit_s:g} s"
            yield result, f"{result.reason}; {trial.cpu_s:.2f} s of CPU time including the start, {limit}"


def caveats(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the caveats of claims that held: skipped examples, mutants not tried, fewer examples, waived survivors."""
    yield from (r.reason for r in verdict.results if r.outcome is Outcome.HELD and r.trial is not None and r.reason)
    if unjudged := sum(result.unjudged for result in verdict.results):
        yield f"{unjudged} of {count_selected(verdict)} not tried on mutants"
    if fewer := sum(result.fewer for result in verdict.results):
        yield f"{count(fewer, 'result')} on fewer examples than the contract asks for"
    if waived := [name for result in verdict.results for name in result.waived]:
        yield f"the gate waives survivors: {', '.join(dict.fromkeys(waived))}"


def few_examples(verdict: ContractVerdict) -> Iterator[tuple[Result, str]]:
    """Yield, with a remark, the claims that held but skipped examples or tried too few (see FEW_DIVISOR)."""
    for result in verdict.results:
        trial = result.trial
        if trial is not None and result.outcome is Outcome.HELD and trial.detail:
            yield result, trial.detail
        elif trial is not None and result.outcome is Outcome.HELD and FEW_DIVISOR * trial.valid < trial.asked:
            yield result, f"on only {count(trial.valid, 'example')} of {trial.asked} requested"


def notes(report: Report) -> list[str]:
    """Return the notes of the report, and a note for every tolerance that its contracts set."""
    return [*report.notes, *(text for verdict in report.contracts for text in tolerance_notes(verdict))]


def tolerance_notes(verdict: ContractVerdict) -> Iterator[str]:
    """Yield a note, with the reason, for each tolerance of `declared_tolerances`."""
    for tolerance in declared_tolerances(verdict):
        bounds = ", ".join(f"{key} {tolerance[key]:g}" for key in ("relative", "absolute") if key in tolerance)
        yield f"{verdict.contract.id} sets the tolerance of {tolerance['equation']} to {bounds}: {tolerance['why']}"


def refusals_and_errors(report: Report) -> list[Finding]:
    """Return the findings that a report lists; notices are only counted."""
    return [finding for finding in report.findings if finding.severity is not Severity.NOTICE]


def weakening_text(compared: BaseComparison) -> str:
    """Return a text about the weaker requirements that fail the comparison, and how to accept them; "" if none does."""
    if not compared.failing:
        return ""
    return (
        f"the contracts ask for less than the base: {count(len(compared.failing), 'weakening')}; "
        "restore them, or accept each with an entry of `waivers` in its contract"
    )


def closing_line(report: Report, view: View) -> str:
    """Return the last line of a report: shards, verdicts, weakenings, notices, duration, devices, seed and exit code.

    The report of an observed run has its own last line.
    """
    if report.closing:
        return report.closing
    statuses = [verdict.status.value for verdict in report.contracts]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("fail", "undecided", "pass"))
    hardware = ", ".join(f"{name} {info.name}".strip() for name, info in report.devices.items()) or "no device"
    notices = sum(finding.severity is Severity.NOTICE for finding in report.findings)
    noted = f", {count(notices, 'notice')} (pv lint shows them)" if notices else ""
    failing = view.compared.failing if view.compared is not None else ()
    weaker = f", {count(len(failing), 'weakening')}" if failing else ""
    effort = f"{report.seconds:.1f} s on {hardware}; seed {report.seed}; exit {view.exit_code(report)}"
    return f"{_shards(report)}{counts}{weaker}{noted}; {effort}"


def _shards(report: Report) -> str:
    """Return a text about the missing shards of a validation; "" if all are present or there is only one shard."""
    if report.missing:
        return f"incomplete without {_listed(report.missing)}; "
    missing_shards = find_missing_shards(report.shards)
    merge = f"a part: `pv report` merges its JSON file with {_listed(missing_shards)}; "
    return f"{_listed(report.shards)}, {merge}" if missing_shards else ""


def _listed(shards: Sequence[Shard]) -> str:
    return f"shard{'' if len(shards) == 1 else 's'} {', '.join(map(str, shards))}"


def group_unfinished(report: Report) -> Iterator[tuple[str, list[tuple[ContractVerdict, list[Result]]]]]:
    """Yield each reason why a validation ended early, with the results undecided for that reason, by contract."""
    by_verdict = [(verdict, group_undecided(verdict)) for verdict in report.contracts]
    for reason in UNFINISHED:
        if undecided := [(verdict, results[reason]) for verdict, results in by_verdict if reason in results]:
            yield reason, undecided


def is_unfinished(verdict: ContractVerdict) -> bool:
    """Return whether a contract is undecided only because the validation ended early."""
    needed = [result for result in verdict.results if result.required or result.trial is not None]
    other_reason = any(result.reason not in UNFINISHED for result in needed) or requirements.unmet_by_contract(verdict)
    return verdict.status is Status.UNDECIDED and not other_reason


def unfinished_sentence(reason: str, undecided_by_verdict: list[tuple[ContractVerdict, list[Result]]]) -> str:
    """Return a text that counts the claims not run for a reason, and the contracts without a verdict as a result."""
    number = sum(len({result.falsifier.id for result in results}) for _, results in undecided_by_verdict)
    unfinished = sum(is_unfinished(verdict) for verdict, _ in undecided_by_verdict)
    not_judged = f", {count(unfinished, 'contract')} not judged" if unfinished else ""
    cause = reason.removeprefix("not run: ")
    return f"{cause}: {count(number, 'claim')} of {count(len(undecided_by_verdict), 'contract')} not run{not_judged}"
