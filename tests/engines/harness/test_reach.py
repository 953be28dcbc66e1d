"""Reach is an upper bound: what names resolve to, and what objects of unknown class may be asked for."""

import ast
from pathlib import Path

from pv.engines.harness.modules import Module, module_of
from pv.engines.harness.names import Names
from pv.engines.harness.reach import reached


def module(name: str, text: str) -> Module:
    return module_of(name, Path(f"{name}.py"), ast.parse(text))


def names(modules: list[Module], start: str) -> list[str]:
    return [d.name for d in reached(Names(modules), modules[0].path, start).all]


def test_call_is_followed_across_files_and_aliases() -> None:
    one = module("one", "from two import double as twice\ndef start(n): return twice(n)\ndef other(n): return n\n")
    two = module("two", "FACTOR = 2\ndef double(n): return n * FACTOR\n")
    assert names([one, two], "start") == ["start", "FACTOR", "double"]


def test_class_brings_its_methods() -> None:
    one = module("one", "def start(): return Counter()\nclass Counter:\n    def add(self): pass\ndef add(): pass\n")
    assert names([one], "start") == ["start", "Counter", "add"]


def test_definitions_inside_blocks_are_found() -> None:
    text = "try:\n    import fast\nexcept ImportError:\n    def slow(n): return n\ndef start(n): return slow(n)\n"
    one = module("one", text)
    assert names([one], "start") == ["slow", "start"]


def test_recursion_ends() -> None:
    one = module("one", "def start(n): return again(n)\ndef again(n): return start(n)\n")
    assert names([one], "start") == ["start", "again"]


def test_imports_of_a_function_add_to_those_of_its_module() -> None:
    one = module("one", "import os\ndef start():\n    from random import random as draw\n    return draw()\n")
    (start,) = reached(Names([one]), one.path, "start").sure
    assert start.imported == {"os": "os", "draw": "random.random"}
