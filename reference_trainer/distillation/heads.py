"""Compute the loss for a large vocabulary in chunks: form the logits of some rows at a time from hidden states.

No tensor has rows x vocabulary elements, neither the logits of the student nor their gradient, nor the logits of the
teacher if its output layer is used. For every chunk:

1. Multiply hidden states by the weights of the output layer: the product is the logits of the chunk.
2. Compute the same loss as for all logits (`losses.loss_by_blocks`); its gradient overwrites the student's logits.
3. Multiply the gradient of the logits by the weights, which gives the gradient of the hidden states, and by the hidden
   states, which gives the gradient of the weights. Gradients of weights are summed in float32 or wider.

A module offers its output layer by a method `get_output_embeddings` that returns an `nn.Linear`. The causal models of
transformers and `models.decoder` have this method. For a wrapper such as DDP, the method of the wrapped module is used.
The layer is tested once, and replaced during a forward. If the module's `config` has a scale or a soft cap for logits,
the loss rescales the logits of each chunk, and multiplies their gradient by the derivative.

Shape letters: B batch, T position, P = B * T rows, N chosen rows, C rows of a chunk, V vocabulary, W width, K values of
a row, such as its loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from reference_trainer.distillation.losses import BlockwiseLoss, RowLosses, collect_rows
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights
from reference_trainer.distillation.protocols import Batch, FeaturePass, TopK, complete_logits

LEAST_VOCABULARY = 8192
"""Smallest size of a vocabulary for chunks. All logits of a smaller one are formed at once: they take little memory."""
LARGEST_TEST_LOGIT = 1000.0
"""Largest test value of `OutputLayer.refusal_reason`: every usual soft cap or bound of a model changes it."""
CHECKED_TOKENS = 8
"""Number of tokens of the forward that tests an output layer."""
FUSED = "REFERENCE_TRAINER_FUSED_LOSS"
"""Environment variable; the value 1 turns the fused loss on."""
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier")
"""Keys of a configuration in transformers for a factor or a divisor of logits: Cohere, Granite, Falcon-H1."""
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""Keys of a configuration in transformers for a soft cap of logits: Gemma, RecurrentGemma, xLSTM."""


@dataclass(frozen=True, slots=True)
class Rescaling:
    """A change of the logits x of an output layer: scale * x; with a soft cap, cap * tanh(scale * x / cap)."""

    scale: float = 1.0
    cap: float | None = None

    def apply_(self, logits: Tensor) -> Tensor:
        """Rescale logits in place, and return the tensor."""
        if self.scale != 1:
            logits.mul_(self.scale)
        return logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)


UNCHANGED = Rescaling()


