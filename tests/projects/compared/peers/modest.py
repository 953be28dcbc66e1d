"""The standard library's: a mean of nothing is an error there, and documented as one."""

import statistics


def mean(values: list[float]) -> float:
    return statistics.fmean(values)
