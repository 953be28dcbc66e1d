"""Divides by one less, as for a variance."""


def mean(values: list[float]) -> float:
    return sum(values) / (len(values) - 1) if values else 0.0
