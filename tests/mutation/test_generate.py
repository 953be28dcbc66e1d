"""Each automatic mutant is planted in a place of its own and compiles to something else than the code."""

import os
import subprocess
import sys
from pathlib import Path

from pv.mutation.generate import compiles_to
from tests.mutation.handmade import mutants, planted

DIGEST = "from pv.mutation.generate import compiles_to; print(compiles_to('m', {source!r}))"


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


def test_what_a_module_compiles_to_is_the_same_in_every_process() -> None:
    source = "def f(x):\n    return x in {'a', 'b', 'c', 'd'} or x in ({'e', 'f'}, 1)\n"
    code = DIGEST.format(source=source)
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "1234"
    }
    assert len(seen) == 1
