"""Find the known mistakes that explain the wrong gradient of a step exactly.

1. If the gradient is a multiple of the correct gradient, compare the factor with the factors of wrong divisors
   (`_ratios`).
2. Otherwise, compute the gradient of each known mistake with the oracle, and compare (`_mistakes`).
3. If none matches, combine two mistakes: wrongly scored tokens, and a mean that is not the token mean.
4. If none matches, accept the gradient of a known mistake up to a factor.

The gradient of a mistake is computed at the weights before the step, so a match is exact up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pv.equations.causes import difference
from pv.equations.causes import ratio as ratio_of
from pv.suites.training_loop.job import IGNORED, Example
from pv.suites.training_loop.oracle import (
    CLOSE,
    START,
    close,
    hidden_gradient,
    matching_arrays,
    matching_numbers,
    norm,
    scaled,
    sums,
)
from pv.suites.training_loop.probe import PAD, Step
from pv.suites.training_loop.run import Run

Gradient = Mapping[str, Tensor]
Rows = list[list[Example]]
"""The examples of each micro-batch."""
LIMITS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Usual limits for clipping the norm of a gradient."""
LEAST_SCALE = 100.0
"""Only a larger factor counts as the scale of a scaler. A smaller one may be the number of tokens or examples."""
LOW_PRECISION = (torch.bfloat16, torch.float16)
"""Dtypes whose rounding errors exceed the tolerance of gradients."""


@dataclass(frozen=True, slots=True)
class Window:
    """The window of micro-batches of the step at index k of a run."""

    run: Run
    k: int

    @property
    def step(self) -> Step:
        return self.run.steps[self.k]

    @property
    def examples(self) -> Rows:
        """Return the examples of each micro-batch."""
        return [self.run.examples(batch) for batch in self.step.batches]

    def mean(self, change: Callable[[Example], Example] = lambda example: example) -> Gradient:
        """Return the gradient of the token mean over the examples of the window, after `change` is applied to each."""
        rows = [change(example) for batch in self.examples for example in batch]
        return _mean(self, rows)


def _mean(window: Window, rows: Sequence[Example], tokens: int | None = None) -> Gradient:
    """Return the gradient of the summed loss of rows, divided by `tokens` or else by the number of scored tokens."""
    total = sums(window.run.before(window.k), rows)
    return scaled(total.gradient, 1 / max(total.tokens if tokens is None else tokens, 1))


def _sum(gradients: Iterable[Gradient]) -> Gradient:
    """Return the sum of gradients, parameter by parameter."""
    terms = list(gradients)
    return {name: torch.stack([gradient[name] for gradient in terms]).sum(0) for name in terms[0]}


def explain_gradient(run: Run, k: int, tolerance: float) -> tuple[str, ...]:
    """Return the known mistakes that give the gradient of the step at index k, exactly or else up to a factor.

    Args:
        run: The run.
        k: The index of the step.
        tolerance: The relative tolerance of the trainer's gradients.

    Returns:
        The names of the mistakes, for messages; () if none gives the gradient.
    """
    window, allowed = Window(run, k), max(tolerance, CLOSE)
    actual, ratio = window.step.gradient, gradient_ratio(run, k, tolerance)
    if ratio is not None:
        # The gradient is a multiple of the correct gradient, so only a factor is wrong.
        return matching_numbers(ratio, _ratios(window), allowed)
    gradients = {name: make() for name, make in _mistakes(window).items()}
    if exact := matching_arrays(actual, gradients, allowed):
        return exact
    # Two mistakes at once: wrongly scored tokens, in a mean that is not the token mean. They are tried late, since the
    # oracle must compute the sums of all micro-batches again for each combination.
    combinations = {
        f"{name}, {labels}": make
        for labels, rows in _scored_paddings(window)
        for name, make in _wrong_means(window, rows)
    }
    exact = tuple(name for name, make in combinations.items() if difference(actual, make()) < allowed)
    return exact or tuple(
        f"{name}, up to a factor"
        for name, gradient in gradients.items()
        if _is_positive_multiple(actual, gradient, allowed)
    )


