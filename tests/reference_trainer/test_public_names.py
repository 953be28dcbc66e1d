"""The names that `import reference_trainer` offers."""

import ast
from pathlib import Path

import pytest

import reference_trainer
from tests.support.processes import python

HEAVY = ("click", "numpy", "pydantic", "rich", "safetensors", "torch")
SETTINGS = "from reference_trainer import SettingError, Settings; Settings(epochs=2)"


@pytest.mark.parametrize(("statement", "heavy"), [("import reference_trainer", []), (SETTINGS, ["pydantic"])])
def test_import_of_the_package_imports_nothing_heavy(statement: str, heavy: list[str]) -> None:
    program = f"import sys; {statement}; print(*sorted(sys.modules.keys() & set({HEAVY})))"
    assert python("-c", program).stdout.split() == heavy


def test_public_names_exist_have_a_docstring_and_are_seen_by_type_checkers_and_no_others() -> None:
    assert all(getattr(reference_trainer, name).__doc__ for name in reference_trainer.__all__)
    assert set(reference_trainer.__all__) <= set(dir(reference_trainer))
    tree = ast.parse(Path(reference_trainer.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: getattr(reference_trainer, name).__module__ for name in reference_trainer.__all__}
    with pytest.raises(AttributeError, match=r"^module 'reference_trainer' has no attribute 'kd_los'$"):
        _ = reference_trainer.kd_los
