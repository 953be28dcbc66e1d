"""Compute digests of source code from its syntax tree, so that comments, docstrings and layout do not change them.

The digest of a tree is the digest of a text that this module generates, because the text of `ast.dump` differs between
Python versions. The text omits fields that are empty or None. So if a newer Python adds a field to a node, the digest
changes only for code that uses the new field. This module imports nothing of `pv`, so that a test can run this module
alone in other versions of Python.
"""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

IGNORED_FIELDS = {"lineno", "col_offset", "end_lineno", "end_col_offset", "ctx", "type_comment", "type_ignores", "kind"}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
"""Types of nodes that may have a docstring."""


def digest_file(path: Path) -> str:
    """Return the digest of a file: of its syntax tree if it is a Python file, else of its bytes.

    Raises:
        OSError: The file cannot be read.
        SyntaxError, ValueError, RecursionError, MemoryError: The file is not Python, or is nested too deeply.
    """
    stat = path.stat()
    return _digest_file(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _digest_file(path: Path, _: int, __: int) -> str:
    # Modification time and size are only keys of the cache: a changed file is read again.
    data = path.read_bytes()
    return digest_source(importlib.util.decode_source(data)) if path.suffix == ".py" else digest_bytes(data)


def digest_source(source: str) -> str:
    """Return the digest of Python source. Raise an error of `syntax.UNREADABLE` if it cannot be parsed."""
    return digest_tree(ast.parse(source))


def digest_tree(tree: ast.AST | list[ast.stmt]) -> str:
    """Return the digest of a syntax tree."""
    hasher = hashlib.sha256()
    for part in _parts(tree):
        # The separator makes the parts `ab`, `c` differ from `a`, `bc`. Strings in source code may contain lone
        # surrogates, which UTF-8 cannot encode.
        hasher.update(part.encode("utf-8", "backslashreplace"))
        hasher.update(b"\0")
    return hasher.hexdigest()


def digest_data(value: object) -> str:
    """Return the digest of JSON data. The order of keys does not matter."""
    return digest_bytes(json.dumps(value, sort_keys=True, ensure_ascii=True).encode())


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of data."""
    return hashlib.sha256(data).hexdigest()


def _parts(node: object) -> Iterator[str]:
    """Yield the text of a tree in parts: types, names of fields and constants, with brackets around nodes and lists."""
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name in sorted(set(node._fields) - IGNORED_FIELDS):
            value = getattr(node, name, None)
            if name == "body" and isinstance(node, DOCUMENTED):
                value = undocumented(node.body)
            if isinstance(node, ast.JoinedStr) and value is not None:
                # Only Python 3.12 adds the empty text between the parts of an f-string.
                value = [part for part in value if not (isinstance(part, ast.Constant) and part.value == "")]
            if value is not None and value != []:
                yield name
                yield from _parts(value)
        yield ")"
    elif isinstance(node, list):
        yield "["
        for item in node:
            yield from _parts(item)
        yield "]"
    elif type(node) is int:
        yield f"int:{node:x}"  # hexadecimal, because Python limits the length of decimal integers
    else:
        yield f"{type(node).__name__}:{node!a}"  # ascii(), because repr() depends on Python's version of Unicode


def undocumented(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return a block of statements without its docstring."""
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[1:] if isinstance(body[0].value.value, str) else body
    return body
