"""Another one like the standard library's."""

import statistics


def mean(values: list[float]) -> float:
    return float(statistics.mean(values))
