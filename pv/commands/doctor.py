"""Check whether contracts can run on this machine, in this environment and project. Imports no library under test."""

import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from pv import __version__
from pv.commands.new import SCHEMA_FILE
from pv.contract.check import schema
from pv.contract.finding import Severity
from pv.contract.load import load, shown_path
from pv.contract.model import Contract
from pv.contract.wording import count
from pv.errors import PvError, WorkerLost
from pv.linting import lint
from pv.source.project import Project, find_project
from pv.workers import device, tasks
from pv.workers.pool import Pool, cores, default_jobs

DISTRIBUTION = "pv-contracts"
USER_EXTRAS = ("trainer", "symbolic", "plot", "tensorboard")
"""The extras for users; other extras are for development of `pv`."""
# A requirement in the metadata of a package: `torch>=2.6,<3; extra == "trainer"`.
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(?P<range>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")


@dataclass(frozen=True, slots=True)
class Package:
    """A required package.

    Attributes:
        name: The name of the distribution.
        requirement: The requirement as pip reads it.
        oldest: The oldest version that is accepted.
        installed: The installed version; "" if it is not installed.
    """

    name: str
    requirement: str
    oldest: str
    installed: str

    @property
    def usable(self) -> bool:
        """Return whether the package is installed, and not too old."""
        return bool(self.installed) and _release(self.installed) >= _release(self.oldest)


def required_packages() -> tuple[Package, ...]:
    """Return the packages that every installation needs."""
    return tuple(package for extra, package in _requirements() if not extra)


def optional_packages() -> dict[str, tuple[Package, ...]]:
    """Return the packages of each extra for users."""
    requirements = list(_requirements())
    return {extra: tuple(package for name, package in requirements if name == extra) for extra in USER_EXTRAS}


def _requirements() -> Iterator[tuple[str, Package]]:
    """Yield every required package with its extra; "" for packages that every installation needs."""
    for text in requires(DISTRIBUTION) or ():
        if match := _REQUIREMENT.match(text):
            oldest = re.search(r">=\s*([\w.]+)", match["range"])
            requirement = f"{match['name']}{match['range']}".strip()
            package = Package(match["name"], requirement, oldest[1] if oldest else "0", _find_version(match["name"]))
            yield match["extra"] or "", package


def _find_version(name: str) -> str:
    """Return the version of an installed distribution, "" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, such as (2, 13, 0) for 2.13.0+cpu."""
    start = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, start[0].split("."))) if start else ()


OLDEST_PYTHON = (3, 11)
MIN_FREE_MIB = 512
MIB = 1 << 20


class Level(Enum):
    """The result of a check; only a problem prevents validations."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `remedy` says what to do, "" if nothing needs to be done."""

    topic: str
    level: Level
    text: str
    remedy: str = ""

    @property
    def lines(self) -> list[str]:
        """Return the check as text, with its remedy below."""
        below = [f"{'':20}{self.remedy}"] if self.remedy else []
        return [f"{self.level.value:<8} {self.topic:<10} {self.text}", *below]


def doctor(start: Path | None = None, *, spawn: bool = False) -> tuple[Check, ...]:
    """Check the installation, the machine and a project.

    Args:
        start: A folder in the project (default: the working directory).
        spawn: Start workers in new interpreters.
    """
    checks = [*_versions(), *_extras(), *_limits()]
    try:
        project = find_project(start or Path.cwd())
    except PvError as error:
        return (*checks, Check("project", Level.PROBLEM, str(error)))
    checks += _project(project)
    return (*checks, *_workers(project, spawn))


def _versions() -> Iterator[Check]:
    yield Check("pv", Level.OK, f"{__version__}, {Path(__file__).resolve().parents[1]}")
    old = sys.version_info[:2] < OLDEST_PYTHON
    text = f"{platform.python_version()}, {sys.executable}"
    yield Check("python", Level.PROBLEM if old else Level.OK, text, "use Python 3.11 or newer" if old else "")
    linux = sys.platform == "linux"
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Check("system", Level.OK if linux else Level.PROBLEM, system, "" if linux else "pv needs Linux")
    for package in required_packages():
        yield _package(package, Level.PROBLEM)


def _package(package: Package, level: Level) -> Check:
    if package.usable:
        return Check("package", Level.OK, f"{package.name} {package.installed}")
    state = f"{package.installed} is older than {package.oldest}" if package.installed else "is not installed"
    return Check("package", level, f"{package.name} {state}", f"pip install '{package.requirement}'")


def _extras() -> Iterator[Check]:
    """Yield a check of the packages of each extra. Extras are optional, so a missing package is never a problem."""
    for extra, packages in optional_packages().items():
        missing = [package.name for package in packages if not package.usable]
        if missing:
            remedy = f"pip install 'pv-contracts[{extra}]', or in a clone pip install '.[{extra}]'"
            yield Check("extra", Level.NOTE, f"{extra}: missing {', '.join(missing)}", remedy)
        else:
            shown = ", ".join(f"{package.name} {package.installed}" for package in packages)
            yield Check("extra", Level.OK, f"{extra}: {shown}")


