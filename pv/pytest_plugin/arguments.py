"""Supply the arguments of bound test functions: subject and device, records of reference runs, points of boxes."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, cast

import pytest

from pv.pytest_plugin.claims import Workers

if TYPE_CHECKING:
    from pv.contract.model import Contract, Falsifier, Harness, Target
    from pv.engines.run.reference_run import RunRecord
    from pv.source.project import Project


ARGUMENTS = ("subject", "device", "run")
"""The arguments that any bound function can take."""


@dataclass(frozen=True)
class BoundClaim:
    """A claim of a contract that binds the function `name` of a file."""

    contract: "Contract"
    claim: "Falsifier"
    file: Path
    name: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments that the plugin supplies to the function."""
        return (*ARGUMENTS, *getattr(self.claim, "bounds", ()))


def bound_claims(project: "Project", contracts: Iterable["Contract"]) -> tuple[BoundClaim, ...]:
    """Return the claims that bind a test function."""
    claims = [(contract, claim, claim.test) for contract in contracts for claim in contract.claims]
    return tuple(
        BoundClaim(c, claim, (project.root / t.file).resolve(), t.name) for c, claim, t in claims if t is not None
    )


class CommandFailed(Exception):
    """The command of a run ended with a status other than 0; its output was printed."""


@dataclass(eq=False)
class RunRequest:
    """A run on a device, which is executed when the first predicate needs the record.

    Attributes:
        name: The name of the run in the contract.
        subject: The imported subject.
        folder: The folder below which the run writes its files.
        record: The record; None until the run has been executed.
        error: The exception of the run, which `read` raises for every predicate; None if the run did not fail.
    """

    project: "Project"
    contract: "Contract"
    name: str
    device: str
    subject: object
    folder: Path
    record: "RunRecord | None" = None
    error: Exception | None = None

    def read(self) -> "RunRecord":
        """Return the record of the run; execute the run with its full arguments in the first call.

        A callable runs in this process, a command in a new process. If the run fails, every call raises its exception.
        """
        from pv.engines.run import reference_run

        if self.error is not None:
            raise self.error
        if self.record is None:
            directory = Path(mkdtemp(prefix=f"{self.name}-", dir=self.folder))
            try:
                self._execute(directory)
            except Exception as error:
                self.error = error
                raise
            self.record = reference_run.read(directory)
            if self.record.failure:
                self.error = CommandFailed(self.record.failure)
                raise self.error
        return self.record

    def _execute(self, directory: Path) -> None:
        """Execute the callable or the command of the run, which writes its record to `directory`."""
        from pv.engines.run import reference_run
        from pv.source import resolve

        run = self.contract.run(self.name)
        folder = reference_run.RunFolder(directory, self.device, run.arguments)
        if run.callable is None:
            reference_run.execute_command(run.command, run.environment, folder)
            return
        module = resolve.module_name(self.project, resolve.function(self.project, run.callable).path)
        callable_ = getattr(importlib.import_module(module), run.callable.name)
        with one_thread():
            reference_run.execute(callable_, self.subject, folder)


