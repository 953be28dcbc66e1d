"""Hints for habits of PyTorch and NumPy that the language of equations does not have."""

import ast

OPERATORS: dict[type, tuple[str, str]] = {
    ast.MatMult: ("`@` is not supported", "write a matrix product as `sum(x * w, D)`, D the axis that they share"),
    ast.BitAnd: ("`&` is not supported", "write `and`"),
    ast.BitOr: ("`|` is not supported", "write `or`"),
    ast.Invert: ("`~` is not supported", "write `not`"),
    ast.UAdd: ("a sign `+` is not supported", "leave it out"),
}
MODULES = {"torch", "F", "nn", "functional", "math", "np", "numpy", "jnp", "jax", "special"}
SIZES = {"shape", "size", "numel", "ndim", "dim"}
LAYOUTS = {"T", "mT", "t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "expand", "flatten"}


def unsupported(node: ast.AST) -> tuple[str, str]:
    """Return the message for syntax that is refused, and how to write what is probably meant ("" if unknown)."""
    match node:
        case ast.BinOp(left=left, op=ast.BitXor(), right=right):
            return "`^` is not a power", f"did you mean `{_short(left)} ** {_short(right)}`?"
        case ast.BinOp(op=sign) | ast.UnaryOp(op=sign) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)]
        case ast.Attribute(attr=name):
            return _attribute(node, name)
        case ast.Slice():
            return "slices are not supported", "axes have names: select with an index, or `x[0]` if x has one axis"
        case ast.Constant(value=value) if value is ...:
            return "`...` is not supported", "axes have names: select with an index, or `x[0]` if x has one axis"
        case ast.Lambda() | ast.ListComp() | ast.GeneratorExp():
            return f"unsupported syntax: {type(node).__name__}", "operations are elementwise; reduce with `sum(x, D)`"
    return f"unsupported syntax: {type(node).__name__}", ""


def _attribute(node: ast.Attribute, name: str) -> tuple[str, str]:
    root = node.value
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in MODULES:
        return f"unknown name `{_short(node)}`", f"write `{name}` alone; functions and constants need no module"
    if name in SIZES:
        return f"`.{name}` is not supported", "the name of an axis is its size, as in `sqrt(D)`"
    if name in LAYOUTS:
        return f"`.{name}` is not supported", "leave it out: operands are combined by the names of their axes"
    return f"methods are not supported: `.{name}`", f"write `{name}(x, D)`, with the name of the axis if it reduces one"


def argument_for_axis(function: str, node: ast.expr) -> str:
    """Return the hint for an argument of a reduction that is not an axis; "" if it has no axis but a known habit."""
    if function in ("max", "min") and not (isinstance(node, ast.Name) and node.id[:1].isupper()):
        return f"`{function}` reduces over an axis; for two values use `{function}imum`"
    return f"axes have names: write `{function}(x, D)`" if _is_integer(node) else ""


def _is_integer(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _short(node: ast.AST) -> str:
    return ast.unparse(node)[:40]
