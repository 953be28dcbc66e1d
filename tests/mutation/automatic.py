"""The automatic mutants of a piece of source, and what each makes of it."""

from pathlib import Path
from textwrap import dedent
from typing import Any

from pv.mutation.generate import Automatic, Module
from pv.source import syntax
from pv.source.patch import patch


def mutants(folder: Path, source: str) -> list[Automatic]:
    """The automatic mutants of a module with this source, all of whose functions were reached."""
    path = folder / "subject.py"
    path.write_text(dedent(source), encoding="utf-8")
    module = Module("subject", path)
    return list(module.mutants(frozenset(f"subject:{name}" for name, _ in syntax.functions(module.source.tree))))


def planted(source: str, mutant: Automatic) -> str:
    edit: Any = mutant.mutant.change
    return patch(dedent(source), edit.function.attribute, edit.find, edit.replace, edit.occurrence)