def _limits() -> Iterator[Check]:
    """Yield the checks of cores, memory, disk and number of processes."""
    yield Check("cores", Level.OK, f"{cores()}, so {default_jobs()} workers at a time; `--jobs N` changes this")
    free, needed = _free_memory_mib(), tasks.MEMORY_MIB
    text = f"{free} MiB available; a task may use {needed} MiB, on CUDA {tasks.CUDA_MEMORY_MIB} MiB"
    low = 0 < free < needed
    yield Check("memory", Level.NOTE if low else Level.OK, text, "use `--jobs 1`" if low else "")
    folder = Path(tempfile.gettempdir())
    disk = shutil.disk_usage(folder).free // MIB
    full = disk < MIN_FREE_MIB
    remedy = "free some space, or set TMPDIR" if full else ""
    yield Check("disk", Level.PROBLEM if full else Level.OK, f"{disk} MiB free in {folder}", remedy)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    # A task may start dozens of threads, and Linux counts threads as processes of the user.
    few = processes != resource.RLIM_INFINITY and processes < 64 * default_jobs()
    shown = "unlimited" if processes == resource.RLIM_INFINITY else str(processes)
    yield Check(
        "processes", Level.NOTE if few else Level.OK, f"{shown} for this user", "raise `ulimit -u`" if few else ""
    )


def _free_memory_mib() -> int:
    """Return the available memory of the machine, or of the container if that is less, in MiB; 0 if unknown."""
    limits_mib: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits_mib.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) // 1024)
    # Inside a container, the limit of the control group (version 2) applies too.
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        limits_mib.append(max(limit - used, 0) // MIB)
    return min(limits_mib, default=0)


def _project(project: Project) -> Iterator[Check]:
    text = f"{project.root}, roots {', '.join(map(str, project.roots))}"
    if not project.declared and not any(path.exists() for path in project.contracts):
        yield Check("project", Level.OK, text)
        yield Check("contracts", Level.OK, "none; `pv check` needs no contract, and `pv new` writes one")
        return
    remedy = "" if project.declared else "a [tool.pv] table in pyproject.toml sets the folders; `pv new` writes one"
    yield Check("project", Level.OK if project.declared else Level.NOTE, text, remedy)
    for path in (*project.roots, *project.contracts):
        if not path.is_dir() and not path.is_file():
            remedy = "create it, or write a contract with `pv new`"
            yield Check("project", Level.NOTE, f"no such file or folder: {path}", remedy)
    loaded = load(path for path in project.contracts if path.exists())
    findings = [*loaded.findings, *lint(loaded.contracts, project=project)]
    bad = [finding for finding in findings if finding.severity is not Severity.NOTICE]
    errors = count(len(bad), "error")
    yield Check(
        "contracts",
        Level.PROBLEM if bad else Level.OK,
        f"{len(loaded.contracts)} readable, {errors}",
        "run `pv lint`" if bad else "",
    )
    yield from _outdated_schemas(project)
    yield from _missing_packages(project, loaded.contracts)


def _outdated_schemas(project: Project) -> Iterator[Check]:
    """Yield a note for every copy of the contract schema that differs from the schema of this version."""
    import json

    for folder in project.contracts:
        copy = folder / SCHEMA_FILE
        with suppress(OSError, ValueError):
            if json.loads(copy.read_text(encoding="utf-8")) != schema("contract"):
                shown = shown_path(copy)
                yield Check("schema", Level.NOTE, f"{shown} is of another version", f"pv schema > {shown}")


def _missing_packages(project: Project, contracts: tuple[Contract, ...]) -> Iterator[Check]:
    """Yield a problem for every missing package that the subjects, tests, runs or engines of the claims need."""
    with suppress(PvError, LookupError):  # lint says what cannot be resolved
        strict = [contract for contract in contracts if contract.strict]
        subjects = {contract.subject_of(claim) for contract in strict for claim in contract.claims}
        imported = {name.partition(".")[0] for name in tasks.preload(project, strict, subjects)}
        for name in sorted(name for name in imported if find_spec(name) is None):
            text = f"{name} is not installed, and claims of this project need it"
            yield Check("package", Level.PROBLEM, text, f"install the package that provides `import {name}`")


def _workers(project: Project, spawn: bool) -> Iterator[Check]:
    """Start a worker as a validation does. The worker looks for the devices, so this process never imports torch."""
    torch = ["torch"] if find_spec("torch") is not None else []
    preload = [*tasks.ALWAYS_LOADED, *torch]
    try:
        with Pool(preload, 1, spawn=spawn) as pool:
            available, unavailable = device.find(pool, project, ("cpu", "cuda"), None)
            note = pool.note
    except (WorkerLost, OSError) as error:
        yield Check("workers", Level.PROBLEM, f"no worker could be started: {error}", "report this output as a bug")
        return
    text = note or f"fork server, {'with torch loaded once' if torch else 'without torch'}"
    yield Check("workers", Level.NOTE if note else Level.OK, text, "every task takes a second longer" if note else "")
    for name, info in available.items():
        shown = " ".join(part for part in (info.name, f"torch {info.torch}" if info.torch else "") if part)
        yield Check("device", Level.OK, f"{name}: {shown or 'without torch'}")
    for name, reason in unavailable.items():
        level = Level.PROBLEM if name == "cpu" else Level.NOTE
        yield Check("device", level, f"{name}: {reason}", "claims on this device count as not measured")
