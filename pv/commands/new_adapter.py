"""Write the adapter of a training loop from the source of the loop; the user fills in parts that the source omits."""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from pv.commands.function_under_contract import class_fields, with_defaults
from pv.commands.naming import same_claims
from pv.commands.new import WrittenFiles, create, template
from pv.commands.observed import ObservedRun, check_run
from pv.contract.load import shown_path
from pv.contract.model import Target, hyphen_hint
from pv.contract.wording import did_you_mean
from pv.errors import UsageError
from pv.source import syntax
from pv.source.project import Project, find_project
from pv.source.resolve import Unbound, definition, follow_imports, module_file, module_name, parse
from pv.suites.training_loop.usual_names import MODEL, NUMBERS, ROLES, VALUES, divides_by_warmup, setting_of, value_of

PARAMETER = re.compile(r"(\w+_)?(config|cfg|conf|settings|args|arguments|options|opts|hparams)")
CLASS = re.compile(r"\w*(Config|Cfg|Conf|Settings|Args|Arguments|Options|Opts|HParams)")
MAKER = re.compile(r"(get_|make_|parse_)?(default_)?(config|cfg|conf|settings|args|options|hparams)|(get_)?defaults")
"""Usual names of a parameter that takes settings, of their class, and of a function that returns default settings.

A function with any name that returns parsed command-line arguments also returns settings."""
Fields = list[tuple[ast.arg, ast.expr | None]]
"""The fields of settings, or the parameters of a function, each with its default; None without one."""


def _imported(body: list[ast.stmt]) -> list[str]:
    """Return the names that the `from ... import` statements of a block bind."""
    return [name.asname or name.name for node in body if isinstance(node, ast.ImportFrom) for name in node.names]


