"""Faulty metrics files, for mutants that replace a public function or method. `original` is the replaced one."""

from __future__ import annotations

import json
from typing import Any


def bare_nan(original: Any, context: Any) -> str:
    """Write NaN as Python does, which is not JSON."""
    numbers = {name: float(value) if isinstance(value, str) else value for name, value in _fields(original, context)}
    return json.dumps({**numbers, "metrics": dict(context.metrics)})


def _fields(original: Any, context: Any) -> Any:
    return json.loads(original(context)).items()
