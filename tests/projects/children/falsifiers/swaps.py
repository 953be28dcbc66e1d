"""Faulty stand-ins for the functions of `pkg`."""


def triple(number: int) -> int:
    return number * 3


def keep(number: int) -> int:
    return number
