"""A subject that is small enough to break in every way that lint knows."""


def double(number: int) -> int:
    """Twice the number."""
    return number * 2


def half(number: int) -> int:
    """Half the number, rounded down."""
    return number // 2


def double_in_place(numbers: list[int]) -> None:
    """Double every number of a list."""
    numbers[:] = [number * 2 for number in numbers]
