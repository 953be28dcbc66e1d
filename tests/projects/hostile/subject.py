"""A subject that is right; what attacks it is not."""


def double(x: int) -> int:
    return x * 2


def mean(pairs: list[tuple[int, int]]) -> float:
    return sum(s for s, _ in pairs) / sum(n for _, n in pairs)
