"""A problem of a contract file, and its location."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A position in a file; lines and columns count from 1."""

    path: Path
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Severity(Enum):
    """The severity of a finding: a refusal rejects the file, an error makes `pv lint` fail, a notice is only shown."""

    REFUSAL = "refusal"
    ERROR = "error"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem in one contract file, detected without running any code of the project.

    Attributes:
        code: The code of the rule, such as `PV101`.
        severity: The severity.
        location: The location in the file.
        message: The problem, in one sentence without a period.
        hint: How to correct it; "" if there is no hint.
    """

    code: str
    severity: Severity
    location: Location
    message: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.location} {self.code} {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


def refusal(code: str, location: Location, message: str, hint: str = "") -> Finding:
    """Return a finding of a file that cannot be read as a contract."""
    return Finding(code=code, severity=Severity.REFUSAL, location=location, message=message, hint=hint)


def error(code: str, location: Location, message: str, hint: str = "") -> Finding:
    """Return a finding that makes its contract fail."""
    return Finding(code=code, severity=Severity.ERROR, location=location, message=message, hint=hint)


def notice(code: str, location: Location, message: str, hint: str = "") -> Finding:
    """Return a finding that is only shown and makes nothing fail."""
    return Finding(code=code, severity=Severity.NOTICE, location=location, message=message, hint=hint)
