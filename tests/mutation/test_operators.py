"""Each operator makes the change that it is named for: one that some call shows, and that another call does not."""

import ast
from copy import deepcopy
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from pv import syntax
from pv.mutation.generate import Automatic, Module, compiles_to, diff


def mutants(folder: Path, source: str) -> list[Automatic]:
    """The automatic mutants of a module with this source, all of whose functions were reached."""
    path = folder / "subject.py"
    path.write_text(dedent(source), encoding="utf-8")
    module = Module("subject", path)
    return list(module.mutants(frozenset(f"subject:{name}" for name, _ in syntax.functions(module.tree))))


def planted(source: str, mutant: Automatic) -> str:
    edit: Any = mutant.mutant.change
    return syntax.patch(dedent(source), edit.function.attribute, edit.find, edit.replace, edit.occurrence)


def call(source: str, *arguments: object) -> object:
    """What `f` of a source gives, or which error it raises."""
    names: dict[str, Any] = {}
    exec(compile(source, "subject", "exec"), names)
    try:
        return names["f"](*deepcopy(arguments))
    except Exception as error:
        return type(error).__name__


EXAMPLES = [
    ("comparison", "def f(a):\n    return a < 3", "a <= 3", (3,), (4,)),
    ("comparison", "def f(a):\n    return 0 < a == 2", "0 < a != 2", (1,), (-1,)),
    ("comparison", "def f(a):\n    return a not in (1, 2)", "a in (1, 2)", (1,), None),
    ("arithmetic", "def f(a, b):\n    return a + b", "a - b", (1, 2), (1, 0)),
    ("arithmetic", "def f(a, b):\n    return a // b", "a / b", (1, 2), (4, 2)),
    ("arithmetic", "def f(a):\n    a += 2\n    return a", "a -= 2", (1,), None),
    ("arithmetic", "def f(a):\n    return -a", "a", (1,), (0,)),
    ("arithmetic", "def f(a):\n    return not a", "a", (True,), None),
    ("logic", "def f(a, b):\n    return a and b", "a or b", (0, 1), (1, 1)),
    ("condition", "def f(a):\n    if a > 1:\n        return 5\n    return 6", "not a > 1", (1,), None),
    ("condition", "def f(a):\n    return [n for n in a if n]", "not n", ([1],), ([],)),
    ("constant", "def f(a):\n    return a * 2.0", "4.0", (1,), (0,)),
    ("constant", "def f(a):\n    return a or True", "False", (0,), (1,)),
    ("constant", "def f(a):\n    return a[-1]", "2", ([1, 2],), ([1, 1],)),
    ("constant", "def f(a):\n    return a == 'x'", "'x~'", ("x",), ("y",)),
    ("default", "def f(a=1, *, b=2):\n    return a * b", "3", (1,), (0,)),
    ("off by one", "def f(n):\n    return list(range(n))", "n + 1", (3,), (-1,)),
    ("off by one", "def f(a, n):\n    return a[:n]", "n + 1", ("abc", 1), ("a", 1)),
    ("dropped", "def f(a):\n    b = [a]\n    b[0] = 7\n    return b", "", (1,), (7,)),
    ("dropped", "def f(a):\n    for n in a:\n        if n:\n            break\n    return n", "", ([1, 2],), ([0, 2],)),
    ("dropped", "def f(a):\n    if a:\n        raise KeyError(a)", "", (1,), (0,)),
    ("removed call", "def f(a):\n    a.sort()\n    return a", "", ([2, 1],), ([1, 2],)),
    ("removed call", "def f(a):\n    return abs(a)", "a", (-1,), (1,)),
    ("removed call", "def f(a):\n    return a.strip()", "a", (" a",), ("a",)),
    ("swapped arguments", "def f(a, b):\n    return divmod(a, b)", "divmod(b, a)", (1, 2), (2, 2)),
]


