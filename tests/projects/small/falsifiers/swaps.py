"""Another `total`, which forgets the limit."""


def without_limit(epochs: int, steps: int, limit: int | None = None) -> int:
    return epochs * steps
