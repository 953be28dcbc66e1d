"""Names are resolved to the definitions that they mean, not to all of the same name."""

import ast
from pathlib import Path

from pv.engines.harness.modules import module_of
from pv.engines.harness.names import Names


def reached(text: str, other: str) -> list[str]:
    """The definitions that `start` reaches at once, with their modules."""
    modules = [module_of(name, Path(f"{name}.py"), ast.parse(code)) for name, code in (("one", text), ("two", other))]
    names = Names(modules)
    (start,) = (each for each in modules[0].definitions if each.name == "start")
    return sorted(f"{each.module.name}.{each.name}" for each in names.reached(start))


def test_parameter_hides_a_function_of_its_name() -> None:
    assert reached("def start(step): return step + 1", "def step(): return 0") == []


def test_imported_name_is_that_of_its_module() -> None:
    assert reached("import two\ndef start(n): return two.step(n)", "def step(n): return n\ndef other(): pass") == [
        "two.step"
    ]


def test_method_of_an_annotated_class_is_found() -> None:
    text = "from two import Opt\ndef start(o: Opt): return o.step()"
    assert reached(text, "class Opt:\n    def step(self): return 1") == ["two.step"]
