"""A subject and the functions of its claims, resolved to the files from which a worker must load them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pv.contract.model import Binding, Falsifier, Target
from pv.source import resolve
from pv.source.imports import Imports
from pv.source.project import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A module-level function: its module, the file of that module, its name and its parameters."""

    module: str
    file: str
    name: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class ResolvedCode:
    """A subject in its project. A name that cannot be resolved raises `Unbound` on its first use.

    Args:
        project: The project.
        subject: The subject.
        imports: The imports of the files of the project, shared with other subjects; None to read them.
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

    def function(self, bound: Binding) -> Function:
        """Return the function that `bound` names."""
        definition = resolve.function(self.project, bound)
        module = resolve.module_name(self.project, definition.path)
        return Function(
            module=module, file=str(definition.path), name=bound.name, parameters=tuple(definition.parameters)
        )

    def test(self, claim: Falsifier) -> Function:
        """Return the test or predicate of a claim. Raise ValueError if it has none."""
        if claim.test is None:
            raise ValueError(f"{claim.id} is not bound to a test")
        return self.function(claim.test)


Code = ResolvedCode
"""The name in version 0.3.0, for engines of other packages."""
