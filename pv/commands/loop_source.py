"""Infer, from the source of a training loop, the role of each method and which job settings it accepts."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pv.contract.names import Target, hyphen_hint
from pv.contract.spelling import did_you_mean
from pv.errors import UsageError
from pv.source import syntax
from pv.source.definitions import definition, home
from pv.source.project import Project
from pv.source.resolve import Unbound, module_file, parse
from pv.suites.training_loop.names import MODEL, NUMBERS, ROLES, divides_by_warmup, setting_of, value_of

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
    if annotated := next(_class_names(parameter.annotation, classes), ""):
        return annotated
    created = next(_class_names(default.func, classes), "") if isinstance(default, ast.Call) else ""
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


def _class_names(node: ast.expr | None, classes: Classes) -> Iterator[str]:
    """Yield the names of classes in an expression, such as an annotation that is a text or has a `| None`."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            part = ast.Name(part.value)
        if isinstance(part, ast.Name) and part.id in classes:
            yield part.id


Definition: TypeAlias = ast.ClassDef | ast.FunctionDef
LONGEST = 90
SUMMED = ("loss", "norm")
"""Numbers of the last step, which an attribute that is added to does not hold."""
LEAST = "least warm-up"
"""The setting of a parameter that takes a warm-up of at least 1, which most jobs do not have."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A training loop as its module declares it: a class, or a function.

    makers: functions that return default settings. annotated: where the classes are that are imported for annotations
    alone. is_warm: it divides by its warm-up, which cannot be 0.
    """

    node: Definition
    classes: Mapping[str, ast.ClassDef]
    makers: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    annotated: Mapping[str, Target] = field(default_factory=dict)
    is_warm: bool = False

    def method(self, role: str) -> ast.FunctionDef | None:
        """Return the public method with a role; of several one that no other calls, and that asks for least."""
        return min(self.named(role), key=_demands, default=None)

    def named(self, role: str) -> list[ast.FunctionDef]:
        """Return the methods whose name is usual for a role, and that no other such method calls; all if all do."""
        methods = (each for each in self.node.body if isinstance(each, ast.FunctionDef))
        named = [each for each in methods if re.fullmatch(ROLES[role], each.name)]
        inner = {name for each in named for name in _called_on_self(each) if name != each.name}
        return [each for each in named if each.name not in inner] or named

    def numbers(self) -> list[str]:
        """Return the expressions of the attributes that alone have a usual name for a number."""
        found = ([each for each in _assigned(self) if re.fullmatch(usual, each)] for usual in NUMBERS.values())
        return [f"self.loop.{names[0]}" for names in found if len(names) == 1]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as text. names: what it needs from the module of the loop. returns: the annotation, "" without one.

    taken: settings of a job.
    """

    text: str
    names: tuple[str, ...] = ()
    returns: str = ""
    taken: frozenset[str] = frozenset()


def read(project: Project, target: Target) -> Loop:
    """Return the class or function of a module. Raise UsageError if there is none, or it takes no model."""
    if not target.attribute or "." in target.attribute:
        raise UsageError(f"invalid trainer '{target}': expected module:function or module:Class")
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid trainer '{target}': {hint}")
    try:
        tree = parse(module_file(project, target.module))
    except Unbound as problem:
        hint = did_you_mean(target.module, problem.known) if problem.known else ""
        raise UsageError(f"{problem}; {hint}" if hint else str(problem)) from problem
    known = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
    if target.attribute not in known:
        hint = did_you_mean(target.attribute, known)
        if any(isinstance(each, ast.For | ast.While) for each in tree.body):
            hint = f"{hint}; a loop at the level of the module has to be in a function that takes its model"
        raise UsageError(f"unknown class or function {target.attribute!r} in {target.module}; {hint}")
    node = known[target.attribute]
    parameters = [each.arg for each, _ in with_defaults(_signature(node))]
    if not any(map(MODEL.fullmatch, parameters)):
        taken = f"its parameters: {', '.join(parameters)}" if parameters else "it has no parameters"
        derived = isinstance(node, ast.ClassDef) and node.bases
        raise UsageError(
            f"{target} takes no model ({taken}), so its own cannot be replaced by the one that the suite watches; give "
            "it a parameter `model`, and the data another, or write an adapter that patches the class of its model, as "
            "in docs/adapters.md"
            + (
                f"; begin with `pv check {target}` if its base is one of transformers, trl or lightning"
                if derived
                else ""
            )
        )
    own = {name: each for name, each in known.items() if isinstance(each, ast.ClassDef)}
    classes, annotated = imported_classes(project, target, tree) | own, annotated_classes(project, target, tree)
    return Loop(node, classes, makers(tree), annotated, divides_by_warmup(tree))


def is_class(loop: Loop) -> bool:
    """Return whether the loop is a class with parts, and not one function."""
    return isinstance(loop.node, ast.ClassDef)


def called(loop: Loop, name: str, given: Mapping[str, str], method: ast.FunctionDef | None = None) -> Call:
    """Return a call of the loop or of a method of it. given: the names of `job` and `model`, and the first argument."""
    node = method or _signature(loop.node)
    names, arguments, taken = [loop.node.name], [], set[str]()
    first = given.get("first", "")
    for parameter, default in with_defaults(node):
        settings = _settings(parameter, default, loop, given["job"])
        if first and default is None:
            arguments.append(first)
            first = ""
        elif value := _value(parameter, given, loop, default) or settings.text:
            arguments.append(f"{parameter.arg}={value}")
            taken |= settings.taken | {_setting(parameter, loop)}
            names.extend(settings.names)
        elif default is None:
            arguments.append(f'{parameter.arg}=fill_in("{parameter.arg}")')
    returns = ast.unparse(node.returns) if node is not None and node.returns is not None else ""
    return Call(_wrapped(name, arguments), tuple(names), returns, frozenset(taken))


def _wrapped(name: str, arguments: list[str], indent: str = 8 * " ") -> str:
    """Return a call, on several lines if it is long."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= LONGEST:
        return line
    return f"{name}(\n" + "".join(f"{indent}    {each},\n" for each in arguments) + f"{indent})"