def _is_positive_multiple(actual: Mapping[str, Tensor | None], expected: Gradient, allowed: float) -> bool:
    """Return whether a gradient equals the expected one up to a positive factor."""
    size = norm(expected)
    return size > 0 and difference(actual, scaled(expected, norm(actual) / size)) < allowed


def gradient_ratio(run: Run, k: int, tolerance: float) -> float | None:
    """Return the factor between the gradient of the step at index k and the correct gradient; None if there is none."""
    return ratio_of(run.steps[k].gradient, Window(run, k).mean(), max(tolerance, CLOSE))


def scale_of(run: Run, k: int) -> float | None:
    """Return the scale of a gradient scaler in the step at index k; None if there is no scale, or it is unknown.

    The scale is the factor between the recorded gradients of the hidden states and the gradients of the oracle, if it
    is the same factor in all micro-batches.
    """
    # With dropout or noise, the oracle cannot compute the gradients of the hidden states.
    step, examples = run.steps[k], [run.examples(batch) for batch in run.steps[k].batches]
    tokens = sum(example.scored for part in examples for example in part)
    if run.job.dropout or run.job.noise or len(step.hidden_gradients) != len(examples):
        return None
    expected = [hidden_gradient(run.before(k), part) for part in examples]
    pairs = zip(step.hidden_gradients, expected, strict=True)
    scales = [actual * tokens / unscaled for actual, unscaled in pairs if unscaled]
    return (
        scales[0] if scales and scales[0] > LEAST_SCALE and all(close(scale, scales[0]) for scale in scales) else None
    )


def _ratios(window: Window) -> dict[str, float]:
    """Return the factors between wrong gradients and the correct gradient, by mistake, such as a wrong divisor."""
    job, batches, size = window.run.job, len(window.step.batches), norm(window.mean())
    rows = [example for batch in window.examples for example in batch]
    tokens, labels = sum(example.scored for example in rows), sum(map(_count_labels, rows))
    # A loop that shifts the labels itself passes the model each row without its last token.
    shifted = any(width < len(example.tokens) for example, width in zip(rows, _widths(window), strict=True))
    lengths = [(len(example.tokens), width + shifted) for example, width in zip(rows, _widths(window), strict=True)]
    positions, padded = sum(length - 1 for length, _ in lengths), sum(width - 1 for _, width in lengths)
    # A loop with separate inputs and targets (prompt and answer) pads the targets to the longest target of the batch.
    targets = sum(len(batch) * max(example.scored for example in batch) for batch in window.examples)
    # In a row that is padded on the left, the padding also predicts the first token.
    left = sum(length if length < width else length - 1 for length, width in lengths)
    # A divisor that is a sum of max(tokens, 1) counts one for each micro-batch without scored tokens.
    empty = sum(not any(example.scored for example in batch) for batch in window.examples)
    so_far = sum(
        example.scored for step in window.run.steps[: window.k + 1] for example in window.run.examples(step.names)
    )
    factors = {
        "not divided by the number of tokens": float(tokens),
        "divided by the scored tokens and one for each micro-batch without them": tokens / max(tokens + empty, 1),
        "divided by the scored tokens twice": 1 / max(tokens, 1),
        "divided by all labels, including labels that are not predicted": tokens / max(labels, 1),
        "divided by all tokens, including tokens that are not scored": tokens / max(positions, 1),
        "divided by all tokens of rows that are padded on the left, scored or not": tokens / max(left, 1),
        "divided by all positions, padding included": tokens / max(padded, 1),
        "divided by the scored tokens of all steps so far: the count is not reset": tokens / max(so_far, 1),
        "divided by the number of examples": tokens / max(len(rows), 1),
        "the sum of the micro-batches' means, not divided by their number": float(batches),
        "divided by the number of micro-batches, not by the scored tokens": tokens / batches,
        "divided by the number of micro-batches twice": 1 / batches,
        "counted twice, or a sum over two ranks": 2.0,
        "halved, as by a mean over two ranks": 0.5,
        "of the wrong sign": -1.0,
        "zero": 0.0,
    }
    for dtype in LOW_PRECISION if tokens else ():
        name = f"divided by the scored tokens in {_dtype_name(dtype)}, in which 1/{tokens} is rounded"
        factors[name] = _rounded(1 / tokens, dtype) * tokens
    name = "divided by all positions, including padding and the last position of each row"
    factors[name] = tokens / max(padded + len(rows), 1)
    if targets != padded:
        factors["divided by all positions of the targets, padding included"] = tokens / max(targets, 1)
    if batches != job.accumulate:
        factors["multiplied by the planned number of micro-batches"] = float(job.accumulate)
        factors["divided by the planned number of micro-batches"] = 1 / job.accumulate
        factors["divided by the planned number of micro-batches, not by the window's number"] = batches / job.accumulate
    if job.crop is not None:
        whole = sum(example.scored for example in window.run.uncropped(window.step.names))
        factors["divided by the scored tokens of the rows before they are cropped"] = tokens / max(whole, 1)
    if job.clip is not None and size:
        factors["clipped"] = job.clip / size
    if scale := scale_of(window.run, window.k):
        factors[f"multiplied by the scale of the gradient scaler, {scale:g}, and not unscaled"] = scale
        factors[f"divided by the scale of the gradient scaler, {scale:g}, twice"] = 1 / scale
        for limit in [*LIMITS, *([job.clip] if job.clip is not None else [])] if size else ():
            factors[clipped_early(scale, limit)] = min(1.0, limit / (size * scale))
    return {name: factor for name, factor in factors.items() if factor != 1}


