"""Records how labels relate to the input tokens of a model: their shift, padding, and ends of texts.

1. `record_call` stores the arguments of the last call of a model. `record_batch` stores the last batches of loaders.
2. The wrapper of a loss function calls `record_labels`. This function searches the stored tensors for the tokens, the
   masks and the next tokens of the labels. Only the first batches of every line with a loss are examined.
3. When the trace is flushed, the tensors are read, and `_facts` compares them.

Shapes: R rows and C columns of a matrix of tokens. Time runs along axis 1, or along axis 0 in the layout [T, B].
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor, nn

from .trace import Event, Late

if TYPE_CHECKING:
    from .observer import Observer

EARLY_STEPS = 10
"""Number of steps at the start in which calls and batches are stored."""
BATCHES = 4
"""Number of batches that are examined for every line with a loss."""
MAX_ELEMENTS = 32_768
"""Approximate largest number of elements of a matrix that are read. The last rows of a larger matrix are left out."""
MAX_CALL = 4_000_000
"""Largest number of elements in the arguments of a call that is stored for probes."""
MODELS = 4
"""Largest number of models that are probed."""
OFFSETS = (-1, 0, 1, 2)
"""The compared shifts between labels and tokens. With shift 1, the labels are the next tokens."""
INTEGERS = (torch.long, torch.int)
"""Data types of tokens and labels."""


class Call:
    """A call of an outermost module, with its arguments.

    Args:
        module: The module, without the wrappers of torch.
        model: Number of the model.
        args: Positional arguments.
        kwargs: Keyword arguments.
        at: The line of the call.
    """

    def __init__(
        self, module: nn.Module, model: int, args: tuple[object, ...], kwargs: dict[str, object], at: str
    ) -> None:
        self.module, self.model, self.at = module, model, at
        self.args, self.kwargs = args, kwargs
        self.outputs: list[int] = []
        """Addresses of the storages of the float tensors that the model returned, in the same order."""
        self.losses: list[tuple[Tensor, Tensor, int, Optional[int]]] = []
        """Per loss after the call: labels, mask of scored labels, number of classes, and position of the logits.

        Only the first `BATCHES` losses are stored.
        The position is an index into `outputs`. It is None if the logits are no output of the model.
        """

    def matrices(self) -> list[Tensor]:
        """Return the arguments that may be tokens, masks or labels; `input_ids` is the first."""
        return matrices_in((self.kwargs.get("input_ids"), self.args, self.kwargs))


def matrices_in(value: object) -> list[Tensor]:
    """Return at most six different tensors [R, C] in arguments or a batch, with at least 4 rows or columns."""
    from .observer import tensors_in

    matrices: dict[int, Tensor] = {}
    for tensor in tensors_in(value):
        if tensor.dim() == 2 and max(tensor.shape) >= 4 and tensor.layout == torch.strided:
            matrices.setdefault(id(tensor), tensor)
    return list(matrices.values())[:6]


def with_copies(value: object) -> Any:
    """Return arguments with copies of their tensors."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(with_copies, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(with_copies, value))
    if type(value) is dict:
        return {key: with_copies(part) for key, part in value.items()}
    if isinstance(value, MutableMapping):  # such as a `BatchEncoding` of a tokenizer
        new = copy.copy(value)
        new.update({key: with_copies(part) for key, part in value.items()})
        return new
    return value


def record_call(
    observer: Observer,
    module: nn.Module,
    model: int,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    grad: bool,
    at: str,
) -> None:
    """Store the arguments of a call for the next loss, and copies of the arguments of a model's first call for probes.

    Args:
        observer: The observer of this process.
        module: The module, without the wrappers of torch.
        model: Number of the model.
        args: Positional arguments.
        kwargs: Keyword arguments.
        grad: Whether gradients are on. Calls without gradients are not stored.
        at: The line of the call.
    """
    from .observer import tensors_in

    observer.call = Call(module, model, args, kwargs, at) if grad and observer.steps < EARLY_STEPS else None
    if grad and model not in observer.first_calls and len(observer.first_calls) < MODELS and observer.options.probes:
        tensors = list(tensors_in((args, kwargs)))
        if tensors and sum(tensor.numel() for tensor in tensors) <= MAX_CALL:
            first = observer.first_calls[model] = Call(module, model, with_copies(args), with_copies(kwargs), at)
            call = observer.call = observer.call or Call(module, model, args, kwargs, at)
            call.losses = first.losses


