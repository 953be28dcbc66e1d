"""What odd predicates ask for, some of it under names that lint cannot read."""

import os

seen: list[int] = []


def leave(number: int) -> None:
    os._exit(number)


def always(number: int) -> bool:
    return number == number


def share(number: int, parts: int) -> float:
    return number / parts


def same(number: int) -> int:
    return number
