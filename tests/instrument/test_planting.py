"""A mutant is planted in imported modules only where that is the same as importing them mutated."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pv.instrument.import_hook import Plan
from tests.instrument.programs import edit, swap, value
from tests.support.processes import python
from tests.support.projects import write

SUBJECT = '''"""A subject, whose functions are used at import in different ways."""
import functools
import inspect

registry = []


def plain(number):
    """Twice a number."""
    return number * 2


def bound(number):
    return number * 2


def bound_early(number):
    return number * 2


def kept(number):
    return number * 2


registry.append(kept)


def called(number):
    return number * 2


AT_IMPORT = called(1)


def inspected(number):
    return number * 2


SIGNATURE = inspect.signature(inspected)


def parameters(number, factor=2):
    return number * factor


def outer(number):
    def inner():
        return number * 2

    return inner()


def decorator(function):
    @functools.wraps(function)
    def wrapper(number):
        return function(number)

    return wrapper


@decorator
def wrapped(number):
    return number * 2


@functools.cache
def cached(number):
    return number * 2


class Counter:
    step = 2

    def twice(self, number):
        return number * 2

    @property
    def both(self):
        return self.step * 2

    @staticmethod
    def static(number):
        return number * 2


import circular  # noqa: E402
'''
FILES = {
    "subject.py": SUBJECT,
    "circular.py": "from subject import bound_early\n",
    "user.py": "import subject, circular\nfrom subject import bound, plain as renamed\n",
    "other.py": "def triple(number):\n    return number * 3\n",
    "importing.py": "from subject import bound\n\n\ndef around(original, number):\n    return bound(number) + 1\n",
}
PROGRAM = """
import json, os, sys
from pathlib import Path
from pv.instrument import processes
from pv.instrument.import_hook import Plan
from pv.instrument.planting import NotPlantable

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
os.chdir(folder)
for name in ("clean", "planted"):
    (folder / name).mkdir()
base = dict(roots=(str(folder),), root=str(folder), covered=("subject",))
base["packages"] = ("subject", "circular", "user", "other", "importing")
_, watched = processes.watch(Plan(**base, log=str(folder / "clean" / "log")), folder)
import user
watched.stay(frozenset())
for text, expression in json.loads(sys.argv[2]):
    plan = Plan.from_json(json.dumps({**json.loads(text), **base, "log": str(folder / "planted" / "log")}))
    if not os.fork():
        try:
            processes.resume(plan)[1].plant()
            print(json.dumps(eval(expression, {"subject": user.subject, "user": user, "circular": user.circular})))
        except NotPlantable:
            print(json.dumps("not plantable"))
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
REFUSED = "not plantable"
CASES: Mapping[str, tuple[Plan, str, Any]] = {
    "body": (edit("plain", "2", "3"), "subject.plain(2)", 6),
    "bound by another module": (edit("bound", "2", "3"), "user.bound(2)", 6),
    "kept in a list": (edit("kept", "2", "3"), "subject.registry[0](2)", 6),
    "inner function": (edit("outer", "2", "3"), "subject.outer(2)", 6),
    "wrapped function": (edit("wrapped", "2", "3"), "subject.wrapped(2)", 6),
    "method": (edit("Counter.twice", "2", "3"), "subject.Counter().twice(2)", 6),
    "property": (edit("Counter.both", "2", "3"), "subject.Counter().both", 6),
    "static method": (edit("Counter.static", "2", "3"), "subject.Counter.static(2)", 6),
    "swap": (swap("plain", "other:triple"), "[subject.plain(2), user.renamed(2)]", [6, 6]),
    "swap of a method": (swap("Counter.static", "other:triple"), "subject.Counter.static(2)", 6),
    "called at import": (edit("called", "2", "3"), "subject.AT_IMPORT", REFUSED),
    "inspected at import": (edit("inspected", "2", "3"), "subject.inspected(2)", REFUSED),
    "default value": (edit("parameters", "2", "3"), "subject.parameters(2)", REFUSED),
    "class body": (edit("Counter.step", "2", "3"), "subject.Counter().both", REFUSED),
    "module body": (edit("AT_IMPORT", "1", "3"), "subject.AT_IMPORT", REFUSED),
    "docstring": (edit("plain", "'Twice a number.'", "'None'"), "subject.plain(2)", REFUSED),
    "swap of a kept function": (swap("kept", "other:triple"), "subject.registry[0](2)", REFUSED),
    "swap of a called function": (swap("called", "other:triple"), "subject.AT_IMPORT", REFUSED),
    "swap after a circular import": (swap("bound_early", "other:triple"), "circular.bound_early(2)", REFUSED),
    "swap of a class": (swap("Counter", "other:triple"), "1", REFUSED),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Plant every case in a fork of one process, and return the values by case."""
    folder = tmp_path_factory.mktemp("planted")
    write(folder, FILES)
    cases = [(json.dumps(asdict(plan)), expression) for plan, expression, _ in CASES.values()]
    lines = python("-c", PROGRAM, str(folder), json.dumps(cases)).stdout.splitlines()
    return dict(zip(CASES, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_mutant_is_planted_only_where_no_import_can_have_seen_the_code(case: str, planted: Mapping[str, Any]) -> None:
    assert planted[case] == CASES[case][2]


@pytest.mark.parametrize("case", ["bound by another module", "wrapped function", "swap", "swap of a method"])
def test_a_planted_mutant_has_the_effect_of_one_at_import(case: str, tmp_path: Path) -> None:
    write(tmp_path, FILES)
    plan, expression, expected = CASES[case]
    assert value(plan, tmp_path, f"import subject, user\nshow({expression})") == expected
