"""Attacks on the devices of a decoder's tensors, on a machine without a GPU.

The subject is `reference_trainer.models.decoder`, or has its names.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.decoder.cases import DecoderCase, decoder_cases
from falsifiers.support.fake_device import DEVICE, FakeDevice, complaint


@given(case=decoder_cases(), packed=st.booleans())
def falsify_no_operation_mixes_devices(subject: Any, case: DecoderCase, packed: bool) -> None:
    with FakeDevice():
        with torch.device(DEVICE):
            module = subject.Decoder(case.config(subject))
        tokens = torch.empty(case.tokens.shape, dtype=torch.int64, device=DEVICE)
        rest = (torch.ones_like(tokens),) if packed else ()
        raised = complaint(f"weights and tokens are on {DEVICE}", lambda: module(tokens, *rest).sum().backward())
    assert raised is None, raised
    seen = {name: value.grad is not None and value.grad.device.type for name, value in module.named_parameters()}
    assert set(seen.values()) == {DEVICE}, f"weights are on {DEVICE}, their gradients on: {seen}"