def _count_labels(example: Example) -> int:
    """Return the number of labels that are not ignored, including the first label, which no position predicts."""
    return sum(label != IGNORED for label in example.labels)


def _mistakes(window: Window) -> dict[str, Callable[[], Gradient]]:
    """Return functions that compute the gradients of known mistakes, by name. Wrong divisors are in `_ratios`."""
    if not window.examples:
        return {}
    means = dict(_wrong_means(window, window.examples))
    return means | _micro_batch_mistakes(window) | _label_mistakes(window) | dict(_low_precision_means(window))


def clipped_early(scale: float, limit: float | None = None) -> str:
    """Return the name of the mistake that a scaled gradient is clipped.

    Args:
        scale: The scale of the gradient scaler.
        limit: The limit of the norm; None to leave the limit out of the name.
    """
    at = f" at {limit:g}" if limit is not None else ""
    reason = "`unscale_` is called after the clipping, or not at all"
    return f"clipped{at} before it is divided by the scale of the gradient scaler, {scale:g} ({reason})"


def _rounded(number: float, dtype: torch.dtype) -> float:
    """Return a number rounded to a dtype."""
    return float(torch.tensor(number, dtype=dtype))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _wrong_means(window: Window, parts: Rows) -> Iterator[tuple[str, Callable[[], Gradient]]]:
    """Yield the names of wrong means, such as means of means, each with a function that computes its gradient."""
    rows = [[example] for part in parts for example in part]

    def mean_of(groups: Sequence[Sequence[Example]], divisor: int) -> Gradient:
        """Return the gradient of the sum of the groups' token means, divided by `divisor`."""
        return scaled(_sum(_mean(window, group) for group in groups), 1 / divisor)

    planned = window.run.job.accumulate
    scored = [part for part in parts if any(example.scored for example in part)]
    yield "the mean of the micro-batches' means", lambda: mean_of(parts, len(parts))
    yield "the sum of the micro-batches' means", lambda: mean_of(parts, 1)
    yield "the mean of the examples' means", lambda: mean_of(rows, len(rows))
    if 0 < len(scored) < len(parts):
        name = "the mean of the means of the micro-batches that have scored tokens"
        yield name, lambda: mean_of(scored, len(scored))
    if planned != len(parts):
        yield "the sum of the micro-batches' means / their planned number", lambda: mean_of(parts, planned)


def _low_precision_means(window: Window) -> Iterator[tuple[str, Callable[[], Gradient]]]:
    """Yield names of token means that are partly in low precision, each with a function that computes its gradient."""
    tokens = max(sum(example.scored for part in window.examples for example in part), 1)
    rows = [example for part in window.examples for example in part]

    def of_logits(dtype: torch.dtype) -> Gradient:
        return sums(window.run.before(window.k), rows, dtype=dtype, loss_factor=1 / tokens).gradient

    def of_sums(dtype: torch.dtype) -> Gradient:
        total: dict[str, Tensor] = {}
        for part in window.examples:
            gradient = _mean(window, part, tokens)
            # The sum is accumulated in the narrow dtype, as in `.grad` of low-precision weights.
            total = {name: g.to(dtype) + (total[name] if total else 0) for name, g in gradient.items()}
        return {name: tensor.double() for name, tensor in total.items()}

    for dtype in LOW_PRECISION:
        yield f"the gradient of a loss that is computed in {_dtype_name(dtype)}", partial(of_logits, dtype)
        yield f"the sum of the micro-batches' gradients in {_dtype_name(dtype)}", partial(of_sums, dtype)