def find_makers(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the functions that return default settings without arguments, by dotted name.

    Such a function has a usual name, or returns the arguments that an ArgumentParser has parsed.
    """
    return {
        name: function
        for name, function in syntax.walk(tree.body)
        if isinstance(function, ast.FunctionDef)
        and (MAKER.fullmatch(function.name) or _returns_parsed_arguments(function))
        and any(default_fields(function))
        # No required argument, except the class of a class method.
        and {argument.arg for argument, value in with_defaults(function) if value is None} <= {"cls"}
    }


def _returns_parsed_arguments(function: ast.FunctionDef) -> bool:
    """Return whether a function returns parsed command-line arguments, directly or through a variable."""
    nodes = list(ast.walk(function))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    # `parse_known_args` returns a pair, whose first value has the arguments.
    pairs = {ast.unparse(c) for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "parse_known_args"}
    parsed = {text for text in map(ast.unparse, calls) if ".parse_args(" in text or ".parse_known_args(" in text}
    parsed = parsed - pairs | {f"{pair}[0]" for pair in pairs}
    for node in nodes:
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in parsed:
            parsed |= {*map(ast.unparse, node.targets)}
        elif isinstance(node, ast.Assign) and ast.unparse(node.value) in pairs:
            parsed |= {ast.unparse(t.elts[0]) for t in node.targets if isinstance(t, ast.Tuple) and t.elts}
            parsed |= {f"{ast.unparse(t)}[0]" for t in node.targets}
    return any(isinstance(node, ast.Return) and node.value and ast.unparse(node.value) in parsed for node in nodes)


def default_fields(maker: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """Yield the fields of the settings that a function returns, as parameters with defaults.

    Fields are the attributes that the function sets on its return value, and the options that it declares with
    `add_argument`. A required option, and a positional argument without `nargs`, has no default.
    """
    nodes = list(ast.walk(maker))
    returned = {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Return) and node.value}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
            if {ast.unparse(target.value)} == returned:
                type_of_constant = type(getattr(node.value, "value", None)).__name__
                yield ast.arg(target.attr, ast.Name(type_of_constant)), node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            options = [str(name.value) for name in node.args if isinstance(name, ast.Constant)]
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            # The field is named by the first long option or positional argument: `--batch-size` is `batch_size`.
            if name := next((option for option in options if option[:1] != "-" or option.startswith("--")), ""):
                is_positional = not name.startswith("-") and "nargs" not in keywords
                is_required = getattr(keywords.get("required"), "value", is_positional)
                # Only the presence of a default matters, and a default may be computed: yield the call instead.
                yield ast.arg(name.lstrip("-").replace("-", "_"), keywords.get("type")), None if is_required else node


def settings_of(parameter: ast.arg, default: ast.expr | None, loop: "Loop") -> tuple[str, Fields]:
    """Find the settings class of a parameter and the arguments that its constructor needs.

    1. Take the class that the annotation names, or the class that the default creates if the parameter or the class has
       a usual name.
    2. Otherwise, if the parameter has no annotation and a usual name such as `config`, take the candidate with the most
       settings of a job. Candidates are the classes with a usual name, and the function that returns default settings
       if there is exactly one. A candidate must have all attributes that the loop reads, so that settings of the model
       are not mistaken for settings of the loop.

    Args:
        parameter: The parameter of the loop.
        default: Its default; None without one.
        loop: The loop.

    Returns:
        The name of the class or function, and its fields with defaults; ("", []) if no single candidate is best.
    """
    is_usual = PARAMETER.fullmatch(parameter.arg) is not None
    name = next(_class_names(parameter.annotation, loop.classes), "")
    if not name and isinstance(default, ast.Call):
        created = next(_class_names(default.func, loop.classes), "")
        name = created if is_usual or CLASS.fullmatch(created) else ""
    if name:
        return name, _fields_of(loop.classes[name])
    if not is_usual or parameter.annotation is not None:
        return "", []
    candidates = {name: _fields_of(class_) for name, class_ in loop.classes.items() if CLASS.fullmatch(name)}
    if len(loop.makers) == 1:
        candidates |= {name: list(default_fields(maker)) for name, maker in loop.makers.items()}
    read = _attributes_read(parameter.arg, loop)
    counts: dict[str, int] = {}
    for name, fields in candidates.items():
        body = loop.classes[name].body if name in loop.classes else []
        methods = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
        if read <= methods | {argument.arg for argument, _ in fields}:
            counts[name] = sum(setting_of(argument.arg) != "" for argument, _ in fields)
    best = [name for name, count in counts.items() if count and count == max(counts.values())]
    return (best[0], candidates[best[0]]) if len(best) == 1 else ("", [])


def _fields_of(class_: ast.ClassDef) -> Fields:
    """Return the arguments of the constructor of a settings class, with defaults."""
    init = _signature(class_)
    return list(class_fields(class_)) if init is None else with_defaults(init, 1)


def _signature(node: ast.ClassDef | ast.FunctionDef) -> ast.FunctionDef | None:
    """Return the function itself, or `__init__` of a class; None for a class without one."""
    if isinstance(node, ast.FunctionDef):
        return node
    methods = (statement for statement in node.body if isinstance(statement, ast.FunctionDef))
    return next((method for method in methods if method.name == "__init__"), None)


def _parameters(node: ast.FunctionDef | None) -> Fields:
    """Return the parameters without `self`, each with its default; [] without a function."""
    if node is None:
        return []
    return [(argument, default) for argument, default in with_defaults(node) if argument.arg != "self"]


def _class_names(node: ast.expr | None, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the names of the classes that an annotation contains, such as a union; of a string, only a single name."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            part = ast.Name(part.value)
        if isinstance(part, ast.Name) and part.id in classes:
            yield part.id


MAX_LINE = 90
"""Length of a call above which its arguments are written on several lines."""
NOT_SUMMED = ("loss", "norm")
"""Numbers of a single step: an attribute that the loop changes with `+=` is a sum, and not used for these numbers."""
WARMUP_OF_ONE = "warm-up of 1"
"""The setting of a warm-up parameter by which the loop divides: its value is 1 in every job."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The source of a training loop.

    Attributes:
        node: The class or function.
        classes: The classes that its module defines or imports, by name.
        makers: Functions that return default settings, by dotted name.
        annotated: The definitions of the names that the module imports only under `TYPE_CHECKING`, by name.
        divides_by_warmup: Whether the loop divides by its warm-up, so that the warm-up cannot be 0.
    """

    node: ast.ClassDef | ast.FunctionDef
    classes: Mapping[str, ast.ClassDef]
    makers: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    annotated: Mapping[str, Target] = field(default_factory=dict)
    divides_by_warmup: bool = False

    @property
    def is_class(self) -> bool:
        """Return whether the loop is a class."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def assigned(self) -> set[str]:
        """Return the names of the attributes that the loop assigns."""
        nodes = (node for node in ast.walk(self.node) if isinstance(node, ast.Attribute))
        return {node.attr for node in nodes if isinstance(node.ctx, ast.Store) and _is_self(node.value)}

    def method(self, role: str) -> ast.FunctionDef | None:
        """Return a method with a role, such as "update", and with the fewest required parameters; None without one."""

        def required(method: ast.FunctionDef) -> int:
            return sum(default is None for _, default in _parameters(method))

        return min(self.methods(role), key=required, default=None)

    def methods(self, role: str) -> list[ast.FunctionDef]:
        """Return the methods with a usual name for a role, except methods that another of these methods calls."""
        # If `train` calls `_train_epoch`, only `train` has the role. If all call one another, all have the role.
        methods = (statement for statement in self.node.body if isinstance(statement, ast.FunctionDef))
        usual = [method for method in methods if re.fullmatch(ROLES[role], method.name)]
        inner = {name for method in usual for name in _called_on_self(method) if name != method.name}
        return [method for method in usual if method.name not in inner] or usual

    def numbers(self) -> list[str]:
        """Return the expressions of numbers, such as the loss, for which exactly one attribute has a usual name."""
        matching = ([name for name in self.assigned if re.fullmatch(usual, name)] for usual in NUMBERS.values())
        return [f"self.loop.{names[0]}" for names in matching if len(names) == 1]


@dataclass(frozen=True, slots=True)
class Call:
    """A call as text.

    Attributes:
        text: The source of the call.
        names: The names to import from the module of the loop.
        returns: The return annotation; "" without one.
        taken: The names of the settings of a job that the call passes.
    """

    text: str
    names: tuple[str, ...] = ()
    returns: str = ""
    taken: frozenset[str] = frozenset()


def read_loop(project: Project, target: Target) -> Loop:
    """Read the class or function of a loop.

    Raises:
        UsageError: The target is not `module:name`, does not exist, or has no parameter for a model.
    """
    if not target.attribute or "." in target.attribute:
        raise UsageError(f"invalid trainer '{target}': expected module:function or module:Class")
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid trainer '{target}': {hint}")
    try:
        tree = parse(module_file(project, target.module))
    except Unbound as problem:
        hint = did_you_mean(target.module, problem.known) if problem.known else ""
        raise UsageError(f"{problem}; {hint}" if hint else str(problem)) from problem
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if target.attribute not in definitions:
        hint = did_you_mean(target.attribute, definitions)
        if any(isinstance(statement, ast.For | ast.While) for statement in tree.body):
            hint = f"{hint}; move a loop at module level into a function with a parameter `model`"
        raise UsageError(f"unknown class or function {target.attribute!r} in {target.module}; {hint}")
    node = definitions[target.attribute]
    parameters = [item.arg for item, _ in _parameters(_signature(node))]
    if not any(map(MODEL.fullmatch, parameters)):
        signature = f"its parameters: {', '.join(parameters)}" if parameters else "it has no parameters"
        hint = ""
        if isinstance(node, ast.ClassDef) and node.bases:
            hint = f"; begin with `pv check {target}` if its base is one of transformers, trl or lightning"
        raise UsageError(
            f"{target} has no parameter for a model ({signature}), so the suite cannot pass it an instrumented model; "
            "add a parameter `model`, and another for the data, or write an adapter that patches the class of its "
            f"model, as in docs/adapters.md{hint}"
        )
    # At runtime, the module of the loop lacks names that it imports under `TYPE_CHECKING`: the adapter imports these
    # names from their own modules.
    guarded = [
        name
        for statement in tree.body
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)
        for name in _imported(statement.body)
    ]
    imported = {name: definition(project, Target(target.module, name)) for name in (*_imported(tree.body), *guarded)}
    return Loop(
        node,
        {name: node for name, node in {**imported, **definitions}.items() if isinstance(node, ast.ClassDef)},
        find_makers(tree),
        {name: follow_imports(project, Target(target.module, name)) for name in guarded},
        divides_by_warmup(tree),
    )


