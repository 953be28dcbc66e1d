"""Rules about the function of a falsifier: every parameter is supplied, and its claim is asserted."""

import ast
import contextlib
from collections.abc import Iterator

from pv.contract.claims import Falsifier
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error, notice
from pv.engines.harness.names import Definition, Names, module_of
from pv.engines.harness.rules import reachable
from pv.engines.registry import engine_of
from pv.engines.rule import Context, rule
from pv.source import resolve
from pv.source.resolve import Unbound, name_of

# The decorators of Hypothesis, the fixtures of pytest for files, and words in the names of functions that may assert.
HYPOTHESIS = {"given", "settings", "example", "seed", "reproduce_failure"}
FILES = {"tmp_path", "tmpdir", "tmp_path_factory"}
ASSERTING = ("assert", "raises", "warns", "fail", "check", "expect")
DRAW = "draw it, such as `@given({0}=st.sampled_from([...]))`"
FIXTURE = "falsifiers get no fixtures: draw it with `@given({0}=...)`, or make it in the body or in a helper"
FOLDER = "falsifiers get no fixtures: use `with tempfile.TemporaryDirectory() as {0}:`"
Node = ast.FunctionDef | ast.AsyncFunctionDef


@rule(
    Code("PV114", "a falsifier has a parameter that nothing supplies, or is parametrized by pytest"),
    Code("PV115", "a falsifier returns a value, which is ignored"),
    Code("PV204", "a falsifier without an assert, which only an exception can refute", Stops.NOTHING),
)
def attacks(context: Context) -> Iterator[Finding]:
    for falsifier in context.contract.falsifiers:
        if falsifier.test is None or not engine_of(falsifier).asserts:
            continue
        with contextlib.suppress(Unbound):  # which another rule reports
            function = resolve.function(context.project, falsifier.test)
            yield from _parametrized(falsifier, function.node)
            yield from _unsupplied(falsifier, function.node)
            returned = list(_returned_value(falsifier, function.node))
            yield from returned or _unasserted(context, falsifier, function)


def _parametrized(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    # A worker calls the function without pytest, so nothing would supply the parametrized arguments.
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and name_of(decorator) == "parametrize":
            first = decorator.args[0] if decorator.args else None
            names = str(first.value) if isinstance(first, ast.Constant) else "x"
            message = f"{falsifier.id}: {falsifier.test} is parametrized by pytest, which `pv validate` does not do"
            hint = DRAW.format(names.partition(",")[0].strip())
            yield error("PV114", falsifier.at("test"), message, hint)


def _unsupplied(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    drawn = _drawn_parameters(node)
    if drawn is None or any(name_of(decorator) == "parametrize" for decorator in node.decorator_list):
        return
    supplied = {*engine_of(falsifier).parameters(falsifier), "subject", "device", *drawn}
    for name in _required(node):
        if name not in supplied:
            message = f"{falsifier.id}: {falsifier.test} has the parameter `{name}`, which nothing supplies"
            yield error("PV114", falsifier.at("test"), message, (FOLDER if name in FILES else FIXTURE).format(name))


def _required(node: Node) -> list[str]:
    """Return the parameters without a default."""
    arguments = node.args
    positional = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    required = positional[: len(positional) - len(arguments.defaults)]
    return required + [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]


def _drawn_parameters(node: Node) -> set[str] | None:
    """Return the parameters that `@given` draws; None if the decorators do not show which ones are supplied."""
    names: set[str] = set()
    positional = [parameter.arg for parameter in node.args.args]
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or name_of(decorator) not in HYPOTHESIS:
            return None
        if name_of(decorator) != "given":
            continue
        # `@given(...)` infers strategies from annotations; which names `*x` and `**x` supply, the source does not show.
        parts = [*decorator.args, *(keyword for keyword in decorator.keywords if keyword.arg is None)]
        if any(isinstance(part, ast.Starred | ast.keyword) or _is_ellipsis(part) for part in parts):
            return None
        names |= {str(keyword.arg) for keyword in decorator.keywords}
        # Hypothesis assigns positional strategies to the last parameters.
        names |= set(positional[len(positional) - len(decorator.args) :] if decorator.args else ())
    return names


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _returned_value(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    """Yield a finding for the first `return` with a value, outside of nested functions."""
    todo: list[ast.AST] = list(node.body)
    while todo:
        child = todo.pop(0)
        if isinstance(child, ast.Return) and child.value is not None and not _is_none(child.value):
            message = f"{falsifier.id}: {falsifier.test} returns a value, which is ignored"
            yield error("PV115", falsifier.at("test"), message, f"write `assert {ast.unparse(child.value)[:60]}`")
            return
        if not isinstance(child, ast.expr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            todo += ast.iter_child_nodes(child)


def _unasserted(context: Context, falsifier: Falsifier, function: resolve.Function) -> Iterator[Finding]:
    """Yield a notice if neither the function nor the functions of its file that it may call can assert anything."""
    assert falsifier.test is not None
    # The direct check first: nearly all functions pass it, and the search for called functions dominates lint's time.
    if any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function.node)):
        return
    path = function.path
    module = module_of(resolve.module_name(context.project, path), path, resolve.parse(path))
    definitions = reachable(Names([module]), path, falsifier.test.name)
    if not any(_may_assert(definition, node) for definition in definitions for node in ast.walk(definition.node)):
        message = f"{falsifier.id}: {falsifier.test} has no assert, so only an exception can refute it"
        yield notice("PV204", falsifier.at("test"), message, "assert the prediction")


def _may_assert(definition: Definition, node: ast.AST) -> bool:
    """Return whether a node asserts, raises, or calls a function that may, by its origin or its name (`check_...`)."""
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node)
    source = definition.imported.get(name, "hypothesis") if isinstance(node.func, ast.Name) else "hypothesis"
    return source.partition(".")[0] != "hypothesis" or any(word in name.lower() for word in ASSERTING)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
