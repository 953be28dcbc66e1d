"""Predicates for the contracts beside this project. Lint reads them; only a sound contract runs them."""

import time
from types import ModuleType

seen: list[int] = []


def prove_double(subject: ModuleType, number: int) -> bool:
    return subject.double(number) == number + number


def prove_double_by_the_clock(subject: ModuleType, number: int) -> bool:
    return subject.double(number) == number + number or time.time() < 0


def prove_double_so_far(subject: ModuleType, number: int) -> bool:
    seen.append(number)
    return subject.double(number) == number + number or len(seen) < 3


def prove_double_at_least_runs(subject: ModuleType, number: int) -> None:
    subject.double(number)
