"""Small integer arithmetic, for bounded proofs."""


def limited(epochs: int, steps: int, limit: int) -> int:
    """Steps that are taken: all, or as many as the limit."""
    taken = 0
    for _ in range(epochs):
        for _ in range(steps):
            if taken == limit:
                return taken
            taken += 1
    return taken


def planned(epochs: int, steps: int, limit: int) -> int:
    """The same, in closed form."""
    return min(limit, epochs * steps)


def share(total: int, parts: int) -> int:
    """A part of the total, rounded down."""
    return total // parts


def either(left: bool, right: bool) -> bool:
    """Exclusive or."""
    return left is not right


def total(counts: list[int]) -> int:
    """The sum."""
    result = 0
    for count in counts:
        result += count
    return result
