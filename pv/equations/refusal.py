"""Refusals: which part of an equation is invalid, at which position, and how to correct it."""

from enum import StrEnum


class Refusal(Exception):
    """A text that is invalid. `line` and `column` are positions in it, from 1; `hint` says how to correct it."""

    def __init__(self, message: str, line: int = 1, column: int = 1, *, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.line, self.column, self.hint = message, line, column, hint


class Part(StrEnum):
    """The key of an equation that holds the invalid text; NAME is the name of the equation itself."""

    NAME = "name"
    DOMAIN = "domain"
    EXPRESSION = "expression"
    REQUIRES = "requires"
    INVARIANTS = "invariants"
    RESULT = "result"
    IMPLEMENTED_BY = "implemented_by"
    RETURNS = "returns"
    DERIVATIVE_OF = "derivative_of"


class InvalidEquation(Exception):
    """A refusal with its equation and key. `item` selects a variable of `domain` or an index of `invariants`."""

    def __init__(self, equation: str, part: Part, refusal: Refusal, item: str = "") -> None:
        super().__init__(str(refusal))
        self.equation, self.part, self.refusal, self.item = equation, part, refusal, item

    @property
    def key(self) -> str:
        """Return the path of the text below the equation, such as `expression` or `domain/x`."""
        return f"{self.part}/{self.item}" if self.item else self.part.value
