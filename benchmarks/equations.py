"""Shows executable equations to work on the two dozen formulas of tests/equations, held against ordinary code.

python benchmarks/equations.py alarms 10000    correct code: false alarms, and how near it comes to what is allowed
python benchmarks/equations.py equations       every one-symbol change of each equation: seen after how many examples
python benchmarks/equations.py code            every one-symbol change of each implementation, likewise
python benchmarks/equations.py counterexamples NAME   the smallest inputs for the changes of one implementation
"""

import ast
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from pv.engines.encoding import show
from pv.engines.equation.attack import attack, equation_with, kills, mutants_of
from pv.engines.equation.comparison import Observer
from pv.engines.property.attack import Settings
from pv.engines.trial import TrialStatus
from pv.equations.evaluate import admits, exact_values
from pv.equations.examples import Drawer, Example
from pv.equations.parse import Definition, parse_equations
from pv.equations.tolerance import Limits

FORMULAS = Path(__file__).parents[1] / "tests" / "equations"
EXAMPLES = 200
SWAPS = {
    "log_softmax": "softmax", "softmax": "log_softmax", "exp": "expm1", "log": "log1p", "log1p": "log", "sqrt": "abs",
    "cos": "sin", "sin": "cos", "sum": "mean", "mean": "sum", "min": "max", "max": "min", "cumprod": "cumsum",
    "cumsum": "cumprod", "real": "imag", "imag": "real", "silu": "relu", "zeros_like": "ones_like", "norm": "sum",
    "ones_like": "zeros_like", "logsumexp": "amax",
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
}  # fmt: skip
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.NotEq: ast.Eq}


class Foreign:
    """Blames the code for whatever it raises."""

    def status(self, error: BaseException) -> TrialStatus:
        return TrialStatus.RAISED

    def frames(self, error: BaseException) -> list[str]:
        return []


class Deaf:
    def put(self, kind: str, **fields: Any) -> None:
        pass


def implementations() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile((FORMULAS / "implementations.py").read_text(encoding="utf-8"), "implementations.py", "exec"), names)
    return names


def examples(claim: Definition, seed: int = 0) -> Iterator[Example]:
    drawer = Drawer(claim.variables, seed, claim.accuracy.dtypes)
    while True:
        example = drawer.example()
        if admits(claim, example):
            yield example


def alarms(system: dict[str, Definition], code: Any, count: int, names: Sequence[str]) -> None:
    print("| formula | false alarms | nearest to what is allowed | ms an example |\n|---|---|---|---|")
    for name in names:
        claim = system[name]
        observer, worst, refuted, start = Observer(system, claim, code, "cpu"), 0.0, 0, time.perf_counter()
        for example in islice(examples(claim), count):
            limits = Limits(claim, example, exact_values(claim, example))
            ratio = max(nearness(limits, seen) for seen in observer.comparisons(example))
            refuted += ratio > 1
            worst = max(worst, ratio)
        spent = (time.perf_counter() - start) / count * 1000
        print(
            f"| {name} | {refuted} of {count} | 1/{1 / worst if worst else float('inf'):.0f} | {spent:.1f} |",
            flush=True,
        )


def nearness(limits: Limits, seen: Any) -> float:
    """How far an observation is from the equation, in parts of how far it may be."""
    value = limits.values[seen.place]
    apart, allowed = seen.apart(value), seen.limit(limits)
    return float((apart / allowed).nan_to_num(nan=0.0).amax()) if apart.numel() else 0.0


def equations(system: dict[str, Definition], code: Any) -> None:
    found: list[int] = []
    print("| formula | changes | seen | median example | last |\n|---|---|---|---|---|")
    survivors = []
    for name, claim in system.items():
        observer = Observer(system, claim, code, "cpu")
        kept = [(each, list(observer.comparisons(each))) for each in islice(examples(claim), EXAMPLES)]
        firsts = []
        for change in mutants_of(claim):
            changed = equation_with(claim, change)
            first = next((n for n, (e, s) in enumerate(kept, 1) if kills(changed, e, s)), None)
            firsts.append(first)
            if first is None:
                position = f"{change.equation}:{change.line}:{change.column}"
                survivors.append(f"- {name}: {position} `{change.after}` for `{change.before}`")
        found += _row(name, firsts)
    _total(found, survivors)


def _row(name: str, firsts: list[int | None], more: str = "") -> list[int]:
    seen = [first for first in firsts if first is not None]
    middle, last = (f"{statistics.median(seen):g}", max(seen)) if seen else ("", "")
    print(f"| {name} | {len(firsts)} | {len(seen)} |{more} {middle} | {last} |", flush=True)
    return seen


