"""Claims about a training run: pure functions of a `Run`, which never see the script and import no torch.

A claim gets a `Run` and a `Record`, in which it counts the facts that it has checked and adds findings. A finding
falsifies the claim if no correct program explains the facts; the docstring of the claim names the correct programs that
look similar, and the facts that rule them out. A finding that is only likely is a hint, which never changes the exit
code. A claim that has checked nothing is reported as not reached, with the reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pv.suites.training_run.run import Process, Run, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A deviation from a claim in a run.

    Attributes:
        at: "path:line" of the user's code; "" or "?" if no line is known.
        seen: The observed numbers, and the known mistake that gives them.
        right: The change that corrects the code.
        hint: Whether a correct program may give the same facts, so that the finding does not falsify the claim.
    """

    at: str
    seen: str
    right: str
    hint: bool = False


@dataclass(slots=True)
class Record:
    """The result of a claim.

    Attributes:
        tried: The number of facts that the claim has checked in the run.
        findings: The findings; after `judge`, at most one per line of the user's code.
        not_reached: The reason why the claim was not checked; "" if it was.
    """

    tried: int = 0
    findings: list[Finding] = field(default_factory=list)
    not_reached: str = ""

    @property
    def proofs(self) -> list[Finding]:
        """Return the findings that falsify the claim: all except hints."""
        return [finding for finding in self.findings if not finding.hint]

    @property
    def explanation(self) -> str:
        """Return the text of the first falsifying finding, then further ones with their locations, one per line."""
        first, *later = self.proofs

        def different_change(finding: Finding) -> str:
            return "" if finding.right == first.right else f"; right: {finding.right}"

        return "\n".join(
            [first.seen, *(f"also at {finding.at}: {finding.seen}{different_change(finding)}" for finding in later)]
        )

    def falsify(self, at: str, seen: str, right: str) -> None:
        """Add a finding that falsifies the claim."""
        self.findings.append(Finding(at=at, seen=seen, right=right))

    def hint(self, at: str, seen: str, right: str) -> None:
        """Add a finding that may be intended by the user."""
        self.findings.append(Finding(at=at, seen=seen, right=right, hint=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim about a run.

    Attributes:
        function: Checks a run, and writes counts and findings into the record.
        not_reached: The reason that is reported if the claim has checked nothing in a run with steps and the record has
            no other reason, such as "no gradient was clipped".
        premises: The ids of claims. If one of them is falsified, it explains the findings of this claim, which are then
            not shown.
    """

    function: Callable[[Run, Record], None]
    not_reached: str
    premises: tuple[str, ...]


CLAIMS: dict[str, Claim] = {}
"""The claims by their ids in the contract, in the order in which they are registered."""


def claim(
    identifier: str, not_reached: str, *, premises: tuple[str, ...] = ()
) -> Callable[[Callable[[Run, Record], None]], Callable[[Run, Record], None]]:
    """Register a function as a claim. The arguments are the fields of `Claim`."""

    def register(function: Callable[[Run, Record], None]) -> Callable[[Run, Record], None]:
        CLAIMS[identifier] = Claim(function=function, not_reached=not_reached, premises=premises)
        return function

    return register


def judge(run: Run, *identifiers: str) -> dict[str, Record]:
    """Return the record of every claim, by id, in the order of `CLAIMS`.

    Args:
        run: The run to judge.
        identifiers: Judge only these claims and their premises; all claims if empty.
    """
    judged = {*identifiers, *(premise for identifier in identifiers for premise in CLAIMS[identifier].premises)}
    records = {}
    for identifier, entry in CLAIMS.items():
        if judged and identifier not in judged:
            continue
        record = records[identifier] = Record()
        entry.function(run, record)
        record.findings = _first_of_each_line(record.findings)
        # Some claims count only correct facts, such as right reports, so a wrong report counts here.
        record.tried = max(record.tried, len(record.findings))
        if record.proofs:  # one part of the run may falsify a claim that another part does not reach
            record.not_reached = ""
        if not record.tried:
            record.not_reached = record.not_reached or (
                entry.not_reached if run.steps else "no optimizer step was observed"
            )
    # The findings that a falsified premise explains are not shown: one mistake, one finding.
    falsified = {name for name, record in records.items() if record.proofs}
    for name, record in records.items():
        causes = [premise for premise in CLAIMS[name].premises if premise in falsified]
        if causes and record.findings:
            records[name] = Record(not_reached=f"it depends on {causes[0]}, which is falsified")
    return records


def _first_of_each_line(findings: list[Finding]) -> list[Finding]:
    """Return the first finding of each line, since ranks and optimizers have the same ones; proofs before hints."""
    by_line: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda finding: finding.hint):
        by_line.setdefault(finding.at, finding)
    return list(by_line.values())


def windows_of(run: Run) -> Iterator[tuple[Process, int, list[Window]]]:
    """Yield every optimizer of every process, with the number of the optimizer and its windows."""
    for process in run.processes:
        for optimizer, windows in process.windows.items():
            yield process, optimizer, windows


def numbers(values: list[float]) -> str:
    """Return a list of numbers with four digits each, as texts of findings show them."""
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"


def is_finite(value: float) -> bool:
    """Return whether a number is neither NaN nor infinite."""
    return value - value == 0
