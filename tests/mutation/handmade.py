"""Mutation results, made by hand."""

from typing import Any

from pv.contract.mutants import Edit, Mutant
from pv.contract.names import Target
from pv.mutation.generate import Automatic
from pv.mutation.judge import Judged, MutantStatus
from pv.mutation.result import MutationResult
from tests.results.handmade import HERE, contract, falsifier


def judged(status: MutantStatus, id_: str = "tiny:double: 2 -> 3") -> Judged:
    edit = Edit(function=Target("tiny", "double"), find="2", replace="3")
    mutant = Automatic(
        mutant=Mutant(id=id_, fault="constant", change=edit, location=HERE),
        operator="constant",
        function="tiny:double",
        place="tiny:double@1:0",
        result="",
        diff="-    return 2\n+    return 3",
    )
    return Judged(mutant=mutant, status=status, tried=("F",))


def result(*statuses: MutantStatus, **fields: Any) -> MutationResult:
    fields = {"contract": contract(falsifier()), "falsifiers": ("F",), "total": len(statuses), **fields}
    return MutationResult(judged=tuple(map(judged, statuses)), **fields)
