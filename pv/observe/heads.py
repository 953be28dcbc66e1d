"""Measures token weights of losses that are fused with the head, so that no tensor contains the logits.

Such a loss is a function of hidden states and the weight of the head: an `autograd.Function` (chunked heads, Liger, cut
cross-entropy), `torch.nn.functional.linear_cross_entropy`, or a function that `torch.utils.checkpoint` runs. The weight
of a token is computed from the gradient of the hidden states (`head_weights`).

Shapes: N tokens, H elements of a hidden state, V tokens of the vocabulary.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import frames, tokens
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

MAX_TOKENS = 64
"""Largest number of tokens that are sampled in a call."""
MAX_WEIGHT = 1 << 28
"""Largest number of elements of the weight of a head; heads with more elements are not examined."""
BLOCK = 8192
"""Number of rows of the weight that are converted to float64 at a time."""
MIN_CLASSES = 4
"""Smallest number of classes of a head."""
MIN_WIDTH, MIN_WIDTH_HALF = 8, 32
"""Smallest size of hidden states in float32 and in half precision. Smaller states might fit another loss by chance."""
HALF = (torch.float16, torch.bfloat16)


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the functions that call a fused loss.

    Args:
        observer: Returns the observer of this process.
    """

    def wrapped(original: Callable[..., object]) -> Callable[..., object]:
        @frames.wraps(original)
        def call(*args: object, **kwargs: object) -> object:
            before = observer().fused_calls
            out = original(*args, **kwargs)
            active = observer()
            # A nested fused call has registered a hook itself, and a recomputation in a backward pass needs no hook.
            needs_hook = active.fused_calls == before and active.backward is None
            if needs_hook and active.is_sampled and isinstance(out, (Tensor, tuple)) and torch.is_grad_enabled():
                _watch(active, args, kwargs, out)
            return out

        return call

    # Read from `vars`, because the class method is written in C since torch 2.14, and then has no `__func__`.
    stored = vars(torch.autograd.Function)["apply"]

    def apply(function: type, *args: object, **kwargs: object) -> object:
        return stored.__get__(None, function)(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(wrapped(apply))  # type: ignore[assignment]  # torch has no hook
    if hasattr(F, "linear_cross_entropy"):  # since torch 2.13
        setattr(F, "linear_cross_entropy", wrapped(F.linear_cross_entropy))  # noqa: B010 (older stubs lack it)
    checkpoints = importlib.import_module("torch.utils.checkpoint")  # `torch.utils` has a function of this name
    setattr(checkpoints, "checkpoint", wrapped(checkpoints.checkpoint))  # noqa: B010 (an imported module has no known names)


def record_layer(observer: Observer, outputs: object) -> None:
    """Store the last linear layer of a model that returns one number: it may be the head of a handwritten loss."""
    layer, observer.last_layer = observer.last_layer, None
    if layer is None or layer.out_features < MIN_CLASSES:
        return
    sizes = [tensor.numel() for tensor in observer.tensors_in(outputs)]
    if sizes and max(sizes) == 1:
        observer.hidden_heads.add(layer)


def _watch(observer: Observer, args: tuple[object, ...], kwargs: dict[str, object], out: Iterable[object]) -> None:
    """Register a hook on the hidden states in the arguments of a fused loss; do nothing for other functions."""
    result = out if isinstance(out, Tensor) else next((part for part in out if isinstance(part, Tensor)), None)
    if result is None or not result.requires_grad or not result.is_floating_point():
        return
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if len(tensors) < 2 or not observer.is_active():
        return
    with observer.observing("head"):
        operands = _operands(tensors, result)
        if operands is not None:
            observer.fused_calls += 1
            _register_hook(observer, *operands)


def _operands(
    tensors: list[Tensor], result: Tensor
) -> Optional[tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]]:
    """Return hidden states, the weight [V, H] of the head, its bias and the labels; None if this is not a fused loss.

    The result of a fused loss has at most one number per token; ordinary layers return more. A
    `DTensor`, which has `_spec`, is not examined.
    """
    floats = [t for t in tensors if t.is_floating_point() and t.layout == torch.strided and not hasattr(t, "_spec")]
    for weight in floats:
        if weight.dim() != 2 or weight.numel() > MAX_WEIGHT or not _is_parameter(weight):
            continue
        for hidden in floats:
            width = hidden.shape[-1] if hidden.dim() > 1 else 0
            least = MIN_WIDTH_HALF if hidden.dtype in HALF else MIN_WIDTH
            if width < least or not hidden.requires_grad or hidden is weight or _is_parameter(hidden):
                continue
            matrix = weight.detach() if weight.shape[1] == width else weight.detach().t()
            count = hidden.numel() // width
            if matrix.shape[1] != width or matrix.shape[0] < MIN_CLASSES or not count or result.numel() > count:
                continue
            biases = [t for t in floats if t.shape == matrix.shape[:1] and _is_parameter(t)]
            labels = [t for t in tensors if not t.is_floating_point() and t.numel() == count]
            return hidden, matrix, biases[0] if biases else None, labels[0] if labels else None
    return None