def configured_rescalings(module: nn.Module) -> list[Rescaling]:
    """Return every combination of a scale and a soft cap from the configuration of a module, or of a wrapped model.

    The first one is `UNCHANGED`. A scale is listed as a factor and as a divisor, because some models multiply the
    logits by the value of a key, and others divide by this value.
    """
    config: Any = next((part.config for part in module.modules() if hasattr(part, "config")), None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()

    def positive_values(keys: Sequence[str]) -> list[float]:
        values = (getattr(config, key, None) for key in keys)
        return [float(value) for value in values if isinstance(value, int | float) and value > 0]

    scales = [1.0]
    for value in positive_values(SCALES):
        scales += [value, 1 / value]
    return [Rescaling(scale, cap) for cap in (None, *positive_values(CAPS)) for scale in scales]


class OutputLayer:
    """The output layer of a model. It can be used if the model returns the layer's logits, possibly rescaled.

    Args:
        model: "teacher" or "student", for messages.
        module: The model.
        vocab_size: The number of logits that the model returns for a token.
        note: Called with a message if the vocabulary is large and the layer cannot be used.
    """

    def __init__(self, model: str, module: nn.Module, vocab_size: int, note: Callable[[str], object]) -> None:
        self._model, self._module, self._vocab_size, self._note = model, module, vocab_size, note
        self._refusal: str | None = None  # a result of `refusal_reason`; None before the test
        self._rescaling = UNCHANGED

    def is_offered(self, batch: Batch, logits: Callable[[Batch], Tensor]) -> bool:
        """Return whether the layer can be used. The first call tests the layer on the first tokens of the batch.

        logits: returns the logits of the model.
        """
        if self._vocab_size < LEAST_VOCABULARY:
            return False
        if self._refusal is None:
            self._refusal = self.refusal_reason(batch, logits)
            if self._refusal:
                self._note(f"the {self._model} forms the logits of all tokens at once: {self._refusal}")
        return not self._refusal

    def find(self) -> object:
        """Return the result of the module's `get_output_embeddings`; None if it has no such method."""
        get = getattr(_unwrapped(self._module), "get_output_embeddings", None)
        return None if get is None else get()

    @contextmanager
    def record_heads(self) -> Iterator[list[Head]]:
        """Yield a list to which every forward of the model appends the `Head` of the layer. No logits are formed.

        The weights of a sharded layer are copied during the forward. Outside of `ranks.parallel.Parallel.window`, FSDP2
        frees the gathered weights after a forward, and gathering them again would need a communication.
        """
        heads: list[Head] = []
        layer = self.find()
        is_shard = isinstance(layer, nn.Linear) and hasattr(layer.weight, "full_tensor")

        def append_head(layer: nn.Linear, hidden_BTW: Tensor) -> Tensor:
            head = replace(head_of(hidden_BTW, layer.weight, layer.bias), rescaling=self._rescaling)
            if is_shard and head.weight_VW.dtype == layer.weight.dtype:  # a change of the dtype has already copied them
                bias_V = None if head.bias_V is None else head.bias_V.clone()
                head = replace(head, weight_VW=head.weight_VW.clone(), bias_V=bias_V)
            heads.append(head)
            return hidden_BTW.new_empty(*hidden_BTW.shape[:-1], 0)

        with self._replaced(append_head):
            yield heads

    @contextmanager
    def consumed(self, consume: Callable[[Head], Gradients]) -> Iterator[None]:
        """Within the context, the layer calls `consume`, and returns the zeros of `head_loss` instead of logits."""

        def consume_rescaled(head: Head) -> Gradients:
            return consume(replace(head, rescaling=self._rescaling))

        with self._replaced(lambda layer, hidden: head_loss(hidden, layer.weight, layer.bias, consume_rescaled)):
            yield

    @contextmanager
    def _replaced(self, forward: Callable[[nn.Linear, Tensor], Tensor]) -> Iterator[None]:
        """Within the context, `forward` replaces the forward of the layer."""
        layer = self.find()
        assert isinstance(layer, nn.Linear)
        # An attribute of the instance overrides the method, also in `nn.Module.__call__`, which still runs hooks.
        layer.__dict__["forward"] = lambda hidden_BTW: forward(layer, hidden_BTW)
        try:
            yield
        finally:
            del layer.__dict__["forward"]

    def refusal_reason(self, batch: Batch, logits: Callable[[Batch], Tensor]) -> str:
        """Return the reason why the layer cannot be used; "" if it can.

        Replace the logits of the layer by test values, so that the test does not depend on weights. The values are
        large and small enough that any soft cap, scale or bound in the model changes some of them. The model must
        return the test values, either unchanged or rescaled as its configuration says. Store the rescaling.
        """
        layer = self.find()
        if layer is None:
            return "it has no method get_output_embeddings"
        if type(layer) is not nn.Linear or "forward" in vars(layer):
            return f"its output layer is not a plain nn.Linear, but {type(layer).__name__}"
        tested: list[Tensor] = []

        def replace_logits(layer: nn.Linear, hidden_BTW: Tensor) -> Tensor:
            # Only the shape, dtype and device of the logits are used. Cubes of equally spaced numbers are dense near 0
            # and reach large values, so that a small bound and a large soft cap both change some of them.
            logits_BTV = nn.functional.linear(hidden_BTW, layer.weight, layer.bias)
            values_V = LARGEST_TEST_LOGIT * torch.linspace(-1, 1, logits_BTV.shape[-1], device=logits_BTV.device) ** 3
            tested.append(values_V.to(logits_BTV.dtype).expand_as(logits_BTV))
            return tested[-1]

        with self._replaced(replace_logits):
            returned_BTV = logits(_first_tokens(batch))
        if len(tested) != 1:
            return f"it applies its output layer {len(tested)} times in a forward"
        if returned_BTV.shape == tested[0].shape:
            for rescaling in configured_rescalings(self._module):
                if _is_rescaled(tested[0], returned_BTV, rescaling):
                    self._rescaling = rescaling
                    return ""
        return "it changes the logits of its output layer by more than a scale and a soft cap that its config names"


def _is_rescaled(logits_BTV: Tensor, returned_BTV: Tensor, rescaling: Rescaling) -> bool:
    """Return whether `returned_BTV` equals the rescaled logits, up to the rounding of a soft cap's four operations."""
    expected_BTV = rescaling.apply_(logits_BTV.to(torch.float64, copy=True))
    if rescaling == UNCHANGED:  # no operation, no rounding
        return torch.equal(returned_BTV.double(), expected_BTV)
    rtol = 4 * torch.finfo(logits_BTV.dtype).eps
    return torch.allclose(returned_BTV.double(), expected_BTV, rtol=rtol, atol=0.0)


def _first_tokens(batch: Batch) -> Batch:
    """Return the first `CHECKED_TOKENS` tokens of the first row of a batch; the token 0 if the batch is empty."""
    if not batch.tokens.numel():  # all ranks run the test together, also a rank without sequences
        zero_11 = batch.tokens.new_zeros(1, 1)
        return Batch(tokens=zero_11, labels=zero_11)
    begin = slice(1), slice(CHECKED_TOKENS)
    segments = None if batch.segments is None else batch.segments[begin]
    return Batch(tokens=batch.tokens[begin], labels=batch.labels[begin], segments=segments)


def _unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside wrappers such as DDP. The wrappers have no method `get_output_embeddings`."""
    inner = getattr(module, "module", None)
    if not hasattr(module, "get_output_embeddings") and isinstance(inner, nn.Module):
        return _unwrapped(inner)
    return module


CPU_CHUNK_BYTES = 64 << 20
"""Size of the logits of a chunk on the CPU. Every chunk reads all weights of the layer, so small chunks are slow."""
CHUNK_BYTES = 512 << 20
"""Size of the logits of a chunk on other devices."""

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""The gradients of hidden states [P, W], weights [V, W] and bias [V]; None if not needed."""

NO_GRADIENTS = (False, False, False)
"""The value of `Head.needed` if no gradient is needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The input and the weights of an output layer, of one dtype: logits = hidden_PW @ weight_VW.T + bias_V.

    Attributes:
        hidden_PW: The hidden states [P, W].
        weight_VW: The weights [V, W].
        bias_V: The bias [V]; None without one.
        vocab_size: The number of logits of a row. If it is below V, the logits of the last tokens are dropped; if it is
            above V, the additional logits are -inf.
        needed: Whether hidden states, weights and bias need a gradient.
        rescaling: The change that the model applies to the logits of the layer.
    """

    hidden_PW: Tensor
    weight_VW: Tensor
    bias_V: Tensor | None
    vocab_size: int
    needed: tuple[bool, bool, bool] = NO_GRADIENTS
    rescaling: Rescaling = UNCHANGED

    @property
    def logit_count(self) -> int:
        """Return the number of logits that the layer computes: `vocab_size`, or V if V is smaller."""
        return min(self.vocab_size, len(self.weight_VW))

    def write_logits(self, hidden_CW: Tensor, out_CV: Tensor) -> None:
        """Write the logits [C, vocab_size] of a chunk of rows to `out_CV`."""
        out_CV[:, self.logit_count :] = -torch.inf
        weight_WV, computed_CV = self.weight_VW[: self.logit_count].t(), out_CV[:, : self.logit_count]
        if self.bias_V is None:
            torch.mm(hidden_CW, weight_WV, out=computed_CV)
        else:
            torch.addmm(self.bias_V[: self.logit_count], hidden_CW, weight_WV, out=computed_CV)
        self.rescaling.apply_(computed_CV)

    def logits_in_chunks(self, places_N: Tensor) -> Iterator[Tensor]:
        """Yield the logits [C, vocab_size] of some rows, in one or more chunks. A chunk overwrites the previous one."""
        size = rows_per_chunk(self, None)
        chunks = _LogitChunks(self, places_N, size)
        for start in range(0, max(len(places_N), 1), size):
            yield chunks.logits(slice(start, start + size))


TeacherOutput = Head | Tensor | TopK | None
"""The output of a teacher: its output layer, logits [B, T, V], the most probable tokens [B, T, K], or None."""


@runtime_checkable
class HeadTeacher(Protocol):
    """A model whose output layer can be applied a chunk of rows at a time."""

    def head(self, batch: Batch, *, hidden_states: bool = False) -> tuple[Head, Sequence[Tensor]] | None:
        """Run a forward in eval mode without a graph; return the output layer and, if requested, hidden states.

        Return None if the output layer cannot be used: the caller must use the logits of the model.
        """
        ...


@runtime_checkable
class HeadStudent(Protocol):
    """A student whose output layer can be replaced by a loss."""

    def offers_head(self, batch: Batch) -> bool:
        """Return whether `forward_head` is possible. All ranks call this together: the first call may run a forward."""
        ...

    def forward_head(
        self,
        batch: Batch,
        consume: Callable[[Head], Gradients],
        *,
        hidden_states: bool = False,
        evaluated: bool = False,
    ) -> FeaturePass:
        """Run a forward in which `consume` is called once instead of the output layer.

        The logits of the pass are zeros [B, T, 1]. The backward of the pass ignores the gradient of the zeros, and
        applies the gradients that `consume` returned.

        evaluated: run in eval mode and without a graph.
        """
        ...


def head_of(
    hidden_BTW: Tensor,
    weight_VW: Tensor,
    bias_V: Tensor | None,
    needed: tuple[bool, bool, bool] = NO_GRADIENTS,
) -> Head:
    """Return an output layer without a graph, in the dtype in which `F.linear` would compute under autocast."""
    device, dtype = hidden_BTW.device.type, weight_VW.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    hidden_PW, weight_VW = hidden_BTW.detach().flatten(0, -2).to(dtype), weight_VW.detach().to(dtype)
    bias_V = None if bias_V is None else bias_V.detach().to(dtype)
    return Head(hidden_PW, weight_VW, bias_V, len(weight_VW), needed)


@torch.no_grad()
def chunked_loss(
    student: Head,
    teacher: TeacherOutput,
    labels_BT: Tensor,
    weights: Weights,
    *,
    scale: float | Tensor | None = None,
    metrics: bool = False,
    deferred: bool = False,
    predicted_BT: Tensor | None = None,
) -> tuple[RowLosses, Gradients]:
    """Return the rows of `loss_by_blocks` for the logits of both heads, and the gradients of the student's head.

    1. Choose the rows: the scored rows on the CPU, and all rows on other devices, where a search for scored rows would
       wait for the device.
    2. For each chunk of rows: form the logits of student and teacher, then loss and gradient as for whole logits.
    3. Multiply the gradient of the logits by weights and hidden states, and add the products to the gradients.

    Args:
        student: The hidden states and the output layer of the student.
        teacher: A head, logits [B, T, V], or the most probable tokens [B, T, K]; None if neither weights nor metrics
            need it.
        labels_BT: The label of each row; `IGNORE_INDEX` for unscored rows.
        weights: The arguments of the loss.
        scale: The factor of the gradients; None to compute no gradient.
        metrics: Whether to compute the metrics, as in `loss_by_blocks`.
        deferred: Whether errors are recorded in the rows, as in `loss_by_blocks`.
        predicted_BT: A tensor to which the most probable token of every processed row is written.

    Returns:
        The rows, without a `gradient_BTV`, and the gradients of `scale` times the weighted sum. The gradients of
        weights and bias are float32 or wider.

    Raises:
        TrainerError: As `loss_by_blocks`.
    """
    # 1. Choose the rows.
    device = student.hidden_PW.device
    on_cpu = device.type == "cpu"
    labels_BT = labels_BT.long()
    labels_P = labels_BT.flatten()
    scored_P = labels_P != IGNORE_INDEX
    places_N = scored_P.nonzero()[:, 0] if on_cpu else torch.arange(len(labels_P), device=device)
    size = rows_per_chunk(student, teacher)
    student_chunks = _LogitChunks(student, places_N, size)
    teacher_logits = _teacher_chunks(teacher, places_N, size, weights)
    gradients = _HeadGradients(student_chunks, is_needed=scale is not None)
    # The gradient of the layer's logits needs the derivative of the rescaling: the factor is multiplied into `scale`.
    # The loss multiplies by the derivative of the soft cap, which depends on the logits.
    cap = student.rescaling.cap
    scale = None if scale is None else scale * student.rescaling.scale
    # 2. Compute loss and gradients, chunk by chunk. There is at least one chunk, so that `cat` has a tensor.
    numbers = []
    with torch.autocast(device.type, enabled=False):
        for start in range(0, max(len(places_N), 1), size):
            part = slice(start, start + size)
            places_C = places_N[part]
            student_CV = student_chunks.logits(part)
            if predicted_BT is not None:
                predicted_BT.view(-1)[places_C] = student_CV.argmax(-1)
            teacher_CV = teacher_logits(part, student_CV).to(device)
            if scale is not None and not metrics and is_fused(student_CV, teacher_CV, weights):
                from reference_trainer.distillation.fused import fused_loss

                rows_C = (labels_P[places_C], scored_P[places_C])
                numbers.append(fused_loss(student_CV, teacher_CV, *rows_C, weights, scale, cap))
            else:  # the chunk is a batch of one sequence
                batch = (student_CV[None], teacher_CV[None], labels_P[places_C][None], scored_P[places_C])
                loss = BlockwiseLoss(*batch, weights, scale, metrics, gradient_BTV=student_CV[None], cap=cap)
                numbers.append(loss.numbers(select=on_cpu))
            gradients.add(part, student_CV)  # the gradient has overwritten the logits
    # 3. Copy the values of the chosen rows to their positions among all rows; the other rows have zeros.
    numbers_KN = torch.cat(numbers, 1)
    numbers_KP = numbers_KN.new_zeros(len(numbers_KN), len(labels_P)).index_copy_(1, places_N, numbers_KN)
    no_gradient_0TV = numbers_KN.new_zeros(0, *labels_BT.shape[1:], student.vocab_size)
    rows = collect_rows(numbers_KP, labels_BT, scored_P, student.vocab_size, no_gradient_0TV, deferred=deferred)
    return rows, gradients.full(places_N)


def is_fused(student_CV: Tensor, teacher_CV: Tensor, weights: Weights) -> bool:
    """Return whether `fused.fused_loss` computes the loss of a chunk.

    It computes the forward KL of logits that are not float64, on CUDA or with Triton's interpreter on the CPU. It is
    off unless the environment variable `FUSED` is 1, because its time on a GPU has not been measured.
    """
    is_placed = student_CV.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"
    if os.environ.get(FUSED) != "1" or not is_placed or weights.divergence != "forward_kl":
        return False
    return torch.float64 not in (student_CV.dtype, teacher_CV.dtype) and teacher_CV.stride(-1) == 1


def head_loss(
    hidden_BTW: Tensor, weight_VW: Tensor, bias_V: Tensor | None, consume: Callable[[Head], Gradients]
) -> Tensor:
    """Call `consume` with the output layer, and return zeros [B, T, 1].

    The backward of the zeros ignores their gradient, propagates the gradients that `consume` returned, and can run only
    once.
    """
    zeros: Tensor = _HeadLoss.apply(hidden_BTW, weight_VW, bias_V, consume)  # type: ignore[no-untyped-call]  # torch has no types for it
    return zeros


class _Context(Protocol):
    """The attributes of autograd's context that `_HeadLoss` reads and sets."""

    needs_input_grad: tuple[bool, bool, bool, bool]
    gradients: Gradients


class _HeadLoss(torch.autograd.Function):
    """An output layer that computes its gradients in the forward, because sharded weights are gathered then."""

    @staticmethod
    def forward(
        ctx: _Context, hidden: Tensor, weight: Tensor, bias: Tensor | None, consume: Callable[[Head], Gradients]
    ) -> Tensor:
        ctx.gradients = consume(head_of(hidden, weight, bias, ctx.needs_input_grad[:3]))
        return hidden.new_zeros(*hidden.shape[:-1], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, gradient_BT1: Tensor) -> tuple[Tensor | None, ...]:
        # Drop the references in the context: autograd copies a gradient to which another reference exists.
        (hidden, weight, bias), ctx.gradients = ctx.gradients, (None, None, None)
        return None if hidden is None else hidden.unflatten(0, gradient_BT1.shape[:-1]), weight, bias, None


def rows_per_chunk(student: Head, teacher: TeacherOutput) -> int:
    """Return the number of rows of logits in a chunk, at least 1."""
    tensors = [student.hidden_PW]
    if isinstance(teacher, Head):
        tensors.append(teacher.hidden_PW)
    elif teacher is not None:
        tensors.append(teacher.logits if isinstance(teacher, TopK) else teacher)
    itemsize = max(tensor.itemsize for tensor in tensors)
    size = CPU_CHUNK_BYTES if student.hidden_PW.device.type == "cpu" else CHUNK_BYTES
    return max(size // (student.vocab_size * itemsize), 1)


class _LogitChunks:
    """The logits of the rows `places_N` of a head, formed `size` rows at a time in one buffer."""

    def __init__(self, head: Head, places_N: Tensor, size: int) -> None:
        self.head = head
        self.hidden_NW = head.hidden_PW.index_select(0, places_N.to(head.hidden_PW.device))
        self.buffer = self.hidden_NW.new_empty(min(size, len(places_N)), head.vocab_size)

    def logits(self, part: slice) -> Tensor:
        """Return the logits [C, V] of some of the N rows, in the memory of the previous result."""
        hidden_CW = self.hidden_NW[part]
        logits_CV = self.buffer[: len(hidden_CW)]
        self.head.write_logits(hidden_CW, logits_CV)
        return logits_CV


def _teacher_chunks(
    teacher: TeacherOutput, places_N: Tensor, size: int, weights: Weights
) -> Callable[[slice, Tensor], Tensor]:
    """Return a function from a slice of the N rows and the student's logits to the teacher's logits [C, V]."""
    if teacher is None:
        return lambda part, student_CV: student_CV  # only the shape of the result is used
    if isinstance(teacher, Head):
        chunks = _LogitChunks(teacher, places_N, size)
        return lambda part, student_CV: chunks.logits(part)
    if isinstance(teacher, TopK):
        return lambda part, student_CV: complete_logits(
            teacher.rows(places_N[part]).to(student_CV.device), student_CV, weights.temperature
        )
    logits_PV, places_N = teacher.flatten(0, 1), places_N.to(teacher.device)
    return lambda part, student_CV: logits_PV.index_select(0, places_N[part])


class _HeadGradients:
    """The gradients of a head, accumulated over chunks. The gradients of weights and bias are float32 or wider."""

    def __init__(self, chunks: _LogitChunks, *, is_needed: bool) -> None:
        self.chunks = chunks
        head = chunks.head
        dtype = torch.promote_types(head.weight_VW.dtype, torch.float32)
        for_hidden, for_weight, for_bias = head.needed if is_needed else NO_GRADIENTS
        self.hidden_NW = torch.empty_like(chunks.hidden_NW) if for_hidden else None
        self.weight_VW = torch.zeros_like(head.weight_VW, dtype=dtype) if for_weight else None
        self.bias_V = torch.zeros_like(head.bias_V, dtype=dtype) if for_bias and head.bias_V is not None else None

    def add(self, part: slice, gradient_CV: Tensor) -> None:
        """Add the gradients of some of the N rows, given the gradient of their logits."""
        count = self.chunks.head.logit_count
        gradient_CV, hidden_CW = gradient_CV[:, :count], self.chunks.hidden_NW[part]
        if self.hidden_NW is not None:
            torch.mm(gradient_CV, self.chunks.head.weight_VW[:count], out=self.hidden_NW[part])
        if self.weight_VW is not None:
            weight_VW = self.weight_VW[:count]
            if weight_VW.dtype == gradient_CV.dtype:  # without a temporary tensor for the product
                weight_VW.addmm_(gradient_CV.t(), hidden_CW)
            else:
                weight_VW.add_(gradient_CV.t() @ hidden_CW)
        if self.bias_V is not None:
            self.bias_V[:count].add_(gradient_CV.sum(0, dtype=self.bias_V.dtype))

    def full(self, places_N: Tensor) -> Gradients:
        """Return the gradients. The gradient of hidden states [P, W] is 0 in rows that were not chosen."""
        if self.hidden_NW is None:
            return None, self.weight_VW, self.bias_V
        hidden_PW = torch.zeros_like(self.chunks.head.hidden_PW)
        return hidden_PW.index_copy_(0, places_N, self.hidden_NW), self.weight_VW, self.bias_V
