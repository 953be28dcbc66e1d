"""Write the adapter of a training loop from its source; parts that the source does not tell are left to fill in."""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pv.commands.function_under_contract import required_arguments
from pv.commands.naming import same_claims
from pv.commands.new import Written, create
from pv.commands.observed import ObservedRun, check_run
from pv.contract.load import shown_path
from pv.contract.model import Target, hyphen_hint
from pv.contract.wording import did_you_mean
from pv.errors import UsageError
from pv.source import syntax
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound, definition, home, module_file, module_name, parse
from pv.suites.training_loop.names import MODEL, NUMBERS, ROLES, VALUES, divides_by_warmup, setting_of, value_of

PARAMETER = re.compile(r"(\w+_)?(config|cfg|conf|settings|args|arguments|options|opts|hparams)")
CLASS = re.compile(r"\w*(Config|Cfg|Conf|Settings|Args|Arguments|Options|Opts|HParams)")
MAKER = re.compile(r"(get_|make_|parse_)?(default_)?(config|cfg|conf|settings|args|options|hparams)|(get_)?defaults")
"""Usual names of a parameter that takes settings, of their class, and of a function that returns the default ones.

A function that returns what its parser of the command line has read returns settings, whatever its name is."""
Classes = Mapping[str, ast.ClassDef]


