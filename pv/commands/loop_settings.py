"""Finds the class of settings that a parameter of a training loop takes, and what that is created with."""

import ast
import re
from collections.abc import Iterator, Mapping

from pv.contract.names import Target
from pv.source import syntax
from pv.source.project import Project
from pv.source.resolve import definition, home
from pv.suites.training_loop.names import setting_of

PARAMETER = re.compile(r"(\w+_)?(config|cfg|conf|settings|args|arguments|options|opts|hparams)")
CLASS = re.compile(r"\w*(Config|Cfg|Conf|Settings|Args|Arguments|Options|Opts|HParams)")
MAKER = re.compile(r"(get_|make_|parse_)?(default_)?(config|cfg|conf|settings|args|options|hparams)|(get_)?defaults")
"""Usual names of a parameter that takes settings, of their class, and of a function that returns the default ones.

A function that returns what its parser of the command line has read returns settings, whatever its name is."""
Classes = Mapping[str, ast.ClassDef]


def imported_classes(project: Project, target: Target, tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes that a module imports from others of the project, by their name in it."""
    names = [*_imported(tree.body), *annotated_classes(project, target, tree)]
    found = {name: definition(project, Target(target.module, name)) for name in names}
    return {name: each for name, each in found.items() if isinstance(each, ast.ClassDef)}


def annotated_classes(project: Project, target: Target, tree: ast.Module) -> dict[str, Target]:
    """Return where the names are defined that a module imports for annotations alone."""
    guards = (each for each in tree.body if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test))
    return {name: home(project, Target(target.module, name)) for each in guards for name in _imported(each.body)}


def _imported(body: list[ast.stmt]) -> list[str]:
    return [each.asname or each.name for node in body if isinstance(node, ast.ImportFrom) for each in node.names]


def makers(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions with a usual name that return default settings without an argument, by their dotted name."""
    named = ((name, each) for name, each in syntax.walk(tree.body) if isinstance(each, ast.FunctionDef))
    usual = {
        n: each for n, each in named if (MAKER.fullmatch(each.name) or _parses(each)) and any(default_fields(each))
    }
    return {name: each for name, each in usual.items() if {arg.arg for arg in _required(each)} <= {"cls"}}


def _parses(function: ast.FunctionDef) -> bool:
    """Return whether a function returns the arguments of the command line."""
    names = ("parse_args", "parse_known_args")
    calls = [ast.unparse(each) for each in ast.walk(function) if isinstance(each, ast.Call)]
    parsed = {text for text in calls if any(f".{name}(" in text for name in names)}
    stored = {
        ast.unparse(target)
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and ast.unparse(each.value) in parsed
        for target in each.targets
    }
    returned = {ast.unparse(each.value) for each in ast.walk(function) if isinstance(each, ast.Return) and each.value}
    return bool(returned & (parsed | stored))


def _required(function: ast.FunctionDef) -> list[ast.arg]:
    """Return the parameters of a function that have no default."""
    positional = [*function.args.posonlyargs, *function.args.args]
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [*positional[: len(positional) - len(function.args.defaults)], *(each for each, value in named if not value)]


def default_fields(maker: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the attributes that a function gives to the settings that it returns, as parameters with defaults.

    Those that it names with `add_argument`, too; one that the command line requires has no default.
    """
    returned = {ast.unparse(each.value) for each in ast.walk(maker) if isinstance(each, ast.Return) and each.value}
    for each in ast.walk(maker):
        if isinstance(each, ast.Assign) and isinstance(target := each.targets[0], ast.Attribute):
            if {ast.unparse(target.value)} == returned:
                yield ast.arg(target.attr, ast.Name(type(getattr(each.value, "value", None)).__name__)), each.value
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "add_argument":
            options = [str(name.value) for name in each.args if isinstance(name, ast.Constant)]
            named = {keyword.arg: keyword.value for keyword in each.keywords}
            if name := next((option for option in options if option[:1] != "-" or option.startswith("--")), ""):
                required = named.get("required", ast.Constant(name[:1] != "-" and "nargs" not in named))
                default = None if getattr(required, "value", False) else each
                yield ast.arg(name.lstrip("-").replace("-", "_"), named.get("type")), default


def settings_of(
    parameter: ast.arg,
    default: ast.expr | None,
    classes: Classes,
    makers: Mapping[str, ast.FunctionDef],
    used: set[str],
) -> tuple[str, list[tuple[ast.arg, ast.expr | None]]]:
    """Return the name of what makes the settings that a parameter takes, and their fields; "" if it takes none.

    It is a class that the parameter names. If the name of the parameter alone is usual, it is what has most settings of
    a job: a class with a usual name, or the only function that returns default settings. used: the attributes that the
    loop reads of the parameter, which the settings must have: those of the model are not taken for those of the loop.
    """
    if name := settings_class(parameter, default, classes):
        return name, _fields_of(classes[name])
    if not PARAMETER.fullmatch(parameter.arg) or parameter.annotation is not None:
        return "", []
    found = {name: _fields_of(kind) for name, kind in classes.items() if CLASS.fullmatch(name)}
    if len(makers) == 1:
        found |= {name: list(default_fields(maker)) for name, maker in makers.items()}
    found = {name: those for name, those in found.items() if used <= _attributes(name, those, classes)}
    counts = {name: sum(bool(setting_of(each.arg)) for each, _ in those) for name, those in found.items()}
    most = [name for name, n in counts.items() if n and n == max(counts.values())]
    return (most[0], found[most[0]]) if len(most) == 1 else ("", [])


def _attributes(name: str, those: list[tuple[ast.arg, ast.expr | None]], classes: Classes) -> set[str]:
    """Return the names of the fields of settings, and of the methods and properties of their class."""
    body = classes[name].body if name in classes else []
    return {each.arg for each, _ in those} | {each.name for each in body if isinstance(each, ast.FunctionDef)}


def _fields_of(kind: ast.ClassDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return what a class of settings is created with."""
    init = constructor(kind)
    return list(fields(kind) if init is None else with_defaults(init))


def settings_class(parameter: ast.arg, default: ast.expr | None, classes: Classes) -> str:
    """Return the name of the class of settings that the annotation or the default of a parameter names; "" if none."""
    if annotated := next(_names(parameter.annotation, classes), ""):
        return annotated
    created = next(_names(default.func, classes), "") if isinstance(default, ast.Call) else ""
    usual = PARAMETER.fullmatch(parameter.arg) is not None
    return created if created and (usual or CLASS.fullmatch(created)) else ""


def constructor(kind: ast.ClassDef) -> ast.FunctionDef | None:
    """Return the method `__init__` of a class; None if it has none."""
    found = (each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    return next(found, None)


def fields(kind: ast.ClassDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the fields of a class as parameters, each with its default, None without one."""
    for each in kind.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield ast.arg(each.target.id, each.annotation), each.value
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            yield ast.arg(each.targets[0].id), each.value


def with_defaults(node: ast.FunctionDef | None) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the parameters without `self`, each with its default, None without one."""
    if node is None:
        return
    positional = [*node.args.posonlyargs, *node.args.args]
    required: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    for each, default in zip(positional, [*required, *node.args.defaults], strict=True):
        if each.arg != "self":
            yield each, default
    yield from zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)


def _names(node: ast.expr | None, classes: Classes) -> Iterator[str]:
    """Yield the names of classes in an expression, such as an annotation that is a text or has a `| None`."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            part = ast.Name(part.value)
        if isinstance(part, ast.Name) and part.id in classes:
            yield part.id
