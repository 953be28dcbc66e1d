"""The device of a run: `auto`, and devices that are missing."""

import pytest
import torch

from reference_trainer.errors import SettingError
from reference_trainer.models.placement import usable_device


def test_auto_is_the_cpu_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert usable_device("auto") == torch.device("cpu")


def test_auto_is_cuda_where_it_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    try:
        assert usable_device("auto").type == "cuda"
    except SettingError as error:  # this machine has none
        assert "invalid value 'cuda' for 'device'" in str(error)


def test_missing_device_is_refused_by_name_with_advice() -> None:
    with pytest.raises(SettingError, match=r"invalid value .cuda:999. for .device.: .*; use auto to select"):
        usable_device("cuda:999")
