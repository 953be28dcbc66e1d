"""How many steps a run has."""

import sys


def total(epochs: int, steps: int, limit: int | None = None) -> int:
    whole = epochs * steps
    return whole if limit is None else min(limit, whole)


def count(epochs: int, steps: int) -> list[int]:
    return [step for step in range(1, total(epochs, steps) + 1)]


if __name__ == "__main__":
    print(total(int(sys.argv[1]), int(sys.argv[2])))
