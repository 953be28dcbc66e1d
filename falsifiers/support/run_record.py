"""The record of a run of a contract, as predicates of the run get it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class RunRecord(Protocol):
    """The arguments of a run, its JSON result, the traced events in order, and the directory with its files."""

    @property
    def arguments(self) -> Mapping[str, Any]: ...
    @property
    def device(self) -> str: ...
    @property
    def directory(self) -> Path: ...
    @property
    def result(self) -> Any: ...
    @property
    def trace(self) -> Sequence[Mapping[str, Any]]: ...
