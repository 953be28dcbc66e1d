"""The fixture `run` of the pytest plugin: a reference run's record, for the predicates that read it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pv.model import Contract
    from pv.project import Project


@dataclass(frozen=True)
class RunRequest:
    """A run on a device, asked for by its predicates."""

    project: "Project"
    contract: "Contract"
    name: str
    device: str
    subject: Any


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The record of the requested run, executed here at its full arguments."""
    from pv import binding
    from pv.engines import reference_run

    wanted: RunRequest = request.param
    configured = wanted.contract.run(wanted.name)
    module = binding.module_name(wanted.project, binding.function(wanted.project, configured.callable).path)
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
    """As in a worker: small operations on several threads of a busy machine are many times slower."""
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
