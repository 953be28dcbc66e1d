"""Regular expressions for the usual names of methods, settings and logged numbers in training loops.

The keys of the dictionaries are the names that the suite uses.
"""

import ast
import re
from collections.abc import Iterator, Set

ROLES = {
    "windows": r"windows|micro_?batches|batches|epoch_batches|iterate|train_(data)?loader",
    "update": r"(train(ing)?_)?(step|update)|train_(batch|window)|optimi[sz]er_step",
    "evaluate": r"eval(uate)?(_loss)?|estimate_loss|validat(e|ion)(_loss)?",
    "save": r"save(_(checkpoint|state))?|write_checkpoint|checkpoint",
    "fit": r"fit|train(_(loop|model))?|run(_training)?",
    "load": r"(load|restore)(_(checkpoint|state))?|resume(_from(_checkpoint)?)?",
}
"""By role of a method of a loop: the usual names of the method."""
SETTINGS = {
    "rate": r"(train_)?lr|(peak_|max_|base_)?(learning_)?rate",
    "warmup": r"(lr_|num_)?warm_?up(_(steps|iters))?",
    "batch": r"(micro_|train_|device_)?batch(_size)?|bs|(per_device_)?train_batch_size",
    "eval_batch": r"(per_device_)?(eval|val|valid)_batch(_size)?",
    "accumulate": r"(grad(ient)?_)?accum(ulat(e|ion))?(_steps|_iters|_every)?",
    "epochs": r"(num_|n_|max_)?(train_)?epochs",
    "max_steps": r"(train_)?(max_|num_|total_)(train_)?(steps|iters|iterations)",
    "clip": r"(grad(ient)?_)?(norm_)?clip(_norm|ping)?|max_(grad_)?norm",
    "seed": r"(random_)?seed",
    "optimizer": r"optimi[sz]er_(name|type)|optim",
    "log_every": r"log(ging)?_(every|interval|steps)(_steps)?",
    "eval_every": r"(eval(uat(e|ion))?|val(id(ation)?)?)_(every|interval|steps)(_steps)?",
    "save_every": r"(save|checkpoint|ckpt)_(every|interval|steps)(_steps)?",
    "workers": r"(num_)?workers",
    "average": r"(ema|average)_decay",
    "directory": r"(out(put)?|checkpoint|ckpt|save)_?(dir(ectory)?|path)?",
}
"""By setting of a job: the usual names of a parameter for this setting."""
VALUES = {
    "average": "job.average or 0.0",
    "decay": "job.decay or 0.0",
    "schedule": 'job.schedule == "linear"',
    "epochs": "max(job.epochs, job.max_steps or 0)",
    "eval_every": "job.eval_every or 10**9",
    "save_every": "job.save_every or 10**9",
}
"""By setting of a job: the code that converts the setting to the form that loops take; others are not converted."""
# `decay` may turn on the schedule or be the weight decay; the annotation decides, see `setting_of`.
SCHEDULED = re.compile(r"(lr_)?decay(_lr)?")
WEIGHT_DECAY = re.compile(r"weight_decay|wd|decay")
# The usual names of the attribute that holds the model.
MODEL = re.compile(r"(lm_|raw_|base_|diffusion_|language_)?(model|net|network|student|module)")
NUMBERS = {
    "loss": r"(last_|train_)?loss",
    "norm": r"(last_|grad(ient)?_)?norm",
    "rate": r"(last_)?(lr|(learning_)?rate)",
    "steps": r"(global_)?steps?|iter(ation)?s?(_num)?|steps_(done|taken)|(num_)?updates",
}
"""By number of the last step (`steps`: the number of all steps): the usual names of the attribute of a loop."""
COLUMNS = {
    "step": NUMBERS["steps"],
    **{name: NUMBERS[name] for name in ("loss", "norm", "rate")},
    "tokens": r"(num_|n_|scored_)?tokens",
    "eval_loss": r"(eval(uation)?|val(id(ation)?)?)_?loss",
}
"""By number in a report: the usual names of its column in the logs of a loop."""


def setting_of(name: str, annotation: str = "") -> str:
    """Return the setting of a job that belongs to a parameter with a usual name.

    Args:
        name: The name of the parameter.
        annotation: The annotation of the parameter as text. `decay: float` is the weight decay, `decay` with another
            annotation, or without one, turns the schedule of the rate on, and `optimizer: str` names a kind of
            optimizer.

    Returns:
        The setting; "" if the name is not usual for any setting.
    """
    if "float" in annotation and WEIGHT_DECAY.fullmatch(name):
        return "decay"
    if "float" not in annotation and SCHEDULED.fullmatch(name):
        return "schedule"
    if "str" in annotation and name == "optimizer":
        return "optimizer"
    return next((setting for setting, pattern in SETTINGS.items() if re.fullmatch(pattern, name)), "")


def value_of(setting: str, annotation: str, default: object = None) -> str:
    """Return the code of the argument for a parameter.

    Args:
        setting: The setting of the job that is passed.
        annotation: The annotation of the parameter as text. If it contains `str` but not `Path`, a directory is passed
            as text. If it is `int` or `float`, an infinite limit is passed for a job without clipping.
        default: The default of the parameter. Its type is used if there is no annotation.
    """
    is_number = annotation in ("int", "float") if annotation else isinstance(default, int | float)
    if setting == "clip" and is_number:
        return 'job.clip or float("inf")'
    value = VALUES.get(setting, f"job.{setting}")
    return f"str({value})" if setting == "directory" and "str" in annotation and "Path" not in annotation else value


def divides_by_warmup(tree: ast.AST) -> bool:
    """Return whether a function in a module divides by a warm-up without a guard, so that a warm-up of 0 raises.

    A guard is one of

    1. a condition in the function that contains the warm-up;
    2. an assignment in the function that sets the warm-up to the result of a call, such as `max(1, warmup)`;
    3. a condition anywhere in the module that tests the truth of the warm-up, without `not`, or compares it with a
       constant on the right.

    Args:
        tree: The syntax tree of the module.
    """
    guarded = {_last_name(part) for test in _conditions(tree) for part in _tested_expressions(test)}
    return any(_divides_by_warmup(node, guarded) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions in a tree: tests of statements, `if` expressions and comprehensions, and `and` and `or`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.BoolOp):
            yield node
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def _tested_expressions(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions whose truth a condition tests, and those that it compares with a constant on the right.

    The operand of `not` is not yielded.
    """
    yield from test.values if isinstance(test, ast.BoolOp) else [test]
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.comparators[-1], ast.Constant):
            yield node.left


def _divides_by_warmup(function: ast.FunctionDef, guarded: Set[str]) -> bool:
    """Return whether a function divides by a warm-up without a guard.

    Args:
        function: The function.
        guarded: The names that have a guard elsewhere in the module.
    """
    nodes = list(ast.walk(function))
    divisors = [node.right for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    computed = [node.targets[0] for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    in_conditions = [part for test in _conditions(function) for part in ast.walk(test)]
    guarded = guarded | {_last_name(node) for node in (*in_conditions, *computed)}
    names = map(_last_name, divisors)
    return any(re.fullmatch(SETTINGS["warmup"], name) and name not in guarded for name in names)


def _last_name(node: ast.AST) -> str:
    """Return the name of a variable, or of an attribute without its object; "" for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
