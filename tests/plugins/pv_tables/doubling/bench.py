"""Calls a function that doubles a number."""

from collections.abc import Callable, Mapping
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


class Bench:
    """Calls the subject, and notes the calls."""

    not_claimed: Mapping[str, str] = {}

    def __init__(self, function: Callable[[int], int]) -> None:
        self.function = function
        self.used: list[object] = []

    def missing(self, claim: str, needs: tuple[str, ...]) -> str:
        return ""

    def call(self, number: int) -> int:
        self.used.append(object())
        return self.function(number)


def bench(subject: Callable[[int], int], directory: Path | None) -> Bench:
    return Bench(subject)
