"""Attacks on a new decoder: its tensors, their values, and the dtypes of weights and activations.

The subject is `reference_trainer.models.decoder`, or has its names.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.distill_run.falsify_decoder import DecoderCase, decoder_cases

KEPT = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}
# A mean or deviation exceeds six standard errors in 2 of 10^9 draws.
STANDARD_ERRORS = 6


def _tensors(vocab_size: int, layers: int, width: int) -> dict[str, tuple[int, ...]]:
    """The feed-forward has two thirds of the usual width 4W, because it has a third matrix (arXiv:2002.05202)."""
    hidden = 2 * 4 * width // 3
    block = {
        "attention_norm": (width,),
        "attention.query_key_value": (3 * width, width),
        "attention.out": (width, width),
        "feed_forward_norm": (width,),
        "feed_forward.gate_up": (2 * hidden, width),
        "feed_forward.down": (width, hidden),
    }
    blocks = {f"blocks.{layer}.{name}": shape for layer in range(layers) for name, shape in block.items()}
    ends = {"embedding": (vocab_size, width), "norm": (width,), "head": (vocab_size, width)}
    return {f"{name}.weight": shape for name, shape in (blocks | ends).items()}


@given(case=decoder_cases())
def falsify_tensor_names_and_shapes_follow_config(subject: Any, case: DecoderCase) -> None:
    """Exactly those of the architecture, all parameters, with the sizes of the configuration."""
    module = subject.new_decoder(case.config(subject), case.seed)
    seen = {name: tuple(value.shape) for name, value in module.named_parameters()}
    expected = _tensors(case.vocab_size, case.layers, case.width)
    assert seen == expected, (
        f"{case.config(subject)} has {sorted(seen.items() - expected.items())} instead of "
        f"{sorted(expected.items() - seen.items())}"
    )
    kept = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    assert kept == expected, f"saved are {sorted(kept.items() ^ expected.items())} more or less than the parameters"


@given(layers=st.integers(1, 3), width=st.sampled_from([32, 48]), seed=st.integers(0, 2**20))
def falsify_initial_weights_follow_gpt_2(subject: Any, layers: int, width: int, seed: int) -> None:
    """Normal, of mean 0 and deviation 0.02; into the residual stream, 0.02 / √(its additions); gains of 1."""
    config = subject.DecoderConfig(vocab_size=32, layers=layers, width=width, heads=2)
    for name, value in subject.new_decoder(config, seed).state_dict().items():
        if value.dim() == 1:
            assert bool((value == 1).all()), f"the gains of {name} begin at {value[:3].tolist()}; expected 1"
            continue
        additions = 2 * layers if ".out." in name or ".down." in name else 1
        expected, n = 0.02 * additions**-0.5, value.numel()
        mean, deviation = float(value.mean()), float(value.std())
        of = f"{name}, {n} weights of a model of {layers} layers,"
        allowed = STANDARD_ERRORS * expected / n**0.5
        assert abs(mean) <= allowed, f"{of} have the mean {mean:.3g}; expected 0 ± {allowed:.2g}"
        allowed = STANDARD_ERRORS * expected / (2 * n) ** 0.5
        assert abs(deviation - expected) <= allowed, (
            f"{of} have the standard deviation {deviation:.4g}; expected {expected:.4g} ± {allowed:.2g}"
        )


@given(stored=st.sampled_from(["float32", "float64", "bfloat16"]), dtype=st.sampled_from(list(KEPT)))
def falsify_weights_are_stored_in_the_right_dtype(subject: Any, stored: str, dtype: str) -> None:
    """float64 in a run in float64, float32 in any other, whatever they were stored in; rounded once at most.

    The subject is `reference_trainer.models.placement`.
    """
    models = importlib.import_module("reference_trainer.models.decoder")
    config = models.DecoderConfig(vocab_size=5, layers=1, width=6, heads=1)
    before = models.new_decoder(config, 0).to(getattr(torch, stored)).state_dict()
    before = {name: value.clone() for name, value in before.items()}
    module = models.new_decoder(config, 1).to(getattr(torch, stored))
    module.load_state_dict(before)
    for name, value in subject.stored_in(dtype, module).state_dict().items():
        assert value.dtype is KEPT[dtype], f"{name}, stored in {stored}, is {value.dtype} in a run in {dtype}"
        same = torch.equal(value, before[name].to(KEPT[dtype]))
        assert same, f"{name} was {before[name].flatten()[:3]} and is {value.flatten()[:3]} in a run in {dtype}"


class _Wide(TorchDispatchMode):
    """The operations that returned a float64 tensor with a batch axis: tables of positions have two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.by: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        given = function(*arguments, **(named or {}))
        for each in given if isinstance(given, tuple | list) else [given]:
            if isinstance(each, torch.Tensor) and each.dtype is torch.float64 and each.dim() > 2:
                self.by.append(f"{function} {list(each.shape)}")
        return given


@given(case=decoder_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_no_activation_is_promoted_to_float64(subject: Any, case: DecoderCase, dtype: torch.dtype) -> None:
    """No tensor with a batch axis is in float64, which a GPU computes up to 64 times more slowly."""
    module = case.decoder(subject, dtype)
    with torch.no_grad(), _Wide() as wide:
        module(case.tokens)
    assert not wide.by, f"weights are {dtype}, and these operations returned float64: {wide.by[:3]}"
