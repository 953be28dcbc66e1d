"""Read the declarations of an adapter from its source: features, claims that it does not make, and the tolerance.

The adapter is not imported, so the adapter of an earlier commit can also be read. A computed declaration, such as the
result of a function, cannot be read; `Declarations.is_whole` is then False.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pv.source import syntax

OLD = ("has", "lacks", "without", "logged")
"""Attributes that declare features in version 0.2."""
NAMES = ("features", "not_claimed", "tolerance", *OLD)
"""Attributes that are declarations."""


class Unreadable(Exception):
    """A declaration cannot be read from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """The declarations of a subject.

    Attributes:
        features: The features that the subject has.
        missing: The source code of the reason, by feature that the subject does not have.
        not_claimed: The claims that the subject does not make.
        tolerance: The tolerance of gradients; None if it is not written as a number.
        old_names: The names of version 0.2 that the declarations use.
        is_whole: False if a declaration could not be read.
    """

    features: frozenset[str] = frozenset()
    missing: Mapping[str, str] = field(default_factory=dict)
    not_claimed: frozenset[str] = frozenset()
    tolerance: float | None = None
    old_names: tuple[str, ...] = ()
    is_whole: bool = True


def read_declarations(source: str, subject: str) -> Declarations:
    """Return the declarations of a class or function.

    Args:
        source: The source of the module.
        subject: The name of the class or function in the module.

    Raises:
        SyntaxError: The source is not valid Python.
    """
    tree = ast.parse(source)
    values: dict[str, dict[str, ast.expr]] = {name: {} for name in NAMES}
    tolerance: float | None = None
    is_whole = True
    for name, value in _declarations(tree, subject):
        try:
            if name == "tolerance":
                tolerance = _number(tree, value)
            elif name == "features":  # the features of a subclass are added to the features of its base class
                values[name] |= _entries(tree, value)
            else:  # any other attribute of a subclass replaces the attribute of its base class
                values[name] = _entries(tree, value)
        except (Unreadable, RecursionError):  # RecursionError: a constant that contains an import of its own name
            is_whole = False
    features = {name for name, value in values["features"].items() if _is_true(tree, value)}
    features |= {*values["has"], *values["logged"]}
    missing = {name: ast.unparse(value) for name, value in values["features"].items() if name not in features}
    missing |= dict.fromkeys(values["without"], "False")
    missing |= {name: ast.unparse(value) for name, value in values["lacks"].items()}
    return Declarations(
        features=frozenset(features),
        missing=missing,
        not_claimed=frozenset(values["not_claimed"]),
        tolerance=tolerance,
        old_names=tuple(name for name in OLD if values[name]),
        is_whole=is_whole,
    )


def find_weakenings(before: Declarations, now: Declarations) -> Iterator[tuple[str, str]]:
    """Yield the changes of declarations that reduce the number of tried claims, or increase the tolerance.

    Args:
        before: The declarations in the base.
        now: The declarations now.

    Yields:
        The name of the changed feature, or "" for another declaration; and the description of the change.
    """
    for name in sorted(now.missing.keys() - before.missing.keys()):
        yield name, f"`{name}` is now declared missing ({now.missing[name]})"
    for name in sorted(before.features - now.features - now.missing.keys()):
        yield name, f"`features` no longer sets `{name}` to True"
    for claim in sorted(now.not_claimed - before.not_claimed):
        yield "", f"`not_claimed` now names {claim}"
    if before.tolerance is not None and now.tolerance is not None and now.tolerance > before.tolerance:
        yield "", f"`tolerance` is {now.tolerance:g}, was {before.tolerance:g}"


def old_names_note(subject: str, declared: Declarations) -> str:
    """Return a notice that says how to replace the names of version 0.2; "" if the subject uses none of them."""
    if not declared.old_names:
        return ""
    entries = dict.fromkeys(sorted(declared.features), "True") | dict(declared.missing)
    mapping = ", ".join(f'"{name}": {value}' for name, value in entries.items())
    names = ", ".join(f"`{name}`" for name in declared.old_names)
    return f"{subject}: {names} will not be read from version 0.5 on; write `features = {{{mapping}}}`"


