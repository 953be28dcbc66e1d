"""What the children compute. The worker imports this module, and calls none of it."""


def double(number: int) -> int:
    return number * 2


def answer() -> int:
    from pkg.apart import add  # so that a worker that never asks for the answer never imports it

    return add(double(3))


def unused(number: int) -> int:
    return number - 1