def imported_classes(project: Project, target: Target, tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes that a module imports from other modules of the project, by their local name."""
    names = [*_imported(tree.body), *annotated_classes(project, target, tree)]
    definitions = {name: definition(project, Target(target.module, name)) for name in names}
    return {name: node for name, node in definitions.items() if isinstance(node, ast.ClassDef)}


def annotated_classes(project: Project, target: Target, tree: ast.Module) -> dict[str, Target]:
    """Return where names are defined that a module imports only under `TYPE_CHECKING`."""
    guards = (
        statement
        for statement in tree.body
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
    )
    return {name: home(project, Target(target.module, name)) for guard in guards for name in _imported(guard.body)}


def _imported(body: list[ast.stmt]) -> list[str]:
    return [name.asname or name.name for node in body if isinstance(node, ast.ImportFrom) for name in node.names]


def makers(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions that return default settings without arguments, by dotted name."""
    # Recognized by a usual name, or because they return what an ArgumentParser has parsed.
    functions = ((name, function) for name, function in syntax.walk(tree.body) if isinstance(function, ast.FunctionDef))
    usual = {
        n: function
        for n, function in functions
        if (MAKER.fullmatch(function.name) or _parses(function)) and any(default_fields(function))
    }
    return {
        name: function
        for name, function in usual.items()
        if {arg.arg for arg, _ in required_arguments(function.args)} <= {"cls"}
    }


def _parses(function: ast.FunctionDef) -> bool:
    """Return whether a function returns parsed command-line arguments."""
    names = ("parse_args", "parse_known_args")
    calls = [ast.unparse(child) for child in ast.walk(function) if isinstance(child, ast.Call)]
    parsed = {text for text in calls if any(f".{name}(" in text for name in names)}
    stored = {
        ast.unparse(target)
        for child in ast.walk(function)
        if isinstance(child, ast.Assign) and ast.unparse(child.value) in parsed
        for target in child.targets
    }
    returned = {ast.unparse(node.value) for node in ast.walk(function) if isinstance(node, ast.Return) and node.value}
    return bool(returned & (parsed | stored))


def default_fields(maker: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the fields of the settings that a function returns, as parameters with defaults.

    Fields are attributes that it assigns and options of `add_argument`; a required option has no default.
    """
    returned = {
        ast.unparse(statement.value)
        for statement in ast.walk(maker)
        if isinstance(statement, ast.Return) and statement.value
    }
    for node in ast.walk(maker):
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
            if {ast.unparse(target.value)} == returned:
                yield ast.arg(target.attr, ast.Name(type(getattr(node.value, "value", None)).__name__)), node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            options = [str(name.value) for name in node.args if isinstance(name, ast.Constant)]
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            if name := next((option for option in options if option[:1] != "-" or option.startswith("--")), ""):
                required = keywords.get("required", ast.Constant(name[:1] != "-" and "nargs" not in keywords))
                default = None if getattr(required, "value", False) else node
                yield ast.arg(name.lstrip("-").replace("-", "_"), keywords.get("type")), default


def settings_of(
    parameter: ast.arg,
    default: ast.expr | None,
    classes: Classes,
    makers: Mapping[str, ast.FunctionDef],
    used: set[str],
) -> tuple[str, list[tuple[ast.arg, ast.expr | None]]]:
    """Find the settings class of a parameter and the arguments that its constructor needs.

    1. A class that the annotation or the default of the parameter names.
    2. Otherwise, if the parameter has a usual name such as `config`: the class with a usual name, or the only function
       that returns default settings, which has the most settings of a job.

    Args:
        parameter: The parameter of the loop.
        default: Its default; None without one.
        classes: The classes that the module can name.
        makers: Functions that return default settings.
        used: The attributes that the loop reads of the parameter. A candidate without one of them is dropped, so that
            the settings of the model are not taken for those of the loop.

    Returns:
        The name of the class or function, and its fields with defaults; ("", []) if there is none.
    """
    if name := settings_class(parameter, default, classes):
        return name, _fields_of(classes[name])
    if not PARAMETER.fullmatch(parameter.arg) or parameter.annotation is not None:
        return "", []
    candidates = {name: _fields_of(kind) for name, kind in classes.items() if CLASS.fullmatch(name)}
    if len(makers) == 1:
        candidates |= {name: list(default_fields(maker)) for name, maker in makers.items()}
    candidates = {name: those for name, those in candidates.items() if used <= _attributes(name, those, classes)}
    counts = {name: sum(bool(setting_of(argument.arg)) for argument, _ in those) for name, those in candidates.items()}
    most = [name for name, n in counts.items() if n and n == max(counts.values())]
    return (most[0], candidates[most[0]]) if len(most) == 1 else ("", [])


def _attributes(name: str, those: list[tuple[ast.arg, ast.expr | None]], classes: Classes) -> set[str]:
    """Return the names of the fields, methods and properties of settings."""
    body = classes[name].body if name in classes else []
    return {argument.arg for argument, _ in those} | {
        statement.name for statement in body if isinstance(statement, ast.FunctionDef)
    }


def _fields_of(kind: ast.ClassDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the arguments of the constructor of a settings class, with defaults."""
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
    methods = (
        statement for statement in kind.body if isinstance(statement, ast.FunctionDef) and statement.name == "__init__"
    )
    return next(methods, None)


def fields(kind: ast.ClassDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the fields of a class as parameters, each with its default, None without one."""
    for statement in kind.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield ast.arg(statement.target.id, statement.annotation), statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield ast.arg(statement.targets[0].id), statement.value


def with_defaults(node: ast.FunctionDef | None) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the parameters without `self`, each with its default, None without one."""
    if node is None:
        return
    positional = [*node.args.posonlyargs, *node.args.args]
    required: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    for argument, default in zip(positional, [*required, *node.args.defaults], strict=True):
        if argument.arg != "self":
            yield argument, default
    yield from zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)


def _class_names(node: ast.expr | None, classes: Classes) -> Iterator[str]:
    """Yield the names of classes in an annotation, which may be a string or a union."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            part = ast.Name(part.value)
        if isinstance(part, ast.Name) and part.id in classes:
            yield part.id


Definition: TypeAlias = ast.ClassDef | ast.FunctionDef
LONGEST = 90
SUMMED = ("loss", "norm")
"""Numbers of the last step; an attribute that accumulates a sum does not hold them."""
LEAST = "least warm-up"
"""The setting of a warm-up parameter that must be at least 1, because the loop divides by it."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The source of a training loop.

    Attributes:
        node: The class or function.
        classes: The classes that its module can name.
        makers: Functions that return default settings.
        annotated: Where classes are defined that are imported only under `TYPE_CHECKING`.
        is_warm: Whether the loop divides by its warm-up, so that the warm-up cannot be 0.
    """

    node: Definition
    classes: Mapping[str, ast.ClassDef]
    makers: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    annotated: Mapping[str, Target] = field(default_factory=dict)
    is_warm: bool = False

    def method(self, role: str) -> ast.FunctionDef | None:
        """Return the method with a role, such as "update"; of several the one with the fewest required parameters."""
        return min(self.named(role), key=_demands, default=None)

    def named(self, role: str) -> list[ast.FunctionDef]:
        """Return the methods with a usual name for a role, without those that another of them calls."""
        # `train` that calls `_train_epoch` is the role, and the inner method is a part of it.
        methods = (statement for statement in self.node.body if isinstance(statement, ast.FunctionDef))
        named = [method for method in methods if re.fullmatch(ROLES[role], method.name)]
        inner = {name for method in named for name in _called_on_self(method) if name != method.name}
        return [method for method in named if method.name not in inner] or named

    def numbers(self) -> list[str]:
        """Return the attributes that hold a number, such as the loss, if only one attribute has a usual name for it."""
        attributes_by_number = (
            [attribute for attribute in _assigned(self) if re.fullmatch(usual, attribute)] for usual in NUMBERS.values()
        )
        return [f"self.loop.{names[0]}" for names in attributes_by_number if len(names) == 1]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as text.

    Attributes:
        text: The source of the call.
        names: The names to import from the module of the loop.
        returns: The return annotation; "" without one.
        taken: The settings of a job that the call passes.
    """

    text: str
    names: tuple[str, ...] = ()
    returns: str = ""
    taken: frozenset[str] = frozenset()


def read_loop(project: Project, target: Target) -> Loop:
    """Read a class or function. Raise UsageError if it does not exist or has no parameter for a model."""
    if not target.attribute or "." in target.attribute:
        raise UsageError(f"invalid trainer '{target}': expected module:function or module:Class")
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid trainer '{target}': {hint}")
    try:
        tree = parse(module_file(project, target.module))
    except Unbound as problem:
        hint = did_you_mean(target.module, problem.known) if problem.known else ""
        raise UsageError(f"{problem}; {hint}" if hint else str(problem)) from problem
    definitions = {item.name: item for item in tree.body if isinstance(item, ast.ClassDef | ast.FunctionDef)}
    if target.attribute not in definitions:
        hint = did_you_mean(target.attribute, definitions)
        if any(isinstance(statement, ast.For | ast.While) for statement in tree.body):
            hint = f"{hint}; a loop at the level of the module has to be in a function that takes its model"
        raise UsageError(f"unknown class or function {target.attribute!r} in {target.module}; {hint}")
    node = definitions[target.attribute]
    parameters = [item.arg for item, _ in with_defaults(_signature(node))]
    if not any(map(MODEL.fullmatch, parameters)):
        signature = f"its parameters: {', '.join(parameters)}" if parameters else "it has no parameters"
        derived = isinstance(node, ast.ClassDef) and node.bases
        raise UsageError(
            f"{target} takes no model ({signature}), so its own cannot be replaced by the one that the suite watches; "
            "give it a parameter `model`, and the data another, or write an adapter that patches the class of its "
            "model, as in docs/adapters.md"
            + (
                f"; begin with `pv check {target}` if its base is one of transformers, trl or lightning"
                if derived
                else ""
            )
        )
    local_classes = {name: item for name, item in definitions.items() if isinstance(item, ast.ClassDef)}
    classes, annotated = (
        imported_classes(project, target, tree) | local_classes,
        annotated_classes(project, target, tree),
    )
    return Loop(node, classes, makers(tree), annotated, divides_by_warmup(tree))


def is_class(loop: Loop) -> bool:
    """Return whether the loop is a class with parts, and not one function."""
    return isinstance(loop.node, ast.ClassDef)


def called(loop: Loop, name: str, names_of_job: Mapping[str, str], method: ast.FunctionDef | None = None) -> Call:
    """Return a call of the loop, or of a method of it.

    Args:
        loop: The loop.
        name: The name to call.
        names_of_job: The expressions for "job", "model", and optionally "first", the first required argument.
        method: The method; None to call the loop itself.
    """
    node = method or _signature(loop.node)
    imports, arguments, taken = [loop.node.name], [], set[str]()
    first = names_of_job.get("first", "")
    for parameter, default in with_defaults(node):
        settings = _settings(parameter, default, loop, names_of_job["job"])
        if first and default is None:
            arguments.append(first)
            first = ""
        elif value := _value(parameter, names_of_job, loop, default) or settings.text:
            arguments.append(f"{parameter.arg}={value}")
            taken |= settings.taken | {_setting(parameter, loop)}
            imports.extend(settings.names)
        elif default is None:
            arguments.append(f'{parameter.arg}=fill_in("{parameter.arg}")')
    returns = ast.unparse(node.returns) if node is not None and node.returns is not None else ""
    return Call(_wrapped(name, arguments), tuple(imports), returns, frozenset(taken))


def _wrapped(name: str, arguments: list[str], indent: str = 8 * " ") -> str:
    """Return a call, on several lines if it is long."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= LONGEST:
        return line
    return f"{name}(\n" + "".join(f"{indent}    {argument},\n" for argument in arguments) + f"{indent})"


def attributes(loop: Loop) -> dict[str, str]:
    """Return the expressions for `loss`, `norm`, `rate` and `steps` that attributes of the loop hold."""
    assigned, added = _assigned(loop), _added_to(loop)
    expressions: dict[str, str] = {}
    for number, pattern in NUMBERS.items():
        for name in sorted(assigned - added if number in SUMMED else assigned):
            if re.fullmatch(pattern, name):
                expressions.setdefault(number, f"self.loop.{name}")
    # With a scheduler the optimizer may already hold the rate of the next step.
    if "optimizer" in assigned and not any("sched" in name for name in assigned):
        expressions.setdefault("rate", 'self.loop.optimizer.param_groups[0]["lr"]')
    return expressions


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
    return {target.attr for target in added if isinstance(target, ast.Attribute) and _is_self(target.value)}


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
    """Return the attributes that a loop reads of a parameter, directly or after `self.x = parameter`."""
    expressions = {parameter}
    for node in ast.walk(loop.node):
        values = zip(*_pair(node), strict=False) if isinstance(node, ast.Assign) else ()
        expressions |= {ast.unparse(target) for target, value in values if ast.unparse(value) == parameter}
    read = (
        attribute
        for attribute in ast.walk(loop.node)
        if isinstance(attribute, ast.Attribute) and isinstance(attribute.ctx, ast.Load)
    )
    return {attribute.attr for attribute in read if ast.unparse(attribute.value) in expressions}


def _pair(node: ast.Assign) -> tuple[list[ast.expr], list[ast.expr]]:
    """Return the targets and the values of an assignment, also of one to several names."""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return target.elts, node.value.elts
    return node.targets, [node.value] * len(node.targets)


def _value(parameter: ast.arg, names: Mapping[str, str], loop: Loop, default: ast.expr | None = None) -> str:
    """Return the value that a job has for a parameter; "" if the name of the parameter tells nothing."""
    if "model" in names and MODEL.fullmatch(parameter.arg):
        return names["model"]
    if parameter.arg == "device":
        return '"cpu"'
    setting, default_value = _setting(parameter, loop), default.value if isinstance(default, ast.Constant) else None
    if setting == LEAST:
        return "1"
    return value_of(setting, _annotation(parameter), default_value).replace("job", names["job"]) if setting else ""


def _setting(parameter: ast.arg, loop: Loop) -> str:
    """Return which setting of a job a parameter takes, `LEAST` for a warm-up that cannot be 0; "" for none."""
    setting = setting_of(parameter.arg, _annotation(parameter))
    return LEAST if setting == "warmup" and loop.is_warm else setting


def _annotation(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation is not None else ""


def _settings(parameter: ast.arg, default: ast.expr | None, loop: Loop, job: str) -> Call:
    """Return the call that creates the settings for a parameter; its text is "" if the settings class is unknown."""
    name, fields = settings_of(parameter, default, loop.classes, loop.makers, _used(parameter.arg, loop))
    if not name:
        return Call("")
    setting_by_field = {argument.arg: _setting(argument, loop) for argument, _ in fields}
    extra_arguments = [f"{argument}=1" for argument, setting in setting_by_field.items() if setting == LEAST]
    extra_arguments += [
        f'{argument.arg}=fill_in("{argument.arg}")'
        for argument, value in fields
        if value is None and not setting_by_field[argument.arg]
    ]
    text = _wrapped("settings", [name, job, *extra_arguments], 12 * " ")
    return Call(text, (name.partition(".")[0],), taken=frozenset(setting_by_field.values()))


SEEN = ("loss", "rate", "norm")
_IN_PARTS = '''"""The adapter of `{target}`: what `pv check` calls to attack it."""

{imports}
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.probe import Probe
{call_imports}


class Adapter(HandWritten):
    features = {features}
{not_claimed}
    def build(self, job: Job, model: Probe) -> None:
        # model(tokens) maps token ids [B, T] to logits [B, T, V]. Wrap it if the loop calls its model otherwise.
        self.loop = {build}
'''
_LAST_LOSS = """    not_claimed = dict.fromkeys(  # delete it if the loss is the mean over all tokens since the last log
        ("TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), "the loss is that of the last step"
    )
"""
_REASONS = {
    "evaluate": "it has no method that evaluates",
    "save": "it has no method that saves",
    "clip": "it takes no limit of the norm",
    "schedule": "it takes no warm-up",
    "epochs": "it takes no number of epochs",
    "max_steps": "it takes no number of steps",
    "accumulate": "it takes no number of micro-batches",
}
"""Why a loop does not have a feature, as its source tells."""
_DIVIDES = "it divides by its warm-up, which is 0 in most jobs"
_TO_ADD = """\
        # Uncomment what holds for the loop; for "sequences", see `Classifier` and `classified` of
        # pv.suites.training_loop.adapters.usual.
        # "masks": "every token is scored", "gaps": "tokens that are not scored come first, as a prompt",
        # "lengths": "all rows have one length", "sequences": "an example has one label, as in a classifier",
        # "epochs": "it counts steps alone", "short_windows": "windows go on over the end of an epoch",
"""
_METHODS = {
    "windows": "windows(self) -> Iterable[Any]:\n        return {}",
    "update": "update(self, window: Any) -> None:\n        {}",
    "log": "log(self) -> Mapping[str, float]:\n        return {}",
    "evaluate": "evaluate(self) -> float:\n        {}",
    "save": "save(self, path: Path) -> None:\n        {}",
    "load": "load(self, path: Path) -> int:\n        {}",
}
_IMPORTS = {"collections.abc": ("Iterable", "Mapping"), "pathlib": ("Path",), "typing": ("Any",)}
_WHOLE = '''"""The adapter of `{target}`: what `pv check` calls to attack it."""

{imports}
from pv.suites.training_loop.job import Job, Report
{call_imports}


class Adapter(HandWritten):
    # pv.suites.training_loop.adapters.usual: `logged(rows)` returns logs and evaluations for the report, and
    # `copies(loop)` checkpoints. If the loop logs, name what it logs, such as "loss": True, "rate": True, "norm": True.
    features = {features}

    def run(self, job: Job) -> Report:
        # model(tokens) maps token ids [B, T] to logits [B, T, V]. Wrap it if the loop calls its model otherwise.
        model = job.model()
        # `next_tokens(job.train)` and `Rows(job, job.train)` of pv.suites.training_loop.adapters.usual are usual rows.
        {train}
        {ends}
'''
_REPORTED = {
    "evaluate": """report.evaluations = fill_in("pairs of step and loss; see `logged`") if job.eval_every else []""",
    "save": """report.checkpoints = fill_in("paths by step; see `copies`") if job.save_every else {}""",
}
"""Lines of the adapter for a class with one method that trains, by the role of its other methods."""
_BY_SETTING = {"clip": "clip", "warmup": "schedule"}


def new_adapter(trainer: str, *, trace: Path | None = None) -> Written:
    """Write an adapter beside the module of a training loop. The module is read, not imported.

    Args:
        trainer: The class or function as `module:name`.
        trace: Folder with the traces of a run of the loop; the advice then lists the claims that the run passed.

    Raises:
        UsageError: The name cannot be resolved, has no parameter for a model, the folder has no traces, or the file
            exists.
    """
    shown = _shown_by(check_run(trace=trace)) if trace is not None else []
    project = find_project(Path.cwd())
    target = home(project, Target.parse(trainer))
    loop = read_loop(project, target)
    path = module_file(project, target.module)
    path = path.with_name(f"{path.stem}_adapter.py")
    text = _in_parts(target, loop) if is_class(loop) and not _trains_in_one_call(loop) else _whole(target, loop)
    if os.path.lexists(path):
        raise UsageError(f"{shown_path(path)} exists; nothing was written")
    create({path: text})
    return Written(
        files=(shown_path(path),),
        advice=(*shown, *_to_fill_in(shown_path(path), text)),
        commands=(f"pv check {module_name(project, path)}:Adapter",),
    )


def _to_fill_in(path: Path, text: str) -> list[str]:
    """Return advice that lists every part to fill in, with its line and name."""
    blanks = [
        (i, name) for i, line in enumerate(text.splitlines(), 1) for name in re.findall(r'fill_in\("(.+?)"\)', line)
    ]
    places = [f"  {path}:{line}  {name}" for line, name in blanks]
    asks = "fill in what the source does not tell; until then the claims that need it are undecided:"
    return [asks, *places] if places else []


def _shown_by(run: ObservedRun) -> list[str]:
    """Return the claims that a run passed, as advice, each with the claims of the adapter with the same meaning."""
    same_ids = same_claims()

    def listed_ids(ids: Iterable[str]) -> str:
        return ", ".join(f"{id_} (as {', '.join(same_ids[id_])})" if same_ids.get(id_) else id_ for id_ in ids)

    lines = [
        f"this run of {run.run.steps} steps has passed, and the adapter tries on more jobs: {listed_ids(run.held)}"
    ]
    if run.falsified:
        lines.append(f"it is falsified already, so mend this first (pv check --trace): {listed_ids(run.falsified)}")
    return lines


def _trains_in_one_call(loop: Loop) -> bool:
    """Return whether a class trains in one method call and has no method that yields windows of data."""
    return loop.method("fit") is not None and loop.method("windows") is None


def _training(loop: Loop) -> Call:
    """Return the call of a function that trains, or the construction of a class and the call of its method."""
    construction = called(loop, loop.node.name, {"job": "job", "model": "model"})
    if not is_class(loop):
        return construction
    method = loop.method("fit")
    assert method is not None
    call = called(loop, f"loop.{method.name}", {"job": "job"}, method)
    return Call(
        f"loop = {construction.text}\n        {call.text}",
        (*construction.names, *call.names),
        taken=construction.taken | call.taken,
    )


def _whole(target: Target, loop: Loop) -> str:
    call = _with_its_end(_training(loop))
    # A settings object that is left to fill in may have any of these settings, so none is declared missing.
    unread = any(map(PARAMETER.fullmatch, re.findall(r'fill_in\("(\w+)"\)', call.text)))
    unset = [name for setting, name in _BY_SETTING.items() if setting not in call.taken and not unread]
    reported = [role for role in _REPORTED if is_class(loop) and loop.method(role) is not None]
    missing = [role for role in _REPORTED if role not in reported]
    without = [*missing, *unset, *_ends(call), *_windows(call)]
    text = _WHOLE.format(
        target=target,
        imports="{imports}",
        call_imports=_imports_of_call(target, loop, call),
        features=_features({name: _REASONS[name] for name in without}),
        train=call.text,
        ends=_report(loop, reported),
    )
    return text.replace("{imports}", _imports(text))


def _imports_of_call(target: Target, loop: Loop, call: Call) -> str:
    """Return the imports that a call needs: from the module of the loop, or from where an annotation is defined."""
    names, for_annotations = {*call.names} - loop.annotated.keys(), {*call.names} & loop.annotated.keys()
    lines = [
        f"from {loop.annotated[n].module} import {loop.annotated[n].attribute} as {n}" for n in sorted(for_annotations)
    ]
    return "\n".join([f"from {target.module} import {', '.join(sorted(names))}", *lines])


def _report(loop: Loop, reported: list[str]) -> str:
    """Return the lines that return the report of a loop.

    Args:
        loop: The loop.
        reported: The roles of the loop's methods whose results the report includes.
    """
    report = f"Report(model=model{_final_step(loop)})"
    if not reported:
        return f"return {report}"
    return "\n        ".join([f"report = {report}", *(_REPORTED[role] for role in reported), "return report"])


def _final_step(loop: Loop) -> str:
    """Return the argument with the final step, for a class that counts its steps."""
    steps = attributes(loop).get("steps", "") if is_class(loop) else ""
    return f", final_step={steps.removeprefix('self.')}" if steps else ""


def _in_parts(target: Target, loop: Loop) -> str:
    build = _with_its_end(called(loop, loop.node.name, {"job": "job", "model": "model"}))
    expressions = attributes(loop)
    features: dict[str, bool | str] = {name: True for name in SEEN if name in expressions}
    features |= {name: _REASONS[name] for name in _ends(build)} | ({"schedule": _DIVIDES} if loop.is_warm else {})
    methods = "".join(
        f"\n    def {_METHODS[name].format(body)}\n" for name, body in _overridden(loop, expressions).items()
    )
    text = _IN_PARTS.format(
        target=target,
        imports="{imports}",
        call_imports=_imports_of_call(target, loop, build),
        build=build.text,
        features=_features(features),
        not_claimed=_LAST_LOSS if "loss" in expressions else "",
    )
    return text.replace("{imports}", _imports(text + methods)) + methods


def _with_its_end(call: Call) -> Call:
    """Return the call with `job.epochs` as its epochs if the loop takes no number of steps."""
    text = call.text.replace(VALUES["epochs"], "job.epochs")
    return call if "max_steps" in call.taken else replace(call, text=text)


def _ends(call: Call) -> list[str]:
    """Return the one of `epochs` and `max_steps` that a loop does not take, if it takes the other."""
    is_taken_by_name = {name: name in call.taken for name in ("epochs", "max_steps")}
    return (
        [name for name, is_taken in is_taken_by_name.items() if not is_taken] if any(is_taken_by_name.values()) else []
    )


def _windows(call: Call) -> list[str]:
    """Return `accumulate` if a function that takes the length of the run takes no number of micro-batches."""
    return ["accumulate"] if _ends(call) and "accumulate" not in call.taken else []


def _overridden(loop: Loop, expressions: Mapping[str, str]) -> dict[str, str]:
    """Return the bodies of the adapter's methods that must be written because the inherited one does not fit."""
    steps = expressions.get("steps", 'fill_in("how many steps were taken before the checkpoint")')
    bodies = {
        "windows": _part(loop, "windows").text,
        "update": _part(loop, "update", "window").text,
        "log": "{" + ", ".join(f'"{name}": {expressions[name]}' for name in SEEN if name in expressions) + "}",
        "evaluate": _evaluate(_part(loop, "evaluate")),
        "save": _with_path(_part(loop, "save", "path")),
        "load": f"{_with_path(_part(loop, 'load', 'path'))}\n        return {steps}",
    }
    numbers = [expressions[name] for name in SEEN if name in expressions]
    inherited = {
        "windows": _usual(loop, "windows", "{}()"),
        "update": _usual(loop, "update", "{}(window)"),
        "log": bodies["log"] if all(number in loop.numbers() for number in numbers) else "",
        "evaluate": _usual(loop, "evaluate", "return {}()"),
        "save": _usual(loop, "save", "{}(path)"),
        "load": _usual(loop, "load", "{}(path)\n        return ") + steps if steps in loop.numbers() else "",
    }
    return {name: body for name, body in bodies.items() if body != inherited[name]}


def _usual(loop: Loop, role: str, call: str) -> str:
    """Return the call that the inherited method makes; "" if the loop has no method with this role, or several."""
    names = loop.named(role)
    return call.format(f"self.loop.{names[0].name}") if len(names) == 1 else ""


def _imports(text: str) -> str:
    """Return the imports of the usual names that occur in an adapter."""
    used = {module: [name for name in names if re.search(rf"\b{name}\b", text)] for module, names in _IMPORTS.items()}
    lines = [f"from {module} import {', '.join(names)}" for module, names in used.items() if names]
    helper = "HandWritten, fill_in" if "fill_in(" in text else "HandWritten"
    usual_imports = [f"from pv.suites.training_loop.adapters.handwritten import {helper}"]
    if "=settings(" in text:
        usual_imports.append("from pv.suites.training_loop.adapters.usual import settings")
    return "\n".join([*lines, *([""] if lines else []), *usual_imports])


def _part(loop: Loop, role: str, first: str = "") -> Call:
    """Return the call of the method with a role; `first` is the argument for its first required parameter."""
    method = loop.method(role)
    if method is None:
        return Call(f'fill_in("{role}")')
    return called(loop, f"self.loop.{method.name}", {"job": "self.job", "first": first}, method)


def _with_path(call: Call) -> str:
    """Return the call of a method that saves or loads, or a blank to fill in if the method takes no path."""
    if "path" in call.text or call.text.startswith("fill_in("):
        return call.text
    return f'fill_in("the path, for {call.text}")'


def _evaluate(call: Call) -> str:
    call = replace(call, text=call.text.replace("self.job.batch", "self.job.eval_batch"))
    if call.returns == "float" or call.text.startswith("fill_in("):
        return f"return {call.text}"
    description = "the loss over job.evaluated, in batches of job.eval_batch, of what was found: "
    return f'found = {call.text}\n        return fill_in("{description}", found)'


def _features(features: Mapping[str, bool | str]) -> str:
    """Return the mapping of an adapter as code, with comments about features that the source does not tell."""
    lines = (f'        "{name}": {value if value is True else _quoted(value)},\n' for name, value in features.items())
    return f"{{\n{''.join(lines)}{_TO_ADD}    }}"


def _quoted(value: bool | str) -> str:
    return f'"{value}"'
