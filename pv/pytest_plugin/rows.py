"""The parameters of the test functions that contracts bind: one row for each clause and device."""

import contextlib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import pytest

from pv.pytest_plugin.attempts import Attempts
from pv.pytest_plugin.modules import imported_from_elsewhere
from pv.pytest_plugin.proofs import WholeBox
from pv.pytest_plugin.runs import RunRequest

if TYPE_CHECKING:
    from pv.contract.claims import Falsifier, Harness
    from pv.contract.model import Contract
    from pv.contract.names import Target
    from pv.source.project import Project

ARGUMENTS = ("subject", "device", "run")


@dataclass(frozen=True)
class Clause:
    """A claim of a contract that binds the function `name` of a file."""

    contract: "Contract"
    claim: "Falsifier"
    file: Path
    name: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments that the clause supplies."""
        return (*ARGUMENTS, *getattr(self.claim, "bounds", ()))


def clauses_of(project: "Project", contracts: Iterable["Contract"]) -> tuple[Clause, ...]:
    """Return the claims that bind a test function."""
    claims = [(contract, claim, claim.test) for contract in contracts for claim in contract.claims]
    return tuple(Clause(c, claim, (project.root / t.file).resolve(), t.name) for c, claim, t in claims if t is not None)


class Rows:
    """Builds rows, and keeps what the runs of their predicates record."""

    def __init__(self, project: "Project", attempts: Attempts) -> None:
        self.project, self.attempts = project, attempts
        self._runs: dict[tuple[str, str, str, Target], RunRequest] = {}

    @cached_property
    def _directory(self) -> "TemporaryDirectory[str]":
        return TemporaryDirectory(prefix="pv-")

    def close(self) -> None:
        """Remove the files of runs."""
        if "_directory" in vars(self):
            self._directory.cleanup()

    def row(self, clause: Clause, device: str, wanted: Iterable[str]) -> Any:
        """Return the values of the wanted arguments; a row that is skipped where they cannot be had."""
        target = self.attempts.subject or clause.contract.subject_of(clause.claim)
        id_ = f"{clause.claim.id}-{device}"
        if absent := self.attempts.absent(device):
            return skipped(wanted, absent, id_)
        subject = target.inside(importlib.import_module(target.module))
        if elsewhere := self._elsewhere(target):
            return skipped(wanted, elsewhere, id_)
        values: dict[str, Any] = dict.fromkeys(clause.arguments, WholeBox(cast("Harness", clause.claim)))
        values |= {"device": device, "subject": subject, "run": self._run(clause, device, target, subject)}
        return pytest.param(*(values[name] for name in wanted), id=id_)

    def _elsewhere(self, target: "Target") -> str:
        from pv.source.resolve import Unbound, module_file

        with contextlib.suppress(Unbound):
            return imported_from_elsewhere(target.module, module_file(self.project, target.module))
        return ""

    def _run(self, clause: Clause, device: str, target: "Target", subject: Any) -> RunRequest | None:
        """Return one request per run, device and subject, so that its predicates share one execution."""
        name = clause.claim.run
        if name is None:
            return None
        fresh = RunRequest(self.project, clause.contract, name, device, subject, Path(self._directory.name))
        return self._runs.setdefault((clause.contract.id, name, device, target), fresh)


def skipped(wanted: Iterable[str], reason: str, id_: str) -> Any:
    """Return a row of a test that is skipped."""
    return pytest.param(*(None for _ in wanted), marks=pytest.mark.skip(reason=reason), id=id_)
