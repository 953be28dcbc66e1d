"""Attacks on the names that `import reference_trainer` offers. The subject is the package, `reference_trainer`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

HEAVY = ("click", "numpy", "pydantic", "rich", "safetensors", "torch")


def _imported_by(statement: str) -> list[str]:
    """Return the heavy packages that a new interpreter imports for a statement."""
    program = f"import sys; {statement}; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{statement!r} ends with {ended.stderr!r}"
    return ended.stdout.split()


def falsify_import_is_light(subject: Any) -> None:
    """The package imports nothing heavy; the settings import pydantic, and never torch."""
    name = subject.__name__
    imported = _imported_by(f"import {name}")
    assert imported == [], f"`import {name}` imports {imported}; expected none of {HEAVY}"
    imported = _imported_by(f"from {name} import SettingError, Settings; Settings(epochs=2)")
    assert imported == ["pydantic"], f"the settings import {imported}; expected pydantic alone"


def falsify_public_names_are_documented(subject: Any) -> None:
    """Each name in `__all__` is public in its module too, has a docstring, and is listed by `dir`."""
    assert len(subject.__all__) > 30 and len(set(subject.__all__)) == len(subject.__all__), f"{subject.__all__}"
    for name in subject.__all__:
        value = getattr(subject, name)
        module = importlib.import_module(value.__module__)
        assert value.__name__ == name in module.__all__, f"{name} is {value!r}, and not public in {module.__name__}"
        documented = value.__doc__ and not value.__doc__.startswith(f"{name}(")  # as dataclasses describe themselves
        assert documented, f"{name} has the docstring {value.__doc__!r}"
    missing = {*subject.__all__, "__version__", "__doc__"} - set(dir(subject))
    assert not missing, f"dir({subject.__name__}) lacks {missing}"


def falsify_other_names_are_attribute_errors(subject: Any) -> None:
    """A name that is not exported is an `AttributeError` of the package, so `hasattr` works."""
    for name in ("nonsense", "kd_los", "Setting", "PACKAGES"):
        try:
            value = getattr(subject, name)
        except AttributeError as error:
            expected = f"module {subject.__name__!r} has no attribute {name!r}"
            assert str(error) == expected, f"{name}: {error}; expected {expected!r}"
        else:
            raise AssertionError(f"{subject.__name__}.{name} is {value!r}; expected an AttributeError")
