"""Runs the claims of contracts under pytest, so that an author can debug one in an editor. The gate is `pv validate`.

It is active in a project with contracts or a `[tool.pv]` table, for files `falsify_*.py` and `prove_*.py` and for the
contracts themselves. A falsifier is parametrized with the subject and devices of each clause that binds it: a fixture
would be created once for all examples, which Hypothesis refuses.
"""

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pv.pytest_plugin import proofs, runs
from pv.pytest_plugin.attempts import Attempts
from pv.pytest_plugin.claims import PREFIXES, ContractFile
from pv.pytest_plugin.left_out import LeftOut, NoProject
from pv.pytest_plugin.proofs import WholeBox
from pv.pytest_plugin.runs import RunRequest

if TYPE_CHECKING:
    from pv.contract.claims import Falsifier, Harness
    from pv.contract.model import Contract
    from pv.contract.names import Target
    from pv.instrument.import_hook import Plan
    from pv.source.project import Project


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pv", "falsifiers under contract")
    group.addoption("--pv-subject", metavar="TARGET", help="attack module or module:attribute instead of the subject")
    group.addoption("--pv-mutant", metavar="ID", help="plant this mutant of a contract before anything is imported")
    group.addoption("--pv-mutants", action="store_true", help="also collect the mutants that each claim must kill")


def pytest_configure(config: pytest.Config) -> None:
    from pv.source.project import find_project

    project = find_project(config.rootpath)
    if not project.declared:
        # Without a configuration file, the root is the common folder of the arguments.
        project = find_project(config.invocation_params.dir)
    if not project.declared and not _has_contracts(project):
        if config.getoption("--pv-mutant") or config.getoption("--pv-subject"):
            raise pytest.UsageError(f"no contract below {project.contracts[0]}, and no [tool.pv] table above it")
        config.pluginmanager.register(NoProject(project.root), "pv-no-project")
        return
    _refuse_optimized()
    config.pluginmanager.register(FalsifierPlugin(config, project), "pv-falsifiers")
    config.pluginmanager.register(runs, "pv-runs")
    config.pluginmanager.register(proofs, "pv-proofs")


def _refuse_optimized() -> None:
    from pv.errors import UsageError
    from pv.workers.pool import refuse_optimized

    try:
        refuse_optimized()
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _has_contracts(project: "Project") -> bool:
    """Return whether a file below the contracts' folders names our format, without loading any."""
    files = (file for folder in project.contracts for file in folder.rglob("*.y*ml"))
    return any(b"pv/1" in file.read_bytes() for file in files if file.is_file())


@dataclass(frozen=True)
class _Clause:
    contract: "Contract"
    falsifier: "Falsifier"


