"""Test contracts of training code: attack each claim, and report which claims held.

The functions here return values and never print or exit.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pv.commands.compare import compare as compare
    from pv.commands.conformance import check as check
    from pv.commands.mutate import mutate as mutate
    from pv.commands.observed import ObservedRun as ObservedRun
    from pv.commands.observed import check_run as check_run
    from pv.commands.validate import Interrupted as Interrupted
    from pv.commands.validate import validate as validate
    from pv.contract.finding import Finding as Finding
    from pv.contract.load import Loaded as Loaded
    from pv.contract.load import load as load
    from pv.contract.load import schema as schema
    from pv.contract.model import Contract as Contract
    from pv.errors import PvError as PvError
    from pv.linting import lint as lint
    from pv.observe import recording
    from pv.pytest_plugin.suites import suite as suite
    from pv.report import render as render
    from pv.results.comparison import Comparison as Comparison
    from pv.results.verdict import Report as Report
    from pv.results.verdict import Status as Status
    from pv.source.project import Project as Project
    from pv.source.project import find_project as find_project

    observe = recording  # for type checkers: `pv.observe()`, a call of the module, calls `recording`

__version__ = "0.3.0"

# The module of every public name, below `pv`. It is imported when the name is first used, and not here, because every
# worker and child process imports `pv`.
_MODULES = {
    "Comparison": "results.comparison",
    "check": "commands.conformance",
    "check_run": "commands.observed",
    "ObservedRun": "commands.observed",
    "compare": "commands.compare",
    "PvError": "errors",
    "lint": "linting",
    "Loaded": "contract.load",
    "load": "contract.load",
    "schema": "contract.load",
    "Contract": "contract.model",
    "Finding": "contract.finding",
    "mutate": "commands.mutate",
    "Project": "source.project",
    "find_project": "source.project",
    "render": "report",
    "suite": "pytest_plugin.suites",
    "Interrupted": "commands.validate",
    "validate": "commands.validate",
    "Report": "results.verdict",
    "Status": "results.verdict",
}

__all__ = sorted([*_MODULES, "observe"])


def __getattr__(name: str) -> object:
    if name == "observe":  # a module that is also callable: `pv.observe()`
        return import_module("pv.observe")
    if name in _MODULES:
        return getattr(import_module(f"pv.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'pv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
