"""The receivers of an attack's results, without PyTorch: a failure classifier and a stream."""

from typing import Any

from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus


class Foreign:
    """Blames the code under contract for whatever it raises."""

    def status(self, error: BaseException) -> TrialStatus:
        return TrialStatus.RAISED

    def frames(self, error: BaseException) -> list[str]:
        return []

    def relative_path(self, filename: str) -> str:
        return filename


class Deaf(Stream):
    """A stream whose messages are dropped."""

    def __init__(self) -> None:
        super().__init__(-1)

    def put(self, kind: str, **fields: Any) -> None:
        pass
