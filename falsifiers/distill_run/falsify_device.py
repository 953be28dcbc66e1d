"""An attack on the name of a device. The subject is `reference_trainer.models.placement`."""

from __future__ import annotations

from typing import Any

import torch


def falsify_device_has_its_own_name(subject: Any) -> None:
    assert subject.device_name(torch.device("cpu")) == "cpu"
    try:
        seen = subject.device_name(torch.device("cuda"))
    except (RuntimeError, AssertionError):  # of torch, where there is no driver
        return
    assert seen != "cpu", "a GPU is recorded as the CPU"
