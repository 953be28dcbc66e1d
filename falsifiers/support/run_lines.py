"""The lines that a run writes, as scripts search for them: the only copy outside the trainer."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from string import Formatter
from typing import Any

ATTACHED = "ProgressCallback attached (log every {every} steps; 0 for epoch lines only)"
FIRST_STEP = "first step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
COMPILED_STEP = "first step in {seconds:.2f}s, most of it compilation"
NEXT_STEP = "next step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
STEP = "  Step {step}/{total}: loss: {loss:.4f}"
EPOCH = "Epoch {epoch}/{epochs}: loss: {loss:.4f} ({elapsed_s:.1f}s)"
METRICS_LINE = "Distillation metrics | {metrics}"
EVALUATION = "Evaluation at step {step}/{total} | {metrics}"
SMOKE_START = "smoke mode: {steps} steps at most, then the run ends; no model will be written"
SMOKE_OUTPUT = "smoke mode: a full run would be refused: {error}"
SMOKE_SUMMARY = (
    "[SMOKE] {steps} steps in {elapsed_s:.2f}s: initial_loss={initial_loss:.4f}, final_loss={final_loss:.4f}, "
    "throughput={throughput:.2f} step/s"
)
SMOKE_PROJECTION = (
    "[SMOKE] projected full-run wall time ({steps} steps): {hours:.2f}h / {minutes:.1f} min / {seconds:.1f}s"
)
SMOKE_PLANNED = "smoke mode: the planned run of {steps} steps takes about {seconds:.1f}s at this pace"
SMOKE_END = "smoke mode: export skipped, no model was written"

_WORDS = {"duration": r"[0-9.]+ (?:s|min|h)", "metrics": ".+"}


def matcher(form: str, **values: Any) -> re.Pattern[str]:
    """Return a pattern of the lines of a format with these values of fields, and a group for each other field."""
    return re.compile("".join(_parts(form, values)))


def _parts(form: str, values: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of the pattern: literal text, and a value or a group for each field."""
    for text, name, spec, _ in Formatter().parse(form):
        yield re.escape(text)
        if name in values:
            yield re.escape(format(values[name], spec or ""))
        elif name is not None:
            number = rf"-?[0-9]+\.[0-9]{{{spec[1:-1]}}}|nan|-?inf" if spec else "[0-9]+"
            yield f"(?P<{name}>{_WORDS.get(name, number)})"


def start(form: str, **values: Any) -> str:
    """Return the start of the lines of a format with these values of fields, up to the first other field."""
    line = ""
    for text, name, spec, _ in Formatter().parse(form):
        line += text
        if name not in values:
            return line
        line += format(values[name], spec or "")
    return line


def woven(form: str, numbers: Sequence[str]) -> str:
    """Return the line of a format with these texts of its fields, in their order."""
    return _woven([text for text, *_ in Formatter().parse(form)], numbers)


def changed(form: str, numbers: Sequence[str]) -> Iterator[str]:
    """Yield faulty lines of a format: with text around, a character replaced or dropped, or a decimal added."""
    texts, line = [text for text, *_ in Formatter().parse(form)], woven(form, numbers)
    yield from (f"{line} ", f"{line}\n", f"{line}x", f"x{line}", f" {line}")
    for index, text in enumerate(texts):
        for other in {f"{text[:-1]}~", text[1:]} if text else ():
            yield _woven([*texts[:index], other, *texts[index + 1 :]], numbers)
    for index, number in enumerate(numbers):
        if not number.isdecimal():
            yield _woven(texts, [*numbers[:index], f"{number}0", *numbers[index + 1 :]])


def _woven(texts: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(text + number for text, number in zip_longest(texts, numbers, fillvalue=""))