def call_of(loop: Loop, name: str, expressions: Mapping[str, str], method: ast.FunctionDef | None = None) -> Call:
    """Return a call of the loop, or of a method of the loop.

    Args:
        loop: The loop.
        name: The expression to call.
        expressions: The expressions of "job", and optionally of "model" and of "first", the first required argument.
        method: The method; None to call the loop itself.
    """
    node = method or _signature(loop.node)
    imports, arguments, taken = [loop.node.name], [], set[str]()
    first = expressions.get("first", "")
    for parameter, default in _parameters(node):
        settings = _settings(parameter, default, loop, expressions["job"])
        if first and default is None:
            arguments.append(first)
            first = ""
        elif value := _value(parameter, expressions, loop, default) or settings.text:
            arguments.append(f"{parameter.arg}={value}")
            taken |= settings.taken | {_setting(parameter, loop)}
            imports.extend(settings.names)
        elif default is None:
            arguments.append(f'{parameter.arg}=fill_in("{parameter.arg}")')
    returns = ast.unparse(node.returns) if node is not None and node.returns is not None else ""
    return Call(_wrapped(name, arguments), tuple(imports), returns, frozenset(taken))


def _wrapped(name: str, arguments: list[str], indent: str = 8 * " ") -> str:
    """Return the text of a call, on several lines if it is long."""
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= MAX_LINE:
        return line
    return f"{name}(\n" + "".join(f"{indent}    {argument},\n" for argument in arguments) + f"{indent})"


