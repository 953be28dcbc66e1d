"""Contracts for training code, attacked.

Everything the command line does is a function here that returns values and never prints or exits.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pv.comparison import compare as compare
    from pv.errors import PvError as PvError
    from pv.linting import lint as lint
    from pv.loading import Loaded as Loaded
    from pv.loading import load as load
    from pv.loading import schema as schema
    from pv.matrix import Comparison as Comparison
    from pv.model import Contract as Contract
    from pv.model import Finding as Finding
    from pv.mutating import mutate as mutate
    from pv.project import Project as Project
    from pv.project import find_project as find_project
    from pv.report import render as render
    from pv.runner import Interrupted as Interrupted
    from pv.runner import validate as validate
    from pv.verdict import Report as Report
    from pv.verdict import Status as Status

__version__ = "0.1.0"

# The hook of every worker and child process passes through here, so nothing is imported before it is asked for.
_HOMES = {
    "Comparison": "matrix",
    "compare": "comparison",
    "PvError": "errors",
    "lint": "linting",
    "Loaded": "loading",
    "load": "loading",
    "schema": "loading",
    "Contract": "model",
    "Finding": "model",
    "mutate": "mutating",
    "Project": "project",
    "find_project": "project",
    "render": "report",
    "Interrupted": "runner",
    "validate": "runner",
    "Report": "verdict",
    "Status": "verdict",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pv.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pv' has no attribute {name!r}")
