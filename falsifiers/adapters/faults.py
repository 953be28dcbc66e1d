"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any


def base_saved(original: Any, self: Any, *args: Any, **options: Any) -> Any:
    """Return the tensors of the base, too."""
    from reference_trainer.huggingface.models import Causal

    return super(Causal, self).state_dict(*args, **options)


def base_trained(original: Any, parameters: Any, rate: float, **rest: Any) -> Any:
    """Unfreeze what an adapter has frozen, as a list of modules to train does."""
    return original([each.requires_grad_() for each in parameters], rate, **rest)


def names_not_compared(original: Any, self: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
    """Load the tensors that are there, and leave the others as they are drawn."""
    from reference_trainer.huggingface.models import Causal

    return super(Causal, self).load_state_dict(state_dict, strict=False)
