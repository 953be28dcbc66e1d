"""The argument `run` of predicates under pytest: a reference run's record."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pv.contract.model import Contract
    from pv.engines.run.reference_run import RunRecord
    from pv.source.project import Project


class CommandFailed(Exception):
    """The command of a run ended with another status than 0; its output has been printed."""


@dataclass(eq=False)
class RunRequest:
    """A run on a device that predicates request, executed when the first of them does, below `folder`."""

    project: "Project"
    contract: "Contract"
    name: str
    device: str
    subject: Any
    folder: Path
    record: "RunRecord | None" = None
    error: Exception | None = None

    def read(self) -> "RunRecord":
        """Return the record of the run, executed in this process with its full arguments."""
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
        from pv.engines.run import reference_run
        from pv.source import resolve

        run = self.contract.run(self.name)
        record = reference_run.Record(directory, self.device, run.arguments)
        if run.callable is None:
            reference_run.execute_command(run.command, run.environment, record)
            return
        module = resolve.module_name(self.project, resolve.function(self.project, run.callable).path)
        callable_ = getattr(importlib.import_module(module), run.callable.name)
        with one_thread():
            reference_run.execute(callable_, self.subject, record)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replace a requested run by its record. A fixture called `run` would hide those of other plugins."""
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    for name, value in arguments.items():
        if isinstance(value, RunRequest):
            arguments[name] = value.read()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread, as in a worker: on a busy machine small operations on several are much slower."""
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
