"""Calls that change their arguments, end the process, or never return."""

import os


def drain(values):
    count = len(values)
    values.clear()
    return count != 3


def die(n):
    if n == 3:
        os._exit(0)
    return n


def halve(n):
    while n != 1:
        n = n // 2 if n > 0 else n
    return n
