"""Found by every Python that a worker starts: installs the import hook, then runs the sitecustomize it hides."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if importlib.util.find_spec("pv") is None:
    sys.path.append(str(HERE.parents[2]))

from pv.instrument.processes import install_from_environment  # noqa: E402  (the lines above make pv importable)

install_from_environment()

# Search only the folders after this one: the observer of a command is in a folder before it, and has run already.
_here = next((place for place, entry in enumerate(sys.path) if Path(entry or ".").resolve() == HERE), -1)
_others = sys.path[_here + 1 :]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
