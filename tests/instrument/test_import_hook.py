"""A mutant is planted before anything of its module runs, in every process, and is not kept with compiled code."""

from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.instrument import code_cache
from pv.instrument.code_cache import load_or_compile
from pv.instrument.import_hook import ImportHook, Loader, Plan, install
from pv.observe import launch
from tests.instrument.programs import SUBJECT, edit, environment, swap, value
from tests.support.processes import python
from tests.support.projects import write


@pytest.mark.parametrize(
    ("plan", "code", "clean", "mutated"),
    [
        (edit("double", "number * 2", "number * 3"), "subject.double(2)", 4, 6),
        (edit("scaled", "function(number) * SCALE", "function(number)"), "subject.decorated(1)", 22, 11),
        (edit("SCALE", "2", "5"), "subject.decorated(1)", 22, 55),
        (edit("default", "10", "0"), "subject.decorated(1)", 22, 2),
        (edit("Counter.step", "1", "3"), "subject.Counter.both", 11, 13),
        (edit("lines", "yield double(number)", "yield 0"), "list(subject.lines(2))", [4], [0]),
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
        "import importlib, subject\nshow(importlib.reload(subject).double(2))",
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-c', 'import subject; print(subject.double(2))']\n"
        "show(int(subprocess.check_output(command, cwd='/')))",
        "import subject, os\n"
        "down, up = os.pipe()\n"
        "if os.fork() == 0:\n    os.write(up, str(subject.double(2)).encode())\n    os._exit(0)\n"
        "os.wait()\nshow(int(os.read(down, 9)))",
    ],
    ids=["from", "reload", "child elsewhere", "fork"],
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


def test_a_module_of_a_package_is_mutated_and_its_neighbours_are_not(folder: Path) -> None:
    code = dict.fromkeys(("package/inner.py", "package/outer.py"), "def f():\n    return 1\n")
    write(folder, {"package/__init__.py": "from package.inner import f\n", **code})
    plan = Plan(module="package.inner", name="f", find="1", replace="2")
    program = "import package, package.outer\nshow([package.f(), package.outer.f()])"
    assert value(plan, folder, program) == [2, 1]


def test_a_compiled_copy_of_the_module_is_not_used(folder: Path) -> None:
    assert python("-m", "compileall", "-q", str(folder)).returncode == 0
    assert value(edit("double", "2", "3"), folder, "import subject\nshow(subject.double(2))") == 6


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (edit("double", "number * 4", "0"), "'number * 4' occurs 0 times in 'double'; it must occur exactly once"),
        (edit("treble", "number", "0"), "unknown function 'treble'"),
        (swap("double", "other:treble"), "cannot load other:treble: module 'other' has no attribute 'treble'"),
    ],
)
def test_a_mutant_that_does_not_apply_breaks_the_import(plan: Plan, says: str, folder: Path) -> None:
    program = (
        "from pv.errors import BrokenMutant\n"
        "try:\n    import subject\nexcept BrokenMutant as error:\n    show(str(error))\nelse:\n    show('imported')"
    )
    assert value(plan, folder, program) == says


def test_a_child_finds_a_package_of_the_project_before_an_installed_one(folder: Path) -> None:
    for home, name in ((folder, "mine"), (folder / "elsewhere", "theirs")):
        (home / "package").mkdir(parents=True)
        (home / "package" / "module.py").write_text(f"NAME = {name!r}\n")
    (folder / "elsewhere" / "package" / "__init__.py").write_text("")
    plan = Plan(packages=("package",), roots=(str(folder),))
    settings = environment(plan, folder, folder / "elsewhere")
    ended = python("-c", "import package.module; print(package.module.NAME)", cwd=Path("/"), env=settings)
    assert (ended.stdout, ended.stderr) == ("mine\n", "")


