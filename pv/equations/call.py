"""Parse and evaluate two keys of an equation: `implemented_by` calls the code, `returns` selects values of its result.

`implemented_by`, such as `kd_loss(s, t, y, temperature=tau)` or `LoRA(rank=R).forward(x)`: arguments are variables,
literals, `+ - * / // % **` of them, lists `[g, h]`, tuples, dicts `{"input": x}`, and `zip(a, b)`, a list of pairs.

`returns`, such as `sum / count`, `result["loss"]` or `result[0].mean`: attributes, items, and `+ - * /` of them are
allowed. `result` is the returned object; any other name is an attribute of this object. For code that works in place,
the name of an array that the call passes is this array after the call, as in `param, momentum`.
"""

import ast
import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pv.contract.wording import nearest
from pv.equations.language import ARITHMETIC, Formula, Refusal, syntax_refusal

MAX_CHARACTERS = 500
"""Maximum length of an expression, in characters."""
MAX_VALUE = 80
"""Maximum length of a value in the text of a call, in characters."""
ARGUMENT = "a variable, a literal, arithmetic, [a, b], (a, b), {'key': a} or zip(a, b)"

Watch = Callable[[str, object], None]
"""Called with the text and the value of every argument, before the argument is passed to the code."""


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed call of the code, such as `kd_loss(s, t)` or `LoRA(rank=R).forward(x)`.

    Attributes:
        function: The dotted name, below the subject, of the function that is called last.
        node: The syntax tree of the call.
        text: The text of the call.
        calls: The dotted name of the function and the syntax tree for each call in the chain, in the order of
            execution: `LoRA`, then `LoRA.forward`.
    """

    function: str
    node: ast.Call
    text: str
    calls: tuple[tuple[str, ast.Call], ...]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the variables that the call passes."""
        nodes = [node for _, call in self.calls for argument in _arguments(call) for node in ast.walk(argument)]
        functions = [node.func for node in nodes if isinstance(node, ast.Call)]  # `zip` is no variable
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node not in functions)

    def evaluate(self, subject: object, values: Mapping[str, object], watch: Watch | None = None) -> object:
        """Call the code with the values of the variables.

        Args:
            subject: The module or object that has the function.
            values: The values of the variables, by name.
            watch: Called with the text and the value of every argument, before the argument is passed.

        Returns:
            The object that the code returns.
        """
        return _evaluate_call(self.node, subject, values, watch)

    def format(self, values: Mapping[str, object], show: Callable[[object], str]) -> str:
        """Return the text of the call in which every argument is replaced by its value.

        An argument whose value has more than `MAX_VALUE` characters is not replaced.

        Args:
            values: The values of the variables, by name.
            show: Returns the text of a value.
        """

        def substitute(node: ast.expr) -> ast.expr:
            text = show(_evaluate(node, values.__getitem__))
            return ast.Name(text) if len(text) <= MAX_VALUE else node

        # The text of a value is inserted as a name in a copy of the tree, which is only printed, never evaluated.
        tree = copy.deepcopy(self.node)
        for call in _calls_last_first(tree):
            call.args = [substitute(argument) for argument in call.args]
            for keyword in call.keywords:
                keyword.value = substitute(keyword.value)
        return ast.unparse(tree)


def parse_call(text: str, names: frozenset[str]) -> Call:
    """Parse the text of `implemented_by`.

    Args:
        text: The text, such as `kd_loss(s, t, temperature=tau)`.
        names: The variables and sizes that may be passed.

    Returns:
        The call.

    Raises:
        Refusal: The text is not a call, has unsupported syntax, or uses a name outside `names`.
    """
    tree = _parse_expression(text)
    formula = Formula(text, ())
    if not isinstance(tree, ast.Call):
        raise Refusal("expected a call, such as `kd_loss(s, t, temperature=tau)`")
    calls = tuple(_calls_last_first(tree))
    for call in calls:
        _check_function(formula, call)
        for argument in _arguments(call):
            _check_argument(formula, argument, names)
        if any(keyword.arg is None for keyword in call.keywords):
            raise formula.refuse("unsupported syntax: ** in a call", call)
    named_calls = tuple((_dotted_name(call), call) for call in reversed(calls))
    return Call(_dotted_name(tree), tree, text, named_calls)


def _parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of a text. Raise `Refusal` if the text is too long or not a Python expression."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal(f"too long: {len(text)} characters, expected at most {MAX_CHARACTERS}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise syntax_refusal(error) from error


