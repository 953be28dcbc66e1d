"""Faulty traces, for mutants that replace a public function or method."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any


def bare_nan(event: Any, context: Any) -> str:
    """Write a NaN loss as Python does, which is not JSON."""
    return json.dumps({"event": event.value, **asdict(context)})
