"""Finds the class of settings that a parameter of a training loop takes, and what that is created with."""

import ast
import re
from collections.abc import Iterator, Mapping

from pv.contract.names import Target
from pv.source.definitions import definition
from pv.source.project import Project
from pv.suites.training_loop.names import setting_of

PARAMETER = re.compile(r"(\w+_)?(config|cfg|conf|settings|args|arguments|options|opts|hparams)")
CLASS = re.compile(r"\w*(Config|Cfg|Conf|Settings|Args|Arguments|Options|Opts|HParams)")
"""Usual names of a parameter that takes settings, and of their class."""
Classes = Mapping[str, ast.ClassDef]


def imported_classes(project: Project, target: Target, tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes that a module imports from others of the project, by their name in it."""
    names = [each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names]
    found = {name: definition(project, Target(target.module, name)) for name in names}
    return {name: each for name, each in found.items() if isinstance(each, ast.ClassDef)}


def settings_class(parameter: ast.arg, default: ast.expr | None, classes: Classes) -> str:
    """Return the name of the class of settings that a parameter takes; "" if it is none.

    Its annotation tells, else its default, else its name: of the classes with a usual one, that with most settings.
    """
    if annotated := next(_names(parameter.annotation, classes), ""):
        return annotated
    created = next(_names(default.func, classes), "") if isinstance(default, ast.Call) else ""
    usual = PARAMETER.fullmatch(parameter.arg) is not None
    if created and (usual or CLASS.fullmatch(created)):
        return created
    if not usual or parameter.annotation is not None:
        return ""
    counts = {name: _settings_of(kind) for name, kind in classes.items() if CLASS.fullmatch(name)}
    most = [name for name, count in counts.items() if count == max(counts.values())]
    return most[0] if len(most) == 1 else ""


def _settings_of(kind: ast.ClassDef) -> int:
    """Return how many fields of a class are settings of a job."""
    return sum(bool(setting_of(each.arg)) for each, _ in fields(kind))


def is_created_by_names(kind: ast.ClassDef) -> bool:
    """Return whether a class takes its fields as arguments: a dataclass, one with bases, or with a constructor."""
    return bool(kind.decorator_list or kind.bases or constructor(kind))


def constructor(kind: ast.ClassDef) -> ast.FunctionDef | None:
    """Return the method `__init__` of a class; None if it has none."""
    found = (each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return next(found, None)


def fields(kind: ast.ClassDef) -> Iterator[tuple[ast.arg, bool]]:
    """Yield the annotated fields of a class as parameters, each with whether it has a default."""
    for each in kind.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield ast.arg(each.target.id, each.annotation), each.value is not None


def _names(node: ast.expr | None, classes: Classes) -> Iterator[str]:
    """Yield the names of classes in an expression, such as an annotation that is a text or has a `| None`."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            part = ast.Name(part.value)
        if isinstance(part, ast.Name) and part.id in classes:
            yield part.id