def defined_at(subject: Any, dotted: str) -> tuple[str, int, str] | None:
    """Find where a function, or the constructor of a class, is defined.

    Args:
        subject: The module or object that has the function.
        dotted: The dotted name of the function or class below the subject.

    Returns:
        The file, the line and the qualified name; None if the function does not exist or is not written in Python.
    """
    try:
        function = operator.attrgetter(dotted)(subject)
        if isinstance(function, type):
            function = getattr(function, "__init__", function)
        function = inspect.unwrap(function)  # the code of a decorated function is the code of the wrapper
    except (AttributeError, ValueError):
        return None
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno, function.__qualname__) if code is not None else None


def _calls_last_first(node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls of a chain such as `Scaler(2).scale(x)`: the call of `scale`, then the call of `Scaler`."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Call):
            yield node
            node = node.func
        else:
            node = node.value


def _arguments(call: ast.Call) -> list[ast.expr]:
    """Return the positional and keyword arguments of a call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _dotted_name(call: ast.Call) -> str:
    """Return the dotted name of the function of a call: `LoRA.forward` for `LoRA(2).forward(x)`."""
    names: list[str] = []
    node: ast.expr = call.func
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)  # the root of the syntax tree is the last attribute
            node = node.value
        else:
            assert isinstance(node, ast.Call), "_check_function admits nothing else"
            node = node.func
    return ".".join([node.id, *names])


def _check_function(formula: Formula, call: ast.Call) -> None:
    """Raise `Refusal` unless the function of a call is a dotted name, or a method of the result of another call.

    Attributes after a dot must not be private.
    """
    node = call.func
    while isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        node = node.value
    # `LoRA(rank=R).forward(x)` calls a method of the result of `LoRA(rank=R)`, a call that is checked separately.
    is_method = isinstance(node, ast.Call) and isinstance(call.func, ast.Attribute)
    if not (isinstance(node, ast.Name) or is_method):
        raise formula.refuse("invalid function: expected a dotted name", call.func)


def _check_argument(formula: Formula, node: ast.expr, names: frozenset[str]) -> None:
    """Raise `Refusal` unless an argument consists of known variables and supported syntax."""
    parts: list[ast.expr] = []
    match node:
        case ast.Name(id=name):
            if name not in names:
                near = nearest(name, names)
                hint = f"did you mean {near!r}?" if near else f"the domain has {', '.join(sorted(names))}"
                raise formula.refuse(f"unknown variable {name!r}", node, hint)
        case ast.Constant(value=bool() | int() | float() | str() | None):
            pass
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Call(func=ast.Name(id="zip"), args=parts, keywords=[]):
            pass
        case ast.Dict(keys=keys, values=parts) if all(_is_text(key) for key in keys):
            pass
        # Python parses -1 as the negation of 1.
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            parts = [left, right]
        case _:
            raise formula.refuse(f"invalid argument: expected {ARGUMENT}", node)
    for part in parts:
        _check_argument(formula, part, names)


def _is_text(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def _evaluate_call(node: ast.expr, subject: object, values: Mapping[str, object], watch: Watch | None) -> Any:
    """Evaluate a chain of names, attributes and calls that starts at the subject; see `Call.evaluate`."""
    match node:
        case ast.Name(id=name):
            return getattr(subject, name)
        case ast.Attribute(value=inner, attr=name):
            return getattr(_evaluate_call(inner, subject, values, watch), name)
        case ast.Call(func=function):
            called = _evaluate_call(function, subject, values, watch)
            positional = [_argument(argument, values, watch) for argument in node.args]
            keywords = {str(keyword.arg): _argument(keyword.value, values, watch) for keyword in node.keywords}
            return called(*positional, **keywords)
        case _:
            raise AssertionError(f"parse_call must refuse {ast.dump(node)}")


def _argument(node: ast.expr, values: Mapping[str, object], watch: Watch | None) -> object:
    """Evaluate an argument, and call `watch` with the text and the value."""
    value = _evaluate(node, values.__getitem__)
    if watch is not None:
        watch(ast.unparse(node), value)
    return value


def _evaluate(node: ast.expr, lookup: Callable[[str], object]) -> object:
    """Evaluate an argument or a `returns` expression, whose syntax was checked when it was parsed.

    Args:
        node: The expression.
        lookup: Returns the value of a name.
    """

    def value(part: ast.expr) -> Any:
        return _evaluate(part, lookup)

    match node:
        case ast.Name(id=name):
            return lookup(name)
        case ast.Attribute(value=inner, attr=name):
            return _attribute(value(inner), name)
        case ast.Subscript(value=inner, slice=index):
            return value(inner)[_item(index)]
        case ast.List(elts=parts):
            return [value(part) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(value(part) for part in parts)
        case ast.Dict(keys=keys, values=parts):
            texts = [ast.literal_eval(key) for key in keys if key is not None]
            return {key: value(part) for key, part in zip(texts, parts, strict=True)}
        case ast.Call(args=parts):
            # zip(a, b) of two arrays gives the pairs of their elements as Python numbers.
            return list(zip(*(value(part).tolist() for part in parts), strict=True))
        case ast.UnaryOp(operand=part):
            return -value(part)
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](value(left), value(right))
        case ast.Constant(value=constant):
            return constant
        case _:
            raise AssertionError(f"the parser must refuse {ast.dump(node)}")


_RETURNS_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_RETURNS_NODES = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Tuple,
    ast.operator, ast.unaryop, ast.expr_context,
)  # fmt: skip


def parse_returns(text: str, results: int) -> ast.expr:
    """Parse the text of `returns`.

    Args:
        text: The text, such as `loss / count` or `result[0], result[1]`.
        results: The number of values that the equation has.

    Returns:
        The syntax tree; an `ast.Tuple` if the text has several values.

    Raises:
        Refusal: The number of values is not `results`, or the syntax is not supported.
    """
    tree, formula = _parse_expression(text), Formula(text, ())
    parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    if len(parts) != results:
        raise Refusal(f"declares {len(parts)} values, `result` declares {results}")
    # A literal inside [ ] may be a string. All other literals must be numbers.
    items = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    for node in ast.walk(tree):
        _check_returns(formula, node, is_item=id(node) in items)
    return tree


def _check_returns(formula: Formula, node: ast.AST, *, is_item: bool) -> None:
    """Raise `Refusal` unless a node of a `returns` expression is supported."""
    match node:
        case ast.Subscript(slice=index) if _item(index) is None:
            raise formula.refuse("expected an integer or a text in [ ]", node)
        case ast.Constant(value=value) if type(value) not in (int, float) and not is_item:
            raise formula.refuse(f"invalid literal {value!r}: expected a number", node)
        case ast.Attribute(attr=name) if name.startswith("_"):
            raise formula.refuse(f"private attribute {name!r}", node)
        case ast.BinOp(op=op) if not isinstance(op, _RETURNS_OPERATORS):
            raise formula.refuse("unsupported operator: expected + - * /", node)
        case ast.UnaryOp(op=op) if not isinstance(op, ast.USub):
            raise formula.refuse("unsupported operator: expected + - * /", node)
    if not isinstance(node, _RETURNS_NODES):
        raise formula.refuse("unsupported syntax: expected attributes, items, and + - * /", node)


def _item(node: ast.expr) -> int | str | None:
    """Return the integer or text in [ ]; None for another expression."""
    match node:
        case ast.Constant(value=int() | str() as item):
            return item
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as item)):
            return -item
    return None


def returned_names(node: ast.expr) -> list[str]:
    """Return the names in a `returns` expression, without the names of attributes after a dot."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def evaluate_returns(node: ast.expr, result: object, arrays: Mapping[str, object]) -> object:
    """Evaluate a `returns` expression.

    Args:
        node: The parsed expression.
        result: The object that the code returned.
        arrays: The array arguments by name, as they are after the call.

    Returns:
        The value, or a tuple if the expression has several values.

    Raises:
        LookupError: A name is a key of the result, which is a mapping, and not an attribute; or an item does not exist.
        AttributeError: The result has no such attribute.
        TypeError: A value has no items, or an operator does not support its operands.
    """

    def lookup(name: str) -> object:
        if name == "result":
            return result
        return arrays[name] if name in arrays else _attribute(result, name)

    return _evaluate(node, lookup)


def _attribute(result: object, name: str) -> object:
    # The AttributeError of `getattr` would not say how to select an item of a mapping.
    if isinstance(result, Mapping) and name in result and not hasattr(result, name):
        raise LookupError(f"the code returned a {type(result).__name__}: write `result[{name!r}]` in `returns`")
    return getattr(result, name)
