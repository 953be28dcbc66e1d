"""Format the explanations of codes, claims, mutants and contracts as text, for `pv explain`."""

from collections.abc import Iterable, Iterator, Mapping

from pv.contract.codes import Explanation
from pv.contract.finding import Location
from pv.contract.model import Contract, Edit, Falsifier, Mutant, Run
from pv.contract.suites import OBSERVED, is_suite
from pv.contract.wording import count
from pv.engines.registry import engine_of
from pv.report.wrapping import wrap_line
from pv.results.evidence import Recorded
from pv.results.explained import Explained
from pv.results.outcome import Result, killed

INDENT = 14
"""The column in which the texts of a table begin."""
Rows = Iterator[tuple[str, str]]
"""Label and text of each row; a row without a label continues the row above."""


def code(name: str, meaning: str, explanation: Explanation | None) -> str:
    """Return the explanation of the code of a finding as text: the meaning, then the reason and examples if any."""
    lines = [f"{name}  {meaning}"]
    if explanation is not None:
        lines += ["", *explanation.why.strip().splitlines()]
        lines += ["", *_example("Wrong", explanation, explanation.wrong)]
        lines += ["", *_example("Right", explanation, explanation.right)]
    return "".join(f"{line}\n" for line in lines)


def _example(label: str, explanation: Explanation, text: str) -> Iterator[str]:
    """Yield the lines of a wrong or right example; `text` is "" if the example is a file that does not exist."""
    place = f" ({explanation.file})" if explanation.file else ""
    yield f"{label}{place}:" if text else f"{label}: no such file{place}"
    yield from (f"    {line}".rstrip() for line in text.splitlines())


def _table(title: str, rows: Iterable[tuple[str, str]], width: int) -> str:
    """Return a title and the labelled rows below it; of adjacent rows with the same label, only the first shows it."""
    lines, previous = [title], ""
    for label, text in rows:
        shown = "" if label == previous else label
        lines.append(wrap_line(f"  {shown:<{INDENT - 2}}{text}", width, INDENT - 2))
        previous = label
    return "".join(f"{line}\n" for line in lines)


def text(explained: Explained, width: int = 0) -> str:
    """Return the explanation of a claim, a mutant or a contract."""
    contract = explained.contract
    if explained.claim is not None:
        return _table(f"{explained.claim.id}  {explained.claim.location}", _claim(explained, explained.claim), width)
    if explained.mutant is not None:
        return _table(f"{explained.mutant.id}  {explained.mutant.location}", _mutant(contract, explained.mutant), width)
    return _table(f"{contract.id} {contract.version}  {contract.location.path}", _contract(explained), width)


def _claim(explained: Explained, claim: Falsifier) -> Rows:
    """Yield the rows of a claim: rule, test, mutants, recorded and last results, next command."""
    contract = explained.contract
    yield "claim", claim.rule
    yield from _nonempty({"predicted": claim.prediction, "author": claim.guess})
    statements = {obligation.id: obligation.statement for obligation in contract.obligations}
    if claim.obligation:
        yield "obligation", f"{claim.obligation}: {statements.get(claim.obligation, 'not declared')}"
    yield "contract", f"{contract.id} {contract.version}: {contract.description}"
    if explained.same_claims:
        other = "every job of a loop with an adapter" if contract.id == OBSERVED else "one run of a script"
        yield "same as", f"{', '.join(explained.same_claims)}, about {other}"
    yield from explained.script_rows
    yield from _attack(contract, claim, explained.test)
    yield from _mutants(contract, claim)
    yield from (("recorded", _record(record)) for record in explained.recorded)
    for started, result in explained.last_results:
        yield from (("last result", text) for text in _last_result(started, result))
    yield from (("lint", str(finding)) for finding in explained.findings)
    if contract.id == OBSERVED:
        yield "next", "pv check -- python train.py"
    elif is_suite(contract):
        yield "next", f"pv check --suite {contract.id} SUBJECT --only {claim.id}"
    else:
        yield "next", f"pv validate {claim.id}"


def _nonempty(rows: Mapping[str, str]) -> Rows:
    """Yield the rows that have a text."""
    yield from ((label, text) for label, text in rows.items() if text)


