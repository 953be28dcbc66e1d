"""Wrong versions of public functions: the faults that the contract declares."""

from typing import Any


def base_saved(original: Any, self: Any, *args: Any, **options: Any) -> Any:
    from reference_trainer.huggingface.models import Causal

    return super(Causal, self).state_dict(*args, **options)


def base_trained(original: Any, parameters: Any, rate: float, **rest: Any) -> Any:
    return original([parameter.requires_grad_() for parameter in parameters], rate, **rest)


def names_not_compared(original: Any, self: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
    from reference_trainer.huggingface.models import Causal

    return super(Causal, self).load_state_dict(state_dict, strict=False)


def magnitudes_left_out(original: Any, *args: Any, **options: Any) -> Any:
    from unittest import mock

    with mock.patch("reference_trainer.huggingface.models.KEY_MAPPING", {}):
        return original(*args, **options)
