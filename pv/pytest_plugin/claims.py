"""Collect two kinds of pytest items that are tried in workers: claims without a test of pytest, and mutants.

A claim has no test of pytest if it has no test function, or if pytest does not collect the name of the function or of
its file. A refused contract becomes an item that fails. At the end of a session, report the claims that pytest did not
collect.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pv.contract.wording import count, listed

if TYPE_CHECKING:
    from pv.contract.model import Contract, Falsifier, Mutant, Target
    from pv.engines.trial import Trial
    from pv.source.project import Project
    from pv.workers.pool import Pool


@dataclass
class Workers:
    """The workers of one pytest session, which try one claim at a time.

    Attributes:
        project: The project of the contracts.
        subject: The target of `--pv-subject`.
        mutant: The mutant of `--pv-mutant`.
    """

    project: "Project"
    subject: "Target | None" = None
    mutant: "Mutant | None" = None
    _pool: "Pool | None" = None

    def trial(self, contract: "Contract", claim: "Falsifier", device: str, mutant: "Mutant | None") -> "Trial":
        """Try a claim on the subject, or on a mutant of it, and return the trial. Raise `Unbound`, `UsageError`."""
        from pv.engines.engine import Conditions
        from pv.execution.attempt import Attempts
        from pv.execution.executor import Executor

        subjects = {contract.id: self.subject} if self.subject is not None else {}
        conditions = Conditions(device=device, mutant=mutant or self.mutant)
        attempt = Attempts(self.project, subjects).in_one_worker(contract, claim, conditions)
        try:
            (trial,) = Executor(self._pool_for(contract)).trials([attempt])
        except BaseException:
            # After a time limit of pytest or Ctrl-C, a worker still runs this claim: kill it.
            self.close()
            raise
        return trial

    def unavailable_reason(self, device: str) -> str:
        """Return the reason why a device cannot be used; "" if the device is available."""
        if device == "cpu":
            return ""
        if find_spec("torch") is None:
            return "torch is not installed"
        import torch

        return "" if torch.cuda.is_available() else f"no {device} device is visible to torch {torch.__version__}"

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.__exit__()
            self._pool = None

    def _pool_for(self, contract: "Contract") -> "Pool":
        """Return the pool of this session; start it with the libraries of the first contract that needs it."""
        from pv.workers import tasks
        from pv.workers.pool import Pool

        if self._pool is None:
            subjects = {self.subject or contract.subject_of(claim) for claim in contract.claims}
            self._pool = Pool(tasks.preload(self.project, [contract], subjects), 1).__enter__()
        return self._pool


PREFIXES = ("falsify_", "prove_")
"""Beginnings of the names of test functions and their files."""


class ClaimFailed(Exception):
    """A claim did not hold; the text has the counterexample."""


class ContractFile(pytest.File):
    """The collector of one contract file.

    Attributes:
        contract: The contract; None if the file is refused.
        workers: The workers that try its claims.
        refusal: The reason why the file is refused.
    """

    contract: "Contract | None"
    workers: "Workers"
    refusal: str

    @classmethod
    def of(
        cls, parent: pytest.Collector, contract: "Contract | None", workers: "Workers", refusal: str, path: Path
    ) -> "ContractFile":
        """Return the collector of one file."""
        file: ContractFile = cls.from_parent(parent, path=path)
        file.contract, file.workers, file.refusal = contract, workers, refusal
        return file

    def collect(self) -> Iterator[pytest.Item]:
        if self.contract is None:
            yield RefusedItem.of(self, self.refusal)
            return
        for claim in self.contract.claims:
            for device in claim.devices if needs_item(claim) else ():
                yield ClaimItem.of(self, self.contract, claim, device)
            for name in claim.kills if self.config.getoption("--pv-mutants") else ():
                yield ClaimItem.of(self, self.contract, claim, "cpu", self.contract.mutant(name))


class RefusedItem(pytest.Item):
    """A refused contract as a failing test, because a collection error would stop all other tests."""

    refusal: str

    @classmethod
    def of(cls, parent: ContractFile, refusal: str) -> "RefusedItem":
        """Return the item of a refused contract."""
        item: RefusedItem = cls.from_parent(parent, name="contract")
        item.refusal = refusal
        return item

    def runtest(self) -> None:
        raise ClaimFailed(self.refusal)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return str(excinfo.value)


class ClaimItem(pytest.Item):
    """A claim on a device, or a mutant that the claim must kill."""

    contract: "Contract"
    claim: "Falsifier"
    device: str
    mutant: "Mutant | None"

    @classmethod
    def of(
        cls, parent: ContractFile, contract: "Contract", claim: "Falsifier", device: str, mutant: "Mutant | None" = None
    ) -> "ClaimItem":
        """Return the item of a claim, with the same name as the parametrized test of a falsifier."""
        name = f"{claim.id}-{device}" if mutant is None else f"{claim.id}[{mutant.id}]"
        item: ClaimItem = cls.from_parent(parent, name=name)
        item.contract, item.claim, item.device, item.mutant = contract, claim, device, mutant
        return item

    def runtest(self) -> None:
        from pv.engines.trial import TrialStatus

        parent = self.parent
        assert isinstance(parent, ContractFile)
        if reason := parent.workers.unavailable_reason(self.device):
            pytest.skip(reason)
        trial: Trial = parent.workers.trial(self.contract, self.claim, self.device, self.mutant)
        if self.mutant is not None:
            _must_be_killed(trial, self.mutant)
        elif trial.status is TrialStatus.SKIPPED:
            pytest.skip(trial.detail)
        else:
            _must_hold(trial, self.claim)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from pv.errors import PvError

        if isinstance(excinfo.value, ClaimFailed | PvError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.claim.location.line - 1, self.name


def needs_item(claim: "Falsifier") -> bool:
    """Return whether a claim becomes an item: pytest collects no function for it, and a worker can try it."""
    from pv.engines.registry import engine_of

    engine = engine_of(claim).name
    return engine in ("equation", "suite", "observed") or (engine == "property" and not has_collected_names(claim))


def has_collected_names(claim: "Falsifier") -> bool:
    """Return whether the file and the function of a claim have names that pytest collects."""
    if claim.test is None:
        return False
    return all(part.startswith(PREFIXES) for part in (claim.test.file.rpartition("/")[2], claim.test.name))


def _must_be_killed(trial: "Trial", mutant: "Mutant") -> None:
    """Raise `ClaimFailed` unless the trial killed the mutant."""
    from pv.engines.trial import TrialStatus
    from pv.results.outcome import killed

    if not killed(trial):
        outcome = "survived" if trial.status is TrialStatus.HELD else f"could not be judged: {trial.detail}"
        raise ClaimFailed(f"the mutant {mutant.id} ({mutant.fault}) {outcome}")


def _must_hold(trial: "Trial", claim: "Falsifier") -> None:
    """Raise `ClaimFailed` unless the claim held and its trial could have failed."""
    from pv.engines.trial import TrialStatus

    if trial.status is not TrialStatus.HELD:
        raise ClaimFailed("\n".join(_lines(trial, claim)))
    if not trial.reached:
        raise ClaimFailed(f"{claim.id} is vacuous: no function of the subject ran")
    mutants = trial.equation_mutants
    if mutants is not None and mutants.total and not mutants.killed:
        raise ClaimFailed(f"{claim.id} is vacuous: it kills none of {mutants.total} mutants of its equation")


def _lines(trial: "Trial", claim: "Falsifier") -> Iterator[str]:
    """Yield the lines of the report of a failed claim."""
    from pv.engines.encoding import show

    example = trial.counterexample or trial.current_arguments
    yield f"{trial.status.value}: {claim.rule}"
    yield from _labelled("seen", [example.error if example is not None and example.error else trial.detail])
    if example is not None:
        yield from _labelled("with", [f"{name} = {show(value)}" for name, value in example.arguments.items()])
        yield from _labelled("call", [example.call])
        yield from _labelled("at", [example.place])
        yield from _labelled("printed", [example.printed.strip()])
    if example is None or not example.explained:
        yield from _labelled("author", [claim.guess])
    yield from _labelled("rerun", [f"pv validate --only {claim.id}"])


def _labelled(label: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the texts that are not empty as indented lines; only the first has the label."""
    for index, text in enumerate(filter(None, texts)):
        yield f"  {label if index == 0 else '':<8}{text}"


