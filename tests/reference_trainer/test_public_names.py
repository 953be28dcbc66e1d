"""The names that `import reference_trainer` offers."""

import ast
import subprocess
import sys
from pathlib import Path

import reference_trainer


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
