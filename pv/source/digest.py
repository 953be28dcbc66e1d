"""Digests of source code by its syntax tree, without comments, docstrings and layout.

The digest of a tree is the digest of a text that this module writes, since the text of `ast.dump` differs between
Python versions. Fields that are empty or None are left out, so a field that a newer Python adds does not change the
digest of code without it. This module imports nothing of `pv`, so that a test can run it alone in other versions of
Python.
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


def digest_file(path: Path) -> str:
    """Return the digest of a file: of its syntax tree if it is a Python file, else of its bytes. Raise SyntaxError."""
    stat = path.stat()
    return _digest_file(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _digest_file(path: Path, _: int, __: int) -> str:
    data = path.read_bytes()
    return digest_source(importlib.util.decode_source(data)) if path.suffix == ".py" else digest_bytes(data)


def digest_source(source: str) -> str:
    """Return the digest of Python source. Raise SyntaxError."""
    return digest_tree(ast.parse(source))


def digest_tree(tree: ast.AST | list[ast.stmt]) -> str:
    """Return the digest of a syntax tree."""
    hasher = hashlib.sha256()
    for part in _parts(tree):
        # A separator makes `ab`, `c` and `a`, `bc` differ. Source may have lone surrogates, which UTF-8 cannot encode.
        hasher.update(part.encode("utf-8", "backslashreplace"))
        hasher.update(b"\0")
    return hasher.hexdigest()


def digest_data(value: object) -> str:
    """Return the digest of JSON data, which does not depend on the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, ensure_ascii=True).encode())


def digest_bytes(data: bytes) -> str:
    """Return the SHA-256 of data."""
    return hashlib.sha256(data).hexdigest()


def _parts(node: object) -> Iterator[str]:
    """Yield the text of a tree in parts: types, fields and constants, with brackets around nodes and lists."""
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
        yield f"int:{node:x}"  # Python refuses to write a long integer in decimal
    else:
        yield f"{type(node).__name__}:{node!a}"  # not repr, which depends on the Unicode tables of the Python version


def undocumented(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return a block of statements without the docstring that it begins with."""
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[1:] if isinstance(body[0].value.value, str) else body
    return body
