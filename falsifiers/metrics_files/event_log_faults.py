"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

import json
from typing import Any


def bare_nan(original: Any, self: Any, line: str) -> Any:
    """Write NaN as Python does."""
    return original(self, json.dumps(json.loads(line, parse_constant=float)).replace('"nan"', "NaN"))