def _attack(contract: Contract, claim: Falsifier, test: tuple[Location, str] | None) -> Rows:
    """Yield the rows about the attack on a claim: subject, engine, test, inputs, run, effort and devices."""
    engine = engine_of(claim)
    yield "subject", str(claim.subject or contract.subject or "none")
    yield "tried by", f"{engine.name}: {engine.binding(claim)}"
    if test is not None:
        place, docstring = test
        yield "", f"{place.path}:{place.line}" + (f"  {docstring}" if docstring else "")
    yield from _nonempty({"over": engine.scope(claim)})
    run = next((run for run in contract.runs if run.name == claim.run), None)
    if run is not None:
        yield "run", _run(run)
    if engine.bound:
        effort = "every point of its bounds" if engine.proves else count(claim.examples, "example")
        # A claim that reads a run has the time limit of the run.
        effort, limit_s = (effort, claim.limit_s) if run is None else ("one run", run.limit_s)
        yield "effort", f"{effort}, at most {limit_s:g} s; devices: {', '.join(claim.devices)}"


def _run(run: Run) -> str:
    small = f"; on mutants {dict(run.small)}" if run.small is not None else ""
    return f"{run.name}: {run.target} with {dict(run.arguments)}{small}"


def _mutants(contract: Contract, claim: Falsifier) -> Rows:
    """Yield the mutants that a claim must kill."""
    declared = {mutant.id: mutant for mutant in contract.mutants}
    for id_ in claim.kills:
        yield "kills", f"{id_}: {declared[id_].fault} ({declared[id_].location})" if id_ in declared else id_
    if not claim.kills:
        yield "kills", "no declared mutant: mutants of the equation, or generated mutants of the code, judge the claim"


def _record(recorded: Recorded) -> str:
    """Return a recorded result as text: device, status, effort, machine, date, and the files that changed since."""
    machine = f" on {recorded.hardware.name}" if recorded.hardware.name else ""
    effort = recorded.detail or f"{recorded.valid} valid examples"
    stale = f"; stale, changed: {', '.join(recorded.changed)}" if recorded.changed else ""
    return f"{recorded.device}: {recorded.status.value}, {effort}{machine}, {recorded.when}{stale}"


def _last_result(started: str, result: Result) -> Iterator[str]:
    """Yield the lines of a result in a report: outcome, reason, counterexample, and the results on mutants."""
    trial = result.trial
    effort = f", {trial.valid} valid examples, seed {trial.seed}, {trial.seconds:.2f} s" if trial else ""
    yield f"{result.device}: {result.outcome.value}{effort}, {started}"
    if result.reason:
        yield result.reason
    example = result.example
    yield from (f"with {name} = {value}" for name, value in (example.arguments if example else {}).items())
    for mutant_trial in result.mutants:
        yield f"mutant {mutant_trial.mutant}: {'killed' if killed(mutant_trial) else mutant_trial.status.value}"


def _mutant(contract: Contract, mutant: Mutant) -> Rows:
    """Yield the rows of a mutant: its change, and the claims that must kill it."""
    change = mutant.change
    yield "fault", mutant.fault
    yield from _nonempty({"seen in": mutant.seen_in})
    if isinstance(change, Edit):
        yield "edit", f"{change.function}: {change.find}  ->  {change.replace}"
    else:
        yield "swap", f"{change.object}  ->  {change.replacement}"
    yield from (("killed by", f"{killer.id}: {killer.rule}") for killer in contract.claims if mutant.id in killer.kills)
    files = [claim.test.file for claim in contract.claims if claim.test is not None and mutant.id in claim.kills]
    yield "next", f"pytest {' '.join(dict.fromkeys(files)) or 'falsifiers/'} --pv-mutant {mutant.id}"


def _contract(explained: Explained) -> Rows:
    """Yield the rows of a contract: subject, references, equations, claims, mutants, score."""
    contract, score = explained.contract, explained.score
    yield "about", contract.description
    yield "subject", str(contract.subject or "none")
    yield from (("reference", text) for text in contract.references)
    # First the equations that can be evaluated, then the equations that only state a formula.
    for equation in sorted(contract.equations, key=lambda equation: not equation.executable):
        label = "equation" if equation.executable else "statement"
        yield label, f"{equation.name}: {equation.formula or 'executable'}"
    yield from (("claim", f"{item.id}: {item.rule}") for item in contract.claims)
    yield from (("mutant", f"{item.id}: {item.fault}") for item in contract.mutants)
    if score is not None:
        stale = "; stale" if score.changed else ""
        yield "score", f"{score.percent} of {count(score.judged, 'generated mutant')} killed, {score.when}{stale}"
    yield from (("lint", str(finding)) for finding in explained.findings)
    yield "next", f"pv validate {contract.id}"