def _declarations(tree: ast.Module, subject: str, derived: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes in `NAMES` that a class or function declares, with their values.

    The attributes of base classes in the same module come first. Of several assignments to one attribute, the last
    counts: an assignment such as `subject.features = {...}` at the top level of the module comes after the body of the
    class. `derived` are the classes below `subject`.
    """
    defined = next((node for name, node in syntax.walk(tree.body) if name == subject), None)
    own: dict[str, ast.expr] = {}
    if isinstance(defined, ast.ClassDef):
        for base in reversed(defined.bases):
            if isinstance(base, ast.Name) and base.id not in (*derived, subject):
                yield from _declarations(tree, base.id, (*derived, subject))
        for node in defined.body:
            for target, value in _assignments(node):
                if isinstance(target, ast.Name) and target.id in NAMES:
                    own[target.id] = value
    for node in tree.body:
        for target, value in _assignments(node):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == subject and target.attr in NAMES:
                # The value may contain the earlier one, as in `subject.features = {**subject.features, ...}`.
                if target.attr in own and ast.unparse(target) in ast.unparse(value):
                    value = ast.BinOp(own[target.attr], ast.BitOr(), value)
                own[target.attr] = value
    yield from own.items()


def _assignments(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets of an assignment, each with the value; nothing for another statement."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value


def _entries(tree: ast.Module, value: ast.expr) -> dict[str, ast.expr]:
    """Return the keys of a mapping with their values, or the items of a sequence with the value False.

    Raise `Unreadable` if the source does not show them.
    """
    match _resolved(tree, value):
        case ast.Dict(keys=keys, values=values):
            entries: dict[str, ast.expr] = {}
            for key, item in zip(keys, values, strict=True):
                if key is None:  # `**item`
                    entries |= _entries(tree, item)
                else:
                    entries[_text(tree, key)] = item
            return entries
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _entries(tree, left) | _entries(tree, right)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="dict"), attr="fromkeys"), args=[names, *default]):
            return dict.fromkeys(_entries(tree, names), default[0] if default else ast.Constant(False))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split"), args=[]):
            return dict.fromkeys(text.split(), ast.Constant(False))
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            entries = {}
            for item in items:
                if isinstance(item, ast.Starred):
                    entries |= _entries(tree, item.value)
                else:
                    entries[_text(tree, item)] = ast.Constant(False)
            return entries
        case ast.Attribute():  # such as `Lightning.features`: the declarations of a class in another file do not count
            return {}
    raise Unreadable


def _resolved(tree: ast.Module, value: ast.expr) -> ast.expr:
    """Return the value of a constant of the module if `value` is its name; else `value`.

    Raise `Unreadable` if the constant is not assigned exactly once, or is another name.
    """
    if not isinstance(value, ast.Name):
        return value
    values = [
        assigned for node in tree.body for target, assigned in _assignments(node)
        if isinstance(target, ast.Name) and target.id == value.id
    ]  # fmt: skip
    if len(values) != 1 or isinstance(values[0], ast.Name):
        raise Unreadable
    return values[0]


def _text(tree: ast.Module, value: ast.expr) -> str:
    if isinstance(resolved := _resolved(tree, value), ast.Constant) and isinstance(resolved.value, str):
        return resolved.value
    raise Unreadable


def _number(tree: ast.Module, value: ast.expr) -> float:
    if isinstance(resolved := _resolved(tree, value), ast.Constant) and isinstance(resolved.value, int | float):
        return float(resolved.value)
    raise Unreadable


def _is_true(tree: ast.Module, value: ast.expr) -> bool:
    try:
        resolved = _resolved(tree, value)
    except Unreadable:  # an imported constant, as in `features = {"masks": NO_MASKS}`, is taken for a reason
        return False
    return isinstance(resolved, ast.Constant) and resolved.value is True