def _is_parameter(tensor: Tensor) -> bool:
    """Return whether a tensor is a parameter, or a converted, transposed, viewed or cloned parameter."""
    if isinstance(tensor, nn.Parameter):
        return True
    node = tensor.grad_fn
    layouts = ("ToCopy", "T", "Transpose", "Permute", "Alias", "View", "ReshapeAlias", "UnsafeView", "Clone")
    while node is not None and type(node).__name__.partition("Backward")[0] in layouts:
        node = node.next_functions[0][0] if node.next_functions else None
    return isinstance(getattr(node, "variable", None), nn.Parameter)


def _register_hook(
    observer: Observer, hidden: Tensor, weight: Tensor, bias: Optional[Tensor], labels: Optional[Tensor]
) -> None:
    """Register a hook that computes token weights from the gradient of the hidden states.

    A sample of the hidden states is copied, since the loss may overwrite or free the hidden states.
    """
    at, key = observer.sites.find(3)
    width = hidden.shape[-1]
    rows = hidden.detach().reshape(-1, width)
    if labels is not None and hidden.dim() == 2:  # every fused loss ignores negative labels
        tokens.record_labels(observer, at, key, labels.detach().reshape(-1), labels.detach().reshape(-1) >= 0, hidden)
    # `topk` chooses labelled rows without waiting for the device; the factor spreads these rows over the batch.
    labelled = torch.ones(len(rows), device=rows.device) if labels is None else (labels.reshape(-1) >= 0).float()
    order = labelled * (1 + torch.arange(len(rows), device=rows.device) * 7919 % 997)
    chosen = order.topk(min(MAX_TOKENS, len(rows))).indices
    sampled = rows[chosen].clone()
    dtypes = {hidden.dtype, weight.dtype}
    if torch.is_autocast_enabled():
        dtypes.add(torch.get_autocast_gpu_dtype())
    if hidden.device.type == "cpu" and torch.is_autocast_cpu_enabled():
        dtypes.add(torch.get_autocast_cpu_dtype())
    precision = max(torch.finfo(dtype).eps for dtype in dtypes)
    offset = None if bias is None else bias.detach()

    def hook(gradient: Optional[Tensor]) -> None:
        current = observer.backward
        # The gradient reaches the output of a loss function first. If a wrapped function has computed the loss,
        # `losses` is therefore not empty here.
        if gradient is None or current is None or current["losses"] or not observer.is_same_process():
            return
        with observer.observing("head"):
            flat = gradient.detach().reshape(-1, width)
            scored = flat.abs().amax(-1) > 0
            fit = head_weights(sampled, weight, offset, flat[chosen], precision)
            late = Late([scored[chosen], *fit], functools.partial(_fitting_weights, precision))
            current["logits"].append({"key": f"head {key}", "at": at, "elements": scored.sum(), "weights": late})

    hidden.register_hook(hook)


