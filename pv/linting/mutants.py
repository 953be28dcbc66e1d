"""Rules about mutants: each applies to the current source, and changes its syntax tree."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error
from pv.contract.mutants import Edit, Mutant, Name, Swap
from pv.contract.names import Target
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule, unbound
from pv.errors import BrokenMutant, MutantProblem
from pv.source import resolve
from pv.source.patch import patch
from pv.source.resolve import Unbound

Find = Callable[[Target], Path]
CODES = {"file": "PV135", "name": "PV135", "source": "PV135"}


@rule(
    Code("PV133", "the edit of a mutant does not apply to the source", Stops.MUTANT),
    Code("PV134", "the edit of a mutant changes nothing", Stops.MUTANT),
    Code("PV135", "the module, function or replacement of a mutant does not exist", Stops.MUTANT),
    Code("PV136", "a mutant of code that no subject of the contract imports", Stops.MUTANT),
)
def mutants(context: Context) -> Iterator[Finding]:
    outside, find = _outside(context), cache(partial(resolve.target_file, context.project))
    for mutant in context.contract.mutants:
        if mutant.module in outside:
            message = f"{mutant.id}: no subject of this contract imports {mutant.module}"
            yield error("PV136", mutant.location, message, "change the subject or a module that it imports")
        if isinstance(mutant.change, Edit):
            yield from _edit(find, mutant, mutant.change)
        else:
            yield from _swap(find, mutant, mutant.change)


def _subject_files(context: Context) -> frozenset[Path]:
    """Return the files of the contract's own subjects."""
    files: set[Path] = set()
    for falsifier in context.contract.claims:
        # A missing subject has its own finding.
        with contextlib.suppress(LookupError, Unbound):
            files.add(resolve.target_file(context.project, context.contract.subject_of(falsifier)))
    with contextlib.suppress(Unbound):
        return context.imports.closure(files)[0]
    return frozenset()


def _outside(context: Context) -> frozenset[str]:
    """Return the mutated modules that no subject consists of: a fault in an oracle shows that this can fail."""
    subjects, found = _subject_files(context), set()
    for module in {mutant.module for mutant in context.contract.mutants} if subjects else ():
        with contextlib.suppress(Unbound):
            found |= {module} if resolve.module_file(context.project, module) not in subjects else set()
    return frozenset(found)


def _edit(find: Find, mutant: Mutant, edit: Edit) -> Iterator[Finding]:
    try:
        source = resolve.source(find(edit.function))
        patch(source, edit.function.attribute, edit.find, edit.replace)
    except Unbound as problem:
        looked_for = edit.function.module if problem.kind == "file" else edit.function.attribute
        yield unbound(CODES, mutant.location, problem, looked_for)
    except BrokenMutant as problem:
        if problem.problem is MutantProblem.NO_DEFINITION:
            yield error(
                "PV135",
                mutant.location,
                f"{mutant.id}: {edit.function.module} imports the function and does not define it",
            )
            return
        idle = problem.problem is MutantProblem.NO_CHANGE
        hint = "only a replacement with another syntax tree is a fault" if idle else _refresh(source, edit)
        yield error("PV134" if idle else "PV133", mutant.location, f"{mutant.id}: {problem}", hint)


def _refresh(source: str, edit: Edit) -> str:
    """Return a hint for a `find` without a match; its text may occur as a part of an expression."""
    if edit.find.strip() in source:
        return "the text occurs only inside a larger expression: `find` takes a whole expression or whole statements"
    return f"if this change of {edit.function} is intended, copy the current code into `find`"


@rule(Code("PV137", "a declared equivalent does not apply to the source", Stops.SCORE))
def equivalents(context: Context) -> Iterator[Finding]:
    """Check that declared equivalents apply: one that does not would count as a fault again."""
    for declared in context.contract.equivalents:
        change = declared.change
        try:
            source = resolve.source(resolve.target_file(context.project, change.function))
            patch(source, change.function.attribute, change.find, change.replace)
        except (Unbound, BrokenMutant) as problem:
            hint = f"copy the current code of {change.function} into `find`, or remove the entry"
            yield error("PV137", declared.location, f"the equivalent does not apply: {problem}", hint)
            continue
        named = context.contract.mutation_scope
        if named.modules and not named.holds(str(change.function)):
            message = f"{change.function} is not in `mutation_scope`: remove the equivalent"
            yield error("PV137", declared.location, message)


@rule(Code("PV138", "`mutation_scope` names no module, or no other contract, of the project", Stops.SCORE))
def mutation_scope(context: Context) -> Iterator[Finding]:
    """Check that the modules exist: code that does not exist has no mutants, which would raise the score."""
    contract, named = context.contract, context.contract.mutation_scope
    subjects: frozenset[Path] = frozenset()
    for judge in (contract, *contract.judges) if named.modules else ():
        subjects |= _subject_files(replace(context, contract=judge))
    for each in named.modules:
        yield from _scope_module(context, each, subjects)
    others = [id_ for id_ in contract.known if id_ != contract.id]
    for each in named.judges:
        if each.text not in others:
            message = f"unknown contract {each.text!r} in 'judges'"
            yield error("PV138", each.location, message, did_you_mean(each.text, others))


def _scope_module(context: Context, named: Name, subjects: frozenset[Path]) -> Iterator[Finding]:
    module, _, attribute = named.text.partition(":")
    if attribute:
        message = f"invalid value {named.text!r} for 'mutation_scope': expected a module or package"
        yield error("PV138", named.location, message, f"write {module}, which holds {attribute}")
        return
    try:
        path = resolve.module_file(context.project, module)
        resolve.parse(path)
    except Unbound as problem:
        yield unbound({"name": "PV138"}, named.location, problem, module)
        return
    if subjects and not _holds_any(path, subjects):
        yield error("PV138", named.location, f"no subject of this contract or its judges imports {module}")


def _holds_any(path: Path, files: frozenset[Path]) -> bool:
    """Return whether the module or package of `path` is or contains one of the files."""
    return path in files or (path.name == "__init__.py" and any(f.is_relative_to(path.parent) for f in files))


def _swap(find: Find, mutant: Mutant, swap: Swap) -> Iterator[Finding]:
    for target in (swap.object, swap.replacement):
        try:
            find(target)
        except Unbound as problem:
            looked_for = target.module if problem.kind == "file" else target.attribute
            yield unbound(CODES, mutant.location, problem, looked_for)
