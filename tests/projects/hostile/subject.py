"""A subject that is right; what attacks it is not."""


def double(x: int) -> int:
    return x * 2
