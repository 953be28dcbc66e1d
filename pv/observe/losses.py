"""Measures token weights: the weight of one scored element of a loss in the gradient of a step.

A hook on the output of a loss function of `torch.nn.functional` gets dL/d(output), where L is the root of the backward
pass. If the output is a mean over n elements, dL/d(output) / n is the weight of one element in the accumulated
gradient. The weight includes all factors by which the script multiplies the loss later.

For handwritten, chunked and fused losses, `cross_entropy_weights` computes the weights from the logits and the gradient
of the logits.
"""

from __future__ import annotations

import functools
import importlib
import math
import weakref
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from . import frames, tokens
from .trace import Event, Late

if TYPE_CHECKING:
    from .observer import Observer

REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
CLASSES = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
NAMES = (*CLASSES, *BINARY, *REGRESSION, "kl_div")
"""Loss functions whose scored elements are counted, and whose weights are measured."""
SIGNS = ("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "cosine_embedding_loss")
"""Loss functions whose targets are 1 and -1."""

_REDUCTION = ("size_average", "reduce", "reduction")  # the first two are deprecated
# Positional parameters by loss function. Functions without an entry have "input", "target" and `_REDUCTION`.
PARAMETERS = {
    "cross_entropy": ("input", "target", "weight", "size_average", "ignore_index", *_REDUCTION[1:], "label_smoothing"),
    "nll_loss": ("input", "target", "weight", "size_average", "ignore_index", *_REDUCTION[1:]),
    "binary_cross_entropy": ("input", "target", "weight", *_REDUCTION),
    "binary_cross_entropy_with_logits": ("input", "target", "weight", *_REDUCTION, "pos_weight"),
    "huber_loss": ("input", "target", "reduction", "delta"),
    "kl_div": ("input", "target", *_REDUCTION, "log_target"),
    "ctc_loss": ("log_probs", "targets", "input_lengths", "target_lengths", "blank", "reduction", "zero_infinity"),
    "margin_ranking_loss": ("input1", "input2", "target", "margin", *_REDUCTION),
    "cosine_embedding_loss": ("input1", "input2", "target", "margin", *_REDUCTION),
    "hinge_embedding_loss": ("input", "target", "margin", *_REDUCTION),
}
OPERATIONS_THAT_MOVE_ELEMENTS = (
    "View UnsafeView ReshapeAlias ReshapeCopy Squeeze Unsqueeze Transpose T Permute Slice Select Index IndexSelect"
    " ToCopy Clone Alias Expand"
).split()
"""Operations that do not change the values of elements: names of autograd nodes up to "Backward"."""
OPERATIONS_OF_ERRORS = "Mean Sum Pow Abs Mul Div Neg Add Sub Sqrt".split()
"""The operations by which a script computes a loss from differences, such as a mean of squares."""
MAX_NODES = 64
"""Largest number of visited nodes of a graph."""
MAX_ROWS = 64
"""Largest number of sampled rows of logits in a micro-batch."""
EARLY_STEPS = 10
"""Number of steps at the start in which the labels of handwritten losses are recorded."""
EXAMINED_CALLS = 32
"""Number of first calls at a line whose targets are examined, for a CTC loss and losses of targets 1 and -1."""
MAX_COLUMN_ELEMENTS = 1_000_000
"""Largest number of elements of the input of a loss function whose columns are summed."""
MIN_CLASSES, MIN_CLASSES_HALF = 4, 16
"""Smallest number of classes, in float32 and in half precision, for which `cross_entropy_weights` is used.

With fewer classes, its residual cannot distinguish a cross-entropy from other losses.
"""


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the loss functions of `torch.nn.functional`.

    Args:
        observer: Returns the observer of this process.
    """
    for name in NAMES:
        setattr(F, name, _wrap_loss(name, getattr(F, name), observer))
    for name in (*SIGNS, "ctc_loss"):
        setattr(F, name, _wrap_uncounted_loss(name, getattr(F, name), observer))
    for owner in (F, Tensor):
        frames.wrap(owner, "log_softmax", lambda original: _wrap_log_softmax(original, observer))
    for owner in (torch, Tensor):
        frames.wrap(owner, "gather", lambda original: _wrap_gather(original, observer))
        frames.wrap(owner, "sigmoid", lambda original: _wrap_sigmoid(original, observer))
    for name in ("gather", "sigmoid"):  # `torch.jit.script` finds operators by function id
        importlib.import_module("torch.jit._builtins")._register_builtin(getattr(torch, name), f"aten::{name}")


def _wrap_log_softmax(original: Callable[..., object], observer: Callable[[], Observer]) -> Callable[..., object]:
    """Wrap `log_softmax` to record the lines that apply it to the result of a softmax over the same dimension."""

    @frames.wraps(original)
    def log_softmax(*args: Any, **kwargs: Any) -> object:
        out = original(*args, **kwargs)
        if isinstance(out, Tensor) and out.requires_grad and observer().is_active():
            active = observer()
            with active.observing("log_softmax"):
                node = (args[0] if args else kwargs["input"]).grad_fn
                if type(node).__name__.startswith("SoftmaxBackward") and _dimension(node) == _dimension(out.grad_fn):
                    at, key = active.sites.find(depth=2)
                    active.recorded_calls[key, out.requires_grad] += 1
                    if active.recorded_calls[key, out.requires_grad] == 1:
                        active.add("operands", function="log_softmax", at=at, operands={"made_by": "SoftmaxBackward0"})
        return out

    vars(log_softmax)["__prepare_scriptable__"] = lambda: original
    return log_softmax


def _wrap_sigmoid(original: Callable[..., object], observer: Callable[[], Observer]) -> Callable[..., object]:
    """Wrap `sigmoid` to record the lines that apply it to the result of a sigmoid."""

    @frames.wraps(original)
    def sigmoid(*args: Any, **kwargs: Any) -> object:
        node = getattr(args[0], "grad_fn", None) if args else None
        if type(node).__name__.startswith("SigmoidBackward") and observer().is_active():
            active = observer()
            with active.observing("sigmoid"):
                at, key = active.sites.find(depth=2)
                active.recorded_calls[key, True] += 1  # True: the input has a gradient
                if active.recorded_calls[key, True] == 1:
                    active.add("operands", function="sigmoid", at=at, operands={"made_by": "SigmoidBackward0"})
        return original(*args, **kwargs)

    return sigmoid


def _wrap_gather(original: Callable[..., object], observer: Callable[[], Observer]) -> Callable[..., object]:
    """Wrap `gather` to record labels: a handwritten cross-entropy gathers the log-probabilities of its labels."""

    @frames.wraps(original)
    def gather(*args: Any, **kwargs: Any) -> object:
        out = original(*args, **kwargs)
        active = observer()
        if active.steps >= EARLY_STEPS or not isinstance(out, Tensor) or not out.requires_grad:
            return out
        if out.dim() >= 2 and out.shape[-1] == 1 and active.is_active():
            with active.observing("gather"):
                arguments = {**dict(zip(("input", "dim", "index"), args)), **kwargs}
                scores = arguments["input"]
                is_last = arguments["dim"] in (-1, scores.dim() - 1)
                if is_last and _made_by(scores).startswith("LogSoftmax"):
                    at, key = active.sites.find(depth=2)
                    tokens.record_labels(active, at, key, arguments["index"].squeeze(-1), None, scores)
        return out

    return gather


def _dimension(node: Any) -> int:
    """Return the dimension of a softmax. `node` is the autograd node of the softmax."""
    dimension = int(node._saved_dim)
    dimension -= (dimension >> 63) << 64  # the node stores an unsigned 64-bit integer: 2^64 - 1 for dimension -1
    return int(dimension % node._saved_result.dim())


def _arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a loss function by name. Deprecated arguments are converted to `reduction`."""
    names = PARAMETERS.get(name, ("input", "target", *_REDUCTION))
    arguments = {"reduction": "mean", **dict(zip(names, args)), **kwargs}
    if arguments.get("reduce") is False:
        arguments["reduction"] = "none"
    elif arguments.get("size_average") is False:
        arguments["reduction"] = "sum"
    elif arguments.get("reduce") or arguments.get("size_average"):
        arguments["reduction"] = "mean"
    return arguments


def _wrap_uncounted_loss(
    name: str, original: Callable[..., object], observer: Callable[[], Observer]
) -> Callable[..., object]:
    """Wrap a loss function whose elements are not counted, to record the arguments of the first calls at every line.

    The first `EXAMINED_CALLS` calls are recorded, because one batch may not show the fault. If the `target_lengths` of
    a CTC loss include padding, this shows only in a batch whose targets have different lengths; and the targets of one
    batch may have no -1.
    """

    @frames.wraps(original)
    def loss(*args: Any, **kwargs: Any) -> object:
        out = original(*args, **kwargs)
        active = observer()
        if isinstance(out, Tensor) and active.is_active():
            with active.observing(name):
                # A function of a library may call several losses at one line: the name distinguishes their keys.
                at, key = active.sites.find(depth=2)
                key ^= zlib.crc32(name.encode())
                if active.recorded_calls[key, out.requires_grad] < EXAMINED_CALLS:
                    active.recorded_calls[key, out.requires_grad] += 1
                    arguments = _arguments(name, args, kwargs)
                    facts: Event = {"reduction": arguments["reduction"]}
                    if name == "ctc_loss":
                        log_probabilities = arguments["log_probs"]
                        facts.update(_blanks(**arguments))
                        facts["made_by"] = _made_by(log_probabilities)
                        values = log_probabilities.detach().double()
                        facts["log_sum_exp"] = values.logsumexp(-1).abs().max()
                        columns = [values.logsumexp(dim).abs().max() for dim in range(values.dim() - 1)]
                        if values.numel() <= MAX_COLUMN_ELEMENTS and columns:
                            facts["log_sum_exp_of_columns"] = torch.stack(columns).min()
                    else:
                        target = arguments["target"].detach()
                        facts["targets"] = _targets(target)
                    active.add("operands", function=name, at=at, operands=facts)
        return out

    return loss


def _blanks(targets: Tensor, target_lengths: object, blank: int = 0, **_: object) -> dict[str, object]:
    """Return the number of targets of a CTC loss without padding, and the number of blanks among these targets."""
    # Targets of shape [N, S] have padding. Targets of shape [sum of lengths] have no padding.
    lengths = torch.as_tensor(target_lengths, device=targets.device).reshape(-1, 1)
    inside = torch.ones_like(targets, dtype=torch.bool)
    if targets.dim() == 2:
        inside = torch.arange(targets.shape[1], device=targets.device) < lengths
    return {"blanks": (inside & (targets == blank)).sum(), "labels": inside.sum()}


def record_differences(observer: Observer, roots: object, at: str) -> None:
    """Record a handwritten loss, such as a mean of squares, of differences that are broadcast from [N, 1] to [N, N].

    The autograd graph, whose nodes store the shapes of their results, is searched from the loss towards its inputs. The
    search stops at operations that are not in `OPERATIONS_OF_ERRORS`: for example, a script that computes a kernel by
    an exponential intends all pairs.

    Args:
        observer: The observer of this process.
        roots: The argument `tensors` of a backward pass.
        at: The line that calls the backward pass.
    """
    root = roots if isinstance(roots, Tensor) else None
    waiting: list[Any] = [root.grad_fn] if root is not None and root.grad_fn is not None else []
    shapes, pairwise, visited = None, False, 0
    while waiting and visited < MAX_NODES:
        node, visited = waiting.pop(), visited + 1
        parts = [part for part, _ in node.next_functions if part is not None]
        name, shape = type(node).__name__, _shape_of(node)
        if name.startswith("SubBackward") and len(shape) == 2 and shape[0] == shape[1] > 1:
            pairwise = pairwise or len(parts) > 1  # both operands require a gradient: pairs of predictions are intended
            if len(parts) == 1 and _is_column(parts[0], shape[0]):
                shapes = [_shape_of(parts[0]), shape]
                continue
        if name.partition("Backward")[0] in OPERATIONS_OF_ERRORS and not _is_weighted(node):
            waiting += parts
    if shapes is not None:
        facts = {"shapes": shapes, "pairwise": pairwise, "reduction": "mean"}
        observer.add("operands", function="difference", at=at, operands=facts)


def _is_column(node: Any, rows: int) -> bool:
    """Return whether a node has one number per row as its result: a layer's output [N, 1], or a squeezed column [N].

    A view of shape [N, 1], such as `x[:, None]`, does not count, because a script may use it to subtract all pairs on
    purpose.
    """
    name, shape = type(node).__name__, _shape_of(node)
    if name.startswith("Squeeze") and shape == [rows]:  # targets of shape [N, 1]
        return _shape_of(node.next_functions[0][0]) == [rows, 1]
    return shape == [rows, 1] and name.startswith(("Addmm", "Mm", "Sigmoid", "Tanh", "Softplus", "Relu", "Exp"))


def _is_weighted(node: Any) -> bool:
    """Return whether a node multiplies by a tensor that requires no gradient, such as the weights of pairs."""
    factors = [getattr(node, name, None) for name in ("_saved_self", "_saved_other")]
    return len(node.next_functions) == 2 and any(
        isinstance(factor, Tensor) and factor.numel() > 1 and not factor.requires_grad for factor in factors
    )


def _shape_of(node: Any) -> list[int]:
    """Return the shape of the result of the operation of a node; [] if the shape is unknown."""
    metadata = getattr(node, "_input_metadata", ())
    return [int(size) for size in metadata[0].shape] if metadata else []


def _targets(target: Tensor) -> Late:
    """Return the smallest and largest target, and the number of targets that are 0."""
    parts = [target.min(), target.max(), (target == 0).sum()]
    return Late(parts, lambda low, high, zeros: {"low": low[0], "high": high[0], "zeros": int(zeros[0])})


def _wrap_loss(name: str, original: Callable[..., object], observer: Callable[[], Observer]) -> Callable[..., object]:
    """Wrap a loss function of `NAMES` to record its calls."""

    @frames.wraps(original)
    def loss(*args: object, **kwargs: object) -> object:
        out = original(*args, **kwargs)
        active = observer()
        if isinstance(out, Tensor) and active.is_active() and (active.is_sampled or not out.requires_grad):
            in_training = active.in_module and torch.is_grad_enabled()
            with active.observing(name):
                _record_call(active, name, _arguments(name, args, kwargs), out, in_training)
        return out

    vars(loss)["__prepare_scriptable__"] = lambda: original  # for `torch.jit.script`
    return loss


def _record_call(observer: Observer, name: str, arguments: dict[str, Any], out: Tensor, in_training: bool) -> None:
    """Record a call of a loss function: count the scored elements, and register a hook that measures their weight.

    Args:
        observer: The observer of this process.
        name: The name of the function.
        arguments: The arguments of the call, by name.
        out: The output of the function.
        in_training: Whether the call is inside a forward with gradients. An output of such a call that requires no
            gradient is not an evaluation loss.
    """
    scores, target = arguments["input"], arguments["target"]
    reduction = arguments["reduction"]
    at, key = observer.sites.find(depth=2)
    key ^= zlib.crc32(name.encode())
    scored: Optional[Tensor] = None
    count: Any
    labels: Optional[Tensor] = None
    # This function measures the weights of the loss, so the hook on the logits need not keep the logits.
    held = observer.held_logits()
    if held is not None and out.requires_grad and scores.dim():
        held.drop_if_scored_by(scores)
    if name in CLASSES and not target.is_floating_point():
        scored = target != arguments.get("ignore_index", -100)
        labels = scored.sum()
        class_weight = arguments.get("weight")
        count = (
            labels if class_weight is None else (class_weight[target.clamp(0, len(class_weight) - 1)] * scored).sum()
        )
    elif name in CLASSES:  # targets are probabilities: a mean is over the rows
        count = target.numel() // target.shape[1 if target.dim() > 1 else 0]
    elif reduction == "batchmean":
        count = scores.shape[0]
    else:  # every element is scored, such as in a regression
        count = _broadcast_elements(scores, target)
    value = out.detach()
    event = {
        "function": name,
        "at": at,
        "key": key,
        "reduction": reduction,
        "elements": count,
        "labels": count if labels is None else labels,
        "value": value if value.dim() == 0 else value.double().sum() / count,
    }
    # To save time, the arguments are examined only once per line in training, and once in evaluation.
    if not observer.recorded_calls[key, out.requires_grad]:
        observer.recorded_calls[key, out.requires_grad] += 1
        facts = event["operands"] = _operands(name, arguments)
        if name in ("nll_loss", "kl_div") and arguments["input"].requires_grad:
            dim = 1 if name == "nll_loss" else -1
            arguments["input"].register_hook(functools.partial(_record_row_sums, observer, facts, dim))
    if scored is not None:
        tokens.record_labels(observer, at, key, target, scored, scores)
    if out.requires_grad:
        if out.dim() == 0:
            observer.terms.add_loss(observer, key, at, out)
        out.register_hook(lambda gradient: _record_weight(observer, event, gradient, scored))
    elif not in_training:
        observer.add("evaluation_loss", rows=observer.rows, **event)


def _record_weight(observer: Observer, event: Event, gradient: Optional[Tensor], scored: Optional[Tensor]) -> None:
    """Add a loss and the weight of its elements to the record of the running backward pass.

    This function is a hook of the output of the loss function. Its gradient is None if the output does not affect the
    root of the backward pass, such as an unused output of a DistributedDataParallel model.
    """
    current = observer.backward
    if gradient is None or current is None or not observer.is_same_process():  # for example in `torch.autograd.grad`
        return
    with observer.observing("weights"):
        gradient = gradient.detach()
        losses = current["losses"]
        if gradient.dim() == 0:
            if event["reduction"] == "sum":
                weight = gradient.clone()
            else:
                count = torch.as_tensor(event["elements"], device=gradient.device, dtype=torch.float64)
                weight = gradient.double() / count
            losses.append({**event, "weight": weight, "low": weight, "high": weight})
            return
        flat = gradient.reshape(-1)
        if scored is not None and scored.numel() == flat.numel():
            used = scored.reshape(-1) & (flat != 0)
        else:
            used = flat != 0
        # Use `torch.where`, because `flat[used]` would wait for the device.
        n = used.sum()
        infinity = torch.full_like(flat, float("inf"))
        losses.append(
            {
                **event,
                "elements": n,
                "weight": torch.where(used, flat, torch.zeros_like(flat)).double().sum() / n,
                "low": torch.where(used, flat, infinity).min(),
                "high": torch.where(used, flat, -infinity).max(),
            }
        )


class HeldLogits:
    """The logits of a forward, for the hook on their gradient; None after a wrapped loss function has scored them.

    The logits may be the largest tensor of a step, and scripts often free them right after the loss. So the observer
    must not keep them longer than needed.
    """

    __slots__ = ("__weakref__", "logits")

    def __init__(self, logits: Tensor) -> None:
        self.logits: Optional[Tensor] = logits

    def drop_if_scored_by(self, scores: Tensor) -> None:
        """Release the logits if the input of a wrapped loss function has the same number of classes.

        Args:
            scores: The input of the loss function: probably the logits, or a part or a view of the logits.
        """
        if self.logits is not None and scores.shape[-1] == self.logits.shape[-1]:
            self.logits = None


def watch_logits(observer: Observer, output: Tensor, *, is_kept: bool = True, **event: object) -> None:
    """Measure the weights of a loss that no wrapped function computes, by a hook on possible logits.

    Args:
        observer: The observer of this process.
        output: Possible logits, [..., V]. If they are not logits, the residual of `cross_entropy_weights` is large.
        is_kept: Whether the logits exist until the backward pass in any case. If not, some rows are copied now.
        **event: Fields of the event that identify the loss: `model` or `key`.
    """
    if output.dim() < 2 or output.shape[-1] < (MIN_CLASSES if output.element_size() >= 4 else MIN_CLASSES_HALF):
        return
    count = output.numel() // output.shape[-1]
    held = HeldLogits(output.detach())
    copied_rows: Optional[Tensor] = None
    if is_kept:
        observer.held_logits = weakref.ref(held)
    else:
        copied_rows = torch.arange(0, count, max(1, count // MAX_ROWS), device=output.device)[:MAX_ROWS]
        held.logits = output.detach().reshape(count, -1)[copied_rows]

    def hook(gradient: Optional[Tensor]) -> None:
        current, logits = observer.backward, held.logits
        if logits is None:
            return
        # A backward pass reaches the output of a loss function before the logits. So if a wrapped function has computed
        # the loss, its hook has added an entry to `losses` before.
        if gradient is None or current is None or current["losses"] or not observer.is_same_process():
            return
        with observer.observing("logits"):
            rows = gradient.detach().reshape(count, -1)
            scored = rows.abs().amax(-1) > 0
            if not current["retained"]:
                held.logits = None  # otherwise the hook keeps the logits until the script frees the loss
            if copied_rows is None:
                # `topk` selects scored rows without waiting for the device. The factors spread the selected rows over
                # the batch.
                order = scored.to(torch.float32) * (1 + torch.arange(count, device=rows.device) * 7919 % 997)
                chosen = order.topk(min(MAX_ROWS, count)).indices
                logits = logits.reshape(count, -1)[chosen]
            else:
                chosen = copied_rows
            fit = cross_entropy_weights(logits, rows[chosen])
            late = Late([scored[chosen], *fit], _fitting_weights)
            current["logits"].append({**event, "elements": scored.sum(), "weights": late})

    output.register_hook(hook)


def cross_entropy_weights(logits_NV: Tensor, gradient_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weight of every row in a sum of weighted cross-entropies, from the logits and their gradient.

    Let z be the logits of a row, p = softmax(z), lse(z) = log(sum(exp(z))), y the label, e the label smoothing, and
    k lse(z)^2 an additional z-loss. Then a row with weight w has the gradient

        g_j = s p_j + c - d [j = y],  s = w + 2 k lse(z),  c = -w e / V,  d = w (1 - e),

    so w = d - c V. The label is the index of the smallest gradient. s and c are fitted to the other entries by least
    squares with weights 1 / g_j^2, because rounding errors are proportional to the entries. The fit does not use g_y,
    which has lost its digits if p_y is nearly 1. If the residual is large, the loss is of another kind, such as a
    cross-entropy with soft targets, and the gradient does not determine the weight.

    Args:
        logits_NV: Logits or log-probabilities.
        gradient_NV: The gradient of the loss with respect to `logits_NV`.

    Returns:
        weight: The weights, [N].
        residual: The largest residual of an entry, relative to the largest entry, [N]; 1 if the row is no cross-entropy
            for another reason; infinity if the row seems to have a negative weight.
        allowed: The largest residual that rounding errors can explain, [N].
    """
    # 1. The label is the entry with the smallest gradient. All other entries are s p_j + c.
    g = gradient_NV.double()
    p = logits_NV.double().softmax(-1)
    classes = g.shape[-1]
    label = g.argmin(-1, keepdim=True)
    other = torch.ones_like(g, dtype=torch.bool).scatter_(-1, label, False)
    size = torch.where(other, g.abs(), torch.zeros_like(g))
    largest = size.amax(-1, keepdim=True)
    precision = torch.finfo(gradient_NV.dtype).eps if gradient_NV.is_floating_point() else 1.0
    # 2. Weighted least squares over the other entries. Entries far below the largest entry are mostly rounding errors,
    # so 1e-4 of the largest entry is added to the size of every entry, which limits the weights of small entries.
    importance = other / (size + 1e-4 * largest + 1e-300) ** 2
    total = importance.sum(-1, keepdim=True)
    mean_p = (importance * p).sum(-1, keepdim=True) / total
    mean_g = (importance * g).sum(-1, keepdim=True) / total
    spread = (importance * (p - mean_p) ** 2).sum(-1, keepdim=True)
    slope = (importance * (p - mean_p) * (g - mean_g)).sum(-1, keepdim=True) / (spread + 1e-300)
    shift = mean_g - slope * mean_p
    # 3. The residual, and the weight from the difference at the label.
    residual = torch.where(other, (g - slope * p - shift).abs(), torch.zeros_like(g)).amax(-1, keepdim=True)
    d = slope * p.gather(-1, label) + shift - g.gather(-1, label)
    weight = d - shift * classes
    # The gradient of log-probabilities is -w at the label and 0 elsewhere: this is exact, without a fit.
    only_label = largest == 0
    is_log_probabilities = logits_NV.double().logsumexp(-1, keepdim=True).abs() < 1e-2
    weight = torch.where(only_label, -g.gather(-1, label), weight)
    relative = torch.where(only_label, (~is_log_probabilities).double(), residual / (largest + 1e-300))
    allowed = torch.full_like(relative, 1e-4 + 8 * precision)
    # If the smoothing or the z-loss is larger than w (1 - p_y), the smallest gradient is not at the label. With the
    # correct label, two conditions hold: d > w / 2, because e < 1/2; and s = w without a z-loss (`smoothed`), or c = 0
    # and w < s < 1.25 w for a small z-loss without smoothing (`z_loss`). With a wrong label, one of them fails.
    excess = slope / (weight + 1e-300) - 1
    smoothed = excess.abs() <= 16 * allowed
    z_loss = ((shift * classes).abs() <= 16 * allowed * weight.abs()) & (excess > 0) & (excess < 0.25)
    fits = only_label | ((smoothed | z_loss) & (d > weight / 2))
    relative = torch.where(fits, relative, torch.ones_like(relative))
    # If the weight is negative, such as for a rejected answer, only the gradient at the label is positive.
    opposed = (relative > allowed) & ((g > 0).sum(-1, keepdim=True) == 1) & ((g < 0).sum(-1, keepdim=True) != 1)
    relative = torch.where(opposed, torch.full_like(relative, math.inf), relative)
    return weight.squeeze(-1), relative.squeeze(-1), allowed.squeeze(-1)


def _fitting_weights(scored: list[float], weights: list[float], residuals: list[float], allowed: list[float]) -> object:
    """Return the number of scored rows in the sample, and the number and weights of the rows that fit a cross-entropy.

    If more than a tenth of the rows have negative weights, the loss is one of preferences or advantages. Then no row
    counts as fitting.

    Returns:
        sampled: Number of scored rows.
        fitting: Number of rows that fit.
        low: Smallest weight of these rows; 0 without such rows.
        high: Largest weight of these rows; 0 without such rows.
    """
    rows = [row for row in zip(scored, weights, residuals, allowed) if row[0]]
    fitting = [weight for _, weight, residual, limit in rows if residual <= limit and weight == weight]
    if 10 * sum(residual == math.inf for _, _, residual, _ in rows) > len(rows):
        fitting = []
    return {
        "sampled": len(rows),
        "fitting": len(fitting),
        "low": min(fitting, default=0.0),
        "high": max(fitting, default=0.0),
    }


def _operands(name: str, arguments: dict[str, Any]) -> Event:
    """Return facts about the arguments of a call. Facts that need values of tensors are tensors or `Late`."""
    scores, target = arguments["input"].detach(), arguments["target"]
    facts: Event = {
        "made_by": _made_by(arguments["input"]),
        "shapes": [list(scores.shape), list(target.shape)],
        "reduction": arguments["reduction"],
    }
    if not scores.numel() or not target.numel():
        return facts
    if name in CLASSES and scores.dim() >= 1 and scores.shape[1 if scores.dim() > 1 else 0] > 1:
        rows = scores.movedim(1, -1) if scores.dim() > 1 else scores
        rows = rows.reshape(-1, rows.shape[-1])[:MAX_ROWS].double()
        facts["log_sum_exp"] = rows.logsumexp(-1).abs().max()
        if scores.dim() == 2 and scores.numel() <= MAX_COLUMN_ELEMENTS:
            facts["log_sum_exp_of_columns"] = scores.double().logsumexp(0).abs().max()
    elif name in BINARY:
        facts["range"] = Late([scores.min(), scores.max()], lambda low, high: [low[0], high[0]])
        facts["targets"] = _targets(target.detach())
        if target.requires_grad and not arguments["input"].requires_grad:
            facts["input_is_labels"] = Late([((scores == 0) | (scores == 1)).all()], lambda labels: bool(labels[0]))
    elif name == "kl_div" and scores.dim() > 1:
        sums = [scores.double().logsumexp(dim).abs().max() for dim in {1, scores.dim() - 1}]
        facts["log_sum_exp"] = torch.stack(sums).min()
        if scores.dim() == 2 and scores.numel() <= MAX_COLUMN_ELEMENTS:
            facts["log_sum_exp_of_columns"] = scores.double().logsumexp(0).abs().max()
        if not arguments.get("log_target"):
            facts["lowest_target"] = target.detach().min()
    if name in REGRESSION and scores.shape != target.shape:
        facts["broadcast"] = _broadcast_elements(scores, target)
        # All pairs may be intended if the script keeps the elements, if both operands have the same number of axes, or
        # if the script adds an axis to the input.
        facts["pairs"] = (
            arguments["reduction"] == "none"
            or scores.dim() == target.dim()
            or type(arguments["input"].grad_fn).__name__.startswith("Unsqueeze")
        )
    if name in CLASSES:
        facts["before_flattening"] = [_flattened_from(arguments["input"]), _flattened_from(target)]
    return facts


def _broadcast_elements(first: Tensor, second: Tensor) -> int:
    """Return the number of elements of two tensors broadcast to one shape."""
    # `torch.broadcast_shapes` imports SymPy at its first call, which would slow down the script.
    views = (torch.empty((), device="cpu").expand(tensor.shape) for tensor in (first, second))
    broadcast: Tensor = torch.broadcast_tensors(*views)[0]
    return broadcast.numel()


def _flattened_from(tensor: Tensor) -> Optional[list[int]]:
    """Return the shape that a tensor had before it was flattened by a view; None if this shape is unknown."""
    # The autograd node of a view stores the original sizes. The name of the attribute depends on the version of torch.
    node = tensor.grad_fn
    if node is not None:
        view = type(node).__name__.startswith(("View", "ReshapeAlias"))
        sizes = getattr(node, "_saved_self_sym_sizes", getattr(node, "_saved_self_sizes", None)) if view else None
        return None if sizes is None else [int(size) for size in sizes]
    base = tensor._base
    if base is None or base.numel() != tensor.numel() or not base.is_contiguous() or not tensor.is_contiguous():
        return None
    return list(base.shape)


def _record_row_sums(observer: Observer, facts: Event, dim: int, gradient: Optional[Tensor]) -> None:
    """Record whether the gradients of the classes of a row cancel at least partly.

    This function is a hook of the input of a loss function. The gradients of a row sum to 0 if another term of the loss
    contains the normalizer (the logarithm of the sum of exponentials).

    Args:
        observer: The observer of this process.
        facts: The facts about the call. The function adds the fact "gradients_cancel".
        dim: The dimension of the classes.
        gradient: The gradient of the input of the loss.
    """
    if gradient is None or gradient.dim() < 2 or "gradients_cancel" in facts:
        return
    with observer.observing("row sums"):
        gradient = gradient.detach().double()
        sums, sizes = gradient.sum(dim).abs().sum(), gradient.abs().sum()
        facts["gradients_cancel"] = Late([sums, sizes], lambda a, b: a[0] < 0.9 * b[0])


def _made_by(tensor: Tensor) -> str:
    """Return the name of the autograd node that computed the elements of a tensor.

    Nodes that do not change the values of elements are skipped. Return "" if there is no other node among the last
    twelve.
    """
    node = tensor.grad_fn
    for _ in range(12):
        if node is None:
            return ""
        name = type(node).__name__
        if name.partition("Backward")[0] not in OPERATIONS_THAT_MOVE_ELEMENTS:
            return name
        node = node.next_functions[0][0] if node.next_functions else None
    return ""
