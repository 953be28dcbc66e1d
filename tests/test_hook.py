"""A mutant is planted before anything of its module runs, here and in every process that a falsifier starts.

Each test runs a program in an interpreter of its own, as a worker's child would: by the environment alone.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.hook import Hook, Plan, broken, install, reached

ROOT = Path(__file__).parents[1]
SITE = ROOT / "pv" / "workers" / "site"
SUBJECT = '''"""A subject."""
from __future__ import annotations

import functools

SCALE = 2


def scaled(function):
    """Multiplies what the function gives."""

    @functools.wraps(function)
    def inner(number):
        return function(number) * SCALE

    return inner


def default():
    return 10


@scaled
def decorated(number, extra=default()):
    # a remark
    return (
        number
        + extra
    )


def double(number):
    return number * 2


def fails(number):
    below = [
        number,
        number,
    ]
    raise ValueError(below)


def lines(number):
    yield double(number)


class Counter:
    """Counts."""

    step = 1
    both = step + default()

    @property
    def next(self):
        return self.step + 1

    @staticmethod
    def twice(number):
        return double(number)


if __name__ == "__main__":
    print(double(3))
'''
OTHER = "def triple(number):\n    return number * 3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "subject.py").write_text(SUBJECT, encoding="utf-8")
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8")
    return tmp_path


def edit(name: str, find: str, replace: str, **fields: Any) -> Plan:
    return Plan(module="subject", name=name, find=find, replace=replace, **fields)


def swap(name: str, by: str, **fields: Any) -> Plan:
    return Plan(module="subject", name=name, swap_with=by, **fields)


def environment(plan: Plan, folder: Path, *first: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, [SITE, *first, folder]))
    return {**os.environ, "PV_HOOK": plan.to_json(), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def ran(plan: Plan, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(plan, folder), capture_output=True, text=True, timeout=60
    )


def value(plan: Plan, folder: Path, code: str) -> Any:
    """What the program prints, as JSON; `show` prints it."""
    script = f"import json\ndef show(value): print(json.dumps(value))\n{code}"
    (folder / "program.py").write_text(script, encoding="utf-8")
    ended = ran(plan, folder, "program.py")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("plan", "code", "clean", "mutated"),
    [
        (edit("double", "number * 2", "number * 3"), "subject.double(2)", 4, 6),
        (edit("scaled", "function(number) * SCALE", "function(number)"), "subject.decorated(1)", 22, 11),
        (edit("scaled.inner", "SCALE", "SCALE + 1"), "subject.decorated(1)", 22, 33),
        (edit("SCALE", "2", "5"), "subject.decorated(1)", 22, 55),
        (edit("default", "10", "0"), "subject.decorated(1)", 22, 2),
        (edit("default", "10", "0"), "subject.Counter.both", 11, 1),
        (edit("decorated", "default()", "0"), "subject.decorated(1)", 22, 2),
        (edit("decorated", "scaled", "functools.cache"), "subject.decorated(1)", 22, 11),
        (edit("Counter.step", "1", "3"), "subject.Counter.both", 11, 13),
        (edit("Counter.next", "self.step + 1", "self.step"), "subject.Counter().next", 2, 1),
        (edit("lines", "yield double(number)", "yield 0"), "list(subject.lines(2))", [4], [0]),
        (swap("double", "other:triple"), "subject.double(2)", 4, 6),
        (swap("double", "other:triple"), "subject.Counter.twice(2)", 4, 6),
        (swap("Counter.twice", "other:triple"), "subject.Counter.twice(2)", 4, 6),
    ],
)
def test_a_mutant_reaches_all_code_of_its_module(plan: Plan, code: str, clean: Any, mutated: Any, folder: Path) -> None:
    program = f"import subject\nshow({code})"
    assert value(Plan(), folder, program) == clean
    assert value(plan, folder, program) == mutated


@pytest.mark.parametrize("plan", [edit("double", "2", "3"), swap("double", "other:triple")], ids=["edit", "swap"])
@pytest.mark.parametrize(
    "program",
    [
        "from subject import double\nshow(double(2))",
        "from subject import *\nshow(double(2))",
        "import subject as s\nshow(s.double(2))",
        "import importlib\nshow(importlib.import_module('subject').double(2))",
        "import importlib, subject\nshow(importlib.reload(subject).double(2))",
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-c', 'import subject; print(subject.double(2))']\n"
        "show(int(subprocess.check_output(command)))",
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-c', 'import subject; print(subject.double(2))']\n"
        "show(int(subprocess.check_output(command, cwd='/')))",
        "import subject, os\n"
        "down, up = os.pipe()\n"
        "if os.fork() == 0:\n    os.write(up, str(subject.double(2)).encode())\n    os._exit(0)\n"
        "os.wait()\nshow(int(os.read(down, 9)))",
    ],
    ids=["from", "star", "as", "importlib", "reload", "child", "child elsewhere", "fork"],
)
def test_a_mutant_is_seen_however_it_is_imported(plan: Plan, program: str, folder: Path) -> None:
    assert value(plan, folder, program) == 6


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_mutant_reaches_multiprocessing(method: str, folder: Path) -> None:
    program = (
        "import multiprocessing, subject\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(1) as pool:\n"
        "        show(pool.map(subject.double, [1, 2]))\n"
    )
    assert value(edit("double", "2", "3"), folder, program) == [3, 6]


def test_a_mutant_reaches_a_module_that_is_run(folder: Path) -> None:
    ended = ran(edit("double", "2", "3"), folder, "-m", "subject")
    assert (ended.stdout, ended.stderr) == ("9\n", "")


def test_a_module_of_a_package_is_mutated_and_its_neighbours_are_not(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("from package.inner import f\n")
    (folder / "package" / "inner.py").write_text("def f():\n    return 1\n")
    (folder / "package" / "outer.py").write_text("def f():\n    return 1\n")
    plan = Plan(module="package.inner", name="f", find="1", replace="2")
    program = "import package, package.outer\nshow([package.f(), package.outer.f()])"
    assert value(plan, folder, program) == [2, 1]


def test_a_compiled_copy_of_the_module_is_not_used(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True, timeout=60)
    assert value(edit("double", "2", "3"), folder, "import subject\nshow(subject.double(2))") == 6


def test_a_mutated_module_leaves_no_compiled_copy(folder: Path) -> None:
    settings = environment(edit("double", "2", "3"), folder)
    settings.pop("PYTHONDONTWRITEBYTECODE")
    command = [sys.executable, "-c", "import subject; assert subject.double(2) == 6"]
    subprocess.run(command, cwd=folder, env=settings, check=True, timeout=60)
    assert value(Plan(), folder, "import subject\nshow(subject.double(2))") == 4


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (edit("double", "number * 4", "0"), "'number * 4' occurs 0 times in 'double'; it must occur exactly once"),
        (edit("treble", "number", "0"), "there is no 'treble'"),
        (swap("treble", "other:triple"), "subject has no 'treble'"),
        (swap("double", "other:treble"), "other:treble can't be loaded: module 'other' has no attribute 'treble'"),
        (swap("double", "nobody:treble"), "nobody:treble can't be loaded: No module named 'nobody'"),
    ],
)
def test_a_mutant_that_does_not_apply_breaks_the_import(plan: Plan, says: str, folder: Path) -> None:
    program = (
        "from pv.errors import BrokenMutant\n"
        "try:\n    import subject\nexcept BrokenMutant as error:\n    show(str(error))\nelse:\n    show('imported')"
    )
    assert value(plan, folder, program) == says


def log_of(folder: Path, plan: Plan) -> tuple[frozenset[str], bool]:
    """What the parent reads once its children have ended; nothing was reached in the parent itself."""
    return reached(Hook(plan))


def logged(folder: Path, **fields: Any) -> Plan:
    return edit("double", "2", "3", log=str(folder / "log.jsonl"), probe=("subject",), **fields)


def test_a_probe_notes_each_function_that_ran_and_no_other(folder: Path) -> None:
    plan = logged(folder)
    program = "import subject\nlist(subject.lines(2)), subject.Counter().next, subject.decorated(1)\nshow(0)"
    assert value(plan, folder, program) == 0
    assert log_of(folder, plan) == (
        frozenset(
            f"subject:{name}"
            for name in ("scaled", "scaled.inner", "default", "decorated", "double", "lines", "Counter.next")
        ),
        True,
    )


def test_importing_alone_reaches_only_what_importing_runs(folder: Path) -> None:
    plan = logged(folder)
    value(plan, folder, "import subject\nshow(0)")
    assert log_of(folder, plan)[0] == {"subject:scaled", "subject:default"}


def test_a_generator_that_is_never_asked_is_not_reached(folder: Path) -> None:
    plan = logged(folder)
    value(plan, folder, "import subject\nsubject.lines(2)\nshow(0)")
    assert "subject:lines" not in log_of(folder, plan)[0]


def test_a_mutant_that_is_never_imported_is_void(folder: Path) -> None:
    plan = logged(folder)
    value(plan, folder, "import other\nshow(0)")
    assert log_of(folder, plan) == (frozenset(), False)


LEAVING = {
    "an exception": "raise KeyError",
    "sys.exit": "sys.exit(3)",
    "os._exit": "os._exit(3)",
    "its end": "pass",
}


@pytest.mark.parametrize("way", LEAVING)
def test_what_a_child_reached_is_noted_whichever_way_it_leaves(way: str, folder: Path) -> None:
    plan = logged(folder)
    child = f"import os, sys, subject; subject.double(1); exec({LEAVING[way]!r})"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], capture_output=True)\nshow(0)"
    value(plan, folder, program)
    found, applied = log_of(folder, plan)
    assert ("subject:double" in found, applied) == (True, True)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_what_multiprocessing_reached_is_noted(method: str, folder: Path) -> None:
    plan = logged(folder)
    program = (
        "import multiprocessing, subject\n"
        "if __name__ == '__main__':\n"
        f"    child = multiprocessing.get_context('{method}').Process(target=subject.double, args=(1,))\n"
        "    child.start()\n    child.join()\n    show(child.exitcode)\n"
    )
    assert value(plan, folder, program) == 0
    assert "subject:double" in log_of(folder, plan)[0]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (edit("double", "number * 4", "0"), "'number * 4' occurs 0 times in 'double'; it must occur exactly once"),
        (swap("treble", "other:triple"), "subject has no 'treble'"),
        (edit("double", "2", "3"), ""),
    ],
)
def test_a_child_notes_that_a_mutant_could_not_be_planted(plan: Plan, says: str, folder: Path) -> None:
    plan = replace(plan, log=str(folder / "log.jsonl"))
    ran(plan, folder, "-c", "import subject")
    assert broken(Hook(plan)) == says
    assert reached(Hook(plan))[1] == (says == "")


def test_a_child_finds_a_package_of_the_project_before_an_installed_one(folder: Path) -> None:
    for home, name in ((folder, "mine"), (folder / "elsewhere", "theirs")):
        (home / "package").mkdir(parents=True)
        (home / "package" / "module.py").write_text(f"NAME = {name!r}\n")
    (folder / "elsewhere" / "package" / "__init__.py").write_text("")
    plan = Plan(packages=("package",), roots=(str(folder),))
    settings = environment(plan, folder, folder / "elsewhere")
    command = [sys.executable, "-c", "import package.module; print(package.module.NAME)"]
    ended = subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("mine\n", "")


def test_the_notes_of_children_that_end_together_stay_whole(folder: Path) -> None:
    many = "".join(f"def a_function_with_a_long_name_{k:04}():\n    pass\n" for k in range(1000))
    (folder / "subject.py").write_text(SUBJECT.partition("if __name__")[0] + many, encoding="utf-8")
    plan = logged(folder)
    program = (
        "import os, subject\n"
        "for function in list(vars(subject).values()):\n"
        "    if getattr(function, '__name__', '').startswith('a_function'):\n        function()\n"
        "children = []\n"
        "for _ in range(20):\n"
        "    children.append(os.fork())\n"
        "    if not children[-1]:\n        os._exit(0)\n"
        "for child in children:\n    os.waitpid(child, 0)\n"
        "show(0)"
    )
    assert value(plan, folder, program) == 0
    assert len(log_of(folder, plan)[0]) > 1000


def test_a_swap_is_probed_under_its_own_name(folder: Path) -> None:
    plan = swap("double", "other:triple", log=str(folder / "log.jsonl"), probe=("subject", "other"))
    value(plan, folder, "import subject\nshow(subject.double(2))")
    found, applied = log_of(folder, plan)
    assert ("other:triple" in found, "subject:double" in found, applied) == (True, False, True)
    assert Hook(plan).mutated() == "other:triple"


def test_the_source_of_a_mutated_function_is_the_mutated_one(folder: Path) -> None:
    program = "import inspect, subject\nshow(inspect.getsource(subject.double))"
    assert value(edit("double", "2", "3"), folder, program) == "def double(number):\n    return number * 3\n"


@pytest.mark.parametrize(
    "plan", [Plan(probe=("subject",)), edit("decorated", "number + extra", "0", probe=("subject",))]
)
def test_the_source_below_a_mutant_is_unmoved(plan: Plan, folder: Path) -> None:
    program = "import inspect, subject\nshow([inspect.getsource(subject.fails), subject.fails.__code__.co_firstlineno])"
    start = SUBJECT[: SUBJECT.index("def fails")].count("\n") + 1
    source = SUBJECT[SUBJECT.index("def fails") : SUBJECT.index("def lines")].rstrip("\n") + "\n"
    assert value(plan, folder, program) == [source, start]


@pytest.mark.parametrize("plan", [Plan(), Plan(probe=("subject",)), edit("double", "number * 2", "0")])
def test_a_traceback_shows_the_right_line(plan: Plan, folder: Path) -> None:
    program = (
        "import subject, traceback\n"
        "try:\n    subject.fails(1)\nexcept ValueError as error:\n"
        "    frame = traceback.extract_tb(error.__traceback__)[-1]\n    show([frame.lineno, frame.line])"
    )
    line = SUBJECT[: SUBJECT.index("raise ValueError")].count("\n") + 1
    assert value(plan, folder, program) == [line, "raise ValueError(below)"]


def test_a_traceback_through_a_mutant_shows_the_mutant(folder: Path) -> None:
    program = (
        "import subject, traceback\n"
        "try:\n    subject.double(1)\nexcept ZeroDivisionError as error:\n"
        "    show(traceback.extract_tb(error.__traceback__)[-1].line)"
    )
    assert value(edit("double", "number * 2", "number / 0"), folder, program) == "return number / 0"


@pytest.mark.parametrize("plan", [Plan(probe=("subject",)), edit("double", "2", "3", probe=("subject",))])
def test_docstrings_annotations_and_defaults_stay_as_they_are(plan: Plan, folder: Path) -> None:
    program = (
        "import subject as s\n"
        "show([s.__doc__, s.scaled.__doc__, s.Counter.__doc__, s.decorated.__wrapped__.__defaults__])"
    )
    assert value(plan, folder, program) == ["A subject.", "Multiplies what the function gives.", "Counts.", [10]]


def test_a_sitecustomize_of_the_users_still_runs(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import builtins\nbuiltins.HERS = 'ran'\n")
    command = [sys.executable, "-c", "import subject; print(HERS, subject.double(2))"]
    settings = environment(edit("double", "2", "3"), folder, mine)
    ended = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("ran 6\n", "")


def test_without_a_plan_the_site_changes_nothing(folder: Path) -> None:
    settings = environment(Plan(), folder)
    settings.pop("PV_HOOK")
    command = [sys.executable, "-c", "import sys, subject; print(subject.double(2), len(sys.meta_path))"]
    ended = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(len(sys.meta_path))"], capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == f"4 {bare.stdout}"


def test_a_plan_survives_its_way_through_the_environment() -> None:
    plan = edit("double", "é\n'\"", "\u2028", probe=("a", "b"), roots=("/",), packages=("c",), log="/log")
    assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_that_comes_too_late_is_refused() -> None:
    with pytest.raises(BrokenMutant) as refused:
        install(Plan(module="json", name="loads", find="1", replace="2"))
    assert str(refused.value) == "json is imported already, so it can no longer be mutated"
