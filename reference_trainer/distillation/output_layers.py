"""The output layer of a module: found, checked, and replaced during a forward.

A module offers it by a method `get_output_embeddings`, as the causal models of transformers do and `models.decoder`
does, which returns an `nn.Linear`. Wrappers such as DDP are looked through at `module`.

Shape letters: B batch, T position, V vocabulary, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from reference_trainer.distillation.heads import Gradients, Head, head_loss, head_of
from reference_trainer.distillation.protocols import Batch

__all__ = ["LEAST_VOCABULARY", "OutputLayer"]

LEAST_VOCABULARY = 8192
"""Tokens of a vocabulary below which all logits are formed at once: they take little memory."""
LARGEST = 1000.0  # a bound or scale of logits that a model may have changes larger ones at least
CHECKED_TOKENS = 8


class OutputLayer:
    """The output layer of a teacher or student, if its module returns what this layer returns, unchanged.

    note: called with a line if the vocabulary is large and the layer cannot be used.
    """

    def __init__(self, model: str, module: nn.Module, vocab_size: int, note: Callable[[str], object]) -> None:
        self._model, self._module, self._vocab_size, self._note = model, module, vocab_size, note
        self._refusal: str | None = None

    def is_offered(self, batch: Batch, logits: Callable[[Batch], Tensor]) -> bool:
        """Return whether the layer can be replaced; the first call runs `logits` on the first tokens of the batch."""
        if self._vocab_size < LEAST_VOCABULARY:
            return False
        if self._refusal is None:
            self._refusal = self.refusal(batch, logits)
            if self._refusal:
                self._note(f"the {self._model} forms the logits of all tokens at once: {self._refusal}")
        return not self._refusal

    def find(self) -> object:
        """Return what the module offers as its output layer; None if it offers nothing."""
        get = getattr(_unwrapped(self._module), "get_output_embeddings", None)
        return None if get is None else get()

    @property
    def is_whole(self) -> bool:
        """Return whether the weights can be used after a forward: those of a shard cannot."""
        layer = self.find()
        return isinstance(layer, nn.Linear) and not hasattr(layer.weight, "full_tensor")

    @contextmanager
    def record_heads(self) -> Iterator[list[Head]]:
        """Yield a list that gets the layer's input and weights in each forward; no logits are formed."""
        heads: list[Head] = []

        def keep(layer: nn.Linear, hidden_BTW: Tensor) -> Tensor:
            heads.append(head_of(hidden_BTW, layer.weight, layer.bias))
            return hidden_BTW.new_empty(*hidden_BTW.shape[:-1], 0)

        with self._replaced(keep):
            yield heads

    @contextmanager
    def consumed(self, consume: Callable[[Head], Gradients]) -> Iterator[None]:
        """Let forwards return the tensor of `heads.head_loss` for their logits."""
        with self._replaced(lambda layer, hidden: head_loss(hidden, layer.weight, layer.bias, consume)):
            yield

    @contextmanager
    def _replaced(self, forward: Callable[[nn.Linear, Tensor], Tensor]) -> Iterator[None]:
        layer = self.find()
        assert isinstance(layer, nn.Linear)
        layer.__dict__["forward"] = lambda hidden_BTW: forward(layer, hidden_BTW)
        try:
            yield
        finally:
            del layer.__dict__["forward"]

    def refusal(self, batch: Batch, logits: Callable[[Batch], Tensor]) -> str:
        """Return why the layer cannot be used, empty if it can.

        The layer's logits are replaced by known ones, large enough that a soft cap, a scale or a bound of the model
        changes some of them, whatever its weights are.
        """
        layer = self.find()
        if layer is None:
            return "it has no method get_output_embeddings"
        if type(layer) is not nn.Linear or "forward" in vars(layer):
            return f"its output layer is not a plain nn.Linear, but {type(layer).__name__}"
        known: list[Tensor] = []

        def marked(layer: nn.Linear, hidden_BTW: Tensor) -> Tensor:
            logits_BTV = nn.functional.linear(hidden_BTW, layer.weight, layer.bias)
            values_V = torch.linspace(-LARGEST, LARGEST, logits_BTV.shape[-1], device=logits_BTV.device)
            known.append(values_V.to(logits_BTV.dtype).expand_as(logits_BTV))
            return known[-1]

        with self._replaced(marked):
            seen_BTV = logits(_first(batch))
        if len(known) != 1:
            return f"it applies its output layer {len(known)} times in a forward"
        if seen_BTV.shape != known[0].shape or not torch.equal(seen_BTV.double(), known[0].double()):
            return "it changes those of its output layer, such as by a soft cap or a scale"
        return ""


def _first(batch: Batch) -> Batch:
    if not batch.tokens.numel():  # every rank checks at once, also one without sequences
        nothing_11 = batch.tokens.new_zeros(1, 1)
        return Batch(tokens=nothing_11, labels=nothing_11)
    begin = slice(1), slice(CHECKED_TOKENS)
    segments = None if batch.segments is None else batch.segments[begin]
    return Batch(tokens=batch.tokens[begin], labels=batch.labels[begin], segments=segments)


def _unwrapped(module: nn.Module) -> nn.Module:
    inner = getattr(module, "module", None)
    if not hasattr(module, "get_output_embeddings") and isinstance(inner, nn.Module):
        return _unwrapped(inner)
    return module
