"""Start the observer when torch is imported. Every Python whose `PYTHONPATH` begins with this folder runs this file.

Nothing of `pv` needs to be importable: the observer is loaded from the folder above, under a separate name. Then the
`sitecustomize` that this file hides is run.
"""

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Optional

HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 (pathlib would cost each Python of the run 5 ms)
NAME = "_pv_observe"


def _load_observer() -> None:
    folder = os.path.dirname(HERE)  # noqa: PTH120 (as for HERE)
    place = os.path.join(folder, "__init__.py")  # noqa: PTH118 (as for HERE)
    spec = importlib.util.spec_from_file_location(NAME, place, submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.start_from_environment()


class _TorchLoader:
    """Loads torch as its own loader does, then starts the observer, before any other module sees torch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: object) -> object:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _TorchFinder)]
        self._loader.exec_module(module)
        try:
            _load_observer()
        except Exception as error:
            sys.stderr.write(f"pv: this process is not observed: {type(error).__name__}: {error}\n")


class _TorchFinder:
    """Finds torch as the other finders do, with a loader that starts the observer.

    It stays until torch is imported: libraries look for torch by `importlib.util.find_spec` without importing it.
    """

    _searching = False

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != "torch" or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            loader: Any = _TorchLoader(spec.loader)
            spec.loader = loader
        return spec


if os.environ.get("PV_OBSERVE_TRACE") and "torch" not in sys.modules:
    sys.meta_path.insert(0, _TorchFinder())

_here = next((place for place, entry in enumerate(sys.path) if os.path.realpath(entry or ".") == HERE), -1)
_other_paths = sys.path[_here + 1 :]  # a folder before this one holds a sitecustomize that has run this one
_hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", _other_paths)
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))