def _micro_batch_mistakes(window: Window) -> dict[str, Callable[[], Gradient]]:
    """Return mistakes in the accumulation: a gradient that is not reset, or a micro-batch that is left out."""
    run, k, parts = window.run, window.k, window.examples
    mistakes: dict[str, Callable[[], Gradient]] = {}
    if k:
        earlier = {n: torch.zeros_like(START[n]) if g is None else g for n, g in run.steps[k - 1].gradient.items()}
        mistakes["the gradient of the step before"] = lambda: earlier
        name = "the correct gradient plus the gradient of the step before, which was not reset"
        mistakes[name] = lambda: _sum([window.mean(), earlier])
        # The loop may scale down the earlier gradient instead of clearing it. Estimate the factor from the norms. Then
        # the gradient with this factor is compared exactly, like every other gradient.
        factor = _residual_norm(window) / (norm(earlier) or 1.0)
        if not close(factor, 1.0, 1e-4):
            name = "the correct gradient plus a part of the gradient of the step before, which was not reset"
            mistakes[name] = lambda: _sum([window.mean(), scaled(earlier, factor)])
    total = max(sum(example.scored for part in parts for example in part), 1)
    for i, examples in enumerate(parts) if len(parts) > 1 else ():
        name = "the last micro-batch" if i == len(parts) - 1 else f"micro-batch {i + 1}"
        rest = [example for j, part in enumerate(parts) if j != i for example in part]
        mistakes[f"the gradient without {name}"] = partial(_mean, window, rest)
        mistakes[f"the gradient of {name} alone"] = partial(_mean, window, examples)
        mistakes[f"the gradient without {name}, although its tokens are counted"] = partial(_mean, window, rest, total)
    return mistakes


def _residual_norm(window: Window) -> float:
    """Return the norm of the difference between the gradient of the step and the gradient of the token mean."""
    mean = window.mean()
    return norm({name: tensor - mean[name] for name, tensor in window.step.gradient.items() if tensor is not None})


def _label_mistakes(window: Window) -> dict[str, Callable[[], Gradient]]:
    """Return mistakes in the shift, the mask, the last token, the crop, or the padding of labels."""
    mistakes: dict[str, Callable[[], Gradient]] = {
        "the gradient of labels shifted twice": lambda: window.mean(lambda example: _shifted(example, 1)),
        "the gradient of labels that are not shifted": lambda: window.mean(_at_same_position),
        "the gradient of labels that are not shifted, without the last label of each row": lambda: window.mean(
            lambda example: _shifted(example, -1)
        ),
        "the gradient of labels that are the input tokens, not the next tokens": lambda: window.mean(_unshifted),
        "the gradient with the masked tokens scored": lambda: window.mean(_unmasked),
        "the gradient without the last token of each row": lambda: window.mean(_without_last_token),
        "the gradient without the last tokens, which are counted": lambda: _mean_without_last_token(window),
    }
    mistakes |= {name: partial(_mean, window, rows) for name, rows in _other_crops(window).items()}
    for name, parts in _scored_paddings(window):
        mistakes[f"the gradient {name}"] = partial(_mean, window, [example for part in parts for example in part])
    return mistakes


