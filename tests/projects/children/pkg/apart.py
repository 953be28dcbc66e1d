"""What the children compute, in a module that nothing but a child imports."""


def add(number: int) -> int:
    return number + 1