@pytest.mark.parametrize(("operator", "source", "replace", "shown_by", "hidden_from"), EXAMPLES)
def test_an_operator_makes_its_change(
    tmp_path: Path, operator: str, source: str, replace: str, shown_by: Any, hidden_from: Any
) -> None:
    made = [m for m in mutants(tmp_path, source) if m.operator == operator]
    chosen = [m for m in made if m.mutant.change.replace == replace]
    assert len(chosen) == 1, [m.mutant.id for m in made]
    changed = planted(source, chosen[0])
    assert call(changed, *shown_by) != call(source, *shown_by), changed
    if hidden_from is not None:
        assert call(changed, *hidden_from) == call(source, *hidden_from), changed


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Says 3 < 4."""',
        "def f(a: 'int | None', b: list[1]) -> tuple[2]:\n    c: dict[3, 4] = a",
        "def f(a):\n    logger.info('a', 3, a + 1)",
        "def f(a):\n    logging.warning('a' , 1 < 2)",
        "def f(a):\n    return f'{a + 1:{3}} {a < 4}'",
        "def f(a):\n    return isinstance(a, int | float)",
        "def f(a):\n    return a + 'text'",
        "@cached(2 < 3)\ndef f(a):\n    return a",
        "def f(a, b):\n    return min(a, b)",
        "import torch\n@torch.jit.script\ndef f(a):\n    return a + 1",
        "import triton\n@triton.jit\ndef f(a):\n    return a + 1",
        "LIMIT = 3 + 4\nclass A:\n    b = 1 < 2",
        "import torch\ndef f():\n    return torch.seed()",
    ],
)
def test_what_is_no_computation_is_left_alone(tmp_path: Path, source: str) -> None:
    assert [m.mutant.id for m in mutants(tmp_path, source)] == []


def test_the_message_of_an_error_is_left_alone_and_the_error_is_dropped(tmp_path: Path) -> None:
    source = "def f(a):\n    assert a, a + 1\n    raise ValueError(f'{a}' + str(a + 1))\n"
    assert [m.mutant.id for m in mutants(tmp_path, source)] == [
        "subject:f: assert a, a + 1 -> pass",
        "subject:f: a -> not a (place 1)",
        "subject:f: raise ValueError(f'{a}' + str(a + 1)) -> pass",
    ]


def test_the_first_value_of_a_name_is_not_dropped(tmp_path: Path) -> None:
    source = "def f(a):\n    b = a\n    if a:\n        b = a.c\n    a = b\n    return b\n"
    dropped = [m.mutant.change.find for m in mutants(tmp_path, source) if m.operator == "dropped"]
    assert dropped == ["b = a.c", "a = b"], "without `b = a` the code names what is not there"


def test_what_compiles_to_the_same_is_no_mutant(tmp_path: Path) -> None:
    source = "def f(a):\n    if a:\n        return a\n        a += 1\n    for n in a:\n        continue\n"
    results = [m.result for m in mutants(tmp_path, source)]
    assert len(results) == len(set(results)) > 0
    assert compiles_to("subject", source) not in results
    assert not any("continue" in m.mutant.id or "+=" in m.mutant.id for m in mutants(tmp_path, source))


def test_nested_functions_methods_and_repeated_places_are_each_their_own(tmp_path: Path) -> None:
    source = """
        def outer(a):
            def inner(b):
                return b + b + 1
            return inner(a)

        class Kind:
            @property
            def value(self):
                return self.a + 1 + 1

            @value.setter
            def value(self, new):
                self.a = new
    """
    ids = [m.mutant.id for m in mutants(tmp_path, source)]
    assert [id_ for id_ in ids if "1 -> 2" in id_] == [
        "subject:outer.inner: 1 -> 2",
        "subject:Kind.value: 1 -> 2 (place 2)",
        "subject:Kind.value: 1 -> 2 (place 1)",
    ]
    assert "subject:Kind.value: self.a = new -> pass" in ids
    changed = {planted(source, m) for m in mutants(tmp_path, source)}
    assert len(changed) == len(ids), "each is planted in a place of its own"


def test_a_mutant_is_the_same_whatever_the_formatting(tmp_path: Path) -> None:
    plain = "def f(a, b):\n    if a < b and a > 0:\n        return (a + b) * 2\n    return g(a, b)\n"
    other = plain.replace("a < b and a > 0", "(a\n < b and  # below\n a > 0)").replace("(a + b) * 2", "((a+b)*2)\n")
    assert ast.dump(ast.parse(plain)) == ast.dump(ast.parse(other))
    assert [m.mutant.id for m in mutants(tmp_path, plain)] == [m.mutant.id for m in mutants(tmp_path, other)]


def test_a_mutant_keeps_the_lines_below_it(tmp_path: Path) -> None:
    source = "def f(a):\n    b = (\n        a\n        + 1\n    )\n    a.g(\n        1,\n    )\n    raise KeyError\n"
    for mutant in mutants(tmp_path, source):
        last = planted(source, mutant).splitlines()[8]
        assert last == ("    pass" if "raise" in mutant.mutant.id else "    raise KeyError"), mutant.mutant.id


def test_a_diff_shows_the_changed_lines_alone() -> None:
    assert diff("a\nb(\n 1)\nc\n", "a\nb(2\n)\nc\n") == "-b(\n- 1)\n+b(2"