def attributes(loop: Loop) -> dict[str, str]:
    """Return the expressions for `loss`, `norm`, `rate` and `steps`, as far as attributes of the loop hold them."""
    assigned, added = _assigned(loop), _added_to(loop)
    found: dict[str, str] = {}
    for number, pattern in NUMBERS.items():
        for name in sorted(assigned - added if number in SUMMED else assigned):
            if re.fullmatch(pattern, name):
                found.setdefault(number, f"self.loop.{name}")
    if "optimizer" in assigned and not any("sched" in name for name in assigned):  # it may have moved on by then
        found.setdefault("rate", 'self.loop.optimizer.param_groups[0]["lr"]')
    return found


def _assigned(loop: Loop) -> set[str]:
    """Return the names of the attributes that a loop assigns."""
    return {
        node.attr
        for node in ast.walk(loop.node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    }


def _added_to(loop: Loop) -> set[str]:
    """Return the names of the attributes that a loop adds to, as a sum does."""
    added = (node.target for node in ast.walk(loop.node) if isinstance(node, ast.AugAssign))
    return {each.attr for each in added if isinstance(each, ast.Attribute) and _is_self(each.value)}


def _called_on_self(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the names of the methods that a method calls on `self`."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_self(node.func.value):
            yield node.func.attr


def _demands(method: ast.FunctionDef) -> int:
    """Return how many parameters of a method have no default."""
    return sum(default is None for _, default in with_defaults(method))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _signature(node: Definition) -> ast.FunctionDef | None:
    """Return the function itself, or `__init__` of a class; None for a class without one."""
    if isinstance(node, ast.FunctionDef):
        return node
    return constructor(node)


def _used(parameter: str, loop: Loop) -> set[str]:
    """Return the attributes that a loop reads of a parameter, or of the attribute of `self` that keeps it."""
    kept = {parameter}
    for node in ast.walk(loop.node):
        values = zip(*_pair(node), strict=False) if isinstance(node, ast.Assign) else ()
        kept |= {ast.unparse(target) for target, value in values if ast.unparse(value) == parameter}
    read = (each for each in ast.walk(loop.node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load))
    return {each.attr for each in read if ast.unparse(each.value) in kept}


def _pair(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr]]:
    """Return the targets and the values of an assignment, also of one to several names."""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return target.elts, node.value.elts
    return node.targets, [node.value] * len(node.targets)


def _value(parameter: ast.arg, given: Mapping[str, str], loop: Loop, default: ast.expr | None = None) -> str:
    """Return what a job has for a parameter; "" if its name does not tell. A warm-up that cannot be 0 is 1."""
    if "model" in given and MODEL.fullmatch(parameter.arg):
        return given["model"]
    if parameter.arg == "device":
        return '"cpu"'
    setting, own = _setting(parameter, loop), default.value if isinstance(default, ast.Constant) else None
    if setting == LEAST:
        return "1"
    return value_of(setting, _annotation(parameter), own).replace("job", given["job"]) if setting else ""


def _setting(parameter: ast.arg, loop: Loop) -> str:
    """Return which setting of a job a parameter takes, `LEAST` for a warm-up that cannot be 0; "" for none."""
    found = setting_of(parameter.arg, _annotation(parameter))
    return LEAST if found == "warmup" and loop.is_warm else found


def _annotation(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation is not None else ""


def _settings(parameter: ast.arg, default: ast.expr | None, loop: Loop, job: str) -> Call:
    """Return the settings of a job for a parameter that takes several; no text if the source does not tell of them."""
    name, fields = settings_of(parameter, default, loop.classes, loop.makers, _used(parameter.arg, loop))
    if not name:
        return Call("")
    taken = {each.arg: _setting(each, loop) for each, _ in fields}
    own = [f"{each}=1" for each, setting in taken.items() if setting == LEAST]
    own += [f'{each.arg}=fill_in("{each.arg}")' for each, value in fields if value is None and not taken[each.arg]]
    text = _wrapped("settings", [name, job, *own], 12 * " ")
    return Call(text, (name.partition(".")[0],), taken=frozenset(taken.values()))
