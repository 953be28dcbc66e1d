"""Attacks on the logits of a decoder. The subject is `reference_trainer.models.decoder`, or has its names."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.decoder.cases import DecoderCase, assert_follows_equations, decoder_cases
from falsifiers.support import decoder_oracle as oracle
from falsifiers.support.fake_device import complaint


@given(case=decoder_cases(), dtype=st.sampled_from([torch.float32, torch.float64]))
def falsify_logits_follow_equations(subject: Any, device: str, case: DecoderCase, dtype: torch.dtype) -> None:
    module = case.decoder(subject, dtype, device)
    with torch.no_grad():
        seen = module(case.tokens.to(device))
    assert seen.dtype is dtype, f"weights in {dtype} give logits in {seen.dtype}"
    assert_follows_equations("logits", seen, module, case.heads, case.tokens)


@given(case=decoder_cases(), dtype=st.sampled_from([torch.float32, torch.float64]))
def falsify_hidden_states_are_those_after_each_block(
    subject: Any, device: str, case: DecoderCase, dtype: torch.dtype
) -> None:
    module, tokens = case.decoder(subject, dtype, device), case.tokens.to(device)
    with torch.no_grad():
        logits, outputs = module(tokens), module(tokens, output_hidden_states=True)
        heads = [module.head(module.norm(state)) for state in outputs.hidden_states]
    assert torch.equal(outputs.logits, logits), "logits with hidden states differ from those without"
    assert len(heads) == case.layers, f"{len(heads)} hidden states; expected one for each of {case.layers} blocks"
    for k, seen in enumerate(heads, start=1):
        first = copy.deepcopy(module)
        first.blocks = first.blocks[:k]
        assert_follows_equations(f"logits of state {k}", seen, first, case.heads, case.tokens)


@given(case=decoder_cases(fewest_tokens=2), data=st.data())
def falsify_attention_is_causal(subject: Any, device: str, case: DecoderCase, data: st.DataObject) -> None:
    """Logits up to i keep every bit when later tokens change: those have the weight 0, and adding 0 rounds nothing.

    Without the later tokens kernels may sum in another order, so there they keep what rounding leaves.
    """
    i = data.draw(st.integers(0, case.tokens.shape[1] - 2), label="i")
    module = case.decoder(subject, device=device)
    other = case.tokens.clone()
    other[:, i + 1 :] = (other[:, i + 1 :] + 1) % case.vocab_size
    with torch.no_grad():
        here, there, alone = (module(t.to(device))[:, : i + 1] for t in (case.tokens, other, case.tokens[:, : i + 1]))
    assert torch.equal(here, there), (
        f"other tokens after position {i} change logits up to it by {float((here - there).abs().max()):.3g}"
    )
    allowed = oracle.allowed(oracle.weights_of(module), case.heads, case.tokens.numpy(), torch.float32)
    apart = float((here - alone).abs().max())
    assert apart <= allowed, (
        f"without the tokens after position {i} logits differ by {apart:.3g}, allowed {allowed:.3g}"
    )


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


@given(case=decoder_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]), packed=st.booleans())
def falsify_no_activation_is_promoted_to_float64(
    subject: Any, device: str, case: DecoderCase, dtype: torch.dtype, packed: bool
) -> None:
    """No tensor with a batch axis is in float64, which a GPU computes up to 64 times more slowly."""
    module = case.decoder(subject, dtype, device)
    tokens = case.tokens.to(device)
    rest = (torch.ones_like(tokens),) if packed else ()
    with torch.no_grad(), _Wide() as wide:
        raised = complaint("a forward pass", lambda: module(tokens, *rest))
    assert raised is None, raised
    assert not wide.by, f"weights are {dtype}, and these operations returned float64: {wide.by[:3]}"
