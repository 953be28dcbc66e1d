"""Definitions of a module are found wherever a statement can stand."""

import ast

from pv.source.syntax import compiles_source, functions, statements, walk

SOURCE = """
try:
    from fast import price
except ImportError:
    def in_handler(): ...
else:
    def in_else(): ...
finally:
    def in_finally(): ...
if price:
    with price:
        class Inside:
            def method(self): ...
match price:
    case None:
        def in_case(): ...
"""


def test_definitions_below_every_statement_are_found() -> None:
    names = [name for name, _ in walk(ast.parse(SOURCE).body)]
    assert sorted(names) == ["Inside", "Inside.method", "in_case", "in_else", "in_finally", "in_handler"]
    assert len([*statements(ast.parse(SOURCE).body)]) == 10, "a block of a statement is left out"
    decorators = {"triton.jit": True, "njit(cache=f.x)": True, "torch.jit.script": True, "cache": False}
    made = [function for decorator in decorators for _, function in functions(ast.parse(f"@{decorator}\ndef f(): ..."))]
    assert [*map(compiles_source, made)] == [*decorators.values()]
