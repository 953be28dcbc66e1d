"""Functions under contract."""


def twice(number):
    return number * 2


def square(number):
    return number**2