MAX_LINES = 8
"""Maximum number of lines about claims that were not collected."""


@dataclass(eq=False)
class UncollectedClaims:
    """Records which claims pytest collected in this session, as items or as test functions, and reports the others.

    Attributes:
        collected: The ids of the claims that were collected; the plugin adds the claims of test functions.
        has_collected: Whether this process has collected; the controller of pytest-xdist does not collect.
    """

    config: pytest.Config
    project: "Project"
    contracts: tuple["Contract", ...]
    collected: set[str] = field(default_factory=set)
    has_collected: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record the claims of all items, before pytest deselects any item."""
        self.has_collected = True
        self.collected |= {item.claim.id for item in items if isinstance(item, ClaimItem) and item.mutant is None}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        claims = [(contract, claim) for contract in self.contracts for claim in contract.claims if contract.strict]
        missing = [(contract, claim) for contract, claim in claims if claim.id not in self.collected]
        if not missing or not self.has_collected or not self._expects_claims():
            return
        terminalreporter.write_line(f"pv: {len(missing)} of {len(claims)} claims were not collected", yellow=True)
        for line in self._lines(missing):
            terminalreporter.write_line(f"  {line}")

    def _expects_claims(self) -> bool:
        """Return whether the user expects claims.

        This holds if pytest got no path, or a folder and either some claim was collected or the folder has a contract.
        """
        if self.config.args_source is not pytest.Config.ArgsSource.ARGS:
            return True
        folders = [Path(argument).resolve() for argument in self.config.args if Path(argument).is_dir()]
        contracts = [contract.location.path.resolve() for contract in self.contracts]
        return any(self.collected or any(c.is_relative_to(folder) for c in contracts) for folder in folders)

    def _lines(self, missing: Iterable[tuple["Contract", "Falsifier"]]) -> Iterator[str]:
        """Yield a line for each reason, with the claims that were not collected for that reason."""
        grouped: dict[str, list[str]] = {}
        for contract, claim in missing:
            grouped.setdefault(self._reason(contract, claim), []).append(claim.id)
        for reason, ids in list(grouped.items())[:MAX_LINES]:
            yield f"{listed(ids)}: {reason}"
        if len(grouped) > MAX_LINES:
            yield count(len(grouped) - MAX_LINES, "more file")

    def _reason(self, contract: "Contract", claim: "Falsifier") -> str:
        """Return how to collect a claim, or why pytest cannot collect it."""
        if needs_item(claim):
            return f"run `pytest {contract.location.path}`"
        if not has_collected_names(claim):
            return f"pytest does not collect {claim.test}: its names must start with {' or '.join(PREFIXES)}"
        assert claim.test is not None
        path = self.project.root / claim.test.file
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"run `pytest {shown}`"


@dataclass(eq=False)
class MissingProject:
    """Reports the files of falsifiers that were not collected because the project has no contract.

    Attributes:
        folder: The root of the project.
        files: The files of falsifiers.
    """

    folder: Path
    files: list[Path] = field(default_factory=list)

    def pytest_collect_file(self, file_path: Path) -> None:
        if file_path.suffix == ".py" and file_path.name.startswith(PREFIXES):
            self.files.append(file_path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.files:
            names = listed([path.name for path in self.files], 1)
            terminalreporter.write_line(f"pv: {names} not collected: no contract was found", yellow=True)
            folder = self.folder / "contracts"
            expected = f"a `schema: pv/1` file below {folder}, or a [tool.pv] table in pyproject.toml"
            terminalreporter.write_line(f"  expected {expected}")
