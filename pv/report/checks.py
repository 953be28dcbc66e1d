"""The checks of `pv doctor` as text."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from pv.contract.wording import count
from pv.report.wrapping import hanging

COLUMN = 12


class Level(Protocol):
    """The result of a check."""

    @property
    def value(self) -> str: ...


class Check(Protocol):
    """One check; see `pv.commands.doctor`."""

    @property
    def topic(self) -> str: ...
    @property
    def level(self) -> Level: ...
    @property
    def text(self) -> str: ...
    @property
    def remedy(self) -> str: ...


def render(checks: Sequence[Check], width: int = 0) -> str:
    """Return one line for every check, with its remedy below, and a summary."""
    lines = [line for check in checks for line in _lines(check)]
    levels = [check.level.value for check in checks]
    summary = f"{count(levels.count('problem'), 'problem')}, {count(levels.count('note'), 'note')}"
    return "".join(f"{hanging(line, width, COLUMN)}\n" for line in [*lines, "", summary])


def _lines(check: Check) -> Iterator[str]:
    yield f"{check.level.value:<8} {check.topic:<{COLUMN - 2}} {check.text}"
    if check.remedy:
        yield f"{'':<8} {'':<{COLUMN - 2}} {check.remedy}"
