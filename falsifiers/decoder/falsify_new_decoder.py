"""Attacks on a new decoder: its shape, its tensors, their values and dtypes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.decoder.cases import DecoderCase, decoder_cases
from falsifiers.support.torch_modes import MODES

SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "without changes": nullcontext,
    **{
        name: lambda name=name: MODES[name]("cpu")  # bound at once
        for name in ("no_grad", "default dtype float64", "default dtype bfloat16", "default device meta")
    },
}


@given(case=decoder_cases(), setting=st.sampled_from(list(SETTINGS)), drawn=st.integers(0, 5))
def falsify_weights_depend_only_on_config_and_seed(
    subject: Any, device: str, case: DecoderCase, setting: str, drawn: int
) -> None:
    first = subject.new_decoder(case.config(subject), case.seed)
    torch.rand(drawn, device=device)
    before = _states(device)
    with SETTINGS[setting]():
        default = torch.get_default_dtype()
        second = subject.new_decoder(case.config(subject), case.seed)
        assert torch.get_default_dtype() is default, f"the default dtype was {default}: {torch.get_default_dtype()}"
    moved = [at for at, state in _states(device).items() if not torch.equal(state, before[at])]
    assert not moved, f"making a model moved the random numbers of the process on {moved}"
    for name, value in first.named_parameters():
        other = second.get_parameter(name)
        same = other.dtype is value.dtype and other.device == value.device and torch.equal(value, other)
        assert same, f"{name} differs, {setting}, after {drawn} draws: {value.flatten()[:3]}, {other.flatten()[:3]}"
        assert other.requires_grad, f"{name} does not require a gradient"
    unlike = subject.new_decoder(case.config(subject), case.seed + 1).embedding.weight
    assert not torch.equal(first.embedding.weight, unlike), f"seeds {case.seed} and {case.seed + 1} give equal weights"


def _states(device: str) -> dict[str, torch.Tensor]:
    return {"cpu": torch.get_rng_state()} | ({"cuda": torch.cuda.get_rng_state()} if device == "cuda" else {})