@dataclass(eq=False)
class FalsifierPlugin:
    """The pytest hooks in a project with contracts."""

    config: pytest.Config
    project: "Project"
    clauses: list[_Clause] = field(default_factory=list)
    refused: str = ""
    runs: dict[tuple[str, str, str, "Target"], RunRequest] = field(default_factory=dict)
    contracts: dict[Path, "Contract"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import sys

        from pv.contract.finding import Severity
        from pv.contract.load import load
        from pv.contract.names import Target
        from pv.instrument.import_hook import RootsFirst

        loaded = load(path for path in self.project.contracts if path.exists())
        contracts = loaded.contracts
        refusals = [finding for finding in loaded.findings if finding.severity is Severity.REFUSAL]
        self.refused = "; ".join(map(str, refusals))
        self.refusals = [(finding.location.path.resolve(), str(finding)) for finding in refusals]
        self.clauses = [_Clause(c, f) for c in contracts for f in c.claims if f.test is not None]
        self.contracts = {contract.location.path.resolve(): contract for contract in contracts}
        self.left_out = LeftOut(self.config, self.project, contracts)
        self.config.pluginmanager.register(self.left_out, "pv-left-out")
        roots = [str(root) for root in self.project.roots]
        sys.path[:0] = roots
        modules = self._modules()
        pytest.register_assert_rewrite(*modules, *(name.rpartition(".")[2] for name in modules))
        # Behind pytest's own finder, which rewrites the assertions of these modules and finds them in the roots too.
        behind = next((i for i, each in enumerate(sys.meta_path, 1) if "_pytest" in type(each).__module__), 0)
        sys.meta_path.insert(behind, RootsFirst({name.partition(".")[0] for name in modules}, roots))
        for prefix in PREFIXES:
            self.config.addinivalue_line("python_functions", prefix)
        mutant = self._plant({f"{c.id}/{m.id}": m for c in contracts for m in c.mutants})
        override = self.config.getoption("--pv-subject")
        self.attempts = Attempts(self.project, Target.parse(override) if override else None, mutant)

    def _modules(self) -> list[str]:
        """Return the names of the modules that define falsifiers, if their files exist."""
        from pv.source.resolve import Unbound, function, module_name

        found = set[str]()
        for clause in self.clauses:
            with contextlib.suppress(Unbound):
                assert clause.falsifier.test is not None
                path = function(self.project, clause.falsifier.test).path
                found.add(module_name(self.project, path))
        return sorted(found)

    def _plant(self, mutants: dict[str, Any]) -> Any:
        """Plant the mutant of `--pv-mutant`, if there is one, and return it."""
        from pv.instrument.import_hook import install
        from pv.workers.tasks import planted

        wanted = self.config.getoption("--pv-mutant")
        if not wanted:
            return None
        found = [name for name, mutant in mutants.items() if wanted in (name, mutant.id)]
        if len(found) != 1:
            known = ", ".join(sorted(found or mutants))
            many = "ambiguous mutant" if found else "unknown mutant"
            raise pytest.UsageError(f"{many} {wanted!r}; known: {known or 'none'}")
        plan: Plan = planted(self.project, mutants[found[0]])[0]
        install(plan)
        return mutants[found[0]]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if file_path.suffix in (".yaml", ".yml") and any(map(file_path.is_relative_to, self.project.contracts)):
            return self._contract(file_path, parent)
        # A file that was named itself is collected by pytest already.
        named = parent.session.isinitpath(file_path)
        if file_path.suffix == ".py" and file_path.name.startswith(PREFIXES) and not named:
            module: pytest.Module = pytest.Module.from_parent(parent, path=file_path)
            return module
        return None

    def _contract(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        contract = self.contracts.get(path.resolve())
        refused = "\n".join(text for place, text in self.refusals if place == path.resolve())
        if (contract is None and not refused) or (contract is not None and not contract.strict):
            return None
        file: pytest.Collector = ContractFile.of(parent, contract, self.attempts, refused, path=path)
        return file

    def pytest_unconfigure(self) -> None:
        self.attempts.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Import falsifiers under the profile that `pv validate` uses; other tests keep their own."""
        if not (isinstance(collector, pytest.Module) and collector.path.name.startswith(PREFIXES)):
            return (yield)
        from hypothesis import settings

        from pv.engines.property import load_profile

        before = settings.get_current_profile_name()
        load_profile(100, shrink=True)
        try:
            return (yield)
        finally:
            settings.load_profile(before)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        wanted: list[str] = [name for name in ("subject", "device", "run") if name in metafunc.fixturenames]
        clauses = self._binding(metafunc) if metafunc.module.__name__.rpartition(".")[2].startswith(PREFIXES) else []
        wanted += [name for name in metafunc.fixturenames if any(name in _bounds(c.falsifier) for c in clauses)]
        if not wanted:
            return
        if not clauses and metafunc.function.__name__.startswith(PREFIXES):
            reason = f"no contract binds {metafunc.function.__name__}" + (f"; {self.refused}" if self.refused else "")
            rows = [pytest.param(*(None for _ in wanted), marks=pytest.mark.skip(reason=reason), id="unbound")]
            metafunc.parametrize(wanted, rows)
            return
        rows = [self._row(clause, device, wanted) for clause in clauses for device in clause.falsifier.devices]
        metafunc.parametrize(wanted, rows, scope="session", indirect=["run"] if "run" in wanted else False)

    def _binding(self, metafunc: pytest.Metafunc) -> list[_Clause]:
        path, name = Path(str(metafunc.module.__file__)).resolve(), metafunc.function.__name__
        return [
            clause
            for clause in self.clauses
            if clause.falsifier.test is not None
            and clause.falsifier.test.name == name
            and (self.project.root / clause.falsifier.test.file).resolve() == path
        ]

    def _row(self, clause: _Clause, device: str, wanted: list[str]) -> Any:
        self.left_out.collected.add(clause.falsifier.id)
        absent = self.attempts.absent(device)
        if absent:
            skip = pytest.mark.skip(reason=absent)
            return pytest.param(*(None for _ in wanted), marks=skip, id=f"{clause.falsifier.id}-{device}")
        target = self._target(clause)
        subject = target.inside(importlib.import_module(target.module))
        run = self._run(clause, device, target, subject)
        values = {"device": device, "subject": subject, "run": run}
        values |= dict.fromkeys(_bounds(clause.falsifier), WholeBox(cast("Harness", clause.falsifier)))
        return pytest.param(*(values[name] for name in wanted), id=f"{clause.falsifier.id}-{device}")

    def _target(self, clause: _Clause) -> "Target":
        from pv.contract.names import Target

        override = self.config.getoption("--pv-subject")
        return Target.parse(override) if override else clause.contract.subject_of(clause.falsifier)

    def _run(self, clause: _Clause, device: str, target: "Target", subject: Any) -> RunRequest | None:
        """Return one request per run, device and subject: pytest shares a fixture where the object is the same."""
        name = clause.falsifier.run
        if name is None:
            return None
        fresh = RunRequest(self.project, clause.contract, name, device, subject)
        return self.runs.setdefault((clause.contract.id, name, device, target), fresh)


def _bounds(claim: "Falsifier") -> tuple[str, ...]:
    """Return the names of a harness's bounds, () for other claims."""
    return tuple(getattr(claim, "bounds", ()))
