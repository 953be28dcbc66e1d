"""Run the claims of contracts under pytest, so that an author can debug a claim. CI runs `pv validate`.

The plugin is active in a project with contracts or a `[tool.pv]` table. It collects contracts, and the functions
`falsify_*` and `prove_*` in files `falsify_*.py`, and in files `prove_*.py` that contracts bind or that are arguments
of pytest; other tests and their fixtures are not affected.

A falsifier is parametrized with the subject and the device of every claim that binds it. Subject and device are not
fixtures, since Hypothesis rejects function-scoped fixtures, which are not reset between examples.
"""

import contextlib
import fnmatch
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pv.instrument.import_hook import RootsFirst
from pv.pytest_plugin import arguments
from pv.pytest_plugin.arguments import ARGUMENTS, BoundClaim, Rows, bound_claims, skipped_row
from pv.pytest_plugin.claims import PREFIXES, ClaimItem, ContractFile, MissingProject, UncollectedClaims, Workers

if TYPE_CHECKING:
    from pv.contract.model import Mutant
    from pv.instrument.import_hook import Plan
    from pv.source.project import Project


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pv", "falsifiers under contract")
    group.addoption("--pv-subject", metavar="TARGET", help="attack module or module:attribute instead of the subject")
    group.addoption("--pv-mutant", metavar="ID", help="plant this mutant of a contract before anything is imported")
    group.addoption("--pv-mutants", action="store_true", help="also collect the mutants that each claim must kill")


def pytest_configure(config: pytest.Config) -> None:
    project = _project(config)
    if not project.declared and not _has_contracts(project):
        if config.getoption("--pv-mutant") or config.getoption("--pv-subject"):
            raise pytest.UsageError(f"no contract below {project.contracts[0]}, and no [tool.pv] table above it")
        config.pluginmanager.register(MissingProject(project.root), "pv-no-project")
        return
    config.pluginmanager.register(FalsifierPlugin(config, project), "pv-falsifiers")
    config.pluginmanager.register(arguments, "pv-arguments")


def _project(config: pytest.Config) -> "Project":
    """Return the project of the tests. Raise `UsageError` of pytest if its configuration is invalid."""
    from pv.errors import ProjectError
    from pv.source.project import find_project

    try:
        project = find_project(config.rootpath)
        # Without a configuration file, `rootpath` is the common folder of the arguments.
        return project if project.declared else find_project(config.invocation_params.dir)
    except ProjectError as error:
        raise pytest.UsageError(str(error)) from None


def _has_contracts(project: "Project") -> bool:
    """Return whether a file below the folders of contracts mentions the format `pv/1`, without parsing any."""
    return any(_names_format(file) for folder in project.contracts for file in folder.rglob("*.y*ml"))


def _names_format(file: Path) -> bool:
    """Return whether a file mentions the format; a file that cannot be read does not."""
    try:
        return file.is_file() and b"pv/1" in file.read_bytes()
    except OSError:
        return False


