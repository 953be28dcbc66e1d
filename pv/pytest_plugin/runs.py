"""The fixture `run` of the pytest plugin: a reference run's record, for the predicates that read it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pv.contract.model import Contract
    from pv.source.project import Project


@dataclass(frozen=True)
class RunRequest:
    """A run on a device that predicates request."""

    project: "Project"
    contract: "Contract"
    name: str
    device: str
    subject: Any


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the record of the requested run, executed in this process with its full arguments."""
    from pv.engines import reference_run
    from pv.source import resolve

    wanted: RunRequest = request.param
    configured = wanted.contract.run(wanted.name)
    module = resolve.module_name(wanted.project, resolve.function(wanted.project, configured.callable).path)
    directory = tmp_path_factory.mktemp(wanted.name) / "run"
    with _one_thread():
        reference_run.execute(
            getattr(importlib.import_module(module), configured.callable.name),
            wanted.subject,
            device=wanted.device,
            directory=directory,
            arguments=configured.arguments,
        )
    return reference_run.read(directory)


@contextmanager
def _one_thread() -> Iterator[None]:
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
