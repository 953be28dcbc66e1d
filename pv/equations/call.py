"""The call of the code: the key `implemented_by`.

`kd_loss(s, t, y, temperature=tau)`, `LoRA(rank=R).forward(x)`. Arguments are variables, literals, `+ - * / // % **` of
them, lists `[g, h]`, tuples, dicts `{"input": x}`, and `zip(a, b)`, a list of pairs.
"""

import ast
import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pv.contract.spelling import nearest
from pv.equations.language import Formula, syntax_refusal
from pv.equations.refusal import Refusal

MAX_CHARACTERS = 500
MAX_VALUE = 80
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
ARGUMENT = "a variable, a literal, arithmetic, [a, b], (a, b), {'key': a} or zip(a, b)"

Watch = Callable[[str, Any], None]
"""Called with each argument as it is written, and its value, before the code gets it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed call: the dotted name of the function, and the syntax tree of the call.

    calls: its calls in the order in which they are made, each with its dotted name below the subject. More than one is
    a method of a constructed object.
    """

    function: str
    node: ast.Call
    text: str
    calls: tuple[tuple[str, ast.Call], ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the variables that it passes."""
        parts = [part for _, call in self.calls for part in _parts(call)]
        return frozenset(node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name))

    def evaluate(self, subject: Any, values: Mapping[str, Any], watch: Watch | None = None) -> Any:
        """Return the result of the call for the given values of the variables. `watch` gets the arguments first."""
        return _object(self.node, subject, values, watch)

    def written(self, values: Mapping[str, Any], show: Callable[[Any], str]) -> str:
        """Return the call as it is made, with the values of its arguments as text; a long one stays an expression."""

        def substitute(node: ast.expr) -> ast.expr:
            text = show(_argument(node, values))
            return ast.Name(text) if len(text) <= MAX_VALUE else node

        tree = copy.deepcopy(self.node)
        for call in _chain(tree):
            call.args = [substitute(argument) for argument in call.args]
            for keyword in call.keywords:
                keyword.value = substitute(keyword.value)
        return ast.unparse(tree)


def parse_call(text: str, names: frozenset[str]) -> Call:
    """Return the call that `text` describes. Raise `Refusal` if it is not a call or uses a name outside `names`."""
    tree = parse_expression(text)
    formula = Formula(text, ())
    if not isinstance(tree, ast.Call):
        raise Refusal("expected a call, such as `kd_loss(s, t, temperature=tau)`")
    calls = tuple(_chain(tree))
    for call in calls:
        _check_function(formula, call)
        for part in _parts(call):
            _check_argument(formula, part, names)
        if any(keyword.arg is None for keyword in call.keywords):
            raise formula.refuse("unsupported syntax: ** in a call", call)
    named = tuple((_dotted(call), call) for call in reversed(calls))
    return Call(named[-1][0], tree, text, named)


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of a text. Raise `Refusal`."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"too long: {len(text)} characters, expected at most {MAX_CHARACTERS}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise syntax_refusal(error) from error


def defined_at(subject: Any, dotted: str) -> tuple[str, int, str] | None:
    """Return file, line and name of the Python function `dotted` of the subject; None if it is not one."""
    try:
        for part in dotted.split("."):
            subject = getattr(subject, part)
        subject = inspect.unwrap(getattr(subject, "__init__", subject) if isinstance(subject, type) else subject)
    except (AttributeError, ValueError):
        return None
    code = getattr(subject, "__code__", None)
    return (code.co_filename, code.co_firstlineno, subject.__qualname__) if code is not None else None


def _chain(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of `Scaler(2).scale(x)`, the outermost first."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Call):
            yield node
            node = node.func
        else:
            node = node.value


def _parts(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _dotted(call: ast.Call) -> str:
    names: list[str] = []
    node: ast.expr = call.func
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        else:
            assert isinstance(node, ast.Call), "_check_function admits nothing else"
            node = node.func
    return ".".join([node.id, *names])


def _check_function(formula: Formula, call: ast.Call) -> None:
    node = call.func
    while isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        node = node.value
    method = isinstance(node, ast.Call) and isinstance(call.func, ast.Attribute)
    if not (isinstance(node, ast.Name) or method):
        raise formula.refuse("invalid function: expected a dotted name", call.func)


def _check_argument(formula: Formula, node: ast.expr, names: frozenset[str]) -> None:
    match node:
        case ast.Name(id=name):
            if name not in names:
                near = nearest(name, names)
                hint = f"did you mean {near!r}?" if near else f"the domain has {', '.join(sorted(names))}"
                raise formula.refuse(f"unknown variable {name!r}", node, hint)
        case ast.Constant(value=bool() | int() | float() | str() | None):
            pass
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Call(func=ast.Name(id="zip"), args=parts, keywords=[]):
            for part in parts:
                _check_argument(formula, part, names)
        case ast.Dict(keys=keys, values=parts) if all(_is_text(key) for key in keys):
            for part in parts:
                _check_argument(formula, part, names)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            _check_argument(formula, part, names)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            _check_argument(formula, left, names)
            _check_argument(formula, right, names)
        case _:
            raise formula.refuse(f"invalid argument: expected {ARGUMENT}", node)


def _is_text(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def _object(node: ast.expr, subject: Any, values: Mapping[str, Any], watch: Watch | None) -> Any:
    match node:
        case ast.Name(id=name):
            return getattr(subject, name)
        case ast.Attribute(value=inner, attr=name):
            return getattr(_object(inner, subject, values, watch), name)
        case ast.Call(func=function):
            called = _object(function, subject, values, watch)
            positional = [_watched(argument, values, watch) for argument in node.args]
            return called(
                *positional, **{str(keyword.arg): _watched(keyword.value, values, watch) for keyword in node.keywords}
            )
        case _:
            raise AssertionError(f"parse_call must refuse {ast.dump(node)}")


def _watched(node: ast.expr, values: Mapping[str, Any], watch: Watch | None) -> Any:
    value = _argument(node, values)
    if watch is not None:
        watch(ast.unparse(node), value)
    return value


def _argument(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.List(elts=parts):
            return [_argument(part, values) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(_argument(part, values) for part in parts)
        case ast.Dict(keys=keys, values=parts):
            texts = [ast.literal_eval(key) for key in keys if key is not None]
            return {key: _argument(part, values) for key, part in zip(texts, parts, strict=True)}
        case ast.Call(args=parts):
            columns = [_argument(part, values).tolist() for part in parts]
            return list(zip(*columns, strict=True))
        case ast.UnaryOp(operand=part):
            return -_argument(part, values)
        case ast.BinOp(left=left, op=sign, right=right):
            return OPERATORS[type(sign)](_argument(left, values), _argument(right, values))
        case ast.Constant(value=value):
            return value
        case _:
            raise AssertionError(f"parse_call must refuse {ast.dump(node)}")
