"""Check the directions of imports between packages, which docs/architecture.md describes."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pv.cli import main
from tests.support.processes import python

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "hypothesis", "pytest", "_pytest", "numpy", "matplotlib", "tensorboard")

# The packages of pv, each with the packages that it may import, which are above it in this table.
PACKAGES: dict[str, str] = {
    "errors": "",
    "contract": "errors",
    "source": "errors contract",
    "instrument": "errors source",
    "observe": "",
    "equations": "contract",
    "suites": "errors instrument equations",
    "engines": "errors contract source observe equations suites",
    "results": "errors contract source engines",
    "linting": "errors contract source equations engines",
    "workers": "errors contract source instrument engines results",
    "mutation": "errors contract source instrument engines results workers",
    "execution": "contract source engines results workers mutation",
    "report": "errors contract equations engines results",
    "commands": "errors contract source observe suites linting results workers mutation execution engines",
    "pytest_plugin": "errors contract source instrument suites engines results workers execution",
    "cli": "errors contract observe results linting mutation report commands",
}
THIRD_PARTIES: dict[str, str] = {
    "contract": "cattrs yaml jsonschema",
    "results": "cattrs jsonschema",
    "equations": "torch",
    "observe": "torch",
    "suites": "accelerate datasets fastai hypothesis ignite lightning tokenizers torch torchdata transformers trl",
    "engines": "crosshair hypothesis torch",
    "workers": "cattrs hypothesis torch",
    "report": "rich",
    "commands": "rich",
    "pytest_plugin": "hypothesis pytest torch",
    "cli": "click",
}

# The same for the packages of the trainer. `storage` reads and writes the models, `training` reads batches from `data`.
TRAINER_PACKAGES: dict[str, str] = {
    "errors": "",
    "interrupts": "",
    "distillation": "errors",
    "config": "errors distillation",
    "models": "errors",
    "data": "errors distillation",
    "storage": "errors interrupts models",
    "plan": "errors distillation",
    "ranks": "errors distillation config models storage plan",
    "callbacks": "errors config distillation plan",
    "training": "errors distillation data plan ranks callbacks",
    "pipeline": "errors interrupts distillation config models data storage plan ranks callbacks training",
    "huggingface": "errors config data distillation models storage plan training pipeline",
    "supervision": "errors interrupts config storage plan callbacks training pipeline",
    "cli": "errors interrupts distillation config models plan callbacks training pipeline supervision",
}


def imported(path: Path) -> Iterator[str]:
    """The absolute names that a file imports, wherever in it; under TYPE_CHECKING too, which is also knowledge."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[1].removesuffix(".py")


def layers(package: str = "pv") -> dict[str, list[Path]]:
    by_layer: dict[str, list[Path]] = {}
    for path in files(package):
        if not layer(path).startswith("__"):
            by_layer.setdefault(layer(path), []).append(path)
    return by_layer


def arrows(paths: list[Path], package: str) -> set[str]:
    """What of `package` the files import, by its first part; a name of the package itself is none of its modules."""
    names = [name.split(".") for path in paths for name in imported(path)]
    return {name[1] for name in names if name[0] == package and len(name) > 1 and not name[1].startswith("__")}


def foreign(paths: list[Path]) -> set[str]:
    tops = {name.split(".")[0] for path in paths for name in imported(path)}
    return tops - set(sys.stdlib_module_names) - {"pv"}


STRANGERS = {"pv": "reference_trainer falsifiers", "falsifiers": "pv"}
STRANGERS["reference_trainer"] = "pv falsifiers hypothesis pytest"


@pytest.mark.parametrize("package", STRANGERS)
def test_a_package_does_not_know_others(package: str) -> None:
    names = [(path, name.split(".")) for path in files(package) for name in imported(path)]
    # Falsifiers use the suites and the observer as a user's adapter does.
    shared = (["pv", "suites"], ["pv", "observe"])
    knowing = [path for path, name in names if name[0] in STRANGERS[package].split() and name[:2] not in shared]
    assert knowing == []


@pytest.mark.parametrize(("package", "imports"), [("pv", PACKAGES), ("reference_trainer", TRAINER_PACKAGES)])
def test_package_imports_only_packages_above(package: str, imports: dict[str, str]) -> None:
    by_layer, order = layers(package), list(imports)
    assert sorted(by_layer) == sorted(order)
    for name in order:
        assert arrows(by_layer[name], package) - {name} <= set(imports[name].split()), name
        assert all(order.index(other) < order.index(name) for other in imports[name].split()), name


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_package_imports_only_its_third_parties(name: str) -> None:
    assert foreign(layers()[name]) <= set(THIRD_PARTIES.get(name, "").split())


def test_code_that_runs_inside_the_subject_is_standard_library() -> None:
    assert foreign([*layers()["instrument"], ROOT / "pv/source/syntax.py", ROOT / "pv/source/digest.py"]) == set()


def modules_of(code: str) -> set[str]:
    """The modules that a new interpreter has loaded once it has run `code`."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    ended = python("-c", script, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.splitlines()[-1].split())


LIGHT = """
import contextlib
import sys
import pv.commands.doctor, pv.commands.new
from pv import load, lint, find_project, render
from pv.cli import main

for line in ("lint", "list", "show --format latex", "schema report", "explain PV101", "explain F-KD-EQUATION-001"):
    with contextlib.suppress(SystemExit):
        main(line.split())
    if heavy := {HEAVY}.intersection(sys.modules):
        sys.exit(f"{line} loads {heavy}")
sys.exit(8)
"""


def test_light_commands_load_nothing_heavy() -> None:
    """One interpreter runs them all, since a start takes as long as a command."""
    ended = python("-c", LIGHT.replace("{HEAVY}", str({*HEAVY})), cwd=ROOT)
    assert ended.returncode == 8, ended.stderr


def test_help_and_version_load_only_the_command_line_and_the_package_nothing_else() -> None:
    lines = [["--help"], ["--version"], *([name, "--help"] for name in main.commands)]
    calls = f"from pv.cli import main; [main(line) for line in {lines}]"
    plain = modules_of("pass")
    modules = modules_of(calls) - plain
    assert {name.split(".")[0] for name in modules} - sys.stdlib_module_names <= {"click", "pv"}
    package_modules = {name for name in modules if name.startswith("pv.") and not name.startswith("pv.cli")}
    assert package_modules <= {"pv.errors", "pv.report", "pv.commands", "pv.commands.terminal"}
    modules = modules_of("import pv") - plain
    assert {name for name in modules if name.split(".")[0] not in sys.stdlib_module_names} == {"pv"}
