"""The lines that a run writes, as scripts search for them: the only copy outside the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter
from typing import Any

ATTACHED = "ProgressCallback attached (log every {every} steps; 0 for epoch lines only)"
FIRST_STEP = "first step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
STEP = "  Step {step}/{total}: loss: {loss:.4f}"
EPOCH = "Epoch {epoch}/{epochs}: loss: {loss:.4f} ({elapsed_s:.1f}s)"
METRICS_LINE = "Distillation metrics | {metrics}"
EVALUATION = "Evaluation at step {step}/{total} | {metrics}"

_WORDS = {"duration": r"[0-9.]+ (?:s|min|h)", "metrics": ".+"}


def matcher(form: str, **known: Any) -> re.Pattern[str]:
    """Return a pattern of the lines of a format, with a group for each field that is not known."""
    return re.compile("".join(_parts(form, known)))


def _parts(form: str, known: dict[str, Any]) -> Iterator[str]:
    for text, name, spec, _ in Formatter().parse(form):
        yield re.escape(text)
        if name in known:
            yield re.escape(format(known[name], spec or ""))
        elif name is not None:
            number = rf"-?[0-9]+\.[0-9]{{{spec[1:-1]}}}|nan|-?inf" if spec else "[0-9]+"
            yield f"(?P<{name}>{_WORDS.get(name, number)})"


def start(form: str, **known: Any) -> str:
    """Return the start of the lines of a format, up to the first field that is not known."""
    line = ""
    for text, name, spec, _ in Formatter().parse(form):
        line += text
        if name not in known:
            return line
        line += format(known[name], spec or "")
    return line
