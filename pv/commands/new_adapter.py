"""Write the adapter of a training loop from its source; parts that the source does not tell are left to fill in."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pv.commands.loop_source import PARAMETER, Call, Loop, attributes, called, is_class, read
from pv.commands.naming import same_claims
from pv.commands.new import Written, create
from pv.commands.observed import ObservedRun, check_run
from pv.contract.load import shown_path
from pv.contract.names import Target
from pv.errors import UsageError
from pv.source.project import find_project
from pv.source.resolve import home, module_file, module_name
from pv.suites.training_loop.names import VALUES

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
    loop = read(project, target)
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