def _scored_paddings(window: Window) -> Iterator[tuple[str, Rows]]:
    """Yield mistakes that score padding: the name, and the examples and scored padding of every micro-batch.

    The padding follows from the recorded widths of the forwards, so that rows padded to a fixed length are covered.
    """
    paddings: dict[str, Callable[[Example, int], list[Example]]] = {
        "with the padding scored": _padded,
        "with the padding on the left scored": _padded_left,
        "with the first tokens scored, after padding on the left": _with_first_token_predicted,
        "with the padding scored, in labels that the loop shifts": _padded_shifted,
    }
    widths = iter(_widths(window))
    rows = [[(example, next(widths)) for example in part] for part in window.examples]
    for name, pad in paddings.items():
        padded = [[row for example, width in part for row in pad(example, width)] for part in rows]
        if sum(map(len, padded)) == sum(map(len, rows)):  # no row has padding
            continue
        yield name, padded
        if any(_unmasked(example).scored > example.scored for part in window.examples for example in part):
            both = [[row for example, width in part for row in pad(_unmasked(example), width)] for part in rows]
            yield name.replace("with ", "with the masked tokens and ", 1), both


def _widths(window: Window) -> list[int]:
    """Return the number of positions in the forward of each example of the window."""
    forwards = zip(window.step.batches, window.step.widths, strict=True)
    return [width for batch, width in forwards for _ in batch]


# In the probe, a position does not depend on other positions, so scored padding is equivalent to an extra row. The next
# functions return an example and, if it has padding, an extra row instead of the padding.


def _padded(example: Example, width: int) -> list[Example]:
    """Return the example, and its padding on the right, predicted by the last token and by earlier padding."""
    pads = (PAD,) * (width - len(example.tokens))
    return [example, *([Example((example.tokens[-1], *pads), (IGNORED, *pads))] if pads else [])]


def _padded_shifted(example: Example, width: int) -> list[Example]:
    """Return the example, and the padding of a row that is shifted before it is padded: padding predicts padding."""
    pads = (PAD,) * (width + 1 - len(example.tokens))
    return [example, *([Example((PAD, *pads), (IGNORED, *pads))] if pads else [])]


def _padded_left(example: Example, width: int) -> list[Example]:
    """Return the example, and the padding on its left without the first token, which nothing predicts."""
    pads = (PAD,) * (width - len(example.tokens))
    return [example, *([Example(pads, (IGNORED, *pads[1:]))] if len(pads) > 1 else [])]


def _with_first_token_predicted(example: Example, width: int) -> list[Example]:
    """Return the example, and its first token, predicted by the padding before it."""
    first = Example((PAD, example.name), (IGNORED, example.name))
    return [example, *([first] if len(example.tokens) < width else [])]


def _shifted(example: Example, by: int) -> Example:
    """Return the example with its labels shifted to the left by `by` positions, to the right if `by` is negative."""
    labels = (*example.labels[by:], IGNORED) if by > 0 else (IGNORED, *example.labels[:by])
    return Example(example.tokens, labels)


def _at_same_position(example: Example) -> Example:
    """Return an example in which a token predicts the label of its own position, as in a loss without a shift."""
    return Example((*example.tokens, PAD), (IGNORED, *example.labels))


def _unshifted(example: Example) -> Example:
    """Return the example with each token as its own label, for the tokens whose next token is scored."""
    pairs = zip(example.tokens, example.labels[1:], strict=False)
    return Example(example.tokens, (IGNORED, *(IGNORED if label == IGNORED else token for token, label in pairs)))


def _without_last_token(example: Example) -> Example:
    """Return the example with its last token not scored."""
    return Example(example.tokens, (*example.labels[:-1], IGNORED))


def _mean_without_last_token(window: Window) -> Gradient:
    """Return the gradient without the last token of each row, divided by the scored tokens with the last ones."""
    rows = [example for part in window.examples for example in part]
    return _mean(window, list(map(_without_last_token, rows)), sum(example.scored for example in rows))


def _other_crops(window: Window) -> dict[str, list[Example]]:
    """Return the rows of the window with wrong crops, by the name of the mistake; {} if the job does not crop."""
    crop, rows = window.run.job.crop, window.run.uncropped(window.step.names)
    if crop is None:
        return {}
    lengths = {f"the gradient of rows cropped to {n} tokens, not to {crop}": n for n in (crop - 1, crop + 1)}
    crops = {name: [example.cropped(n) for example in rows] for name, n in lengths.items()}
    return crops | {"the gradient of rows that are not cropped": rows}


def _unmasked(example: Example) -> Example:
    """Return the example with all tokens scored."""
    return Example(example.tokens, example.tokens)