def attributes(loop: Loop) -> dict[str, str]:
    """Return the expressions of `loss`, `norm`, `rate` and `steps`, as far as they are attributes of the loop.

    Without an attribute for the rate and without a scheduler, `rate` is the rate of the loop's optimizer.
    """
    assigned = loop.assigned
    targets = (node.target for node in ast.walk(loop.node) if isinstance(node, ast.AugAssign))
    sums = {target.attr for target in targets if isinstance(target, ast.Attribute) and _is_self(target.value)}
    expressions: dict[str, str] = {}
    for number, pattern in NUMBERS.items():
        for name in sorted(assigned - sums if number in NOT_SUMMED else assigned):
            if re.fullmatch(pattern, name):
                expressions.setdefault(number, f"self.loop.{name}")
    # If the loop has a scheduler, the optimizer may already have the rate of the next step.
    if "optimizer" in assigned and not any("sched" in name for name in assigned):
        expressions.setdefault("rate", 'self.loop.optimizer.param_groups[0]["lr"]')
    return expressions


def _called_on_self(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the names of the methods that a method calls on `self`."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_self(node.func.value):
            yield node.func.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _attributes_read(parameter: str, loop: Loop) -> set[str]:
    """Return the attributes of a parameter that a loop reads, directly or after `x = parameter` (or `self.x`)."""
    nodes = list(ast.walk(loop.node))
    assignments = [pair for node in nodes if isinstance(node, ast.Assign) for pair in _targets_with_values(node)]
    aliases = {ast.unparse(target) for target, value in assignments if ast.unparse(value) == parameter} | {parameter}
    read = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return {node.attr for node in read if ast.unparse(node.value) in aliases}


def _targets_with_values(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return the targets of an assignment with their values: two pairs for `a, b = c, d`, and for `a = b = c`."""
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return list(zip(target.elts, node.value.elts, strict=False))
    return [(target, node.value) for target in node.targets]


def _value(parameter: ast.arg, expressions: Mapping[str, str], loop: Loop, default: ast.expr | None) -> str:
    """Return the expression of the value that a job has for a parameter; "" if the parameter has no usual name."""
    if "model" in expressions and MODEL.fullmatch(parameter.arg):
        return expressions["model"]
    if parameter.arg == "device":
        return '"cpu"'
    setting = _setting(parameter, loop)
    if not setting:
        return ""
    if setting == WARMUP_OF_ONE:
        return "1"
    default_value = default.value if isinstance(default, ast.Constant) else None
    return value_of(setting, _annotation(parameter), default_value).replace("job", expressions["job"])


def _setting(parameter: ast.arg, loop: Loop) -> str:
    """Return the setting of a job that a parameter takes; `WARMUP_OF_ONE` for a warm-up that cannot be 0, or ""."""
    setting = setting_of(parameter.arg, _annotation(parameter))
    return WARMUP_OF_ONE if setting == "warmup" and loop.divides_by_warmup else setting


def _annotation(parameter: ast.arg) -> str:
    return ast.unparse(parameter.annotation) if parameter.annotation is not None else ""


def _settings(parameter: ast.arg, default: ast.expr | None, loop: Loop, job: str) -> Call:
    """Return the call that creates the settings for a parameter; its text is "" if the settings class is unknown."""
    name, fields = settings_of(parameter, default, loop)
    if not name:
        return Call("")
    setting_by_field = {argument.arg: _setting(argument, loop) for argument, _ in fields}
    extra_arguments = [f"{argument}=1" for argument, setting in setting_by_field.items() if setting == WARMUP_OF_ONE]
    extra_arguments += [
        f'{argument.arg}=fill_in("{argument.arg}")'
        for argument, value in fields
        if value is None and not setting_by_field[argument.arg]
    ]
    text = _wrapped("settings", [name, job, *extra_arguments], 12 * " ")
    return Call(text, (name.partition(".")[0],), taken=frozenset(setting_by_field.values()))


LOGGED = ("loss", "rate", "norm")
"""Numbers of a step that the adapter logs, in this order."""
# The following texts are parts of the written adapter.
_LAST_LOSS = """    not_claimed = dict.fromkeys(  # delete this if the loss is the mean of all tokens since the last log
        ("TL-LOG-003", "TL-LOG-004", "TL-LOG-005"), "the logged loss is the loss of the last step"
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
"""By feature, the reason why a loop does not have it, as its source shows."""
_DIVIDES = "it divides by its warm-up, which is 0 in most jobs"
_TO_ADD = """\
        # Uncomment what holds for the loop; for "sequences", see `Classifier` and `classified` of
        # pv.suites.training_loop.adapters.usual.
        # "masks": "every token is scored", "gaps": "tokens that are not scored come first, as a prompt",
        # "lengths": "all rows have one length", "sequences": "an example has one label, as in a classifier",
        # "epochs": "it counts only steps", "short_windows": "windows continue over the end of an epoch",
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
_REPORTED = {
    "evaluate": """report.evaluations = fill_in("pairs of step and loss; see `logged`") if job.eval_every else []""",
    "save": """report.checkpoints = fill_in("paths by step; see `copies`") if job.save_every else {}""",
}
"""Lines of the adapter for a class that trains in one method call, by the role of its other methods."""
_FEATURES_BY_SETTING = {"clip": "clip", "warmup": "schedule"}
"""The feature that a loop has if it takes a setting, by setting."""


def new_adapter(trainer: str, *, trace: Path | None = None) -> WrittenFiles:
    """Write an adapter beside the module of a training loop. The module is read, not imported.

    Args:
        trainer: The class or function as `module:name`.
        trace: Folder with the traces of a run of the loop; the advice then lists the claims that the run passed.

    Raises:
        UsageError: The class or function does not exist or has no parameter for a model, the folder has no traces, or
            the file of the adapter exists.
    """
    advice = _claims_passed(check_run(trace=trace)) if trace is not None else []
    project = find_project(Path.cwd())
    target = follow_imports(project, Target.parse(trainer))
    loop = read_loop(project, target)
    path = module_file(project, target.module)
    path = path.with_name(f"{path.stem}_adapter.py")
    # A class is called as a whole if it trains in one method call and has no method that yields windows of data.
    in_parts = loop.is_class and (loop.method("fit") is None or loop.method("windows") is not None)
    text = _in_parts(target, loop) if in_parts else _in_one_call(target, loop)
    if os.path.lexists(path):
        raise UsageError(f"{shown_path(path)} exists; nothing was written")
    create({path: text})
    blanks = [
        f"  {shown_path(path)}:{number}  {name}"
        for number, line in enumerate(text.splitlines(), 1)
        for name in re.findall(r'fill_in\("(.+?)"', line)
    ]
    if blanks:
        advice.append("fill in what the source does not show; until then, the claims that need it are undecided:")
    return WrittenFiles(
        files=(shown_path(path),),
        advice=(*advice, *blanks),
        commands=(f"pv check {module_name(project, path)}:Adapter",),
    )


def _claims_passed(run: ObservedRun) -> list[str]:
    """Return advice that lists the claims that a run passed, each with the adapter's claims of the same meaning."""
    same_ids = same_claims()

    def listed_ids(ids: Iterable[str]) -> str:
        return ", ".join(f"{id_} (as {', '.join(same_ids[id_])})" if same_ids.get(id_) else id_ for id_ in ids)

    lines = [
        f"this run of {run.run.steps} steps has passed, and the adapter tries on more jobs: {listed_ids(run.held)}"
    ]
    if run.falsified:
        lines.append(f"the run falsifies these claims, so fix it first (pv check --trace): {listed_ids(run.falsified)}")
    return lines


def _training(loop: Loop) -> Call:
    """Return the call of a function that trains, or the construction of a class and the call of its method."""
    construction = call_of(loop, loop.node.name, {"job": "job", "model": "model"})
    method = loop.method("fit") if loop.is_class else None
    if method is None:
        return construction
    call = call_of(loop, f"loop.{method.name}", {"job": "job"}, method)
    return Call(
        f"loop = {construction.text}\n        {call.text}",
        (*construction.names, *call.names),
        taken=construction.taken | call.taken,
    )


def _in_one_call(target: Target, loop: Loop) -> str:
    """Return the adapter of a loop that trains in one call."""
    call = _with_epochs_of_job(_training(loop))
    # If the user fills in the settings object, it may have all these settings: declare no setting missing.
    has_blank_settings = any(map(PARAMETER.fullmatch, re.findall(r'fill_in\("(\w+)"\)', call.text)))
    reported = [role for role in _REPORTED if loop.is_class and loop.method(role) is not None]
    missing = [role for role in _REPORTED if role not in reported]
    if not has_blank_settings:
        missing += [name for setting, name in _FEATURES_BY_SETTING.items() if setting not in call.taken]
    missing += _missing_limits(call)
    if _missing_limits(call) and "accumulate" not in call.taken:
        missing.append("accumulate")
    steps = attributes(loop).get("steps", "").removeprefix("self.") if loop.is_class else ""
    report = f"Report(model=model, final_step={steps})" if steps else "Report(model=model)"
    lines = [f"report = {report}", *(_REPORTED[role] for role in reported), "return report"]
    return _filled(
        "adapter_in_one_call.py",
        target=str(target),
        call_imports=_imports_of_call(target, loop, call),
        features=_features({name: _REASONS[name] for name in missing}),
        train=call.text,
        ends="\n        ".join(lines) if reported else f"return {report}",
    )


def _imports_of_call(target: Target, loop: Loop, call: Call) -> str:
    """Return the imports that a call needs, from the module of the loop or from the modules in `loop.annotated`."""
    names = {*call.names} - loop.annotated.keys()
    sources = {name: loop.annotated[name] for name in sorted({*call.names} - names)}
    lines = [f"from {source.module} import {source.attribute} as {name}" for name, source in sources.items()]
    return "\n".join([f"from {target.module} import {', '.join(sorted(names))}", *lines])


def _in_parts(target: Target, loop: Loop) -> str:
    """Return the adapter of a class with a method for each part of a step."""
    build = _with_epochs_of_job(call_of(loop, loop.node.name, {"job": "job", "model": "model"}))
    expressions = attributes(loop)
    features: dict[str, bool | str] = {name: True for name in LOGGED if name in expressions}
    features |= {name: _REASONS[name] for name in _missing_limits(build)}
    if loop.divides_by_warmup:
        features["schedule"] = _DIVIDES
    return _filled(
        "adapter_in_parts.py",
        target=str(target),
        call_imports=_imports_of_call(target, loop, build),
        build=build.text,
        features=_features(features),
        not_claimed=_LAST_LOSS if "loss" in expressions else "",
        methods="".join(
            f"\n    def {_METHODS[name].format(body)}\n" for name, body in _overridden(loop, expressions).items()
        ),
    )


def _filled(name: str, **parts: str) -> str:
    """Return the text of a template, with imports of the names that it uses."""
    # The imports depend on the text, so `$imports` is replaced last.
    text = Template(template(name)).safe_substitute(parts)
    used = {module: [name for name in names if re.search(rf"\b{name}\b", text)] for module, names in _IMPORTS.items()}
    lines = [f"from {module} import {', '.join(names)}" for module, names in used.items() if names]
    helper = "HandWritten, fill_in" if "fill_in(" in text else "HandWritten"
    if lines:
        lines.append("")  # between the standard library and pv
    lines.append(f"from pv.suites.training_loop.adapters.handwritten import {helper}")
    if "=settings(" in text:
        lines.append("from pv.suites.training_loop.adapters.usual import settings")
    return text.replace("$imports", "\n".join(lines))


def _with_epochs_of_job(call: Call) -> Call:
    """Return the call; if the loop takes no number of steps, with `job.epochs` as its number of epochs."""
    if "max_steps" in call.taken:
        return call
    return replace(call, text=call.text.replace(VALUES["epochs"], "job.epochs"))


def _missing_limits(call: Call) -> list[str]:
    """Return the limit (`epochs` or `max_steps`) that a loop does not take; [] if it takes both or neither."""
    missing = [name for name in ("epochs", "max_steps") if name not in call.taken]
    return missing if len(missing) == 1 else []


def _overridden(loop: Loop, expressions: Mapping[str, str]) -> dict[str, str]:
    """Return the bodies of the adapter's methods, except bodies that equal the inherited method."""
    steps = expressions.get("steps", 'fill_in("the number of steps taken before the checkpoint")')
    bodies = {
        "windows": _part(loop, "windows").text,
        "update": _part(loop, "update", "window").text,
        "log": "{" + ", ".join(f'"{name}": {expressions[name]}' for name in LOGGED if name in expressions) + "}",
        "evaluate": _evaluate(_part(loop, "evaluate")),
        "save": _with_path(_part(loop, "save", "path")),
        "load": f"{_with_path(_part(loop, 'load', 'path'))}\n        return {steps}",
    }
    numbers = [expressions[name] for name in LOGGED if name in expressions]
    inherited = {
        "windows": _inherited_call(loop, "windows", "{}()"),
        "update": _inherited_call(loop, "update", "{}(window)"),
        "log": bodies["log"] if all(number in loop.numbers() for number in numbers) else "",
        "evaluate": _inherited_call(loop, "evaluate", "return {}()"),
        "save": _inherited_call(loop, "save", "{}(path)"),
        "load": _inherited_call(loop, "load", "{}(path)\n        return ") + steps if steps in loop.numbers() else "",
    }
    return {name: body for name, body in bodies.items() if body != inherited[name]}


def _inherited_call(loop: Loop, role: str, call: str) -> str:
    """Return the call in the inherited method, which raises unless exactly one method has the role; "" if it raises."""
    methods = loop.methods(role)
    return call.format(f"self.loop.{methods[0].name}") if len(methods) == 1 else ""


def _part(loop: Loop, role: str, first: str = "") -> Call:
    """Return the call of the method with a role; `first` is the argument for its first required parameter."""
    method = loop.method(role)
    if method is None:
        return Call(f'fill_in("{role}")')
    return call_of(loop, f"self.loop.{method.name}", {"job": "self.job", "first": first}, method)


def _with_path(call: Call) -> str:
    """Return the call of a method that saves or loads; if the method takes no path, a `fill_in` call."""
    if "path" in call.text or call.text.startswith("fill_in("):
        return call.text
    return f'fill_in("the path, for {call.text}")'


def _evaluate(call: Call) -> str:
    """Return the body of `evaluate`; the user fills in the loss unless the method of the loop returns a float."""
    call = replace(call, text=call.text.replace("self.job.batch", "self.job.eval_batch"))
    if call.returns == "float" or call.text.startswith("fill_in("):
        return f"return {call.text}"
    description = "the loss over job.evaluated, in batches of job.eval_batch, from this result"
    return f'result = {call.text}\n        return fill_in("{description}", result)'


def _features(features: Mapping[str, bool | str]) -> str:
    """Return the `features` of an adapter as code, with comments about features that the source does not show."""
    values = {name: "True" if value is True else f'"{value}"' for name, value in features.items()}
    lines = (f'        "{name}": {value},\n' for name, value in values.items())
    return f"{{\n{''.join(lines)}{_TO_ADD}    }}"
