"""Show the values in a failed `assert` without a message: the compared sides, and the parts of the sides.

After the search has ended, the expressions of the assert are evaluated twice in the frame that failed. Nothing is shown
if the condition then holds. A value that differs between the two evaluations is left out, since the code keeps state
and the value at the time of the assert is unknown. A value that changed only once, right after the assert failed, may
be shown wrongly.
"""

import ast
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType

from pv.contract.wording import cut
from pv.engines.encoding import encode, show

MAX_VALUE = 300
"""Number of characters of a value that are shown."""
MAX_VALUES = 8
"""Number of values that are shown."""
# _EVALUATED: expressions whose values are shown. _EFFECTS: an assert with one of these is not evaluated again, since
# they have side effects or cannot be evaluated outside of the function.
_EVALUATED = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.UnaryOp)
_EFFECTS = (ast.NamedExpr, ast.Lambda, ast.comprehension)


def explain(error: BaseException) -> str:
    """Return the failed assert of an error with its values.

    Return "" for another error, an assert with a message, and an assert that cannot be evaluated again or then holds.
    """
    if type(error) is not AssertionError or error.args:
        return ""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return ""
    frame, line = frames[-1]
    try:
        test = _condition(frame, line)
        if test is None or _evaluate(test, frame):
            return ""
        # Every part of the condition is evaluated twice.
        seen = [(part, value, _format_value(value)) for _ in range(2) for part, value in _values(test, frame)]
        lines = _repeated_values((ast.unparse(part), text) for part, _, text in seen)
    except BaseException:  # an expression may raise any exception, such as Hypothesis's StopTest in a draw
        return ""
    return "\n".join(
        [f"assert {ast.unparse(test)}", *lines, *_cause(test, {id(part): value for part, value, _ in seen})]
    )


def cause_of(error: BaseException) -> str:
    """Describe where and how the arguments of a failed `torch.testing.assert_close` differ; "" for another error."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "assert_close" and frame.f_globals.get("__name__") == "torch.testing._comparison":
            sides = frame.f_locals.get("actual"), frame.f_locals.get("expected")
            return "\n".join(filter(None, (_describe_largest_difference(*sides), _describe_difference(*sides))))
    return ""


def _cause(test: ast.expr, values: Mapping[int, object]) -> list[str]:
    """Return a line that describes how two arrays, or mappings of arrays, in a condition differ; [] for other values.

    Args:
        test: The condition.
        values: The values of parts of the condition, by `id` of the part.
    """
    sides = test.args if isinstance(test, ast.Call) else _sides(test)
    if len(sides) < 2 or not all(id(side) in values for side in sides[:2]):
        return []
    text = _describe_difference(*(values[id(side)] for side in sides[:2]))
    return [f"  {text}"] if text else []


def _describe_difference(left: object, right: object) -> str:
    """Describe how two arrays differ, such as by a factor; "" if this is unknown or torch is not loaded."""
    if "torch" not in sys.modules:
        return ""
    from pv.equations.causes import describe_difference

    return describe_difference(left, right)


def _describe_largest_difference(left: object, right: object) -> str:
    from pv.equations.causes import describe_largest_difference

    return describe_largest_difference(left, right)


def _repeated_values(seen: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each expression that had the same value in every evaluation; none for a literal such as -1."""
    values: dict[str, set[str]] = {}
    for part, value in seen:
        values.setdefault(part, set()).add(value)
    return [
        f"  {part} = {cut(min(texts), MAX_VALUE)}"
        for part, texts in values.items()
        if len(texts) == 1 and part not in texts
    ]


def _condition(frame: FrameType, line: int) -> ast.expr | None:
    """Return the condition of the assert at a line of the frame's file; None if it cannot be evaluated again."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
    for node in nodes:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return None if any(isinstance(inner, _EFFECTS) for inner in ast.walk(node.test)) else node.test
    return None


def _values(test: ast.expr, frame: FrameType) -> Iterator[tuple[ast.expr, object]]:
    """Yield the parts of a condition with their values: first the sides of comparisons, then the parts of the sides."""
    # Breadth-first search, so that `MAX_VALUES` leaves out the innermost parts.
    todo, count = _sides(test), 0
    while todo and count < MAX_VALUES:
        part = todo.pop(0)
        if isinstance(part, _EVALUATED):
            value = _evaluate(part, frame)
            if not callable(value) and not _is_namespace(value):
                yield part, value
                count += 1
        todo += _operands(part)


def _sides(test: ast.expr) -> list[ast.expr]:
    """Return the sides of the comparisons in a condition; for a condition without a comparison, the condition."""
    match test:
        case ast.Compare(left=left, comparators=comparators):
            return [left, *comparators]
        case ast.BoolOp(values=parts):
            return [side for part in parts for side in _sides(part)]
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return _sides(part)
    return [test]


def _operands(part: ast.expr) -> list[ast.expr]:
    """Return the operands and arguments of an expression."""
    match part:
        case ast.Call(func=function, args=positional, keywords=named):
            owner = [function.value] if isinstance(function, ast.Attribute) else []
            return [*owner, *positional, *(expression.value for expression in named)]
        case ast.Compare() | ast.BoolOp():
            return _sides(part)
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Subscript(value=value):
            return [value]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return list(parts)
    return []


def _evaluate(node: ast.expr, frame: FrameType) -> object:
    """Evaluate an expression in a frame."""
    code = compile(ast.Expression(node), frame.f_code.co_filename, "eval")
    return eval(code, frame.f_globals, frame.f_locals)


def _is_namespace(value: object) -> bool:
    return type(value).__name__ in ("module", "SimpleNamespace")


def _format_value(value: object) -> str:
    return show(encode(value)[0])
