"""Callbacks that files name, and one that is none."""

from typing import Any

from reference_trainer import Callback, Observer


class Mine(Callback):
    """A callback that keeps its arguments, which have defaults."""

    def __init__(self, threshold: float = 0.1, names: list[str] | None = None, **others: Any) -> None:
        self.state = {"threshold": threshold, "names": ["default"] if names is None else names, **others}

    def on_log(self, context: Any) -> None:
        """Do nothing."""


class Watching(Observer):
    """An observer with a required argument."""

    def __init__(self, token: str) -> None:
        self.state = {"token": token}


class Refusing(Callback):
    """A callback whose constructor quotes what it refuses."""

    def __init__(self, **arguments: Any) -> None:
        raise ValueError(f"cannot use {arguments}")


class Prioritized(Callback):
    """A callback with an invalid priority, which the refusal quotes."""

    def __init__(self, key: Any) -> None:
        self.priority = key


class Misspelt(Callback):
    """A callback with a hook that is none."""

    def on_logs(self, context: Any) -> None:
        """Never called."""


class Other:
    """A class that is no callback."""
