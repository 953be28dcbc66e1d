"""Names the known mistakes that give exactly the gradient of a step."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pv.equations.causes import difference
from pv.equations.causes import ratio as ratio_of
from pv.suites.training_loop.job import IGNORED, Example
from pv.suites.training_loop.numbers import CLOSE, close, equal_to
from pv.suites.training_loop.oracle import START, norm, sums
from pv.suites.training_loop.probe import PAD
from pv.suites.training_loop.recording import Step
from pv.suites.training_loop.run import Run

Gradient = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Window:
    """The step at index k of a run, with the sums of its micro-batches at the weights before it."""

    run: Run
    k: int

    @property
    def step(self) -> Step:
        return self.run.steps[self.k]

    @property
    def examples(self) -> list[list[Example]]:
        return [self.run.named(batch) for batch in self.step.batches]

    def mean(self, change: Callable[[Example], Example] = lambda each: each) -> Gradient:
        """Return the gradient of the token mean over the changed examples."""
        rows = [change(each) for batch in self.examples for each in batch]
        return _mean(self, rows)


def _mean(window: Window, rows: Sequence[Example], tokens: int | None = None) -> Gradient:
    """Return the gradient of the sum over rows, divided by their scored tokens or another number of tokens."""
    found = sums(window.run.before(window.k), rows)
    return _scaled(found.gradient, 1 / max(found.tokens if tokens is None else tokens, 1))


def _scaled(gradient: Gradient, by: float) -> Gradient:
    return {name: each * by for name, each in gradient.items()}


def _sum(gradients: Iterable[Gradient]) -> Gradient:
    found = list(gradients)
    return {name: torch.stack([each[name] for each in found]).sum(0) for name in found[0]}


def explain_gradient(run: Run, k: int, tolerance: float) -> tuple[str, ...]:
    """Return the known mistakes that give exactly the gradient of the step at index k."""
    window, allowed = Window(run, k), max(tolerance, CLOSE)
    found, ratio = window.step.gradient, gradient_ratio(run, k, tolerance)
    if ratio is not None:
        return equal_to(ratio, _ratios(window), allowed)
    made = {name: make() for name, make in _mistakes(window).items()}
    exact = tuple(name for name, each in made.items() if difference(found, each) < allowed)
    return exact or tuple(f"{name}, up to a factor" for name, each in made.items() if _parallel(found, each, allowed))


def _parallel(found: Mapping[str, Tensor | None], wanted: Gradient, allowed: float) -> bool:
    size = norm(wanted)
    return size > 0 and difference(found, _scaled(wanted, norm(found) / size)) < allowed


def gradient_ratio(run: Run, k: int, tolerance: float) -> float | None:
    """Return by what the gradient of the token mean is multiplied; None if the gradient is not a multiple of it."""
    return ratio_of(run.steps[k].gradient, Window(run, k).mean(), max(tolerance, CLOSE))


def _ratios(window: Window) -> dict[str, float]:
    """Return the factors that known mistakes leave in a gradient."""
    job, batches, size = window.run.job, len(window.step.batches), norm(window.mean())
    rows = [each for batch in window.examples for each in batch]
    tokens, labels = sum(each.scored for each in rows), sum(map(_labels, rows))
    lengths = [(len(each.tokens), width) for each, width in zip(rows, _widths(window), strict=True)]
    positions, padded = sum(own - 1 for own, _ in lengths), sum(width - 1 for _, width in lengths)
    targets = sum(len(batch) * max(each.scored for each in batch) for batch in window.examples)
    left = sum(own if own < width else own - 1 for own, width in lengths)
    empty = sum(not any(each.scored for each in batch) for batch in window.examples)
    so_far = sum(each.scored for step in window.run.steps[: window.k + 1] for each in window.run.named(step.names))
    known = {
        "divided by no number of tokens": float(tokens),
        "divided by the scored tokens and one for each micro-batch without them": tokens / max(tokens + empty, 1),
        "divided by the scored tokens twice": 1 / max(tokens, 1),
        "divided by all labels, also those that are not predicted": tokens / max(labels, 1),
        "divided by all tokens, also those that are not scored": tokens / max(positions, 1),
        "divided by all tokens of rows that are padded on the left, also those that are not scored": tokens
        / max(left, 1),
        "divided by all positions, padding included": tokens / max(padded, 1),
        "divided by the scored tokens of all steps so far: their count is not set back": tokens / max(so_far, 1),
        "divided by the number of examples": tokens / max(len(rows), 1),
        "the sum of the micro-batches' means, not divided by their number": float(batches),
        "divided by the number of micro-batches, not by the scored tokens": tokens / batches,
        "divided by the number of micro-batches twice": 1 / batches,
        "counted twice, or a sum over two ranks": 2.0,
        "halved, as by a mean over two ranks": 0.5,
        "of the wrong sign": -1.0,
        "zero": 0.0,
    }
    if targets != padded:
        known["divided by all positions of the targets, padding included"] = tokens / max(targets, 1)
    if batches != job.accumulate:
        known["multiplied by the planned number of micro-batches"] = float(job.accumulate)
        known["divided by the planned number of micro-batches"] = 1 / job.accumulate
        known["divided by the planned number of micro-batches, not by those of the window"] = batches / job.accumulate
    if job.crop is not None:
        whole = sum(each.scored for each in window.run.whole(window.step.names))
        known["divided by the scored tokens of the rows before they are cropped"] = tokens / max(whole, 1)
    if job.clip is not None and size:
        known["clipped"] = job.clip / size
    return {name: ratio for name, ratio in known.items() if ratio != 1}


def _labels(example: Example) -> int:
    return sum(label != IGNORED for label in example.labels)


def _mistakes(window: Window) -> dict[str, Callable[[], Gradient]]:
    """Return the gradients of known mistakes that do not only scale it, by the name of the mistake."""
    if not window.examples:
        return {}
    return _of_averages(window) | _of_micro_batches(window) | _of_labels(window)


def _of_averages(window: Window) -> dict[str, Callable[[], Gradient]]:
    parts = window.examples
    rows = [[each] for part in parts for each in part]

    def mean_of(groups: Sequence[Sequence[Example]], by: int) -> Gradient:
        return _scaled(_sum(_mean(window, group) for group in groups), 1 / by)

    planned, scored = window.run.job.accumulate, [part for part in parts if any(each.scored for each in part)]
    found = {
        "the mean of the micro-batches' means": lambda: mean_of(parts, len(parts)),
        "the sum of the micro-batches' means": lambda: mean_of(parts, 1),
        "the mean of the examples' means": lambda: mean_of(rows, len(rows)),
    }
    if 0 < len(scored) < len(parts):
        found["the mean of the means of the micro-batches that have scored tokens"] = lambda: mean_of(
            scored, len(scored)
        )
    if planned != len(parts):
        found["the sum of the micro-batches' means / their planned number"] = lambda: mean_of(parts, planned)
    return found


def _of_micro_batches(window: Window) -> dict[str, Callable[[], Gradient]]:
    run, k, parts = window.run, window.k, window.examples
    found: dict[str, Callable[[], Gradient]] = {}
    if k:
        earlier = {n: torch.zeros_like(START[n]) if g is None else g for n, g in run.steps[k - 1].gradient.items()}
        found["the gradient of the step before"] = lambda: earlier
        found["its own plus the gradient of the step before, which was not reset"] = lambda: _sum(
            [window.mean(), earlier]
        )
        part = _rest(window) / (norm(earlier) or 1.0)
        if not close(part, 1.0, 1e-4):
            found["its own plus a part of the gradient of the step before, which was not reset"] = lambda: _sum(
                [window.mean(), _scaled(earlier, part)]
            )
    total = max(sum(each.scored for part in parts for each in part), 1)
    for i, own in enumerate(parts) if len(parts) > 1 else ():
        name = "the last micro-batch" if i == len(parts) - 1 else f"micro-batch {i + 1}"
        rest = [each for j, part in enumerate(parts) if j != i for each in part]
        found[f"that without {name}"] = partial(_mean, window, rest)
        found[f"that of {name} alone"] = partial(_mean, window, own)
        found[f"that without {name}, whose tokens are counted"] = partial(_mean, window, rest, total)
    return found


def _rest(window: Window) -> float:
    """Return the norm of what the gradient has beside that of the token mean."""
    mean = window.mean()
    return norm({name: each - mean[name] for name, each in window.step.gradient.items() if each is not None})


def _of_labels(window: Window) -> dict[str, Callable[[], Gradient]]:
    found: dict[str, Callable[[], Gradient]] = {
        "that of labels shifted twice": lambda: window.mean(lambda each: _shifted(each, 1)),
        "that of labels that are not shifted": lambda: window.mean(_beside),
        "that of labels that are not shifted, without the last of each row": lambda: window.mean(
            lambda each: _shifted(each, -1)
        ),
        "that of labels that are the input tokens, not the next ones": lambda: window.mean(_unshifted),
        "that with the masked tokens scored": lambda: window.mean(_unmasked),
        "that without the last token of each row": lambda: window.mean(_unended),
        "that without the last token of each row, which is counted": lambda: _unended_mean(window),
    }
    found |= {name: partial(_mean, window, rows) for name, rows in _other_crops(window).items()}
    if _widths(window) != [len(each.tokens) for part in window.examples for each in part]:
        found["that with the padding scored"] = lambda: _with_padding(window, _padded)
        found["that with the padding on the left scored"] = lambda: _mean(window, _padded_left(window))
        found["that with the first tokens scored, which padding on the left precedes"] = lambda: _mean(
            window, _preceded(window)
        )
        found["that with the padding of labels shifted by the loop scored"] = lambda: _with_padding(
            window, _padded_shifted
        )
    return found


def _padded_left(window: Window) -> list[Example]:
    """Return the examples, and a row of the padding before each of them; positions do not mix."""
    rows = [each for part in window.examples for each in part]
    pads = [(PAD,) * (width - len(each.tokens) + 1) for each, width in zip(rows, _widths(window), strict=True)]
    return rows + [Example(each, (IGNORED, *each[1:])) for each in pads]


def _preceded(window: Window) -> list[Example]:
    """Return the examples, and their first tokens as predicted by the padding before them, where there is some."""
    rows = [each for part in window.examples for each in part]
    padded = [each for each, width in zip(rows, _widths(window), strict=True) if len(each.tokens) < width]
    return rows + [Example((PAD, each.name), (IGNORED, each.name)) for each in padded]


def _widths(window: Window) -> list[int]:
    """Return the width of the micro-batch of each example."""
    multiple = window.run.job.pad_multiple or 1
    widest = [max(len(each.tokens) for each in part) for part in window.examples for _ in part]
    return [-(-width // multiple) * multiple for width in widest]


def _with_padding(window: Window, pad: Callable[[Example, int], Example]) -> Gradient:
    """Return the gradient of the token mean over the examples, each padded to the width of its micro-batch."""
    rows = [each for part in window.examples for each in part]
    return _mean(window, list(map(pad, rows, _widths(window))))


def _shifted(example: Example, by: int) -> Example:
    """Return the example with labels moved to the left, or to the right if `by` is negative."""
    labels = (*example.labels[by:], IGNORED) if by > 0 else (IGNORED, *example.labels[:by])
    return Example(example.tokens, labels)


def _beside(example: Example) -> Example:
    """Return the example with a label predicted by the token in its own place, where both were not shifted."""
    return Example((*example.tokens, PAD), (IGNORED, *example.labels))


def _unshifted(example: Example) -> Example:
    """Return the example with each token as its own label, where the next one is scored."""
    pairs = zip(example.tokens, example.labels[1:], strict=False)
    return Example(example.tokens, (IGNORED, *(IGNORED if label == IGNORED else token for token, label in pairs)))


def _unended(example: Example) -> Example:
    return Example(example.tokens, (*example.labels[:-1], IGNORED))


def _unended_mean(window: Window) -> Gradient:
    rows = [each for part in window.examples for each in part]
    return _mean(window, list(map(_unended, rows)), sum(each.scored for each in rows))


def _other_crops(window: Window) -> dict[str, list[Example]]:
    """Return the rows of the window cropped in other ways, by the mistake; {} if rows are not cropped."""
    crop, rows = window.run.job.crop, window.run.whole(window.step.names)
    if crop is None:
        return {}
    lengths = {f"that of rows cropped to {n} tokens, not to {crop}": n for n in (crop - 1, crop + 1)}
    found = {name: [each.cropped(n) for each in rows] for name, n in lengths.items()}
    return found | {"that of rows that are not cropped": rows}


def _unmasked(example: Example) -> Example:
    return Example(example.tokens, example.tokens)


def _padded(example: Example, width: int) -> Example:
    missing = (PAD,) * (width - len(example.tokens))
    return Example((*example.tokens, *missing), (*example.labels, *missing))


def _padded_shifted(example: Example, width: int) -> Example:
    """Return the example padded after its last token has been taken from the inputs."""
    padded = _padded(example, width)
    at = len(example.tokens) - 1
    return Example((*padded.tokens[:at], PAD, *padded.tokens[at + 1 :]), padded.labels)
