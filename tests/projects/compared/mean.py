"""The mean of a list, 0 where there is nothing to average."""


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
