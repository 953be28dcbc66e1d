"""The tests of a module are found by its name: `pv/ROOM/MODULE.py` by `tests/ROOM/test_MODULE*.py`."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Python imports it by its place alone; `tests/instrument/test_import_hook_installing.py` starts processes that do.
STARTED_BY_PYTHON = "pv/instrument/site"
ROOMS = sorted(path.name for path in (ROOT / "pv").iterdir() if path.is_dir() and any(path.glob("*.py")))


def modules(room: str) -> list[Path]:
    """Return the modules of a room of `pv`, but for `__init__` and `__main__`; "" for those at its top."""
    found = (ROOT / "pv" / room).rglob("*.py") if room else (ROOT / "pv").glob("*.py")
    return sorted(p for p in found if not p.stem.startswith("__") and p.parent != ROOT / STARTED_BY_PYTHON)


def has_tests(module: Path) -> bool:
    folder = ROOT / "tests" / module.relative_to(ROOT / "pv").parent
    return any(folder.glob(f"test_{module.stem}.py")) or any(folder.glob(f"test_{module.stem}_*.py"))


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_every_module_has_a_test_module_of_its_name(room: str) -> None:
    assert modules(room) != []
    assert [str(module.relative_to(ROOT)) for module in modules(room) if not has_tests(module)] == []