def _total(found: list[int], survivors: list[str]) -> None:
    total = len(found) + len(survivors)
    print(f"| all | {total} | {len(found)} | {statistics.median(found):g} | {max(found)} |\n\n" + "\n".join(survivors))


def code(formulas: dict[str, Any], system: dict[str, Definition]) -> None:
    """Generate the mutants of each implementation and test its equation on each mutant."""
    source = (FORMULAS / "implementations.py").read_text(encoding="utf-8")
    found, survivors = list[int](), list[str]()
    print("| formula | changes | seen | by raising | median example | last |\n|---|---|---|---|---|---|")
    for name, claim in system.items():
        function = (claim.call or system[claim.derivative.equation].call).function
        firsts, raised = list[int | None](), 0
        for text, changed in code_changes(source, function):
            record = attacked(formulas, name, changed, shrink=False)
            refuted = record["status"] in ("refuted", "raised")
            raised += record["status"] == "raised"
            firsts.append(record["valid"] if refuted else None)
            if not refuted:
                survivors.append(f"- {name}: {text} ({record['status']})")
        found += _row(name, firsts, f" {raised} |")
    _total(found, survivors)


def counterexamples(formulas: dict[str, Any], system: dict[str, Definition], name: str) -> None:
    source = (FORMULAS / "implementations.py").read_text(encoding="utf-8")
    for text, changed in code_changes(source, system[name].call.function):
        start = time.perf_counter()
        record = attacked(formulas, name, changed, shrink=True)
        inputs = ", ".join(f"{key} = {show(value)}" for key, value in record.get("arguments", {}).items())
        print(f"- {text} ({time.perf_counter() - start:.2f} s): {record.get('error', record['status'])}; {inputs}")


def attacked(formulas: dict[str, Any], name: str, source: str, *, shrink: bool) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(source, "changed.py", "exec"), names)
    how = Settings(examples=EXAMPLES, seed=0, stop_at_first=not shrink)
    return attack(formulas, name, SimpleNamespace(**names), "cpu", how, Foreign(), Deaf())


def code_changes(source: str, function: str) -> Iterator[tuple[str, str]]:
    """What each change of a function is, and the source with it."""
    tree = ast.parse(source)
    body = next(each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == function)
    names = [argument.arg for argument in body.args.args]
    for statement in body.body:
        for node in ast.walk(statement):
            for new in _alternatives(node, names) if isinstance(node, ast.expr) else ():
                text = ast.unparse(_put(tree, node, new))
                if text != ast.unparse(tree):
                    yield f"`{ast.unparse(new)}` for `{ast.unparse(node)}`", text


def _put(node: Any, old: ast.AST, new: ast.AST) -> Any:
    if node is old:
        return new
    if isinstance(node, list):
        return [_put(each, old, new) for each in node]
    if not isinstance(node, ast.AST):
        return node
    return ast.copy_location(type(node)(**{k: _put(v, old, new) for k, v in ast.iter_fields(node)}), node)


def _alternatives(node: ast.expr, names: list[str]) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=sign, right=right):
            yield from (ast.BinOp(left, OPERATORS[type(sign)](), right), left, right)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            yield ast.Compare(left, [COMPARISONS[type(sign)]()], [right])
        case ast.IfExp(test=test, body=yes, orelse=no):
            yield ast.IfExp(test, no, yes)
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield from (ast.Constant(number + 1), ast.Constant(number - 1))
        case ast.Constant(value=float(number)):
            yield ast.Constant(2 * number)
        case ast.Name(id=name, ctx=ast.Load()) if name in names:
            yield from (ast.Name(other, ast.Load()) for other in names if other != name)
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    match node.func:
        case ast.Attribute(value=value, attr=name) if name in SWAPS:
            yield ast.Call(ast.Attribute(value, SWAPS[name], ast.Load()), node.args, node.keywords)
        case ast.Name(id=name) if name in SWAPS:
            yield ast.Call(ast.Name(SWAPS[name], ast.Load()), node.args, node.keywords)
    for place in range(len(node.args) - 1):
        swapped = [*node.args[:place], node.args[place + 1], node.args[place], *node.args[place + 2 :]]
        yield ast.Call(node.func, swapped, node.keywords)
    yield from (
        ast.Call(node.func, node.args, [k for k in node.keywords if k is not left_out]) for left_out in node.keywords
    )


def main(what: str, *rest: str) -> None:
    formulas = yaml.safe_load((FORMULAS / "formulas.yaml").read_text(encoding="utf-8"))
    system = parse_equations(formulas)[0]
    match what:
        case "alarms":
            alarms(system, SimpleNamespace(**implementations()), int(rest[0]), rest[1:] or tuple(system))
        case "equations":
            equations(system, SimpleNamespace(**implementations()))
        case "code":
            code(formulas, system)
        case "counterexamples":
            counterexamples(formulas, system, rest[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