def test_a_sitecustomize_of_the_users_still_runs(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import builtins\nbuiltins.HERS = 'ran'\n")
    settings = environment(edit("double", "2", "3"), folder, mine)
    ended = python("-c", "import subject; print(HERS, subject.double(2))", cwd=folder, env=settings)
    assert (ended.stdout, ended.stderr) == ("ran 6\n", "")


SCRIPT = """from __future__ import annotations
import multiprocessing, sys
import other


def double(number):
    return number * 2


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(double(2), pool.map(double, [3]), __spec__, __package__, sys.path[0] == sys.argv[1], double.__module__)
"""


def test_a_script_is_mutated_where_it_is_run_and_sees_what_a_script_sees(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "other.py").touch()
    (folder / "part" / "script.py").write_text(SCRIPT)
    plan = replace(edit("double", "2", "3"), module="part.script", roots=(str(folder),))
    settings = environment(plan, folder)
    ended = python("part/script.py", str(folder / "part"), cwd=folder, env=settings)
    assert (ended.stdout, ended.stderr) == ("6 [9] None None True __main__\n", "")
    ended = python("part/script.py", str(folder / "part"), cwd=folder, env=environment(Plan(), folder))
    assert (ended.stdout, ended.stderr) == ("4 [6] None None True __main__\n", "")


def test_the_hook_runs_beside_the_observer_of_a_command_and_a_sitecustomize_of_the_users(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "sitecustomize.py").write_text("print('mine')\n")
    (folder / "torch.py").touch()
    inherited = environment(edit("double", "2", "3"), folder, folder / "mine")
    settings = {**inherited, **launch.environment(folder / "trace", inherited=inherited)}
    ended = python("-c", "import torch, subject; print(subject.double(2))", cwd=folder, env=settings)
    assert ended.stdout == "mine\n6\n" and ended.stderr.startswith("pv: this process is not observed: ")


def test_a_plan_that_comes_too_late_is_refused() -> None:
    with pytest.raises(BrokenMutant, match=r"^json is imported already, so it can no longer be mutated$"):
        install(Plan(module="json", name="loads", find="1", replace="2"))


@pytest.mark.parametrize("plan", [Plan(), Plan(covered=("subject",)), edit("double", "number * 2", "0")])
def test_a_traceback_shows_the_right_line(plan: Plan, folder: Path) -> None:
    program = (
        "import inspect, subject, traceback\n"
        "try:\n    subject.fails(1)\nexcept ValueError as error:\n"
        "    frame = traceback.extract_tb(error.__traceback__)[-1]\n"
        "    show([frame.lineno, frame.line, inspect.getsource(subject.double)])"
    )
    line = SUBJECT[: SUBJECT.index("raise ValueError")].count("\n") + 1
    double = f"def double(number):\n    return {plan.replace or 'number * 2'}\n"
    assert value(plan, folder, program) == [line, "raise ValueError(below)", double]


SOURCE = b"value = 1\n"


@pytest.mark.parametrize(
    ("key", "source", "damaged"),
    [("other", SOURCE, False), ("subject", b"value = 2\n", False), ("subject", SOURCE, True)],
)
def test_another_key_or_source_or_a_damaged_file_is_compiled(
    tmp_path: Path, key: str, source: bytes, damaged: bool
) -> None:
    load_or_compile(str(tmp_path), ("subject",), SOURCE, lambda: compile(SOURCE, "subject.py", "exec"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"" if damaged else file.read_bytes())
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        load_or_compile(str(tmp_path), (key,), source, lambda: pytest.fail("compiled again"))


def test_code_that_a_fork_server_holds_is_not_read_again(tmp_path: Path) -> None:
    code_cache.preload(tmp_path / "missing")
    first = load_or_compile(str(tmp_path), ("held",), SOURCE, lambda: compile(SOURCE, "held.py", "exec"))
    code_cache.preload(tmp_path)
    next(tmp_path.iterdir()).unlink()
    assert load_or_compile(str(tmp_path), ("held",), SOURCE, lambda: pytest.fail("compiled again")) == first


def test_methods_of_dataclasses_are_kept_at_import_alone(tmp_path: Path) -> None:
    def define(name: str) -> int:
        kind = make_dataclass(name, [("number", int)], frozen=True)
        assert kind(1) == kind(1) and repr(kind(1)) == f"{name}(number=1)"
        return len(list(tmp_path.iterdir()))

    code_cache.cache_dataclasses(str(tmp_path))
    try:
        kept = define("Kept")
    finally:
        code_cache.stop_caching_dataclasses()
    assert 0 < kept == define("Left")


def test_mutant_is_neither_kept_nor_taken_from_the_cache(tmp_path: Path) -> None:
    module, cache = tmp_path / "subject.py", str(tmp_path / "code")
    module.write_text("def value():\n    return 1\n")
    edit = Plan(cache=cache, module="subject", name="value", find="return 1", replace="return 2")
    plans = (Plan(cache=cache), edit)
    _, code = (Loader(ImportHook(plan), "subject", str(module)).get_code("subject") for plan in plans)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["value"]() == 2
    assert len(list(Path(cache).iterdir())) == 1
