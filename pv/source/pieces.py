"""Split a module into pieces on which a result can depend separately: the code that runs at import, function bodies."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pv.source import syntax
from pv.source.digest import digest_data, digest_tree, undocumented

Function = ast.FunctionDef | ast.AsyncFunctionDef
READ_NO_DOCSTRING = frozenset(
    "dataclass property cached_property staticmethod classmethod abstractmethod cache lru_cache contextmanager wraps "
    "overload override no_grad inference_mode once_differentiable given "
    "NamedTuple TypedDict Protocol ABC Generic Enum IntEnum StrEnum Flag Exception ValueError RuntimeError TypeError "
    "Module Function Dataset IterableDataset Sampler Optimizer".split()
)
"""Names of decorators and base classes that are known not to read the docstring of the function or class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The digests of the parts of a module on which a result can depend separately.

    Attributes:
        at_import: The code that runs at import: everything except the bodies in `functions`.
        functions: The body of every function that is not inside another function, by dotted name. Functions whose
            source a compiler reads are left out.
        docs: All docstrings.
        shown_docs: The docstrings of functions and classes with a decorator or base class that is not in
            `READ_NO_DOCSTRING`, since it may convert them to help texts or schemas.
        constants: The set of all constants in the code, such as numbers and strings, without docstrings.
        reads_docs: Whether the module itself may read docstrings; not a digest.
    """

    at_import: str
    functions: Mapping[str, str]
    docs: str
    shown_docs: str
    constants: str
    reads_docs: bool


def pieces(source: str) -> Pieces:
    """Return the pieces of Python source. Raise an error of `syntax.UNREADABLE` if it is not Python."""
    tree = ast.parse(source)
    docs = dict(_docs(tree))
    # Hypothesis uses constants in the source of local modules as examples, so a result can depend on them.
    constants = {f"{type(n.value).__name__} {n.value!a}" for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    shown = {name: doc for name, (doc, is_shown) in docs.items() if is_shown}
    # This step is the last one, because it removes the bodies from the tree.
    split = _Split()
    without_bodies = split.visit(tree)
    return Pieces(
        at_import=digest_tree(without_bodies),
        functions={name: digest_data(digests) for name, digests in split.functions.items()},
        docs=digest_data({name: doc for name, (doc, _) in docs.items()}),
        shown_docs=digest_data(shown),
        constants=digest_data(sorted(constants - {f"str {doc!a}" for doc, _ in docs.values()})),
        reads_docs="__doc__" in source or "getdoc" in source,
    )


def outermost(name: str, functions: Mapping[str, str]) -> str:
    """Return the name in `functions` that is `name`, or that names a function around it; "" if there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return next((prefix for prefix in prefixes if prefix in functions), "")


class _Split(ast.NodeTransformer):
    """Removes the bodies of functions from a module, and digests them.

    A body is replaced by `yield` or `return`, because a change between function and generator must change `at_import`.
    """

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] = {}
        self._prefix = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        before, self._prefix = self._prefix, f"{self._prefix}{node.name}."
        self.generic_visit(node)
        self._prefix = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._extract(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._extract(node)

    def _extract(self, node: Function) -> ast.AST:
        if syntax.compiles_source(node):
            return node  # a compiler reads the source at import, so the body belongs to `at_import`
        digests = self.functions.setdefault(self._prefix + node.name, [])
        digests.append(digest_tree(undocumented(node.body)))
        node.body = [ast.Expr(ast.Name("yield" if syntax.is_generator(node.body) else "return"))]
        return node


def _docs(tree: ast.Module) -> Iterator[tuple[str, tuple[str | None, bool]]]:
    """Yield (name, (docstring, whether a library may show it)) for the module and its functions and classes."""
    yield "", (ast.get_docstring(tree, clean=False), False)
    for name, node in syntax.walk(tree.body):
        if isinstance(node, Function):
            yield name, (ast.get_docstring(node, clean=False), _may_read_docstring(node.decorator_list))
        elif isinstance(node, ast.ClassDef):
            readers = [*node.decorator_list, *node.bases]
            yield name, (ast.get_docstring(node, clean=False), _may_read_docstring(readers))


def _may_read_docstring(readers: list[ast.expr]) -> bool:
    """Return whether one of these decorators or base classes may read the docstring."""
    # The name of the base class `Sequence[int]` is `Sequence`.
    without_subscript = (node.value if isinstance(node, ast.Subscript) else node for node in readers)
    return any(syntax.name_of(node) not in READ_NO_DOCSTRING for node in without_subscript)
