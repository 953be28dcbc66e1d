"""The names that `import reference_trainer` offers."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import reference_trainer

HEAVY = ("click", "numpy", "pydantic", "rich", "safetensors", "torch")


def imported_by(statement: str) -> list[str]:
    """Return the heavy packages that a new interpreter imports for a statement."""
    program = f"import sys; {statement}; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_of_the_package_imports_nothing_heavy() -> None:
    assert imported_by("import reference_trainer") == []


def test_settings_import_pydantic_alone() -> None:
    statement = "from reference_trainer import SettingError, Settings; Settings(epochs=2)"
    assert imported_by(statement) == ["pydantic"]


def test_each_public_name_is_public_in_its_module() -> None:
    assert len(reference_trainer.__all__) == len(set(reference_trainer.__all__)) > 30
    for name in reference_trainer.__all__:
        value = getattr(reference_trainer, name)
        assert value.__name__ == name in importlib.import_module(value.__module__).__all__
        assert not value.__doc__.startswith(f"{name}(")  # as dataclasses describe themselves
    assert {"__version__", "__doc__"} <= set(dir(reference_trainer))


@pytest.mark.parametrize("name", ["nonsense", "kd_los", "Setting", "PACKAGES"])
def test_other_names_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'reference_trainer' has no attribute '{name}'$"):
        getattr(reference_trainer, name)


def test_import_is_light_and_names_are_imported_at_first_use() -> None:
    program = (
        "import sys, reference_trainer; before = set(sys.modules); reference_trainer.kd_loss;"
        "print(sorted(before & {'torch', 'pydantic', 'numpy'}), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[] True\n", "")


def test_each_public_name_exists_and_has_a_docstring() -> None:
    for name in reference_trainer.__all__:
        assert getattr(reference_trainer, name).__doc__, name
    assert set(reference_trainer.__all__) <= set(dir(reference_trainer))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(reference_trainer.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: getattr(reference_trainer, name).__module__ for name in reference_trainer.__all__}
