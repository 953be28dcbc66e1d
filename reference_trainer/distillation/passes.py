"""A forward of a student whose gradient is applied once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from reference_trainer.errors import PassConsumedError, ShapeError

__all__ = ["OncePass"]


class OncePass:
    """Logits and a function that applies their gradient once; the function and its graph are then released.

    A misshapen gradient is refused before the pass is consumed. An application that raises consumes it, because part
    of the gradient may have been applied.
    """

    def __init__(
        self,
        logits_BTV: Tensor,
        apply: Callable[[Tensor, Sequence[Tensor | None]], None],
        hidden_states: Sequence[Tensor] = (),
    ) -> None:
        self._logits_BTV, self._hidden_states = logits_BTV, hidden_states
        self._apply: Callable[[Tensor, Sequence[Tensor | None]], None] | None = apply

    @property
    def logits(self) -> Tensor:
        return self._logits_BTV

    @property
    def hidden_states(self) -> Sequence[Tensor]:
        return self._hidden_states

    def backward(self, logit_gradient: Tensor, hidden_gradients: Sequence[Tensor | None] = ()) -> None:
        if self._apply is None:
            raise PassConsumedError("this pass has already taken its gradient; call forward again for another one")
        if not isinstance(logit_gradient, Tensor):
            raise ShapeError(
                f"invalid gradient: {type(logit_gradient).__name__}, expected a tensor of the logits' shape"
            )
        if logit_gradient.shape != self._logits_BTV.shape:
            read, expected = list(logit_gradient.shape), list(self._logits_BTV.shape)
            raise ShapeError(f"the gradient has shape {read}, the logits {expected}; expected equal shapes")
        apply, self._apply = self._apply, None
        apply(logit_gradient, hidden_gradients or [None] * len(self._hidden_states))
