"""Where a model computes, and in which dtype."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference_trainer.errors import SettingError
from reference_trainer.models import Decoder

__all__ = ["computing_in", "stored_in", "usable_device"]


def usable_device(name: str) -> torch.device:
    """The device of that name, `auto` for the best there is; `SettingError` if it can't be used here."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise SettingError(
            f"device is {name!r}, which can't be used here: {str(error).splitlines()[0]}; auto takes what there is"
        ) from error
    return torch.device(name)


def stored_in(dtype: str, decoder: Decoder) -> Decoder:
    """The decoder, its weights stored as a run in `dtype` has them: bfloat16 multiplies in it, and stores float32."""
    return decoder.double() if dtype == "float64" else decoder.float()


def computing_in(dtype: str, decoder: Decoder) -> nn.Module:
    """The decoder as a run in `dtype` computes with it."""
    return _Autocast(decoder) if dtype == "bfloat16" else decoder


class _Autocast(nn.Module):
    """A module that multiplies in bfloat16 and keeps its weights in float32."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens_BT: Tensor) -> Tensor:
        with torch.autocast(tokens_BT.device.type, dtype=torch.bfloat16):
            logits_BTV: Tensor = self.module(tokens_BT)
        return logits_BTV
