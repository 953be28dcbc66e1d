"""Start the observer when torch is imported, if `PV_OBSERVE_TRACE` is set.

Python runs this file at its start if `PYTHONPATH` contains this folder.

`pv` does not need to be importable: the observer is loaded from the parent folder under a separate name. Python runs
only the first `sitecustomize` on `sys.path`. So this file ends by running the next `sitecustomize`, if there is one.
"""

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Optional

HERE = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 (importing pathlib takes 5 ms in each Python of the run)
NAME = "_pv_observe"
"""The name of the package `pv.observe` in this process."""


def _load_observer() -> None:
    """Import the observer package under `NAME`, and start the observer."""
    folder = os.path.dirname(HERE)  # noqa: PTH120 (as for HERE)
    path = os.path.join(folder, "__init__.py")  # noqa: PTH118 (as for HERE)
    spec = importlib.util.spec_from_file_location(NAME, path, submodule_search_locations=[folder])
    assert spec is not None and spec.loader is not None
    module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.start_from_environment()


class _TorchLoader:
    """Loads torch with its original loader, then starts the observer before any other module can use torch."""

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
    """Finds torch with the other finders, and replaces its loader by a `_TorchLoader`.

    The finder stays installed until torch is imported, because libraries call `importlib.util.find_spec("torch")`
    without importing torch.
    """

    _searching = False
    """Whether this finder runs a search by all finders. Such a search also calls this finder."""

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

# Search only the folders after this folder: Python ran an earlier `sitecustomize`, if any, before this file.
_position = next((i for i, entry in enumerate(sys.path) if os.path.realpath(entry or ".") == HERE), -1)
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[_position + 1 :])
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