@dataclass(eq=False)
class FalsifierPlugin:
    """The pytest hooks in a project with contracts.

    Attributes:
        refusals: The path of each contract that is refused, and the reason.
        bound_claims: The claims that bind test functions, with these functions.
        bound_files: The files of the functions.
        contracts: The contracts by path.
        uncollected: The report of claims without a pytest item.
        imports: The changes of the import system; undone at the end of the session.
        workers: The workers of claims without a function, and of mutants.
        rows: The parameters of bound functions.
    """

    config: pytest.Config
    project: "Project"

    def __post_init__(self) -> None:
        from pv.contract.finding import Severity
        from pv.contract.load import load
        from pv.contract.model import Target

        loaded = load(path for path in self.project.contracts if path.exists())
        contracts = loaded.contracts
        refusals = [finding for finding in loaded.findings if finding.severity is Severity.REFUSAL]
        self.refusal_text = "; ".join(map(str, refusals))
        self.refusals = [(finding.location.path.resolve(), str(finding)) for finding in refusals]
        self.bound_claims = bound_claims(self.project, contracts)
        self.bound_files = {bound.file for bound in self.bound_claims}
        self.contracts = {contract.location.path.resolve(): contract for contract in contracts}
        self.uncollected = UncollectedClaims(self.config, self.project, contracts)
        self.config.pluginmanager.register(self.uncollected, "pv-uncollected")
        modules = self._modules()
        rewrite_assertions(modules)
        self.imports = Imports(modules, self.project.roots)
        mutant = self._plant({f"{c.id}/{m.id}": m for c in contracts for m in c.mutants})
        override = self.config.getoption("--pv-subject")
        self.workers = Workers(self.project, Target.parse(override) if override else None, mutant)
        self.rows = Rows(self.project, self.workers)

    def _modules(self) -> list[str]:
        """Return the names of the modules of those bound files that exist."""
        from pv.source.resolve import Unbound, module_name

        names = set[str]()
        for file in filter(Path.is_file, self.bound_files):
            with contextlib.suppress(Unbound):
                names.add(module_name(self.project, file))
        return sorted(names)

    def _plant(self, mutants: dict[str, "Mutant"]) -> "Mutant | None":
        """Plant the mutant of `--pv-mutant` before its module is imported, and return it; None without the option."""
        from pv.instrument.import_hook import install
        from pv.workers.tasks import plan_mutant

        wanted = self.config.getoption("--pv-mutant")
        if not wanted:
            return None
        matching = [name for name, mutant in mutants.items() if wanted in (name, mutant.id)]
        if len(matching) != 1:
            names = ", ".join(sorted(matching or mutants))
            problem = "ambiguous mutant" if matching else "unknown mutant"
            raise pytest.UsageError(f"{problem} {wanted!r} (choose from {names or 'none'})")
        plan: Plan = plan_mutant(self.project, mutants[matching[0]])[0]
        install(plan)
        return mutants[matching[0]]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if file_path.suffix in (".yaml", ".yml") and any(map(file_path.is_relative_to, self.project.contracts)):
            return self._contract_file(file_path, parent)
        if not self._holds_falsifiers(file_path, parent) or is_collected_by_pytest(file_path, parent.session):
            return None
        module: pytest.Module = FalsifierModule.from_parent(parent, path=file_path)
        return module

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
        if not self._holds_falsifiers(module_path, parent):
            return None
        module: pytest.Module = FalsifierModule.from_parent(parent, path=module_path)
        return module

    def _holds_falsifiers(self, path: Path, parent: pytest.Collector) -> bool:
        return holds_falsifiers(path, self.bound_files, parent.session)

    def _contract_file(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Return the collector of a file; None if it has no contract, or falsifiers that are text only."""
        contract = self.contracts.get(path.resolve())
        refusal = "\n".join(text for refused, text in self.refusals if refused == path.resolve())
        if not refusal and (contract is None or not contract.strict):
            return None
        file: pytest.Collector = ContractFile.of(parent, contract, self.workers, refusal, path=path)
        return file

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail every claim if Python removes assertions (`python -O`); other tests run."""
        from pv.errors import UsageError
        from pv.workers.pool import refuse_optimized

        if isinstance(item, ClaimItem) or item.getparent(FalsifierModule) is not None:
            try:
                refuse_optimized()
            except UsageError as error:
                pytest.fail(str(error), pytrace=False)

    def pytest_unconfigure(self) -> None:
        self.workers.close()
        self.imports.close()
        self.rows.close()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Import falsifiers under the profile that `pv validate` uses; other tests keep their own profile."""
        if not isinstance(collector, FalsifierModule):
            return (yield)
        from hypothesis import settings

        from pv.engines.property.attack import load_profile

        # `@given` reads the profile when it decorates a test, that is, while the module is imported.
        before = settings.get_current_profile_name()
        numbers = [bound.claim.examples for bound in self.bound_claims if bound.file == collector.path.resolve()]
        load_profile(max(numbers, default=100), shrink=True)
        try:
            return (yield)
        finally:
            settings.load_profile(before)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the functions that contracts bind, and skip other falsifiers with parameters, with the reason."""
        bound_claims = self._binding(metafunc)
        supplied = {*ARGUMENTS, *(name for bound in bound_claims for name in bound.arguments)}
        wanted = [name for name in metafunc.fixturenames if name in supplied]
        if wanted and bound_claims:
            self.uncollected.collected |= {bound.claim.id for bound in bound_claims}
            rows = [self.rows.row(bound, device, wanted) for bound in bound_claims for device in bound.claim.devices]
            # Not function scope: Hypothesis would refuse the test if a conftest has a fixture of the same name.
            # Not session scope: pytest would reorder the tests of different modules.
            metafunc.parametrize(wanted, rows, scope="module")
        elif wanted and _is_falsifier(metafunc):
            refusals = f"; {self.refusal_text}" if self.refusal_text else ""
            reason = f"no contract binds {metafunc.function.__name__}{refusals}"
            metafunc.parametrize(wanted, [skipped_row(wanted, reason, "unbound")])

    def _binding(self, metafunc: pytest.Metafunc) -> list[BoundClaim]:
        """Return the claims that bind a test function; an empty list for a method."""
        path, name = Path(str(metafunc.module.__file__)).resolve(), metafunc.function.__name__
        # Compare names first: comparing paths takes longer, and pytest calls this for every test.
        return [c for c in self.bound_claims if c.name == name and c.file == path and metafunc.cls is None]


def _is_falsifier(metafunc: pytest.Metafunc) -> bool:
    """Return whether a function is a falsifier by its name and its module."""
    has_prefix = metafunc.function.__name__.startswith(PREFIXES)
    return has_prefix and metafunc.definition.getparent(FalsifierModule) is not None


class FalsifierModule(pytest.Module):
    """A module whose functions `falsify_*` and `prove_*` are collected, regardless of the option `python_functions`."""

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith(PREFIXES) or super().funcnamefilter(name)


def holds_falsifiers(path: Path, bound: Iterable[Path], session: pytest.Session) -> bool:
    """Return whether a file has falsifiers: `falsify_*.py`, or `prove_*.py` if in `bound` or an argument of pytest."""
    if path.suffix != ".py" or not path.name.startswith(PREFIXES):
        return False
    return path.name.startswith("falsify_") or path.resolve() in bound or session.isinitpath(path)


def is_collected_by_pytest(path: Path, session: pytest.Session) -> bool:
    """Return whether pytest itself collects a Python file."""
    patterns: list[str] = session.config.getini("python_files")
    # As in `_pytest.pathlib.fnmatch_ex`: a pattern without a slash matches the name, others match the end of the path.
    return session.isinitpath(path) or any(
        fnmatch.fnmatch(str(path) if "/" in pattern else path.name, f"*/{pattern}" if "/" in pattern else pattern)
        for pattern in patterns
    )


class Imports:
    """Makes modules importable from the roots of a project until `close`.

    The roots are added to the end of `sys.path`, so that other tests import the same modules as without the plugin.
    Only the top-level packages of `modules` (modules of falsifiers) are imported from the roots first.
    """

    def __init__(self, modules: Iterable[str], roots: Iterable[Path]) -> None:
        names = [str(root) for root in roots]
        self._added = [name for name in names if name not in sys.path]
        self._finder = RootsFirst({module.partition(".")[0] for module in modules}, names)
        sys.path += self._added
        # After pytest's finder, which must load the modules of falsifiers to rewrite their assertions. It leaves their
        # packages to this finder.
        index = next((i for i, finder in enumerate(sys.meta_path, 1) if "_pytest" in type(finder).__module__), 0)
        sys.meta_path.insert(index, self._finder)

    def close(self) -> None:
        """Restore the import system."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self._finder]
        for name in self._added:
            if name in sys.path:
                sys.path.remove(name)


def rewrite_assertions(modules: Iterable[str]) -> None:
    """Let pytest rewrite the assertions of these modules; modules that are already imported are left out."""
    # If the folder of a file is not a package, pytest imports the file under the last part of its module name.
    last_names = {name.rpartition(".")[2] for name in modules}
    names = {*modules, *(name for name in last_names if name.startswith(PREFIXES))}
    pytest.register_assert_rewrite(*sorted(names - sys.modules.keys()))