class Rows:
    """Builds the parameter rows of bound test functions. Predicates that read one run share its record."""

    def __init__(self, project: "Project", workers: Workers) -> None:
        self.project, self.workers = project, workers
        self._runs: dict[tuple[str, str, str, Target], RunRequest] = {}

    @cached_property
    def _directory(self) -> "TemporaryDirectory[str]":
        """The folder of all runs, which is created for the first claim with a run."""
        return TemporaryDirectory(prefix="pv-")

    def close(self) -> None:
        """Remove the files of runs."""
        if "_directory" in vars(self):
            self._directory.cleanup()

    def row(self, bound: BoundClaim, device: str, wanted: Iterable[str]) -> object:
        """Return one parameter set of pytest.

        Args:
            bound: The claim and its function.
            device: The device of the row.
            wanted: The names of the arguments that the function takes.

        Returns:
            The values of these arguments, or a skipped row if the device is unavailable or another file has the name of
            the subject's module. Errors of the subject's import propagate.
        """
        target = self.workers.subject or bound.contract.subject_of(bound.claim)
        id_ = f"{bound.claim.id}-{device}"
        if reason := self.workers.unavailable_reason(device):
            return skipped_row(wanted, reason, id_)
        subject = target.inside(importlib.import_module(target.module))
        # pytest may have put another folder first in sys.path: then a module of the same name was imported.
        if reason := self._imported_from_elsewhere(target):
            return skipped_row(wanted, reason, id_)
        # The arguments other than ARGUMENTS are the variables of a predicate.
        values: dict[str, object] = dict.fromkeys(bound.arguments, WholeBox(cast("Harness", bound.claim)))
        values |= {"device": device, "subject": subject, "run": self._run(bound, device, target, subject)}
        return pytest.param(*(values[name] for name in wanted), id=id_)

    def _imported_from_elsewhere(self, target: "Target") -> str:
        """Return the reason why the imported module of a target is not the project's; "" if it is."""
        from pv.source.resolve import Unbound, module_file

        with contextlib.suppress(Unbound):
            return imported_from_elsewhere(target.module, module_file(self.project, target.module))
        return ""

    def _run(self, bound: BoundClaim, device: str, target: "Target", subject: object) -> RunRequest | None:
        """Return the request for the run of a claim; claims with the same run, device and subject share it."""
        name = bound.claim.run
        if name is None:
            return None
        fresh = RunRequest(self.project, bound.contract, name, device, subject, Path(self._directory.name))
        return self._runs.setdefault((bound.contract.id, name, device, target), fresh)


def skipped_row(wanted: Iterable[str], reason: str, id_: str) -> object:
    """Return a row of a test that is skipped."""
    return pytest.param(*(None for _ in wanted), marks=pytest.mark.skip(reason=reason), id=id_)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replace a `RunRequest` by its record."""
    # This is no fixture `run`, which would hide fixtures of that name in other plugins.
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    for name, value in arguments.items():
        if isinstance(value, RunRequest):
            arguments[name] = value.read()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, as in a worker: on a busy machine, small operations are slower on many threads."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def imported_from_elsewhere(name: str, expected: Path) -> str:
    """Return the reason why a module was not imported from the expected file; "" if it was."""
    file = getattr(sys.modules[name], "__file__", None)
    if file is None or Path(file).resolve() == expected.resolve():
        return ""
    return f"{name} was imported from {file}, not from {expected}; set `pythonpath` in the configuration of pytest"


POINTS_OF_A_LARGE_BOX = 10_000
"""Number of first points of a box that is too large to search: of these, the points that meet `requires` are tried."""


@dataclass(frozen=True, slots=True)
class WholeBox:
    """Placeholder for the variables of a predicate: `pytest_pyfunc_call` tries the points of the harness's box."""

    harness: "Harness"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Try a predicate at the points of its box, instead of calling it once."""
    whole_box = next((value for value in pyfuncitem.funcargs.values() if isinstance(value, WholeBox)), None)
    if whole_box is None:
        return None
    _try_box(pyfuncitem.obj, pyfuncitem.funcargs["subject"], whole_box.harness)
    return True


def _try_box(predicate: Callable[..., object], subject: object, harness: "Harness") -> None:
    """Call a predicate at the points of a box.

    Fail if the box is empty; skip as undecided if the box is so large that only its first points are enumerated.
    """
    from pv.contract.harness_bounds import ENUMERABLE, parse_box

    space, points_tried = parse_box(harness.bounds, harness.requires), 0
    most = None if space.size <= ENUMERABLE else POINTS_OF_A_LARGE_BOX
    for point in filter(space.admits, islice(space.points(), most)):
        points_tried += 1
        try:
            value = predicate(subject, **point)
            assert value is None or value, f"the predicate returned {value!r}"
        except BaseException as error:
            error.add_note(f"{harness.id} at {point}")
            raise
    if most is not None:
        rerun = f"`pv validate --only {harness.id}` searches all"
        pytest.skip(f"undecided: held at {points_tried:,} of {space.size:,} points; {rerun}")
    if not points_tried:
        pytest.fail(f"{harness.id} is vacuous: the box has no point", pytrace=False)
