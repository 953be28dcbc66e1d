"""Generated mutants: each makes the change of its operator, in a place of its own, and compiles to something else."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pv.mutation.generate import digest_of_code
from tests.mutation.handmade import mutants, planted
from tests.support.processes import python


def test_what_compiles_to_the_same_is_no_mutant(tmp_path: Path) -> None:
    source = "def f(a):\n    if a:\n        return a\n        a += 1\n    for n in a:\n        continue\n"
    results = [m.code_digest for m in mutants(tmp_path, source)]
    assert len(results) == len(set(results)) > 0
    assert digest_of_code("subject", source) not in results
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


def test_what_a_module_compiles_to_is_the_same_in_every_process() -> None:
    source = "def f(x):\n    return x in {'a', 'b', 'c', 'd'} or x in ({'e', 'f'}, 1)\n"
    code = f"from pv.mutation.generate import digest_of_code; print(digest_of_code('m', {source!r}))"
    (seen,) = {python("-c", code, PYTHONHASHSEED=seed).stdout for seed in "1234"}
    assert seen


def call(source: str, *arguments: object) -> object:
    """What `f` of a source gives, or which error it raises."""
    names: dict[str, Any] = {}
    exec(compile(source, "subject", "exec"), names)
    try:
        return names["f"](*deepcopy(arguments))
    except Exception as error:
        return type(error).__name__


TABLE = yaml.safe_load((Path(__file__).parent / "operators.yaml").read_text())
EXAMPLES = [
    (operator, *example) for operator in TABLE if operator not in ("none", "few") for example in TABLE[operator]
]


@pytest.mark.parametrize(("operator", "source", "replace", "shown_by", "hidden_from"), EXAMPLES)
def test_an_operator_makes_its_change(
    tmp_path: Path, operator: str, source: str, replace: str, shown_by: Any, hidden_from: Any
) -> None:
    candidates = [m for m in mutants(tmp_path, source) if m.operator == operator]
    chosen = [m for m in candidates if m.mutant.change.replace == replace]
    assert len(chosen) == 1, [m.mutant.id for m in candidates]
    changed = planted(source, chosen[0])
    assert call(changed, *shown_by) != call(source, *shown_by), changed
    if hidden_from is not None:
        assert call(changed, *hidden_from) == call(source, *hidden_from), changed


@pytest.mark.parametrize(("source", "ids"), [*((source, []) for source in TABLE["none"]), *TABLE["few"].items()])
def test_what_is_no_computation_is_left_alone(tmp_path: Path, source: str, ids: list[str]) -> None:
    assert [m.mutant.id.removeprefix("subject:f: ") for m in mutants(tmp_path, source)] == ids
