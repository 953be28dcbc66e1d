"""Resolve a subject, and the functions that its claims name, to the files from which a worker must load them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pv.contract.model import Binding, Falsifier, Target
from pv.source import resolve
from pv.source.imports import Imports
from pv.source.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A module-level function: its module, the file of this module, its name and its parameters."""

    module: str
    file: str
    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class ResolvedCode:
    """A subject in its project. Properties and methods raise `Unbound` if a name cannot be resolved.

    Args:
        project: The project.
        subject: The subject.
        imports: The imports of the files of the project, if another subject has read them already.
    """

    project: Project
    subject: Target
    imports: Imports | None = None

    @cached_property
    def subject_file(self) -> Path:
        """Return the file of the subject."""
        return resolve.target_file(self.project, self.subject)

    @cached_property
    def subject_files(self) -> frozenset[Path]:
        """Return the files of the subject: its own file, and all project files that it imports."""
        return (self.imports or Imports(self.project)).closure([self.subject_file])[0]

    def function(self, binding: Binding) -> Function:
        """Return the function that `binding` names."""
        definition = resolve.function(self.project, binding)
        module = resolve.module_name(self.project, definition.path)
        return Function(
            module=module, file=str(definition.path), name=binding.name, parameters=tuple(definition.parameters)
        )

    def test(self, claim: Falsifier) -> Function:
        """Return the test or predicate of a claim. Raise ValueError if the claim has none."""
        if claim.test is None:
            raise ValueError(f"{claim.id} is not bound to a test")
        return self.function(claim.test)


Code = ResolvedCode
"""The name of `ResolvedCode` in version 0.3.0, for engines of other packages."""