def record_outputs(observer: Observer, outputs: object) -> None:
    """Store the addresses of the outputs of the last call, to find the output that a loss scores."""
    if observer.call is not None:
        tensors = (t for t in floats_in(outputs) if t.layout == torch.strided)
        observer.call.outputs = [tensor.untyped_storage().data_ptr() for tensor in tensors]


def floats_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Yield the float tensors in the outputs of a model; only `logits` and `loss` if the outputs have `logits`."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(getattr(value, "logits", None), Tensor):
        yield value.logits
        if isinstance(getattr(value, "loss", None), Tensor):
            yield value.loss
    elif depth < 3:
        parts = value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else ()
        for part in parts:
            yield from floats_in(part, depth + 1)


def record_batch(observer: Observer, batch: object) -> None:
    """Store the matrices of a loader's batch. They may contain the labels of a loss before the script shifts them."""
    if observer.steps < EARLY_STEPS:
        observer.matrices.append(matrices_in(batch))
    elif observer.matrices:
        observer.matrices.clear()


def record_labels(
    observer: Observer, at: str, key: int, labels: Tensor, scored: Optional[Tensor], scores: Tensor
) -> None:
    """Record how the labels of a loss relate to the tokens of the last call, in the first batches of a line.

    Args:
        observer: The observer of this process.
        at: The line that calls the loss function.
        key: A number that identifies the call of the loss function in the code.
        labels: Class indices.
        scored: Mask of the labels that are not ignored, with the shape of `labels`. None for a handwritten loss, whose
            labels count as scored if they affect the loss, and whose classes are the last dimension of the scores.
        scores: The logits or log-probabilities. Their gradient shows which labels affect the loss.
    """
    call, is_by_hand = observer.call, scored is None
    class_axis = -1 if is_by_hand else 1
    if call is None or not scores.requires_grad or scores.dim() < 2:
        return
    if scored is None:
        scored = torch.ones_like(labels, dtype=torch.bool)
    if len(call.losses) < BATCHES:
        address = scores.untyped_storage().data_ptr()
        output = call.outputs.index(address) if address in call.outputs else None
        call.losses.append((labels.detach().clone(), scored.clone(), scores.shape[class_axis], output))
    if observer.label_batches.get(key, 0) >= BATCHES:
        return
    candidates = [t for t in call.matrices() if t.device == labels.device]
    inputs = [t for t in candidates if t.dtype in INTEGERS and _time_axes(t, labels)][:3]
    if not inputs:
        return
    observer.label_batches[key] = observer.label_batches.get(key, 0) + 1
    shape = inputs[0].shape
    masks = [t for t in candidates if t.shape == shape and t is not inputs[0]][:4]
    delivered = [t for matrices in observer.matrices for t in matrices if t.dtype in INTEGERS and t.shape == shape]
    delivered = [t for t in delivered if t.device == labels.device][:8]
    rows = max(1, MAX_ELEMENTS // shape[1])
    matrices = [_as_rows(labels, shape), _as_rows(scored, shape), *inputs, *masks, *delivered]
    parts = [matrix[:rows] for matrix in matrices]
    embeddings = [module for module in call.module.modules() if isinstance(module, nn.Embedding)]
    ends = getattr(getattr(call.module, "config", None), "eos_token_id", None)
    build = functools.partial(
        _facts,
        [tuple(part.shape) for part in parts],
        (len(inputs), len(masks), len(delivered)),
        is_by_hand,
        frozenset(module.padding_idx for module in embeddings if module.padding_idx is not None),
        any(module.weight.requires_grad for module in embeddings),
        [token for token in (ends if isinstance(ends, (list, tuple)) else [ends]) if isinstance(token, int)],
    )
    late = Late([part.detach().clone() for part in parts], build)
    observer.add("labels", at=at, key=key, model=call.model, facts=late)

    def hook(gradient: Optional[Tensor]) -> None:
        if gradient is not None and observer.is_same_process():
            used = gradient.detach().abs().amax(class_axis) > 0
            if used.numel() == labels.numel():
                late.tensors.append(_as_rows(used, shape)[:rows].clone())

    scores.register_hook(hook)


def _time_axes(tokens: Tensor, labels: Tensor) -> list[int]:
    """Return the axes of the tokens that may be the time axis; [] if the labels cannot belong to the tokens.

    Labels of tokens have as many elements as the tokens, or one element less along the time axis.
    """
    rows, columns = tokens.shape
    fits = {rows * columns: [1, 0], rows * (columns - 1): [1], (rows - 1) * columns: [0]}
    return [axis for axis in fits.get(labels.numel(), []) if tokens.shape[axis] >= 4]


def _as_rows(labels: Tensor, shape: torch.Size) -> Tensor:
    """Return labels in the layout of the tokens, whose shape is [R, C]: [R, C], [R - 1, C] or [R, C - 1]."""
    rows, columns = shape
    if labels.numel() == rows * (columns - 1):
        return labels.reshape(rows, columns - 1)
    return labels.reshape(-1, columns)


def _facts(
    shapes: list[tuple[int, ...]],
    counts: tuple[int, int, int],
    is_by_hand: bool,
    padding: frozenset[int],
    embeddings_train: bool,
    ends: list[int],
    *lists: list[float],
) -> Event:
    """Return the `facts` of a `labels` event from the values of its matrices.

    Args:
        shapes: The shapes of the matrices: labels, scored, inputs, masks, and tensors of the last batches.
        counts: The numbers of inputs, masks, and tensors of the last batches.
        is_by_hand: Whether the loss is handwritten. Its scored labels are the labels with a gradient.
        padding: The `padding_idx` of the model's embeddings.
        embeddings_train: Whether an embedding of the model is trained.
        ends: The tokens that end a text, from the configuration of the model.
        lists: The elements of the matrices. If a backward pass has followed, one more list has 1 for every label with a
            gradient and 0 for the other labels.
    """
    tensors = [torch.tensor(values).reshape(shape) for values, shape in zip(lists, shapes)]
    labels, scored = tensors[0].long(), tensors[1] != 0
    inputs = [tensor.long() for tensor in tensors[2 : 2 + counts[0]]]
    masks = tensors[2 + counts[0] : 2 + counts[0] + counts[1]]
    delivered = [tensor.long() for tensor in tensors[2 + counts[0] + counts[1] :]]
    used = scored
    if len(lists) > len(shapes):
        used = scored & (torch.tensor(lists[len(shapes)]).reshape(shapes[0]) != 0)
    scored = used if is_by_hand else scored
    # In a translation, the labels are the next tokens of the target, not of the source, so several inputs are compared
    # with the labels. Masks are excluded, and also labels that are an argument of the model.
    first = inputs[0]
    targets = [x for x in inputs if x.shape == first.shape and is_text(x) and not _contains_next(first, x)]
    tokens = next((x for x in (first, *targets) if _has_next_as_labels(x, labels, scored)), first)
    candidates = [*(x for x in inputs if x is not tokens), *masks, *delivered]
    facts: Event = {
        "scored": int(scored.sum()),
        "kinds": int(labels[scored].unique().numel()),
        "shift": shifts(tokens, labels, scored) if is_text(tokens) else [],
        "embeddings_train": embeddings_train,
        "delivered": any(_contains_next(tokens, tensor) for tensor in candidates),
    }
    if labels.shape == tokens.shape:
        facts["masked"] = _most_frequent_input(tokens, labels, scored)
    mask = next((real for real in map(_real_tokens, masks) if real is not None), None)
    if labels.shape[0] == tokens.shape[0] and is_text(tokens):
        facts["padding"] = _padding(tokens, labels, scored, used, mask, padding, ends)
        facts["ends"] = _ends(tokens, labels, scored, mask)
    return facts


def is_text(tokens: Tensor) -> bool:
    """Return whether integers may be tokens: they have at least three different values, and none is negative."""
    return int(tokens.min()) >= 0 and int(tokens.max()) > 1 and tokens.unique().numel() > 2


def shifts(tokens: Tensor, labels: Tensor, scored: Tensor) -> list[Event]:
    """Compare labels with tokens at shifted positions, for every possible time axis.

    Returns:
        axis: The time axis, 1 or 0.
        counts: Per offset, two numbers of scored labels: labels at position t that equal the token at t + offset, and
            labels at a position t for which there is a token at t + offset.
        wraps: Whether the last scored labels are the first tokens of their rows, as in tokens rolled by one position.
    """
    result = []
    for axis in (1, 0):
        if labels.shape[1 - axis] != tokens.shape[1 - axis] or tokens.shape[axis] < 4:
            continue
        x, y, used = (tensor if axis else tensor.t() for tensor in (tokens, labels, scored))
        counts = {}
        for offset in OFFSETS:
            low, high = max(0, -offset), min(y.shape[1], x.shape[1] - max(0, offset))
            part = used[:, low:high]
            equal = (y[:, low:high] == x[:, low + offset : high + offset]) & part
            counts[str(offset)] = [int(equal.sum()), int(part.sum())]
        # The last label of rolled tokens is the first token of the row. If all rows begin with the same token, other
        # labels may end with this token too, so such rows do not count.
        first = x[:, 0][used[:, -1]]
        wraps = first.unique().numel() > 1 and y.shape == x.shape and bool((y[:, -1][used[:, -1]] == first).all())
        result.append({"axis": axis, "counts": counts, "wraps": wraps})
    return result


def _has_next_as_labels(tokens: Tensor, labels: Tensor, scored: Tensor) -> bool:
    """Return whether at least 90 % of the scored labels are the next tokens of their rows."""
    if labels.shape[0] != tokens.shape[0]:
        return False
    width = min(tokens.shape[1] - 1, labels.shape[1])
    part = scored[:, :width]
    equal = (labels[:, :width] == tokens[:, 1 : width + 1]) & part
    return bool(part.any()) and int(equal.sum()) >= 0.9 * int(part.sum())


def _contains_next(tokens: Tensor, other: Tensor) -> bool:
    """Return whether another tensor contains the next token at nearly every position.

    Negative elements of this tensor are ignored labels. In a text of equal tokens, the current and the next token are
    the same, so the tensor must also differ from the current token at more than half of the positions.
    """
    if other.shape != tokens.shape or (other.is_floating_point() and not bool((other == other.long()).all())):
        return False
    valid = other[:, :-1] >= 0
    equal = (other[:, :-1] == tokens[:, 1:]) & valid
    same = (other[:, :-1] == tokens[:, :-1]) & valid
    return bool(valid.sum() >= 16 and equal.sum() >= 0.98 * valid.sum() and same.sum() < 0.5 * valid.sum())


def _real_tokens(mask: Tensor) -> Optional[Tensor]:
    """Return a mask that is True at real tokens, from a padding mask in which either 0 or 1 means padding.

    Return None if the argument is not a mask of padding at one end of the rows.
    """
    if not bool(((mask == 0) | (mask == 1)).all()) or bool((mask == mask.reshape(-1)[0]).all()):
        return None
    # If the padding is on the right, every row begins with a real token, and no real token follows padding. If the
    # padding is on the left, the same is true for the reversed rows.
    for real in (mask != 0, mask == 0):
        for rows in (real, real.flip(1)):
            if bool((rows.long().diff(dim=1) <= 0).all()) and bool(rows[:, 0].all()):
                return real
    return None


def _most_frequent_input(tokens: Tensor, labels: Tensor, scored: Tensor) -> Optional[dict[str, int]]:
    """Count the most frequent input token at scored positions: in a masked language model, the mask token.

    Returns:
        token: The token.
        scored: Number of scored positions with this token as input.
        elsewhere: Number of other positions with this token as input.
        labels: Number of scored labels that are this token.
        The result is None if no position is scored, or if all positions are scored.
    """
    if not bool(scored.any()) or bool(scored.all()):
        return None
    kinds, counts = tokens[scored].unique(return_counts=True)
    token = int(kinds[counts.argmax()])
    return {
        "token": token,
        "scored": int(counts.max()),
        "elsewhere": int((tokens[~scored] == token).sum()),
        "labels": int((labels[scored] == token).sum()),
    }


def trailing(tokens: Tensor) -> Tensor:
    """Return the length of the run of equal tokens at the end of every row, [R]."""
    # From the last token backwards, the cumulative product is 1 up to the first different token, and then 0.
    return (tokens == tokens[:, -1:]).flip(1).long().cumprod(1).sum(1)


def _padding(
    tokens: Tensor,
    labels: Tensor,
    scored: Tensor,
    used: Tensor,
    mask: Optional[Tensor],
    declared: frozenset[int],
    ends: list[int],
) -> Optional[dict[str, object]]:
    """Return facts about the labels at padding; None if all rows have equally long padding, or a row is only padding.

    A mask determines the padding if all masked tokens are equal. Otherwise, the token that is repeated most often at
    the end of a row is assumed to be the padding token.

    Args:
        tokens: The input tokens, [R, C].
        labels: The labels.
        scored: Mask of the labels that are not ignored.
        used: Mask of the labels that affect the loss.
        mask: True at real tokens; None if the model got no mask.
        declared: The `padding_idx` of the model's embeddings.
        ends: The tokens that end a text, from the configuration of the model.
    """
    if mask is not None and tokens[~mask].unique().numel() == 1:
        pad, is_padding, source = int(tokens[~mask][0]), ~mask, "the mask"
    else:
        run_lengths = trailing(tokens)
        pad = int(tokens[run_lengths.argmax(), -1])
        run_lengths = torch.where(tokens[:, -1] == pad, run_lengths, torch.zeros_like(run_lengths))
        is_padding = torch.arange(tokens.shape[1]) >= tokens.shape[1] - run_lengths[:, None]
        source = "padding_idx" if pad in declared and not bool((tokens == pad)[~is_padding].any()) else ""
    lengths = is_padding.sum(1)
    if lengths.unique().numel() < 2 or bool((lengths == tokens.shape[1]).any()):
        return None
    # The last label of every row that is not padding. If it is the same in all rows, this token ends texts.
    positions = torch.arange(labels.shape[1]) * (scored & (labels != pad))
    last = labels.gather(1, positions.argmax(1, keepdim=True)).unique()
    pads_in_texts = int((tokens[~is_padding] == pad).sum())
    # If the padding is on the left, the label at the last padding of a row may be the first token of the text, so the
    # last position of padding does not count.
    is_padding[:, :-1] &= is_padding[:, 1:]
    is_padding = is_padding[:, : labels.shape[1]]
    at_padding = labels[is_padding & scored]
    # `different`: positions whose label is not the label at padding. `inside`: positions up to the last of these in the
    # row. Later positions may be padding too, if the labels have other lengths than the tokens.
    different = ~is_padding & scored & (labels != (at_padding[0] if len(at_padding) else -1))
    inside = different.flip(1).long().cummax(1).values.flip(1) == 1
    return {
        "token": pad,
        "declared": source,
        "positions": int(is_padding.sum()),
        "scored": len(at_padding),
        "used": int((is_padding & used).sum()),
        "label": int(at_padding[0]) if at_padding.unique().numel() == 1 else None,
        "same_label_elsewhere": int((inside & ~different & ~is_padding & scored).sum()) if len(at_padding) else 0,
        "scored_elsewhere": int((~is_padding & scored).sum()),
        "ignored_elsewhere": int((~is_padding & ~scored).sum()),
        "in_texts": pads_in_texts,
        "ends": ends or ([int(last)] if last.numel() == 1 and len(tokens) > 2 else []),
    }


def _ends(tokens: Tensor, labels: Tensor, scored: Tensor, mask: Optional[Tensor]) -> Optional[dict[str, object]]:
    """Return facts about rows whose last real token is the padding token: for example, whether this label is scored.

    Without a mask, or with a mask of padding on the left, the first of the equal tokens at the end of a row is taken as
    the last real token. Without a mask, only a row without padding (`shortest_padding` is 0) shows that the padding
    token also ends texts.

    Return None if a mask shows no padding token, if no row may end with it, or if the labels are shorter than usual.
    """
    rows = torch.arange(len(tokens))
    # `real`: number of real tokens of every row, including the token that ends the text.
    if mask is not None and bool(mask[:, 0].all()):  # padding on the right
        real = mask.sum(1)
        if bool(mask.all()) or tokens[~mask].unique().numel() != 1:
            return None
        pad = int(tokens[~mask][0])
        ends = tokens[rows, real - 1] == pad
    else:
        run_lengths = trailing(tokens)
        pad = int(tokens[run_lengths.argmax(), -1])
        real = tokens.shape[1] - run_lengths + 1
        ends = tokens[:, -1] == pad
    ends &= real >= 4
    if not bool(ends.any()) or labels.shape[1] < tokens.shape[1] - 1:
        return None
    rows, last = rows[ends], real[ends] - 1
    # The label at t is the token at t + 1.
    return {
        "token": pad,
        "masked": mask is not None,
        "rows": len(tokens),
        "width": tokens.shape[1],
        "shortest_padding": int((tokens.shape[1] - real).min()),
        "ends": len(rows),
        "scored_ends": int(scored[rows, last - 1].sum()),
        "scored_before": int(scored[rows, last - 2].sum()),
        "scored_anywhere": int((scored & (labels == pad)).sum()),
    }
