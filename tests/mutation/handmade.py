"""Mutation results, made by hand, and the generated mutants of a piece of source."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from pv.contract.model import Edit, Mutant, Target
from pv.mutation.generate import GeneratedMutant, Module
from pv.mutation.judge import Judged, MutantStatus, MutationResult
from pv.source import syntax
from pv.source.patch import patch
from tests.results.handmade import HERE, contract, falsifier


def judged(status: MutantStatus, id_: str = "tiny:double: 2 -> 3") -> Judged:
    edit = Edit(function=Target("tiny", "double"), find="2", replace="3")
    mutant = GeneratedMutant(
        mutant=Mutant(id=id_, fault="constant", change=edit, location=HERE),
        operator="constant",
        function="tiny:double",
        coverage_name="tiny:double@1:0",
        code_digest="",
        diff="-    return 2\n+    return 3",
    )
    return Judged(mutant=mutant, status=status, tried=("F",))


def result(*statuses: MutantStatus, **fields: Any) -> MutationResult:
    fields = {"contract": contract(falsifier()), "falsifiers": ("F",), "total": len(statuses), **fields}
    return MutationResult(judged=tuple(map(judged, statuses)), **fields)


def mutants(folder: Path, source: str) -> list[GeneratedMutant]:
    """The generated mutants of a module with this source, all of whose functions were reached."""
    path = folder / "subject.py"
    path.write_text(dedent(source), encoding="utf-8")
    module = Module("subject", path)
    return list(module.mutants(frozenset(f"subject:{name}" for name, _ in syntax.functions(module.source.tree))))


def planted(source: str, mutant: GeneratedMutant) -> str:
    edit: Any = mutant.mutant.change
    return patch(dedent(source), edit.function.attribute, edit.find, edit.replace, edit.occurrence)