def _blocks(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of rows of the weight of a head in float64, with their slices."""
    for start in range(0, len(weight), BLOCK):
        rows = slice(start, start + BLOCK)
        yield rows, weight[rows].double()


def head_weights(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Optional[Tensor], gradient_NH: Tensor, precision: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weight of every token in a sum of weighted cross-entropies, from the gradient of the hidden states.

    With p = softmax(W h + b), label y and label smoothing e, a token of weight w has the gradient

        g = w (1 - e) (W^T p - W_y) + w e (W^T p - mean of the rows of W).

    For every candidate y, the factors w (1 - e) and w e are fitted by least squares; this takes only products of W with
    g, with W^T p and with the mean of its rows. The label is the y with the smallest residual. A large residual shows
    that the loss is of another kind, such as with soft targets or capped logits.

    Args:
        hidden_NH: Hidden states, the input of the head.
        weight_VH: The weight of the head.
        bias_V: The bias of the head; None without one.
        gradient_NH: The gradient of the loss with respect to the hidden states.
        precision: The relative rounding error of the dtype in which the loss was computed.

    Returns:
        Three tensors [N]: the weight; the residual relative to the gradient; the largest residual that rounding
        explains. If the third is positive, a larger residual means that no cross-entropy fits. If it is 0, the gradient
        may consist of rounding errors only, and the token cannot be judged.
    """
    # A float64 copy of all V rows of W would be too large, so products with W are computed block by block.
    h, g = hidden_NH.double(), gradient_NH.double()
    z = torch.cat([h @ part.t() for _, part in _blocks(weight_VH)], 1)
    p = (z if bias_V is None else z + bias_V.double()).softmax(-1)
    r, mean = torch.zeros_like(h), torch.zeros_like(h[0])
    for rows, part in _blocks(weight_VH):
        r += p[:, rows] @ part
        mean += part.sum(0)
    # r = W^T p; b = W^T p - mean of the rows is the direction of label smoothing, the same for every label.
    b = r - mean / len(weight_VH)
    with_g, with_r, with_b = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
    size = torch.empty_like(p[0])
    for rows, part in _blocks(weight_VH):
        transposed = part.t()
        with_g[:, rows], with_r[:, rows], with_b[:, rows] = g @ transposed, r @ transposed, b @ transposed
        size[rows] = part.square().sum(1)
    dot = functools.partial(torch.einsum, "nh,nh->n")
    # For every label y, with a = r - W_y: the dot products of a, b and g.
    gg, gb, bb = (value.unsqueeze(1) for value in (dot(g, g), dot(g, b), dot(b, b)))
    ga = dot(g, r).unsqueeze(1) - with_g
    aa = dot(r, r).unsqueeze(1) - 2 * with_r + size
    ab = dot(r, b).unsqueeze(1) - with_b
    tiny = 1e-300
    # Without smoothing: g = w a, so w = (g a) / (a a), and the squared residual is |g|^2 - w (g a).
    plain = ga / (aa + tiny)
    squared = torch.where(plain > 0, gg - ga * plain, gg)
    # With smoothing: g = sharp a + smooth b. Cramer's rule solves the two normal equations.
    determinant = aa * bb - ab * ab + tiny
    sharp, smooth = (ga * bb - gb * ab) / determinant, (gb * aa - ga * ab) / determinant
    squared_smoothed = torch.where((smooth > 0) & (smooth < sharp), gg - sharp * ga - smooth * gb, gg)
    label, label_smoothed = squared.argmin(1, keepdim=True), squared_smoothed.argmin(1, keepdim=True)
    weight = plain.gather(1, label)
    residual = (squared.gather(1, label).clamp(min=0) / (gg + tiny)).sqrt()
    weight_smoothed = (sharp + smooth).gather(1, label_smoothed)
    residual_smoothed = (squared_smoothed.gather(1, label_smoothed).clamp(min=0) / (gg + tiny)).sqrt()
    # If p_y is nearly 1, r and W_y cancel, and only rounding errors remain.
    allowed = torch.full_like(residual, 1e-4 + 2 * precision)
    visible = aa.gather(1, label) > (64 * precision) ** 2 * size[label]
    allowed = torch.where(visible, allowed, torch.zeros_like(allowed))
    # Two factors always fit better than one. So smoothing is assumed only if a plain cross-entropy does not fit, or if
    # smoothing reduces the residual to less than a third.
    is_plain = (residual <= allowed) & (residual <= 3 * residual_smoothed + tiny)
    weight = torch.where(is_plain, weight, weight_smoothed)
    residual = torch.where(is_plain, residual, residual_smoothed)
    # A negative weight, such as of a rejected answer, is used only if no positive one fits.
    squared = torch.where(plain < 0, gg - ga * plain, gg)
    label = squared.argmin(1, keepdim=True)
    residual_negative = (squared.gather(1, label).clamp(min=0) / (gg + tiny)).sqrt()
    is_negative = (residual > allowed) & (residual_negative <= allowed)
    weight = torch.where(is_negative, plain.gather(1, label), weight)
    residual = torch.where(is_negative, residual_negative, residual)
    return weight.squeeze(1), residual.squeeze(1), allowed.squeeze(1)


def _fitting_weights(
    precision: float, scored: list[float], weights: list[float], residuals: list[float], allowed: list[float]
) -> object:
    """Return the range of the positive weights of sampled tokens that fit a cross-entropy, and the numbers of tokens.

    Tokens whose gradient may consist of rounding errors only do not count. If more than a tenth of the others have
    negative weights, no token counts as fitting: this is a loss of preferences or advantages.
    """
    rows = [row for row in zip(scored, weights, residuals, allowed) if row[0] and row[3]]
    fitting = [weight for _, weight, residual, limit in rows if residual <= limit]
    if 10 * sum(weight < 0 for weight in fitting) > len(rows):
        fitting = []
    fitting = [weight for weight in fitting if weight > 0]
    low, high = min(fitting, default=0.0), max(fitting, default=0.0)
    if fitting and precision > 1e-4 and high <= SPREAD_HALF * low:  # the weights differ only by rounding
        low = high = sum(fitting) / len(fitting)
    return {"sampled": len(rows), "fitting": len(fitting), "low": low, "high": high}


SPREAD_HALF = 1.2
"""Largest ratio of measured weights that rounding in half precision explains. Their mean is exact to 2 %."""
