"""Rules about mutants: each applies to the source as it stands, and changes its syntax tree."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pv import binding, syntax
from pv.binding import Unbound
from pv.errors import BrokenMutant
from pv.linting.context import Context, error, unbound
from pv.loading.check import did_you_mean
from pv.model import Edit, Finding, Mutant, Swap

CODES = {"file": "PV135", "name": "PV135", "source": "PV135"}


def mutants(context: Context) -> Iterator[Finding]:
    subjects = _subject_files(context)
    for mutant in context.contract.mutants:
        yield from _elsewhere(context, mutant, subjects)
        if isinstance(mutant.change, Edit):
            yield from _edit(context, mutant, mutant.change)
        else:
            yield from _swap(context, mutant, mutant.change)


def _subject_files(context: Context) -> frozenset[Path]:
    """The files that the contract's own subjects consist of."""
    files: list[Path] = []
    for falsifier in context.contract.claims:
        # A subject that is not there has its own finding.
        with contextlib.suppress(LookupError, StopIteration, Unbound):
            files.append(binding.target_file(context.project, context.contract.subject_of(falsifier)))
    with contextlib.suppress(Unbound):
        return binding.closure(context.project, list(dict.fromkeys(files)))[0]
    return frozenset()


def _elsewhere(context: Context, mutant: Mutant, subjects: frozenset[Path]) -> Iterator[Finding]:
    """A fault planted in a falsifier or its oracle would show that these can fail, not that they can see."""
    with contextlib.suppress(Unbound):
        path = binding.module_file(context.project, mutant.module)
        if subjects and path not in subjects:
            message = f"{mutant.id}: no subject of this contract imports {mutant.module}, so no fault in it is one"
            yield error("PV136", mutant.where, message, "plant it in the subject or in what that imports")


def _edit(context: Context, mutant: Mutant, edit: Edit) -> Iterator[Finding]:
    try:
        source = binding.source(binding.target_file(context.project, edit.function))
        syntax.patch(source, edit.function.attribute, edit.find, edit.replace)
    except Unbound as problem:
        looked_for = edit.function.module if problem.kind == "file" else edit.function.attribute
        yield unbound(CODES, mutant.where, problem, looked_for)
    except BrokenMutant as problem:
        if str(problem).startswith("there is no"):
            yield error("PV135", mutant.where, f"{mutant.id}: {edit.function.module} only imports what it names")
            return
        idle = "changes nothing" in str(problem)
        hint = "only a replacement with another syntax tree is a fault" if idle else _refresh(source, edit)
        yield error("PV134" if idle else "PV133", mutant.where, f"{mutant.id}: {problem}", hint)


def _refresh(source: str, edit: Edit) -> str:
    """What to do about a `find` that isn't found; the text may stand there and be no whole expression."""
    if edit.find.strip() in source:
        return "the text is there as a part of something larger: `find` takes a whole expression, or whole statements"
    return f"if this change of {edit.function} is intended, copy the code as it stands now into `find`"


def equivalents(context: Context) -> Iterator[Finding]:
    """An accepted equivalent that no longer applies would silently be counted as a fault again."""
    for accepted in context.contract.equivalents:
        change = accepted.change
        try:
            source = binding.source(binding.target_file(context.project, change.function))
            syntax.patch(source, change.function.attribute, change.find, change.replace)
        except (Unbound, BrokenMutant) as problem:
            hint = f"copy the code as it stands now in {change.function} into `find`, or remove the entry"
            yield error("PV137", accepted.where, f"the equivalent does not apply: {problem}", hint)
            continue
        named = context.contract.mutated
        if named and not any(each.holds(str(change.function)) for each in named):
            yield error("PV137", accepted.where, f"{change.function} is not in `mutated`, so it needs no equivalent")


def mutated(context: Context) -> Iterator[Finding]:
    """Code that is not there has no mutants, and a score without them would look better than it is."""
    subjects = _subject_files(context) if context.contract.mutated else frozenset()
    for each in context.contract.mutated:
        module, name = each.target.module, each.target.attribute
        try:
            path = binding.module_file(context.project, module)
            defined = syntax.defined(binding.parse(path))
        except Unbound as problem:
            yield unbound({"name": "PV138"}, each.where, problem, module)
            continue
        if name and name not in defined:
            hint = did_you_mean(name, defined)
            yield error("PV138", each.where, f"{module} defines no function or class {name!r}", hint)
        elif subjects and not _holds_any(path, subjects):
            yield error("PV138", each.where, f"no subject of this contract imports {module}")


def _holds_any(path: Path, files: frozenset[Path]) -> bool:
    """Whether the module or package of `path` is or holds one of the files."""
    return path in files or (path.name == "__init__.py" and any(f.is_relative_to(path.parent) for f in files))


def _swap(context: Context, mutant: Mutant, swap: Swap) -> Iterator[Finding]:
    for target in (swap.object, swap.replacement):
        try:
            binding.target_file(context.project, target)
        except Unbound as problem:
            looked_for = target.module if problem.kind == "file" else target.attribute
            yield unbound(CODES, mutant.where, problem, looked_for)
