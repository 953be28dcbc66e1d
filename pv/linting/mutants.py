"""Rules about mutants: each applies to the source as it stands, and changes its syntax tree."""

from collections.abc import Iterator

from pv import binding, syntax
from pv.binding import Unbound
from pv.errors import BrokenMutant
from pv.linting.context import Context, error, unbound
from pv.model import Edit, Finding, Mutant, Swap

CODES = {"file": "PV135", "name": "PV135", "source": "PV135"}


def mutants(context: Context) -> Iterator[Finding]:
    for mutant in context.contract.mutants:
        if isinstance(mutant.change, Edit):
            yield from _edit(context, mutant, mutant.change)
        else:
            yield from _swap(context, mutant, mutant.change)


def _edit(context: Context, mutant: Mutant, edit: Edit) -> Iterator[Finding]:
    try:
        source = binding.source(binding.target_file(context.project, edit.function))
        syntax.patch(source, edit.function.attribute, edit.find, edit.replace)
    except Unbound as problem:
        looked_for = edit.function.module if problem.kind == "file" else edit.function.attribute
        yield unbound(CODES, mutant.where, problem, looked_for)
    except BrokenMutant as problem:
        idle = "changes nothing" in str(problem)
        refresh = f"refresh it: copy the expression or statement as it stands now in {edit.function} into `find`"
        hint = "only a replacement with another syntax tree is a fault" if idle else refresh
        yield error("PV134" if idle else "PV133", mutant.where, f"{mutant.id}: {problem}", hint)


def _swap(context: Context, mutant: Mutant, swap: Swap) -> Iterator[Finding]:
    for target in (swap.object, swap.replacement):
        try:
            binding.target_file(context.project, target)
        except Unbound as problem:
            looked_for = target.module if problem.kind == "file" else target.attribute
            yield unbound(CODES, mutant.where, problem, looked_for)
