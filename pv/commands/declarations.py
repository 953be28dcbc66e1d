"""Read the declarations of an adapter from its source: its features, and the claims that it does not make.

Nothing is imported, so that the adapter of an earlier commit can also be read. Computed declarations, such as the
result of a function, cannot be read: `Declarations.is_whole` is then False.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pv.source import syntax

OLD = ("has", "lacks", "without", "logged")
"""Names that declare features in version 0.2."""
NAMES = ("features", "not_claimed", "tolerance", *OLD)


class Unreadable(Exception):
    """A declaration cannot be read from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """The declarations of a subject.

    Attributes:
        features: The features that the subject has.
        missing: The features that the subject does not have, each with the source code of the reason.
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
        source: The source of its module.
        subject: Its name in the module.

    Raises:
        SyntaxError: The source is not valid Python.
    """
    tree = ast.parse(source)
    values: dict[str, dict[str, ast.expr]] = {name: {} for name in NAMES}
    tolerance: float | None = None
    is_whole = True
    for name, value in _assigned(tree, subject):
        try:
            if name == "tolerance":
                tolerance = _number(tree, value)
            elif name == "features":  # entries of a subclass are added to the entries of its base class
                values[name] |= _entries(tree, value)
            else:  # under other names, declarations of a subclass replace its base class's
                values[name] = _entries(tree, value)
        except Unreadable:
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
    """Yield the changed declarations by which fewer claims are tried, or a looser tolerance is used, than before.

    Args:
        before: The declarations in the base.
        now: The declarations now.

    Yields:
        The name of the feature, "" for another declaration, and the description of the change.
    """
    for name in sorted(now.missing.keys() - before.missing.keys()):
        yield name, f"`{name}` is missing by `features` now ({now.missing[name]})"
    for name in sorted(before.features - now.features - now.missing.keys()):
        yield name, f"`features` does not set `{name}` to True any more"
    for claim in sorted(now.not_claimed - before.not_claimed):
        yield "", f"`not_claimed` names {claim} now"
    if before.tolerance is not None and now.tolerance is not None and now.tolerance > before.tolerance:
        yield "", f"`tolerance` is {now.tolerance:g}, was {before.tolerance:g}"


def old_names_note(subject: str, declared: Declarations) -> str:
    """Return the notice about names of version 0.2, with what to write; "" if the subject uses none."""
    if not declared.old_names:
        return ""
    entries = dict.fromkeys(sorted(declared.features), "True") | dict(declared.missing)
    mapping = ", ".join(f'"{name}": {value}' for name, value in entries.items())
    names = ", ".join(f"`{name}`" for name in declared.old_names)
    return f"{subject}: {names} will not be read from version 0.5 on; write `features = {{{mapping}}}`"


def _assigned(tree: ast.Module, subject: str, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.expr]]:
    """Yield the declarations of a subject with their values, declarations of base classes in the module first."""
    for node in tree.body:  # such as `make.features = {...}` below a function
        for target, value in _targets(node):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == subject and target.attr in NAMES:
                yield target.attr, value
    defined = next((node for name, node in syntax.walk(tree.body) if name == subject), None)
    if not isinstance(defined, ast.ClassDef):
        return
    for base in reversed(defined.bases):
        if isinstance(base, ast.Name) and base.id not in (*seen, subject):
            yield from _assigned(tree, base.id, (*seen, subject))
    for node in defined.body:
        for target, value in _targets(node):
            if isinstance(target, ast.Name) and target.id in NAMES:
                yield target.id, value


def _targets(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value


def _entries(tree: ast.Module, value: ast.expr) -> dict[str, ast.expr]:
    """Return the keys of a mapping, or the items of a sequence, with their values. Raise `Unreadable`."""
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
        case ast.Attribute():  # such as `Lightning.features`, which is declared in the file of that class
            return {}
    raise Unreadable


def _resolved(tree: ast.Module, value: ast.expr) -> ast.expr:
    """Return the value of a constant of the module if `value` is its name; any other expression unchanged."""
    if not isinstance(value, ast.Name):
        return value
    values = [
        assigned for node in tree.body for target, assigned in _targets(node)
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
    except Unreadable:  # an imported constant is a reason, such as `features = {"masks": NO_MASKS}`
        return False
    return isinstance(resolved, ast.Constant) and resolved.value is True
